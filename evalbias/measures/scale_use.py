"""How a judge uses its scale: slope of quality, spread, and uniformity."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, defined, ratio, settled, vectors
from evalbias.measures.equal_quality import EXACT, ROUNDING, STRONG
from evalbias.measures.ratings import pool
from evalbias.measures.resample import (
    ConfidenceInterval,
    Statistic,
    aligned,
    bootstrap_ci,
    cluster_codes,
    share_interval,
    sums_by_cluster,
)

# Slope of a judge's scores on the quality: does it use as much of the scale as people do?


SLOPE = "points per point of quality"
"""Unit of the slope."""
LEAST = 0.9
"""Least slope of an unbiased judge: a scale ends, and scores that are noisier than the ratings are cut off more often.
In simulations of scales of five levels with noise from 0 to 1 point it was .94 to 1.06."""
MIN_CLUSTERS = 5
TOO_WEAK = "the ratings agree too little to tell the slope: rate more items, or each more often"


class QualitySlopeStatistic(Statistic):
    """Points by which the score rises for one point of quality, on the scale of the ratings; 1 for an unbiased judge.

    The slope on the mean rating is too small, because that is noisier than the quality. Here each rating is the
    instrument for the item's others (see ``instrumented``): slope = cov(score, mean rating) / cov(rating, other
    rating).

    Args:
        ratings: (n, r) single ratings on the judge's scale, NaN where a rater gave none; items with one do not count.
    """

    unit: ClassVar[str] = SLOPE

    def __init__(self, ratings: FloatArray) -> None:
        self._ratings = ratings

    @property
    def usable(self) -> BoolArray:
        """(n,) whether an item has two ratings."""
        return np.asarray((~np.isnan(self._ratings)).sum(axis=1) > 1)

    def keep(self, kept: BoolArray) -> QualitySlopeStatistic:
        """Return the same statistic of a part of the items; see ``Statistic``."""
        part = copy.copy(self)
        part._ratings = self._ratings[kept]
        return part

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the slope of every row; NaN where the ratings do not agree. See ``Statistic``."""
        return np.concatenate([_slopes(self._parts(row).sum(axis=0, keepdims=True)) for row in scores])

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the jackknife's t interval over clusters, and the test of a judge that crowds its scores together.

        Where ratings hardly agree (F of their agreement below 10), the slope has a denominator near 0. Its interval is
        then Fieller's (1954), which tests the numerator less the slope times the denominator, and is undefined where it
        has no end. The test allows for what the ends of a scale do, and rejects only slopes below ``LEAST``: a slope
        above 1 is no use of the scale but the mark of another bias. Scores that follow the ratings exactly, unless they
        are constant, have no interval: they do not tell how far others would deviate.
        """
        (column,) = aligned(scores, beside=[clusters])
        found = self._jackknife(column, clusters, confidence, null=LEAST, only_below=True)
        exact = found.high - found.low <= ROUNDING and abs(found.estimate) > ROUNDING  # constant scores have slope 0
        return replace(found, low=np.nan, high=np.nan, p_value=np.nan, reason=EXACT) if exact else found

    def difference(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the paired jackknife interval and test: the slope is linear in the scores. See ``Statistic``."""
        first, second = aligned(a, b, beside=[clusters])
        return self._jackknife(second - first, clusters, confidence, null=0.0)

    def _jackknife(
        self,
        scores: FloatArray,
        clusters: Sequence[object] | None,
        confidence: float,
        *,
        null: float,
        only_below: bool = False,
    ) -> ConfidenceInterval:
        """Return the interval and the two-sided p against a slope; 1 on its upper side if only those below count."""
        kept = self.usable & ~np.isnan(scores)
        x, codes, part = scores[kept], cluster_codes(clusters, kept), self.keep(kept)
        units, slope = len(set(codes.tolist())), part._of(x)
        if units < MIN_CLUSTERS or np.isnan(slope):
            reason = f"the slope needs items of {MIN_CLUSTERS} inputs whose ratings agree"
            return ConfidenceInterval(np.nan, np.nan, np.nan, 0, 0, units, reason=reason)
        sums = sums_by_cluster(part._parts(x), codes)
        (whole,) = _covariances(sums.sum(axis=0, keepdims=True))
        fit = _Ratio(whole, _covariances(sums.sum(axis=0) - sums))
        low, high = fit.ends(float(scipy.stats.t.ppf((1 + confidence) / 2, units - 1)))
        if np.isnan(low):
            return ConfidenceInterval(np.nan, np.nan, slope, 0, 0, units, reason=TOO_WEAK)
        unremarkable = only_below and slope >= null
        p_value = 1.0 if unremarkable else float(2 * scipy.stats.t.sf(fit.distance(null), units - 1))
        return ConfidenceInterval(low, high, slope, 0, 0, units, p_value)

    def _parts(self, scores: FloatArray) -> FloatArray:
        """Return (n, 5) what each item adds to the sums of the slope."""
        rated = pool(self._ratings)
        return np.column_stack([np.ones(len(scores)), scores, rated.mean, scores * rated.mean, rated.product])


