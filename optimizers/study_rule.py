"""The choice between a judge that a study set up and the given one, on held-back pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from evalbias.programs.pair_labels import preference_label
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.prompt import TIE
from evalbias.runs.visible import get_logger

logger = get_logger(__name__)

RIGHT = "right"
"""Covariate of judged pairs: (n,) 1 where the judge prefers as people do, 0 where not, NaN where undefined."""


def preferred(pairs: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return the pairs of which people prefer one candidate: those that have a label and are no ties."""
    return [e for e in pairs if preference_label(e) not in (None, TIE)]


def check_labels(parts: Mapping[str, Sequence[dspy.Example]]) -> None:
    """Log how many pairs the accuracy leaves out in each part of the trainset.

    Raises:
        ValueError: It leaves out all of one part.
    """
    for use, pairs in parts.items():
        left_out = len(pairs) - len(preferred(pairs))
        if left_out == len(pairs):
            raise ValueError(
                f"None of the {left_out} pairs {use} says which candidate people prefer, but other pairs do: label "
                "more, or remove the labels (preference, better) to choose by the objective alone."
            )
        if left_out:
            logger.warning(
                "%d of the %d pairs %s have no label or are ties: the accuracy leaves them out.",
                left_out,
                len(pairs),
                use,
            )


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
