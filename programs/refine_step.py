"""One step of a refine loop: an output, its feedback and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.usage_tracker import UsageTracker

from evalbias.programs.feedback.source import Feedback, FeedbackSource, validated

EMPTY = "The output is empty."
"""Feedback on an empty output, which is not shown to the feedback source."""


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
        yield usage
    if outer is not None:
        for lm, entries in usage.tracker.usage_data.items():
            for entry in entries:
                outer.add_usage(lm, entry)
