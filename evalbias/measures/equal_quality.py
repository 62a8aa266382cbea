"""Effects on judges' scores at equal quality: of any feature of the items, and of likelihood; see ``effect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import common_index, vectors
from evalbias.measures.effect import FeatureEffect, fitted_effect
from evalbias.measures.instrumented import jackknife
from evalbias.measures.joint_model import joint_model
from evalbias.measures.raters import pool


def effect_at_equal_quality(
    feature: ArrayLike,
    model_scores: ArrayLike,
    ratings: ArrayLike,
    *,
    name: str = "feature",
    standardized: bool = True,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
    differences: bool = False,
    mirrored: bool = False,
) -> FeatureEffect:
    """Estimate the effect of a feature of the items on a judge's scores, with the quality held fixed.

    The estimator is two-stage least squares on all ordered pairs of an item's ratings, one as regressor and the other
    as its instrument, with items weighted equally. It is consistent if an item's ratings are independent given its
    quality and the mean score is linear in quality and feature. A level that differs between the columns of ``ratings``
    (stricter raters) is removed, and scales that differ (raters who move more points for the same quality) are allowed
    for if the columns are three or more; those of two cannot be told apart and count as equal. The interval is a t
    interval with the standard error of the jackknife over inputs: it holds its level with few inputs and with many
    outputs of each.

    Judges that compare are measured by the same function: give the feature of the first candidate less that of the
    second, the log-odds of the first one's win, and the differences in rating or the single annotators' preferences
    (1, 0, -1), and say so by ``differences``. If the judge saw both orders, say ``mirrored`` too.

    Args:
        feature: (n,) numbers, such as the log of the length.
        model_scores: (n,) Score_m on any scale.
        ratings: (n, r) single ratings on any scale, NaN where a rater gave none. Items with one rating are left out
            unless no item has two.
        name: Name of the feature in messages.
        standardized: Whether the effect is that of one standard deviation of the feature, or of one unit, as for a
            feature that is 0 or 1.
        clusters: (n,) input of each item; by default every item is its own.
        covariates: Name -> (n,) what else is held fixed: numbers, or texts such as the system, of which each gets its
            own level.
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only where no item has two
            ratings.
        differences: Whether feature, scores and ratings are differences between the candidates of pairs. The interval
            then allows for ratings near the end of their scale, which hides differences between them.
        mirrored: Whether each pair counts both ways, with all signs turned, so that it does not matter which candidate
            the data name first. Not for scores of one order of showing: there the model's constant holds the judge's
            lean towards a position.

    Returns:
        The effect, in standard deviations of the scores. Without two ratings and without ``reliability`` it is NaN and
        has bounds for reliabilities from .5 to 1, from 1/pi if the ratings have two values.

    Raises:
        ValueError: The lengths or pandas indexes differ, a number is infinite, a cluster is missing, or
            ``reliability`` is out of range or contradicts several ratings.

    Examples:
        >>> ratings = [[1, 1], [2, 3], [3, 2], [4, 4], [5, 4], [2, 2], [3, 4], [5, 5]]
        >>> scores = [1.4, 2.9, 2.6, 4.1, 4.2, 2.5, 3.1, 5.2]
        >>> found = effect_at_equal_quality([-9, -4, -6, -5, -8, -3, -9, -4], scores, ratings)
        >>> round(found.effect, 2), round(found.low, 2), round(found.high, 2)
        (0.18, -0.24, 0.6)
    """
    common_index(feature, model_scores, ratings, clusters, *(covariates or {}).values())
    x, scores = vectors(**{name: feature, "model_scores": model_scores})
    options: dict[str, Any] = {"name": name, "standardized": standardized, "differences": differences}
    options["mirrored"] = mirrored
    return fitted_effect(
        x, scores[:, None], ratings, reliability=reliability, clusters=clusters, covariates=covariates, **options
    )


def effect_change(
    feature: ArrayLike,
    before: ArrayLike,
    after: ArrayLike,
    ratings: ArrayLike,
    *,
    name: str = "feature",
    standardized: bool = True,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
    mirrored: bool = False,
) -> FeatureEffect:
    """Estimate how the effect differs between two judges on the same items: the second's minus the first's.

    The effect is linear in the standardized scores, so the difference is the effect on their difference, and its
    interval and test are paired. Only items that both judges scored count. A change needs no allowance for the ends of
    the rating scale, so it has no ``differences``.

    Args:
        feature: As for ``effect_at_equal_quality``, as are all arguments that are not listed here.
        before: (n,) Score_m of the first judge.
        after: (n,) Score_m of the second judge.
        ratings: (n, r) single ratings.
        name: Name of the feature in messages.
        standardized: Whether the effect is that of one standard deviation.
        clusters: (n,) input of each item.
        covariates: What else is held fixed.
        reliability: Reliability of a single rating.
        mirrored: As for ``effect_at_equal_quality``.

    Returns:
        The result for the difference; ``score_sd`` is 1.

    Raises:
        ValueError: See ``effect_at_equal_quality``.
    """
    common_index(feature, before, after, ratings, clusters, *(covariates or {}).values())
    x, first, second = vectors(**{name: feature, "before": before, "after": after})
    scores = np.column_stack([first, second])
    options: dict[str, Any] = {"name": name, "standardized": standardized, "mirrored": mirrored}
    return fitted_effect(
        x, scores, ratings, reliability=reliability, clusters=clusters, covariates=covariates, **options
    )


def likelihood_effect(
    likelihoods: ArrayLike, model_scores: ArrayLike, ratings: ArrayLike, **options: Any
) -> FeatureEffect:
    """Estimate the effect of likelihood at equal quality: ``effect_at_equal_quality`` of LS (n,), in nats."""
    return effect_at_equal_quality(likelihoods, model_scores, ratings, name="likelihood", **options)


def likelihood_effect_change(
    likelihoods: ArrayLike, before: ArrayLike, after: ArrayLike, ratings: ArrayLike, **options: Any
) -> FeatureEffect:
    """Estimate how the effect of likelihood differs between two judges; see ``effect_change``."""
    return effect_change(likelihoods, before, after, ratings, name="likelihood", **options)


def likelihood_effects(
    likelihoods: ArrayLike, scores: FloatArray, ratings: ArrayLike, *, clusters: Sequence[object] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Estimate the effect of likelihood on each of several judges, and how far the estimates err together.

    Args:
        likelihoods: (n,) LS in nats.
        scores: (n, s) Score_m of s judges; only items that all of them scored count.
        ratings: (n, r) two or more ratings an item.
        clusters: (n,) input of each item.

    Returns:
        (s,) effects; (G, s) the jackknife's influence of each of G inputs: the covariance of the effects is
        ``influence.T @ influence``. Both are NaN for a judge that gives all items the same score.
    """
    (x,) = vectors(likelihoods=likelihoods)
    model = joint_model(x, scores, ratings, name="likelihood", standardized=True, clusters=clusters)
    rated = pool(model.ratings)
    varied = ~np.isnan(model.scores).any(axis=0)
    coefficients, left_out = jackknife(model.scores[:, varied], model.matrix, rated, model.clusters, unit=model.unit)
    effects, influence = np.full(varied.size, np.nan), np.full((left_out.shape[0], varied.size), np.nan)
    effects[varied], rest = coefficients[1], left_out[:, 1]
    influence[:, varied] = (rest.mean(axis=0) - rest) * np.sqrt((rest.shape[0] - 1) / rest.shape[0])
    return effects, influence
