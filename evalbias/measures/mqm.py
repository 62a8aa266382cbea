"""MQM feedback: errors read from text, and their score."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from evalbias.measures.mqm_items import items, reports_more
from evalbias.measures.mqm_severities import SEVERITY, Mention, mentions
from evalbias.measures.mqm_verdicts import ERRORS, NUMBER, faults_a_quotation, number_of, stated_total, verdict
from evalbias.measures.quotations import MASKS, QUOTATION, UNCLOSED, mask_quotations, quoted

# MQM errors and their score (Freitag et al. 2021; Xu et al. 2024, section 4.1).


STATUSES = ("errors", "no errors", "empty", "blocked", "unreadable")
LONGEST = 20_000
"""Most characters of an answer that is read. No list of errors is that long: the longest of 19,700 recorded answers has
1,072 characters, but a model that repeats itself up to the length limit writes any number of them."""


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


# Read InstructScore reports: numbered errors, each with a type, a severity and a location (Xu et al. 2023).


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


# Read MQM feedback: which errors does a judge report, or does it state that there are none?
#
# Layouts that are understood, where SEVERITY is critical, major or minor:
#
# * a list, ``'span' is a SEVERITY CATEGORY/SUBCATEGORY error`` (Xu et al. 2024);
# * sections, ``SEVERITY:`` followed by their errors or by ``no-error`` (GEMBA-MQM, Kocmi and Federmann 2023), where a
#   line may list several errors (see ``mqm_items``);
# * compact lists, ``'span' - SEVERITY/CATEGORY; ...`` (AutoMQM, Fernandes et al. 2023), in any order of their parts;
# * prose, such as "There are two major errors." or "a minor mistranslation of 'cat'".
#
# Every severity outside of quotations must be accounted for, as a certain number of errors or as a denial, and every
# quotation as an error, its correction or a comment. A text that leaves one open, contradicts itself, or reports an
# error without its severity is unreadable: never perfect, and never an error short.


SEVERITIES = ("critical", "major", "minor")

_FENCE = re.compile(r"```\w*")
_MARKUP = re.compile(r"\*\*|__|(?m:^[ \t]*#+[ \t]*)")
_BULLET = re.compile(r"^\s*(?:[-*\u2022\u2013+]|\(?(?:\d{1,2}|[a-z])[.):])\s+")
_HEADING = rf"(?:critical|major|minor)(?:\s+(?:severity\s+)?{ERRORS})?\s*(?:\(\d{{1,2}}\)\s*)?[:\uff1a]"
_INLINE_HEADING = re.compile(rf"(?<!\s)\s*[/;|.,]\s*(?={_HEADING})", re.IGNORECASE)
_SECTION = re.compile(
    rf"^[\s(\[]*{SEVERITY.pattern}(?:\s+(?:severity\s+)?{ERRORS})?\s*(?:\((?P<number>\d{{1,2}})\)\s*)?[:\uff1a](?P<rest>.*)$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(rf"(?<=[.!?])\s+(?=[A-Z({MASKS}\"'])|;\s*")
_LABEL = re.compile(
    r"^\W*(?:mqm )?(?:(?:error )?annotations?|errors?|mqm|feedback|answer|output)\s*:\s*(?=\S)", re.IGNORECASE
)
_NOTHING = re.compile(
    r"^\W*(?:no[- ]?errors?|none|n/?a|nil|no|nothing)(?: (?:was |were )?(?:found|identified|detected))?\W*$",
    re.IGNORECASE,
)
_MARKS = rf"[^\w{MASKS}]*"
_STATES_NUMBER = re.compile(
    rf"^{_MARKS}(?P<number>\d{{1,2}})(?: {ERRORS}\s*:\s*(?=\S)|(?: {ERRORS})?{_MARKS}$)", re.IGNORECASE
)
"""A line such as ``2`` or ``2 errors``, or the beginning of ``2 errors: 'cat', 'dog'``."""
_SEVERITY_BEGUN = r"(?:c(?:r(?:i(?:t(?:i(?:ca?)?)?)?)?)?|m(?:a(?:jo?)?|i(?:no?)?)?)"
_ARTICLE = rf"(?:an?|the)(?:\s+{_SEVERITY_BEGUN})?"
_TORN = re.compile(
    rf"^[^\w.!]*(?:(?<=\s)(?:(?:is|are|was|were)(?:\s+{_ARTICLE})?|{_ARTICLE})[^\w.!]*)?$", re.IGNORECASE
)
"""A line that breaks off before its severity, or inside it."""


def read_mqm(text: str | None) -> MQMReading:
    """Read the errors of a feedback text and classify the text.

    A last line that breaks off before its severity, as at the length limit, is left out. A text of more than
    ``LONGEST`` characters is unreadable.

    Args:
        text: Feedback as the judge wrote it; None or blank text is ``"empty"``.

    Examples:
        >>> read_mqm("'cat' is a major accuracy/mistranslation error").errors[0].subcategory
        'mistranslation'
        >>> read_mqm("No major errors, but there is a minor fluency/spelling error.").errors
        (MQMError(severity='minor', span=None, category='fluency', subcategory='spelling'),)
        >>> [read_mqm(t).status for t in ("no-error", " ", "blocked", "1. 2. 3.", "no major errors")]
        ['no errors', 'empty', 'blocked', 'unreadable', 'unreadable']
    """
    if text is None or not text.strip():
        return MQMReading("empty")
    if len(text) > LONGEST:
        return MQMReading("unreadable")
    bare = text.strip().strip("'\"\u201c\u201d`.")
    if _NOTHING.match(bare):
        return MQMReading("no errors")  # with the quotation marks of the instruction
    try:
        masked, spans = mask_quotations(_FENCE.sub("", text.strip()))
    except OverflowError:
        return MQMReading("unreadable")
    return _Reader(spans).read(masked)


def parse_mqm(text: str | None) -> list[MQMError] | None:
    """List the errors of a feedback text; None if it is empty, blocked or unreadable.

    Examples:
        >>> [e.severity for e in parse_mqm("'cat' is a minor style error")], parse_mqm("no-error"), parse_mqm("")
        (['minor'], [], None)
    """
    reading = read_mqm(text)
    return list(reading.errors) if reading.status in ("errors", "no errors") else None


@dataclass
class _Reader:
    """State of a reading.

    Attributes:
        spans: Quoted texts of the masked quotations.
        errors: Errors that were listed one by one.
        counts: Severity -> number of errors that the text states.
        denied: Severities of which the text says that there are no errors.
        verdicts: Verdicts on the sentences without a severity.
        total: Number of all errors, if the text states one.
    """

    spans: list[str]
    errors: list[MQMError] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    denied: set[str] = field(default_factory=set)
    verdicts: set[str] = field(default_factory=set)
    total: int | None = None

    def read(self, masked: str) -> MQMReading:
        """Read all lines of a masked text and put what they say together."""
        lines = _INLINE_HEADING.sub("\n", _MARKUP.sub("", masked)).split("\n")
        lines = [_BULLET.sub("", line).strip() for line in lines if line.strip()]
        section = None
        for number, line in enumerate(lines, start=1):
            last = number == len(lines)
            heading = _SECTION.match(line)
            if heading:
                section = heading["severity"].lower()
                if heading["number"]:
                    self._count(section, int(heading["number"]))
                line = heading["rest"].strip()
            if not line:
                continue
            if section is not None and not SEVERITY.search(line):
                self._item(line, section, last)
            else:
                self._sentences(line, last)
        return self._reading()

    def _item(self, line: str, severity: str, last: bool) -> None:
        """Read a line of a section."""
        stated = _STATES_NUMBER.match(line)
        if stated:
            self._count(severity, int(stated["number"]))
            line = line[stated.end() :]
        if _NOTHING.match(line):
            self.denied.add(severity)
        elif line and not (last and UNCLOSED.match(line) and not re.search(QUOTATION, line)):
            found = items(line, goes_on=any(error.severity == severity for error in reversed(self.errors)))
            for mask, kind in found or ():
                self._error(severity, mask, kind)
            self.verdicts |= {"unsure"} if found is None else set()

    def _sentences(self, line: str, last: bool) -> None:
        """Read a line of prose or of a list."""
        sentences = [part for part in _SENTENCE.split(_LABEL.sub("", line)) if part.strip()]
        for number, sentence in enumerate(sentences, start=1):
            ends = last and number == len(sentences)
            found = mentions(sentence, torn=ends and not sentence.rstrip().endswith((".", "!")))
            for mention in found:
                self._mention(mention)
            if found:
                self._rest(sentence, found)
            elif ends and (_TORN.match(sentence) or UNCLOSED.match(sentence)):
                self.verdicts.add("other")
            else:
                self.total = stated_total(sentence) if self.total is None else self.total
                judged = verdict(sentence)
                self.verdicts.add("unsure" if judged == "other" and reports_more(sentence, 0) else judged)

    def _rest(self, sentence: str, found: list[Mention]) -> None:
        """Check that a sentence with severities reports no other errors."""
        before = SEVERITY.split(sentence)[0]
        self.total = stated_total(before) if self.total is None else self.total
        number = sum(mention.number for mention in found)
        if faults_a_quotation(before) or (number and reports_more(sentence, number)):
            self.verdicts.add("unsure")

    def _mention(self, mention: Mention) -> None:
        if mention.says == "errors":
            for mask in mention.masks or [""] * mention.number:
                self._error(mention.severity, mask, mention.kind)
        elif mention.says == "count":
            self._count(mention.severity, mention.number)
        elif mention.says == "denied":
            self.denied.add(mention.severity)
        else:
            self.verdicts.add("unsure" if mention.says == "unsure" else "other")

    def _error(self, severity: str, mask: str, kind: str) -> None:
        category, _, subcategory = kind.strip(" /-").partition("/")
        span = quoted(mask, self.spans) if mask else None
        self.errors.append(MQMError(severity, span, category.strip(), subcategory.strip()))

    def _count(self, severity: str, number: int) -> None:
        if number:
            self.counts[severity] += number
        else:
            self.denied.add(severity)

    def _reading(self) -> MQMReading:
        listed = Counter(error.severity for error in self.errors)
        reported = listed | self.counts  # an error that is listed and counted is one
        contradicts = (
            any(listed[s] not in (0, n) for s, n in self.counts.items())
            or self.denied & reported.keys()
            or ("none" in self.verdicts and reported)
            or self.total not in (None, sum(reported.values()))
        )
        if "unsure" in self.verdicts or contradicts:
            return MQMReading("unreadable")
        if reported:
            counted = [MQMError(s) for s, n in self.counts.items() if not listed[s] for _ in range(n)]
            return MQMReading("errors", (*self.errors, *counted))
        if "other" not in self.verdicts and ("none" in self.verdicts or self.denied == {*SEVERITIES}):
            return MQMReading("no errors")
        return MQMReading("blocked" if "blocked" in self.verdicts else "unreadable")
