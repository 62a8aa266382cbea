"""How often the longer of two outputs wins, by how much longer it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.judged import LENGTHS
from evalbias.evaluation.measurement import Measurement
from evalbias.measures.intervals import share_interval
from evalbias.report.html.plots.marks import grid, interval_mark, percent, percentages, unbiased_line
from evalbias.report.html.svg import INK, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = 4
FEWEST = 40
"""Pairs from which they are cut into groups."""


def longer_wins(measurement: Measurement) -> Drawing | None:
    """Draw the longer output's win rate in groups of equal size; None for measurements without such wins."""
    if "longer_rate" not in measurement.samples or LENGTHS not in measurement.columns:
        return None
    wins, lengths = measurement.samples["longer_rate"].values, measurement.columns[LENGTHS]
    kept = ~np.isnan(wins)
    if not kept.any():
        return None
    with np.errstate(divide="ignore"):
        ratios = lengths.max(axis=1)[kept] / lengths.min(axis=1)[kept]
    order = np.argsort(ratios, kind="stable")
    groups = np.array_split(order, GROUPS if len(order) >= FEWEST else 1)
    found = measurement["longer_rate"]
    low, high = percent(found.low), percent(found.high)
    title = f"The longer output wins {percent(found.value)} of the time (95 % interval {low} to {high})"
    caption = (
        "Pairs are cut into groups by how many times as long the longer output is. 50 % = no preference for length. "
        "People may prefer longer outputs too: this alone does not show that the judge is wrong."
    )
    clusters = np.arange(len(wins)) if measurement.clusters is None else np.asarray(measurement.clusters)
    intervals = [share_interval(wins[kept][g], clusters=clusters[kept][g].tolist()) for g in groups]
    labels = [f"{_times(ratios[g].min())} to {_times(ratios[g].max())} times" for g in groups]

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        percentages(axis, "the longer output wins")
        for row, interval in enumerate(intervals):
            interval_mark(axis, interval.estimate, interval.low, interval.high, row)
        unbiased_line(axis, 0.5, "50 % = no preference", -0.6)
        axis.set_ylim(len(intervals) - 0.5, -0.95)
        axis.set_yticks(range(len(intervals)), labels, color=INK)
        grid(axis, "x")

    return Drawing(title, caption, 110 + 42 * len(intervals), draw)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
