"""What a refine loop listens to: a score, and a text that the refiner is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from evalbias.lm.types import FloatArray
from evalbias.measures import MQMError


@dataclass(frozen=True)
class Feedback:
    """What a source says about one output.

    Attributes:
        score: On the source's range; NaN where it is undefined: empty, blocked or unreadable.
        text: What the refiner is shown.
        errors: Of MQM feedback.
        status: Why the score is undefined, or empty.
    """

    score: float
    text: str
    errors: tuple[MQMError, ...] = ()
    status: str = ""


class FeedbackSource(Protocol):
    """Says how good an output is and what to mend.

    Attributes:
        name: For reports.
        low: The worst score.
        high: The best score; a score is never beyond them, and higher is better (a source that counts errors turns
            its sign).
    """

    name: str
    low: float
    high: float

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Of one output for an example's inputs (and its reference, where the source sees one)."""
        ...


class ScoreRange(Protocol):
    """What has a range of scores: a source, or the run of a loop under one."""

    @property
    def low(self) -> float:
        """The worst score."""
        ...

    @property
    def high(self) -> float:
        """The best score."""
        ...


def as_fraction_of_range(scores: ArrayLike, of: ScoreRange) -> FloatArray:
    """Scores as shares of their range: 0 is the worst, 1 the best, NaN stays."""
    return (np.asarray(scores, dtype=np.float64) - of.low) / (of.high - of.low)


def validated(source: FeedbackSource, found: Feedback) -> Feedback:
    """The feedback, if its score is within the range that its source declares.

    Raises:
        ValueError: It is not.
    """
    found = replace(found, score=float(found.score))  # numpy's numbers are none to JSON
    if not math.isnan(found.score) and not source.low <= found.score <= source.high:
        raise ValueError(
            f"The feedback source {source.name!r} gave {found.score:g}, outside its range {source.low:g} to "
            f"{source.high:g}: declare the range it has."
        )
    return found


def required_field(source: str, example: Mapping[str, Any], field: str) -> Any:
    """A field that a source cannot do without, such as the reference.

    Raises:
        ValueError: The example lacks it.
    """
    value = example.get(field)
    if value is None or value == "":
        raise ValueError(f"The feedback source {source!r} needs {field!r}; the item {example.get('id')!r} has none.")
    return value
