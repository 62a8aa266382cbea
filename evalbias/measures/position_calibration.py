"""Calibration of comparisons: by content-free inputs, by batch, and by permutation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.arrays import FloatArray, defined, normalized, vectors

# Calibration of measured comparisons for position, averages over orders, and decisions.
#
# Log-probabilities have the shape (n, r, c + t): n comparisons of c candidates, each asked in r orders, with t = 1
# extra column if "tie" is an answer, else t = 0. Column j of an order belongs to the candidate at position j in that
# order. Orders are rotations of the candidates: over all c of them, every candidate stands at every position once.


Order = tuple[int, ...]


Correction = Callable[[FloatArray], FloatArray]
"""Takes log-probabilities (n, r, c + t) and returns them, up to a constant for each row, without what answers have by
their position regardless of the candidates; NaN stays NaN."""


@dataclass(frozen=True)
class Comparisons:
    """Probabilities from n comparisons of c candidates."""

    positions: FloatArray  # (n, r, c + t) calibrated, by position; NaN where undefined
    probabilities: FloatArray  # (n, c + t) by candidate, averaged over the orders; NaN where undefined
    coverage: FloatArray  # (n,) total probability of the answers, the lowest over the orders


def rotations(count: int, *, every: bool) -> list[Order]:
    """Return the rotations of ``count`` candidates, or the given order alone.

    Examples:
        >>> rotations(3, every=True)
        [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    """
    return [tuple((start + j) % count for j in range(count)) for start in range(count if every else 1)]


def calibrate_comparisons(
    logprobs: FloatArray, orders: Sequence[Order], *, correction: Correction | None, min_coverage: float
) -> Comparisons:
    """Correct log-probabilities (n, r, c + t), which are not renormalized, for position and average them over r orders.

    An order holds the candidate's index at each position. Comparisons are undefined where the total probability of the
    answers is below ``min_coverage`` in any order.
    """
    coverage = np.exp(logprobs).sum(axis=2).min(axis=1)  # (n,)
    positions = normalized(logprobs if correction is None else correction(logprobs))
    positions[~(coverage >= min_coverage)] = np.nan
    return Comparisons(positions, by_candidate(positions, orders).mean(axis=1), coverage)


def by_candidate(positions: FloatArray, orders: Sequence[Order]) -> FloatArray:
    """Reorder the columns of (n, r, c + t) probabilities from positions to candidates; a tie column stays last."""
    reordered: FloatArray = positions.copy()
    for row, order in enumerate(orders):
        reordered[:, row, list(order)] = positions[:, row, : len(order)]
    return reordered


def decisions(probabilities: FloatArray) -> list[int | None]:
    """Return the most probable column of each row; None if several columns share the maximum or the row is NaN.

    Examples:
        >>> decisions(np.array([[0.2, 0.8], [0.5, 0.5]]))
        [1, None]
    """
    columns: list[int | None] = []
    for row in probabilities:
        best = np.flatnonzero(row == row.max())  # empty if the row is NaN
        columns.append(best.item() if len(best) == 1 else None)
    return columns


def gaps(probabilities: FloatArray) -> FloatArray:
    """Return the lead of the most probable column over the next, in [0, 1], shape (n,); NaN where undefined."""
    ordered = np.sort(probabilities, axis=1)  # NaN sorts last
    return np.asarray(ordered[:, -1] - ordered[:, -2])


# CalibraEval: a monotone map of a pair's probabilities that makes both orders agree (Li et al., 2410.15393).
#
# The map F is fitted to unlabeled pairs in both orders. Let p be the first position's share of the probability in one
# order and p' in the other. If only the candidates counted, F(p) and F(p') would sum to 1. The objective is
#
#     mean over pairs of  (F(p) + F(p') - 1)^2 - spread (F(p) - F(p'))^2
#
# over nondecreasing F from [0, 1] to [0, 1]. The paper has a third term, for prompts whose labels are swapped while the
# candidates stay in place. Our prompts name the candidates by position, so that term is left out.
#
# The second term is needed because the constant 1/2 makes the first one 0. With the spread .05 of the published code,
# the minimum for a noisy judge is that constant: the code stops after one pass over the data, far from its minimum.
# Here F is at a minimum, so the spread is larger.


SPREAD = 0.5
"""Weight of the second term, the paper's lambda. If more than 1 / (1 + SPREAD) of the pairs, two thirds, are consistent
at some threshold, the minimum is below that of the constant 1/2."""
ITERATIONS = 10_000
TOLERANCE = 1e-9  # largest change of a value in the last step of a fit
DIGITS = 6  # digits to which values of F are kept, so that values that only rounding separates are equal

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]  # places of p and p' among the knots, for each pair


@dataclass(frozen=True)
class PositionMap:
    """Correction of pairs that maps the first position's share of the probability; a tie keeps its probability.

    The map is linear between its knots and constant outside them.
    """

    shares: tuple[float, ...]  # knots, ascending in [0, 1]
    values: tuple[float, ...]  # F at the knots, nondecreasing in [0, 1]

    def __post_init__(self) -> None:
        for name, numbers in (("shares", self.shares), ("values", self.values)):
            inside = all(0 <= x <= 1 for x in numbers)
            if not inside or not numbers or list(numbers) != sorted(numbers) or len(self.shares) != len(self.values):
                raise ValueError(f"{name}={numbers} of a position map must ascend in [0, 1], one value for each share.")

    def __call__(self, logprobs: FloatArray) -> FloatArray:
        """Map log-probabilities (n, r, 2 + t)."""
        mapped = np.interp(first_shares(logprobs), self.shares, self.values)  # (n, r)
        both = np.logaddexp(logprobs[..., 0], logprobs[..., 1])
        with np.errstate(divide="ignore"):  # a share of 0 has the log-probability -inf
            pair = np.stack([both + np.log(mapped), both + np.log1p(-mapped)], axis=-1)
        return np.concatenate([pair, logprobs[..., 2:]], axis=-1)


def first_shares(logprobs: FloatArray) -> FloatArray:
    """Return the first position's share of both positions' probability, (n, r) of (n, r, 2 + t); NaN if both are 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(1 / (1 + np.exp(logprobs[..., 1] - logprobs[..., 0])))


def fit_position_map(first: ArrayLike, swapped: ArrayLike) -> PositionMap | None:
    """Fit CalibraEval's monotone map to the first position's shares of the probability (n,) in both orders of pairs.

    The objective is not convex: the result is the better one of two local minima, reached from the identity and from
    the threshold at which most pairs are consistent. None if no pair is defined in both orders, or if no map is better
    than the constant 1/2 because the orders contradict each other in too many pairs.
    """
    a, b = vectors(first=first, swapped=swapped)
    kept = defined(a, b)
    a, b = a[kept], b[kept]
    if ((a < 0) | (a > 1) | (b < 0) | (b > 1)).any():
        raise ValueError("A share of the probability lies outside of [0, 1]: give the first position's by both.")
    if not len(a):
        return None
    knots, places = np.unique(np.concatenate([a, b]), return_inverse=True)
    pairs = places[: len(a)], places[len(a) :]
    minima = [_descend(start, pairs).round(DIGITS) for start in (knots, _best_threshold(len(knots), pairs))]
    values = min(minima, key=lambda one: _objective(one, pairs))
    if np.ptp(values) == 0:
        return None
    # knots inside a stretch of equal values do not change the map
    corner = (values != np.r_[np.nan, values[:-1]]) | (values != np.r_[values[1:], np.nan])
    return PositionMap(tuple(knots[corner].tolist()), tuple(values[corner].tolist()))


def _descend(values: FloatArray, pairs: Pairs) -> FloatArray:
    """Return the local minimum below a start."""
    one, other = pairs
    size, counts = len(values), np.bincount(np.concatenate(pairs), minlength=len(values))
    # each step minimizes, by isotonic regression, an upper bound of the objective that touches it at the current map
    for _ in range(ITERATIONS):
        u, v = values[one], values[other]
        total, gap = 2 * (u + v - 1), 2 * SPREAD * (u - v)
        slope = np.bincount(one, total - gap, size) + np.bincount(other, total + gap, size)
        # 4 is the largest curvature of a pair's term, so 4 * counts bounds that of the sum
        lower = scipy.optimize.isotonic_regression(values - slope / (4 * counts), weights=counts).x.clip(0, 1)
        step, values = np.abs(lower - values).max(), lower
        if step < TOLERANCE:
            break
    return np.asarray(values)


def _best_threshold(size: int, pairs: Pairs) -> FloatArray:
    """Return the map to 0 and 1 that has most pairs on both sides of its step."""
    low, high = np.minimum(*pairs), np.maximum(*pairs)
    between = np.bincount(low, minlength=size) - np.bincount(high, minlength=size)
    best = int(np.cumsum(between).argmax())  # pairs with one share up to here and the other above
    return np.asarray(np.arange(size) > best, dtype=np.float64)


def _objective(values: FloatArray, pairs: Pairs) -> float:
    u, v = values[pairs[0]], values[pairs[1]]
    return float(np.mean((u + v - 1) ** 2 - SPREAD * (u - v) ** 2))


# Offsets of positions in log space: a model's log-probability for the candidate at a position is taken as that
# candidate's own plus an offset of the position. Batch calibration takes the mean over a batch for the offset. PriDe
# (Zheng et al., ICLR 2024) asks a few items in every rotation: candidates then stand at all positions equally often,
# and what differs is the positions' own.


@dataclass(frozen=True)
class PositionOffsets:
    """Correction that subtracts the c + t log-probabilities that answers have regardless of the candidates."""

    offsets: tuple[float, ...]

    def __call__(self, logprobs: FloatArray) -> FloatArray:
        """Subtract the offsets from log-probabilities (n, r, c + t)."""
        return np.asarray(logprobs - np.array(self.offsets))


def batch_offsets(logprobs: FloatArray) -> FloatArray:
    """Return (c + t,) mean log-probabilities of each position over (n, r, c + t), the offsets of batch calibration.

    Rows with an answer of probability 0 are left out; NaN if no row is left.
    """
    with np.errstate(divide="ignore"):
        rows = np.log(normalized(logprobs)).reshape(-1, logprobs.shape[2])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return np.asarray(rows.mean(axis=0)) if len(rows) else np.full(logprobs.shape[2], np.nan)


def position_prior(logprobs: FloatArray, orders: Sequence[Order]) -> FloatArray:
    """Estimate the positions' own probabilities from items in every rotation (PriDe; Zheng et al., ICLR 2024).

    An item's prior is the geometric mean of each position's probability over the rotations, normalized over the
    positions. The estimate (c,) is the mean over the items without an undefined position or one of probability 0.

    Examples:
        >>> same_position_wins = np.log([[[0.9, 0.1], [0.9, 0.1]]])
        >>> position_prior(same_position_wins, [(0, 1), (1, 0)]).round(3).tolist()
        [0.9, 0.1]
    """
    count = len(orders[0])
    if any(sorted(column) != list(range(count)) for column in zip(*orders, strict=True)):
        raise ValueError(
            f"The orders {list(orders)} do not put every candidate at every position once: give all {count} rotations."
        )
    means = logprobs[:, :, :count].mean(axis=1)  # (n, c)
    means = means[np.isfinite(means).all(axis=1)]
    return np.asarray(normalized(means).mean(axis=0)) if len(means) else np.full(count, np.nan)


def prior_offsets(prior: FloatArray, *, ties: bool) -> FloatArray:
    """Return (c + t,) offsets that divide answers by a prior over positions (c,), all above 0.

    They are centered on 0, and a tie has the offset 0. So the odds of a tie against the geometric mean of the positions
    stay as they are.
    """
    logs = np.log(prior)
    offsets = logs - logs.mean()
    return np.append(offsets, 0.0) if ties else np.asarray(offsets)
