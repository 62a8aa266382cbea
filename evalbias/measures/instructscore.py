"""Read InstructScore reports: numbered errors, each with a type, a severity and a location (Xu et al. 2023)."""

from __future__ import annotations

import itertools
import re

from evalbias.measures.mqm import LONGEST, MQMError, MQMReading
from evalbias.measures.mqm_verdicts import NUMBER, number_of

_COUNT = re.compile(rf"\bcontains?\s+(?:no|{NUMBER})\s+errors?\b", re.IGNORECASE)
_TYPE = re.compile(r"^[^\w\n]*error\s+type\s*(?:\d+\s*)?:[ \t]*(?P<kind>.*)$", re.IGNORECASE | re.MULTILINE)
_SEVERITY = re.compile(
    r"^[^\w\n]*major\s*/\s*minor(?:\s+\d+)?\s*:\s*(?P<severity>major|minor)\b(?!\s*(?:/|or\b))",
    re.IGNORECASE | re.MULTILINE,
)
_LOCATION = re.compile(r"^[^\w\n]*error\s+location\s*(?:\d+\s*)?:[ \t]*(?P<span>.*)$", re.IGNORECASE | re.MULTILINE)


def read_instructscore(text: str | None) -> MQMReading:
    r"""Read the errors of an InstructScore report; explanations are dropped because they reveal the correction.

    A report is unreadable if it lists fewer errors than it announces, or an error without a severity, or has more than
    ``LONGEST`` characters.

    Args:
        text: Report as the model wrote it; None or blank text is ``"empty"``.

    Returns:
        Status and errors. The error type is the category; subcategories are empty.

    Examples:
        >>> report = "Your Translation contains 1 errors:\nError type 1: a word is missing\nMajor/minor: Major\n"
        >>> read_instructscore(report + "Error location 1: the dog").errors
        (MQMError(severity='major', span='the dog', category='a word is missing', subcategory=''),)
        >>> read_instructscore("Your Translation contains 0 errors:").status
        'no errors'
    """
    if text is None or not text.strip():
        return MQMReading("empty")
    if len(text) > LONGEST:
        return MQMReading("unreadable")
    starts = [m.start() for m in _TYPE.finditer(text)]
    errors = [_error(text[a:b]) for a, b in itertools.pairwise([*starts, len(text)])]
    announced = _COUNT.search(text)
    count = len(errors) if announced is None else number_of(announced["number"] or "0")
    readable = tuple(error for error in errors if error is not None)
    if len(readable) < max(count, len(errors)) or (announced is None and not errors):
        return MQMReading("unreadable")
    return MQMReading("errors", readable) if readable else MQMReading("no errors")


def _error(block: str) -> MQMError | None:
    kind, severity, location = _TYPE.search(block), _SEVERITY.search(block), _LOCATION.search(block)
    if kind is None or severity is None:
        return None
    span = location["span"].strip(" \t\r\"'\u201c\u201d") if location else ""
    return MQMError(severity["severity"].lower(), span or None, kind["kind"].strip(" \t\r."))
