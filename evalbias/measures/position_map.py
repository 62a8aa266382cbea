"""CalibraEval: a monotone map of a pair's probabilities that makes both orders agree (Li et al., 2410.15393).

The map F is fitted to unlabeled pairs in both orders. Let p be the first position's share of the probability in one
order and p' in the other. If only the candidates counted, F(p) and F(p') would sum to 1. The objective is

    mean over pairs of  (F(p) + F(p') - 1)^2 - spread (F(p) - F(p'))^2

over nondecreasing F from [0, 1] to [0, 1]. The paper has a third term, for prompts whose labels are swapped while the
candidates stay in place. Our prompts name the candidates by position, so that term is left out.

The second term is needed because the constant 1/2 makes the first one 0. With the spread .05 of the published code, the
minimum for a noisy judge is that constant: the code stops after one pass over the data, far from its minimum. Here F is
at a minimum, so the spread is larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined, vectors

SPREAD = 0.5
"""Weight of the second term. If more than 1 / (1 + SPREAD) of the pairs, two thirds, are consistent at some threshold,
the minimum is below that of the constant 1/2."""
ITERATIONS = 10_000
TOLERANCE = 1e-9
"""Largest change of a value in the last step of a fit."""
DIGITS = 6
"""Digits to which values of F are kept, so that values that only rounding separates are equal."""

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Places of p and p' among the knots, for each pair."""


@dataclass(frozen=True)
class PositionMap:
    """Correction of pairs that maps the first position's share of the probability; a tie keeps its probability.

    The map is linear between its knots and constant outside them.

    Attributes:
        shares: Knots, ascending in [0, 1].
        values: F at the knots, nondecreasing in [0, 1].

    Raises:
        ValueError: The knots or the values are not of this kind.
    """

    shares: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, numbers in (("shares", self.shares), ("values", self.values)):
            inside = all(0 <= x <= 1 for x in numbers)
            if not inside or not numbers or list(numbers) != sorted(numbers) or len(self.shares) != len(self.values):
                raise ValueError(f"{name}={numbers} of a position map must ascend in [0, 1], one value for each share.")

    def __call__(self, logprobs: FloatArray) -> FloatArray:
        """Map log-probabilities of shape (n, r, 2 + t); see ``Correction``."""
        mapped = np.interp(first_shares(logprobs), self.shares, self.values)  # (n, r)
        both = np.logaddexp(logprobs[..., 0], logprobs[..., 1])
        with np.errstate(divide="ignore"):  # a share of 0 has the log-probability -inf
            pair = np.stack([both + np.log(mapped), both + np.log1p(-mapped)], axis=-1)
        return np.concatenate([pair, logprobs[..., 2:]], axis=-1)


def first_shares(logprobs: FloatArray) -> FloatArray:
    """Return the first position's share of both positions' probability, (n, r) of (n, r, 2 + t); NaN if both are 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(1 / (1 + np.exp(logprobs[..., 1] - logprobs[..., 0])))


def fit_position_map(first: ArrayLike, swapped: ArrayLike, *, spread: float = SPREAD) -> PositionMap | None:
    """Fit the monotone map of CalibraEval to pairs in both orders.

    The objective is not convex: the result is the better one of two local minima, reached from the identity and from
    the threshold at which most pairs are consistent.

    Args:
        first: (n,) the first position's share of the probability in one order, in [0, 1]; NaN where undefined.
        swapped: (n,) the same in the other order. A pair that is undefined in either is left out.
        spread: Weight of the second term, lambda in the paper, in (0, 1].

    Returns:
        The map; None if no pair is defined, or if no map is better than the constant 1/2 because the orders contradict
        each other in too many pairs.

    Raises:
        ValueError: A share or the spread is outside its range, or the lengths differ.
    """
    a, b = vectors(first=first, swapped=swapped)
    kept = defined(a, b)
    a, b = a[kept], b[kept]
    if not 0 < spread <= 1 or ((a < 0) | (a > 1) | (b < 0) | (b > 1)).any():
        raise ValueError(f"spread={spread}: give a spread in (0, 1] and shares in [0, 1].")
    if not len(a):
        return None
    knots, places = np.unique(np.concatenate([a, b]), return_inverse=True)
    pairs = places[: len(a)], places[len(a) :]
    minima = [_descend(start, pairs, spread).round(DIGITS) for start in (knots, _best_threshold(len(knots), pairs))]
    values = min(minima, key=lambda one: _objective(one, pairs, spread))
    return None if np.ptp(values) == 0 else _corners(knots, values)


def _descend(values: FloatArray, pairs: Pairs, spread: float) -> FloatArray:
    """Return the local minimum below a start.

    Each step minimizes, by isotonic regression, an upper bound of the objective that touches it at the current map; so
    no step makes it larger.
    """
    one, other = pairs
    size, counts = len(values), np.bincount(np.concatenate(pairs), minlength=len(values))
    for _ in range(ITERATIONS):
        u, v = values[one], values[other]
        total, gap = 2 * (u + v - 1), 2 * spread * (u - v)
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


def _objective(values: FloatArray, pairs: Pairs, spread: float) -> float:
    u, v = values[pairs[0]], values[pairs[1]]
    return float(np.mean((u + v - 1) ** 2 - spread * (u - v) ** 2))


def _corners(knots: FloatArray, values: FloatArray) -> PositionMap:
    """Leave out the knots inside a stretch of equal values, which do not change the map."""
    before, after = np.r_[np.nan, values[:-1]], np.r_[values[1:], np.nan]
    kept = (values != before) | (values != after)
    return PositionMap(tuple(knots[kept].tolist()), tuple(values[kept].tolist()))
