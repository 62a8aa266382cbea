"""Tests and intervals by resampling: the paired permutation test and bootstrap intervals, vectorized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.statistic import Statistic

CELLS = 1 << 21
"""Numbers in a chunk of resamples."""
SLACK = 1e-12
"""A resample that misses the observed difference by less is a tie, and ties count."""


@dataclass(frozen=True)
class PermutationTest:
    """A paired test of two systems.

    Attributes:
        statistic_a: Statistic of the first system.
        statistic_b: Statistic of the second system.
        difference: ``statistic_a - statistic_b``.
        p_value: Two-sided, in [1 / (n_resamples + 1), 1]; NaN if a statistic is undefined.
        n_resamples: Random swaps drawn.
        n: Items that count.
        undefined: Items left out because a number is NaN.
    """

    statistic_a: float
    statistic_b: float
    difference: float
    p_value: float
    n_resamples: int
    n: int
    undefined: int


@dataclass(frozen=True)
class ConfidenceInterval:
    """A percentile bootstrap interval.

    Attributes:
        low: Lower end.
        high: Upper end.
        estimate: Statistic of the data.
        n_resamples: Resamples drawn.
        undefined: Resamples without a statistic, left out.
    """

    low: float
    high: float
    estimate: float
    n_resamples: int
    undefined: int


def paired_permutation_test(
    statistic: Statistic, a: ArrayLike, b: ArrayLike, *, n_resamples: int = 100_000, seed: int
) -> PermutationTest:
    """Test whether two systems differ, by a two-sided randomized pairwise permutation test (the paper: R = 100000).

    Under the null hypothesis the two systems are exchangeable item by item. Each resample swaps their scores on a
    random half of the items; p is the share of resamples, the data itself among them, whose difference is at least as
    large in magnitude as the observed one. Ties count. A resample without a statistic counts too, so that undefined
    values never make a difference significant.

    Args:
        statistic: ``performance_statistic(...)``, ``bias_score_statistic(...)``, ``MeanStatistic()`` or another.
        a: (n,) or (n, d) scores of the first system.
        b: Scores of the second system on the same items.
        n_resamples: At least 1.
        seed: Seed for the swaps.

    Raises:
        ValueError: Different numbers of items, or fewer than one resample.
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: draw at least one.")
    first, second, *references = aligned(a, b, *statistic.references)
    kept = defined_items(first, second, *references)
    first, second, part = first[kept], second[kept], statistic.keep(kept)
    n = int(kept.sum())
    values = (part(first), part(second)) if n > 1 else (np.nan, np.nan)
    difference = values[0] - values[1]
    p = np.nan
    if not np.isnan(difference):
        extreme = _count(part, first, second, abs(difference) - SLACK, n_resamples, np.random.default_rng(seed))
        p = (1 + extreme) / (1 + n_resamples)
    return PermutationTest(values[0], values[1], difference, p, n_resamples, n, int((~kept).sum()))


def _count(
    statistic: Statistic, a: FloatArray, b: FloatArray, bound: float, resamples: int, rng: np.random.Generator
) -> int:
    n, extreme = len(a), 0
    rows, swapped = max(1, CELLS // n), statistic.swapping(a, b)
    for start in range(0, resamples, rows):
        k = min(rows, resamples - start)
        bits = rng.integers(0, 256, size=(k, (n + 7) // 8), dtype=np.uint8)
        swap = np.unpackbits(bits, axis=1, count=n).astype(bool)
        first, second = swapped(swap)
        extreme += int((~(np.abs(first - second) < bound)).sum())  # NaN is not below the bound: it counts
    return extreme


def bootstrap_ci(
    statistic: Callable[..., FloatArray],
    *arrays: ArrayLike,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int,
) -> ConfidenceInterval:
    """Compute a percentile bootstrap interval over items.

    Args:
        statistic: Takes the resampled arrays, (k, n) or (k, n, d) each, and returns (k,) values: ``spearman_rows``, or
            ``statistic.rows`` of a ``Statistic`` with its references as further arrays.
        *arrays: (n,) or (n, d) each; items with a NaN are left out.
        n_resamples: At least 1.
        confidence: In (0, 1).
        seed: Seed for the resamples.

    Raises:
        ValueError: No arrays, different numbers of items, or parameters out of range.
    """
    if not arrays or not 0 < confidence < 1 or n_resamples < 1:
        raise ValueError(f"{len(arrays)} arrays, confidence={confidence}, n_resamples={n_resamples}: out of range.")
    columns = aligned(*arrays)
    kept = defined_items(*columns)
    columns = [column[kept] for column in columns]
    n, rng = int(kept.sum()), np.random.default_rng(seed)
    if n < 2:
        return ConfidenceInterval(np.nan, np.nan, np.nan, n_resamples, n_resamples)
    rows = max(1, CELLS // n)
    parts = []
    for start in range(0, n_resamples, rows):
        picks = rng.integers(0, n, size=(min(rows, n_resamples - start), n))
        parts.append(statistic(*(column[picks] for column in columns)))
    values = np.concatenate(parts)
    usable = values[~np.isnan(values)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(usable, [tail, 1 - tail]) if len(usable) else (np.nan, np.nan)
    estimate = float(statistic(*(column[None] for column in columns))[0])
    return ConfidenceInterval(float(low), float(high), estimate, n_resamples, len(values) - len(usable))


def aligned(*arrays: ArrayLike) -> list[FloatArray]:
    """Return float arrays of the same n items, (n,) or (n, d) each.

    Raises:
        ValueError: Another number of axes, infinite values, or different numbers of items.
    """
    columns = [np.asarray(array, dtype=np.float64) for array in arrays]
    for number, column in enumerate(columns):
        if column.ndim not in (1, 2):
            raise ValueError(f"Array {number} has the shape {column.shape}: give one number, or one row, an item.")
        if np.isinf(column).any():
            raise ValueError(f"Array {number} holds an infinite value: give NaN where it is undefined.")
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise ValueError(f"The arrays have {sizes} items: give the same items in the same order.")
    return columns


def defined_items(*columns: FloatArray) -> BoolArray:
    """Return the mask (n,) of the items without a NaN."""
    undefined = [np.isnan(column).reshape(len(column), -1).any(axis=1) for column in columns]
    return np.asarray(~np.any(undefined, axis=0))
