"""The choice between a judge that a study set up and the given one, on held-back pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import mean_of_defined
from evalbias.optimizers.zepo.rule import ObjectiveRule
from evalbias.optimizers.zepo.targets import judged_in_order
from evalbias.programs.label_metrics import preference_accuracy
from evalbias.programs.pairwise import PairwiseJudge

RIGHT = "right"
"""Covariate of judged pairs: (n,) 1 where the judge prefers as people do, 0 where not, NaN where undefined."""


def rightness(pairs: Sequence[dspy.Example], predictions: Sequence[Any]) -> FloatArray:
    """Return (n,) 1 where a judge prefers as people do, a half for a tie, NaN where its comparison is undefined."""
    compared = zip(pairs, predictions, strict=True)
    return np.array([preference_accuracy(e, p, undefined=math.nan) for e, p in compared], dtype=np.float64)


class Accuracy:
    """Share of labeled pairs on which the judge prefers as people do, in [0, 1]."""

    name = "accuracy"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        return mean_of_defined(judged.covariate(RIGHT))


class SetUpRule(ObjectiveRule):
    """An ``ObjectiveRule`` for judges as they are set up: the accuracy is that of the whole judge, with its debiasing.

    Another objective is measured in the given order, where there is a bias to see.
    """

    def answers(self, program: PairwiseJudge) -> Judged:
        """Return the judge's answers to the pairs."""
        plain: PairwiseJudge = program.deepcopy()
        plain.debias = None
        answers = plain.batch(self.examples, lm=self.lm)
        probabilities = np.array([p.positions[0] for p in answers])
        judged = judged_in_order(plain, probabilities, self.examples, probabilities[:0])
        if not isinstance(self.objective, Accuracy):
            return judged
        whole = program.batch(self.examples, lm=self.lm)
        return replace(judged, covariates={**judged.covariates, RIGHT: rightness(self.examples, whole)})
