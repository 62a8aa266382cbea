"""Texts of the data as a terminal and a page may show them."""

from __future__ import annotations

import re

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: object) -> str:
    """Replace the characters of a text that a terminal obeys, or that no UTF-8 file can hold, by a sign."""
    return _HIDDEN.sub("\ufffd", str(text))
