"""Biases of judges that compare: decision rates, fairness, both orders and balanced rates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import (
    TINY,
    BoolArray,
    FloatArray,
    IntArray,
    common_index,
    defined,
    groups_of,
    numbers,
    ratio,
    settled,
    vectors,
)
from evalbias.measures.resample import (
    FEWEST_UNITS,
    BoundedStatistic,
    ConfidenceInterval,
    ShareStatistic,
    Statistic,
    Swapping,
    aligned,
    chunks,
    cluster_codes,
    defined_items,
    drawn,
    p_of_interval,
    quantiles,
    share_interval,
    stretched,
    variance_of_mean,
)

# Win rate of the first position over pairs of two classes, each class counting half, with its interval.


ONE_SIDED = (
    "people prefer the output on the same side of every pair, but for those of one input at most, so that quality and "
    "position cannot be told apart: record the choices in both orders"
)


class BalancedRate(BoundedStatistic):
    """Mean of the scores (win rates) of two classes of items, each class counting half.

    Args:
        classes: (n,) 0 or 1; NaN where an item belongs to neither.

    A row is NaN where a class has no item.
    """

    def __init__(self, classes: FloatArray) -> None:
        self.references = (classes,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the balanced mean of every row; see ``Statistic``."""
        (classes,) = references
        second = np.broadcast_to(classes, scores.shape)
        with np.errstate(invalid="ignore"):
            means = [(scores * weight).sum(axis=1) / weight.sum(axis=1) for weight in (1 - second, second)]
        return np.asarray((means[0] + means[1]) / 2)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the interval from both classes' share intervals, or say that a class is too small; see ``Statistic``.

        A few items that all agree leave a bootstrap without width, and where people prefer the first output of nearly
        every pair, the other class has few items. So the distances from each class's mean to the ends of its
        ``share_interval`` are added as standard errors are, with the correlation r of the two means over the clusters
        (MOVER, Zou and Donner 2008): half = sqrt(a^2 + b^2 + 2 r a b) / 2. Nothing is resampled.

        Returns:
            The interval, within [0, 1]; its units are those of the class that has fewer.
        """
        (column, classes) = aligned(scores, *self.references, beside=[clusters])
        kept = defined_items(column, classes)
        members = [kept & (classes == number) for number in (0, 1)]
        first, second = (
            share_interval(np.where(of_class, column, np.nan), clusters=clusters, confidence=confidence)
            for of_class in members
        )
        estimate, units = (first.estimate + second.estimate) / 2, min(first.units, second.units)
        if np.isnan(first.low + second.low):
            return ConfidenceInterval(np.nan, np.nan, estimate, 0, 0, units, reason=ONE_SIDED)
        codes = cluster_codes(clusters, kept)
        sums = [
            np.bincount(codes, weights=np.where(of_class, column - one.estimate, 0.0)[kept])
            for of_class, one in zip(members, (first, second), strict=True)
        ]
        spread = np.sqrt((sums[0] ** 2).sum() * (sums[1] ** 2).sum())
        correlation = float((sums[0] * sums[1]).sum() / spread) if spread > 0 else 0.0
        if units < FEWEST_UNITS:  # that of two inputs is -1 or 1 by construction, and -1 would leave no width
            correlation = max(correlation, 0.0)

        def half(a: float, b: float) -> float:
            return float(np.sqrt(max(a**2 + b**2 + 2 * correlation * a * b, 0.0))) / 2

        low = estimate - half(first.estimate - first.low, second.estimate - second.low)
        high = estimate + half(first.high - first.estimate, second.high - second.estimate)
        return ConfidenceInterval(max(low, 0.0), min(high, 1.0), estimate, 0, 0, units)


# Interval of the win rate of the first position, of pairs that were judged in both orders.


STEP = 1e-9
"""Distance from the mean that no test rejects."""


class BothOrdersStatistic(ShareStatistic):
    """Mean over pairs of how often the first position won in both orders (0, .5 or 1; a tie counts half)."""

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic`` and ``both_orders_interval``; nothing is resampled."""
        return both_orders_interval(scores, clusters=clusters, confidence=confidence)


