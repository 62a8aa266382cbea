"""Statistics of one system's scores that tests and intervals compute for many resamples at once.

A statistic belongs to n items. Besides a system's scores it may need arrays about the same items (``references``), such
as the human scores that the scores are correlated with.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtri

from evalbias.measures.arrays import BoolArray, FloatArray, IntArray
from evalbias.measures.bias_and_skewness import distance_skewness, symmetry_p_value, weighted_skewness
from evalbias.measures.intervals import ConfidenceInterval, counted_interval, quantiles, share_interval
from evalbias.measures.likelihood import DECIMALS, NORMALIZATIONS, normalize, unfairness_rows
from evalbias.measures.mixture import Mixture
from evalbias.measures.ranks import counted_pearson, counted_ranks, rank_rows, spearman_rows
from evalbias.measures.resampling import aligned, cluster_codes, defined_items, drawn, picked

INFINITE = 20.0
"""Log odds that no data have: a separated row stops there, where its gradient vanishes."""
Swapping = Callable[[BoolArray], tuple[FloatArray, FloatArray]]


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

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a confidence interval of the statistic; a subclass for which the bootstrap is wrong has its own.

        Args:
            scores: (n,) or (n, d) of one system; items with a NaN are left out.
            clusters: (n,) cluster (document) of each item. By default every item is its own.
            n_resamples: Bootstrap resamples.
            confidence: In (0, 1).
            seed: Seed for the resamples.
        """
        own, codes, part = self._defined([scores], clusters)
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        return counted_interval(lambda counts: part.resampled(own[0], counts), codes, part._of(*own), **options)

    def difference(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a confidence interval of the statistic of b minus that of a, on the items that both define.

        Args:
            a: (n,) or (n, d) of the first system.
            b: The same of the second.
            clusters: See ``interval``.
            n_resamples: See ``interval``.
            confidence: See ``interval``.
            seed: See ``interval``.
        """
        (first, second), codes, part = self._defined([a, b], clusters)

        def values(counts: FloatArray) -> FloatArray:
            return part.resampled(second, counts) - part.resampled(first, counts)

        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        return counted_interval(values, codes, part._of(second) - part._of(first), **options)

    def _defined(
        self, systems: list[ArrayLike], clusters: Sequence[object] | None
    ) -> tuple[list[FloatArray], IntArray, Statistic]:
        """Return systems, clusters and the statistic of the items that are defined everywhere."""
        columns = aligned(*systems, *self.references)
        kept = defined_items(*columns)
        return [c[kept] for c in columns[: len(systems)]], cluster_codes(clusters, kept), self.keep(kept)

    def _of(self, scores: FloatArray) -> float:
        return self(scores) if len(scores) else float("nan")

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """Compute the statistic of k resamples of one system's scores; a subclass may have a faster way.

        Args:
            scores: (n,) or (n, d).
            counts: (k, n) how often each resample holds each item.

        Returns:
            (k,) values; NaN where undefined.
        """
        values = np.empty(len(counts))
        for rows, items in picked(counts):
            values[rows] = self.rows(scores[items], *(reference[items] for reference in self.references))
        return values

    def _single(self) -> tuple[FloatArray, ...]:
        return tuple(reference[None] for reference in self.references)


class MeanStatistic(Statistic):
    """Mean of the scores."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the means; see ``Statistic``."""
        return np.asarray(scores.mean(axis=1))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return np.asarray(counts @ scores / counts.sum(axis=1))


class ShareStatistic(MeanStatistic):
    """Mean of numbers in [0, 1], such as wins; its interval keeps its coverage near 0 and 1."""

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic`` and ``share_interval``; nothing is resampled."""
        return share_interval(scores, clusters=clusters, confidence=confidence)


class SkewnessStatistic(Statistic):
    """Distance skewness of the scores around 0 (Xu et al. 2024, eq 2)."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the distance skewness of every row; see ``Statistic``."""
        return np.array([distance_skewness(row) for row in scores])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return weighted_skewness(scores, counts)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute an interval that holds 0 unless the scores are significantly skewed; see ``Statistic``.

        Every resample of symmetric scores is skewed, so no quantile reaches 0. The lower end is 0 where changes of sign
        (``symmetry_p_value``) do not reject symmetry, else that of the BCa interval. The upper end is the larger of
        the BCa and the percentile interval, because near 0 the first corrects too much.
        """
        (x,), codes, _ = self._defined([scores], clusters)
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        resampled = functools.partial(weighted_skewness, x)
        found = counted_interval(resampled, codes, self._of(x), **options)
        if np.isnan(found.low):
            return found
        plain = counted_interval(resampled, codes, found.estimate, method="percentile", **options)
        p = symmetry_p_value(x, codes, n_resamples=n_resamples, rng=np.random.default_rng(seed))
        return replace(found, low=0.0 if p > 1 - confidence else found.low, high=max(found.high, plain.high))


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
        return np.asarray(-np.abs(self._deviations(scores.mean(axis=1))).sum(axis=1))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        rates = counts @ scores / counts.sum(axis=1, keepdims=True)
        return np.asarray(-np.abs(self._deviations(rates)).sum(axis=1))

    def _deviations(self, rates: FloatArray) -> FloatArray:
        """Return the rates that the classes should have minus those of every row (k, c), where they should have any."""
        if self._ties and self._prior is None:
            return np.asarray((1 - rates[:, -1:]) / (rates.shape[1] - 1) - rates[:, :-1])
        prior = np.full(rates.shape[1], 1 / rates.shape[1]) if self._prior is None else self._prior
        return np.asarray(prior - rates)

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; mean shares are linear in the swaps, so one matrix product serves all rows."""
        totals, change = (a.sum(axis=0), b.sum(axis=0)), b - a  # (c,), (n, c)

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            moved = swap.astype(np.float64) @ change  # (k, c)
            first, second = ((total + sign * moved) / len(a) for total, sign in zip(totals, (1, -1), strict=True))
            return self.rows(first[:, None]), self.rows(second[:, None])

        return swapped

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute an interval that holds 0 wherever the rates could be those of a fair judge; see ``Statistic``.

        Resamples of a fair judge are unfair, so the quantiles of their fairness miss 0. With two classes, fairness is
        -2 |p - prior| of the rate p of the first, and the interval is that of p (``share_interval``). With more, it
        holds the fairness of all rates no farther from those observed than 95 % of the resamples; it is then too wide
        for a judge far from fair.
        """
        (shares,) = aligned(scores)
        if shares.shape[1] - int(self._ties and self._prior is None) == 2:
            first = shares[:, 0] + (shares[:, 2] / 2 if shares.shape[1] == 3 else 0)
            target = 0.5 if self._prior is None else self._prior[0]
            found = share_interval(first, clusters=clusters, confidence=confidence)
            distance, ends = abs(found.estimate - target), (found.low - target, found.high - target)
            nearest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
            return replace(found, low=-2 * max(map(abs, ends)), high=-2 * nearest, estimate=-2 * distance)
        (shares,), codes, _ = self._defined([shares], clusters)
        units = len(set(codes.tolist()))
        if units < 2:
            return ConfidenceInterval(np.nan, np.nan, self._of(shares), 0, 0, units)
        observed = self._deviations(shares.mean(axis=0, keepdims=True))
        rates = [
            counts @ shares / counts.sum(axis=1, keepdims=True)
            for counts in drawn(codes, n_resamples, np.random.default_rng(seed))
        ]
        moved = np.abs(self._deviations(np.concatenate(rates)) - observed).sum(axis=1)
        widened = quantiles(np.array([(1 + confidence) / 2]), units)[0] / ndtri((1 + confidence) / 2)
        radius, distance = widened * np.quantile(moved, confidence), np.abs(observed).sum()
        low, high = max(-2.0, -distance - radius), min(0.0, radius - distance)
        return ConfidenceInterval(float(low), float(high), -float(distance), n_resamples, 0, units)


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
        normalization: Normalization of the scores whose difference is US; see ``unfairness_scores``.

    Raises:
        ValueError: Unknown normalization.
    """

    def __init__(
        self, reference: ArrayLike, human_scores: ArrayLike | None = None, *, normalization: str = "mean-range"
    ) -> None:
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization={normalization!r} is unknown; choose one of {NORMALIZATIONS}.")
        arrays = [reference] if human_scores is None else [reference, human_scores]
        self.references = tuple(np.asarray(array, dtype=np.float64) for array in arrays)
        self._normalization = normalization

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute rho of every row; see ``Statistic``."""
        if len(references) == 2:
            scores = unfairness_rows(scores, references[1], normalization=self._normalization)
        return spearman_rows(scores, references[0])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``; only US whose scale is every resample's own is sorted anew."""
        if len(self.references) == 1:
            return counted_pearson(counted_ranks(scores, counts), counted_ranks(self.references[0], counts), counts)
        model, human = (self._scales(x, counts) for x in (scores, self.references[1]))  # (k,)
        reference, values = counted_ranks(self.references[0], counts), np.full(len(counts), np.nan)
        pairs, inverse = np.unique(np.stack([model, human], axis=1), axis=0, return_inverse=True)
        usable = (model > 0) & (human > 0)
        if len(pairs) > len(counts) / 10:
            rows = np.flatnonzero(usable)
            us = np.round(scores / model[rows, None] - self.references[1] / human[rows, None], DECIMALS)
            values[rows] = counted_pearson(counted_ranks(us, counts[rows]), reference[rows], counts[rows])
            return values
        for index, (of_model, of_human) in enumerate(pairs):
            rows = np.flatnonzero(usable & (inverse.ravel() == index))
            if len(rows):
                us = np.round(scores / of_model - self.references[1] / of_human, DECIMALS)
                values[rows] = counted_pearson(counted_ranks(us, counts[rows]), reference[rows], counts[rows])
        return values

    def _scales(self, x: FloatArray, counts: FloatArray) -> FloatArray:
        """Return the number that each resample's scores are divided by, (k,); a common shift of US moves no rank."""
        held = np.where(counts > 0, x, np.nan)
        if self._normalization == "mean-range":
            return np.asarray(np.fmax.reduce(held, axis=1) - np.fmin.reduce(held, axis=1))
        mean = counts @ x / counts.sum(axis=1)
        centered = held - mean[:, None]
        if self._normalization == "center-max":
            return np.asarray(np.fmax.reduce(np.abs(centered), axis=1))
        constant = np.fmax.reduce(held, axis=1) == np.fmin.reduce(held, axis=1)
        spread = np.where(counts > 0, counts * (x - mean[:, None]) ** 2, 0.0).sum(axis=1) / counts.sum(axis=1)
        return np.asarray(np.where(constant, 0.0, np.sqrt(spread)))

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; ranges and largest magnitudes are those of every row, z-scores those of either judge.

        A row has one of few ranges, and the rows of one range are one mixture. A row's standard deviation is its own,
        so z-scores are swapped instead of scores: then judges that differ in nothing but their scale are exchangeable.
        """
        reference = rank_rows(self.references[0][None])[0]
        if len(self.references) == 2 and self._normalization == "center-max":
            return super().swapping(a, b)
        if len(self.references) == 2 and self._normalization == "z-score":
            a, b = (unfairness_rows(x, self.references[1], normalization="z-score") for x in (a, b))
        if len(self.references) == 1 or self._normalization == "z-score":
            mixed = Mixture(a, b, reference)
            return lambda swap: (mixed(swap), mixed(~swap))
        human = normalize(self.references[1], "mean-range")

        @functools.lru_cache(maxsize=64)
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
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b, equal_nan=True)
    return a is b or bool(a == b)


def performance_statistic(human_scores: ArrayLike) -> RankStatistic:
    """Evaluation performance, rho(Score_m, Score_h), as a statistic of Score_m (Ohi et al. 2024)."""
    return RankStatistic(human_scores)


def bias_score_statistic(
    likelihoods: ArrayLike, human_scores: ArrayLike, *, normalization: str = "mean-range"
) -> RankStatistic:
    """BiasScore, rho(LS, US), as a statistic of Score_m; US is normalized for every resample (Ohi et al., eq 5)."""
    return RankStatistic(likelihoods, human_scores, normalization=normalization)


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
    fit &= (np.abs(weights).max(axis=1) < INFINITE) & (np.abs(gradient).max(axis=1) < 1e-6)
    slope = np.divide(weights[:, 0], scale.ravel(), out=np.full(len(target), np.nan), where=fit)
    return slope, np.where(fit, weights[:, 1], np.nan)
