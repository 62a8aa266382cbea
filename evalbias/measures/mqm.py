"""MQM errors: their score, and reading lists of them (Freitag et al. 2021; Xu et al. 2024, section 4.1).

A text is read completely or not at all, so that no error is overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 20_000
"""Most characters of an answer that is read; the longest of 19,700 recorded answers has 1,072 characters."""
SEVERITIES = ("critical", "major", "minor")


@dataclass(frozen=True)
class MQMError:
    """A translation error that a judge reported."""

    severity: str  # "critical", "major" or "minor"
    span: str | None = None  # text that the judge quoted; None without a quotation
    category: str = ""  # as written, such as "accuracy"; empty if missing
    subcategory: str = ""  # as written, such as "mistranslation"; empty if missing


@dataclass(frozen=True)
class MQMReading:
    """Errors read from a feedback text.

    ``"unreadable"`` text leaves a doubt about the number of errors or a severity, contradicts itself, or states neither
    errors nor their absence.
    """

    status: str  # "errors", "no errors", "empty", "blocked" or "unreadable"
    errors: tuple[MQMError, ...] = ()  # in the order of the text; empty unless the status is "errors"


def mqm_score(errors: Iterable[MQMError], *, critical: float = -5.0) -> float:
    """Add up the weights of the errors, -5 for a major and -1 for a minor one: points in [-25, 0].

    This is the score of Xu et al. (2024, section 4.1); their best-of-k run with k = 1 used -10 for a critical error.

    Examples:
        >>> mqm_score([MQMError("major"), MQMError("minor"), MQMError("minor")])
        -7.0
    """
    weights = {"critical": critical, "major": -5.0, "minor": -1.0}
    return max(-25.0, float(sum(weights[error.severity] for error in errors)))


# Lists of errors. What is not an error in one of these layouts, where SEVERITY is critical, major or minor, a statement
# that there are none, or a heading makes a text unreadable:
#
# - one error per line: ``'span' is a SEVERITY CATEGORY/SUBCATEGORY error`` (Xu et al. 2024);
# - sections, ``SEVERITY:`` above ``CATEGORY/SUBCATEGORY - 'span'`` or ``no-error`` (GEMBA-MQM, Kocmi et al. 2023).


_SEVERITY = r"(?P<severity>critical|major|minor)"
_KIND = r"(?P<kind>[^\W\d][^'\"\u2018-\u201e\n.,;:!?]{0,80}?)"
_MARK = r"['\"\u2018-\u201e`]"
_QUOTED = r"(?:['\u2018`](?P<single>.+)['\u2019`]|[\"\u201c\u201e](?P<double>.+)[\"\u201d\u201c])"
_END = r"[^\w'\"\u2018-\u201e`]*$"
_WHY = r"(?:[,.]? (?:(?:as|because|since) |it should|this |the (?:correct|translation) )(?P<why>.*))?"
_MARKUP = re.compile(r"```\w*|\*\*|__|(?m:^[ \t]*#+[ \t]*)")
_BULLET = re.compile(r"^\s*(?:[-*\u2022\u2013+]|\(?(?:\d{1,2}|[a-z])[.):])\s+")
_NEXT = re.compile(r"(?<=error)s?[.;,]?\s+(?:and\s+)?(?=['\"\u2018\u201c\u201e`])")
"""Beginning of a second error on a line of a list."""
_LISTED = re.compile(
    rf"^\s*{_QUOTED}\s+(?:is|are|was|were)(?: considered)?\s*an?\s*{_SEVERITY}(?:\s+(?!err|mistake){_KIND})?"
    rf"(?P<noun> (?:err+or|mistake)s?)?{_WHY}\W*$",
    re.IGNORECASE,
)
_STATED = re.compile(
    rf"^(?:[^'\"]* )?(?:there is|translation (?:is|has|contains)) an? {_SEVERITY}(?: {_KIND})?(?P<noun> error)"
    rf"(?: in (?:the|this) translation)?{_WHY}\W*$",
    re.IGNORECASE,
)
"""Error without its place, such as ``The translation is a critical non-translation error``."""
_MORE = re.compile(r"\b(?:critical|major|minor|errors?|mistakes?|also|too|another|as well)\b", re.IGNORECASE)
"""Words that may report a further error."""
_CATEGORIES = (
    *("accuracy", "fluency", "style", "terminology", "locale", "non-translation", "other", "addition", "omission"),
    *("mistranslation", "untranslated", "grammar", "spelling", "punctuation", "register", "inconsisten", "awkward"),
    *("inappropriate", "character encoding"),
)
_CATEGORY = re.compile(rf"(?:{'|'.join(_CATEGORIES)})(?!.* (?:and|&) )", re.IGNORECASE)
_SECTION = re.compile(rf"^\W*{_SEVERITY}(?: severity)?(?: errors?)?\s*[:\uff1a]\s*(?P<rest>.*)$", re.IGNORECASE)
_BELOW = re.compile(
    rf"^(?:{_KIND}\s*[-:\u2013]\s*)?{_QUOTED}{_END}|^(?P<alone>[^\W\d][\w-]*(?: [\w-]+)?(?:/[\w -]+)?)\W*$",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    rf"{_MARK}\s*(?:[,;.&/|:(-]|(?:and|or|is|are|was|should|instead|in)\b|$)|(?:^|\s){_MARK}", re.IGNORECASE
)
"""Marks inside a quotation that end it and begin another."""
_NOTHING = re.compile(
    r"^\W*(?:(?:there (?:is|are|were) |(?:the|this) translation (?:is (?:(?!not )\w+ )*)?"
    r"(?:contains?|has|with|and contains) )?"
    r"(?:no[- ]errors?|none|n/?a|nil|no|nothing)(?: (?:was |were |are )?(?:found|identified|detected))?"
    r"(?: in (?:the|this|either)? ?(?:\w+ )?(?:translation|text|output))?)(?:\W*\(?no-errors?)?\W*$"
    r"|^(?:the|this) translation (?:does not|doesn't) (?:contain|have) any errors?\W*$",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^\W*(?:mqm )?(?:error )?(?:annotations?|errors?|mqm|feedback|answer|output)\s*:?\W*$"
    r"|^\W*$|^improved translation:",
    re.IGNORECASE,
)
_BLOCKED = re.compile(
    r"\bblocked\b|\bcontent (?:filter|policy)|\b(?:i'?m|i am) (?:sorry|unable|not able)\b"
    r"|\bi (?:cannot|can't)\b(?! (?:find|see))",
    re.IGNORECASE,
)
_TORN = re.compile(
    rf"^(?!.*\b(?:critical|major|minor)\b)\s*{_MARK}(?:[^'\"\u2018-\u201e`]|(?<=\w)['\u2019](?=\w))*"
    rf"(?:{_MARK}(?: (?:is|are)(?: an?(?: [cm][a-z]{{0,6}})?)?)?)?$",
    re.IGNORECASE,
)
"""A last line that breaks off before its severity, or inside it, as at the length limit."""


def read_mqm(text: str | None) -> MQMReading:
    """Read the errors of a feedback text and classify the text; None or blank text is ``"empty"``.

    A last line that breaks off before its severity, as at the length limit, is left out. A text of more than
    ``LONGEST`` characters is unreadable.

    Examples:
        >>> read_mqm("'cat' is a major accuracy/mistranslation error").errors[0].subcategory
        'mistranslation'
        >>> [read_mqm(t).status for t in ("no-error", " ", "blocked", "1. 2. 3.", "no major errors")]
        ['no errors', 'empty', 'blocked', 'unreadable', 'unreadable']
    """
    if text is None or not text.strip():
        return MQMReading("empty")
    if len(text) > LONGEST:
        return MQMReading("unreadable")
    bare = _MARKUP.sub("", text).strip()
    errors: list[MQMError] = []
    denied: set[str] = set()
    section, nothing = "", False
    lines = [_BULLET.sub("", line).strip() for line in bare.split("\n") if line.strip()]
    for number, line in enumerate(lines, start=1):
        if heading := _SECTION.match(line):
            section, line = heading["severity"].lower(), heading["rest"].strip()
        if _LABEL.match(line):
            continue
        if _NOTHING.match(line):
            denied, nothing = denied | {section}, nothing or not section
            continue
        entries = [line] if section else _NEXT.split(line)
        for place, entry in enumerate(entries, start=1):
            last = number == len(lines) and place == len(entries)
            if error := _below(entry, section) if section else _listed(entry, last=last):
                errors.append(error)
            elif not (last and errors and _TORN.match(entry)):
                return MQMReading("blocked" if _BLOCKED.search(bare) else "unreadable")
    if any(error.severity in denied for error in errors) or (nothing and errors):
        return MQMReading("unreadable")  # contradicts itself
    if errors:
        return MQMReading("errors", tuple(errors))
    return MQMReading("no errors" if nothing or denied == {*SEVERITIES} else "unreadable")


def _listed(entry: str, *, last: bool) -> MQMError | None:
    """Read ``'span' is a SEVERITY CATEGORY/SUBCATEGORY error``, or an error without a place; None for anything else."""
    match = _LISTED.match(entry) or _STATED.match(entry)
    if match is None or _MORE.search(match["why"] or ""):
        return None
    span, kind = (match["single"] or match["double"]) if match.re is _LISTED else None, match["kind"] or ""
    begun = last and len(kind) > 2 and any(name.startswith(kind.lower()) for name in _CATEGORIES)  # breaks off
    if (
        not (_CATEGORY.match(kind) or not kind or match["noun"] or begun)
        or (span and _SEVERAL.search(span))
        or re.search(_SEVERITY, kind, re.IGNORECASE)
    ):
        return None  # its words describe no error, or several
    return _error(match["severity"], span, kind)


def _below(entry: str, severity: str) -> MQMError | None:
    """Read ``CATEGORY/SUBCATEGORY - 'span'``, or either part of it, below a severity; None for anything else."""
    match = _BELOW.match(entry)
    if match is None or re.search(_SEVERITY, entry, re.IGNORECASE):
        return None
    span, kind = match["single"] or match["double"], match["kind"] or match["alone"] or ""
    if (span and _SEVERAL.search(span)) or (kind and not _CATEGORY.match(kind)):
        return None
    return _error(severity, span, kind)


def _error(severity: str, span: str | None, kind: str) -> MQMError:
    category, _, subcategory = re.sub(r"\s*err+ors?$", "", kind).strip(" /-").partition("/")
    return MQMError(severity.lower(), span, category.strip(), subcategory.strip())