def _slopes(sums: FloatArray) -> FloatArray:
    """Return (m,) slopes from (m, 5) sums of 1, score, rating, their product, and the product of two ratings."""
    with_score, shared = _covariances(sums).T
    return ratio(with_score, shared)


def _covariances(sums: FloatArray) -> FloatArray:
    """Return (m, 2) covariances of score and rating, and of two ratings, from (m, 5) sums as in ``_slopes``."""
    n, score, rating, product, square = sums.T
    return np.stack([product / n - score * rating / n**2, square / n - rating**2 / n**2], axis=1)


@dataclass(frozen=True)
class _Ratio:
    """A ratio of two covariances with what the jackknife tells about it.

    Attributes:
        whole: (2,) numerator and denominator.
        left_out: (G, 2) the same without each cluster.
    """

    whole: FloatArray
    left_out: FloatArray

    def ends(self, quantile: float) -> tuple[float, float]:
        """Return the ends of the interval that reaches so many standard errors; NaN where it has none."""
        a, b = self.whole
        if not self._weak:
            return a / b - quantile * self._error, a / b + quantile * self._error
        (aa, ab), (_, bb) = self._covariance * quantile**2  # the interval holds x: (a - x b)^2 <= aa - 2 x ab + x^2 bb
        square, middle = b**2 - bb, a * b - ab
        inside = middle**2 - square * (a**2 - aa)
        if square <= 0 or inside < 0:
            return np.nan, np.nan
        return (middle - np.sqrt(inside)) / square, (middle + np.sqrt(inside)) / square

    def distance(self, value: float) -> float:
        """Return how many standard errors lie between the ratio and a value."""
        a, b = self.whole
        away, error = abs(a / b - value), self._error
        if self._weak:
            part = np.array([1.0, -value])
            away, error = abs(a - value * b), np.sqrt(part @ self._covariance @ part)
        if away == 0:
            return 0.0
        return float(away / error) if error > 0 else np.inf

    @property
    def _error(self) -> float:
        return float(np.sqrt((len(self.left_out) - 1) * np.nanvar(ratio(*self.left_out.T))))

    @property
    def _covariance(self) -> FloatArray:
        return np.asarray((len(self.left_out) - 1) * np.cov(self.left_out.T, bias=True))

    @property
    def _weak(self) -> bool:
        return bool(self.whole[1] ** 2 < STRONG * self._covariance[1, 1])


# Measures of a judge's use of its scale: the spread of its scores, and how far they follow the quality.


