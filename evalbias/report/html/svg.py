"""Matplotlib figures as SVG inside a page: text stays text, and colours are those of the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from evalbias.report.figure import new_figure, plain_texts
from evalbias.report.html.blocks import Plot
from evalbias.runs.fingerprint import digest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, ACCENT, OTHER, PAPER = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f", "#101112"
"""Colours of a plot: placeholders that become the variables of the page's style sheet."""
THEME = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", OTHER: "other", PAPER: "paper"}
TAG = "<[^>]+>"
"""A tag of an SVG file; what stands between tags is the text of labels, which comes from data."""
WIDE, NARROW = 640, 320
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "evalbias",
    "text.parse_math": False,  # also of the labels of ticks, which are made while drawing
    "font.size": 12.5,
    "axes.labelsize": 12.5,
    "xtick.labelsize": 12.5,
    "ytick.labelsize": 12.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "lines.linewidth": 2,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Drawing:
    """A plot before it is laid out.

    Attributes:
        title: What the plot shows, as a sentence.
        caption: How to read it, and what it leaves out.
        height: Height in pixels, in both widths.
        draw: Draws on an empty figure; the second argument says whether it is the narrow one.
    """

    title: str
    caption: str
    height: int
    draw: Callable[[Figure, bool], None]


def plot(drawing: Drawing) -> Plot:
    """Lay a drawing out in both widths."""
    import matplotlib

    texts = []
    for width in (WIDE, NARROW):
        with matplotlib.rc_context(cast(Any, SETTINGS)):
            figure = new_figure(width / 72, drawing.height / 72)  # SVG counts 72 units an inch: one unit, one pixel
            drawing.draw(figure, width == NARROW)
            plain_texts(figure)
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        texts.append(_inline(file.getvalue()))
    return Plot(drawing.title, drawing.caption, *texts)


def _inline(svg: str) -> str:
    """Make an SVG file part of an HTML page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', "".join(re.findall(TAG, svg))))
    prefix = f"p{digest(svg, 8)}-"  # several plots of one page share the names that matplotlib gives

    def themed(tag: re.Match[str]) -> str:
        text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", tag[0])  # the family is the page's
        for color, name in THEME.items():
            text = text.replace(color, f"var(--{name})")
        text = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", text)
        return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", text)

    return re.sub(TAG, themed, svg)


def axis_of(figure: Figure) -> Axes:
    """Return a figure's only axes, without ticks' marks and with a quiet frame."""
    axis: Axes = figure.subplots()
    quiet(axis)
    return axis


def quiet(axis: Axes) -> None:
    """Take away what a reader does not need."""
    axis.tick_params(length=0, pad=6)
    axis.spines[["left", "right", "top"]].set_visible(False)
