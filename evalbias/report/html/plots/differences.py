"""Histogram of own minus expected scores: does a judge flatter its own outputs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.self_bias import EXPECTED
from evalbias.report.html.plots.marks import DASHED, grid
from evalbias.report.html.svg import ACCENT, INK, MUTED, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def own_differences(measurement: Measurement) -> Drawing | None:
    """Draw the differences of own and expected score; None for measurements without them."""
    if "bias" not in measurement.samples or EXPECTED not in measurement.columns:
        return None
    values = measurement.samples["bias"].values
    values = values[~np.isnan(values)]
    found = measurement["bias"]
    if not len(values):
        return None
    direction = "above" if found.value >= 0 else "below"
    title = (
        f"The model's own scores lie {abs(found.value):.2f} points {direction} the expected ones on average "
        f"(95 % interval {found.low:+.2f} to {found.high:+.2f})"
    )
    caption = "0 = no bias. To the right of it, the model scores its own output higher than it should."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        bins = np.histogram_bin_edges(values, bins=min(24, max(6, int(np.sqrt(len(values))))))
        counts, _, _ = axis.hist(values, bins=bins.tolist(), color=INK, alpha=0.28, rwidth=0.92)
        top = float(np.max(counts))
        if not np.isnan(found.low):
            axis.axvspan(found.low, found.high, color=ACCENT, alpha=0.25, lw=0)
        axis.axvline(found.value, color=ACCENT)
        axis.axvline(0, color=MUTED, linewidth=1, linestyle=DASHED)
        right = found.value >= 0
        axis.annotate(
            "0 = no bias",
            (0, top * 1.2),
            (-5 if right else 5, 0),
            textcoords="offset points",
            color=MUTED,
            ha="right" if right else "left",
            va="top",
        )
        axis.annotate(
            f"mean {found.value:+.2f}",
            (found.value, top * 1.2),
            (5 if right else -5, 0),
            textcoords="offset points",
            color=ACCENT,
            ha="left" if right else "right",
            va="top",
        )
        reach = max(abs(values.min()), abs(values.max()), 1e-9) * 1.08
        axis.set(ylim=(0, top * 1.25), xlim=(-reach, reach))
        middle = "points" if narrow else "points from the expected score"
        axis.set_xlabel(f"too low  ←  {middle}  →  too high")
        axis.set_ylabel("items")
        grid(axis, "y")
        axis.locator_params(axis="y", integer=True, nbins=4)

    return Drawing(title, caption, 270, draw)
