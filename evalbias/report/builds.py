"""What a build shows of an audit: a summary in Markdown, and JUnit's XML with a test for each condition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from evalbias.evaluation.audit import Audit, Audits
from evalbias.evaluation.words import Table
from evalbias.report.tables import biases_table
from evalbias.values import visible


class Outcome(NamedTuple):
    """What became of a condition: ``passed``, ``failed`` or ``undecided``."""

    criterion: str  # of an audit of several, else empty
    condition: str
    outcome: str
    why: str


def markdown(audits: Mapping[str, Audit], decisions: Sequence[Outcome]) -> str:
    """Return what was decided, and each audit's verdict and table of biases, as Markdown; no text of the data marks up.

    ``audits`` are by criterion; a single one has the name ``""``.
    """
    parts = ["## Audit of an LLM judge"]
    if decisions:
        rows = [(f"{one.criterion} {one.condition}".strip(), one.outcome, one.why) for one in decisions]
        parts.append(_table(Table(["condition", "outcome", "why"], rows, left=3)))
    if "" not in audits:
        parts.append(_plain(Audits(audits).verdict))
    for name, audit in audits.items():
        parts += [f"### {_plain(name)}"] * bool(name)
        parts += [*map(_plain, audit.paragraphs), _table(biases_table(audit))]
    return "\n\n".join(parts) + "\n"


def junit(decisions: Sequence[Outcome]) -> str:
    """Return JUnit's XML: a failed condition is a failure, an undecided one is skipped."""
    outcomes = Counter(one.outcome for one in decisions)
    counts = {"tests": len(decisions), "failures": outcomes["failed"], "skipped": outcomes["undecided"], "errors": 0}
    suite = ElementTree.Element("testsuite", {"name": "evalbias audit", **{k: str(n) for k, n in counts.items()}})
    for one in decisions:
        case = ElementTree.SubElement(
            suite, "testcase", classname=visible(one.criterion) or "audit", name=visible(one.condition)
        )
        if one.outcome != "passed":
            kind = "failure" if one.outcome == "failed" else "skipped"
            ElementTree.SubElement(case, kind, message=visible(one.why))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _table(table: Table) -> str:
    lines = [table.headings, [":--" if k < table.left else "--:" for k in range(len(table.headings))], *table.rows]
    ruled = ["| " + " | ".join(cells if n == 1 else map(_plain, cells)) + " |" for n, cells in enumerate(lines)]
    return "\n".join(ruled) + (f"\n\n{_plain(table.caption)}" if table.caption else "")


def _plain(text: str) -> str:
    """Escape what Markdown and HTML would read as marks."""
    return re.sub(r"([\\`*_\[\]<>#|~&!@$])", r"\\\1", " ".join(visible(text).split()))
