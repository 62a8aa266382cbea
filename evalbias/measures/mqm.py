"""Read MQM feedback: errors with location, category and severity (Freitag et al. 2021; Xu et al. 2024).

A judge writes one error per line, ``'span' is a SEVERITY CATEGORY/SUBCATEGORY error``, or states that there are no
errors. Quoted text is never read as a verdict, and "no major errors" does not count as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

STATUSES = ("errors", "no errors", "empty", "blocked", "unreadable")

_OPEN, _CLOSE = "'\"\u2018\u201c\u00ab", "'\"\u2019\u201d\u00bb"
_SEVERITY = r"(?P<severity>critical|major|minor)\b"
_VERB = r"(?:is|are|was|were|has|have|contains?|represents?|constitutes?)\b"
_LEAD = r"(?:\s+(?:an?|the|one|also|both|considered|likely|possibly|probably|as|in|of))*\s+"
_END = rf"(?=\s*(?:\berrors?\b|[\n.;:,({_OPEN}]|$))"
_QUOTED = re.compile(
    rf"[{_OPEN}](?P<span>[^\n]*?)[{_CLOSE}]\s*(?:{_VERB}{_LEAD}|[:(-]+\s*(?:an?\s+)?)"
    rf"{_SEVERITY}[ \t]*(?P<kind>[^\n.;:,{_OPEN}]*?){_END}",
    re.IGNORECASE,
)
_LABELED = re.compile(
    rf"[{_OPEN}](?P<span>[^\n]*?)[{_CLOSE}]\s*{_VERB}{_LEAD}(?P<kind>[a-z][a-z /-]*?)\s*errors?\s*"
    rf"\(\s*{_SEVERITY}\s*\)",
    re.IGNORECASE,
)
_QUOTE = re.compile(rf"(?<!\w)[{_OPEN}][^\n]*?[{_CLOSE}](?!\w)")
_BARE = re.compile(rf"{_SEVERITY}[ \t]*(?P<kind>[^\n.;:{_OPEN}]*?)\berrors?\b", re.IGNORECASE)
_NEGATED = re.compile(
    r"\b(?:no|without|nor|neither|zero|free of|(?:not|n't)(?: \w+)?)"
    r"(?:[\s,]+(?:a|any|of|the|such|other|further|real|obvious|apparent|significant|serious|critical|major|minor|or|and))*"
    r"[\s,]*$",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"\bno[ -](?:\w+[ -]){0,4}?(?:errors?|mistakes?|issues?|problems?)\b|\berror[ -]free\b"
    r"|^\W*(?:none|n/a|no)(?: (?:are |were )?found)?\W*$"
    r"|\b(?:without|free of|(?:not|n't|cannot) (?:have|contain|find|see|any))\b[^.\n]*\b(?:errors?|mistakes?)\b"
    r"|\b(?:translation|text|output|answer|sentence)s? (?:is|are) (?:\w+ )?(?:correct|perfect|accurate)\b",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(
    r"\b(?:cannot|can't|can not|could not|couldn't|do not|don't|did not|didn't)\s+(?:find|see|identify|detect|spot)\s+"
    r"(?:any|a single)\s+(?:\w+\s+){0,3}?(?:errors?|mistakes?|issues?|problems?)\b",
    re.IGNORECASE,
)
_BLOCKED = re.compile(
    r"^\W*(?:(?:the )?(?:response|output|content|prompt|request|answer) )?(?:was |is |has been )?blocked\b"
    r"|\bcontent (?:filter|policy)|\b(?:i'?m|i am) (?:sorry|unable|not able)\b|\bi (?:cannot|can't|can not)\b"
    r"|\bas an ai\b",
    re.IGNORECASE,
)


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
        status: One of ``STATUSES``. ``"unreadable"`` text neither reports an error with its severity nor states that
            there are no errors.
        errors: Errors in the order of the text; empty unless the status is ``"errors"``.
    """

    status: str
    errors: tuple[MQMError, ...] = ()


def read_mqm(text: str | None) -> MQMReading:
    """Read the errors of a feedback text and classify the text.

    Args:
        text: Feedback as the judge wrote it; None or blank text is ``"empty"``.

    Examples:
        >>> read_mqm("'cat' is a major accuracy/mistranslation error").errors[0].subcategory
        'mistranslation'
        >>> read_mqm("No major errors, but there is a minor fluency/spelling error.").errors
        (MQMError(severity='minor', span=None, category='fluency', subcategory='spelling'),)
        >>> [read_mqm(t).status for t in ("no-error", " ", "blocked", "1. 2. 3.")]
        ['no errors', 'empty', 'blocked', 'unreadable']
    """
    if text is None or not text.strip():
        return MQMReading("empty")
    if _NONE.fullmatch(text.strip().strip(_OPEN + _CLOSE + ".")):
        return MQMReading("no errors")  # with the quotation marks of the instruction
    placed = [(m.start(), _error(m, m["span"])) for shape in (_QUOTED, _LABELED) for m in shape.finditer(text)]
    unquoted = _masked(_QUOTE, _masked(_LABELED, _masked(_QUOTED, text)))
    bare = (m for m in _BARE.finditer(unquoted) if not _NEGATED.search(unquoted[: m.start()]))
    placed += [(m.start(), _error(m, None)) for m in bare]
    if placed:
        return MQMReading("errors", tuple(error for _, error in sorted(placed, key=lambda pair: pair[0])))
    if _NOT_FOUND.search(unquoted):
        return MQMReading("no errors")
    if _BLOCKED.search(unquoted):
        return MQMReading("blocked")
    return MQMReading("no errors" if _NONE.search(unquoted) else "unreadable")


def parse_mqm(text: str | None) -> list[MQMError] | None:
    """List the errors of a feedback text; None if it is empty, blocked or unreadable.

    Examples:
        >>> [e.severity for e in parse_mqm("'cat' is a minor style error")], parse_mqm("no-error"), parse_mqm("")
        (['minor'], [], None)
    """
    reading = read_mqm(text)
    return list(reading.errors) if reading.status in ("errors", "no errors") else None


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


def _error(match: re.Match[str], span: str | None) -> MQMError:
    category, _, subcategory = match["kind"].strip().partition("/")
    return MQMError(match["severity"].lower(), span, category.strip(), subcategory.strip())


def _masked(pattern: re.Pattern[str], text: str) -> str:
    """Replace every match with NUL characters, so that positions in the text stay the same."""
    return pattern.sub(lambda m: "\0" * len(m.group()), text)
