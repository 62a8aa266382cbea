"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation.agreement import NAME as AGREEMENT
from evalbias.evaluation.baselines import Row
from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.coverage import median_coverage
from evalbias.evaluation.formatting import SIGNIFICANCE, counted_table, mark, number, p_text, title
from evalbias.evaluation.measurement import Measurement
from evalbias.optimizers.biased_demos import BiasedDemosReport
from evalbias.optimizers.zepo.trace import ZEPOReport


def measurement_table(measurements: Mapping[str, Measurement]) -> Table:
    """Return one row per criterion and headline estimate of one bias, with its interval."""
    first = next(iter(measurements.values()))
    rows: list[tuple[str, ...]] = []
    for criterion, measurement in measurements.items():
        estimates = [measurement[name] for name in measurement.headlines if name in measurement.estimates]
        for place, e in enumerate(estimates):
            counts = (str(e.n), str(e.undefined))
            rows.append(("" if place else criterion, e.label, e.text(), e.interval, *counts))
    headings = ("criterion", "estimate", "value", "95 % interval", "n", "undefined")
    return counted_table(f"{title(first.bias).capitalize()} bias", headings, rows)


def comparison_table(comparisons: Mapping[str, Comparison]) -> Table:
    """Return one row per criterion and headline estimate of one bias, before -> after, with its p-value."""
    first = next(iter(comparisons.values()))
    rows: list[tuple[str, ...]] = []
    for criterion, comparison in comparisons.items():
        changes = [comparison[name] for name in comparison.headlines if name in comparison.changes]
        for place, change in enumerate(changes):
            counts = (str(change.after.n), str(change.after.undefined))
            cells = (change.label, change.text(), p_text(change.p_value), *counts)
            rows.append(("" if place else criterion, *cells))
    headings = ("criterion", "estimate", "before -> after", "p", "n", "undefined")
    table = counted_table(f"{title(first.bias).capitalize()} bias, before -> after", headings, rows)
    table.caption = SIGNIFICANCE
    return table


def words_note(reports: Mapping[str, BiasedDemosReport]) -> str:
    """Return the lengths of the chosen demonstrations beside those of all items, by criterion."""
    listed = ", ".join(
        f"{name} {np.mean(r.demonstration_words):.0f} ({min(r.demonstration_words)} to {max(r.demonstration_words)}; "
        f"all items {r.mean_words:.0f})"
        for name, r in reports.items()
    )
    return f"mean words of the demonstrations: {listed}"


def rows_table(rows: Mapping[str, Row], report: ZEPOReport, *, pairs: tuple[int, int] | None = None) -> Table:
    """Return one column a judge, on the documents that took no part in the search: every bias's headline estimates.

    Args:
        rows: Judge -> its measurements.
        report: Report of the search.
        pairs: Number of ordered pairs that the search used, and number of all that its documents have.
    """
    used = [] if pairs is None else [f"searched on {pairs[0]} of {pairs[1]} ordered pairs"]
    table = Table(title=f"Chosen: {report.chosen}", caption="; ".join([*used, *_rows_caption(rows, report)]))
    table.add_column("estimate")
    for name in rows:
        table.add_column(name, justify="right")
    measurements = next(iter(rows.values())).measurements
    for bias, measurement in measurements.items():
        for name in (name for name in measurement.headlines if name in measurement.estimates):
            cells = []
            for row in rows.values():
                tested = bias == AGREEMENT and bias in row.comparisons
                sign = mark(row.comparisons[bias][name].p_value) if tested else ""
                cells.append(row.measurements[bias][name].text() + sign)
            table.add_row(measurement[name].label, *cells)
    return table


def _rows_caption(rows: Mapping[str, Row], report: ZEPOReport) -> list[str]:
    best, first = report.tried[report.best], report.tried[0]
    counts_of = [row.measurements["position"].undefined for row in rows.values()]
    undefined = sum(counts.get(name, 0) for counts in counts_of for name in ("answers", "answers_swapped"))
    caption = [
        f"{report.objective} in the search {number(first.objective)} -> {number(best.objective)}",
        f"{report.judgments} judgments{saved_text(report)}, {report.stopped}",
        "first, longer: win rate of the first, of the longer output",
        f"{undefined} comparisons undefined",
    ]
    people = [row.measurements[AGREEMENT] for row in rows.values() if AGREEMENT in row.measurements]
    agreements = [measurement["spearman"] for measurement in people if "spearman" in measurement.estimates]
    if agreements:  # rankings; pairs have an accuracy
        counts = sorted({agreement.n for agreement in agreements})
        caption.append(f"Spearman with people over {' to '.join(map(str, counts))} documents")
        if without := max(agreement.undefined for agreement in agreements):
            caption.append(f"up to {without} documents without a correlation")
        if 2 ** (1 - counts[0]) >= 0.05:
            caption.append("too few documents for a significant difference")
    if people:
        caption.append("* p < .05, † p < .06 against the initial judge (paired permutation test)")
    return caption


def saved_text(report: ZEPOReport) -> str:
    """Return what racing saved of a search's judgments, as a remark in brackets; empty without rounds."""
    if len(report.rounds) < 2:
        return ""
    share, sizes = report.saved / (report.judgments + report.saved), ", ".join(map(str, report.rounds))
    return f" ({share:.0%} saved by racing in rounds up to {sizes} pairs)"


def coverage_note(coverage: Mapping[str, ArrayLike]) -> str:
    """Return the median probability that the labels hold, by criterion.

    Empty where no coverage is known, as from a server that reports only shares.
    """
    medians = {name: median_coverage(c) for name, c in coverage.items()}
    listed = ", ".join(f"{name} {value:.2g}" for name, value in medians.items() if not np.isnan(value))
    return f"median coverage of the labels: {listed}" if listed else ""
