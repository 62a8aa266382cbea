"""Interval of the win rate of the first position, of pairs that were judged in both orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import TINY
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.resampling import aligned, cluster_codes, defined_items, variance_of_mean
from evalbias.measures.statistic import ShareStatistic

STEP = 1e-9
"""Distance from the mean that no test rejects."""


class BothOrdersStatistic(ShareStatistic):
    """Mean over pairs of how often the first position won in both orders (0, .5 or 1; a tie counts half)."""

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic`` and ``both_orders_interval``; nothing is resampled."""
        return both_orders_interval(scores, clusters=clusters, confidence=confidence)


def both_orders_interval(
    values: ArrayLike, *, clusters: Sequence[object] | None = None, confidence: float = 0.95
) -> ConfidenceInterval:
    """Compute the score interval of a mean over pairs that are each their own control (Tango 1998).

    A pair judged in both orders has 1 if the first position won twice, 0 if the second did, and .5 if one candidate won
    both times. Only pairs that are not .5 tell of the position, and 2 (mean - .5) is the difference of the rates of two
    paired decisions. Tango's interval holds the differences that a test with the most likely share of such pairs does
    not reject, and so has a width where all pairs are .5. As in ``share_interval``, n is the number of independent
    pairs that vary as much as the mean does over the clusters, and the quantile Student's t for u units.

    Args:
        values: (n,) numbers in [0, 1], of which .5 speaks for no position; NaN is left out.
        clusters: (n,) cluster (document) of each pair. By default every pair is its own.
        confidence: In (0, 1).

    Returns:
        The interval, within [0, 1]; its ends are NaN for fewer than two units.

    Raises:
        ValueError: A value outside [0, 1], or ``confidence`` out of range.

    Examples:
        >>> found = both_orders_interval([0.5] * 80)
        >>> round(found.low, 3), round(found.high, 3)
        (0.476, 0.524)
    """
    (column,) = aligned(values, beside=[clusters])
    kept = defined_items(column)
    x, codes = 2 * column[kept] - 1, cluster_codes(clusters, kept)
    if not 0 < confidence < 1 or (np.abs(x) > 1).any():
        outside = column[kept][np.abs(x) > 1].tolist()
        raise ValueError(f"confidence={confidence} and the values must lie between 0 and 1; {outside[:3]} do not.")
    units = len(set(codes.tolist()))
    mean = float(x.mean()) if units else np.nan
    if units < 2:
        return ConfidenceInterval(np.nan, np.nan, (1 + mean) / 2, 0, 0, units)
    share = float(np.abs(x).mean())  # of pairs in which a position won
    variance = variance_of_mean(x, codes)
    size = units if variance < TINY else (share - mean**2) / variance
    t = float(scipy.stats.t.ppf((1 + confidence) / 2, units - 1))

    def excess(difference: float) -> float:
        """Return a number above 0 where the test rejects a difference."""
        return (mean - difference) ** 2 - t**2 * _variance(mean, share, difference) / size

    inner = (mean - STEP, mean + STEP)  # at the mean itself, pairs that are all .5 have no variance
    low, high = (
        end if excess(end) <= 0 else float(scipy.optimize.brentq(excess, end, start))
        for end, start in zip((-1.0, 1.0), inner, strict=True)
    )
    return ConfidenceInterval((1 + low) / 2, (1 + high) / 2, (1 + mean) / 2, 0, 0, units)


def _variance(mean: float, share: float, difference: float) -> float:
    """Return the variance of a pair's -1, 0 or 1 under the most likely shares of -1 and 1 with a given mean.

    Args:
        mean: Mean that was observed.
        share: Share of -1 and 1 that was observed.
        difference: Mean under the hypothesis.
    """
    b = (2 - mean) * difference - share
    c = -(share - mean) / 2 * difference * (1 - difference)
    lost = (np.sqrt(max(b**2 - 8 * c, 0.0)) - b) / 4  # the larger root of 2 x^2 + b x + c
    return float(2 * lost + difference * (1 - difference))