def both_orders_interval(
    values: ArrayLike, *, clusters: Sequence[object] | None = None, confidence: float = 0.95
) -> ConfidenceInterval:
    """Compute the score interval of a mean over pairs that are each their own control (Tango 1998).

    A pair judged in both orders has 1 if the first position won twice, 0 if the second did, and .5 if one candidate won
    both times. Only pairs that are not .5 tell of the position, and 2 (mean - .5) is the difference of the rates of two
    paired decisions. Tango's interval holds the differences that a test with the most likely share of such pairs does
    not reject, and so has a width where all pairs are .5. As in ``share_interval``, n is the number of independent
    pairs that vary as much as the mean does over the clusters, and the quantile Student's t for u units.

    Args:
        values: (n,) numbers in [0, 1], of which .5 speaks for no position; NaN is left out.
        clusters: (n,) cluster (document) of each pair. By default every pair is its own.
        confidence: In (0, 1).

    Returns:
        The interval, within [0, 1]; its ends are NaN for fewer than two units.

    Raises:
        ValueError: A value outside [0, 1], or ``confidence`` out of range.

    Examples:
        >>> found = both_orders_interval([0.5] * 80)
        >>> round(found.low, 3), round(found.high, 3)
        (0.476, 0.524)
    """
    (column,) = aligned(values, beside=[clusters])
    kept = defined_items(column)
    x, codes = 2 * column[kept] - 1, cluster_codes(clusters, kept)
    if not 0 < confidence < 1 or (np.abs(x) > 1).any():
        outside = column[kept][np.abs(x) > 1].tolist()
        raise ValueError(f"confidence={confidence} and the values must lie between 0 and 1; {outside[:3]} do not.")
    units = len(set(codes.tolist()))
    mean = float(x.mean()) if units else np.nan
    if units < 2:
        return ConfidenceInterval(np.nan, np.nan, (1 + mean) / 2, 0, 0, units)
    share = float(np.abs(x).mean())  # of pairs in which a position won
    variance = variance_of_mean(x, codes)
    size = units if variance < TINY else (share - mean**2) / variance
    t = float(scipy.stats.t.ppf((1 + confidence) / 2, units - 1))

    def excess(difference: float) -> float:
        """Return a number above 0 where the test rejects a difference."""
        return (mean - difference) ** 2 - t**2 * _variance(mean, share, difference) / size

    inner = (mean - STEP, mean + STEP)  # at the mean itself, pairs that are all .5 have no variance
    low, high = (
        end if excess(end) <= 0 else float(scipy.optimize.brentq(excess, end, start))
        for end, start in zip((-1.0, 1.0), inner, strict=True)
    )
    return ConfidenceInterval((1 + low) / 2, (1 + high) / 2, (1 + mean) / 2, 0, 0, units)


def _variance(mean: float, share: float, difference: float) -> float:
    """Return the variance of a pair's -1, 0 or 1 under the most likely shares of -1 and 1 with a given mean.

    Args:
        mean: Mean that was observed.
        share: Share of -1 and 1 that was observed.
        difference: Mean under the hypothesis.
    """
    b = (2 - mean) * difference - share
    c = -(share - mean) / 2 * difference * (1 - difference)
    lost = (np.sqrt(max(b**2 - 8 * c, 0.0)) - b) / 4  # the larger root of 2 x^2 + b x + c
    return float(2 * lost + difference * (1 - difference))


# Quadratic fit of agreement against decision rate, whose top lies near one half (Zhou et al. 2024, figure 2).


