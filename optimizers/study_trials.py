"""The choices of a study as judges, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from evalbias.lm.memo import ChoiceMemo
from evalbias.lm.types import MeasuringLM
from evalbias.measures import count_undefined
from evalbias.measures.calibration import rotations
from evalbias.optimizers.base import Problem
from evalbias.optimizers.study_report import Choice
from evalbias.optimizers.study_rule import rightness
from evalbias.optimizers.zepo.objectives import Objective
from evalbias.optimizers.zepo.targets import instruct, judged_in_order
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.position_calibration import FITTED, CalibrationError, calibrations_of


class Trials:
    """Choices as judges; each is measured once.

    Args:
        problem: What the study searches on.
        demos: The sets of demonstrations to choose from.
        pairs: Pairs on which calibrations are fitted and the objective is measured.
        labeled: Other pairs, on which the accuracy is measured; empty without labels.
        objective: The objective.
        progress: Called with the number of judgments done.
    """

    def __init__(
        self,
        problem: Problem,
        demos: Sequence[Sequence[dspy.Example]],
        pairs: Sequence[dspy.Example],
        labeled: Sequence[dspy.Example],
        *,
        objective: Objective,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.student: PairwiseJudge = problem.student
        self.demos, self.pairs, self.labeled = demos, pairs, labeled
        self.objective, self.progress = objective, progress
        self.lm: MeasuringLM = ChoiceMemo(problem.lm)
        self.size = len(pairs[0].candidates)
        sampled = self.student.sampling or getattr(problem.lm, "sampling", None)
        self.calibrations = (None,) if sampled else calibrations_of(self.size)  # which need measured probabilities
        self._results: dict[Choice, dict[str, Any]] = {}

    def judge(self, choice: Choice) -> PairwiseJudge:
        """Return the student set up as chosen."""
        return self._fitted(choice)[0]

    def measure(self, choice: Choice) -> dict[str, Any]:
        """Return the fields of a ``Trial``; NaN where the calibration cannot be fitted."""
        if choice not in self._results:
            try:
                self._results[choice] = self._measured(choice)
            except CalibrationError:  # the trial fails and is counted; the study goes on
                self._results[choice] = {"objective": math.nan, "accuracy": math.nan, "prompts": math.nan}
        return self._results[choice]

    def _fitted(self, choice: Choice) -> tuple[PairwiseJudge, int]:
        """Return the student set up as chosen, and the prompts that fitting its calibration takes."""
        one: PairwiseJudge = self.student.deepcopy()
        instruct(one, choice.instruction)
        one.predict.demos = list(self.demos[choice.demonstrations])
        one.debias, one.calibration = choice.debias, choice.calibration
        if choice.calibration in FITTED:  # not to the pairs that the accuracy is measured on
            return one, one.calibrate(self.pairs, lm=self.lm)
        return one, int(choice.calibration == "contextual")

    def _measured(self, choice: Choice) -> dict[str, Any]:
        plain = self.judge(replace(choice, debias=None))
        whole, fit_prompts = self._fitted(choice)
        answers = plain.batch(self.pairs, lm=self.lm, progress=self.progress)
        probabilities = np.array([p.positions[0] for p in answers])
        free = np.empty((0, probabilities.shape[1]))
        if self.objective.content_free:
            orders = rotations(self.size, every=False)
            logprobs = plain.answer_logprobs([plain.content_free(self.size)], orders, self.lm)
            free = plain.aggregate(logprobs, orders, None).positions[:, 0]
        predictions = whole.batch(self.labeled, lm=self.lm, progress=self.progress)
        right = rightness(self.labeled, predictions)
        defined = right[~np.isnan(right)]
        return {
            "choice": vars(choice),
            "objective": self.objective(judged_in_order(plain, probabilities, self.pairs, free)),
            "accuracy": float(defined.mean()) if len(defined) else math.nan,
            "prompts": self.size if choice.debias == "permutation" else 1,
            "fit_prompts": fit_prompts,
            "undefined": count_undefined(probabilities) + int(np.isnan(right).sum()),
        }
