"""The self-bias of two models' loops on the same items: a paired test, item by item."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.estimates import N_RESAMPLES
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.self_bias import measure_rounds
from evalbias.measures.arrays import FloatArray


@dataclass(frozen=True)
class LoopScores:
    """The scores of one model's loop.

    Attributes:
        name: Name of the model, or of whatever the loops differ in.
        numbers: (t,) number of each round.
        items: (n,) identity of each item: equal where two loops answer to the same input.
        own: (t, n) the loop's own scores.
        expected: (t, n) expected scores on the same range.
    """

    name: str
    numbers: tuple[int, ...]
    items: tuple[str, ...]
    own: FloatArray
    expected: FloatArray


@dataclass(frozen=True)
class LoopPair:
    """Two loops in the same round, on the items that both have.

    Attributes:
        first: Name of the first loop.
        second: Name of the second loop.
        number: Number of the round, the last that both have.
        items: Number of items that both have.
        comparison: The second loop against the first.
    """

    first: str
    second: str
    number: int
    items: int
    comparison: Comparison


def compare_loops(loops: Sequence[LoopScores], *, n_resamples: int = N_RESAMPLES, seed: int) -> list[LoopPair]:
    """Compare every two loops that share items, in the last round that both have.

    The test is the paired permutation test of ``compare``: under the null hypothesis the two models' differences of own
    and expected score are exchangeable item by item. It is two-sided and not corrected for the number of pairs. Pairs
    of loops without a common item or round are left out.

    Args:
        loops: Loops whose scores are on the same range.
        n_resamples: Resamples of intervals and tests.
        seed: Seed for intervals and tests.
    """
    pairs = []
    for first, second in itertools.combinations(loops, 2):
        others = set(second.items)
        items = tuple(item for item in first.items if item in others)
        rounds = set(first.numbers) & set(second.numbers)
        if not items or not rounds:
            continue
        number = max(rounds)
        sides = [_measured(loop, number, items, n_resamples, seed) for loop in (first, second)]
        comparison = compare(*sides, n_resamples=n_resamples, n_intervals=n_resamples, seed=seed)
        pairs.append(LoopPair(first.name, second.name, number, len(items), comparison))
    return pairs


def _measured(loop: LoopScores, number: int, items: tuple[str, ...], n_resamples: int, seed: int) -> Measurement:
    places = {item: place for place, item in enumerate(loop.items)}
    columns = [places[item] for item in items]
    row = loop.numbers.index(number)
    own, expected = (scores[row, columns][None] for scores in (loop.own, loop.expected))  # (1, n)
    (measurement,) = measure_rounds(own, expected, ids=items, n_resamples=n_resamples, seed=seed)
    return measurement
