"""Estimates before and after, one a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.comparison import Change, Comparison
from evalbias.report.html.plots.marks import grid, interval_mark, unbiased_line
from evalbias.report.html.svg import ACCENT, INK, MUTED, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def changes(comparison: Comparison) -> Iterator[Drawing]:
    """Yield one drawing for the headline estimates that share a null: before above after."""
    names = [name for name in comparison.headlines if name in comparison.changes] or [*comparison.changes]
    defined = [c for c in (comparison[name] for name in names) if _defined(c)]
    for null in dict.fromkeys(change.after.null for change in defined):
        yield _drawing([change for change in defined if change.after.null == null], null)


def _defined(change: Change) -> bool:
    return not np.isnan([change.before.value, change.after.value]).any()


def _drawing(alike: list[Change], null: float | None) -> Drawing:
    first = alike[0]
    title = f"{first.label[:1].upper()}{first.label[1:]}: {first.before.text()} before, {first.after.text()} after"
    if not np.isnan(first.p_value):
        title += " (no significant change)" if first.p_value >= 0.05 else f" (significant, p = {first.p_value:.2g})"
    caption = "Above: before. Below, in colour: after. Bars: 95 % intervals."
    caption += "" if null is None else f" {null:g} = no bias: closer is better."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        for row, change in enumerate(alike):
            for offset, one, color in ((-0.17, change.before, MUTED), (0.17, change.after, ACCENT)):
                interval_mark(axis, one.value, one.low, one.high, row + offset, color=color)
        if null is not None:
            unbiased_line(axis, null, f"{null:g} = no bias", -0.8)
        axis.set_ylim(len(alike) - 0.4, -1.15 if null is not None else -0.6)
        axis.set_yticks(range(len(alike)), [change.label for change in alike], color=INK)
        axis.locator_params(axis="x", nbins=4 if narrow else 7)
        grid(axis, "x")

    return Drawing(title, caption, 80 + 58 * len(alike), draw)
