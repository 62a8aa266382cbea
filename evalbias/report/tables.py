"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from evalbias.measures import ConfidenceInterval, LikelihoodBias
from evalbias.programs.measurement import LikelihoodComparison


def number(value: float) -> str:
    """Two decimals with a sign where it matters; an undefined value is said."""
    return "undefined" if math.isnan(value) else f"{value:+.2f}"


def mark(p_value: float) -> str:
    """The paper's signs: * below .05, dagger below .06."""
    return "*" if p_value < 0.05 else "†" if p_value < 0.06 else ""


def measurement_table(results: Mapping[str, LikelihoodBias], intervals: Mapping[str, ConfidenceInterval]) -> Table:
    """One row a criterion: BiasScore with its interval, performance, items."""
    table = Table(title="Likelihood bias")
    for heading in ("criterion", "BiasScore", "95 % interval", "performance", "n", "undefined"):
        table.add_column(heading, justify="left" if heading == "criterion" else "right")
    for name, found in results.items():
        interval = f"{number(intervals[name].low)} to {number(intervals[name].high)}"
        row = (number(found.bias_score), interval, number(found.performance), str(found.n), str(found.undefined))
        table.add_row(name, *row)
    return table


def comparison_table(comparisons: Mapping[str, LikelihoodComparison]) -> Table:
    """One row a criterion: BiasScore and performance, before -> after, with the paper's signs of significance."""
    table = Table(title="Likelihood bias, before -> after", caption="* p < .05, † p < .06 (paired permutation test)")
    for heading in ("criterion", "BiasScore", "p", "performance", "p", "n", "undefined"):
        table.add_column(heading, justify="left" if heading == "criterion" else "right")
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
