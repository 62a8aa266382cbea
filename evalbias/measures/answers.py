"""Answers to mathematics problems: read the boxed answer, and compare two answers by value."""

from __future__ import annotations

import re
from fractions import Fraction

MOST_DIGITS = 1_000
"""Longest answer that is read as a number; Python refuses to convert more than 4,300 digits."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_NUMBER = re.compile(r"([+-]?)\(?(-?(?:\d+\.?\d*|\.\d+))\)?(?:/\(?(-?(?:\d+\.?\d*|\.\d+))\)?)?")
_NOISE = re.compile(r"\\(?:left|right|,|!|;|:|quad|\$|%)|[\s$%]|\^\s*\{?\\circ\}?")
_GROUP = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"\\[dt]?frac{_GROUP}{_GROUP}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_UNIT = re.compile(rf"(?<=[\d}}\s])\\(?:text|mathrm|textrm|mbox){_GROUP}\s*$")
"""Pattern of a unit after a number, which is not part of the value."""
_WORDS = re.compile(rf"\\(?:text|mathrm|textrm|textbf|mathbf|mbox){_GROUP}")
_ALIASES = {r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne"}


def boxed_answer(text: str) -> str | None:
    r"""Extract the content of the last ``\boxed{...}`` in a solution.

    Returns:
        The content without surrounding spaces; None if there is no box, it is empty or its braces do not close.

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
    r"""Compare two answers as numbers or, where one is not a number, as text without spaces and layout.

    Numbers are compared exactly, as fractions. No algebra is done: ``x+1`` and ``1+x`` differ.

    Examples:
        >>> same_value(r"\frac{1}{2}", "0.5"), same_value("1,000", "1000"), same_value("x+1", "x + 1")
        (True, True, True)
        >>> same_value("1/3", "0.33")
        False
    """
    a, b = _plain(first), _plain(second)
    (a_variable, a), (b_variable, b) = _split_assignment(a), _split_assignment(b)
    if a_variable and b_variable and a_variable != b_variable:
        return False
    a_number, b_number = _number(a), _number(b)
    return a_number == b_number if a_number is not None and b_number is not None else a == b


def _plain(text: str) -> str:
    bare = _WORDS.sub(r"\1", _UNIT.sub("", text.strip().rstrip(".")))
    bare = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", bare))
    for long, short in _ALIASES.items():
        bare = re.sub(re.escape(long) + r"(?![a-zA-Z])", re.escape(short), bare)
    return _NOISE.sub("", bare).rstrip(".")


def _split_assignment(text: str) -> tuple[str, str]:
    """Split ``x=3`` into variable and value; the variable is empty where the answer names none."""
    match = re.fullmatch(r"([a-zA-Z])=(.*)", text)
    return (match[1], match[2]) if match else ("", text)


def _number(text: str) -> Fraction | None:
    bare = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    match = _NUMBER.fullmatch(bare)
    if not match or len(bare) > MOST_DIGITS:
        return None
    sign, numerator, denominator = match.groups()
    if denominator is not None and not Fraction(denominator):
        return None
    value = Fraction(numerator) / Fraction(denominator or 1)
    return -value if sign == "-" else value
