"""Texts of the data as a terminal and a page may show them."""

from __future__ import annotations


def visible(text: object) -> str:
    """Replace the control characters of a text, which a terminal obeys and HTML cannot hold, by a sign."""
    return "".join(c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\ufffd" for c in str(text))