@dataclass(frozen=True)
class QuadraticFit:
    """Least-squares parabola ``y = curvature x^2 + slope x + constant``.

    Attributes:
        curvature: Quadratic coefficient; negative where the curve has a maximum.
        slope: Linear coefficient.
        constant: Value at x = 0.
        top: x at which the curve is highest; NaN unless the curvature is negative.
        r_squared: Share of the variance of y that the parabola explains, in [0, 1].
        linear_r_squared: Share that a straight line explains, in [0, 1].
        n: Number of points used.
        undefined: Number of points left out because x or y is NaN.
    """

    curvature: float
    slope: float
    constant: float
    top: float
    r_squared: float
    linear_r_squared: float
    n: int
    undefined: int

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """Evaluate the parabola at x."""
        return np.polyval([self.curvature, self.slope, self.constant], numbers(x, "x"))


def quadratic_fit(x: ArrayLike, y: ArrayLike) -> QuadraticFit:
    """Fit a parabola, and a straight line to compare it with, by least squares.

    Args:
        x: (n,) any quantity, such as the decision rate of each instruction in [0, 1]; points with a NaN are left out.
        y: (n,) any quantity, such as the agreement with people in [-1, 1].

    Returns:
        The fit; its numbers are NaN for fewer than four points, fewer than three distinct x, or a constant y.

    Raises:
        ValueError: The lengths differ, or a number is infinite.

    Examples:
        >>> fit = quadratic_fit([0.0, 0.25, 0.5, 0.75, 1.0], [0.1, 0.4, 0.5, 0.4, 0.1])
        >>> round(fit.top, 6), round(fit.r_squared, 6)
        (0.5, 1.0)
    """
    a, b = vectors(x=x, y=y)
    kept = defined(a, b)
    a, b = settled(a[kept]), settled(b[kept])
    n, undefined = len(a), int((~kept).sum())
    if n < 4 or len(np.unique(a)) < 3 or b.min() == b.max():
        nan = float("nan")
        return QuadraticFit(nan, nan, nan, nan, nan, nan, n, undefined)
    curvature, slope, constant = (float(w) for w in np.polyfit(a, b, 2))
    total = ((b - b.mean()) ** 2).sum()
    r_squared, linear_r_squared = (
        float(1 - ((b - np.polyval(w, a)) ** 2).sum() / total)
        for w in ([curvature, slope, constant], np.polyfit(a, b, 1))
    )
    top = -slope / (2 * curvature) if curvature < 0 else float("nan")
    return QuadraticFit(curvature, slope, constant, top, r_squared, linear_r_squared, n, undefined)


# Statistics of comparisons: fairness of decision shares, and odds in a logistic model of wins.


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


# Difference of the means of two groups of items.


ONE_GROUP = "a group has no items, or those of one input alone"


