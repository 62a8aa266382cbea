"""MQM errors and their score (Freitag et al. 2021; Xu et al. 2024, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STATUSES = ("errors", "no errors", "empty", "blocked", "unreadable")
LONGEST = 20_000
"""Most characters of an answer that is read. No list of errors is that long: the longest of 19,700 recorded answers has
1,072 characters, but a model that repeats itself up to the length limit writes any number of them."""
WINDOW = 200
"""Characters before and after a severity or a quotation that are looked at: the time stays linear in the length."""


@dataclass(frozen=True)
class MQMError:
    """One translation error that a judge reported.

    Attributes:
        severity: ``"critical"``, ``"major"`` or ``"minor"``.
        span: Text that the judge quoted; None if it quoted none.
        category: Error category as written, such as ``"accuracy"``; empty if none was given.
        subcategory: Subcategory as written, such as ``"mistranslation"``; empty if none was given.
    """

    severity: str
    span: str | None = None
    category: str = ""
    subcategory: str = ""


@dataclass(frozen=True)
class MQMReading:
    """Errors read from one feedback text.

    Attributes:
        status: One of ``STATUSES``. ``"unreadable"`` text leaves a doubt about the number of errors or a severity,
            contradicts itself, or states neither errors nor their absence.
        errors: Errors in the order of the text; empty unless the status is ``"errors"``.
    """

    status: str
    errors: tuple[MQMError, ...] = ()


def mqm_score(
    errors: Iterable[MQMError] | None,
    *,
    critical: float = -5.0,
    major: float = -5.0,
    minor: float = -1.0,
    floor: float = -25.0,
) -> float:
    """Add up the weights of the errors, down to a floor (Xu et al. 2024, section 4.1).

    Args:
        errors: Errors from ``parse_mqm``, or None if the feedback could not be read.
        critical: Weight of a critical error, at most 0. The published best-of-k run with k = 1 used -10.
        major: Weight of a major error, at most 0.
        minor: Weight of a minor error, at most 0.
        floor: Lowest possible score.

    Returns:
        Score in points, in [floor, 0], where 0 means no errors; NaN if ``errors`` is None.

    Raises:
        KeyError: An error has an unknown severity.

    Examples:
        >>> mqm_score([MQMError("major"), MQMError("minor"), MQMError("minor")])
        -7.0
    """
    if errors is None:
        return float("nan")
    weights = {"critical": critical, "major": major, "minor": minor}
    return max(floor, float(sum(weights[error.severity] for error in errors)))
