"""Calibration of comparisons for position: by batch, by a prior, and by permutation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.measures.arrays import FloatArray, normalized

# Calibration of measured comparisons for position, averages over orders, and decisions.
#
# Log-probabilities have the shape (n, r, c + t): n comparisons of c candidates, each asked in r orders, with t = 1
# extra column if "tie" is an answer, else t = 0. Column j of an order belongs to the candidate at position j in that
# order. Orders are rotations of the candidates: over all c of them, every candidate stands at every position once.


Order = tuple[int, ...]


@dataclass(frozen=True)
class Comparisons:
    """Probabilities from n comparisons of c candidates."""

    positions: FloatArray  # (n, r, c + t) calibrated, by position; NaN where undefined
    probabilities: FloatArray  # (n, c + t) by candidate, averaged over the orders; NaN where undefined
    coverage: FloatArray  # (n,) total probability of the answers, the lowest over the orders


def rotations(count: int, *, every: bool) -> list[Order]:
    """Return the rotations of ``count`` candidates, or only their own order.

    Examples:
        >>> rotations(3, every=True)
        [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    """
    return [tuple((start + j) % count for j in range(count)) for start in range(count if every else 1)]


def calibrate_comparisons(
    logprobs: FloatArray, orders: Sequence[Order], *, correction: PositionOffsets | None, min_coverage: float
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
    best = [np.flatnonzero(row == row.max()) for row in probabilities]  # empty if the row is NaN
    return [columns.item() if len(columns) == 1 else None for columns in best]


def gaps(probabilities: FloatArray) -> FloatArray:
    """Return the lead of the most probable column over the next, in [0, 1], shape (n,); NaN where undefined."""
    ordered = np.sort(probabilities, axis=1)  # NaN sorts last
    return np.asarray(ordered[:, -1] - ordered[:, -2])


# Offsets of positions in log space: a model's log-probability for the candidate at a position is taken as that
# candidate's own plus an offset of the position. Batch calibration takes the mean over a batch for the offset. PriDe
# (Zheng et al., ICLR 2024) asks a few items in every rotation: candidates then stand at all positions equally often,
# and the remaining differences belong to the positions.


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
        fault = f"The orders {list(orders)} do not put every candidate at every position once"
        raise ValueError(f"{fault}: give all {count} rotations.")
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
