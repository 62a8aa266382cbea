"""Statistics of comparisons: fairness of decision shares, and odds in a logistic model of wins."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, IntArray, settled
from evalbias.measures.both_orders import both_orders_interval
from evalbias.measures.checks import common_index, numbers
from evalbias.measures.intervals import ConfidenceInterval, p_of_interval, quantiles, share_interval
from evalbias.measures.resampling import aligned, chunks, drawn
from evalbias.measures.statistic import Statistic, Swapping

INFINITE = 20.0
"""Log odds that no data have: a separated row stops there, where its gradient vanishes."""
BLOCK = 1 << 15
"""Resampled items that are fitted at a time; they stay in a processor's cache."""
ROUNDING = 1e-12
"""Variance of standardized differences below which all are equal."""


class FairnessStatistic(Statistic):
    """Fairness of decision shares (n, c): minus the distance of their mean from a prior (Zhou et al. 2024).

    Two judges are equally fair if their rates are equal, or if they lie on opposite sides of the prior at the same
    distance. Near a fair judge both hold nearly, and a paired test that is right in either case rejects seldom: two
    fair judges differ at 5 % in about 0.5 % of samples (``benchmarks/statistical_truth``). Test the rate of the first
    position instead to learn whether two judges favor it alike.

    Args:
        prior: (c,) win rate that each class should have. Defaults to the uniform distribution.
        ties: Whether the last class is the answer "tie". Without a prior, the positions then share what it leaves.
        both_orders: Whether the shares of each item are means over both orders of its candidates.
    """

    def __init__(self, prior: ArrayLike | None = None, *, ties: bool = False, both_orders: bool = False) -> None:
        self._prior = None if prior is None else numbers(prior, "prior")
        self._ties = ties
        self._interval = both_orders_interval if both_orders else share_interval

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
        -2 |p - prior| of the rate p of the first, and the interval is that of p (``share_interval``, or
        ``both_orders_interval``). With more, it holds the fairness of all rates no farther from those observed than
        95 % of the resamples; it is then too wide for a judge far from fair. Resamples of decisions that all fall alike
        do not move, so rates count as near that move one class to an end of its own ``share_interval``. p is that of
        the rates too: fairness is at its end where they are fair, so its own interval has no distance to 0.
        """
        (shares,) = aligned(scores, beside=[clusters])
        if shares.shape[1] - int(self._ties and self._prior is None) == 2:
            first = shares[:, 0] + (shares[:, 2] / 2 if shares.shape[1] == 3 else 0)
            target = 0.5 if self._prior is None else self._prior[0]
            found = self._interval(first, clusters=clusters, confidence=confidence)
            distance, ends = abs(found.estimate - target), (found.low - target, found.high - target)
            nearest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
            p = p_of_interval(found.estimate, found.low, found.high, null=target, units=found.units)
            low, high = -2 * max(map(abs, ends)), -2 * nearest
            return replace(found, low=low, high=high, estimate=-2 * distance, p_value=p)
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
        widened = quantiles(np.array([(1 + confidence) / 2]), units)[0] / scipy.special.ndtri((1 + confidence) / 2)
        distance = np.abs(observed).sum()
        radius = max(widened * np.quantile(moved, confidence), _reach(shares, codes, confidence))
        low, high = max(-2.0, -distance - radius), min(0.0, radius - distance)
        p = p_of_interval(distance, distance - radius, distance + radius, null=0.0, units=units)
        return ConfidenceInterval(float(low), float(high), -float(distance), n_resamples, 0, units, p)


def _reach(shares: FloatArray, codes: IntArray, confidence: float) -> float:
    """Return the distance of the mean of shares (n, c) from one in which a class is at an end of its share interval.

    What one class gains, the others lose, so the rates move twice as far as that class.
    """
    intervals = [share_interval(column, clusters=codes.tolist(), confidence=confidence) for column in shares.T]
    return 2 * max(max(one.estimate - one.low, one.high - one.estimate) for one in intervals)


class OddsStatistic(Statistic):
    """Odds in a logistic model of win probabilities on a difference between the candidates.

    Args:
        difference: (n,) first minus second candidate, in any unit.
        at_zero: Return the odds of the first position between equal candidates, instead of the factor on the odds for
            each unit of the difference.
        shared: The other statistic of the same differences, whose fits this one reads instead of repeating them.

    A row is NaN where the model has no finite solution: fewer than two distinct differences, or decisions that a
    threshold on the difference separates.
    """

    def __init__(self, difference: FloatArray, *, at_zero: bool = False, shared: OddsStatistic | None = None) -> None:
        self.references = (numbers(difference, "difference"),)
        self.index = common_index(difference)
        self._term = int(at_zero)
        self._fits: _Fits = _Fits() if shared is None else shared._fits

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the odds of every row of win probabilities (k, n) of the first candidate; see ``Statistic``."""
        (difference,) = references
        differences, once = np.broadcast_to(difference, scores.shape), np.ones((1, scores.shape[1]))
        fits = [_logistic(x, wins, once) for x, wins in zip(differences, scores, strict=True)]
        return np.asarray(np.exp(np.concatenate(fits)[:, self._term]))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``; the fits start at that of all items."""
        (difference,) = self.references
        return np.asarray(np.exp(self._fits.of(difference, scores, counts)[:, self._term]))


@dataclass(frozen=True)
class _Fits:
    """Logistic fits of resamples, kept for a second statistic that is resampled with the same seed."""

    found: dict[bytes, FloatArray] = field(default_factory=dict, compare=False)

    def of(self, x: FloatArray, target: FloatArray, counts: FloatArray) -> FloatArray:
        digest = hashlib.blake2b(digest_size=16)
        for array in (x, target, counts):
            digest.update(np.ascontiguousarray(array).data)
        key = digest.digest()
        if key not in self.found:
            (start,) = np.nan_to_num(_logistic(x, target, np.ones((1, len(x)))))
            blocks = [counts[some.start : some.stop] for some in chunks(len(counts), len(x), BLOCK)]
            fits = np.concatenate([_logistic(x, target, block, start=start) for block in blocks])
            lost = np.isnan(fits).any(axis=1)  # separated, or led astray by a start that is far from its fit
            if lost.any():
                fits[lost] = _logistic(x, target, counts[lost])
            self.found[key] = fits
        return self.found[key]


def _logistic(
    x: FloatArray, target: FloatArray, counts: FloatArray, *, start: FloatArray | tuple[float, float] = (0.0, 0.0)
) -> FloatArray:
    """Fit slope and intercept of targets in [0, 1] on x by maximum likelihood.

    Newton's method with bounded steps, all rows at once; a row that has converged is left out of further steps.

    Args:
        x: (n,) regressor.
        target: (n,) targets.
        counts: (k, n) how often each item counts in each of k fits.
        start: Slope and intercept to start from.

    Returns:
        (k, 2) slopes and intercepts; NaN where there is no finite solution.
    """
    x = settled(x)
    scale = float(x.std()) or 1.0
    z = x / scale
    powers = np.column_stack([z**2, z, np.ones_like(z)])  # (n, 3)
    shares = counts / counts.sum(axis=1, keepdims=True)  # of the items in a row
    moments = shares @ powers
    variance = moments[:, 0] - moments[:, 1] ** 2  # of a row, whose own unit decides what is infinite
    unit = np.stack([np.sqrt(np.maximum(variance, ROUNDING)), np.ones(len(counts))], axis=1)
    rest = np.flatnonzero(variance > ROUNDING)  # rows still to be fitted
    weights = np.full((len(counts), 2), np.nan)
    weights[rest] = start * np.array([scale, 1.0])
    solved, shares = np.zeros(len(counts), dtype=bool), shares[rest]
    for _ in range(100):
        wins = scipy.special.expit(weights[rest] @ powers[:, 1:].T)  # (rest, n)
        gradient = (shares * (wins - target)) @ powers[:, 1:]  # (rest, 2)
        done = np.abs(gradient).max(axis=1, initial=0.0) < 1e-10
        solved[rest[done]] = True
        if done.any():
            rest, shares, wins, gradient = rest[~done], shares[~done], wins[~done], gradient[~done]
        if not len(rest):
            break
        a, b, c = ((shares * wins * (1 - wins)) @ powers).T  # the Hessian, ((a, b), (b, c))
        step = np.stack([c * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]], axis=1)
        step *= unit[rest] / np.maximum(a * c - b**2, 1e-300)[:, None]
        weights[rest] -= np.clip(step, -2, 2) / unit[rest]
        finite = np.abs(weights[rest] * unit[rest]).max(axis=1) < INFINITE
        rest, shares = rest[finite], shares[finite]
    return np.where(solved[:, None], weights / np.array([scale, 1.0]), np.nan)
