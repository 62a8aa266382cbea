"""Self-bias round by round, one line a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.measurement import Measurement
from evalbias.report.html.plots.marks import DASHED, grid
from evalbias.report.html.svg import ACCENT, MUTED, OTHER, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ((ACCENT, "o"), (OTHER, "s"))
"""Color and marker of each loop; the markers tell them apart in grey."""


def rounds(loops: Mapping[str, tuple[Sequence[int], Sequence[Measurement]]]) -> Drawing | None:
    """Draw the Bias of at most two loops; None where none is defined in two rounds.

    Args:
        loops: Name -> (numbers, measurements) of its rounds.
    """
    lines = {}
    for name, (numbers, measurements) in loops.items():
        estimates = [m["bias"] for m in measurements]
        if sum(not np.isnan(e.value) for e in estimates) > 1:
            lines[name] = (np.array(numbers), np.array([[e.value, e.low, e.high] for e in estimates]))
    if not lines:
        return None
    first, last = next(iter(lines.values()))[1][[0, -1], 0]
    title = f"The bias goes from {first:+.2f} in the first round to {last:+.2f} in the last"
    caption = (
        "Points by which the model's own score exceeds the expected one, on average over the items; the bands are 95 % "
        "intervals. 0 = no bias. A rising line: the loop pleases its own judge more than it improves the text."
    )

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        axis.axhline(0, color=MUTED, linewidth=1, linestyle=DASHED)
        for (name, (numbers, values)), (color, marker) in zip(lines.items(), STYLES, strict=False):
            axis.plot(numbers, values[:, 0], color=color, marker=marker, markersize=6, label=name)
            axis.fill_between(numbers, values[:, 1], values[:, 2], color=color, alpha=0.2, lw=0)
        axis.annotate(
            "0 = no bias",
            (1, 0),
            (0, 5),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=MUTED,
            ha="right",
        )
        axis.set_xlabel("round")
        axis.set_ylabel("points above the expected score")
        grid(axis, "y")
        axis.locator_params(axis="x", integer=True)
        if len(lines) > 1:
            figure.legend(*axis.get_legend_handles_labels(), loc="outside upper left", ncols=1 if narrow else 2)

    return Drawing(title, caption, 300 if len(lines) == 1 else 340, draw)
