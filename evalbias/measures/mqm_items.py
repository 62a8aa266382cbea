r"""Count the errors of a line below a severity, such as ``accuracy/omission - 'cat', fluency/grammar - 'dog'``.

A line is cut into parts, where an error certainly ends (numbers, semicolons, sentences), and a part into pieces, where
one may end (a comma or "and" before a quotation or a category). The pieces of a part tell how many errors it reports:

* only quotations, ``'cat', 'dog'``: one error each;
* only pieces with a quotation and a word about it, ``'cat' (wrong), 'dog' (wrong)``: one error each;
* only categories with their subcategories, ``accuracy/omission, accuracy/addition``: one error each;
* one quotation beside one category, ``'cat', accuracy/omission``: one error.

Anything else is not certain, such as ``accuracy/omission - 'cat', 'dog'``. Quotations are masked; see ``quotations``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase
from typing import Literal

from evalbias.measures.mqm_severities import WINDOW
from evalbias.measures.mqm_verdicts import CATEGORIES, ERRORS, verdict
from evalbias.measures.quotations import QUOTATION as Q

# Where a line is cut.
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?]\s+")
_NUMBER = re.compile(r"(?<![^\s,:])\(?(?P<number>\d{1,2}|[a-h])[.)]\s*(?=\S)")
_COORDINATOR = r"(?:,\s*(?:and\b|&|plus\b)?|\band\b|&|\+|\bplus\b|\bas well as\b)"
_JOINT = re.compile(rf"\s*{_COORDINATOR}\s*(?=(?:(?:an?|the)\s+)?(?:{Q}|{CATEGORIES}\b))", re.IGNORECASE)

# What a piece holds besides its quotation.
_ANY_WORD = re.compile(r"[\w(]")
_CATEGORY = re.compile(
    rf"\b{CATEGORIES}[a-z]*(?:[ /]+(?!(?:of|in|at|on|is|was|are|were)\b)[a-z-]*[a-z])*", re.IGNORECASE
)
_SUBCATEGORY = re.compile(rf"\b{CATEGORIES}\s*/", re.IGNORECASE)
_ONE_ERROR = re.compile(r"/|\b(?:addition|omission|mistranslation|typo|misspelling)\b", re.IGNORECASE)
"""A category so exact that two of them are two errors."""
_ERROR_LABEL = re.compile(r"^\W*error \d+\s*:", re.IGNORECASE)
_FIELD = re.compile(r"^\W*(?:error )?(?:span|location|category|type)\b", re.IGNORECASE)
"""The label of a part of an error: two such lines may be one error."""

# Which words say that a quotation is not an error itself. They end before it, or begin after it.
_SHOULD_BE = r"\b(?:should|must|could|would|ought)(?: \w+){1,3}"
_THE_CORRECT_WORD_IS = r"\bcorrect\w*(?: \w+){0,3}|\b(?:better|suggested|replaced?|expected|intended)(?: \w+){0,2}"
_INSTEAD_OF = r"\b(?:instead of|rather than|other than|not|as|to|into|than|vs\.?|versus)"
_MEANS = r"\b(?:means?|meaning|says?|reads?|because|since)"
_THE_WORD = r"(?: (?:the|an?|simply|just|word|phrase|term))*[\s:(=]*$"
_CORRECTION = re.compile(rf"(?:{_SHOULD_BE}|{_THE_CORRECT_WORD_IS}|{_INSTEAD_OF}|{_MEANS}){_THE_WORD}", re.IGNORECASE)
_OTHER_WORD = re.compile(  # the source of a quotation before, or an arrow from that one
    r"(?:[-=]>|[\u2192\u21d2=])\s*$|\b(?:source|original|reference"
    r"|(?:(?:mis)?(?:translation|spelling)|rendering|meaning|sense|form|word|term) (?:of|for))(?: \w+){0,2}[\s:(=]*$",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|although)\b", re.IGNORECASE)
_ENTRY = re.compile(r"[/|]|\s[-\u2013\u2014]\s")
"""Marks after which a reason no longer explains a quotation."""
_IS_RIGHT = re.compile(
    r"^\s*(?:is|was|would be|would have been|seems)\s+(?:the |a |more |much )*"
    r"(?:right|correct|better|expected|intended|preferred|preferable|appropriate|natural|idiomatic)\b"
    r"|^\s*in the (?:source|original|reference)\b",
    re.IGNORECASE,
)
_COMMENTING = (
    r"(?:it|this|that|which|because|since|so|as|making|causing|changing|leading|resulting|not|should|but|though|although"
    r"|where|while)\b"
)
_COMMENT = re.compile(rf"^\W*{_COMMENTING}", re.IGNORECASE)
_LISTED_WORDS = re.compile(rf",\s*(?!{_COMMENTING})\w", re.IGNORECASE)
"""Words in a row, such as ``the cat, the dog``, that may be several errors."""

# Which words report errors that are not listed one by one.
_TIMES = r"\b(?:twice|times)\b|\b\d+ ?[x\u00d7](?!\w)|\(x?\d{1,2}\)"
_NUMBER_LEFT_OPEN = rf"\b(?:several|many|multiple|various|numerous|both|few|couple|etc)\b|{_TIMES}"
_ONE_MORE = (
    r"\b(?:another|others|second one|one more|likewise)\b|\b(?:as well|too|also)\W*$"
    r"|\bthe same (?:goes|holds|applies|error|is true)\b"
)
_MORE = rf"(?:{_NUMBER_LEFT_OPEN}|{_ONE_MORE})"
_PLURAL = r"\b(?:mistakes|errors|issues|problems|omissions|additions|mistranslations|typos|misspellings)\b"
_UNLISTED = re.compile(rf"{_MORE}|{_PLURAL}", re.IGNORECASE)

# Which words report, beside an error with a severity, one without: "and a serious omission".
_SEVERITY = r"(?:critical|major|minor)\b"
_RATED_LATER = rf"\W*(?:(?:is|was|are|were)\s+(?:an?\s+)?)?{_SEVERITY}"
_BESIDE = rf"(?:{_COORDINATOR}|\bbesides\b)\s*(?:(?:there|it) (?:is|are|was|were|has) )?(?:also )?"
_KIND = r"(?:omissions?|additions?|mistranslations?|typos?|misspellings?)\b"
_SOME_ERROR = (
    rf"(?:an?|some|one|two|three)\s+(?:(?!{_SEVERITY})[\w/]+\s+){{0,2}}(?:{ERRORS}\b|{_KIND})(?!{_RATED_LATER})"
)
_UNRATED = re.compile(
    rf"{_MORE}(?!\s+(?:\w+\s+){{0,2}}{_SEVERITY})|{_BESIDE}(?:{_SOME_ERROR}|{_KIND}(?!\s+{ERRORS}))", re.IGNORECASE
)


def items(line: str, *, goes_on: bool) -> list[tuple[str, str]] | None:
    """Read the errors of a line that names no severity.

    Args:
        line: Masked line below a severity.
        goes_on: Whether an error was listed before, so that the line may only comment on it.

    Returns:
        Masked quotation and category of each error, each empty if there is none; None if their number is not certain.
    """
    errors: list[tuple[str, str]] = []
    for part in _parts(line):
        part = _ERROR_LABEL.sub("", part)
        if verdict(part) == "label" and not _FIELD.match(part):
            continue  # a heading or an explanation
        found = None if _FIELD.match(part) else _errors(part)
        if found is None or not (found or errors or goes_on):
            return None
        errors += found
    return errors


def reports_more(sentence: str, number: int) -> bool:
    """True if a sentence may report more errors than the ``number`` that its severities report."""
    quotations = sum(len(_wrong(piece)) for piece in _pieces(sentence))
    return quotations > number or _UNRATED.search(sentence) is not None


def _parts(line: str) -> list[str]:
    """Cut a line where an error certainly ends."""
    clauses = [clause for entry in _numbered(line) for clause in entry.split(";")]
    return [part for clause in clauses for part in _SENTENCE_END.split(clause) if part.strip(" .,:")]


def _numbered(text: str) -> list[str]:
    """Cut a text at its numbers or letters if they count on from the first, or from the second after a bullet."""
    found = list(_NUMBER.finditer(text))
    order = [int(m["number"]) - 1 if m["number"].isdigit() else ascii_lowercase.index(m["number"]) for m in found]
    if not order or order != list(range(order[0], order[0] + len(order))) or order[0] > 1:
        return [text]
    bounds = [0, *(x for m in found for x in m.span()), len(text)]
    return [text[start:end].strip(" ,") for start, end in list(pairwise(bounds))[::2]]


def _pieces(part: str) -> list[str]:
    """Cut a part at the commas and "and" before a quotation or a category."""
    return [piece for piece in _JOINT.split(part) if piece.strip(" .,:")]


def _wrong(piece: str) -> list[str]:
    """Return the masked quotations that are wrong, without their corrections, sources and explanations."""
    wrong: list[str] = []
    start, explained = 0, False
    for quotation in re.finditer(Q, piece):
        before, after = piece[start : quotation.start()], piece[quotation.end() : quotation.end() + WINDOW]
        *earlier, entry = _ENTRY.split(before)
        explained = (explained and not earlier) or _REASON.search(entry) is not None
        right = _CORRECTION.search(before) or _IS_RIGHT.search(after) or explained
        if not right and not (wrong and _OTHER_WORD.search(before)):
            wrong.append(quotation.group())
        start = quotation.end()
    return wrong


@dataclass(frozen=True)
class _Piece:
    """Content of a piece: a bare quotation, a quotation with words about it, a category alone, or no error."""

    says: Literal["quotation", "described", "category", "comment"]
    mask: str = ""
    category: str = ""


def _read(piece: str) -> _Piece | None:
    """Read a piece; None if it may report several errors, or is not understood."""
    wrong, category = _wrong(piece), _CATEGORY.search(piece)
    if len(wrong) > 1 or len(_SUBCATEGORY.findall(piece)) > 1:
        return None
    name = category.group() if category else ""
    if wrong:
        return _Piece("described" if _ANY_WORD.search(re.sub(Q, "", piece)) else "quotation", wrong[0], name)
    if category:
        return None if _LISTED_WORDS.search(piece[category.end() :]) else _Piece("category", "", name)
    return _Piece("comment") if re.search(Q, piece) or _COMMENT.search(piece) else None


def _errors(part: str) -> list[tuple[str, str]] | None:
    """Return the errors of a part; None if their number is not certain."""
    read = [_read(piece) for piece in _pieces(part)]
    if _UNLISTED.search(part) or verdict(part) == "none" or None in read:
        return None
    found = [piece for piece in read if piece is not None and piece.says != "comment"]
    kinds = {piece.says for piece in found}
    if kinds == {"quotation", "category"} and len(found) == 2 and len(re.findall(Q, part)) == 1:
        return [("".join(piece.mask for piece in found), "".join(piece.category for piece in found))]
    categories_alone = kinds == {"category"} and len(found) > 1
    if len(kinds) > 1 or (categories_alone and not all(_ONE_ERROR.search(piece.category) for piece in found)):
        return None
    return [(piece.mask, piece.category) for piece in found]
