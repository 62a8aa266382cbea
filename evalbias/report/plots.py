"""Draw the five marks of ``evaluation.bias`` with matplotlib, as SVG for a page and as PNG, with a description."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from markupsafe import Markup

from evalbias.evaluation.bias import MOST_DOTS, Bars, Dots, Intervals, Label, Lines, Plot, Stack, without_band
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.evaluation.words import count, percent
from evalbias.measures import unfairness_scores
from evalbias.measures.arrays import FloatArray
from evalbias.measures.resample import SHARE
from evalbias.values import digest, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# --- a plot as SVG inside a page, or as a PNG file --------------------------------------------------------------------


class Colors(NamedTuple):
    """Colors of a plot, by the names of the page's style sheet."""

    ink: str
    muted: str
    line: str
    accent: str
    other: str
    paper: str


THEME = Colors("#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f", "#101112")  # an SVG gets the theme's variables
LIGHT = Colors("#1f1e1b", "#6a675f", "#dedad0", "#22609c", "#b0561c", "#ffffff")
WIDTH = 640  # pixels of a plot on a screen
TAG = "<[^>]+>"  # tag of an SVG file; between tags is the text of labels, which comes from data
DASHED = (0, (4, 3))


def draw(plot: Plot) -> Markup:
    """Return a plot as SVG, with selectable text and the colors of the page's theme."""
    file = io.StringIO()
    _save(plot, file, THEME, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return Markup(_inline(file.getvalue()))


def write_png(plot: Plot, path: Path) -> None:
    """Write a plot, with its title, as PNG."""
    _save(plot, path, LIGHT, format="png", dpi=144)


def _save(plot: Plot, file: Any, colors: Colors, **options: Any) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "evalbias",
        "text.parse_math": False,  # also of the labels of ticks, which are made while drawing
        **dict.fromkeys(("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 12.5),
        "text.color": colors.ink,
        **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), colors.muted),
        "axes.edgecolor": colors.line,
        "axes.facecolor": "none",
        "figure.facecolor": "none" if colors is THEME else colors.paper,
        "lines.linewidth": 2,
        "legend.frameon": False,
    }
    with style.context(["default", cast(Any, settings)]):  # ignores a matplotlibrc in the current folder
        heights = [_height(mark) for mark in plot.marks]
        figure = Figure(figsize=(WIDTH / 72, sum(heights) / 72), layout="constrained")  # 72 units an inch: as pixels
        alike = all(isinstance(mark, Dots) for mark in plot.marks)  # judges before and after, on the same axes
        axes = figure.subplots(len(heights), 1, sharex=alike, sharey=alike, squeeze=False, height_ratios=heights)[:, 0]
        for axis, mark in zip(axes, plot.marks, strict=True):
            axis.tick_params(length=0, pad=6)
            axis.spines[["left", "right", "top"]].set_visible(False)
            _Drawing(figure, axis, colors).mark(mark)
        if colors is LIGHT:
            axes[0].set_title(textwrap.fill(plot.title, 90), loc="left", fontsize=12.5)
        for text in figure.findobj(Text):  # names in them come from data: a dollar sign starts no formula
            text.set_parse_math(False)
            text.set_text(visible(text.get_text()))
        figure.savefig(file, **options)


