"""Feedback of a refine loop and the protocol of its sources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from evalbias.data.item_names import item_name
from evalbias.measures import MQMError
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import numbers


@dataclass(frozen=True)
class Feedback:
    """Feedback on one output.

    Attributes:
        score: Score in the source's range; NaN if the feedback is empty, blocked, refused or unreadable.
        text: Text that the refiner is shown.
        errors: Errors that MQM feedback lists.
        status: Reason why the score is undefined, or an empty string.
    """

    score: float
    text: str
    errors: tuple[MQMError, ...] = ()
    status: str = ""


class FeedbackSource(Protocol):
    """Source that scores an output and says what to improve.

    Attributes:
        name: Name in reports.
        low: Worst score.
        high: Best score. Every defined score lies in [low, high] and higher is better, so a source that counts errors
            returns the negative count.
    """

    name: str
    low: float
    high: float

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Return feedback on one output for an example (its inputs, and possibly a reference)."""
        ...


def checked_source(source: FeedbackSource) -> FeedbackSource:
    """Return a feedback source after checking that it is one, so that a plain function fails before a loop runs.

    Raises:
        TypeError: It cannot be called, or has no name or range.
    """
    missing = [name for name in ("name", "low", "high") if not hasattr(source, name)]
    if not callable(source) or missing:
        lack = f"no {', '.join(missing)}" if missing else "no __call__"
        raise TypeError(
            f"{source!r} is no feedback source: it has {lack}. Give an object whose call (example, output) returns a "
            "Feedback, with its name and its lowest and highest score; ScorerFeedback(NAME, FUNCTION, low=..., "
            "high=...) makes one of a function (source, output, reference) -> number."
        )
    return source


class ScoreRange(Protocol):
    """Anything with a range of scores: a feedback source, or the run of a loop under one."""

    @property
    def low(self) -> float:
        """Worst score."""
        ...

    @property
    def high(self) -> float:
        """Best score."""
        ...


def on_one_scale(own: ScoreRange, expected: ScoreRange) -> bool:
    """True if two sources score on the same range, so that their scores can be subtracted.

    Scores on different ranges, such as MQM points and chrF, are not comparable: a linear map would make up a bias (Xu
    et al. 2024, appendix B). ``MappedFeedback`` puts a metric on the scale of MQM.
    """
    return (own.low, own.high) == (expected.low, expected.high)


def expected_scores(quality: ArrayLike, source: ScoreRange, own: ScoreRange) -> FloatArray:
    """Return the quality as expected scores of a loop, all NaN if its own scores are on another scale.

    Args:
        quality: Scores of outputs.
        source: Source of the quality.
        own: Range of the loop's own scores.
    """
    scores = numbers(quality, "quality")
    return scores if on_one_scale(own, source) else np.full_like(scores, np.nan)


def validated(source: FeedbackSource, feedback: Feedback) -> Feedback:
    """Return the feedback after checking that its score is in the range of its source.

    Raises:
        TypeError: The source returned something else.
        ValueError: The score is outside the range.
    """
    if not isinstance(feedback, Feedback):
        raise TypeError(
            f"The feedback source {source.name!r} returned {feedback!r:.80}: return Feedback(score, text) of "
            "evalbias.programs.feedback."
        )
    feedback = replace(feedback, score=float(feedback.score))  # JSON does not take numpy's numbers
    if not math.isnan(feedback.score) and not source.low <= feedback.score <= source.high:
        raise ValueError(
            f"The feedback source {source.name!r} gave {feedback.score:g}, outside its range {source.low:g} to "
            f"{source.high:g}: correct its low and high."
        )
    return feedback


def required_field(source: str, example: Mapping[str, Any], field: str) -> Any:
    """Return a field of the example that a source requires, such as the reference.

    Raises:
        ValueError: The example does not have the field, or it is empty.
    """
    value = example.get(field)
    if value is None or value == "":
        raise ValueError(
            f"The item {item_name(example)!r:.80} has no {field!r}: the feedback source {source!r:.80} needs it."
        )
    return value
