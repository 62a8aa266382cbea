"""Coefficients of agreement in [-1, 1] as statistics, with intervals that have a width where all items agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.measures.checks import common_index, numbers
from evalbias.measures.intervals import FEWEST_UNITS, ConfidenceInterval, share_ends, share_interval, stretched
from evalbias.measures.resampling import left_out
from evalbias.measures.statistic import MeanStatistic, Statistic


class CorrelationStatistic(Statistic):
    """A correlation, or another coefficient in [-1, 1] that is 1 for perfect agreement, such as kappa or alpha."""

    limits = (-1.0, 1.0)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute Wilson's interval of the share (1 + coefficient) / 2; see ``Statistic``.

        Items that agree perfectly have no variance, and resamples of them agree perfectly too. So the coefficient has
        the interval of a share with the same variance, which has a width there (``share_ends``): about as if one more
        cluster disagreed as much as it can. The variance is that of the jackknife over clusters, or over 200 groups of
        them; ``n_resamples`` and ``seed`` are for statistics that jump, whose variance is that of the bootstrap.
        """
        (own,), codes, part = self._defined([scores], clusters)
        assert isinstance(part, CorrelationStatistic)  # a part is of the same kind
        units, value = len(set(codes.tolist())), part._of(own)
        if units < FEWEST_UNITS or np.isnan(value):
            return ConfidenceInterval(np.nan, np.nan, value, 0, 0, units)
        variance = part._variance(own, codes, n_resamples=n_resamples, seed=seed)
        ends = share_ends((1 + value) / 2, variance / 4, units=units, confidence=confidence)
        low, high = (2 * end - 1 for end in ends)
        return ConfidenceInterval(low, high, value, 0, 0, units)

    def _variance(self, scores: FloatArray, codes: IntArray, *, n_resamples: int, seed: int) -> float:
        """Estimate the variance of the coefficient."""
        return jackknife_variance(np.concatenate([self.resampled(scores, counts) for counts in left_out(codes)]))


def jackknife_variance(values: FloatArray) -> float:
    """Estimate the variance of a statistic from its values without each cluster (Efron and Stein 1981)."""
    known = values[~np.isnan(values)]
    return float((len(known) - 1) * known.var()) if len(known) else 0.0


class MeanCorrelationStatistic(MeanStatistic):
    """Mean of coefficients in [-1, 1], such as the correlation in each document."""

    limits = (-1.0, 1.0)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic``; it is the ``share_interval`` of (1 + coefficient) / 2, and nothing is resampled."""
        common_index(scores, clusters)
        shares = (1 + numbers(scores, "scores")) / 2
        return stretched(share_interval(shares, clusters=clusters, confidence=confidence))
