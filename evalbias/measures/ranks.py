"""Ranks and rank correlation of many rows at once, for the resampling tests."""

from __future__ import annotations

import numpy as np

from evalbias.measures.arrays import FloatArray


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
    order = np.argsort(x, axis=1, kind="stable")
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
        (k,) correlations in [-1, 1]; NaN for a constant row.

    Examples:
        >>> pearson_rows(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), np.array([1.0, 2.0, 3.0])).tolist()
        [1.0, -1.0]
    """
    x = x - x.mean(axis=1, keepdims=True)
    y = np.atleast_2d(y)
    y = y - y.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    return np.asarray(np.clip(correlations, -1.0, 1.0), dtype=np.float64)


def spearman_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Spearman's rank correlation of each row of x with the same row of y.

    Args:
        x: (k, n) values.
        y: (k, n) values, or (1, n) or (n,) to correlate every row of x with the same values.

    Returns:
        (k,) rho in [-1, 1]; NaN where a row is constant or contains a NaN.

    Examples:
        >>> spearman_rows(np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), np.array([1.0, 3.0, 2.0])).tolist()
        [0.5, nan]
    """
    x, y = np.atleast_2d(x), np.atleast_2d(y)
    undefined = np.isnan(x).any(axis=1) | np.isnan(y).any(axis=1)
    return np.where(undefined, np.nan, pearson_rows(rank_rows(x), rank_rows(y)))
