"""Win rate of the first position over pairs of two classes, each class counting half, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.intervals import FEWEST_UNITS, ConfidenceInterval, share_interval
from evalbias.measures.resampling import aligned, cluster_codes, defined_items
from evalbias.measures.statistic import BoundedStatistic

ONE_SIDED = (
    "people prefer the output on the same side of every pair, but for those of one input at most, so that quality and "
    "position cannot be told apart: record the choices in both orders"
)


class BalancedRate(BoundedStatistic):
    """Mean of the scores (win rates) of two classes of items, each class counting half.

    Args:
        classes: (n,) 0 or 1; NaN where an item belongs to neither.

    A row is NaN where a class has no item.
    """

    def __init__(self, classes: FloatArray) -> None:
        self.references = (classes,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the balanced mean of every row; see ``Statistic``."""
        (classes,) = references
        second = np.broadcast_to(classes, scores.shape)
        with np.errstate(invalid="ignore"):
            means = [(scores * weight).sum(axis=1) / weight.sum(axis=1) for weight in (1 - second, second)]
        return np.asarray((means[0] + means[1]) / 2)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the interval from both classes' share intervals, or say that a class is too small; see ``Statistic``.

        A few items that all agree leave a bootstrap without width, and where people prefer the first output of nearly
        every pair, the other class has few items. So the distances from each class's mean to the ends of its
        ``share_interval`` are added as standard errors are, with the correlation r of the two means over the clusters
        (MOVER, Zou and Donner 2008): half = sqrt(a^2 + b^2 + 2 r a b) / 2. Nothing is resampled.

        Returns:
            The interval, within [0, 1]; its units are those of the class that has fewer.
        """
        (column, classes) = aligned(scores, *self.references, beside=[clusters])
        kept = defined_items(column, classes)
        members = [kept & (classes == number) for number in (0, 1)]
        first, second = (
            share_interval(np.where(of_class, column, np.nan), clusters=clusters, confidence=confidence)
            for of_class in members
        )
        estimate, units = (first.estimate + second.estimate) / 2, min(first.units, second.units)
        if np.isnan(first.low + second.low):
            return ConfidenceInterval(np.nan, np.nan, estimate, 0, 0, units, reason=ONE_SIDED)
        codes = cluster_codes(clusters, kept)
        sums = [
            np.bincount(codes, weights=np.where(of_class, column - one.estimate, 0.0)[kept])
            for of_class, one in zip(members, (first, second), strict=True)
        ]
        spread = np.sqrt((sums[0] ** 2).sum() * (sums[1] ** 2).sum())
        correlation = float((sums[0] * sums[1]).sum() / spread) if spread > 0 else 0.0
        if units < FEWEST_UNITS:  # that of two inputs is -1 or 1 by construction, and -1 would leave no width
            correlation = max(correlation, 0.0)

        def half(a: float, b: float) -> float:
            return float(np.sqrt(max(a**2 + b**2 + 2 * correlation * a * b, 0.0))) / 2

        low = estimate - half(first.estimate - first.low, second.estimate - second.low)
        high = estimate + half(first.high - first.estimate, second.high - second.estimate)
        return ConfidenceInterval(max(low, 0.0), min(high, 1.0), estimate, 0, 0, units)
