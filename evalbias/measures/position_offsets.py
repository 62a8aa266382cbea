"""Offsets of positions in log space: batch calibration, and the prior of PriDe.

A model's log-probability for the candidate at a position is taken as that candidate's own plus an offset of the
position. Batch calibration takes the mean over a batch for the offset. PriDe (Zheng et al., ICLR 2024) asks a few items
in every rotation: the candidates then stand at all positions equally often, and what differs is the positions' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import Order, normalized


@dataclass(frozen=True)
class PositionOffsets:
    """Correction that subtracts an offset for each answer.

    Attributes:
        offsets: Log-probabilities that the answers have regardless of the candidates, c + t numbers.
    """

    offsets: tuple[float, ...]

    def __call__(self, logprobs: FloatArray) -> FloatArray:
        """Subtract the offsets; see ``Correction``."""
        return np.asarray(logprobs - np.array(self.offsets))


def batch_offsets(logprobs: FloatArray) -> FloatArray:
    """Return the mean log-probability of each position over a batch, the offsets of batch calibration.

    Args:
        logprobs: Log-probabilities of the answers, shape (n, r, c + t). Rows with an answer of probability 0 are left
            out.

    Returns:
        Offsets of shape (c + t,); NaN if no row is left.
    """
    with np.errstate(divide="ignore"):
        rows = np.log(normalized(logprobs)).reshape(-1, logprobs.shape[2])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return np.asarray(rows.mean(axis=0)) if len(rows) else np.full(logprobs.shape[2], np.nan)


def position_prior(logprobs: FloatArray, orders: Sequence[Order]) -> FloatArray:
    """Estimate the positions' own probabilities from items in every rotation (PriDe; Zheng et al., ICLR 2024).

    An item's prior is the geometric mean of each position's probability over the rotations, normalized over the
    positions. The estimate is the mean over the items. A tie has no position and no prior.

    Args:
        logprobs: Log-probabilities of the answers, shape (n, c, c + t). Items in which a position is undefined or has
            probability 0 are left out.
        orders: The c rotations of the candidates.

    Returns:
        Probabilities of shape (c,), which sum to 1; NaN if no item is left.

    Raises:
        ValueError: The orders do not put every candidate at every position once.

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
    """Return the offsets that divide answers by a prior over positions.

    They are centered on 0, and a tie has the offset 0. So the odds of a tie against the geometric mean of the positions
    stay as they are.

    Args:
        prior: Probabilities of the c positions, all above 0.
        ties: Whether the last answer is "tie".

    Returns:
        Offsets of shape (c + t,).
    """
    logs = np.log(prior)
    offsets = logs - logs.mean()
    return np.append(offsets, 0.0) if ties else np.asarray(offsets)
