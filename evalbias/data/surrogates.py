"""Lone surrogates: halves of UTF-16 pairs, which JSON can escape but no tokenizer takes."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def lone_surrogate(text: str) -> str | None:
    r"""Describe the first lone surrogate of a text; None if there is none.

    Example:
        >>> lone_surrogate("ab\ud800c")
        'the lone surrogate U+D800 at character 3'
    """
    match = _SURROGATE.search(text)
    return None if match is None else f"the lone surrogate U+{ord(match.group()):04X} at character {match.start() + 1}"
