"""A figure that draws without a display; matplotlib is loaded where one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, its axes open at the top and right.

    Names in it come from data: a dollar sign in them starts no formula.
    """
    from matplotlib.text import Text

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    figure.savefig(path, dpi=120)
