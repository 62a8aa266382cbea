"""Answers of mathematics: what stands in the box, and whether two of them are the same value."""

from __future__ import annotations

import re
from fractions import Fraction

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_NUMBER = re.compile(r"([+-]?)\(?(-?(?:\d+\.?\d*|\.\d+))\)?(?:/\(?(-?(?:\d+\.?\d*|\.\d+))\)?)?")
_NOISE = re.compile(
    r"\\(?:left|right|,|!|;|:|quad|text\s*\{[^{}]*\}|mathrm\s*\{[^{}]*\}|\$|%)|[\s$%]|\^\s*\{?\\circ\}?"
)


def boxed_answer(text: str) -> str | None:
    r"""What the last ``\boxed{...}`` holds; None without one, or where its braces do not close.

    Examples:
        >>> boxed_answer(r"so it is \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
    """
    starts = [match.end() for match in _BOX.finditer(text)]
    if not starts:
        return None
    depth, start = 1, starts[-1]
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start:place].strip() or None
    return None


def same_value(first: str, second: str) -> bool:
    r"""Whether two answers are the same number, or the same text without spaces and layout.

    Examples:
        >>> same_value(r"\frac{1}{2}", "0.5"), same_value("1,000", "1000"), same_value("x+1", "x + 1")
        (True, True, True)
        >>> same_value("1/3", "0.33")
        False
    """
    a, b = _number(first), _number(second)
    if a is not None and b is not None:
        return a == b
    return _plain(first) == _plain(second)


def _plain(text: str) -> str:
    bare = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", text))
    bare = _NOISE.sub("", bare).rstrip(".")
    return bare.partition("=")[2] if re.match(r"^[a-zA-Z]=", bare) else bare


def _number(text: str) -> Fraction | None:
    bare = re.sub(r"(?<=\d),(?=\d{3}\b)", "", _plain(text))
    match = _NUMBER.fullmatch(bare)
    if not match:
        return None
    sign, top, bottom = match.groups()
    if bottom is not None and not Fraction(bottom):
        return None
    value = Fraction(top) / Fraction(bottom or 1)
    return -value if sign == "-" else value
