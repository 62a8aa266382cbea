"""Is the difference real? Paired permutation test and bootstrap intervals, vectorized over resamples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.checks import defined, vectors
from evalbias.measures.likelihood import DECIMALS, normalize
from evalbias.measures.ranks import rank_rows, spearman_rows

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
CELLS = 1 << 21
"""Numbers in a chunk of resamples."""
FEW = 64
"""Rows that are ranked one by one rather than by a form of their own."""
SLACK = 1e-12
"""A resample that misses the observed difference by less is a tie, and ties count."""


@dataclass(frozen=True)
class PermutationTest:
    """A paired test of two systems.

    Attributes:
        statistic_a: Of the first system.
        statistic_b: Of the second system.
        difference: ``statistic_a - statistic_b``.
        p_value: Two-sided, in [1 / (n_resamples + 1), 1]; NaN if a statistic is undefined.
        n_resamples: Random swaps drawn.
        n: Items that count.
        undefined: Items left out because a score is NaN.
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
        estimate: The statistic of the data.
        n_resamples: Resamples drawn.
        undefined: Resamples without a statistic, left out.
    """

    low: float
    high: float
    estimate: float
    n_resamples: int
    undefined: int


class Statistic(Protocol):
    """What a paired test compares: a number of one system's scores (n,)."""

    @property
    def complete(self) -> BoolArray:
        """(n,) which items have all that the statistic needs beside the scores."""
        ...

    def keep(self, kept: BoolArray) -> Statistic:
        """The same statistic on a part of the items."""
        ...

    def __call__(self, scores: ArrayLike) -> float:
        """Of one system's scores (n,)."""
        ...

    def swapping(self, a: FloatArray, b: FloatArray) -> Callable[[BoolArray], tuple[FloatArray, FloatArray]]:
        """What tells the statistic of a and of b, (k,) each, after the swaps (k, n) exchanged their scores."""
        ...


class MeanStatistic:
    """The mean of n scores, such as a correlation by document."""

    def __init__(self, n: int) -> None:
        self.complete: BoolArray = np.ones(n, dtype=bool)

    def keep(self, kept: BoolArray) -> MeanStatistic:
        """See ``Statistic``."""
        return MeanStatistic(int(kept.sum()))

    def __call__(self, scores: ArrayLike) -> float:
        """See ``Statistic``."""
        return float(np.mean(np.asarray(scores, dtype=np.float64)))

    def swapping(self, a: FloatArray, b: FloatArray) -> Callable[[BoolArray], tuple[FloatArray, FloatArray]]:
        """See ``Statistic``."""
        return lambda swap: (np.where(swap, b, a).mean(axis=1), np.where(swap, a, b).mean(axis=1))


class RankStatistic:
    """Spearman's rho of a fixed reference with what becomes of a system's scores.

    Args:
        reference: (n,) what the scores are ranked against.
        human_scores: (n,) from which US is computed; None takes the scores as they are.
        normalization: Of US.
    """

    def __init__(self, reference: ArrayLike, human_scores: ArrayLike | None, normalization: str) -> None:
        (self._reference,) = vectors(reference=reference)
        self._human = None if human_scores is None else vectors(reference=reference, human_scores=human_scores)[1]
        self._normalization = normalization

    def keep(self, kept: BoolArray) -> RankStatistic:
        """The same statistic on a part of the items."""
        human = None if self._human is None else self._human[kept]
        return RankStatistic(self._reference[kept], human, self._normalization)

    @property
    def complete(self) -> BoolArray:
        """(n,) whether the reference and the human score are defined."""
        return defined(self._reference) if self._human is None else defined(self._reference, self._human)

    def __call__(self, scores: ArrayLike) -> float:
        """Of one system's scores (n,)."""
        (values,) = vectors(scores=scores)
        none = np.zeros((1, len(values)), dtype=bool)
        return float(self.swapping(values, values)(none)[0][0])

    def swapping(self, a: FloatArray, b: FloatArray) -> Callable[[BoolArray], tuple[FloatArray, FloatArray]]:
        """What tells the statistic of a and of b, (k,) each, after the swaps (k, n) exchanged their scores."""
        reference = rank_rows(self._reference[None])[0]
        if self._human is None:
            whole = Mixture(a, b, reference)
            return lambda swap: (whole(swap), whole(~swap))
        human = normalize(self._human, self._normalization)

        @lru_cache(maxsize=64)
        def mixture(low: float, high: float) -> Mixture:
            of_a, of_b = (np.round((x - low) / (high - low) - human, DECIMALS) for x in (a, b))
            return Mixture(of_a, of_b, reference)

        def of(second: BoolArray) -> FloatArray:
            found = np.full(len(second), np.nan)
            spans = _spans(np.where(second, b, a), self._normalization)
            rows, inverse = np.unique(spans, axis=0, return_inverse=True)
            for index, (low, high) in enumerate(rows):
                if low < high and not np.isnan(human).any():
                    group = inverse.ravel() == index
                    found[group] = mixture(low, high)(second[group])
            return found

        return lambda swap: (of(swap), of(~swap))


