"""Decisions of a judge that compares candidates: ties, positions, consistency and length.

Probabilities are (n, c): row i holds the judge's probabilities of c classes (positions, or positions and "tie") for
comparison i. A row with a NaN is undefined and left out. No labels are needed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays, resample
from evalbias.measures.arrays import Before, Clusters, FloatArray, checked, defined, numbers, ratio, vectors
from evalbias.measures.resample import DRAWS, SHARE, Draws, Interval, change, difference_of_shares, estimate_share, mean

# Winners of comparisons.

SUM_SLACK = 1e-4  # largest deviation of a row's sum from 1


def win_shares(answers: ArrayLike, *, ties: bool = False, decided: bool = False) -> FloatArray:
    """Return each candidate's share of the win in every comparison, (..., c): all candidates share a tie equally.

    The answers (..., c + t) are probabilities, or other numbers, NaN where undefined; with ``ties`` the last column is
    the answer "tie". With ``decided``, the largest number takes the whole win; equal largest numbers share it.

    Examples:
        >>> win_shares([0.5, 0.25, 0.25], ties=True).tolist()
        [0.625, 0.375]
        >>> win_shares([[0.9, 0.1], [0.5, 0.5]], decided=True).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    wins = numbers(answers, "answers")
    if decided:
        undefined = np.isnan(wins).any(axis=-1, keepdims=True)
        most = wins >= wins.max(axis=-1, keepdims=True) - arrays.SLACK
        wins = np.where(undefined, np.nan, most / np.maximum(most.sum(axis=-1, keepdims=True), 1))
    return wins[..., :-1] + wins[..., -1:] / (wins.shape[-1] - 1) if ties else wins


def decision_shares(probabilities: ArrayLike) -> FloatArray:
    """Return (n, c) each row's decision: 1 for the most probable class, shared equally by ties; NaN where undefined."""
    return win_shares(_distributions(probabilities, "probabilities"), decided=True)


def decision_rates(probabilities: ArrayLike) -> FloatArray:
    """Return (c,) means of ``decision_shares``, which sum to 1: ``p_{I,j}`` of the paper; NaN if no row is defined.

    Examples:
        >>> decision_rates([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]).tolist()
        [0.625, 0.375]
    """
    shares = decision_shares(probabilities)
    kept = defined(shares)
    return np.asarray(shares[kept].mean(axis=0)) if kept.any() else np.full(shares.shape[1], np.nan)


def longer_wins(first: ArrayLike, first_lengths: ArrayLike, second_lengths: ArrayLike) -> FloatArray:
    """Return (n,) 1 where the longer candidate wins, 0 where it loses, .5 for a tie; its mean measures verbosity bias.

    ``first`` (n,) are the win probabilities of the first candidate, and the lengths (n,) of both in any unit. NaN where
    a number is undefined and where both are equally long.

    Examples:
        >>> longer_wins([0.9, 0.2, 0.5], [9, 9, 9], [1, 1, 1]).tolist()
        [1.0, 0.0, 0.5]
    """
    p, a, b = vectors(first=first, first_lengths=first_lengths, second_lengths=second_lengths)
    longer = np.where(a > b, p, 1 - p)
    wins = win_shares(np.stack([longer, 1 - longer], axis=-1), decided=True)[:, 0]
    return np.asarray(np.where(defined(p, a, b) & (a != b), wins, np.nan))


def consistent_preferences(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> FloatArray:
    """Return (n,) 1 where both orders of a comparison prefer the same candidate, else 0; NaN where undefined.

    The probabilities (n, c) are by position; the reverse order holds at j what stood at c - 1 - j. With ``ties``, the
    last column is the answer "tie", which has no position. An undecided comparison is consistent if the same candidates
    share the other one.
    """
    arrays.common_index(forward, swapped)
    a, b = _distributions(forward, "forward"), _distributions(swapped, "swapped")
    if a.shape != b.shape:
        raise ValueError(f"forward has the shape {a.shape}, swapped {b.shape}: give the same comparisons twice.")
    places = a.shape[1] - int(ties)
    order = [*reversed(range(places)), *range(places, a.shape[1])]
    winners = (win_shares(rows, decided=True) > 0 for rows in (a, b[:, order]))
    return np.where(defined(a, b), np.equal(*winners).all(axis=1), np.nan)


def _matrix(values: ArrayLike, name: str) -> FloatArray:
    rows = numbers(values, name)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"{name} has the shape {rows.shape}: give one row a comparison and one column a class.")
    return rows


