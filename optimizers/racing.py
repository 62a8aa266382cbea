"""Candidates of a search, and the race that drops those behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import SLACK, FloatArray, IntArray
from evalbias.optimizers.objectives import Objective, one_by_one, stacked

# An instruction that is being tested.


@dataclass
class Candidate:
    """One instruction and the judge's answers under it.

    Attributes:
        number: Number in the search, from 0.
        epoch: Epoch in which it was proposed; 0 for the first instruction.
        parent: Number of the instruction it was made from; None for the first.
        instruction: The wording.
        answers: (n, c) probabilities on the first n examples.
        content_free: (1, c) probabilities on a content-free input; (0, c) before it was asked.
        judged: The same answers with the examples' covariates; None before any example was answered.
        objective: Value of the objective; NaN where undefined.
        behind: Number of the instruction that it was behind when racing dropped it; None if it was not dropped.
    """

    number: int
    epoch: int
    parent: int | None
    instruction: str
    answers: FloatArray
    content_free: FloatArray
    judged: Judged | None = None
    objective: float = math.nan
    behind: int | None = None

    @classmethod
    def new(cls, number: int, epoch: int, parent: int | None, instruction: str, classes: int) -> Candidate:
        """Return a candidate without answers."""
        return cls(number, epoch, parent, instruction, np.empty((0, classes)), np.empty((0, classes)))


def worst_last(candidate: Candidate) -> float:
    """Sort key: the highest objective first, undefined ones last; the sort keeps the order of equals."""
    return math.inf if math.isnan(candidate.objective) else -candidate.objective


# Racing: an instruction is dropped once its answers so far show that it cannot win on all examples.
#
# An epoch's instructions are judged in rounds, on random examples, of which every round has twice as many as the one
# before (Maron and Moore 1997; the rounds are those of successive halving, Jamieson and Talwalkar 2016). After a round,
# each is compared with the leader, which is the best of the others or the incumbent. It is dropped if the interval of
# the difference of their objectives on *all* examples excludes 0. An instruction that is not dropped is judged on all
# examples, so that what wins has the same numbers as without racing.
#
# The interval. The examples that are left to judge are imagined with Polya's urn (Ghosh and Meeden 1997): the answered
# ones, with what both instructions answered, are drawn, and each is put back with a copy. This is uncertainty about a
# finite set of examples: none is left when all are judged. It needs no formula for the objective, holds for one with a
# kink such as fairness, and keeps the comparison paired. The incumbent has answered every example, so an example is
# drawn from those on which the incumbent answered much the same (post-stratification). The urn also holds the answered
# examples with both instructions' answers exchanged, at a total weight of ``EXCHANGED`` examples. Otherwise two of
# twenty examples on which one instruction is better, and none on which the other is, would leave no doubt.
#
# The error. Every round is another look at the same data, so a round's test has the level ``LEVEL`` divided by the
# number of looks (Bonferroni): the best instruction of an epoch is dropped with a probability of at most about
# ``LEVEL``, as far as the imagined examples are like the real ones. ``benchmarks/zepo/racing.py`` measures how often
# that happens.


FEWEST = 20
"""Fewest examples on which an instruction is dropped."""
LEVEL = 0.01
"""Probability with which an epoch's best instruction may be dropped."""
DRAWS = 2_000
"""Imagined sets of all examples in each comparison."""
GROUP = 6
"""Answered examples in a group of those on which the incumbent answered much the same."""
EXCHANGED = 2.0
"""Weight in the urn of the examples with exchanged answers, in examples."""


def rounds(examples: int) -> list[int]:
    """Return the number of examples that are judged by the end of each round, the last of which has all."""
    sizes = [examples]
    while sizes[0] >= 2 * FEWEST:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


def drop(
    rivals: Sequence[Candidate],
    incumbent: Candidate,
    objective: Objective,
    *,
    looks: int,
    rng: np.random.Generator,
) -> dict[int, int]:
    """Decide which instructions are dropped after a round.

    Args:
        rivals: Instructions that are still in the race, all judged on the same first examples.
        incumbent: Instruction to surpass, judged on all examples.
        objective: Objective to maximize.
        looks: Number of rounds after which instructions may be dropped.
        rng: Source of the draws.

    Returns:
        Number of each dropped instruction -> number of the leader that it is behind.
    """
    leader = min([incumbent, *rivals], key=worst_last)
    answered = len(rivals[0].answers)
    counts = imagined(alike(_judged(incumbent), answered // GROUP), answered, rng)
    dropped = {}
    for rival in rivals:
        if rival is leader:
            continue
        own = _values(objective, rival, leader, counts)
        # The incumbent's objective is known: it is judged on all examples.
        best = leader.objective if leader is incumbent else _values(objective, leader, rival, counts)
        if math.isnan(rival.objective) or np.mean(~(own < best - SLACK)) < LEVEL / looks:  # no tie or NaN is behind
            dropped[rival.number] = leader.number
    return dropped


def imagined(groups: IntArray, answered: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often imagined sets of all examples hold each answered example.

    Args:
        groups: (n,) group of every example; those that are left to judge are drawn from the answered ones of their
            group, or from all where it has none.
        answered: Number k of answered examples, which come first.
        rng: Source of the draws.

    Returns:
        (DRAWS, 2 k) counts, which sum to n in every row: of the answered examples as they are, each at least once, and
        then of the same with exchanged answers.
    """
    counts = np.concatenate([np.ones((DRAWS, answered)), np.zeros((DRAWS, answered))], axis=1)
    for group in np.unique(groups[answered:]):
        members = np.flatnonzero(groups[:answered] == group)
        members = members if len(members) else np.arange(answered)
        urn = np.concatenate([np.ones(len(members)), np.full(len(members), EXCHANGED / answered)])
        shares = rng.dirichlet(urn, size=DRAWS)  # the shares of many draws from Polya's urn
        drawn = rng.multinomial(int((groups[answered:] == group).sum()), shares)
        counts[:, np.concatenate([members, answered + members])] += drawn
    return counts


def alike(incumbent: Judged, groups: int) -> IntArray:
    """Group the examples, (n,), by quantiles of the incumbent's first probability, or of its score."""
    first = incumbent.answers.reshape(len(incumbent.ids), -1)[:, 0]
    found = np.searchsorted(np.nanquantile(first, np.arange(1, groups) / groups), first)
    return np.where(np.isnan(first), groups, found)


def _values(objective: Objective, one: Candidate, other: Candidate, counts: FloatArray) -> FloatArray:
    """Return the objective of one instruction on imagined sets of all examples, (DRAWS,)."""
    items = np.arange(counts.shape[1] // 2)
    both = stacked(*(_judged(candidate).take(items) for candidate in (one, other)))
    resampled = getattr(objective, "resampled", None)
    return one_by_one(objective, both, counts) if resampled is None else np.asarray(resampled(both, counts))


def _judged(candidate: Candidate) -> Judged:
    assert candidate.judged is not None, "an instruction in a race is judged"
    return candidate.judged
