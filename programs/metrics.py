"""Judges where DSPy wants a metric or a reward, and training sets where it wants labels."""

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
    """A metric for ``dspy.Evaluate`` and for optimizers: the judge's score of a program's output, rescaled to [0, 1].

    Args:
        judge: Who judges.
        source: The example's field that the program worked from.
        output: The prediction's field to judge.
        threshold: In [0, 1]: what a bootstrapped demonstration must reach (DSPy calls the metric with a trace then).

    Returns:
        ``metric(example, prediction, trace=None)``. NaN where the judgment is undefined.
    """

    def metric(example: Any, prediction: Any, trace: Any = None) -> float | bool:
        value = _unit(judge, _field(example, source, "source"), _field(prediction, output, "output"))
        return value >= threshold if trace is not None and threshold is not None else value

    return metric


def judge_reward(
    judge: PointwiseJudge, *, source: str = "source", output: str = "output"
) -> Callable[[dict[str, Any], Any], float]:
    """A reward for ``dspy.BestOfN`` and ``dspy.Refine``: ``reward(inputs, prediction)`` in [0, 1], NaN if undefined."""

    def reward(inputs: dict[str, Any], prediction: Any) -> float:
        return _unit(judge, _field(inputs, source, "source"), _field(prediction, output, "output"))

    return reward


def preference_metric(
    judge: PairwiseJudge, *, source: str = "source", output: str = "output", reference: str = "reference"
) -> Callable[..., float]:
    """A metric: the probability that a program's output is better than the example's reference output, in [0, 1].

    A tie counts half. Give a judge with ``debias="permutation"`` unless its position preference is meant to count.

    Args:
        judge: Who compares.
        source: The example's field that the program worked from.
        output: The prediction's field to judge.
        reference: The example's field to compare with: what another program wrote, say.

    Returns:
        ``metric(example, prediction, trace=None)``. NaN where the comparison is undefined, .5 where both are equal.
    """

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        ours, theirs = _field(prediction, output, "output"), _field(example, reference, "reference")
        if ours == theirs:
            return 0.5
        found = judge(source=_field(example, source, "source"), candidates=[ours, theirs])
        return float(found.win_share)

    return metric


def preference_accuracy(example: Any, prediction: Any, trace: Any = None) -> float:
    """A metric for compiling a pairwise judge itself: 1 where it prefers as the example's ``preference`` says.

    An answer without a preference counts half, one that is undefined is NaN.
    """
    chosen = prediction["preference"]
    if chosen is None:
        return math.nan if math.isnan(prediction["gap"]) else 0.5
    return float((chosen if isinstance(chosen, str) else LETTERS[chosen]) == str(example["preference"]))


def score_closeness(criterion: Criterion) -> Callable[..., float]:
    """A metric for compiling the judge itself: 1 where it gives the example's ``score``, 0 at the scale's other end."""
    low, high = criterion.scale

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return 1.0 - abs(float(example["score"]) - float(prediction["score"])) / (high - low)

    return metric


def labeled(
    examples: Iterable[dspy.Example], criterion: Criterion, *, bins: Sequence[float] | None = None
) -> list[dspy.Example]:
    """Copies of the examples with ``score``, the human score as a label: a training set for any DSPy optimizer.

    Raises:
        ValueError: An example has no score on the criterion, or one that no label fits.
    """
    done = []
    for example in examples:
        scores = example.get("scores") or {}
        if criterion.name not in scores:
            raise ValueError(
                f"The item {example.get('id')!r} has no score on {criterion.name!r}, only on {sorted(scores)}: "
                "leave it out or name another criterion."
            )
        label = label_of(scores[criterion.name], criterion, bins=bins)
        done.append(example.copy(score=float(label)).with_inputs("source", "output"))
    return done


def _field(given: Any, name: str, argument: str) -> str:
    """A text to be judged.

    Raises:
        ValueError: There is no such field; the message names those there are.
    """
    if name not in given:
        raise ValueError(f"There is no {name!r} among {sorted(given.keys())}: say which field it is with {argument}=.")
    if given[name] is None:
        raise ValueError(f"{name!r} is None: there is nothing to judge.")
    return str(given[name])


def _unit(judge: PointwiseJudge, source: str, output: str) -> float:
    low, high = judge.criterion.scale
    return (float(judge(source=source, output=output).score) - low) / (high - low)
