"""Judges where DSPy wants a metric or a reward, and training sets where it wants labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dspy

from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import label_of
from evalbias.programs.pointwise import PointwiseJudge


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


def score_closeness(criterion: Criterion) -> Callable[..., float]:
    """A metric for compiling the judge itself: 1 where it gives the example's ``score``, 0 at the scale's other end."""
    low, high = criterion.scale

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return 1.0 - abs(float(example["score"]) - float(prediction["score"])) / (high - low)

    return metric


def labelled(
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
    return str(given[name])


def _unit(judge: PointwiseJudge, source: str, output: str) -> float:
    low, high = judge.criterion.scale
    return (float(judge(source=source, output=output).score) - low) / (high - low)
