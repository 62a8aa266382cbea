"""Effect of a feature (likelihood, length, the writer) on a judge's scores at equal quality, and how it is fitted.

Ratings are noisy, and likely or long text is often good text. So where the mean rating is held fixed, an unbiased judge
seems biased too: part of what it sees of the quality is missing from the rating, and the feature fills the gap. This
effect holds the quality itself fixed,

    z(Score_m) = a + b quality + c z(feature) + error,

and reads the quality from two or more ratings an item, each of which is an instrument for the others. The effect c is 0
for a judge whose mean score depends on the quality alone, whatever the noise of the ratings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.curvature import curvature
from evalbias.measures.instrumented import Slope, fit
from evalbias.measures.joint_model import QUALITY, JointModel, joint_model
from evalbias.measures.raters import Rated, pool, with_reliability, without_levels
from evalbias.measures.sides import curvature_of_sides
from evalbias.measures.weak_instruments import weak_test

RELIABILITIES = (0.5, 1.0)
"""Reliabilities of a single rating between which bounds are given where it is unknown."""
CHOICES = (1 / np.pi, 1.0)
"""The same where the rating has two values, such as a choice between two candidates: of a normally distributed quality,
the side alone has a reliability of 2/pi, and half of that is the least."""
STRONG = 10.0
"""F of the first stage from which the usual interval holds (Staiger and Stock 1997)."""
BENT = 0.012
"""Least curvature allowed for: that of ratings from 1 to 5 around the middle, beside a judge without a scale. It need
not show in the distribution of scores and ratings, as for differences between the candidates of a pair."""
ONE_RATING = (
    "the items have one rating, and the effect depends on its reliability: state it, or have a second person rate them"
)
UNRELATED = "what people say of an item agrees no more than its {feature} explains: collect more reliable ratings"
COLLINEAR = "the {feature} can hardly be told apart from what is held fixed: leave a covariate out"
ONE_INPUT = "without the items of one input the effect is unknown: judge outputs of more inputs"
TOO_WEAK = "the ratings are too few or too unreliable to hold the quality fixed: rate more items, or each more often"
EXACT = "the scores follow people's ratings exactly, which does not tell how far others would deviate: judge more items"
ROUNDING = 1e-6
"""Standard error, or width of an interval, up to which it is a rounding error of 0."""


@dataclass(frozen=True)
class FeatureEffect:
    """Effect of a feature on a judge's scores at equal quality.

    Attributes:
        effect: c, the change in the score, in its standard deviations, for one standard deviation of the feature, or
            one unit where it is not standardized; NaN where it cannot be told, see ``reason``.
        low: Lower end of the 95 % interval, which allows for ``ends``. Where only the reliability is unknown, the
            interval holds for every reliability from .5 to 1, or from 1/pi where the rating is one of two values.
        high: Upper end.
        standard_error: Standard error of the effect, from the jackknife over inputs; NaN, as are the interval and p,
            where the scores follow the ratings exactly, which tells nothing about it.
        p_value: Two-sided p of the test against 0, or against the nearest value between ``ends``.
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
        reason: Why the effect or its interval is undefined; empty where both are defined.
        ends: Smallest and largest effect that an unbiased judge would show because the ends of the scales cut off
            ratings or scores; 0 lies between. Both are 0 for a difference of two judges and for a single rating.
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
    ends: tuple[float, float] = (0.0, 0.0)


def fitted_effect(
    feature: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    *,
    reliability: float | None,
    differences: bool = False,
    **options: Any,
) -> FeatureEffect:
    """Fit the effect on scores (n, 1), or on the second of (n, 2) less the first; see ``effect_at_equal_quality``."""
    if reliability is not None and not 0 < reliability <= 1:
        raise ValueError(f"reliability={reliability} is out of range: it is a share of the variance, in (0, 1].")
    model = joint_model(feature, scores, ratings, **options)
    if model.several and reliability is not None:
        raise ValueError("The items have several ratings, which tell their reliability: leave out reliability.")
    if problem := model.problem():
        return _undefined(model, problem)
    if model.several:
        return _unless_exact(_fitted(model, pool(model.ratings), differences=differences))
    single = np.nansum(model.ratings, axis=1)  # the one rating of each item
    if reliability is not None:
        return _unless_exact(_fitted(model, with_reliability(single, reliability)))
    ends = CHOICES if len(np.unique(single)) == 2 else RELIABILITIES
    return _between(*(_fitted(model, with_reliability(single, r)) for r in ends))


