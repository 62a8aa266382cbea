"""An audit for a terminal: the verdict, a table of biases of which 0 is none, the agreement, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.finding import Finding, is_of_bias
from evalbias.evaluation.formatting import count, counted_table, ends, joined, number, title
from evalbias.evaluation.judged import LIKELIHOODS
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.quality import rated_once
from evalbias.measures.statistic import SHARE

ROWS = 12
"""Rows of the longest table that a terminal shows."""
SHOWN = 5
"""Number of the items to label next that a terminal names."""


def audit_view(audit: Audit) -> Group:
    """Return the whole audit for a terminal."""
    first, *others = audit.verdict.paragraphs
    parts: list[object] = [Text(first, style="bold"), *([""] if others else []), *map(Text, others), ""]
    decided = {finding.bias for finding in audit.verdict.findings if finding.estimate is not None}
    if decided:
        parts.append(_biases(audit))
    further = {name: m for name, m in audit.measurements.items() if name not in decided and not is_of_bias(m)}
    for m in (m for m in further.values() if len(m.estimates) <= ROWS):
        parts += ["", m.table()]
    if audit.groups:
        parts += ["", _groups(audit.groups)]
    wide = [title(name) for name, m in further.items() if len(m.estimates) > ROWS]
    return Group(*parts, "", *map(Text, _remarks(audit, wide)))  # type: ignore[arg-type]


def _remarks(audit: Audit, wide: Sequence[str]) -> Iterator[str]:
    """Say what the likelihood is of, what was not measured, what to label next, and what is shown elsewhere."""
    if LIKELIHOODS in audit.judged.covariates and "task" in audit.provenance:
        yield f"Likelihood is that of an output after its source and the task: {audit.provenance['task']}"
    in_verdict = {finding.bias for finding in audit.verdict.having("not measured") if finding.estimate is not None}
    for bias, why in audit.not_measured.items():
        if bias not in in_verdict:
            yield f"Not measured: {title(bias)}: {why}"
    if audit.label_next:
        first = ", ".join(audit.label_next[:SHOWN])
        rest = " ... (all in result.json)" if len(audit.label_next) > SHOWN else ""
        yield f"Label {count(len(audit.label_next), 'item')} next: {first}{rest}"
    if wide:
        yield f"Numbers in result.json and the report only: {', '.join(wide)}"
    if reasons := audit.judged.reasons:
        name, why = next(iter(reasons.items()))
        yield f"The judge gave no answer to {count(len(reasons), 'item')}, such as {name}: {why}"


def _biases(audit: Audit) -> Table:
    rows = [_row(finding) for finding in audit.verdict.findings if finding.estimate is not None]
    headings = ("bias", "finding", "estimate", "95 % interval", "n", "undefined")
    table = counted_table(f"{audit.judge} on {audit.judged.criterion}", headings, rows)
    table.caption = _caption(audit)
    return table


def _caption(audit: Audit) -> str:
    """Say what 0 means, in which units the estimates are, and which items are left out."""
    units: dict[str, list[str]] = {}
    for finding in audit.verdict.findings:
        if finding.estimate is not None:
            less = f" (-{finding.tolerated:g} and more is no bias)" if finding.tolerated else ""
            units.setdefault(finding.estimate.unit + less, []).append(title(finding.bias))
    parts = ["0 is no bias", ", ".join(f"{joined(names)} {_unit(unit)}" for unit, names in units.items() if unit)]
    once = rated_once(audit.judged)
    parts.append(f"effects at equal quality leave out {count(once, 'item')} with one rating" if once else "")
    return "; ".join(filter(None, parts))


def _unit(unit: str) -> str:
    return "as a share of comparisons" if unit == SHARE else f"in {unit}"


def _groups(groups: Mapping[str, Measurement]) -> Table:
    names = list(dict.fromkeys(name for m in groups.values() for name in m.headlines if name in m.estimates))
    table = Table(title="Agreement with people by group", caption="95 % intervals")
    table.add_column("group", overflow="fold")
    for name in names:
        table.add_column(next(m[name].label for m in groups.values() if name in m.estimates), justify="right")
    table.add_column("n", justify="right")
    for group, m in groups.items():
        shown = [f"{m[name].text()} ({m[name].interval})" if name in m.estimates else "" for name in names]
        table.add_row(group, *shown, str(len(m.ids)))
    return table


def _row(finding: Finding) -> tuple[str, ...]:
    estimate = finding.estimate
    assert estimate is not None
    interval = ends(number(estimate.low), number(estimate.high))
    figures = (number(estimate.value), interval, str(estimate.n), str(estimate.undefined))
    return (title(finding.bias), finding.status, *figures)
