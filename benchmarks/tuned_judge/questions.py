"""Training questions of the tuned judge: prompts as the judges of evalbias render them, with people's answers.

Every data set is split by input with ``SPLIT_SEED``, and questions are drawn from the training inputs only.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dspy

from benchmarks import sets
from benchmarks.sets import BINS
from evalbias import data
from evalbias.data.items import by_input
from evalbias.programs.criterion import PRESETS, Criterion
from evalbias.programs.items import label_of
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompts import Message, comparison_labels

SPLIT_SEED = 0
SETS = ("tmu-gfm", "summeval", "webnlg2020")
PERMISSIVE = ("tmu-gfm", "summeval")
"""Data sets whose licences (CC BY 4.0, MIT) let an adapter be passed on; WebNLG's (CC BY-NC-SA 4.0) does not."""


@dataclass(frozen=True)
class Question:
    """A prompt with people's answer."""

    messages: list[Message]  # prompt
    labels: tuple[str, ...]  # possible answers
    target: dict[str, float]  # answer -> share of people, summing to 1


@dataclass(frozen=True)
class Rated:
    """A data set, split by input."""

    name: str  # name of the data set
    criteria: tuple[Criterion, ...]  # criteria that its items are rated on
    train: list[dspy.Example]  # items to learn from
    test: list[dspy.Example]  # items that no question is drawn from


def rated(name: str) -> Rated:
    """Load a data set from ``EVALBIAS_DATA`` (default ../shared/data) and split it by input."""
    items = list(sets.read(name))
    train, test = data.split(items, seed=SPLIT_SEED, by="input")
    return Rated(name, PRESETS[name], train, test)


def around(score: float, criterion: Criterion) -> dict[str, float]:
    """Return the probabilities of the two labels next to a score whose expectation is the score."""
    shares = {label: 1 - abs(score - value) for label, value in zip(criterion.labels, criterion.values, strict=True)}
    return {label: share for label, share in shares.items() if share > 0}


def pointwise(example: dspy.Example, criterion: Criterion, bins: Sequence[float] | None) -> Question | None:
    """Return the question for an output's score; None where people gave none.

    The target is the two labels next to the mean rating, so that its expectation is the mean; one label where the
    ratings are on another scale than the labels.
    """
    score = float(example.scores[criterion.name])
    if math.isnan(score):
        return None
    judge = PointwiseJudge(criterion)
    criterion = judge.criterion  # with the judge's words for yes and no
    target = around(score, criterion) if bins is None else {label_of(score, criterion, bins=bins): 1.0}
    return Question(judge.messages(example), criterion.labels, target)


def pairwise(first: dspy.Example, second: dspy.Example, criterion: Criterion) -> Question | None:
    """Return the question which of two outputs is better; None where people do not tell or the texts are equal.

    The first wins with probability 1/2 + d/2 for a lead of d points in the mean rating; a lead of a point is certain.
    """
    lead = float(first.scores[criterion.name]) - float(second.scores[criterion.name])
    if math.isnan(lead) or first.output == second.output:
        return None
    labels = comparison_labels(2, ties=False)
    share = min(max(0.5 + lead / 2, 0.0), 1.0)
    pair = {"source": first.source, "candidates": [first.output, second.output]}
    messages = PairwiseJudge(criterion, instruction_place="first").messages(pair)
    return Question(messages, labels, dict(zip(labels, (share, 1 - share), strict=True)))


Draw = Callable[[random.Random], list[Question]]


def pointwise_draws(data_set: Rated, *, inputs: int, outputs: int) -> Draw:
    """Return a function that draws the questions of some outputs of some inputs, all on one criterion."""
    documents = list(by_input(data_set.train).values())

    def draw(rng: random.Random) -> list[Question]:
        criterion, bins = rng.choice(data_set.criteria), BINS.get(data_set.name)
        drawn = [
            example
            for document in rng.sample(documents, inputs)
            for example in rng.sample(document, min(outputs, len(document)))
        ]
        return [question for e in drawn if (question := pointwise(e, criterion, bins))]

    return _until_any(draw)


def pairwise_draws(data_set: Rated, *, inputs: int) -> Draw:
    """Return a function that draws a pair of outputs of some inputs, in both orders, all on one criterion."""
    documents = [document for document in by_input(data_set.train).values() if len(document) > 1]

    def draw(rng: random.Random) -> list[Question]:
        criterion = rng.choice(data_set.criteria)
        pairs = [rng.sample(document, 2) for document in rng.sample(documents, inputs)]
        orders = itertools.chain.from_iterable(((a, b), (b, a)) for a, b in pairs)
        return [question for a, b in orders if (question := pairwise(a, b, criterion))]

    return _until_any(draw)


def _until_any(draw: Draw) -> Draw:
    """Return a function that draws again where people rated nothing of what was drawn."""

    def repeat(rng: random.Random) -> list[Question]:
        while not (questions := draw(rng)):
            pass
        return questions

    return repeat
