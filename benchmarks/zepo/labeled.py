"""DSPy's optimizers with labels, on the same judge and the same pairs: what labels are worth beside fairness."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from evalbias.programs import PairwiseJudge, preference_accuracy

CANDIDATES, TRIALS = 10, 15
"""Of MIPROv2."""

Compile = Callable[[PairwiseJudge, list[dspy.Example], list[dspy.Example]], PairwiseJudge]


class Counter(BaseCallback):
    """Counts the calls of one model."""

    def __init__(self, lm: Any) -> None:
        self._lm = lm
        self.calls = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """See ``BaseCallback``."""
        self.calls += instance is self._lm


def miprov2(*, lm: Any, writer: Any, seed: int) -> Compile:
    """Instructions by the writer, chosen by accuracy on the validation pairs."""

    def compile_(judge: PairwiseJudge, train: list[dspy.Example], val: list[dspy.Example]) -> PairwiseJudge:
        optimizer = dspy.MIPROv2(
            preference_accuracy,
            prompt_model=writer,
            task_model=lm,
            auto=None,
            num_candidates=CANDIDATES,
            num_threads=1,
            seed=seed,
        )
        counts = {"num_trials": TRIALS, "max_bootstrapped_demos": 0, "max_labeled_demos": 0}
        found: PairwiseJudge = optimizer.compile(judge, trainset=train, valset=val, minibatch=False, **counts)
        return found

    return compile_


def gepa(*, lm: Any, writer: Any, seed: int, budget: int) -> Compile:
    """Instructions by reflection, chosen by accuracy on the validation pairs, within so many judgments."""

    def metric(example: Any, prediction: Any, *_: Any) -> Any:
        score = preference_accuracy(example, prediction)
        return dspy.Prediction(score=score, feedback=f"People prefer {example.preference}: the answer scores {score}.")

    def compile_(judge: PairwiseJudge, train: list[dspy.Example], val: list[dspy.Example]) -> PairwiseJudge:
        optimizer = dspy.GEPA(
            metric, max_metric_calls=budget, reflection_lm=writer, num_threads=1, use_merge=False, seed=seed
        )
        found: PairwiseJudge = optimizer.compile(judge, trainset=train, valset=val)
        return found

    return compile_


def compiled(
    optimize: Compile, judge: PairwiseJudge, train: Sequence[dspy.Example], val: Sequence[dspy.Example], *, lm: Any
) -> tuple[PairwiseJudge, int]:
    """A judge compiled with labels, and the judgments that took."""
    counter = Counter(lm)
    with dspy.context(lm=lm, callbacks=[counter]), redirect_stdout(sys.stderr):  # their progress is no result
        found = optimize(judge.deepcopy(), list(train), list(val))
    return found, counter.calls