def _distributions(values: ArrayLike, name: str) -> FloatArray:
    """Check that each row without a NaN sums up to 1."""
    rows = _matrix(values, name)
    defined_rows = rows[defined(rows)]
    wrong = np.flatnonzero((defined_rows < 0).any(axis=1) | (np.abs(defined_rows.sum(axis=1) - 1) > SUM_SLACK))
    if wrong.size:
        row = defined_rows[wrong[0]].tolist()
        raise ValueError(f"The probabilities {row} are not a distribution: normalize over the classes first.")
    return rows


# Confidence of the answers, and deviation of positions from even (Zhou et al., EMNLP 2024).


def negative_entropies(probabilities: ArrayLike) -> FloatArray:
    """Return (n,) ``sum_j p_j log p_j`` of each row, in [-log c, 0]; 0 is certain, NaN undefined."""
    rows = _distributions(probabilities, "probabilities")
    logs = np.log(np.where(rows > 0, rows, 1.0))
    return np.asarray(np.where(np.isnan(rows), np.nan, rows * logs).sum(axis=1))


# Estimates of rates of positions.

STEP = 1e-9  # distance from the mean, for pairs in both orders, that no test rejects
ONE_SIDED = (
    "people prefer the output on the same side of every pair, but for those of one input at most, so that quality and "
    "position cannot be told apart: record the choices in both orders"
)