class GapStatistic(Statistic):
    """Mean of numbers in [0, 1] of one group of items minus that of the others; NaN where a group is empty.

    Args:
        members: (n,) 1 for the items of the first group, 0 for the others; NaN leaves an item out.
    """

    limits = (-1.0, 1.0)

    def __init__(self, members: FloatArray) -> None:
        self.references = (members,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (group,) = references
        members = np.broadcast_to(group, scores.shape)
        return _mean(scores, members) - _mean(scores, 1 - members)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (members,) = self.references
        return _mean(scores, counts * members) - _mean(scores, counts * (1 - members))

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic``; it follows from that of (1 + gap) / 2, the ``BalancedRate`` of x and, of others, 1 - x."""
        values, members = aligned(scores, *self.references, beside=[clusters])
        rate = BalancedRate(members)
        found = rate.interval(
            np.where(members == 1, values, 1 - values), clusters=clusters, confidence=confidence, seed=seed
        )
        return replace(stretched(found), reason=ONE_GROUP if found.reason else "")


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return (k,) weighted means of values (k, n) or (n,); NaN without weight."""
    return ratio((weights * values).sum(axis=1), weights.sum(axis=1))


# Preferences of a judge that compares candidates: fairness and its rivals (Zhou et al., EMNLP 2024), and leanings.
#
# Probabilities are (n, c): row i holds the judge's probability of each of c classes (positions, or positions and "tie")
# for comparison i. A row with a NaN is undefined and left out; ``count_undefined`` counts them. Nothing needs a label.


SUM_SLACK = 1e-4
"""Largest deviation of a row's sum from 1."""


def decision_shares(probabilities: ArrayLike) -> FloatArray:
    """Return (n, c) each row's decision: 1 for the most probable class, shared equally by ties; NaN where undefined.

    Examples:
        >>> decision_shares([[0.9, 0.1], [0.5, 0.5]]).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    rows = _matrix(probabilities, "probabilities")
    kept = ~np.isnan(rows).any(axis=1)
    winners = _check_sums(rows[kept])
    winners = winners == winners.max(axis=1, keepdims=True)
    shares = np.full(rows.shape, np.nan)
    shares[kept] = winners / winners.sum(axis=1, keepdims=True)
    return shares


def decision_rates(probabilities: ArrayLike, *, groups: Sequence[object] | None = None) -> FloatArray:
    """Return (c,) how often each class is the most probable: ``p_{I,j}`` of the paper.

    Classes that share the largest probability share the decision, so the rates sum to 1. NaN if no row is defined.

    Args:
        probabilities: (n, c).
        groups: (n,) the group (document) of each row, to average the rates over the groups. Defaults to no groups.

    Examples:
        >>> decision_rates([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]).tolist()
        [0.625, 0.375]
    """
    common_index(probabilities, groups)
    shares = decision_shares(probabilities)
    kept = np.asarray(~np.isnan(shares).any(axis=1))
    names = None if groups is None else groups_of(groups, kept, "groups")
    if not kept.any():
        return np.full(shares.shape[1], np.nan)
    if names is None:
        return np.asarray(shares[kept].mean(axis=0))
    members: dict[object, list[int]] = {}
    for index, name in zip(np.flatnonzero(kept), names, strict=True):
        members.setdefault(name, []).append(int(index))
    return np.asarray(np.stack([shares[rows].mean(axis=0) for rows in members.values()]).mean(axis=0))


def fairness(
    probabilities: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: Sequence[object] | None = None,
    ties: bool = False,
) -> float:
    """Compute minus the distance of the decision rates from the prior: ``-sum_j |p_S - p_{I,j}|``.

    Args:
        probabilities: (n, c).
        prior: (c,) rate at which each class should win. Defaults to the uniform distribution.
        groups: See ``decision_rates``.
        ties: Whether the last class is the answer "tie". It has no position, so without a prior the positions share
            equally what it leaves. A prior is over all classes, the tie included.

    Returns:
        In [-2, 0]: 0 is fair. NaN if no row is defined.

    Raises:
        ValueError: A prior of another length, or one that does not sum to 1.
    """
    rates = decision_rates(probabilities, groups=groups)
    if prior is not None:
        given = numbers(prior, "prior")
        if given.shape != rates.shape or abs(given.sum() - 1) > SUM_SLACK or (given < 0).any():
            raise ValueError(f"prior={given.tolist()} is not a distribution over {len(rates)} classes.")
    return float(FairnessStatistic(prior, ties=ties)(rates[None]))


def negative_entropies(probabilities: ArrayLike) -> FloatArray:
    """Return (n,) ``sum_j p_j log p_j`` of each row, in [-log c, 0]; 0 is certain, NaN undefined."""
    rows = _matrix(probabilities, "probabilities")
    _check_sums(rows[~np.isnan(rows).any(axis=1)])
    logs = np.log(np.where(rows > 0, rows, 1.0))
    return np.asarray(np.where(np.isnan(rows), np.nan, rows * logs).sum(axis=1))


def confidence(probabilities: ArrayLike) -> float:
    """Compute the mean of ``sum_j p_j log p_j`` over the rows, in [-log c, 0]; NaN if no row is defined.

    On the probabilities that answer a content-free input, it is the paper's context-free confidence, which is best low.
    """
    values = negative_entropies(probabilities)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def calibration_gap(logprobs: ArrayLike) -> float:
    """Compute the largest gap between the classes' mean log-probabilities; of two, ``|mean(log p_A - log p_B)|``.

    Args:
        logprobs: (n, c), finite where defined.

    Returns:
        Nats, >= 0; NaN if no row is defined.

    Raises:
        ValueError: An infinite log-probability.
    """
    rows = _matrix(logprobs, "logprobs")
    if np.isinf(rows).any():
        where = int(np.flatnonzero(np.isinf(rows).any(axis=1))[0])
        raise ValueError(f"logprobs[{where}] is infinite: the gap has no value; leave the row out as NaN.")
    rows = rows[~np.isnan(rows).any(axis=1)]
    if not len(rows):
        return float("nan")
    return float(np.ptp(rows.mean(axis=0)))


def consistent_preferences(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> FloatArray:
    """Return (n,) 1 where both orders of a comparison prefer the same candidate, else 0; NaN where undefined.

    Args:
        forward: (n, c) probabilities by position.
        swapped: (n, c) by position in the reverse order: position j holds what stood at c - 1 - j.
        ties: Whether the last column is the answer "tie", which has no position.

    An undecided comparison is consistent if the same candidates share the other one.
    """
    common_index(forward, swapped)
    a, b = _matrix(forward, "forward"), _matrix(swapped, "swapped")
    if a.shape != b.shape:
        raise ValueError(f"forward has the shape {a.shape}, swapped {b.shape}: give the same comparisons twice.")
    kept = ~np.isnan(a + b).any(axis=1)
    places = a.shape[1] - int(ties)
    order = [*reversed(range(places)), *range(places, a.shape[1])]
    values = np.full(len(a), np.nan)
    a, b = _check_sums(a[kept]), _check_sums(b[kept])[:, order]
    same = (a == a.max(axis=1, keepdims=True)) == (b == b.max(axis=1, keepdims=True))
    values[kept] = same.all(axis=1)
    return values


def position_consistency(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> float:
    """Compute the share of comparisons that prefer the same candidate in the reverse order, in [0, 1].

    Arguments as ``consistent_preferences``. NaN if no comparison is defined in both orders.
    """
    values = consistent_preferences(forward, swapped, ties=ties)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def longer_wins(first: ArrayLike, first_lengths: ArrayLike, second_lengths: ArrayLike) -> FloatArray:
    """Return (n,) 1 where the longer candidate wins, 0 where it loses, .5 for a tie; its mean measures verbosity bias.

    Args:
        first: (n,) win probability of the first candidate.
        first_lengths: (n,) length of the first candidate, in any unit.
        second_lengths: (n,) length of the second candidate.

    Returns:
        NaN where a number is undefined and where both are equally long.

    Examples:
        >>> longer_wins([0.9, 0.2, 0.5], [9, 9, 9], [1, 1, 1]).tolist()
        [1.0, 0.0, 0.5]
    """
    p, a, b = vectors(first=first, first_lengths=first_lengths, second_lengths=second_lengths)
    longer = np.where(a > b, p, 1 - p)
    wins = np.where(longer == 0.5, 0.5, longer > 0.5)
    return np.asarray(np.where(defined(p, a, b) & (a != b), wins, np.nan))


def count_undefined(probabilities: ArrayLike) -> int:
    """Count the rows that hold a NaN."""
    return int(np.isnan(_matrix(probabilities, "probabilities")).any(axis=1).sum())


def _matrix(values: ArrayLike, name: str) -> FloatArray:
    rows = numbers(values, name)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"{name} has the shape {rows.shape}: give one row a comparison and one column a class.")
    return rows


def _check_sums(rows: FloatArray) -> FloatArray:
    wrong = np.flatnonzero((rows < 0).any(axis=1) | (np.abs(rows.sum(axis=1) - 1) > SUM_SLACK))
    if wrong.size:
        row = rows[wrong[0]].tolist()
        raise ValueError(f"The probabilities {row} are not a distribution: normalize over the classes first.")
    return rows
