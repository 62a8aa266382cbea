"""A loop's own score and the quality of its outputs, step by step, on one range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.formatting import count
from evalbias.measures.arrays import FloatArray
from evalbias.report.html.plots.marks import grid, percent
from evalbias.report.html.svg import ACCENT, OTHER, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sides(own: FloatArray, quality: FloatArray, step: str) -> Drawing | None:
    """Draw both means over the items that define both; None without such an item.

    Args:
        own: (t + 1, n) own scores as shares of their range.
        quality: (t + 1, n) quality as shares of its range.
        step: What a loop does between two rows.
    """
    kept = ~np.isnan(own + quality).any(axis=0)
    if not kept.any():
        return None
    lines = {
        "own score": (own[:, kept].mean(axis=1), ACCENT, "o"),
        "quality": (quality[:, kept].mean(axis=1), OTHER, "s"),
    }
    said = [f"the {name} goes from {percent(y[0])} to {percent(y[-1])}" for name, (y, *_) in lines.items()]
    title = f"Over {count(len(own) - 1, step)}, {said[0]} and {said[1]}"
    caption = (
        f"Both in percent of the way from the worst to the best score of their scale, on average over {kept.sum():,} "
        "items that define both. An own score that rises faster than the quality is self-bias."
    )

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        for name, (y, color, marker) in lines.items():
            axis.plot(range(len(y)), y, color=color, marker=marker, markersize=6, label=name)
        axis.yaxis.set_major_formatter(lambda value, _: percent(value))
        axis.locator_params(axis="x", integer=True)
        axis.set_xlabel(f"{step}s")
        grid(axis, "y")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside upper left", ncols=2)

    return Drawing(title, caption, 290, draw)
