"""Calibration of measured comparisons for position, averages over orders, and decisions.

Log-probabilities have the shape (n, r, c + t): n comparisons of c candidates, each asked in r orders, with t = 1 extra
column if "tie" is an answer, else t = 0. Column j of an order belongs to the candidate at position j in that order.
Orders are rotations of the candidates, so that over all c of them every candidate stands at every position once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evalbias.measures.arrays import FloatArray

Order = tuple[int, ...]


class Correction(Protocol):
    """Function that removes from answers what their positions have regardless of the candidates."""

    def __call__(self, logprobs: FloatArray) -> FloatArray:
        """Return corrected log-probabilities, shape (n, r, c + t), up to a constant for each row; NaN stays NaN."""
        ...


@dataclass(frozen=True)
class Comparisons:
    """Probabilities from n comparisons of c candidates.

    Attributes:
        positions: Calibrated probabilities by position, shape (n, r, c + t). NaN where undefined.
        probabilities: Probabilities by candidate, averaged over the orders, shape (n, c + t). NaN where undefined.
        coverage: Total probability of the answers, the lowest over the orders, shape (n,).
    """

    positions: FloatArray
    probabilities: FloatArray
    coverage: FloatArray


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
    """Calibrate comparisons for position and average them over their orders.

    Args:
        logprobs: Log-probabilities of the answers, not renormalized, shape (n, r, c + t).
        orders: Index of the candidate at each position, for each of the r orders.
        correction: Correction for position, which comes before the answers are normalized. None corrects nothing.
        min_coverage: Smallest total probability of the answers in any order; comparisons below it are undefined.
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


def win_probabilities(probabilities: FloatArray, *, ties: bool) -> FloatArray:
    """Return the win probability of each candidate, shape (..., c): all candidates share a tie equally.

    This function is the only place that counts ties.

    Args:
        probabilities: Probabilities by candidate, shape (..., c + t); NaN where undefined.
        ties: Treat the last column as the answer "tie".

    Examples:
        >>> win_probabilities(np.array([0.5, 0.25, 0.25]), ties=True).tolist()
        [0.625, 0.375]
        >>> win_probabilities(np.array([0.5, 0.1, 0.1, 0.3]), ties=True).round(3).tolist()
        [0.6, 0.2, 0.2]
    """
    if not ties:
        return probabilities
    own, tie = probabilities[..., :-1], probabilities[..., -1:]
    return np.asarray(own + tie / own.shape[-1])


def gaps(probabilities: FloatArray) -> FloatArray:
    """Return the lead of the most probable column over the next, in [0, 1], shape (n,); NaN where undefined."""
    ordered = np.sort(probabilities, axis=1)  # NaN sorts last
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def normalized(logprobs: FloatArray) -> FloatArray:
    """Return the probabilities of the answers among each other; NaN for a row in which none has any."""
    peak = logprobs.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logprobs - peak)  # a row of -inf becomes NaN: undefined, not uniform
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)
