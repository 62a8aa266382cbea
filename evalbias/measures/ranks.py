"""Ranks and rank correlation of many rows at once; what the resampling tests run on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def rank_rows(x: FloatArray) -> FloatArray:
    """(k, n) ranks within each row of (k, n), from 1; equal values share the mean of their ranks.

    Up to and including a value stand ``cumsum(counts)`` values, and its ties share the mean of their places.
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
    shared = np.cumsum(counts, axis=1) - 0.5 * (counts - 1)  # mean of the places of one value
    return np.asarray(shared.ravel()[cells.ravel()].reshape(k, n), dtype=np.float64)


def pearson_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """(k,) correlation of each row of x with the same row of y, or with the one row y; NaN for a constant row."""
    x = x - x.mean(axis=1, keepdims=True)
    y = np.atleast_2d(y)
    y = y - y.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    return np.asarray(np.clip(found, -1.0, 1.0), dtype=np.float64)


def spearman_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """(k,) Spearman's rho of each row of (k, n) x with the same row of y, or with the one row y.

    NaN where a side is constant or holds a NaN.
    """
    x, y = np.atleast_2d(x), np.atleast_2d(y)
    undefined = np.isnan(x).any(axis=1) | np.isnan(y).any(axis=1)
    return np.where(undefined, np.nan, pearson_rows(rank_rows(x), rank_rows(y)))
