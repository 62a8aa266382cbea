"""Likelihood effect: by how much a judge scores likely text higher than other text of the same quality.

BiasScore compares the judge with the mean rating. Ratings are noisy, and likely text is often good text, so an
unbiased judge seems biased too: part of what it sees of the quality is missing from the rating, and likelihood fills
the gap. The likelihood effect holds the quality itself fixed,

    z(Score_m) = a + b quality + c z(LS) + error,

and reads the quality from two or more ratings an item, each of which is an instrument for the others. The effect c is 0
for a judge whose mean score depends on the quality alone, whatever the noise of the ratings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import vectors
from evalbias.measures.instrumented import Rated, Slope, fit, pool, weak_test, with_reliability
from evalbias.measures.joint_model import JointModel, joint_model

RELIABILITIES = (0.5, 1.0)
"""Reliabilities of a single rating between which bounds are given where it is unknown."""
STRONG = 10.0
"""F of the first stage from which the usual interval holds (Staiger and Stock 1997)."""
QUALITY = "quality"
ONE_RATING = (
    "the items have one rating, and the effect depends on its reliability: state it, or have a second person rate them"
)
UNRELATED = "the ratings of an item agree no more than its likelihood explains: collect more reliable ratings"
TOO_WEAK = "the ratings are too few or too unreliable to hold the quality fixed: rate more items, or each more often"


@dataclass(frozen=True)
class LikelihoodEffect:
    """Effect of likelihood on a judge's scores at equal quality.

    Attributes:
        effect: c, the change in the score, in its standard deviations, for one standard deviation of LS; NaN where it
            cannot be told, see ``reason``.
        low: Lower end of the 95 % interval. Where only the reliability is unknown, the interval holds for every
            reliability from .5 to 1.
        high: Upper end.
        standard_error: Standard error of the effect, from the jackknife over inputs.
        p_value: Two-sided p of the test against 0.
        bounds: Smallest and largest effect that the unknown reliability of a single rating allows; both are the effect
            where the reliability is known.
        slopes: The other coefficients of the model: ``"quality"`` for one point of the ratings, the covariates for one
            standard deviation, ``name=level`` against the first level.
        score_sd: Standard deviation of the scores, in points: ``effect * score_sd`` is the effect in points.
        reliability: Share of the mean rating's variance that is quality; NaN if unknown.
        first_stage_f: F of one rating as instrument for another; NaN for a single rating.
        weak: Whether F is below 10; the interval is then the one of Anderson and Rubin, which needs no strong
            instrument.
        n: Items that count.
        clusters: Clusters (inputs) that they belong to.
        undefined: Items left out because a number is missing.
        reason: Why the effect is undefined; empty where it is defined.
    """

    effect: float
    low: float
    high: float
    standard_error: float
    p_value: float
    bounds: tuple[float, float]
    slopes: Mapping[str, Slope]
    score_sd: float
    reliability: float
    first_stage_f: float
    weak: bool
    n: int
    clusters: int
    undefined: int
    reason: str = ""


def likelihood_effect(
    likelihoods: ArrayLike,
    model_scores: ArrayLike,
    ratings: ArrayLike,
    *,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
) -> LikelihoodEffect:
    """Estimate the effect of likelihood on a judge's scores, with the quality held fixed.

    The estimator is two-stage least squares on all ordered pairs of an item's ratings, one as regressor and the other
    as its instrument, with items weighted equally. It is consistent if an item's ratings are independent given its
    quality and the mean score is linear in quality and LS. A level that differs between the columns of ``ratings``
    (stricter raters) is removed. The interval is a t interval with the standard error of the jackknife over inputs: it
    holds its level with few inputs and with many outputs of each.

    Judges that compare are measured by the same function: give the difference in LS of the two candidates, the log-odds
    of the first one's win, and the differences in rating or the single annotators' preferences (1, 0, -1).

    Args:
        likelihoods: (n,) LS in nats.
        model_scores: (n,) Score_m on any scale.
        ratings: (n, r) single ratings on any scale, NaN where a rater gave none. Items with one rating are left out
            unless no item has two.
        clusters: (n,) input of each item; by default every item is its own.
        covariates: Name -> (n,) what else is held fixed: numbers, or texts such as the system, of which each gets its
            own level.
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only where no item has two
            ratings.

    Returns:
        The effect, in standard deviations. Without two ratings and without ``reliability`` it is NaN and has bounds
        for reliabilities from .5 to 1.

    Raises:
        ValueError: The lengths differ, a number is infinite, or ``reliability`` is out of range or contradicts several
            ratings.

    Examples:
        >>> ratings = [[1, 1], [2, 3], [3, 2], [4, 4], [5, 4], [2, 2], [3, 4], [5, 5]]
        >>> scores = [1.4, 2.9, 2.6, 4.1, 4.2, 2.5, 3.1, 5.2]
        >>> found = likelihood_effect([-9, -4, -6, -5, -8, -3, -9, -4], scores, ratings)
        >>> round(found.effect, 2), round(found.low, 2), round(found.high, 2)
        (0.18, -0.24, 0.6)
    """
    ls, scores = vectors(likelihoods=likelihoods, model_scores=model_scores)
    return _effect(ls, scores[:, None], ratings, clusters, covariates, reliability)


def likelihood_effect_change(
    likelihoods: ArrayLike,
    before: ArrayLike,
    after: ArrayLike,
    ratings: ArrayLike,
    *,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
) -> LikelihoodEffect:
    """Estimate how the effect differs between two judges on the same items: the second's minus the first's.

    The effect is linear in the standardized scores, so the difference is the effect on their difference, and its
    interval and test are paired. Only items that both judges scored count.

    Args:
        likelihoods: (n,) LS in nats.
        before: (n,) Score_m of the first judge.
        after: (n,) Score_m of the second judge.
        ratings: As for ``likelihood_effect``.
        clusters: As for ``likelihood_effect``.
        covariates: As for ``likelihood_effect``.
        reliability: As for ``likelihood_effect``.

    Returns:
        The result for the difference; ``score_sd`` is 1.

    Raises:
        ValueError: See ``likelihood_effect``.
    """
    ls, first, second = vectors(likelihoods=likelihoods, before=before, after=after)
    return _effect(ls, np.column_stack([first, second]), ratings, clusters, covariates, reliability)


def _effect(
    likelihoods: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    clusters: Sequence[object] | None,
    covariates: Mapping[str, Sequence[object]] | None,
    reliability: float | None,
) -> LikelihoodEffect:
    """Measure scores (n, 1), or the second of (n, 2) less the first."""
    if reliability is not None and not 0 < reliability <= 1:
        raise ValueError(f"reliability={reliability} is out of range: it is a share of the variance, in (0, 1].")
    model = joint_model(likelihoods, scores, ratings, clusters, covariates)
    if model.several and reliability is not None:
        raise ValueError("The items have several ratings, which tell their reliability: leave out reliability.")
    if problem := model.problem():
        return _undefined(model, problem)
    if model.several:
        return _fitted(model, pool(model.ratings))
    single = np.nansum(model.ratings, axis=1)  # the one rating of each item
    if reliability is not None:
        return _fitted(model, with_reliability(single, reliability))
    return _between(*(_fitted(model, with_reliability(single, r)) for r in RELIABILITIES))


def _fitted(model: JointModel, rated: Rated) -> LikelihoodEffect:
    x = model.matrix
    found = fit(model.scores, x, rated, model.clusters, unit=model.unit)
    if not found.identified:
        return _undefined(model, UNRELATED, rated.reliability)
    effect, *slopes = found.slopes()[1:]  # the first is the constant
    weak = found.first_stage_f < STRONG
    if weak:
        low, high, p_value = weak_test(model.target, x, 1, rated, model.clusters)
        if not np.isfinite([low, high]).all():
            return _undefined(model, TOO_WEAK, rated.reliability, found.first_stage_f)
        effect = replace(effect, low=low, high=high, p_value=p_value)
    return LikelihoodEffect(
        effect=effect.value,
        low=effect.low,
        high=effect.high,
        standard_error=effect.standard_error,
        p_value=effect.p_value,
        bounds=(effect.value, effect.value),
        slopes=dict(zip([*list(model.columns)[1:], QUALITY], slopes, strict=True)),
        score_sd=model.score_sd,
        reliability=rated.reliability,
        first_stage_f=found.first_stage_f,
        weak=weak,
        n=len(x),
        clusters=found.clusters,
        undefined=model.undefined,
    )


def _between(first: LikelihoodEffect, second: LikelihoodEffect) -> LikelihoodEffect:
    """Join the effects at both ends of the range of reliabilities; between them it is monotone."""
    if first.reason:
        return first
    low, high = sorted((first.effect, second.effect))
    return replace(
        first,
        effect=np.nan,
        low=min(first.low, second.low),
        high=max(first.high, second.high),
        standard_error=np.nan,
        p_value=max(first.p_value, second.p_value) if low * high > 0 else 1.0,
        bounds=(low, high),
        slopes={},
        reliability=np.nan,
        first_stage_f=np.nan,
        weak=False,
        reason=ONE_RATING,
    )


def _undefined(
    model: JointModel, reason: str, reliability: float = np.nan, first_stage_f: float = np.nan
) -> LikelihoodEffect:
    nan = float("nan")
    return LikelihoodEffect(
        nan,
        nan,
        nan,
        nan,
        nan,
        bounds=(nan, nan),
        slopes={},
        score_sd=model.score_sd,
        reliability=reliability,
        first_stage_f=first_stage_f,
        weak=first_stage_f < STRONG,
        n=len(model.scores),
        clusters=len(np.unique(model.clusters)),
        undefined=model.undefined,
        reason=reason,
    )