def _spans(scores: FloatArray, normalization: str) -> FloatArray:
    """(k, 2) what a row's US depends on beside its scores: few rows differ in it."""
    low, high = scores.min(axis=1), scores.max(axis=1)
    if normalization == "min-max":
        return np.stack([low, high], axis=1)
    return np.stack([np.zeros(len(low)), high - low], axis=1)  # the mean shifts the whole row, which ranks do not see


class Mixture:
    """Spearman's rho of reference ranks with rows whose item i is b[i] where a swap says so, else a[i].

    A rank counts the values below it, and each of two items has one of two values, so the covariance of ranks and
    reference is a quadratic form in the swaps: one matrix product for all rows. Every number in it is a multiple of
    a quarter, so it is exact. Building it costs as much as ranking some rows, which is what few rows get.

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
            ties = (self._tied + rows @ self._changes).astype(np.float64)  # (k, t) how often each value occurs
            spread -= ((ties**3 - ties) / 12.0).sum(axis=1)
        total = spread * ((self._reference - self._reference.mean()) ** 2).sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(total > 0, covariance / np.sqrt(total), np.nan)
        return np.asarray(np.clip(found, -1.0, 1.0), dtype=np.float64)

    def _build(self) -> None:
        a, b, n = self._a, self._b, len(self._a)
        centered = (self._reference - self._reference.mean())[:, None]
        exact = np.float32 if 4 * n * n < 1 << 24 else np.float64  # sums of n products stay below what it holds exactly
        aa, ab, ba, bb = (_below(u, v) for u, v in ((a, a), (a, b), (b, a), (b, b)))
        self._form = (centered * (aa - ab - ba + bb)).astype(exact)  # (n, n)
        self._linear = (centered * (ba - aa)).sum(axis=1) + (centered * (ab - aa)).sum(axis=0)  # (n,)
        self._base = float((centered * aa).sum())
        values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        holders = np.zeros((2, n, len(values)), dtype=bool)
        holders[0, np.arange(n), codes[:n]] = holders[1, np.arange(n), codes[n:]] = True
        shared = holders.any(axis=0).sum(axis=0) > 1  # values that two items can have at once
        of_a, of_b = holders[:, :, shared].astype(exact)
        self._tied, self._changes = of_a.sum(axis=0), of_b - of_a
        self._built = True


def _below(u: FloatArray, v: FloatArray) -> FloatArray:
    """(n, n) 1 where v[j] is below u[i], a half where they are equal."""
    return np.asarray((v < u[:, None]) + 0.5 * (v == u[:, None]))


def performance_statistic(human_scores: ArrayLike) -> RankStatistic:
    """Evaluation performance: rho(Score_m, Score_h), as a statistic of Score_m."""
    return RankStatistic(human_scores, None, "min-max")


def bias_score_statistic(
    likelihoods: ArrayLike, human_scores: ArrayLike, *, normalization: str = "min-max"
) -> RankStatistic:
    """BiasScore: rho(LS, US) (Ohi et al. 2024, eq 5), as a statistic of Score_m; US is normalized anew every time."""
    if normalization not in ("min-max", "mean-range"):
        raise ValueError(f"normalization={normalization!r} is unknown: choose 'min-max' or 'mean-range'.")
    return RankStatistic(likelihoods, human_scores, normalization)


def paired_permutation_test(
    statistic: Statistic, a: ArrayLike, b: ArrayLike, *, n_resamples: int = 100_000, seed: int
) -> PermutationTest:
    """Two-sided randomized pair-wise permutation test (the paper's, R = 100000).

    Under the null hypothesis the two systems are exchangeable item by item: each resample swaps their scores on a
    random half of the items, and p is the share of resamples, the data itself among them, whose difference is at least
    as large in magnitude as the observed one. Ties count. A resample without a statistic counts too, so that
    undefined values never make a difference significant.

    Args:
        statistic: ``performance_statistic(...)``, ``bias_score_statistic(...)`` or ``MeanStatistic(n)``.
        a: (n,) scores of the first system.
        b: (n,) scores of the second system on the same items.
        n_resamples: At least 1.
        seed: Of the swaps.

    Raises:
        ValueError: Different lengths, or fewer than one resample.
    """
    first, second = vectors(a=a, b=b)
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: draw at least one.")
    if len(statistic.complete) != len(first):
        raise ValueError(f"The statistic is of {len(statistic.complete)} items, the scores of {len(first)}.")
    kept = statistic.complete & defined(first, second)
    first, second, part = first[kept], second[kept], statistic.keep(kept)
    n = int(kept.sum())
    told = (part(first), part(second)) if n > 1 else (np.nan, np.nan)
    difference = told[0] - told[1]
    p = np.nan
    if not np.isnan(difference):
        extreme = _count(part, first, second, abs(difference) - SLACK, n_resamples, np.random.default_rng(seed))
        p = (1 + extreme) / (1 + n_resamples)
    return PermutationTest(told[0], told[1], difference, p, n_resamples, n, int((~kept).sum()))


def _count(
    statistic: Statistic, a: FloatArray, b: FloatArray, bound: float, resamples: int, rng: np.random.Generator
) -> int:
    n, extreme = len(a), 0
    rows, swapped = max(1, CELLS // n), statistic.swapping(a, b)
    for start in range(0, resamples, rows):
        k = min(rows, resamples - start)
        bits = rng.integers(0, 256, size=(k, (n + 7) // 8), dtype=np.uint8)
        swap = np.unpackbits(bits, axis=1, count=n).astype(bool)
        of_a, of_b = swapped(swap)
        extreme += int((~(np.abs(of_a - of_b) < bound)).sum())  # NaN is not below the bound: it counts
    return extreme


def bootstrap_ci(
    statistic: Callable[..., FloatArray],
    *arrays: ArrayLike,
    n_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int,
) -> ConfidenceInterval:
    """Percentile bootstrap over items.

    Args:
        statistic: Takes (k, n) arrays, one for each of ``arrays``, and gives (k,) values; ``spearman_rows``, say.
        *arrays: (n,) each; items with a NaN are left out.
        n_resamples: At least 1.
        confidence: In (0, 1).
        seed: Of the resamples.

    Raises:
        ValueError: No items, different lengths, or parameters out of range.
    """
    found = vectors(**{f"arrays[{i}]": array for i, array in enumerate(arrays)})
    if not found or not 0 < confidence < 1 or n_resamples < 1:
        raise ValueError(f"{len(found)} arrays, confidence={confidence}, n_resamples={n_resamples}: out of range.")
    kept = defined(*found)
    found = [array[kept] for array in found]
    n, rng = int(kept.sum()), np.random.default_rng(seed)
    if n < 2:
        return ConfidenceInterval(np.nan, np.nan, np.nan, n_resamples, n_resamples)
    rows = max(1, CELLS // n)
    parts = []
    for start in range(0, n_resamples, rows):
        picks = rng.integers(0, n, size=(min(rows, n_resamples - start), n))
        parts.append(statistic(*(array[picks] for array in found)))
    values = np.concatenate(parts)
    usable = values[~np.isnan(values)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(usable, [tail, 1 - tail]) if len(usable) else (np.nan, np.nan)
    estimate = float(statistic(*(array[None] for array in found))[0])
    return ConfidenceInterval(float(low), float(high), estimate, n_resamples, len(values) - len(usable))
