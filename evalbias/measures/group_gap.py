"""Difference of the means of two groups of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, ratio
from evalbias.measures.balanced_rate import BalancedRate
from evalbias.measures.intervals import ConfidenceInterval, stretched
from evalbias.measures.resampling import aligned
from evalbias.measures.statistic import Statistic

ONE_GROUP = "a group has no items, or those of one input alone"


class GapStatistic(Statistic):
    """Mean of numbers in [0, 1] of one group of items minus that of the others; NaN where a group is empty.

    Args:
        members: (n,) 1 for the items of the first group, 0 for the others; NaN leaves an item out.
    """

    limits = (-1.0, 1.0)

    def __init__(self, members: FloatArray) -> None:
        self.references = (members,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (group,) = references
        members = np.broadcast_to(group, scores.shape)
        return _mean(scores, members) - _mean(scores, 1 - members)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (members,) = self.references
        return _mean(scores, counts * members) - _mean(scores, counts * (1 - members))

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic``; it follows from that of (1 + gap) / 2, the ``BalancedRate`` of x and, of others, 1 - x."""
        values, members = aligned(scores, *self.references, beside=[clusters])
        rate = BalancedRate(members)
        found = rate.interval(
            np.where(members == 1, values, 1 - values), clusters=clusters, confidence=confidence, seed=seed
        )
        return replace(stretched(found), reason=ONE_GROUP if found.reason else "")


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return (k,) weighted means of values (k, n) or (n,); NaN without weight."""
    return ratio((weights * values).sum(axis=1), weights.sum(axis=1))
