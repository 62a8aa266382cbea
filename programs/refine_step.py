"""One output on the way through a loop: written, heard about, and what it cost."""

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
"""What the refiner is told then; no source is asked."""


@dataclass(frozen=True)
class Step:
    """One output on the way.

    Attributes:
        iteration: 0 is the first output.
        output: What was written.
        score: The feedback's; NaN where undefined.
        feedback: What was said about it.
        accepted: Whether it became the loop's output.
        status: Why the score is undefined, or empty.
        tokens: Prompt and completion tokens of writing and feedback together; 0 where the models do not tell, and for
            what DSPy's cache answered.
        calls: Requests to models, of writing and feedback together, answered by the cache or not.
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
    """Write an output and hear about it.

    Args:
        iteration: Its number.
        write: Gives the output.
        source: Of the feedback; an empty output is undefined and not shown to it.
        example: The item, for the source.
        accepts: Whether an output of this score takes over.

    Raises:
        ValueError: A score outside the source's range.
    """
    with count_usage() as spent:
        output = write()
        if output.strip():
            found = validated(source, source(example, output))
        else:
            found = Feedback(float("nan"), EMPTY, status="empty output")
    accepted = accepts(found.score)
    return Step(iteration, output, found.score, found.text, accepted, found.status, spent.tokens, spent.calls)


@dataclass
class UsageCount(BaseCallback):  # type: ignore[misc]
    """What the models were asked inside a context.

    Attributes:
        calls: Requests, those that DSPy's cache answered included.
        tracker: Of the tokens; none are spent on what the cache answers.
    """

    calls: int = 0
    tracker: UsageTracker = field(default_factory=UsageTracker)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count a request."""
        self.calls += 1

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        told = self.tracker.get_total_tokens().values()
        return int(sum(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) for usage in told))


@contextmanager
def count_usage() -> Iterator[UsageCount]:
    """Count what is spent inside; an outer tracker of the user's hears of it too."""
    outer, spent = dspy.settings.usage_tracker, UsageCount()
    with dspy.context(usage_tracker=spent.tracker, callbacks=[*dspy.settings.callbacks, spent]):
        yield spent
    if outer is not None:
        for lm, entries in spent.tracker.usage_data.items():
            for entry in entries:
                outer.add_usage(lm, entry)
