"""Statistics of one system's scores that tests and intervals compute for many resamples at once.

A statistic belongs to n items. Besides a system's scores it may need arrays about the same items (``references``), such
as the human scores that the scores are correlated with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.bias_and_skewness import distance_skewness
from evalbias.measures.likelihood import DECIMALS, normalize, unfairness_scores
from evalbias.measures.ranks import rank_rows, spearman_rows

Swapping = Callable[[BoolArray], tuple[FloatArray, FloatArray]]
FEW = 64
"""Fewest rows for which ``Mixture`` builds its quadratic form; fewer are ranked one by one."""


class Statistic:
    """A number of one system's scores.

    A subclass defines ``rows``; the rest follows from it, unless a subclass has a faster ``swapping``.

    Attributes:
        references: Arrays (n,) about the items that the statistic needs besides the scores.
    """

    references: tuple[FloatArray, ...] = ()

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the statistic of k systems or resamples.

        Args:
            scores: (k, n), or (k, n, d) for a statistic of d numbers an item.
            *references: (k, n) or (1, n) each.

        Returns:
            (k,) values; NaN where undefined.
        """
        raise NotImplementedError

    def __call__(self, scores: ArrayLike) -> float:
        """Compute the statistic of one system's scores, (n,) or (n, d)."""
        return float(self.rows(np.asarray(scores, dtype=np.float64)[None], *self._single())[0])

    def matches(self, other: Statistic) -> bool:
        """Return whether another statistic has the same kind, settings and references."""
        return type(self) is type(other) and all(_same(value, vars(other).get(n)) for n, value in vars(self).items())

    def keep(self, kept: BoolArray) -> Statistic:
        """Return the same statistic of a part of the items, given as a mask (n,)."""
        part = copy.copy(self)
        part.references = tuple(reference[kept] for reference in self.references)
        return part

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """Return the function from swaps (k, n) to the statistics (k,) of a and of b after the items were exchanged."""

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            mask = swap.reshape(*swap.shape, *(1,) * (a.ndim - 1))
            rows = np.where(mask, b, a), np.where(mask, a, b)
            return self.rows(rows[0], *self._single()), self.rows(rows[1], *self._single())

        return swapped

    def _single(self) -> tuple[FloatArray, ...]:
        return tuple(reference[None] for reference in self.references)


class MeanStatistic(Statistic):
    """Mean of the scores."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the means; see ``Statistic``."""
        return np.asarray(scores.mean(axis=1))


class SkewnessStatistic(Statistic):
    """Distance skewness of the scores around 0 (Xu et al. 2024, eq 2)."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the distance skewness of every row; see ``Statistic``."""
        return np.array([distance_skewness(row) for row in scores])


class FairnessStatistic(Statistic):
    """Fairness of decision shares (n, c): minus the distance of their mean from a prior (Zhou et al. 2024).

    Args:
        prior: (c,) win rate that each class should have. Defaults to the uniform distribution.
        ties: Whether the last class is the answer "tie". Without a prior, the positions then share what it leaves.
    """

    def __init__(self, prior: ArrayLike | None = None, *, ties: bool = False) -> None:
        self._prior = None if prior is None else np.asarray(prior, dtype=np.float64)
        self._ties = ties

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the fairness of every row of shares (k, n, c); see ``Statistic``."""
        rates = scores.mean(axis=1)  # (k, c)
        if self._ties and self._prior is None:
            share = (1 - rates[:, -1:]) / (rates.shape[1] - 1)
            return np.asarray(-np.abs(share - rates[:, :-1]).sum(axis=1))
        prior = np.full(rates.shape[1], 1 / rates.shape[1]) if self._prior is None else self._prior
        return np.asarray(-np.abs(prior - rates).sum(axis=1))

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; mean shares are linear in the swaps, so one matrix product serves all rows."""
        totals, change = (a.sum(axis=0), b.sum(axis=0)), b - a  # (c,), (n, c)

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            moved = swap.astype(np.float64) @ change  # (k, c)
            first, second = ((total + sign * moved) / len(a) for total, sign in zip(totals, (1, -1), strict=True))
            return self.rows(first[:, None]), self.rows(second[:, None])

        return swapped


