"""Difference of the means of two groups of items."""

from __future__ import annotations

import numpy as np

from evalbias.measures.arrays import FloatArray, ratio
from evalbias.measures.statistic import Statistic


class GapStatistic(Statistic):
    """Mean of the values of one group of items minus the mean of the others; NaN where a group is empty.

    Args:
        members: (n,) 1 for the items of the first group, 0 for the others; NaN leaves an item out.
    """

    def __init__(self, members: FloatArray) -> None:
        self.references = (members,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        members = np.broadcast_to(references[0], scores.shape)
        return _mean(scores, members) - _mean(scores, 1 - members)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        members = self.references[0]
        return _mean(scores, counts * members) - _mean(scores, counts * (1 - members))


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return (k,) weighted means of values (k, n) or (n,); NaN without weight."""
    return ratio((weights * values).sum(axis=1), weights.sum(axis=1))
