"""Ranks and rank correlation of many rows at once, for the resampling tests."""

from __future__ import annotations

import numpy as np

from evalbias.measures.arrays import FloatArray, settled
from evalbias.measures.checks import numbers

CONSTANT = 1e-14
"""Standard deviation, in units of the mean, up to which values are constant but for the rounding of their mean."""


def rank_rows(x: FloatArray) -> FloatArray:
    """Rank the values within each row, from 1; equal values share the mean of their ranks.

    Args:
        x: (k, n) values without NaN.

    Returns:
        (k, n) ranks in [1, n].

    Examples:
        >>> rank_rows(np.array([[30.0, 10.0, 30.0], [1.0, 2.0, 3.0]])).tolist()
        [[2.5, 1.0, 2.5], [1.0, 2.0, 3.0]]
    """
    k, n = x.shape
    order = np.argsort(x, axis=1)  # equal values share a rank, so their order does not matter
    values = np.take_along_axis(x, order, axis=1)
    starts = np.ones((k, n), dtype=bool)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    codes = np.empty((k, n), dtype=np.int64)
    np.put_along_axis(codes, order, np.cumsum(starts, axis=1) - 1, axis=1)
    cells = codes + (np.arange(k) * n)[:, None]
    counts = np.bincount(cells.ravel(), minlength=k * n).reshape(k, n)
    ranks = np.cumsum(counts, axis=1) - 0.5 * (counts - 1)  # cumsum is the last rank of a value's ties
    return np.asarray(ranks.ravel()[cells.ravel()].reshape(k, n), dtype=np.float64)


def pearson_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Pearson's correlation of each row of x with the same row of y.

    Args:
        x: (k, n) values without NaN.
        y: (k, n) values, or (1, n) or (n,) to correlate every row of x with the same values.

    Returns:
        (k,) correlations in [-1, 1]; NaN for an empty row, and one that is constant up to rounding.

    Examples:
        >>> pearson_rows(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), np.array([1.0, 2.0, 3.0])).tolist()
        [1.0, -1.0]
    """
    y = np.atleast_2d(y)
    n = x.shape[1]
    if not n:
        return np.full(len(x), np.nan)
    x, y = settled(x), settled(y)
    means = x.mean(axis=1), y.mean(axis=1)
    x, y = x - means[0][:, None], y - means[1][:, None]
    squares = (_unless_constant((v * v).sum(axis=1), n, mean) for v, mean in zip((x, y), means, strict=True))
    return _correlations((x * y).sum(axis=1), *squares)


def spearman_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Spearman's rank correlation of each row of x with the same row of y.

    Args:
        x: (k, n) values.
        y: (k, n) values, or (1, n) or (n,) to correlate every row of x with the same values.

    Returns:
        (k,) rho in [-1, 1]; NaN where a row is constant up to rounding or contains a NaN.

    Examples:
        >>> spearman_rows(np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), np.array([1.0, 3.0, 2.0])).tolist()
        [0.5, nan]
    """
    x, y = np.atleast_2d(numbers(x, "x")), np.atleast_2d(numbers(y, "y"))
    undefined = np.isnan(x).any(axis=1) | np.isnan(y).any(axis=1)
    return np.where(undefined, np.nan, pearson_rows(rank_rows(settled(x)), rank_rows(settled(y))))


def counted_ranks(x: FloatArray, counts: FloatArray) -> FloatArray:
    """Rank values of which each resample holds some several times, as ``rank_rows`` does those resamples.

    Args:
        x: (n,) values without NaN, the same in every resample, or (k, n) values of each.
        counts: (k, n) how often each resample holds each value.

    Returns:
        (k, n) rank of each value among a resample's; that of a value that a resample lacks means nothing.

    Examples:
        >>> counted_ranks(np.array([30.0, 10.0, 20.0]), np.array([[1, 1, 1], [2, 1, 0]]))[:, :2].tolist()
        [[3.0, 1.0], [2.5, 1.0]]
    """
    k, n = counts.shape
    if x.ndim == 1:  # one order for all resamples: no row is sorted
        codes = np.unique(x, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=np.nan))
        totals = np.add.reduceat(counts[:, order], starts, axis=1)  # (k, different values)
        return np.asarray((np.cumsum(totals, axis=1) - 0.5 * (totals - 1))[:, codes], dtype=np.float64)
    order = np.argsort(x, axis=1)
    values = np.take_along_axis(x, order, axis=1)
    starts = np.zeros((k, n), dtype=np.int64)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    codes = np.empty((k, n), dtype=np.int64)
    np.put_along_axis(codes, order, np.cumsum(starts, axis=1) + (np.arange(k) * n)[:, None], axis=1)
    totals = np.bincount(codes.ravel(), weights=counts.ravel(), minlength=k * n).reshape(k, n)
    ranks = np.cumsum(totals, axis=1) - 0.5 * (totals - 1)
    return np.asarray(ranks.ravel()[codes], dtype=np.float64)


def counted_pearson(x: FloatArray, y: FloatArray, counts: FloatArray) -> FloatArray:
    """Compute Pearson's correlation in resamples given as counts (k, n); x and y are (k, n) or (n,).

    Returns:
        (k,) correlations in [-1, 1]; NaN where a side is constant.
    """
    totals = counts.sum(axis=1)
    means = [(counts * v).sum(axis=1) / totals for v in (x, y)]
    x, y = x - means[0][:, None], y - means[1][:, None]
    of_x, of_y = counts * x, counts * y
    squares = ((of_x * x).sum(axis=1), (of_y * y).sum(axis=1))
    kept = (_unless_constant(v, totals, mean) for v, mean in zip(squares, means, strict=True))
    return _correlations((of_x * y).sum(axis=1), *kept)


def _unless_constant(squares: FloatArray, n: FloatArray | int, mean: FloatArray) -> FloatArray:
    """Return sums of n squared deviations from a mean (k,), NaN where they are rounding errors of that mean."""
    return np.where(squares > n * (CONSTANT * mean) ** 2, squares, np.nan)


def _correlations(products: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Divide sums of products by the roots of both sums of squares."""
    return np.asarray(np.clip(products / np.sqrt(x * y), -1.0, 1.0), dtype=np.float64)
