"""Tables of estimates, of changes and of candidates."""

from __future__ import annotations

from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.formatting import ends, p_text
from evalbias.evaluation.measurement import Measurement
from evalbias.optimizers.compile_report import CompileReport
from evalbias.report.html.blocks import Table
from evalbias.report.html.words import name_of


def estimates_table(measurement: Measurement) -> Table:
    """Return one row an estimate; columns that hold nothing are left out."""
    rows: list[tuple[str, ...]] = []
    for e in measurement.estimates.values():
        left_out = ", ".join(
            f"{amount} {word}" for amount, word in ((e.undefined, "undefined"), (e.excluded, "excluded")) if amount
        )
        unbiased = "" if e.null is None else f"{e.null:g}"
        rows.append((name_of(e), e.text(), e.interval, unbiased, f"{e.n:,}", left_out))
    headings = ("", "value", "95 % interval", "no bias", "items", "left out")
    kept = [k for k in range(len(headings)) if k == 0 or any(row[k] for row in rows)]
    return Table([headings[k] for k in kept], [[row[k] for k in kept] for row in rows], measurement.caption())


def changes_table(comparison: Comparison) -> Table:
    """Return one row an estimate: before, after, and their difference."""
    rows = []
    for change in comparison.changes.values():
        text, difference = change.after.text, change.difference
        interval = ends(text(difference.low), text(difference.high))
        p = p_text(change.p_value)
        values = (change.before.text(), change.after.text(), text(difference.estimate))
        rows.append((name_of(change.after), *values, interval, p))
    headings = ("", "before", "after", "difference", "95 % interval", "p")
    return Table(headings, rows, f"{comparison.n:,} items; p of a paired test")


def candidates_table(report: CompileReport) -> Table:
    """Return one row per candidate: its estimates on the held-back items."""
    names = list(dict.fromkeys(name for tried in report.candidates for name in tried.estimates))
    labels = {name: e.label for tried in report.candidates for name, e in tried.estimates.items()}
    rows = []
    for tried in report.candidates:
        cells = [tried.estimates[name].text() if name in tried.estimates else "" for name in names]
        rows.append((tried.name + " (chosen)" * tried.chosen, *cells, p_text(tried.p_value), tried.reason))
    headings = ("candidate", *(labels[name] for name in names), "p", "result")
    return Table(headings, rows, "On held-back items; p: one-sided, that it is better than the given judge.")