def nearest_levels(scores: ArrayLike, levels: ArrayLike) -> FloatArray:
    """Return (n,) the position of the level nearest to each score, the lower of two equally near; NaN stays NaN.

    Examples:
        >>> nearest_levels([1.2, 4.9, 2.5], [1, 2, 3, 4, 5]).tolist()
        [0.0, 4.0, 1.0]
    """
    x, steps = np.asarray(scores, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    places = np.abs(np.nan_to_num(x)[:, None] - steps).argmin(axis=1)
    return np.where(np.isnan(x), np.nan, places)


class TopTwoStatistic(Statistic):
    """Share of the two most frequent of so many levels, among positions of levels (n,) from 0."""

    def __init__(self, levels: int) -> None:
        self._levels = levels

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return np.asarray(np.sort(_shares(scores, self._levels), axis=1)[:, -2:].sum(axis=1))

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the ``share_interval`` of the two levels that are most frequent here; see ``Statistic``.

        Two levels may lead by chance, in every resample once more, so no quantile of resamples reaches down to levels
        that are equally likely. The lower end is therefore that of a level of confidence divided among all pairs of
        levels (Bonferroni).
        """
        (places,) = aligned(scores, beside=[clusters])
        if np.isnan(places).all():
            return share_interval(places)
        most = np.argsort(-_shares(places[~np.isnan(places)][None], self._levels)[0], kind="stable")[:2]
        chosen = np.where(np.isnan(places), np.nan, np.isin(places, most))
        found = share_interval(chosen, clusters=clusters, confidence=confidence)
        each = 1 - (1 - confidence) / math.comb(self._levels, 2)
        return replace(found, low=share_interval(chosen, clusters=clusters, confidence=each).low)


class EntropyStatistic(Statistic):
    """Entropy of positions of levels (n,) by that of the uniform distribution, in [0, 1]: 1 uses all levels alike.

    That of a sample is too low, by about (levels - 1) / (2 n log(levels)).
    """

    limits = (0.0, 1.0)

    def __init__(self, levels: int) -> None:
        self._levels = levels

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        shares = _shares(scores, self._levels)
        logs = np.log(np.where(shares > 0, shares, 1.0))
        return np.asarray(-(shares * logs).sum(axis=1) / np.log(self._levels)) + 0.0

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute an interval that holds the BCa and the basic bootstrap interval; see ``Statistic``.

        The entropy of resamples is too low once more, so no quantile of theirs reaches 1 where all levels are equally
        likely. Quantiles that are reflected at the estimate (the basic interval) do, but miss levels that are rare.
        """
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        found = super().interval(scores, clusters=clusters, **options)
        if np.isnan(found.low):
            return found
        plain = bootstrap_ci(self.rows, scores, clusters=clusters, method="percentile", **options)
        low, high = (2 * found.estimate - end for end in (plain.high, plain.low))
        return replace(found, low=max(min(found.low, low), 0.0), high=min(max(found.high, high), 1.0))


class SpreadStatistic(Statistic):
    """Standard deviation of the scores by that of a reference (n,); NaN for a constant reference."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        varies = np.ptp(settled(reference), axis=1) > 0  # the deviation of a constant may be a rounding error
        spread = np.broadcast_to(np.where(varies, reference.std(axis=1), np.nan), len(scores))
        return ratio(settled(scores).std(axis=1), spread)


def _shares(scores: FloatArray, levels: int) -> FloatArray:
    """Return (k, levels) shares of each level among positions (k, n)."""
    k, n = scores.shape
    cells = scores.astype(np.int64) + (np.arange(k) * levels)[:, None]
    return np.asarray(np.bincount(cells.ravel(), minlength=k * levels).reshape(k, levels) / n)


# Uniformity of a judge's scores: our counterpart of fairness for judges that score one output at a time.


def score_uniformity(scores: ArrayLike, *, low: float, high: float) -> float:
    """Measure how evenly a judge's scores fill the scale, as minus the distance from the uniform distribution.

    With x the scores mapped onto [0, 1] and F their empirical distribution function, it is
    ``-integral_0^1 |F(t) - t| dt``, minus the Wasserstein-1 distance. A judge that gives every output the same score
    does not distinguish them; a uniform distribution is not a guarantee that it orders them well.

    Args:
        scores: (n,) scores in [low, high]; NaN is left out.
        low: Lower end of the scale.
        high: Upper end of the scale.

    Returns:
        Uniformity in [-.5, 0], in units of the scale's length: 0 is uniform, -.25 has every score at the middle, -.5
        at one end. NaN if no score is defined.

    Raises:
        ValueError: A score lies outside the scale, or ``low`` is not below ``high``.

    Examples:
        >>> score_uniformity([3.0, 3.0, 3.0, 3.0], low=1, high=5)
        -0.25
    """
    (values,) = vectors(scores=scores)
    values = np.sort(values[defined(values)])
    if not low < high or (len(values) and (values[0] < low or values[-1] > high)):
        ends = values[[0, -1]].tolist() if len(values) else []
        raise ValueError(f"The lowest and highest score are {ends}; the scale {low} to {high} must contain them.")
    if not len(values):
        return float("nan")
    x, edges = (values - low) / (high - low), np.linspace(0.0, 1.0, len(values) + 1)
    return -float((_half_square(edges[1:] - x) - _half_square(edges[:-1] - x)).sum())


def _half_square(t: FloatArray) -> FloatArray:
    """Integrate |t| from 0 to each t."""
    return np.asarray(t * np.abs(t) / 2)
