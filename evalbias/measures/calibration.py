"""What measured comparisons say: calibration by position, averaging over orders, and the decision.

Log-probabilities come as (n, r, c + t): n comparisons of c candidates, each asked in r orders, with t = 1 more column
where "tie" is an answer. Column j of order r is the answer for the candidate that stands at position j there. Orders
are the rotations of the candidates, so that with all c of them every candidate stands at every position once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Order = tuple[int, ...]


@dataclass(frozen=True)
class Comparisons:
    """n comparisons of c candidates.

    Attributes:
        positions: (n, r, c + t) probabilities by position, one row an order; calibrated. NaN where undefined.
        probabilities: (n, c + t) by candidate, averaged over the orders. NaN where undefined.
        coverage: (n,) probability that any of the answers follows, the lowest over the orders.
    """

    positions: FloatArray
    probabilities: FloatArray
    coverage: FloatArray


def rotations(count: int, *, every: bool) -> list[Order]:
    """The given order alone, or all rotations; of two candidates the second is the swap."""
    return [tuple((start + j) % count for j in range(count)) for start in range(count if every else 1)]


def calibrate_comparisons(
    logprobs: FloatArray, orders: Sequence[Order], *, offsets: FloatArray | None, min_coverage: float
) -> Comparisons:
    """From measured answers to probabilities of the candidates.

    Args:
        logprobs: (n, r, c + t), not renormalized.
        orders: r of them: which candidate stands at each position.
        offsets: (c + t,) log-probabilities that the positions have by themselves; they are taken off before the
            answers are normalized. None takes nothing off.
        min_coverage: Answers that cover less are undefined.
    """
    coverage = np.exp(logprobs).sum(axis=2).min(axis=1)  # (n,)
    positions = _normalized(logprobs if offsets is None else logprobs - offsets)
    positions[~(coverage >= min_coverage)] = np.nan
    return Comparisons(positions, by_candidate(positions, orders).mean(axis=1), coverage)


def by_candidate(positions: FloatArray, orders: Sequence[Order]) -> FloatArray:
    """(n, r, c + t) by candidate of the same by position; a column for ties stays where it is."""
    found: FloatArray = positions.copy()
    for row, order in enumerate(orders):
        found[:, row, list(order)] = positions[:, row, : len(order)]
    return found


def batch_offsets(logprobs: FloatArray) -> FloatArray:
    """(c + t,) mean log-probability of each position over a batch: batch calibration takes the marginal off.

    Answers without any mass are left out. NaN if nothing is left.
    """
    with np.errstate(divide="ignore"):
        rows = np.log(_normalized(logprobs)).reshape(-1, logprobs.shape[2])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return np.asarray(rows.mean(axis=0)) if len(rows) else np.full(logprobs.shape[2], np.nan)


def decisions(probabilities: FloatArray) -> list[int | None]:
    """The likeliest column of each row; None where several share it or a row is undefined."""
    done: list[int | None] = []
    for row in probabilities:
        best = np.flatnonzero(row == row.max())  # none where the row is NaN
        done.append(int(best[0]) if len(best) == 1 else None)
    return done


def win_share(probabilities: FloatArray, *, ties: bool, candidate: int = 0) -> FloatArray:
    """(...,) win probability of one candidate; a tie counts half. This is the only place that says so.

    Args:
        probabilities: (..., c + t) by candidate; NaN where undefined.
        ties: Whether the last column is the answer "tie".
        candidate: Column of the candidate.
    """
    own: FloatArray = probabilities[..., candidate]
    return own + probabilities[..., -1] / 2 if ties else own


def gaps(probabilities: FloatArray) -> FloatArray:
    """(n,) how far the likeliest column leads the next, in [0, 1]; NaN where undefined."""
    ordered = np.sort(probabilities, axis=1)  # NaN stands last
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def _normalized(logprobs: FloatArray) -> FloatArray:
    peak = logprobs.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logprobs - peak)  # a row of -inf becomes NaN: undefined, not uniform
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)
