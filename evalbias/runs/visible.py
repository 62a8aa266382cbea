"""Texts of data and servers as a terminal, a page, a log or a CI job may show them."""

from __future__ import annotations

import logging
import re

SIGN = "\ufffd"
"""Stands in the place of each character that is left out."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # control characters, and no characters
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"  # direction, ends of lines, hidden letters
)
_COMMAND = re.compile(r"^([^\S\n]*):(?=:|\Z)|(#)#(?=\w*(?:\[|\Z))", re.MULTILINE)
"""``::error::`` and ``##[error]``, ``##vso[...]``: GitHub trims a line before it looks for the first, and finds the
others anywhere in it, so that an indent does not help. A text may end amid one."""


def visible(text: object) -> str:
    """Replace the characters that a terminal obeys, that reorder or hide text, or that no UTF-8 file can hold."""
    return _HIDDEN.sub(SIGN, str(text))


def without_commands(text: str) -> str:
    """Replace a character of whatever a CI job would read as a command in its log."""
    return _COMMAND.sub(rf"\1\2{SIGN}", text)


def message(text: object) -> str:
    """Return a message as it may be printed or logged: no line but the first begins with what it quotes."""
    return without_commands(visible(text).replace("\n", "\n  "))


def get_logger(name: str) -> logging.Logger:
    """Return a logger whose messages any handler of the application may print."""
    logger = logging.getLogger(name)
    logger.addFilter(_make_printable)  # once, however often it is added
    return logger


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = message(record.getMessage()), ()
    return True
