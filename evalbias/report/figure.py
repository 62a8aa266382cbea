"""A figure that draws without a display; matplotlib is loaded where one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalbias.runs.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_texts(figure: Figure) -> None:
    """Let texts be texts: names in them come from data, and a dollar sign starts no formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(visible(text.get_text()))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, its axes open at the top and right."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    plain_texts(figure)
    figure.savefig(path, dpi=120)
