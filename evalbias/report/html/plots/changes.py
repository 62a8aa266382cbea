"""Estimates before and after, one per row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.comparison import Change, Comparison
from evalbias.report.html.plots.marks import grid, interval_mark, row_label, unbiased_line
from evalbias.report.html.svg import ACCENT, INK, MUTED, Drawing, axis_of
from evalbias.report.html.words import name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def changes(comparison: Comparison) -> Iterator[Drawing]:
    """Yield drawings of the headline estimates, before above after; none where the two are the same judge."""
    if not any(_moved(change) for change in comparison.changes.values()):
        return
    names = [name for name in comparison.headlines if name in comparison.changes] or [*comparison.changes]
    defined = [c for c in (comparison[name] for name in names) if _defined(c)]
    for kind in dict.fromkeys(map(_kind, defined)):
        yield _drawing([change for change in defined if _kind(change) == kind], kind[0])


def _moved(change: Change) -> bool:
    before, after = ([e.value, e.low, e.high] for e in (change.before, change.after))
    return not np.array_equal(before, after, equal_nan=True)


def _kind(change: Change) -> tuple[float | None, bool]:
    """Return what estimates must share to stand on one axis: the null, and whether they have a sign."""
    return change.after.null, change.after.signed


def _defined(change: Change) -> bool:
    return not np.isnan([change.before.value, change.after.value]).any()


def _drawing(alike: list[Change], null: float | None) -> Drawing:
    first = alike[0]
    title = f"{name_of(first.after)}: {first.before.text()} before, {first.after.text()} after"
    if not np.isnan(first.p_value):
        title += " (no significant change)" if first.p_value >= 0.05 else " (significant)"  # p stands in the table
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
        axis.set_yticks(range(len(alike)), [row_label(name_of(change.after), narrow) for change in alike], color=INK)
        axis.locator_params(axis="x", nbins=4 if narrow else 7)
        grid(axis, "x")

    return Drawing(title, caption, 80 + 58 * len(alike), draw)
