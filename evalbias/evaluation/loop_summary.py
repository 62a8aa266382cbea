"""The self-bias of a whole loop: every round, and the last round against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.estimates import N_RESAMPLES
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.self_bias import measure_rounds


@dataclass(frozen=True)
class LoopSummary:
    """Self-bias of one loop.

    Attributes:
        name: Name of the model, or of whatever the loops differ in.
        numbers: (t,) number of each round.
        rounds: (t,) self-bias of every round.
        change: Last round against the first.
    """

    name: str
    numbers: tuple[int, ...]
    rounds: tuple[Measurement, ...]
    change: Comparison


def doublings(k: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and k itself: the sizes at which a run of best of k is shown.

    Examples:
        >>> doublings(6), doublings(8), doublings(1)
        ((1, 2, 4, 6), (1, 2, 4, 8), (1,))
    """
    return (*(2**n for n in range(k.bit_length()) if 2**n < k), k)


def summarize_loop(
    name: str,
    own: ArrayLike,
    expected: ArrayLike,
    *,
    numbers: Sequence[int] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int,
) -> LoopSummary:
    """Measure every round of a loop and test the last against the first.

    Args:
        name: Name of the loop.
        own: (t, n) the loop's own scores, one row a round.
        expected: (t, n) expected scores on the same range.
        numbers: (t,) number of each round. Defaults to 0, 1, ...
        n_resamples: Resamples of intervals and tests.
        seed: Seed for intervals and tests.
    """
    rounds = measure_rounds(own, expected, n_resamples=n_resamples, seed=seed)
    change = compare(rounds[0], rounds[-1], n_resamples=n_resamples, n_intervals=n_resamples, seed=seed)
    return LoopSummary(name, tuple(range(len(rounds)) if numbers is None else numbers), tuple(rounds), change)
