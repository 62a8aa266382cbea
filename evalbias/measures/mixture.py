"""Rank correlations of two systems' mixed scores, for all swaps of a permutation test at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from evalbias.measures.agreement import spearman_rows
from evalbias.measures.arrays import BoolArray, FloatArray

FEW = 64
"""Fewest rows for which ``Mixture`` builds its quadratic form; fewer are ranked one by one."""


class Mixture:
    """Spearman's rho of reference ranks with rows that hold ``b[i]`` where item i is swapped, else ``a[i]``.

    A rank counts the values below it. With few different values, each row counts the items that hold each value. With
    many, the covariance of ranks and reference is a quadratic form in the swaps, because each item has one of two
    values. Either way matrix products serve all rows, and every number is a multiple of a quarter, so the result is
    exact. Preparing costs as much as ranking a few rows, so a few rows are ranked instead.

    Args:
        a: (n,) values.
        b: (n,) values.
        reference: (n,) ranks.
    """

    def __init__(self, a: FloatArray, b: FloatArray, reference: FloatArray) -> None:
        self._a, self._b, self._reference = a, b, reference
        self._covariance: Callable[[FloatArray, FloatArray], FloatArray] | None = None

    def __call__(self, second: BoolArray) -> FloatArray:
        """(k,) of (k, n) swaps; NaN where a side is constant."""
        if len(second) < FEW and self._covariance is None:
            return spearman_rows(np.where(second, self._b, self._a), self._reference)
        covariance, n = self._covariance or self._build(), len(self._a)
        rows = second.astype(self._changes.dtype)  # (k, n)
        held = (self._tied + rows @ self._changes).astype(np.float64)  # (k, t) items that hold each value
        spread = (n**3 - n) / 12.0 - ((held**3 - held) / 12.0).sum(axis=1)
        total = spread * (self._centered**2).sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.where(total > 0, covariance(rows, held) / np.sqrt(total), np.nan)
        return np.asarray(np.clip(rho, -1.0, 1.0), dtype=np.float64)

    def _build(self) -> Callable[[FloatArray, FloatArray], FloatArray]:
        """Count the items that hold each value, and return the function from swaps and counts to covariances (k,)."""
        a, b, n = self._a, self._b, len(self._a)
        self._centered = self._reference - self._reference.mean()
        exact = np.float32 if 4 * n * n < 1 << 24 else np.float64  # sums of n products stay exact integers
        values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        holders = np.zeros((2, n, len(values)), dtype=bool)
        holders[0, np.arange(n), codes[:n]] = holders[1, np.arange(n), codes[n:]] = True
        counted = 4 * len(values) <= n  # two products with (n, t) cost less than one with (n, n)
        shared = counted | (holders.any(axis=0).sum(axis=0) > 1)  # values that two items can share
        of_a, of_b = holders[:, :, shared].astype(exact)
        self._tied, self._changes = of_a.sum(axis=0), of_b - of_a
        self._covariance = self._of_counts(of_a) if counted else self._of_form(exact)
        return self._covariance

    def _of_counts(self, of_a: FloatArray) -> Callable[[FloatArray, FloatArray], FloatArray]:
        sums, moved = self._centered @ of_a, (self._centered[:, None] * self._changes).astype(of_a.dtype)

        def covariance(rows: FloatArray, held: FloatArray) -> FloatArray:
            ranks = np.cumsum(held, axis=1) - held / 2  # less a half, which the centered reference cancels
            return np.asarray(((sums + rows @ moved) * ranks).sum(axis=1))

        return covariance

    def _of_form(self, exact: DTypeLike) -> Callable[[FloatArray, FloatArray], FloatArray]:
        a, b, centered = self._a, self._b, self._centered[:, None]
        aa, ab, ba, bb = (_below(u, v) for u, v in ((a, a), (a, b), (b, a), (b, b)))
        form = (centered * (aa - ab - ba + bb)).astype(exact)  # (n, n)
        linear = (centered * (ba - aa)).sum(axis=1) + (centered * (ab - aa)).sum(axis=0)  # (n,)
        base = float((centered * aa).sum())

        def covariance(rows: FloatArray, held: FloatArray) -> FloatArray:
            return np.asarray(base + rows @ linear + np.einsum("kn,kn->k", rows @ form, rows, dtype=np.float64))

        return covariance


def _below(u: FloatArray, v: FloatArray) -> FloatArray:
    """(n, n) 1 where v[j] is below u[i], a half where they are equal."""
    return np.asarray((v < u[:, None]) + 0.5 * (v == u[:, None]))
