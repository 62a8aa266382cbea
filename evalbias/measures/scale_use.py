"""Measures of a judge's use of its scale: the spread of its scores, and how far they follow the quality."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, ratio
from evalbias.measures.statistic import Statistic


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


class EntropyStatistic(Statistic):
    """Entropy of positions of levels (n,) by that of the uniform distribution, in [0, 1]: 1 uses all levels alike."""

    def __init__(self, levels: int) -> None:
        self._levels = levels

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        shares = _shares(scores, self._levels)
        logs = np.log(np.where(shares > 0, shares, 1.0))
        return np.asarray(-(shares * logs).sum(axis=1) / np.log(self._levels)) + 0.0


class SpreadStatistic(Statistic):
    """Standard deviation of the scores by that of a reference (n,); NaN for a constant reference."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        varies = np.ptp(references[0], axis=1) > 0  # the deviation of a constant may be a rounding error
        spread = np.broadcast_to(np.where(varies, references[0].std(axis=1), 0.0), len(scores))
        return ratio(scores.std(axis=1), spread)


def _shares(scores: FloatArray, levels: int) -> FloatArray:
    """Return (k, levels) shares of each level among positions (k, n)."""
    k, n = scores.shape
    cells = scores.astype(np.int64) + (np.arange(k) * levels)[:, None]
    return np.asarray(np.bincount(cells.ravel(), minlength=k * levels).reshape(k, levels) / n)
