"""Formulas of the site: GitHub's form, a dollar sign around a code span, becomes MathML, which needs no script.

Markdown would take a formula at the beginning of a line for a block. So it sees the formula's letters as numbers only.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r"\$`(.+?)`\$", flags=re.DOTALL)
_HIDDEN = re.compile("\ue000([0-9a-f]+)\ue001")  # private-use characters, which no page holds


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Hide the formulas of a page from Markdown."""
    return _FORMULA.sub(lambda found: f"\ue000{' '.join(found[1].split()).encode().hex()}\ue001", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Write them as MathML."""
    return _HIDDEN.sub(lambda found: convert(bytes.fromhex(found[1]).decode()), html)
