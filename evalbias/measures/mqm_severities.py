"""Find what a sentence of MQM feedback says with each severity: how many errors, or that there are none.

A severity outside of quotations reports a certain number of errors, denies them, or is not understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from evalbias.measures.mqm_verdicts import CATEGORIES, ERRORS, NUMBER, number_of
from evalbias.measures.quotations import MASKS
from evalbias.measures.quotations import QUOTATION as Q

WINDOW = 200
"""Characters before and after a severity or a quotation that are looked at: the time stays linear in the length."""


SEVERITY = re.compile(r"(?<![\w-])(?P<severity>critical|major|minor)(?![\w-])", re.IGNORECASE)

_FILLER = r"(?:(?:other|more|further|additional|different|separate|distinct|clear|obvious|potential|possible)\s+)*"
_QUOTES = rf"(?P<quotes>{Q}(?:\s*(?:,\s*and|,\s*or|,|/|&|and\b|or\b)\s*{Q})*)"
_VERB = r"(?:is|are|was|were|has|have|contains?|represents?|constitutes?)\b"
_LEAD = r"(?:\s+(?:an?|the|one|also|both|considered|likely|possibly|probably|as|in|of))*\s+"

_DENIAL = re.compile(
    r"\b(?:no|without|zero|0|free (?:of|from)|(?:not|n't|cannot|never) (?:\w+ ){0,2}?any|nor|neither)\s+"
    r"(?:(?:a|any|of|the|such|other|further|more|real|obvious|apparent|critical|major|minor|or|and|nor)[\s,/]+)*$",
    re.IGNORECASE,
)
_NOT_ONE = re.compile(r"(?:\bnot|n't)\s+(?:(?:an?|the|considered|really|exactly|necessarily)\s+)*$", re.IGNORECASE)
_SUBJECT = re.compile(
    rf"{_QUOTES}\s*(?:\([^()]*\)\s*)?(?:{_VERB}{_LEAD}|[-\u2013\u2014:(\[,=>]+\s*(?:an?\s+)?[(\[]?)$", re.IGNORECASE
)
_EARLIER_OBJECT = re.compile(rf"\b(?:in|of|at|on|with|for)\s+{_QUOTES}\s*,\s*(?:an?\s+)?$", re.IGNORECASE)
"""The quotation of the severity before, as in ``a minor error in 'cat', a major error in 'dog'``."""
_COUNTED = re.compile(rf"(?<![\w/.,-]){NUMBER}\s+{_FILLER}[(\[]?$", re.IGNORECASE)
_ABOUT = re.compile(
    r"\b(?:or|to|at (?:least|most)|about|around|roughly|up to|(?:more|fewer|less) than)\s+$", re.IGNORECASE
)
_FIELD = re.compile(r"\bseverity(?: level)?\s*[:=\u2013-]\s*[(\[]?$", re.IGNORECASE)
_CATEGORY_FIRST = re.compile(
    rf"(?:\b(?P<kind>{CATEGORIES}[a-z /&-]*?)(?P<head>\s{ERRORS})?"
    rf"|\b(?:an?|the)\s(?P<any>[a-z][a-z /-]*?)\s(?P<noun>{ERRORS}))"
    r"\s*[(,\[:\u2013\u2014/-]+\s*$",
    re.IGNORECASE,
)
_OWN_QUOTE = re.compile(rf"^[\s)\]]*[:=\u2013\u2014-]+\s*(?P<mask>{Q})")
"""The quotation of ``accuracy/omission (major): 'cat'``, after its severity."""
_EARLIER_QUOTE = re.compile(rf"{_OWN_QUOTE.pattern}|^[\s)\]]*{Q}\s*[,;]")
"""The same before another severity, also without a mark, as in ``omission (major) 'cat', style (minor) 'dog'``."""
_ARTICLE = re.compile(
    rf"(?:^[\s(\[*-]*|(?:^|[\s(\[])(?:an?|another|only|single|also)\s+{_FILLER}(?:\w+ly\s+)?)$", re.IGNORECASE
)
_HEAD = re.compile(rf"^[\s/:\])-]*(?P<kind>[^\n.;:,()\[\]{MASKS}]*?)\s*\b(?P<head>{ERRORS}|ones?)\b", re.IGNORECASE)
_KIND = re.compile(rf"^[\s/:\])-]*(?P<kind>[^\n.;:,()\[\]{MASKS}]*)", re.IGNORECASE)
_TAIL = re.compile(
    r"(?:^|\s+)(?:in|of|at|on|because|that|which|since|due|where|with|by|from|to|and|as|is)\b.*", re.IGNORECASE
)
_SHARED = re.compile(
    r"^\s*(?:,\s*and|,|and|&|/)\s*(?:an?\s+|one\s+|\d+\s+|\w+\s+)?(?:critical|major|minor)\b", re.IGNORECASE
)
_LISTED = re.compile(rf"^\s*(?:[:(\u2013-]+|in\b|of\b|are\b|namely\b)\s*{_QUOTES}", re.IGNORECASE)
_PLURAL = re.compile(
    r"(?:errors|mistakes|issues|problems|ones|omissions|additions|mistranslations|typos)\W*$", re.IGNORECASE
)
_QUOTE = re.compile(Q)


@dataclass(frozen=True)
class Mention:
    """One severity in a sentence.

    Attributes:
        says: ``"errors"`` of which each is meant, ``"count"`` of errors that may be listed elsewhere, ``"denied"``,
            ``"nothing"`` (a quotation that is no such error), or ``"unsure"``.
        severity: ``"critical"``, ``"major"`` or ``"minor"``.
        number: Number of errors.
        masks: Masked quotations of the errors, as many as there are errors, or none.
        kind: Category and subcategory as written.
    """

    says: Literal["errors", "count", "denied", "nothing", "unsure"]
    severity: str
    number: int = 0
    masks: str = ""
    kind: str = ""


def mentions(sentence: str, *, torn: bool) -> list[Mention]:
    """Read every severity of a masked sentence.

    Args:
        sentence: Sentence whose quotations are masked.
        torn: Whether the sentence may be broken off, as the last one of a text is at the length limit.
    """
    found = list(SEVERITY.finditer(sentence))
    bounds = [0, *(x for m in found for x in m.span()), len(sentence)]
    return [
        _mention(_Place(m["severity"].lower(), sentence, bounds[2 * k], *m.span(), bounds[2 * k + 3], torn))
        for k, m in enumerate(found)
    ]


@dataclass(frozen=True)
class _Place:
    """A severity in its sentence, at ``[start, end)``, between the end ``since`` and the start ``until`` of others."""

    severity: str
    sentence: str
    since: int
    start: int
    end: int
    until: int
    torn: bool

    def before(self, ending: re.Pattern[str], *, since: int = 0, until: int | None = None) -> re.Match[str] | None:
        """Search the words before the severity, or before ``until``, for what they end with."""
        end = self.start if until is None else until
        return ending.search(self.sentence, max(since, end - WINDOW), end)


def _mention(place: _Place) -> Mention:
    """Read one severity from the words before and after it."""
    severity, before = place.severity, place.before
    after = place.sentence[place.end : place.end + WINDOW]
    unsure = Mention("unsure", severity)
    if before(_DENIAL):
        return Mention("denied", severity)
    if before(_NOT_ONE):
        return Mention("nothing", severity)
    if before(_FIELD):
        return Mention("errors", severity, 1)
    noun = _noun(after)
    named, shared = noun.named, _SHARED.match(after) is not None
    if subject := before(_SUBJECT):
        masks = "".join(_QUOTE.findall(subject["quotes"]))
        if place.since and before(_EARLIER_OBJECT, since=place.since):
            masks = _first_quote(place.sentence[place.end : place.until])
        certain = (named or place.torn or not noun.kind) and noun.plural == (len(masks) > 1)
        return Mention("errors", severity, max(len(masks), 1), masks, noun.kind) if certain else unsure
    if counted := before(_COUNTED):
        certain = (named or shared) and not before(_ABOUT, until=counted.start())
        return Mention("count", severity, number_of(counted["number"])) if certain else unsure
    if first := before(_CATEGORY_FIRST):
        kind = first["kind"] or first["any"] or ""
        mask = _quote_of(place)
        plural = _PLURAL.search(kind + (first["head"] or first["noun"] or ""))
        return unsure if plural else Mention("errors", severity, 1, mask, kind)
    if noun.plural:
        listed = _LISTED.match(noun.rest)
        masks = "".join(_QUOTE.findall(listed["quotes"])) if listed else ""
        return Mention("errors", severity, len(masks), masks, noun.kind) if masks else unsure
    if not before(_ARTICLE) or not (named or shared):
        return unsure
    mask = _first_quote(place.sentence[place.end : place.until])
    announces = not mask and place.sentence.rstrip().endswith(":")
    return Mention("count" if announces else "errors", severity, 1, mask, noun.kind)


@dataclass(frozen=True)
class _Noun:
    """The words after a severity that name the error.

    Attributes:
        kind: Category as written; empty if there is none.
        named: Whether they are known to name an error: by a noun, or by a category.
        plural: Whether they name several.
        rest: Words after them.
    """

    kind: str
    named: bool
    plural: bool
    rest: str


def _noun(after: str) -> _Noun:
    head = _HEAD.search(after)
    match = head or _KIND.search(after)
    assert match is not None  # _KIND matches every text
    kind = _TAIL.sub("", match["kind"]).strip(" \t/-")
    named = head is not None or re.match(CATEGORIES, kind, re.IGNORECASE) is not None
    plural = _PLURAL.search(head["head"] if head else kind) is not None
    return _Noun(kind, named, plural, after[match.end() :])


def _quote_of(place: _Place) -> str:
    """Return the masked quotation of a severity behind its category: right after it, else the first one around it."""
    between, later = place.sentence[place.since : place.start], place.sentence[place.end : place.until]
    if own := _OWN_QUOTE.match(later):
        return own["mask"]
    if place.since:  # after another severity, which has its own quotation
        between = _EARLIER_QUOTE.sub("", between)
    return _first_quote(between, later)


def _first_quote(*texts: str) -> str:
    """Return the first masked quotation, an empty string if there is none."""
    return "".join(_QUOTE.findall("".join(texts)))[:1]
