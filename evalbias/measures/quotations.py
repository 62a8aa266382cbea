"""Set quotations apart from the words of a feedback text, so that quoted words are never read as a verdict."""

from __future__ import annotations

import re

FIRST = 0xE000
MASKS = "\ue000-\uf8ff"
"""Characters that stand for quotations, as a range within a regular expression's brackets: the private use area."""
QUOTATION = f"[{MASKS}]"
"""Regular expression of one masked quotation."""
LONGEST_QUOTATION = 500
"""Most characters of a quotation, so that a mark that is never closed costs no more; the longest recorded has 155."""

_MARKS = (
    ("'\u2018\u201a`\u00b4", "'\u2019`\u00b4"),
    ('"\u201c\u201e\u00ab', '"\u201d\u201c\u00bb'),
    ("\u300c\u300e", "\u300d\u300f"),
)
_GOES_ON = (
    r"(?=\s*(?:[.,;:!?()\[\]/|=>\u2013\u2014-]|$|(?:is|are|was|were|has|have|should|could|must|may|can|in|by|as|and|or|but"
    r"|with|to|of|for|means?|does|do|did|contains?|represents?|constitutes?|on|at|that|which|instead|critical|major"
    r"|minor)\b))"
)


def _quotation(opening: str, closing: str) -> str:
    """Return the expression of a quotation between two kinds of marks; the text is its only matching group.

    Apostrophes may stand inside, so a mark after which the sentence goes on is preferred as the closing one. The text
    up to it holds no severity, and no end of a quotation that is followed by the beginning of the next one.
    """
    next_one = rf"[{closing}](?!\w)[^\n{closing}]*(?<![^\s(\[,;:/-])[{opening}](?=\S)"
    text = rf"(?:(?!\b(?:critical|major|minor)\b|{next_one})[^\n]){{1,{LONGEST_QUOTATION}}}?"
    return (
        rf"(?<!\w)[{opening}](?:({text})[{closing}](?!\w){_GOES_ON}|([^\n]{{1,{LONGEST_QUOTATION}}}?)[{closing}](?!\w))"
    )


_QUOTATION = re.compile("|".join(_quotation(*marks) for marks in _MARKS), re.IGNORECASE | re.MULTILINE)
UNCLOSED = re.compile(rf"^\W*?[{_MARKS[0][0]}{_MARKS[1][0]}]")
"""Start of a line whose quotation was never closed."""


def mask_quotations(text: str) -> tuple[str, list[str]]:
    """Replace every quotation by one character that ``QUOTATION`` matches.

    Returns:
        The masked text, and the quoted texts; ``quoted`` finds the text of a masked quotation in them.

    Raises:
        OverflowError: The text has more than 6,400 quotations.
    """
    spans: list[str] = []

    def mask(match: re.Match[str]) -> str:
        spans.append(next(group for group in match.groups() if group is not None))
        if len(spans) > 6_400:
            raise OverflowError("more than 6,400 quotations")
        return chr(FIRST + len(spans) - 1)

    return _QUOTATION.sub(mask, re.sub(QUOTATION, "", text)), spans


def quoted(mask: str, spans: list[str]) -> str:
    """Return the text that a masked quotation stands for."""
    return spans[ord(mask) - FIRST]
