"""Estimates with their intervals, one per row, against what an unbiased judge would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.measurement import Measurement
from evalbias.measures.statistic import SHARE
from evalbias.report.html.plots.marks import grid, interval_mark, row_label, unbiased_line
from evalbias.report.html.svg import INK, Drawing, axis_of
from evalbias.report.html.words import name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 10
"""Largest number of rows."""


def intervals(measurement: Measurement) -> Drawing | None:
    """Draw the first headline estimate that is defined, and those that can share its axis; None without one."""
    defined = [e for e in measurement.estimates.values() if not np.isnan(e.value)]
    names = [name for name in measurement.headlines if name in measurement.estimates]
    headlines = [measurement[name] for name in names if not np.isnan(measurement[name].value)]
    if not defined:
        return None
    first = (headlines or defined)[0]
    alike = [e for e in defined if e is not first and (e.null, e.signed) == (first.null, first.signed)]
    title = f"{name_of(first)}: {first.text()} (95 % interval {first.interval})"
    drawn = [first, *alike][:ROWS]
    units = {e.unit for e in drawn}
    return estimate_rows(
        {name_of(e): e for e in drawn}, title, null=first.null, unit=units.pop() if len(units) == 1 else ""
    )


def estimate_rows(estimates: dict[str, Estimate], title: str, *, null: float | None, unit: str = "") -> Drawing:
    """Draw estimates on one axis.

    Args:
        estimates: Name of the row -> estimate.
        title: What the plot shows.
        null: Value of an unbiased judge; None where the estimates are not of a bias.
        unit: What the axis counts.
    """
    caption = "Dots are estimates, bars their 95 % intervals."
    if null is not None:
        caption += f" {null:g} = no bias."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        axis.set_xlim(*_limits([*estimates.values()], null))
        for row, one in enumerate(estimates.values()):
            interval_mark(axis, one.value, one.low, one.high, row)
        if null is not None:
            unbiased_line(axis, null, f"{null:g} = no bias", -0.75)
        axis.set_ylim(len(estimates) - 0.4, -1.1)
        axis.set_yticks(range(len(estimates)), [row_label(name, narrow) for name in estimates], color=INK)
        axis.set_xlabel(unit)
        axis.locator_params(axis="x", nbins=4 if narrow else 7)
        grid(axis, "x")

    return Drawing(title, caption, 92 + 36 * len(estimates), draw)


def _limits(estimates: Sequence[Estimate], null: float | None) -> tuple[float, float]:
    ends = [end for e in estimates for end in (e.value, e.low, e.high) if np.isfinite(end)]
    ends += [] if null is None else [null]
    room = 0.06 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - room, max(ends) + room
    return (max(low, 0.0), min(high, 1.0)) if all(e.unit == SHARE for e in estimates) else (low, high)
