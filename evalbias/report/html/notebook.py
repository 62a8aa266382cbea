"""What a notebook shows of a result: the blocks of the report."""

from __future__ import annotations

from typing import Any

from evalbias.report.html.page import fragment
from evalbias.report.html.sections import Context, sections


def view(result: Any) -> str:
    """Return a measurement or a comparison as HTML."""
    return fragment([*sections(result, Context(several=True))])