def estimate_first_rate(
    wins: ArrayLike,
    *,
    both_orders: bool = False,
    before: Before = None,
    clusters: Clusters = None,
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate the win rate of the first position: a share, or Tango's where each pair is its own control.

    The wins (n,) in [0, 1] are the share of its orders in which the first position won a pair. Judged in
    ``both_orders``, only pairs that are not .5 show the effect of position, and 2 (mean - .5) is the difference of the
    rates of two paired decisions. Tango's interval (1998) holds the differences that a test with the most likely share
    of such pairs does not reject; its n and quantile are those of ``estimate_share``.

    Examples:
        >>> rate = estimate_first_rate([0.5] * 80, both_orders=True)
        >>> round(rate.low, 3), round(rate.high, 3)
        (0.476, 0.524)
    """
    if before is not None:
        own = partial(estimate_first_rate, both_orders=both_orders)
        return difference_of_shares(own, before, wins, clusters=clusters, draws=draws)
    rate = estimate_share(wins, clusters=clusters, draws=draws)
    if not both_orders or math.isnan(rate.low):
        return rate
    (x,), codes = arrays.complete(*checked({"wins": wins}), clusters=clusters)
    x, center = 2 * x - 1, 2 * rate.value - 1
    decided, variance = float(np.abs(x).mean()), 4 * resample.variance_of_mean((1 + x) / 2, codes)
    size = rate.units if variance < arrays.TINY else (decided - center**2) / variance
    t = float(scipy.special.stdtrit(resample.worth(codes) - 1, (1 + draws.confidence) / 2))

    def excess(difference: float) -> float:
        """Return a number above 0 if the test rejects a difference between the two rates."""
        b = (2 - center) * difference - decided
        c = -(decided - center) / 2 * difference * (1 - difference)
        lost = (np.sqrt(max(b**2 - 8 * c, 0.0)) - b) / 4  # most likely share of -1: the larger root of 2 x^2 + b x + c
        return float((center - difference) ** 2 - t**2 * (2 * lost + difference * (1 - difference)) / size)

    low, high = (
        end if excess(end) <= 0 else float(scipy.optimize.brentq(excess, end, start))
        for end, start in ((-1.0, center - STEP), (1.0, center + STEP))  # at the mean itself, all .5 have no variance
    )
    return replace(rate, low=(1 + low) / 2, high=(1 + high) / 2)


def counted_fairness(counts: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute fairness in resamples (k, n) of win shares (n, c), ``-(1/c) sum_j |1/c - p_{I,j}|`` of the paper.

    0 is fair, and the lowest value ``-2 (c - 1) / c^2``; of pairs, ``-|p_{I,A} - .5|``, as in the authors' code.
    """
    return np.asarray(-np.abs(mean(counts, shares) - 1 / shares.shape[1]).mean(axis=1))


def estimate_fairness(
    shares: ArrayLike,
    *,
    both_orders: bool = False,
    before: Before = None,
    clusters: Clusters = None,
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate the fairness of win shares (n, 2), -|p - .5| for the win rate p of the first position.

    Resamples of a fair judge are unfair, so the quantiles of their fairness miss 0. Interval and test are those of p
    (``estimate_first_rate``), so the interval holds 0 wherever a fair judge could have such shares.

    Two judges are equally fair if their rates are equal, or lie on opposite sides of even. A test that is right in
    either case rejects seldom: two fair judges differ at 5 % in .5 % of samples (``benchmarks/statistical_truth``).
    Test ``estimate_first_rate`` to learn whether both favor it alike.
    """
    (values,) = checked({"shares": shares}, clusters)
    if values.shape[1:] != (2,):
        raise ValueError(f"shares has the shape {values.shape}: give what each of two positions wins.")
    if before is not None:
        exchanged = resample.swapped_means(lambda rates: -np.abs(rates - 0.5).mean(axis=1))
        return change(counted_fairness, before, values, clusters=clusters, exchanged=exchanged, draws=draws)
    own = partial(estimate_first_rate, values[:, 0], both_orders=both_orders, clusters=clusters)
    rate, of_95 = own(draws=draws), own(draws=replace(draws, confidence=0.95))
    ends = rate.low - 0.5, rate.high - 0.5
    nearest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
    p = resample.p_of_interval(of_95.value, of_95.low, of_95.high, null=0.5, units=of_95.units)
    return replace(rate, value=-abs(rate.value - 0.5), low=-max(map(abs, ends)), high=-nearest, p_value=p, unit="")


def counted_balance(counts: FloatArray, x: FloatArray, classes: FloatArray) -> FloatArray:
    """Average (n,) numbers of two classes (n,), 0 and 1, each counting half, in resamples; NaN where one is empty."""
    means = [ratio((counts * of_class) @ x, counts @ of_class) for of_class in (1 - classes, classes)]
    return np.asarray((means[0] + means[1]) / 2)


def estimate_balanced_rate(
    x: ArrayLike, classes: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate a win rate of numbers (n,) in [0, 1] over two classes (n,) of pairs, each counting half.

    A pair's class is 0, 1 or, if neither, NaN. If a few items all agree, a bootstrap interval has no width, so the
    distances from each class's mean to the ends of its share's interval are added as standard errors are (MOVER, Zou
    and Donner 2008). Units are those of the class that has fewer; the ends are NaN where it has less than two.
    """
    values, members = checked({"x": x, "classes": classes}, clusters)
    if before is not None:
        own, columns = estimate_balanced_rate, (before, values, members)
        return difference_of_shares(own, *columns, statistic=counted_balance, clusters=clusters, draws=draws)
    kept = defined(values, members)
    masks = [kept & (members == number) for number in (0, 1)]
    of_classes = (np.where(of_class, values, np.nan) for of_class in masks)
    first, second = (estimate_share(wins, clusters=clusters, draws=draws) for wins in of_classes)
    n, rate = first.n + second.n, (first.value + second.value) / 2
    bare = Interval(rate, n=n, undefined=len(values) - n, units=min(first.units, second.units), unit=SHARE)
    if np.isnan(first.low + second.low):
        return replace(bare, reason=ONE_SIDED)
    # 1 the correlation r of both means over the clusters
    codes = arrays.cluster_codes(clusters, kept)
    deviations = [np.where(mask, values - e.value, 0.0) for mask, e in zip(masks, (first, second), strict=True)]
    sums = [np.bincount(codes, weights=part[kept]) for part in deviations]
    spread = np.sqrt((sums[0] ** 2).sum() * (sums[1] ** 2).sum())
    r = float((sums[0] * sums[1]).sum() / spread) if spread > 0 else 0.0
    if bare.units < resample.FEWEST_UNITS:  # that of two inputs is -1 or 1 by construction, and -1 would leave no width
        r = max(r, 0.0)
    # 2 the distances to the ends: sqrt(a^2 + b^2 + 2 r a b) / 2
    a, b = (np.array([share.value - share.low, share.high - share.value]) for share in (first, second))
    below, above = (np.sqrt(np.maximum(a**2 + b**2 + 2 * r * a * b, 0.0)) / 2).tolist()
    return replace(bare, low=max(rate - below, 0.0), high=min(rate + above, 1.0))


def over_orders(
    statistic: resample.Statistic, counts: FloatArray, wins: FloatArray, difference: FloatArray
) -> FloatArray:
    """Compute a statistic of the first position's win probabilities (n, r) in r orders, and of first minus second (n,).

    Each order counts as n comparisons; the other order turns the sign of the difference.
    """
    signed = np.concatenate([difference, -difference][: wins.shape[1]])
    return statistic(np.tile(counts, wins.shape[1]), wins.T.ravel(), signed)
