"""Weights of training questions under which the likelihood of an output says nothing about people's ratings.

Likely outputs are better rated on the whole, so a judge that learns from ratings learns to reward likelihood. Each
question's loss is weighted by how rare its combination of likelihood and rating is, compared with what it would be if
the two were independent: P(likelihood) P(rating) / P(likelihood, rating).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import dspy
import numpy as np
from numpy.typing import ArrayLike

from benchmarks.tuned_judge.questions import Rated
from evalbias.data.pairing import by_input
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import likelihood_scores
from evalbias.programs.prompt import likelihood_messages

GROUPS = 5
LARGEST = 5.0
"""Largest weight: a combination that hardly occurs is not to decide a step."""

Key = tuple[str, str]
"""Source and output."""


class Balance:
    """Weights for the questions of one data set, 1 on average.

    Args:
        data_set: The data set; its training items alone are counted.
        lm: Model whose likelihoods are balanced.
    """

    def __init__(self, data_set: Rated, lm: MeasuringLM) -> None:
        self._weights: dict[str, dict[Key, float]] = {}
        self._likelihoods: dict[str, dict[Key, float]] = {}
        self._agreement: dict[str, float] = {}
        measured: dict[str, dict[Key, float]] = {}  # criteria with one task have the same likelihoods
        for criterion in data_set.criteria:
            items = [e for e in data_set.train if e.scores[criterion.name] == e.scores[criterion.name]]
            ratings = np.array([e.scores[criterion.name] for e in items], dtype=np.float64)
            known = measured.setdefault(str(likelihood_messages(criterion, "")), {})
            new = [e for e in items if _key(e) not in known]
            known |= zip(map(_key, new), likelihood_scores(new, criterion, lm, reduction="sum").tolist(), strict=True)
            self._likelihoods[criterion.name] = known
            weights = independent(groups([known[_key(e)] for e in items]), groups(ratings))
            self._weights[criterion.name] = dict(zip(map(_key, items), weights.tolist(), strict=True))
            self._agreement[criterion.name] = self._agreeing(items, criterion)

    def item(self, example: dspy.Example, criterion: Criterion) -> float:
        """Return the weight of the question for an output's score."""
        return self._weights[criterion.name][_key(example)]

    def pair(self, first: dspy.Example, second: dspy.Example, criterion: Criterion) -> float:
        """Return the weight of the question which of two outputs is better: as many pairs with the likelier better."""
        agrees = self._leads(first, second, criterion)
        if agrees == 0:
            return 1.0
        share = self._agreement[criterion.name]
        return min(LARGEST, 0.5 / (share if agrees > 0 else 1 - share))

    def _agreeing(self, items: Sequence[dspy.Example], criterion: Criterion) -> float:
        """Return the share of pairs of one input, told apart by people, in which the likelier output is better."""
        pairs = [pair for outputs in by_input(items).values() for pair in itertools.combinations(outputs, 2)]
        signs = np.array([self._leads(a, b, criterion) for a, b in pairs])
        return float((signs[signs != 0] > 0).mean())

    def _leads(self, first: dspy.Example, second: dspy.Example, criterion: Criterion) -> float:
        known = self._likelihoods[criterion.name]
        lead = float(first.scores[criterion.name]) - float(second.scores[criterion.name])
        return float(np.sign(lead * (known[_key(first)] - known[_key(second)])))


def groups(values: ArrayLike) -> FloatArray:
    """Number the fifth that each value belongs to, (n,); equal values are in one group."""
    array = np.asarray(values, dtype=np.float64)
    edges = np.unique(np.quantile(array, np.arange(1, GROUPS) / GROUPS))
    return np.asarray(np.searchsorted(edges, array, side="left"), dtype=np.float64)


def independent(one: ArrayLike, other: ArrayLike) -> FloatArray:
    """Return weights, (n,) with mean 1, under which two groupings are independent, except for cut-off weights.

    Examples:
        >>> independent([0, 0, 0, 1], [0, 0, 1, 1]).round(2).tolist()
        [0.75, 0.75, 1.5, 0.5]
    """
    first, second = np.asarray(one), np.asarray(other)
    together = (first[:, None] == first) & (second[:, None] == second)
    shares = [(same[:, None] == same).mean(axis=1) for same in (first, second)]
    weights = np.minimum(shares[0] * shares[1] / together.mean(axis=1), LARGEST)
    return np.asarray(weights / weights.mean())


def _key(example: dspy.Example) -> Key:
    return str(example.source), str(example.output)
