"""DSPy metrics and rewards made of judges, and training sets with labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dspy

from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import label_of
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompt import LETTERS


def judge_metric(
    judge: PointwiseJudge, *, source: str = "source", output: str = "output", threshold: float | None = None
) -> Callable[..., float | bool]:
    """Make a metric for ``dspy.Evaluate`` and optimizers: the judge's score of an output, rescaled to [0, 1].

    Args:
        judge: Judge of the outputs.
        source: Field of the example that the program worked from.
        output: Field of the prediction to judge.
        threshold: Metric value in [0, 1] that a bootstrapped demonstration must reach. DSPy passes a trace when it
            bootstraps, and the metric then returns a bool.

    Returns:
        ``metric(example, prediction, trace=None)``; its value is NaN if the judgment is undefined.
    """

    def metric(example: Any, prediction: Any, trace: Any = None) -> float | bool:
        value = _unit(judge, _field(example, source, "source"), _field(prediction, output, "output"))
        return value >= threshold if trace is not None and threshold is not None else value

    return metric


def judge_reward(
    judge: PointwiseJudge, *, source: str = "source", output: str = "output"
) -> Callable[[dict[str, Any], Any], float]:
    """Make a reward for ``dspy.BestOfN`` and ``dspy.Refine``: ``reward(inputs, prediction)`` in [0, 1] or NaN."""

    def reward(inputs: dict[str, Any], prediction: Any) -> float:
        return _unit(judge, _field(inputs, source, "source"), _field(prediction, output, "output"))

    return reward


def preference_metric(
    judge: PairwiseJudge, *, source: str = "source", output: str = "output", reference: str = "reference"
) -> Callable[..., float]:
    """Make a metric: the ``win_share`` of a program's output against the example's reference output, in [0, 1].

    Use a judge with ``debias="permutation"``; otherwise its position bias favors the program's output or the reference.

    Args:
        judge: Judge that compares the two.
        source: Field of the example that the program worked from.
        output: Field of the prediction to compare.
        reference: Field of the example to compare with, such as the output of another program.

    Returns:
        ``metric(example, prediction, trace=None)``; its value is NaN if the comparison is undefined, 0.5 if the two
        texts are equal.
    """

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        ours, theirs = _field(prediction, output, "output"), _field(example, reference, "reference")
        if ours == theirs:
            return 0.5
        comparison = judge(source=_field(example, source, "source"), candidates=[ours, theirs])
        return float(comparison.win_share)

    return metric


def preference_accuracy(example: Any, prediction: Any, trace: Any = None) -> float:
    """Score a pairwise judge, as a DSPy metric for compiling it: 1 if it agrees with the example's ``preference``.

    The value is 0.5 if the judge has no preference, and NaN if the comparison is undefined.
    """
    preferred = prediction["preference"]
    if preferred is None:
        return math.nan if math.isnan(prediction["gap"]) else 0.5
    return float((preferred if isinstance(preferred, str) else LETTERS[preferred]) == str(example["preference"]))


def score_closeness(criterion: Criterion) -> Callable[..., float]:
    """Make a metric for compiling a judge: 1 at the example's ``score``, falling to 0 over the width of the scale."""
    low, high = criterion.scale

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return 1.0 - abs(float(example["score"]) - float(prediction["score"])) / (high - low)

    return metric


def labeled(
    examples: Iterable[dspy.Example], criterion: Criterion, *, bins: Sequence[float] | None = None
) -> list[dspy.Example]:
    """Copy the examples and add ``score``, the nearest label: a training set for any DSPy optimizer.

    Args:
        examples: Examples with human ``scores`` by criterion.
        criterion: Criterion with the labels.
        bins: Edges that cut the human scores into labels; see ``label_of``.

    Raises:
        ValueError: An example has no score on the criterion, or its score fits no label.
    """
    copies = []
    for example in examples:
        scores = example.get("scores") or {}
        if criterion.name not in scores:
            raise ValueError(
                f"The item {example.get('id')!r} has no score on {criterion.name!r}, only on {sorted(scores)}: "
                "leave it out or name another criterion."
            )
        label = label_of(scores[criterion.name], criterion, bins=bins)
        copies.append(example.copy(score=float(label)).with_inputs("source", "output"))
    return copies


def _field(values: Any, name: str, argument: str) -> str:
    """Return a text to be judged, or raise an error that names the fields available."""
    if name not in values:
        raise ValueError(f"There is no {name!r} among {sorted(values.keys())}: name the field with {argument}=.")
    if values[name] is None:
        raise ValueError(f"{name!r} is None: give a text to judge.")
    return str(values[name])


def _unit(judge: PointwiseJudge, source: str, output: str) -> float:
    low, high = judge.criterion.scale
    return (float(judge(source=source, output=output).score) - low) / (high - low)