def _fitted(model: JointModel, rated: Rated, *, differences: bool = False) -> FeatureEffect:
    x = model.matrix
    found = fit(model.scores, x, rated, model.clusters, unit=model.unit)
    if not found.identified:
        return _undefined(model, UNRELATED.format(feature=model.feature), rated.reliability)
    effect, *slopes = found.slopes()
    if np.isnan(effect.value):
        return _undefined(model, COLLINEAR.format(feature=model.feature), rated.reliability, found.first_stage_f)
    weak, ends = found.first_stage_f < STRONG, _ends(model, rated, differences)
    unbiased = min(max(effect.value, ends[0]), ends[1])
    if weak:
        low, high, p_value = weak_test(model.target, x, 1, rated, model.clusters, null=unbiased)
        if not np.isfinite([low, high]).all():
            return _undefined(model, TOO_WEAK, rated.reliability, found.first_stage_f)
        effect = replace(effect, low=low, high=high, p_value=p_value)
    else:
        effect = replace(effect, p_value=found.p_value(1, null=unbiased))
    return FeatureEffect(
        effect=effect.value,
        low=effect.low - ends[1],
        high=effect.high - ends[0],
        standard_error=effect.standard_error,
        p_value=effect.p_value,
        bounds=(effect.value, effect.value),
        slopes=dict(zip([*list(model.columns)[1:], QUALITY], slopes, strict=True)),
        score_sd=model.score_sd,
        reliability=rated.reliability,
        first_stage_f=found.first_stage_f,
        weak=weak,
        n=model.n,
        clusters=found.clusters,
        undefined=model.undefined,
        reason=ONE_INPUT if np.isnan(effect.low) else "",
        ends=ends,
    )


def _unless_exact(found: FeatureEffect) -> FeatureEffect:
    """Return an effect without an interval where no score deviates from the ratings, which hides its error."""
    if found.standard_error > ROUNDING or np.isnan(found.standard_error):
        return found
    nan = float("nan")
    return replace(found, low=nan, high=nan, standard_error=nan, p_value=nan, reason=EXACT)


def _ends(model: JointModel, rated: Rated, differences: bool) -> tuple[float, float]:
    """Compute the effects of an unbiased judge between which the ends of the scales put it; see ``FeatureEffect``."""
    if not model.several or model.scores.shape[1] == 2:
        return 0.0, 0.0
    x, ratings = model.matrix, without_levels(model.ratings)[~np.isnan(model.ratings)]
    shared, covariance = float(rated.product.mean()), float((model.target * rated.mean).mean())
    bent = curvature(model.target, ratings, shared=shared, covariance=covariance)
    given = model.ratings[~np.isnan(model.ratings)]
    least = max(curvature_of_sides(given, shared=shared), BENT) if differences else BENT
    design = np.column_stack([x, rated.mean])
    products = design.T @ design / len(x)
    products[-1, -1] = shared
    surplus = np.append(x.T @ rated.mean / len(x) * covariance / shared, 0.0)  # what a curvature of 1 adds
    of_one = float(np.linalg.solve(products, surplus)[1])
    low, high = sorted((of_one * min(bent, 0.0), of_one * max(bent, least)))
    return low, high


def _between(first: FeatureEffect, second: FeatureEffect) -> FeatureEffect:
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
) -> FeatureEffect:
    nan = float("nan")
    return FeatureEffect(
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
        n=model.n,
        clusters=len(np.unique(model.clusters)),
        undefined=model.undefined,
        reason=reason,
    )
