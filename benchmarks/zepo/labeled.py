"""DSPy's optimizers, which need labels, on the same judge and documents as the label-free search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from evalbias.programs import PairwiseJudge, preference_accuracy

CANDIDATES, TRIALS = 10, 15
"""Settings of MIPROv2: proposed instructions, and trials."""

Compile = Callable[[PairwiseJudge, list[dspy.Example], list[dspy.Example]], PairwiseJudge]


class Counter(BaseCallback):
    """Counter of the calls of one model."""

    def __init__(self, lm: Any) -> None:
        self._lm = lm
        self.calls = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """See ``BaseCallback``."""
        self.calls += instance is self._lm


def miprov2(*, lm: Any, writer: Any, seed: int) -> Compile:
    """Return MIPROv2: instructions by the writer, chosen by accuracy on the validation pairs."""

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
        better: PairwiseJudge = optimizer.compile(judge, trainset=train, valset=val, minibatch=False, **counts)
        return better

    return compile_


def gepa(*, lm: Any, writer: Any, seed: int, budget: int) -> Compile:
    """Return GEPA: instructions by reflection, chosen by accuracy on the validation pairs, within a budget."""

    def metric(example: Any, prediction: Any, *_: Any) -> Any:
        score = preference_accuracy(example, prediction)
        return dspy.Prediction(score=score, feedback=f"People prefer {example.preference}: the answer scores {score}.")

    def compile_(judge: PairwiseJudge, train: list[dspy.Example], val: list[dspy.Example]) -> PairwiseJudge:
        optimizer = dspy.GEPA(
            metric, max_metric_calls=budget, reflection_lm=writer, num_threads=1, use_merge=False, seed=seed
        )
        better: PairwiseJudge = optimizer.compile(judge, trainset=train, valset=val)
        return better

    return compile_


def compiled(
    optimize: Compile, judge: PairwiseJudge, train: Sequence[dspy.Example], val: Sequence[dspy.Example], *, lm: Any
) -> tuple[PairwiseJudge, int]:
    """Compile a judge with labels, and count the judgments."""
    counter = Counter(lm)
    with dspy.context(lm=lm, callbacks=[counter]), redirect_stdout(sys.stderr):  # stdout is for results, not progress
        better = optimize(judge.deepcopy(), list(train), list(val))
    return better, counter.calls
