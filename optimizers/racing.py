"""Racing: the rounds in which instructions are judged, and when one is dropped."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import SLACK, FloatArray, IntArray
from evalbias.optimizers.objectives import Objective, both_answers

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
# The error. Every round is another look at the same data, so a round's test has the level ``DROP_LEVEL`` divided by
# the number of looks (Bonferroni): the best instruction of an epoch is dropped with a probability of at most about
# ``DROP_LEVEL``, if the imagined examples are like the real ones. ``benchmarks/racing.py`` measures how often it is.


FEWEST = 20  # fewest examples on which an instruction is dropped
DROP_LEVEL = 0.01  # probability with which an epoch's best instruction may be dropped
IMAGINED = 2_000  # imagined sets of all examples in each comparison
GROUP = 6  # answered examples in a group of those on which the incumbent answered much the same
EXCHANGED = 2.0  # weight in the urn of the examples with exchanged answers, in examples


def race_rounds(examples: int) -> list[int]:
    """Return the number of examples that are judged by the end of each round, the last of which has all."""
    sizes = [examples]
    while sizes[0] >= 2 * FEWEST:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


def worst_last(objective: float) -> float:
    """Sort key: the highest objective first, undefined ones last; the sort keeps the order of equals."""
    return math.inf if math.isnan(objective) else -objective


def drop(
    rivals: Mapping[int, Judged],
    incumbent: int,
    on_all: Judged,
    objective: Objective,
    *,
    looks: int,
    rng: np.random.Generator,
) -> dict[int, int]:
    """Return the number of each instruction that is dropped after a round -> that of the leader that it is behind.

    ``rivals`` are the answers of those still in the race, all to the same first examples; ``on_all`` are the
    incumbent's to all examples. ``looks`` is the number of rounds after which instructions may be dropped.
    """
    answers = {incumbent: on_all, **rivals}
    values = {number: objective(judged) for number, judged in answers.items()}
    leader = min(values, key=lambda number: worst_last(values[number]))
    answered = len(next(iter(rivals.values())).ids)
    counts = imagined(alike(on_all, answered // GROUP), answered, rng)  # (IMAGINED, 2 answered)
    dropped = {}
    for number, judged in rivals.items():
        if number == leader:
            continue
        own = _values(objective, judged, answers[leader], counts)
        # The incumbent's objective is known: it is judged on all examples.
        best = values[leader] if leader == incumbent else _values(objective, answers[leader], judged, counts)
        if math.isnan(values[number]) or np.mean(~(own < best - SLACK)) < DROP_LEVEL / looks:  # no tie or NaN is behind
            dropped[number] = leader
    return dropped


def imagined(groups: IntArray, answered: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often imagined sets of all n examples hold each of the first k, which are answered.

    Returns (IMAGINED, 2 k) counts with the sum n: of the answered ones as they are, each at least once, and of the same
    with exchanged answers. The others are drawn from the answered ones of their group (n,), or from all if it has none.
    """
    counts = np.concatenate([np.ones((IMAGINED, answered)), np.zeros((IMAGINED, answered))], axis=1)
    for group in np.unique(groups[answered:]):
        members = np.flatnonzero(groups[:answered] == group)
        members = members if len(members) else np.arange(answered)
        urn = np.concatenate([np.ones(len(members)), np.full(len(members), EXCHANGED / answered)])
        shares = rng.dirichlet(urn, size=IMAGINED)  # the shares of many draws from Polya's urn
        drawn = rng.multinomial(int((groups[answered:] == group).sum()), shares)
        counts[:, np.concatenate([members, answered + members])] += drawn
    return counts


def alike(incumbent: Judged, groups: int) -> IntArray:
    """Group the examples, (n,), by quantiles of the incumbent's first probability."""
    first = incumbent.answers[:, 0, 0]
    found = np.searchsorted(np.nanquantile(first, np.arange(1, groups) / groups), first)
    return np.where(np.isnan(first), groups, found)


def _values(objective: Objective, one: Judged, other: Judged, counts: FloatArray) -> FloatArray:
    """Return the objective of one instruction on imagined sets of all examples, (IMAGINED,)."""
    items = np.arange(counts.shape[1] // 2)
    return objective.resampled(both_answers(one.take(items), other.take(items)), counts)
