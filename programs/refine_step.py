"""One step of a refine loop: an output, its feedback and its cost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.usage_tracker import UsageTracker

from evalbias.lm.types import PromptRefused
from evalbias.programs.feedback.source import Feedback, FeedbackSource, validated
from evalbias.programs.resample import sample, temperatures
from evalbias.runs.visible import get_logger

EMPTY = "The output is empty."
"""Feedback on an empty output, which is not shown to the feedback source."""
REFUSED = "The output cannot be judged."
"""Feedback on an output that the feedback source's model refuses; the reason is the step's status."""


@dataclass(frozen=True)
class Step:
    """One output of a loop.

    Attributes:
        iteration: Number of the step; 0 is the first output.
        output: Text of the output.
        score: Score of the feedback; NaN if undefined.
        feedback: Text of the feedback.
        accepted: True if the output became the loop's output.
        status: Reason why the score is undefined, or an empty string.
        tokens: Number of prompt and completion tokens of writing and feedback. Answers from DSPy's cache and models
            that do not report their usage count 0.
        calls: Number of requests of writing and feedback, including those that the cache answered.
    """

    iteration: int
    output: str
    score: float
    feedback: str
    accepted: bool
    status: str
    tokens: int
    calls: int


def take_step(
    iteration: int,
    write: Callable[[], str],
    source: FeedbackSource,
    example: Mapping[str, Any],
    accepts: Callable[[float], bool],
) -> Step:
    """Write an output, get feedback on it and decide whether to accept it.

    Args:
        iteration: Number of the step.
        write: Function that writes the output.
        source: Feedback source. An empty output is not shown to it; its score is undefined.
        example: Item for the source.
        accepts: Function of the score that returns True if the output is accepted.

    Raises:
        ValueError: The score is outside the source's range.
    """
    with count_usage() as usage:
        output = write()
        if output.strip():
            feedback = validated(source, source(example, output))
        else:
            feedback = Feedback(float("nan"), EMPTY, status="empty output")
    accepted = accepts(feedback.score)
    return Step(iteration, output, feedback.score, feedback.text, accepted, feedback.status, usage.tokens, usage.calls)


class ItemFeedback:
    """Feedback on the outputs of one item: a source that decodes greedily is asked once for each different output.

    A source that draws its answer, at a temperature above 0, is asked every time, for a draw of its own. The same text
    may then get a better score and replace itself, as in the published loops. Feedback on an output that the source's
    model refuses, for example because it is too long, is undefined; the log and its status say why.

    Args:
        source: Source to ask.
        seed: Seed for the source's draws, for models that draw by a seed.
    """

    def __init__(self, source: FeedbackSource, seed: int) -> None:
        self.name, self.low, self.high = source.name, source.low, source.high
        self._source, self._seed = source, seed
        self._drawn = isinstance(source, dspy.Module) and any(temperatures(source))
        self._count = 0
        self._answers: dict[str, Feedback] = {}

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return the source's feedback on an output of the item."""
        if self._drawn:
            self._count += 1
            return self._told(partial(sample, self._source, self._count - 1, self._seed), example, output)
        if output not in self._answers:
            self._answers[output] = self._told(self._source, example, output)
        return self._answers[output]

    def _told(self, ask: Callable[..., Feedback], example: Mapping[str, Any], output: str) -> Feedback:
        try:
            return ask(example, output)
        except PromptRefused as refusal:
            reason = f"The prompt {next(iter(refusal.refused.values()))}"
            get_logger(__name__).warning(
                "The feedback %r on an output of the item %.80r is undefined. %s", self.name, example.get("id"), reason
            )
            return Feedback(float("nan"), REFUSED, status=f"refused: {reason}")


def input_names(generate: dspy.Module) -> frozenset[str]:
    """Return the names of a generator's inputs.

    They are the named parameters of its ``forward``. If ``forward`` takes any arguments, they are the input fields of
    its predictors that are not output fields of another predictor.
    """
    _, *parameters = inspect.signature(type(generate).forward).parameters.values()
    if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return frozenset(p.name for p in parameters)
    consumed: set[str] = set()
    produced: set[str] = set()
    for predictor in generate.predictors():
        consumed |= set(predictor.signature.input_fields)
        produced |= set(predictor.signature.output_fields)
    return frozenset(consumed - produced)


def shown_inputs(generate: dspy.Module, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that a generator takes; the others, such as a reference, are for the feedback."""
    names = input_names(generate)
    return {name: value for name, value in example.items() if name in names}


@dataclass
class UsageCount(BaseCallback):  # type: ignore[misc]
    """Requests and tokens used inside a context.

    Attributes:
        calls: Number of requests, including those that DSPy's cache answered.
        tracker: Tracker of the tokens; cached answers cost none.
    """

    calls: int = 0
    tracker: UsageTracker = field(default_factory=UsageTracker)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count a request."""
        self.calls += 1

    @property
    def tokens(self) -> int:
        """Number of prompt and completion tokens."""
        totals = self.tracker.get_total_tokens().values()
        return int(sum(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in totals))


@contextmanager
def count_usage() -> Iterator[UsageCount]:
    """Count requests and tokens inside the context; the user's own usage tracker receives the tokens too."""
    outer, usage = dspy.settings.usage_tracker, UsageCount()
    with dspy.context(usage_tracker=usage.tracker, callbacks=[*dspy.settings.callbacks, usage]):
        try:
            yield usage
        finally:  # an item that failed has cost tokens too
            if outer is not None:
                for lm, entries in usage.tracker.usage_data.items():
                    for entry in entries:
                        outer.add_usage(lm, entry)
