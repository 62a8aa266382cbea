"""An audit for a terminal: the verdict, a table of biases of which 0 is none, the agreement, and what is missing."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.finding import Finding
from evalbias.evaluation.formatting import count, number
from evalbias.evaluation.verdict import title


def audit_view(audit: Audit) -> Group:
    """Return the whole audit for a terminal."""
    parts: list[object] = [Text(audit.verdict.sentence, style="bold"), "", _biases(audit)]
    found = {finding.bias for finding in audit.verdict.findings}
    parts += [measurement.table() for name, measurement in audit.measurements.items() if name not in found]
    parts += [Text(f"Not measured: {bias.replace('_', ' ')}: {why}") for bias, why in audit.not_measured.items()]
    if reasons := audit.judged.reasons:
        name, why = next(iter(reasons.items()))
        parts.append(Text(f"The judge gave no answer to {count(len(reasons), 'item')}, such as {name}: {why}"))
    return Group(*parts)  # type: ignore[arg-type]


def _biases(audit: Audit) -> Table:
    table = Table(title=f"{audit.judge} on {audit.judged.criterion}", caption="0 is no bias")
    for heading in ("bias", "finding", "estimate", "95 % interval", "n", "undefined"):
        table.add_column(heading, justify="left" if heading in ("bias", "finding") else "right", overflow="fold")
    for finding in audit.verdict.findings:
        if finding.estimate is not None:
            table.add_row(*_row(finding))
    return table


def _row(finding: Finding) -> tuple[str, ...]:
    estimate = finding.estimate
    assert estimate is not None
    interval = f"{number(estimate.low)} to {number(estimate.high)}"
    figures = (number(estimate.value), interval, str(estimate.n), str(estimate.undefined))
    return (title(finding), finding.status, *figures)
