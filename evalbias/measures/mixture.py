"""Rank correlations of two systems' mixed scores, for all swaps of a permutation test at once."""

from __future__ import annotations

import numpy as np

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.ranks import spearman_rows

FEW = 64
"""Fewest rows for which ``Mixture`` builds its quadratic form; fewer are ranked one by one."""


class Mixture:
    """Spearman's rho of reference ranks with rows that hold ``b[i]`` where item i is swapped, else ``a[i]``.

    A rank counts the values below it, and each item has one of two values, so the covariance of ranks and reference is
    a quadratic form in the swaps: one matrix product for all rows. Every number in it is a multiple of a quarter, so
    the result is exact. Building the form costs as much as ranking a few rows, so a few rows are ranked instead.

    Args:
        a: (n,) values.
        b: (n,) values.
        reference: (n,) ranks.
    """

    def __init__(self, a: FloatArray, b: FloatArray, reference: FloatArray) -> None:
        self._a, self._b, self._reference = a, b, reference
        self._built = False

    def __call__(self, second: BoolArray) -> FloatArray:
        """(k,) of (k, n) swaps; NaN where a side is constant."""
        if len(second) < FEW and not self._built:
            return spearman_rows(np.where(second, self._b, self._a), self._reference)
        if not self._built:
            self._build()
        n = len(self._a)
        rows = second.astype(self._form.dtype)  # (k, n)
        covariance = self._base + rows @ self._linear + np.einsum("kn,kn->k", rows @ self._form, rows, dtype=np.float64)
        spread = np.full(len(rows), (n**3 - n) / 12.0)
        if self._changes.shape[1]:
            ties = (self._tied + rows @ self._changes).astype(np.float64)  # (k, t) count of each value
            spread -= ((ties**3 - ties) / 12.0).sum(axis=1)
        total = spread * ((self._reference - self._reference.mean()) ** 2).sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.where(total > 0, covariance / np.sqrt(total), np.nan)
        return np.asarray(np.clip(rho, -1.0, 1.0), dtype=np.float64)

    def _build(self) -> None:
        a, b, n = self._a, self._b, len(self._a)
        centered = (self._reference - self._reference.mean())[:, None]
        exact = np.float32 if 4 * n * n < 1 << 24 else np.float64  # sums of n products stay exact integers
        aa, ab, ba, bb = (_below(u, v) for u, v in ((a, a), (a, b), (b, a), (b, b)))
        self._form = (centered * (aa - ab - ba + bb)).astype(exact)  # (n, n)
        self._linear = (centered * (ba - aa)).sum(axis=1) + (centered * (ab - aa)).sum(axis=0)  # (n,)
        self._base = float((centered * aa).sum())
        values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        holders = np.zeros((2, n, len(values)), dtype=bool)
        holders[0, np.arange(n), codes[:n]] = holders[1, np.arange(n), codes[n:]] = True
        shared = holders.any(axis=0).sum(axis=0) > 1  # values that two items can share
        of_a, of_b = holders[:, :, shared].astype(exact)
        self._tied, self._changes = of_a.sum(axis=0), of_b - of_a
        self._built = True


def _below(u: FloatArray, v: FloatArray) -> FloatArray:
    """(n, n) 1 where v[j] is below u[i], a half where they are equal."""
    return np.asarray((v < u[:, None]) + 0.5 * (v == u[:, None]))
