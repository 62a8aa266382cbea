"""Measures of a judge's use of its scale: the spread of its scores, and how far they follow the quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, ratio, settled
from evalbias.measures.intervals import ConfidenceInterval, bootstrap_ci, share_interval
from evalbias.measures.resampling import aligned
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
