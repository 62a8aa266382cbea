"""Slope of a judge's scores on the quality: does it use as much of the scale as people do?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, ratio
from evalbias.measures.instrumented import pool
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.resampling import aligned, cluster_codes, sums_by_cluster
from evalbias.measures.statistic import Statistic

SLOPE = "points per point of quality"
"""Unit of the slope."""
LEAST = 0.9
"""Least slope of an unbiased judge: a scale ends, and scores that are noisier than the ratings are cut off more often.
In simulations of scales of five levels with noise from 0 to 1 point it was .94 to 1.06."""
MIN_CLUSTERS = 5


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
        return np.array([_slopes(self._parts(row).sum(axis=0, keepdims=True))[0] for row in scores])

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

        The test allows for what the ends of a scale do, and rejects only slopes below ``LEAST``: a slope above 1 is no
        use of the scale but the mark of another bias.
        """
        (column,) = aligned(scores)
        found = self._jackknife(column, clusters, confidence)
        if np.isnan(found.low):
            return found
        if found.estimate >= LEAST:
            return replace(found, p_value=1.0)
        standard_error = (found.high - found.low) / 2 / float(scipy.stats.t.ppf((1 + confidence) / 2, found.units - 1))
        distance = (LEAST - found.estimate) / standard_error if standard_error > 0 else np.inf
        return replace(found, p_value=float(2 * scipy.stats.t.sf(distance, found.units - 1)))

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
        """Return the paired jackknife interval: the slope is linear in the scores. See ``Statistic``."""
        first, second = aligned(a, b)
        return self._jackknife(second - first, clusters, confidence)

    def _jackknife(
        self, scores: FloatArray, clusters: Sequence[object] | None, confidence: float
    ) -> ConfidenceInterval:
        kept = self.usable & ~np.isnan(scores)
        x, codes, part = scores[kept], cluster_codes(clusters, kept), self.keep(kept)
        units, slope = len(set(codes.tolist())), part._of(x)
        if units < MIN_CLUSTERS or np.isnan(slope):
            reason = f"the slope needs items of {MIN_CLUSTERS} inputs whose ratings agree"
            return ConfidenceInterval(np.nan, np.nan, np.nan, 0, 0, units, reason=reason)
        sums = sums_by_cluster(part._parts(x), codes)
        left_out = _slopes(sums.sum(axis=0) - sums)
        error = float(np.sqrt((units - 1) * np.nanvar(left_out)))
        half = float(scipy.stats.t.ppf((1 + confidence) / 2, units - 1)) * error
        return ConfidenceInterval(slope - half, slope + half, slope, 0, 0, units)

    def _parts(self, scores: FloatArray) -> FloatArray:
        """Return (n, 5) what each item adds to the sums of the slope."""
        rated = pool(self._ratings)
        return np.column_stack([np.ones(len(scores)), scores, rated.mean, scores * rated.mean, rated.product])


def _slopes(sums: FloatArray) -> FloatArray:
    """Return (m,) slopes from (m, 5) sums of 1, score, rating, their product, and the product of two ratings."""
    n, score, rating, product, square = sums.T
    shared = square - rating**2 / n
    return ratio(product - score * rating / n, shared)
