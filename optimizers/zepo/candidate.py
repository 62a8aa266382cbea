"""An instruction that is being tested."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import FloatArray


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