def _inline(svg: str) -> str:
    """Make an SVG file part of an HTML page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for size in ("height", "width"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', "".join(re.findall(TAG, svg))))
    prefix = f"p{digest(svg, 8)}-"  # several plots of a page share the names from matplotlib

    def themed(tag: re.Match[str]) -> str:
        text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", tag[0])  # the family is the page's
        for name, color in THEME._asdict().items():
            text = text.replace(color, f"var(--{name})")
        text = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", text)
        return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", text)

    return re.sub(TAG, themed, svg)


def _height(mark: object) -> int:
    match mark:
        case Intervals(rows=rows, percent=True):
            return 110 + 42 * len(rows) if any(rows) else 104
        case Intervals(rows=rows):
            return 80 + 58 * len(rows) if any(len(row) > 1 for row in rows.values()) else 92 + 36 * len(rows)
        case Lines(series=series):
            return 340 if len(series) > 2 or (len(series) > 1 and not mark.percent) else 300  # more for a legend
    return {Dots: 320, Bars: 270, Stack: 166}[type(mark)]


@dataclass
class _Drawing:
    """A mark on its axes."""

    figure: Figure
    axis: Axes
    colors: Colors

    def mark(self, mark: Intervals | Dots | Bars | Lines | Stack) -> None:
        getattr(self, type(mark).__name__.lower())(mark)
        if isinstance(mark, Dots | Bars | Lines):
            self.labels(mark.x_label, mark.y_label)
            self.grid("y")
            handles, names = self.axis.get_legend_handles_labels()
            if len(names) > 1:
                self.figure.legend(handles, names, loc="outside upper left", ncols=2)

    def intervals(self, mark: Intervals) -> None:
        axis, colors = self.axis, self.colors
        every = [estimate for row in mark.rows.values() for estimate in row]
        if mark.percent:
            axis.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1])
            axis.set_xticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
        else:
            axis.set_xlim(*_limits(every, mark.null))
            axis.locator_params(axis="x", nbins=7)
        for place, row in enumerate(mark.rows.values()):
            for k, e in enumerate(row):
                y = place + 0.34 * (k - (len(row) - 1) / 2)
                color = colors.accent if k == len(row) - 1 else colors.muted
                draw = partial(axis.plot, color=color, clip_on=False)  # whole at the edge
                draw([e.low, e.high], [y, y], linewidth=5, alpha=0.4, solid_capstyle="round")
                draw([e.value], [y], "o", markersize=9)
        if mark.null is not None:
            self.null(mark.null, mark.null_words)
        axis.set_ylim(len(mark.rows) - 0.4, -1.1 if mark.null is not None else -0.6)
        names = [_row_label(name) for name in mark.rows]
        axis.set_yticks(range(len(names)) if any(names) else [], names if any(names) else [], color=colors.ink)
        self.labels(mark.x_label, "")
        if any(names):
            self.grid("x")

    def null(self, value: float, words: str) -> None:
        """Draw the vertical line at which an unbiased judge would lie, with its words beside it."""
        self.axis.axvline(value, color=self.colors.muted, linewidth=1, linestyle=DASHED)
        low, high = self.axis.get_xlim()
        right = value > low + 0.6 * (high - low)
        self.words(words, (value, -0.75), (-6 if right else 6, 0), ha="right" if right else "left", va="center")

    def dots(self, mark: Dots) -> None:
        axis, colors = self.axis, self.colors
        many = max(len(x) for x, _ in mark.points.values()) > 60
        for k, (name, (x, y)) in enumerate(mark.points.items()):
            if colors is THEME and len(x) > MOST_DOTS:
                chosen = np.argsort(x, kind="stable")[np.linspace(0, len(x) - 1, MOST_DOTS).astype(int)]
                x, y = x[chosen], y[chosen]
            look = partial(axis.scatter, s=14 if many else 22, alpha=0.3 if many else 0.6, label=name)
            look(x, y, facecolors="none" if k else colors.ink, edgecolors=colors.ink if k else "none")
        if mark.y_null:
            axis.axhline(0, color=colors.muted, linewidth=1, linestyle=DASHED)
            self.words(mark.y_null, (1, 0), (6, 0), xycoords=("axes fraction", "data"), va="center")
        if mark.line is not None:
            x, y, low, high = mark.line.T
            axis.fill_between(x, low, high, color=colors.accent, alpha=0.22, lw=0)
            axis.plot(x, y, color=colors.accent)

    def bars(self, mark: Bars) -> None:
        axis, colors = self.axis, self.colors
        widths, centers = np.diff(mark.edges), (mark.edges[:-1] + mark.edges[1:]) / 2
        looks = ((colors.accent, 0.85), (colors.ink, 0.3))
        for k, ((name, heights), (color, alpha)) in enumerate(zip(mark.heights.items(), looks, strict=False)):
            width = widths * 0.84 / len(mark.heights)
            place = centers + (k - (len(mark.heights) - 1) / 2) * width
            axis.bar(place, heights, width=width, color=color, alpha=alpha, label=name)
        if mark.percent:
            axis.yaxis.set_major_formatter(lambda value, _: percent(value))
        else:
            axis.locator_params(axis="y", integer=True, nbins=4)

    def lines(self, mark: Lines) -> None:
        axis, colors = self.axis, self.colors
        if mark.null:
            axis.axhline(0, color=colors.muted, linewidth=1, linestyle=DASHED)
            self.words(mark.null, (1, 0), (0, 5), xycoords=("axes fraction", "data"), ha="right")
        looks = [(color, marker) for marker in "os^D" for color in (colors.accent, colors.other, colors.ink)]
        looks = [looks[k] for k in (0, 4, 8, 9, 1, 5)]  # markers differ in grey
        for k, (name, values) in enumerate(mark.series.items()):
            color, marker = looks[k % len(looks)]
            x, y, low, high = values.T
            axis.plot(x, y, color=color, marker=marker, markersize=6, label=name)
            axis.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
        if mark.percent:
            axis.yaxis.set_major_formatter(lambda value, _: percent(value))
        axis.locator_params(axis="x", integer=True)

    def stack(self, mark: Stack) -> None:
        axis, colors, left = self.axis, self.colors, 0.0
        fills = (colors.line, colors.accent, colors.other, colors.muted)
        parts = [(*part, color) for part, color in zip(mark.shares.items(), fills, strict=False) if part[1] > 0]
        axis.set(xlim=(0, 1), ylim=(-0.9 - 0.75 * len(parts), 0.6), xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        for row, (name, part, color) in enumerate(parts):
            axis.barh(0, part, left=left, color=color, height=0.9, edgecolor=colors.paper, linewidth=1.5)
            if part >= 0.07:  # the bar holds its percentage
                on = colors.ink if color == colors.line else colors.paper
                axis.text(left + part / 2, 0, percent(part), ha="center", va="center", color=on)
            left += part
            y = -1.0 - 0.75 * row
            axis.plot([0.012], [y], "s", color=color, markersize=9, clip_on=False)
            self.words(f"{name}: {percent(part)}", (0.012, y), (14, 0), color=colors.ink, va="center")

    def words(self, text: str, place: tuple[float, float], offset: tuple[int, int], **look: Any) -> None:
        """Write words beside a place, in pixels from it."""
        self.axis.annotate(text, place, offset, textcoords="offset points", **({"color": self.colors.muted} | look))

    def labels(self, x: Label, y: str) -> None:
        if not isinstance(x, str):
            less, counted, more = x
            x = f"{less}  ←  {counted}  →  {more}"
        self.axis.set(xlabel=x, ylabel=y)

    def grid(self, side: Literal["x", "y"]) -> None:
        """Draw faint lines at the ticks of an axis, below everything else."""
        self.axis.grid(axis=side, color=self.colors.line, linewidth=0.8)
        self.axis.set_axisbelow(True)


def _limits(estimates: Sequence[Estimate], null: float | None) -> tuple[float, float]:
    ends = [end for e in estimates for end in (e.value, e.low, e.high) if np.isfinite(end)]
    ends += [] if null is None else [null]
    room = 0.06 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - room, max(ends) + room
    return (max(low, 0.0), min(high, 1.0)) if all(e.unit == SHARE for e in estimates) else (low, high)


def _row_label(name: str) -> str:
    """Break the name of a row into lines that leave room for the plot; a very long name is cut."""
    name = visible(name)
    return textwrap.fill(textwrap.shorten(name, 60, placeholder=" …") or name[:60], 32)


# --- plots of results -------------------------------------------------------------------------------------------------


def sides(own: FloatArray, quality: FloatArray) -> Plot | None:
    """Draw a loop's own score and the quality of its outputs, on average over the items that define both; None without.

    Both are (t + 1, n), as shares of their range, after each number of refinements.
    """
    kept = ~np.isnan(own + quality).any(axis=0)
    if not kept.any():
        return None
    means = {name: side[:, kept].mean(axis=1) for name, side in (("own score", own), ("quality", quality))}
    courses = [f"the {name} goes from {percent(y[0])} to {percent(y[-1])}" for name, y in means.items()]
    title = f"Over {count(len(own) - 1, 'refinement')}, {courses[0]} and {courses[1]}"
    caption = (
        f"Both in percent of the way from the worst to the best score of their scale, on average over {kept.sum():,} "
        "items that define both. An own score that rises faster than the quality is self-bias."
    )
    series = {name: without_band(np.arange(len(y), dtype=np.float64), y) for name, y in means.items()}
    return Plot(title, caption, (Lines(series, "refinements", percent=True),))


def scatter(sides: Mapping[str, Judged]) -> Plot:
    """Draw unfairness score against likelihood score, as Ohi et al. (2024, figure 2); the sides from the top."""
    marks, scores = [], []
    for name, judged in sides.items():
        likelihoods, human = judged.covariate(LIKELIHOODS), judged.covariate(HUMAN_SCORES)
        kept = np.isfinite(likelihoods) & np.isfinite(judged.answers) & np.isfinite(human)
        unfairness = unfairness_scores(judged.answers[kept], human[kept])
        counted = f"likelihood score LS ({judged.provenance.get('reduction', 'sum')} over tokens, nats)"
        label = f"unfairness score US{name and f', {name}'}"
        marks.append(Dots({"": (likelihoods[kept], unfairness)}, None, counted, label, y_null="0 =\nas people"))
        bias = Likelihood().number("bias_score", judged).value()
        scores.append(f"{bias:+.2f}{name and f' {name}'}")
    (criterion,) = {judged.criterion for judged in sides.values()}
    title = f"BiasScore on {criterion}: {' and '.join(scores)}"
    caption = (
        "Each dot is one output. Above 0, the judge rates it higher than people do. If the dots rise from left to "
        "right, the judge overrates what the model finds likely: that is a positive BiasScore."
    )
    if (most := max(len(mark.points[""][0]) for mark in marks)) > MOST_DOTS:
        caption += f" {MOST_DOTS} of {most:,} dots are drawn, evenly spaced by likelihood."
    return Plot(title, caption, marks)
