"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation.likelihood import LikelihoodComparison
from evalbias.evaluation.position import PreferenceMeasurement
from evalbias.evaluation.rows import Row
from evalbias.measures import ConfidenceInterval, LikelihoodBias
from evalbias.optimizers.zepo.trace import ZEPOReport

LOW_COVERAGE = 0.1
"""A judge whose labels hold less of the probability is warned of."""


def number(value: float) -> str:
    """Two decimals with a sign where it matters; an undefined value is said."""
    return "undefined" if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}"  # no minus before a zero


def share(value: float) -> str:
    """Two decimals without a sign; an undefined value is said."""
    return "undefined" if math.isnan(value) else f"{value:.2f}"


def short(cell: str) -> str:
    """A figure in a wide table: a dash where it is undefined."""
    return "-" if cell == "undefined" else cell


def mark(p_value: float) -> str:
    """The paper's signs: * below .05, dagger below .06."""
    return "*" if p_value < 0.05 else "†" if p_value < 0.06 else ""


def measurement_table(results: Mapping[str, LikelihoodBias], intervals: Mapping[str, ConfidenceInterval]) -> Table:
    """One row a criterion: BiasScore with its interval, performance, items."""
    table = Table(title="Likelihood bias")
    for heading in ("criterion", "BiasScore", "95 % interval", "performance", "n", "undefined"):
        table.add_column(heading, justify="left" if heading == "criterion" else "right", overflow="fold")
    for name, found in results.items():
        interval = f"{number(intervals[name].low)} to {number(intervals[name].high)}"
        row = (number(found.bias_score), interval, number(found.performance), str(found.n), str(found.undefined))
        table.add_row(name, *row)
    return table


def comparison_table(comparisons: Mapping[str, LikelihoodComparison]) -> Table:
    """One row a criterion: BiasScore and performance, before -> after, with the paper's signs of significance."""
    table = Table(title="Likelihood bias, before -> after", caption="* p < .05, † p < .06 (paired permutation test)")
    for heading in ("criterion", "BiasScore", "p", "performance", "p", "n", "undefined"):
        table.add_column(heading, justify="left" if heading == "criterion" else "right", overflow="fold")
    for name, c in comparisons.items():
        bias, performance = c.bias_test.p_value, c.performance_test.p_value
        table.add_row(
            name,
            f"{number(c.before.bias_score)} -> {number(c.after.bias_score)}{mark(bias)}",
            f"{bias:.5f}",
            f"{number(c.before.performance)} -> {number(c.after.performance)}{mark(performance)}",
            f"{performance:.5f}",
            str(c.after.n),
            str(c.after.undefined),
        )
    return table


def preference_table(criterion: str, found: PreferenceMeasurement) -> Table:
    """One row a measure."""
    table = Table(title=f"What the judge leans to on {criterion}: {found.n} pairs, both orders")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("fair")
    told = [
        ("decision rates by position", " ".join(share(r) for r in found.decision_rates), "all alike"),
        ("fairness", number(found.fairness), "0"),
        ("position consistency", share(found.position_consistency), "1"),
        (f"longer output wins (of {found.longer.n})", share(found.longer.rate), "0.50"),
        ("confidence", number(found.confidence), ""),
        ("undefined comparisons", str(found.undefined), "0"),
    ]
    if found.likelihood is not None:
        told.insert(4, ("likelihood preference, Spearman", number(found.likelihood.spearman), "0"))
        told.insert(5, ("odds of winning for each nat", f"{found.likelihood.odds_per_nat:.3f}", "1"))
    for row in told:
        table.add_row(*row)
    return table


def rows_table(rows: Mapping[str, Row], report: ZEPOReport) -> Table:
    """One row a judge, on the documents that took no part in the search."""
    best, first = report.tried[report.best], report.tried[0]
    rated = [row.agreement.spearman for row in rows.values() if row.agreement]
    undefined = sum(row.preference.undefined for row in rows.values())
    told = [
        f"{report.objective} in the search {number(first.objective)} -> {number(best.objective)}",
        f"{report.judgments} judgments, {report.stopped}",
        "first, longer: how often the first, the longer output wins",
        f"{undefined} comparisons undefined",
    ]
    if rated:
        counts = sorted({a.groups for a in rated})
        told.append(f"Spearman with people over {' to '.join(map(str, counts))} documents")
        if undefined_groups := max(a.undefined_groups for a in rated):
            told.append(f"up to {undefined_groups} documents without a correlation")
        if 2 ** (1 - counts[0]) >= 0.05:
            told.append("too few documents for a significant difference")
        told.append("* p < .05, † p < .06 against the initial judge (paired permutation test)")
    table = Table(title=f"Found: {best.instruction}", caption="; ".join(told))
    table.add_column("judge", no_wrap=True)
    for heading in ("first", "fairness", "consistent", "longer", *(["Spearman"] if rated else [])):
        table.add_column(heading, justify="right", overflow="fold")
    for name, row in rows.items():
        p = row.preference
        figures = [share(p.decision_rates[0]), number(p.fairness), share(p.position_consistency)]
        figures.append(share(p.longer.rate))
        if row.agreement:
            figures.append(number(row.agreement.spearman.value) + (mark(row.test.p_value) if row.test else ""))
        table.add_row(name, *figures)
    return table


def coverage_note(coverage: Mapping[str, ArrayLike]) -> str:
    """How much of the probability the labels hold, by criterion: the median; a judge far below 1 hardly answers.

    Empty where no coverage is known, as from a server that tells shares alone.
    """
    known = {name: np.asarray(c, dtype=np.float64) for name, c in coverage.items()}
    medians = {name: float(np.nanmedian(c)) for name, c in known.items() if not np.isnan(c).all()}
    if not medians:
        return ""
    told = ", ".join(f"{name} {value:.2g}" for name, value in medians.items())
    low = [name for name, value in medians.items() if value < LOW_COVERAGE]
    warning = f" Scores on {', '.join(low)} mean little: the model hardly ever answers with a label." if low else ""
    return f"median coverage of the labels: {told}.{warning}"
