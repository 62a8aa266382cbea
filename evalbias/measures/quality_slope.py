"""Slope of a judge's scores on the quality: does it use as much of the scale as people do?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, ratio
from evalbias.measures.effect import EXACT, ROUNDING, STRONG
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.raters import pool
from evalbias.measures.resampling import aligned, cluster_codes, sums_by_cluster
from evalbias.measures.statistic import Statistic

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
