"""Weights of training questions under which the likelihood of an output says nothing about people's ratings.

Likely outputs are better rated on the whole, so a judge that learns from ratings learns to reward likelihood. Each
question's loss is weighted by how rare its combination of likelihood and rating is, compared with what it would be if
the two were independent: P(likelihood) P(rating) / P(likelihood, rating).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import dspy
import numpy as np
from numpy.typing import ArrayLike

from benchmarks.tuned_judge.questions import Rated
from evalbias.data.pairing import by_input
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.judges import likelihood_scores
from evalbias.programs.prompts import likelihood_messages

GROUPS = 5
LARGEST = 5.0
"""Largest weight: a combination that hardly occurs is not to decide a step."""

Key = tuple[str, str]
"""Source and output."""
Signs = tuple[int, ...]


class Balance:
    """Weights for the questions of one data set, 1 on average.

    Args:
        data_set: The data set; its training items alone are counted.
        lm: Model whose likelihoods are balanced.
        length: Whether the length of the output is balanced too, together with its likelihood.
    """

    def __init__(self, data_set: Rated, lm: MeasuringLM, *, length: bool = False) -> None:
        self._weights: dict[str, dict[Key, float]] = {}
        self._features: dict[str, dict[Key, FloatArray]] = {}
        self._pairs: dict[str, Counter[Signs]] = {}
        measured: dict[str, dict[Key, FloatArray]] = {}  # criteria with one task have the same likelihoods
        for criterion in data_set.criteria:
            items = [e for e in data_set.train if not math.isnan(e.scores[criterion.name])]
            known = measured.setdefault(str(likelihood_messages(criterion, "")), {})
            new = [e for e in items if _key(e) not in known]
            for example, likelihood in zip(new, likelihood_scores(new, criterion, lm, reduction="sum"), strict=True):
                known[_key(example)] = np.array([likelihood, len(example.output)][: 1 + length])
            columns = np.stack([known[_key(e)] for e in items], axis=1)
            together = sum(groups(column) * GROUPS**place for place, column in enumerate(columns))
            ratings = np.array([e.scores[criterion.name] for e in items], dtype=np.float64)
            weights = independent(together, groups(ratings))
            self._weights[criterion.name] = dict(zip(map(_key, items), weights.tolist(), strict=True))
            self._features[criterion.name] = known
            pairs = [pair for outputs in by_input(items).values() for pair in itertools.combinations(outputs, 2)]
            self._pairs[criterion.name] = Counter(self._signs(a, b, criterion) for a, b in pairs)

    def item(self, example: dspy.Example, criterion: Criterion) -> float:
        """Return the weight of the question for an output's score."""
        return self._weights[criterion.name][_key(example)]

    def pair(self, first: dspy.Example, second: dspy.Example, criterion: Criterion) -> float:
        """Return the weight of the question which of two outputs is better.

        Under it, the better output is as often the likelier (and longer) one as it is the less likely (and shorter).
        """
        signs, known = self._signs(first, second, criterion), self._pairs[criterion.name]
        opposite = tuple(-sign for sign in signs)
        return min(LARGEST, (known[signs] + known[opposite]) / (2 * known[signs])) if any(signs) else 1.0

    def _signs(self, first: dspy.Example, second: dspy.Example, criterion: Criterion) -> Signs:
        """Return for each feature whether the better output has more (1) or less (-1) of it; 0 for a tie."""
        lead = float(first.scores[criterion.name]) - float(second.scores[criterion.name])
        known = self._features[criterion.name]
        return tuple(int(sign) for sign in np.sign(lead * (known[_key(first)] - known[_key(second)])))


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
    together, *alone = (_share_alike(same) for same in (np.column_stack([one, other]), one, other))
    weights = np.minimum(alone[0] * alone[1] / together, LARGEST)
    return np.asarray(weights / weights.mean())


def _share_alike(values: ArrayLike) -> FloatArray:
    """Return for each value or row the share of those that equal it, (n,)."""
    _, kind, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[kind.ravel()] / len(kind))


def _key(example: dspy.Example) -> Key:
    return str(example.source), str(example.output)
