"""Marks that the plots share: an estimate with its interval, the line of no bias, an axis of percentages."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from evalbias.report.html.svg import ACCENT, LINE, MUTED
from evalbias.runs.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHED = (0, (4, 3))


def percent(share: float) -> str:
    """Format a share as a percentage.

    Examples:
        >>> percent(0.666)
        '67 %'
    """
    return f"{share * 100:.0f} %"


def row_label(name: str, narrow: bool) -> str:
    """Break the name of a row into lines that leave room for the plot; a very long one is cut."""
    name = visible(name)
    return textwrap.fill(textwrap.shorten(name, 60, placeholder=" …") or name[:60], 16 if narrow else 32)


def interval_mark(axis: Axes, value: float, low: float, high: float, row: float, *, color: str = ACCENT) -> None:
    """Draw a dot on its interval, whole also where it lies on the edge of the axis."""
    axis.plot([low, high], [row, row], color=color, linewidth=5, alpha=0.4, solid_capstyle="round", clip_on=False)
    axis.plot([value], [row], "o", color=color, markersize=9, clip_on=False)


def unbiased_line(axis: Axes, value: float, words: str, row: float) -> None:
    """Draw the vertical line at which an unbiased judge would lie, with its words beside it."""
    axis.axvline(value, color=MUTED, linewidth=1, linestyle=DASHED)
    low, high = axis.get_xlim()
    right = value > low + 0.6 * (high - low)
    axis.annotate(
        words,
        (value, row),
        (-6 if right else 6, 0),
        textcoords="offset points",
        color=MUTED,
        ha="right" if right else "left",
        va="center",
    )


def percentages(axis: Axes, words: str) -> None:
    """Let the horizontal axis run from 0 to 100 %."""
    axis.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1], xlabel=words)
    axis.set_xticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])


def grid(axis: Axes, side: str) -> None:
    """Draw quiet lines at the ticks of one axis, below everything else."""
    axis.grid(axis="x" if side == "x" else "y", color=LINE, linewidth=0.8)
    axis.set_axisbelow(True)
