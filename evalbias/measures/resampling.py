"""Resamples of items, or of clusters of items, and the arrays that they are drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, IntArray
from evalbias.measures.checks import common_index, groups_of, numbers

CELLS = 1 << 21
"""Numbers in a chunk of resamples."""


def chunks(rows: int, width: int, cells: int = CELLS) -> Iterator[range]:
    """Split so many rows of a matrix into chunks of at most ``cells`` numbers, or of one row where that has more."""
    size = max(1, cells // max(1, width))
    for start in range(0, rows, size):
        yield range(start, min(start + size, rows))


def aligned(*arrays: ArrayLike, beside: Sequence[object] = ()) -> list[FloatArray]:
    """Return float arrays of the same n items, (n,) or (n, d) each.

    Args:
        *arrays: Numbers about the items.
        beside: What else belongs to the items and may have a pandas index: clusters, or a ``Statistic``.

    Raises:
        ValueError: Another number of axes, infinite values, different numbers of items, different pandas indexes, or
            values that are no numbers.
    """
    common_index(*arrays, *beside)
    columns = [numbers(array, f"Array {number}") for number, array in enumerate(arrays)]
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
    undefined = [np.isnan(column).any(axis=tuple(range(1, column.ndim))) for column in columns]
    return np.asarray(~np.any(undefined, axis=0))


def cluster_codes(clusters: Sequence[object] | None, kept: BoolArray) -> IntArray:
    """Number the clusters of the kept items from 0 by first appearance; without clusters every item is its own.

    Args:
        clusters: (n,) cluster (document) of each item, or None.
        kept: (n,) mask of the m items that are kept.

    Returns:
        (m,) numbers.

    Raises:
        ValueError: Another number of entries than items, or a missing one.
    """
    if clusters is None:
        return np.arange(int(kept.sum()))
    codes: dict[object, int] = {}
    used = groups_of(clusters, kept, "clusters")
    return np.array([codes.setdefault(cluster, len(codes)) for cluster in used], dtype=np.int64)


def sums_by_cluster(values: FloatArray, codes: IntArray) -> FloatArray:
    """Sum (n, ...) values over each of G clusters, numbered by ``cluster_codes``; (G, ...)."""
    sums = np.zeros((int(codes.max()) + 1, *values.shape[1:]))
    np.add.at(sums, codes, values)
    return sums


def variance_of_mean(x: FloatArray, codes: IntArray) -> float:
    """Estimate the variance of the mean of (n,) values from two or more clusters, numbered by ``cluster_codes``."""
    sums = np.bincount(codes, weights=x - x.mean())
    return len(sums) / (len(sums) - 1) * float((sums**2).sum()) / len(x) ** 2


def drawn(codes: IntArray, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draw whole clusters with replacement, as many as there are.

    Args:
        codes: (n,) number of each item's cluster, from 0.
        resamples: Number of resamples.
        rng: Source of the draws.

    Yields:
        (k, n) how often each of k resamples holds each item.
    """
    n, units = len(codes), int(codes.max()) + 1
    for k in map(len, chunks(resamples, n)):
        cells = rng.integers(0, units, size=(k, units)) + (np.arange(k) * units)[:, None]
        counts = np.bincount(cells.ravel(), minlength=k * units).reshape(k, units).astype(np.float64)
        yield counts if units == n else counts[:, codes]


def swaps(codes: IntArray, resamples: int, rng: np.random.Generator) -> Iterator[BoolArray]:
    """Draw a random half of the clusters, of which two systems exchange their scores.

    Args:
        codes: (n,) number of each item's cluster, from 0.
        resamples: Number of resamples.
        rng: Source of the draws.

    Yields:
        (k, n) whether each of k resamples exchanges the scores of each item.
    """
    n, units = len(codes), int(codes.max()) + 1
    for k in map(len, chunks(resamples, n)):
        bits = rng.integers(0, 256, size=(k, (units + 7) // 8), dtype=np.uint8)
        swap = np.unpackbits(bits, axis=1, count=units).astype(bool)  # (k, units)
        yield swap if units == n else swap[:, codes]


def left_out(codes: IntArray, *, groups: int = 200) -> Iterator[FloatArray]:
    """Leave one cluster out at a time, or one of so many groups of clusters; yields as ``drawn``."""
    codes = codes % groups
    for some in chunks(int(codes.max()) + 1, len(codes)):
        yield (codes != np.array(some)[:, None]).astype(np.float64)


def picked(counts: FloatArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Turn counts (k, n) into items: yields the rows of one size m, and their items (rows, m)."""
    whole = counts.astype(np.int64)
    totals = whole.sum(axis=1)
    for total in np.unique(totals):
        rows = np.flatnonzero(totals == total)
        items = np.broadcast_to(np.arange(whole.shape[1]), (len(rows), whole.shape[1]))
        yield rows, np.repeat(items.ravel(), whole[rows].ravel()).reshape(len(rows), total)
