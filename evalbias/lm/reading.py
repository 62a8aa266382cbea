"""The choice that a written answer names, read strictly: an answer that is not clear is read as none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_MARKS = " \t*_`'\"().:;,!#"
"""Characters that may stand around an answer."""

_AFTER_NAMES = "is|wins|beats|and|or|over|than"
"""Words that follow the name of a choice, but no article."""

_DOUBT = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|unable|unsure|worse|worst|weaker|inferior|lower|below|less|except)\b|n't\b",
    re.IGNORECASE,
)
"""Words that may turn an answer into its opposite."""


def named_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice that a written answer names; None if it names none, or several.

    The first line counts if it names exactly one choice, else the whole text. A choice must stand as a word of its
    own. A letter may be the article instead, as in "A better text is B", so that no choice counts as named where a
    lowercase word follows, except words such as "is" and "and". The end of a scale is not an answer, as the 5 in "4/5"
    and "4 of 5", nor are those of a range, as in "4-5". Choices of several letters match in upper and lower case.

    A text that denies, compares downward or abstains ("A is worse", "not a 5") names none.

    Examples:
        >>> named_choice("**B** is better.", ["A", "B"]), named_choice("4 out of 5", ["4", "5"])
        ('B', '4')
        >>> named_choice("A and B are equal", ["A", "B"]) is None
        True
    """
    by_name = {choice.casefold(): choice for choice in choices}
    lines = text.strip().splitlines() or [""]
    for part in (lines[0].strip(_MARKS), text):
        if part in choices:
            return part
        matches = _pattern(tuple(choices)).findall(part)
        names = {by_name[match.casefold()] for match in matches}
        if len(names) == 1:
            return None if _doubtful(part, matches[0]) else names.pop()
    return None


def _doubtful(text: str, name: str) -> bool:
    """Return whether a text that names one choice may mean another: "A is worse", "not a 5", "2 below the best".

    An answer that begins with the choice and a punctuation mark is clear, whatever follows.
    """
    return _DOUBT.search(text) is not None and not re.match(rf"{re.escape(name)}\s*[.,:;)!]", text.strip(" *_`'\"("))


@cache
def _pattern(choices: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a choice that stands as a name; the longest of several that match is taken."""
    words = sorted(choices, key=len, reverse=True)
    names = "|".join(re.escape(c) if len(c) == 1 else f"(?i:{re.escape(c)})" for c in words)
    number = all(re.fullmatch(r"-?\d+", c) for c in choices)
    after = r"(?!\.\d)(?!\s*[-\u2013\u2014]\s*\d)" if number else rf"(?!/)(?!\s+(?!(?:{_AFTER_NAMES})\b)[a-z])"
    return re.compile(rf"(?<![\w./-])(?<!\bof )({names})(?!\w){after}")