class OddsStatistic(Statistic):
    """Odds in a logistic model of win probabilities on a difference between the candidates.

    Args:
        difference: (n,) first minus second candidate, in any unit.
        at_zero: Return the odds of the first position between equal candidates, instead of the factor on the odds for
            each unit of the difference.

    A row is NaN where the model has no finite solution: fewer than two distinct differences, or decisions that a
    threshold on the difference separates.
    """

    def __init__(self, difference: FloatArray, *, at_zero: bool = False) -> None:
        self.references = (difference,)
        self._term = int(at_zero)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the odds of every row of win probabilities (k, n) of the first candidate; see ``Statistic``."""
        return np.asarray(np.exp(_logistic(references[0], scores)[self._term]))


class RankStatistic(Statistic):
    """Spearman's rho of the scores, or of their unfairness scores, with a reference.

    Args:
        reference: (n,) values that the scores are correlated with.
        human_scores: (n,) Score_h, from which US is computed; None correlates the scores themselves.
    """

    def __init__(self, reference: ArrayLike, human_scores: ArrayLike | None = None) -> None:
        arrays = [reference] if human_scores is None else [reference, human_scores]
        self.references = tuple(np.asarray(array, dtype=np.float64) for array in arrays)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute rho of every row; see ``Statistic``."""
        if len(references) == 2:
            human = np.broadcast_to(references[1], scores.shape)
            pairs = zip(scores, human, strict=True)
            scores = np.stack([unfairness_scores(m, h) for m, h in pairs])
        return spearman_rows(scores, references[0])

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; US is normalized anew for every row, by the few ranges that the rows can have."""
        reference = rank_rows(self.references[0][None])[0]
        if len(self.references) == 1:
            mixed = Mixture(a, b, reference)
            return lambda swap: (mixed(swap), mixed(~swap))
        human = normalize(self.references[1], "mean-range")

        @lru_cache(maxsize=64)
        def mixture(width: float) -> Mixture:
            first, second = (np.round(x / width - human, DECIMALS) for x in (a, b))  # a row's mean moves no rank
            return Mixture(first, second, reference)

        def rho(swap: BoolArray) -> FloatArray:
            values = np.full(len(swap), np.nan)
            widths, inverse = np.unique(np.ptp(np.where(swap, b, a), axis=1), return_inverse=True)
            for index, width in enumerate(widths):
                if width > 0 and not np.isnan(human).any():
                    group = inverse == index
                    values[group] = mixture(width)(swap[group])
            return values

        return lambda swap: (rho(swap), rho(~swap))


def _same(a: object, b: object) -> bool:
    if isinstance(a, Statistic) and isinstance(b, Statistic):
        return a.matches(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    return a is b or bool(a == b)


def performance_statistic(human_scores: ArrayLike) -> RankStatistic:
    """Evaluation performance, rho(Score_m, Score_h), as a statistic of Score_m (Ohi et al. 2024)."""
    return RankStatistic(human_scores)


def bias_score_statistic(likelihoods: ArrayLike, human_scores: ArrayLike) -> RankStatistic:
    """BiasScore, rho(LS, US), as a statistic of Score_m; US is normalized for every resample (Ohi et al., eq 5)."""
    return RankStatistic(likelihoods, human_scores)


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


def _logistic(x: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fit slope and intercept, (k,) each, of targets (k, n) in [0, 1] on x (k, n) by maximum likelihood.

    Newton's method with bounded steps, all rows at once; NaN where there is no finite solution.
    """
    x = np.broadcast_to(x, target.shape)
    scale = x.std(axis=1, keepdims=True)
    fit = (scale > 0).ravel()
    z = np.divide(x, scale, out=np.zeros_like(target), where=scale > 0)
    weights = np.zeros((len(target), 2))
    for _ in range(100):
        shares = expit(weights[:, :1] * z + weights[:, 1:])  # (k, n)
        error, curvature = shares - target, shares * (1 - shares)
        gradient = np.stack([(error * z).mean(axis=1), error.mean(axis=1)], axis=1)  # (k, 2)
        if (np.abs(gradient).max(axis=1)[fit] < 1e-10).all():
            break
        h = [(curvature * power).mean(axis=1) for power in (z * z, z, np.ones_like(z))]
        determinant = np.maximum(h[0] * h[2] - h[1] ** 2, 1e-300)
        step = np.stack([h[2] * gradient[:, 0] - h[1] * gradient[:, 1], h[0] * gradient[:, 1] - h[1] * gradient[:, 0]])
        step = np.clip((step / determinant).T, -2, 2)
        weights = np.clip(weights - step, -60, 60)
    fit &= (np.abs(weights).max(axis=1) < 30) & (np.abs(gradient).max(axis=1) < 1e-6)
    slope = np.divide(weights[:, 0], scale.ravel(), out=np.full(len(target), np.nan), where=fit)
    return slope, np.where(fit, weights[:, 1], np.nan)
