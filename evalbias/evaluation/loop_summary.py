"""Several models, or several sources of feedback, side by side: where each loop began and where it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures import Iteration, PermutationTest, compare_self_bias, trajectory


@dataclass(frozen=True)
class LoopSummary:
    """One loop.

    Attributes:
        name: Of the model, or of whatever the loops differ in.
        rounds: Bias and Dskew of every round.
        bias: Paired permutation test of the Bias, the last round against the first.
        skewness: Of the distance skewness.
    """

    name: str
    rounds: tuple[Iteration, ...]
    bias: PermutationTest
    skewness: PermutationTest


def summarize_loop(
    name: str,
    own: ArrayLike,
    expected: ArrayLike,
    *,
    numbers: Sequence[int] | None = None,
    n_resamples: int = 2_000,
    seed: int,
) -> LoopSummary:
    """Bias and Dskew of every round, and whether the last differs from the first; arguments as ``trajectory``."""
    rounds = trajectory(own, expected, numbers=numbers, n_resamples=n_resamples, seed=seed)
    first, last = (np.asarray(own, dtype=np.float64)[at] - np.asarray(expected, dtype=np.float64)[at] for at in (0, -1))
    bias, skewness = compare_self_bias(last, first, n_resamples=n_resamples, seed=seed)
    return LoopSummary(name, tuple(rounds), bias, skewness)
