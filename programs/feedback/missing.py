r"""Read which concepts an answer names as missing: "all covered", a list in any layout, or a short sentence.

Nothing is missing only where the answer says so and nothing else. An answer that names a concept among words that are
not understood, contradicts itself, or names no concept is unreadable.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from evalbias.measures.mqm import LONGEST

# Parts of sentences.
_NOUN = r"(?:concepts?|words?|keywords?|items?)"
_OF_THEM = (
    r"(?: of)?(?: (?:the|them|these|those|given|specified|required|listed|provided|input|two|three|four|five|\d+))*"
)
_ALL = rf"(?:(?:all|every one|each){_OF_THEM}(?: {_NOUN})?|every (?:\w+ )?{_NOUN}|everything)"
_BE = r"(?:is|are|was|were|has been|have been)"
_COVERED = r"(?:covered|included|present|mentioned|contained|used|there)"
_TEXT = r"(?:the|this) (?:\w+ )?(?:sentence|text|output|draft)"

# Answers that nothing is missing.
_ALL_ARE_COVERED = rf"{_ALL} (?:{_BE} )?(?:all )?{_COVERED}(?: (?:in|by) {_TEXT})?"
_COVERS_ALL = rf"(?:(?:{_TEXT}|it) )?(?:covers|includes|contains|mentions|uses) {_ALL}"
_NONE_IS_MISSING = (
    rf"(?:there {_BE} )?(?:none|nothing|no(?: missing)? {_NOUN})"
    rf"(?:(?: of (?:them|(?:the|these|those) {_NOUN}))? (?:{_BE} )?missing)?"
)
_SAID = rf"(?:(?:yes|no)[,.] )?(?:{_ALL_ARE_COVERED}|{_COVERS_ALL}|{_NONE_IS_MISSING})|no|n/a|nil"
_EMPTY_LIST = r"\s*(?:\[\s*\]|\(\s*\))\s*"
_NOTHING = re.compile(rf"\W*(?:{_SAID})\W*|{_EMPTY_LIST}", re.IGNORECASE)

# Words around a list of missing concepts.
_YES_OR_NO = re.compile(r"^(?:yes|no)[,.] ", re.IGNORECASE)
_LABEL = re.compile(
    r"^(?![^:]*\b(?:no|not|nothing|none)\b)(?=([^,\n:\[]*?\bmissing\b))\1[^,\n:\[]*(?::|\bare\b|\bis\b)", re.IGNORECASE
)  # the first "missing" alone is tried: the lookahead never goes back
_LEAVES_OUT = re.compile(
    rf"^(?:{_TEXT}|it) (?:(?:does not|doesn't|fails to) (?:cover|include|contain|mention|use)|lacks|omits|misses"
    r"|leaves out|is missing):? ",
    re.IGNORECASE,
)
_THE_CONCEPTS = re.compile(rf"^(?:the (?:following )?{_NOUN}:? |{_NOUN} (?=[\"'\u2018\u201c]))", re.IGNORECASE)
_IS_MISSING = re.compile(
    rf"(?<![\s:(\u2013-])[\s:(\u2013-]*(?:\b{_BE} )?(?:missing|not {_COVERED})(?: (?:in|from|by) {_TEXT})?\W*$",
    re.IGNORECASE,
)

# The layout of a list.
_MARKUP = re.compile(r"\*\*|__|```\w*")
_BREAK = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+|[,;|/&\n\u2022]|\band\b|[.!]\s", re.MULTILINE | re.IGNORECASE)
_AROUND = " \t.!:*-+\u2013\u2022'\"`\u2018\u2019\u201c\u201d()[]{}"
_MARK = 0xE000  # the first of the private characters that stand for concepts


def read_missing(text: str, concepts: Sequence[str]) -> list[str] | None:
    r"""Read the missing concepts from a written answer, in the order of ``concepts``.

    The answer may say that all are covered, or be a Python list, or concepts in bullets, numbers, or a row, also in a
    sentence such as "The text does not mention dog." or after a label such as "Missing:". Entries without a concept are
    ignored. An entry with a concept among other words makes the answer unreadable, as does an entry that says that all
    are covered, and more than ``LONGEST`` characters.

    Returns:
        The missing concepts; an empty list if the answer says that none is missing; None if it is unreadable. A Python
        list that names other words only says that something is missing too, and is returned as it is.

    Examples:
        >>> read_missing("1. dog\n2. cat", ["dog", "park"]), read_missing("all covered", ["dog", "park"])
        (['dog'], [])
        >>> print(read_missing("All covered except dog.", ["dog", "park"]))
        None
    """
    if len(text) > LONGEST:
        return None
    answer = _MARKUP.sub("", re.sub("[\ue000-\uf8ff]", "", text)).strip()
    listed = _without_sentence(answer)
    if _NOTHING.fullmatch(answer) or _NOTHING.fullmatch(listed):
        return []
    words = _python_list(listed)
    if words is not None and len(words) == 1 and _NOTHING.fullmatch(words[0]):
        return []
    # A concept may hold "and" or a comma, so concepts become marks before the list is cut; longer ones come first.
    marks = {concept.lower(): chr(_MARK + n) for n, concept in enumerate(dict.fromkeys(concepts))}
    pattern = "|".join(re.escape(concept) for concept in sorted(marks, key=len, reverse=True)) or "(?!)"
    entries = []
    for part in [listed] if words is None else words:
        marked = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda m: marks[m.group().lower()], part, flags=re.IGNORECASE)
        entries += [_IS_MISSING.sub("", entry).strip(_AROUND) for entry in _BREAK.split(marked)]
    named = {entry for entry in entries if entry in marks.values()}
    rest = [entry for entry in entries if entry not in named]
    if any(_NOTHING.fullmatch(entry) or any(mark in entry for mark in marks.values()) for entry in rest):
        return None
    return [concept for concept in concepts if marks[concept.lower()] in named] or words or None


def _without_sentence(answer: str) -> str:
    """Return an answer without the words before and after its list."""
    for words in (_YES_OR_NO, _LABEL, _LEAVES_OUT, _THE_CONCEPTS, _IS_MISSING):
        answer = words.sub("", answer, count=1).strip()
    return answer


def _python_list(text: str) -> list[str] | None:
    """Return the words of a Python list, without empty ones; None if the text is something else."""
    try:
        words = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: lists nested too deep
        return None
    return [str(word) for word in words if str(word).strip()] if isinstance(words, list | tuple | set) else None
