"""Show a result in a notebook as the blocks of the report."""

from __future__ import annotations

from typing import Any

from evalbias.evaluation.audit import Audit
from evalbias.report.html.blocks import Section, Words
from evalbias.report.html.page import fragment
from evalbias.report.html.sections import Context, sections


def view(result: Any) -> str:
    """Return a measurement, a comparison or an audit as HTML."""
    shown = [*sections(result, Context(several=True))]
    if isinstance(result, Audit):
        shown.insert(0, Section(result.judge, [Words(result.verdict.sentence)]))
    return fragment(shown)
