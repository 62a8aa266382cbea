"""Plots of results: for the page as SVG, for a folder as PNG."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from evalbias.evaluation.agreement import FLOORS
from evalbias.evaluation.biases import LikelihoodBias
from evalbias.evaluation.estimates import Change, Comparison, Estimate, Measurement
from evalbias.evaluation.judged import BY_CONSTRUCTION, EXPECTED, HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged
from evalbias.evaluation.words import count, decimals, percent, share, title
from evalbias.measures import quadratic_fit, unfairness_scores
from evalbias.measures.arrays import FloatArray
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.equal_quality import QUALITY, FeatureEffect
from evalbias.measures.resample import SHARE, estimate_share
from evalbias.optimizers.zepo import CurvePoint, ZEPOReport
from evalbias.report.blocks import Plot
from evalbias.values import digest, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# A figure that draws without a display; matplotlib is loaded where one is drawn.


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


# Matplotlib figures as SVG inside a page: text stays text, and colours are those of the page's theme.


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


# Marks that the plots share: an estimate with its interval, the line of no bias, an axis of percentages.


DASHED = (0, (4, 3))


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


# Histogram of own minus expected scores: does a judge flatter its own outputs?


def own_differences(measurement: Measurement) -> Drawing | None:
    """Draw the differences of own and expected score; None for measurements without them."""
    if "bias" not in measurement.numbers or EXPECTED not in measurement.columns:
        return None
    values = measurement.numbers["bias"].values
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


# Plot of a judge's scores over a property of the text (its likelihood, its length) at equal quality.


SHOWN = 300
"""Largest number of points of a plot."""
PROPERTIES = {"likelihood_effect": ("likelier", "less likely"), "length_effect": ("longer", "shorter")}
"""Estimate -> words for more and less of what it is the effect of."""


class Points(NamedTuple):
    """Points of the plot.

    Attributes:
        x: (n,) the property, in standard deviations from its mean.
        y: (n,) score less what the quality explains, in points, with mean 0.
        effect: The estimate that the line shows.
    """

    x: FloatArray
    y: FloatArray
    effect: FeatureEffect


def effect_line(measurement: Measurement) -> Drawing | None:
    """Draw the first effect of a measurement; None where it has none, or nothing of it is defined."""
    names = [name for name in PROPERTIES if name in measurement.numbers]
    points = _points(measurement, names[0]) if names else None
    if points is None:
        return None
    more, less = PROPERTIES[names[0]]
    pairs = "answers" in measurement.columns
    unit = "log-odds" if pairs else "points"
    verdicts = pairs and _are_verdicts(measurement.numbers[names[0]].values)
    if verdicts:
        unit = "on a scale from -1 (loses) to 1 (wins)"
    effect, amount = points.effect, points.effect.effect * points.effect.score_sd
    low, high = sorted(end * effect.score_sd for end in (effect.low, effect.high))
    form = f"+.{decimals(amount, low, high)}f"
    span = f"{low:{form}} to {high:{form}}"
    if np.isnan(effect.effect):
        title = f"Of two equally good texts, the {more} one gets {span} {unit} (95 % interval)"
    else:
        title = (
            f"An output that is one standard deviation {more} gets {amount:{form}} {unit} at equal quality "
            f"(95 % interval {span})"
        )
    n = len(points.x)
    dot = "one output of a pair, compared with the other" if pairs else "one output"
    caption = (
        f"Each dot is {dot}. A dot above 0 got more than its quality, as people rated it, explains. A "
        "judge without this bias has a flat line: quality alone decides. The band around the line is its 95 % interval."
    )
    if n > SHOWN:
        caption += f" {SHOWN} of {n:,} dots are drawn, evenly spaced from {less} to {more}."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        order = np.argsort(points.x, kind="stable")
        chosen = order[np.unique(np.linspace(0, n - 1, min(n, SHOWN)).astype(int))]
        axis.scatter(points.x[chosen], points.y[chosen], s=14, color=INK, alpha=0.3, edgecolors="none")
        axis.axhline(0, color=MUTED, linewidth=1, linestyle=DASHED)
        ends = np.array([points.x.min(), points.x.max()])
        x = np.linspace(ends[0], ends[1], 50)
        axis.fill_between(x, x * low, x * high, color=ACCENT, alpha=0.22, lw=0)
        if not np.isnan(amount):
            axis.plot(ends, ends * amount, color=ACCENT)
        axis.annotate(
            "0 =\nno bias",
            (1, 0),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=MUTED,
            va="center",
        )
        axis.set_xlabel(f"{less}  ←  →  {more}" if narrow else f"{less}  ←  standard deviations  →  {more}")
        axis.set_ylabel(f"{'verdict' if verdicts else unit} beyond quality")
        grid(axis, "y")
        if narrow:
            axis.locator_params(axis="x", nbins=5)

    return Drawing(title, caption, 320, draw)


def _points(measurement: Measurement, name: str) -> Points | None:
    """Return score less quality against the property; None where no interval is defined."""
    sample = measurement.numbers[name]
    statistic = sample.estimator
    if not isinstance(statistic, EffectStatistic):
        return None
    effect = statistic.measure(sample.values, clusters=measurement.clusters)
    if np.isnan(effect.low):
        return None
    x, ratings = statistic.feature, statistic.ratings
    counts = (~np.isnan(ratings)).sum(axis=1)
    quality = np.where(counts > 0, np.nansum(ratings, axis=1) / np.maximum(counts, 1), np.nan)
    kept = ~np.isnan(x + quality + sample.values)
    x, scores, quality = x[kept], sample.values[kept], quality[kept]
    x, quality, scores = (statistic.both_ways(values) for values in (x, quality, scores))
    x, quality, scores = (x - x.mean()) / x.std(), quality - quality.mean(), scores - scores.mean()
    return Points(x, scores - _quality_slope(x, scores, quality, effect) * quality, effect)


def _are_verdicts(values: FloatArray) -> bool:
    """Return whether the values of pairs are mean verdicts, and not log-odds."""
    distinct = np.unique(values[~np.isnan(values)])
    whole = any(np.abs(distinct * m - np.round(distinct * m)).max(initial=0) < 1e-9 for m in range(1, 201))
    return bool((np.abs(distinct) <= 1).all()) and whole


def _quality_slope(x: FloatArray, scores: FloatArray, quality: FloatArray, effect: FeatureEffect) -> float:
    """Return points of the score for one point of quality: the effect's own, or least squares where that is unknown."""
    if QUALITY in effect.slopes and not np.isnan(effect.slopes[QUALITY].value):
        return effect.slopes[QUALITY].value * effect.score_sd
    return float(np.linalg.lstsq(np.stack([quality, x], axis=1), scores, rcond=None)[0][0])


# Explanations of each bias for a reader who knows no paper.


QUESTIONS: Mapping[str, str] = {
    "likelihood": "Does the judge prefer text that a language model finds likely, at equal quality?",
    "position": "Does the order in which two outputs are shown decide which one wins?",
    "verbosity": "Does the judge prefer longer text, at equal quality?",
    "self": "Does the model score its own outputs higher than they deserve?",
    "self_preference": "Does the judge prefer what it wrote itself over equally good text of others?",
    "scale_use": "Does the judge use the whole scale, as people do?",
    "joint": "Which of the biases remains when the others are held fixed? Likely text is often short.",
    "agreement": "Does the judge agree with people?",
    "corrected": "What would people say of all items?",
    "aspect": "What else did the loop change?",
}
"""Name of a bias, or of what else is measured -> the question that measuring it answers."""

ESTIMATES: Mapping[str, str] = {
    "likelihood_effect": "Effect of likelihood at equal quality",
    "length_effect": "Effect of length at equal quality",
    "own_excess": "Bonus for the own system at equal quality",
    "own_excess_at_failures": "The same among outputs that people rate low",
    "likelihood": "Effect of likelihood",
    "length": "Effect of length",
    "own_system": "Effect of the own system",
    "position": "Advantage of the first position",
    "slope": "Points of the score for one point of quality",
    "spread_ratio": "Spread of the scores, as a multiple of people's",
    "top_two_share": "Share of the two most used scores",
    "entropy": "Evenness of the scores, from 0 to 1 (entropy)",
    "ends_share": "Share of the lowest and the highest score",
    "performance": "Rank correlation with people (performance)",
    "likelihood_correlation": "Rank correlation of likelihood and winning",
    "first_rate": "How often the first position wins",
    "first_rate_balanced": "How often the first position wins, people's choices balanced",
    "position_consistency": "How often the same output wins in both orders",
    "longer_rate": "How often the longer output wins",
    "bias": "Own score less expected score",
    "skewness": "Lopsidedness of the differences (Dskew)",
    "spearman": "Rank correlation with people (Spearman)",
    "kendall": "Rank correlation with people (Kendall)",
    "pearson": "Linear correlation with people (Pearson)",
    "alpha_interval": "Agreement in points (Krippendorff's alpha)",
    "alpha_ordinal": "Agreement in ranks (Krippendorff's alpha)",
    "accuracy": "Same choice as people",
    "accuracy_swapped": "Same choice as people, other order",
    "consistency": "Same choice in both orders",
    "kappa": "Agreement beyond chance (Cohen's kappa)",
    "brier": "Squared error of the probabilities (Brier)",
    "calibration_error": "Calibration error of the probabilities (ECE)",
    "judge_mean": "The judge's mean",
    "people_mean": "Mean of what people labeled",
    "corrected_mean": "Mean that people would give all items",
    "human_ceiling": "For comparison: one person with the others",
}
"""Name of an estimate -> what it is, as the beginning of a sentence and the name of a row."""
WRITER = "excess_of_"
"""Beginning of the names of estimates about one writer, whose label is the writer's name."""
WINS = " wins, "
"""Part of labels that begin with a writer's name, which stays as it is."""


def name_of(estimate: Estimate) -> str:
    """Return what an estimate is in words, as the beginning of a sentence; its label where there are none."""
    if estimate.name.startswith(WRITER):
        return f"{estimate.label} against the other writers"
    if WINS in estimate.label:
        return estimate.label
    if estimate.name in FLOORS:
        return f"For comparison: {estimate.label.removesuffix(' alone')} in place of a judge"
    return ESTIMATES.get(estimate.name, estimate.label[:1].upper() + estimate.label[1:])


def title_of(bias: str) -> str:
    """Return the heading of a bias."""
    return title(bias).capitalize()


def question_of(bias: str) -> str:
    """Return the question that measuring a bias answers."""
    return QUESTIONS.get(bias) or f"How strong is the bias {bias.replace('_', ' ')!r}?"


def by_construction(measurement: Measurement) -> str:
    """Say what the judge's making settles, so that its number is no finding; empty where nothing is."""
    reason = measurement.provenance.get(BY_CONSTRUCTION, {}).get(measurement.bias)
    return f"True by construction, not found: {reason}." if reason else ""


# Estimates with their intervals, one per row, against what an unbiased judge would have.


ROWS = 10
"""Largest number of rows."""


def intervals(measurement: Measurement) -> Drawing | None:
    """Draw the first headline estimate that is defined, and those that can share its axis; None without one."""
    defined = [e for e in measurement.estimates.values() if not np.isnan(e.value)]
    names = [name for name in measurement.headlines if name in measurement.estimates]
    headlines = [measurement[name] for name in names if not np.isnan(measurement[name].value)]
    if not defined:
        return None
    first = (headlines or defined)[0]
    alike = [e for e in defined if e is not first and (e.null, e.signed) == (first.null, first.signed)]
    title = f"{name_of(first)}: {first.text()} (95 % interval {first.interval})"
    drawn = [first, *alike][:ROWS]
    units = {e.unit for e in drawn}
    return estimate_rows(
        {name_of(e): e for e in drawn}, title, null=first.null, unit=units.pop() if len(units) == 1 else ""
    )


def estimate_rows(estimates: dict[str, Estimate], title: str, *, null: float | None, unit: str = "") -> Drawing:
    """Draw estimates on one axis.

    Args:
        estimates: Name of the row -> estimate.
        title: What the plot shows.
        null: Value of an unbiased judge; None where the estimates are not of a bias.
        unit: What the axis counts.
    """
    caption = "Dots are estimates, bars their 95 % intervals."
    if null is not None:
        caption += f" {null:g} = no bias."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        axis.set_xlim(*_limits([*estimates.values()], null))
        for row, one in enumerate(estimates.values()):
            interval_mark(axis, one.value, one.low, one.high, row)
        if null is not None:
            unbiased_line(axis, null, f"{null:g} = no bias", -0.75)
        axis.set_ylim(len(estimates) - 0.4, -1.1)
        axis.set_yticks(range(len(estimates)), [row_label(name, narrow) for name in estimates], color=INK)
        axis.set_xlabel(unit)
        axis.locator_params(axis="x", nbins=4 if narrow else 7)
        grid(axis, "x")

    return Drawing(title, caption, 92 + 36 * len(estimates), draw)


def _limits(estimates: Sequence[Estimate], null: float | None) -> tuple[float, float]:
    ends = [end for e in estimates for end in (e.value, e.low, e.high) if np.isfinite(end)]
    ends += [] if null is None else [null]
    room = 0.06 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - room, max(ends) + room
    return (max(low, 0.0), min(high, 1.0)) if all(e.unit == SHARE for e in estimates) else (low, high)


# How often the longer of two outputs wins, by how much longer it is.


GROUPS = 4
FEWEST = 40
"""Pairs from which they are cut into groups."""


def longer_wins_plot(measurement: Measurement) -> Drawing | None:
    """Draw the longer output's win rate in groups of equal size; None for measurements without such wins."""
    if "longer_rate" not in measurement.numbers or LENGTHS not in measurement.columns:
        return None
    wins, lengths = measurement.numbers["longer_rate"].values, measurement.columns[LENGTHS]
    kept = ~np.isnan(wins)
    if not kept.any():
        return None
    with np.errstate(divide="ignore"):
        ratios = lengths.max(axis=1)[kept] / lengths.min(axis=1)[kept]
    order = np.argsort(ratios, kind="stable")
    groups = np.array_split(order, GROUPS if len(order) >= FEWEST else 1)
    found = measurement["longer_rate"]
    low, high = percent(found.low), percent(found.high)
    title = f"The longer output wins {percent(found.value)} of the time (95 % interval {low} to {high})"
    caption = (
        "Pairs are cut into groups by how many times as long the longer output is. 50 % = no preference for length. "
        "People may prefer longer outputs too: this alone does not show that the judge is wrong."
    )
    clusters = np.arange(len(wins)) if measurement.clusters is None else np.asarray(measurement.clusters)
    intervals = [estimate_share(wins[kept][g], clusters=clusters[kept][g].tolist()) for g in groups]
    labels = [f"{_times(ratios[g].min())} to {_times(ratios[g].max())} times" for g in groups]

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        percentages(axis, "the longer output wins")
        for row, interval in enumerate(intervals):
            interval_mark(axis, interval.value, interval.low, interval.high, row)
        unbiased_line(axis, 0.5, "50 % = no preference", -0.6)
        axis.set_ylim(len(intervals) - 0.5, -0.95)
        axis.set_yticks(range(len(intervals)), labels, color=INK)
        grid(axis, "x")

    return Drawing(title, caption, 110 + 42 * len(intervals), draw)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


# Which candidate wins when the order of the two is swapped.


SAME, FIRST, SECOND, OTHERWISE = "same output both times", "always the first", "always the second", "a tie in one order"
COLORS = {SAME: LINE, FIRST: ACCENT, SECOND: OTHER, OTHERWISE: MUTED}
NARROWEST = 0.07
"""Smallest share whose bar holds its percentage."""


def order_shares(answers: FloatArray, swapped: FloatArray) -> dict[str, float]:
    """Return the shares of the pairs by what happens when the two candidates change places; undefined ones left out.

    Args:
        answers: (n, c) probabilities by position: first, second and, with three classes, a tie.
        swapped: (n, c) the same in the other order.
    """
    defined = ~np.isnan(answers + swapped).any(axis=1)
    if not defined.any():
        return {}
    before, after = (_winners(side[defined]) for side in (answers, swapped))
    outcomes = {
        FIRST: (before == 0) & (after == 0),
        SECOND: (before == 1) & (after == 1),
        SAME: (before + after == 1) | ((before == 2) & (after == 2)),
    }
    outcomes[OTHERWISE] = ~np.any([*outcomes.values()], axis=0)
    return {name: float(outcomes[name].mean()) for name in COLORS if outcomes[name].any()}


def _winners(answers: FloatArray) -> FloatArray:
    """(n,) position that wins: 0, 1, or 2 for a tie, which equal probabilities are too."""
    even = answers[:, 0] == answers[:, 1]
    tied = even if answers.shape[1] == 2 else even | (answers[:, 2] >= answers[:, :2].max(axis=1))
    return np.where(tied, 2, answers[:, :2].argmax(axis=1)).astype(np.float64)


def orders(measurement: Measurement) -> Drawing | None:
    """Draw what happens when the candidates change places; None for other measurements than of both orders."""
    if measurement.bias != "position" or "answers_swapped" not in measurement.columns:
        return None
    shares = order_shares(measurement.columns["answers"], measurement.columns["answers_swapped"])
    if not shares:
        return None
    first = measurement["first_rate"]
    low, high = percent(first.low), percent(first.high)
    title = f"The output shown first wins {percent(first.value)} of the time (95 % interval {low} to {high})"
    caption = (
        "Every pair was judged twice, with the outputs in both orders. Above: how often the first position wins; "
        "50 % = no bias. Below: whether the same output wins in both orders, as it should."
    )

    def draw(figure: Figure, narrow: bool) -> None:
        top, bottom = figure.subplots(2, 1, height_ratios=[1, 1.6])
        quiet(top)
        percentages(top, "win rate of the first position")
        interval_mark(top, first.value, first.low, first.high, 0)
        unbiased_line(top, 0.5, "50 % = no bias", 0.8)
        top.set(ylim=(-0.7, 1.2), yticks=[])
        _stack(bottom, shares)

    return Drawing(title, caption, 270, draw)


def _stack(axis: Axes, shares: dict[str, float]) -> None:
    axis.set(xlim=(0, 1), ylim=(-0.9 - 0.75 * len(shares), 0.6), xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    left = 0.0
    for row, (name, part) in enumerate(shares.items()):
        axis.barh(0, part, left=left, color=COLORS[name], height=0.9, edgecolor=PAPER, linewidth=1.5)
        if part >= NARROWEST:
            axis.text(
                left + part / 2,
                0,
                percent(part),
                ha="center",
                va="center",
                color=INK if name == SAME else PAPER,
            )
        left += part
        y = -1.0 - 0.75 * row
        axis.plot([0.012], [y], "s", color=COLORS[name], markersize=9, clip_on=False)
        axis.annotate(
            f"{name}: {percent(part)}", (0.012, y), (14, 0), textcoords="offset points", va="center", color=INK
        )


# Which scores a judge gives, beside those that people give.


NAME = "scale_use"
WHOLE_POINTS = 12
"""Largest range that is cut at whole points."""


def scale_shares(measurement: Measurement) -> Drawing | None:
    """Draw the shares of the judge's and people's scores; None for other measurements."""
    if measurement.bias != NAME or "scores" not in measurement.columns:
        return None
    columns = {"judge": measurement.columns["scores"]}
    if HUMAN_SCORES in measurement.columns:
        columns["people"] = measurement.columns[HUMAN_SCORES]
    defined = {name: values[~np.isnan(values)] for name, values in columns.items()}
    defined = {name: values for name, values in defined.items() if len(values)}
    return shares_of(defined) if "judge" in defined else None


def shares_of(sides: Mapping[str, FloatArray]) -> Drawing:
    """Draw a histogram of one or two sides.

    Args:
        sides: Name -> defined scores; the first is the judge.
    """
    every = np.concatenate([*sides.values()])
    edges = _edges(float(every.min()), float(every.max()))
    shares = {name: np.histogram(values, bins=edges)[0] / len(values) for name, values in sides.items()}
    first = next(iter(shares.values()))
    most = int(np.argmax(first))
    title = f"{percent(first[most])} of the judge's scores lie between {edges[most]:g} and {edges[most + 1]:g}"
    caption = "A judge that puts most outputs into one or two bars can hardly tell them apart."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        width = (edges[1] - edges[0]) * 0.84 / len(shares)
        centres = (edges[:-1] + edges[1:]) / 2
        for k, ((name, part), (color, alpha)) in enumerate(
            zip(shares.items(), ((ACCENT, 0.85), (INK, 0.3)), strict=False)
        ):
            place = centres + (k - (len(shares) - 1) / 2) * width
            axis.bar(place, part, width=width, color=color, alpha=alpha, label=name)
        axis.set_xlabel("score")
        axis.set_ylabel("share of the items")
        axis.yaxis.set_major_formatter(lambda value, _: percent(value))
        grid(axis, "y")
        if len(shares) > 1:
            figure.legend(*axis.get_legend_handles_labels(), loc="outside upper left", ncols=2)

    return Drawing(title, caption, 270, draw)


def _edges(low: float, high: float) -> FloatArray:
    """Return edges around whole points where these are few, else ten equal parts."""
    if high - low <= WHOLE_POINTS:
        return np.arange(np.floor(low + 0.5) - 0.5, np.floor(high + 0.5) + 1.0)
    return np.linspace(low, high, 11)


# One plot for each bias, each in a file of its own; a bias without one gets its estimates with their intervals.


PLOTS: tuple[Callable[[Measurement], Drawing | None], ...] = (
    orders,
    effect_line,
    longer_wins_plot,
    own_differences,
    scale_shares,
    intervals,
)
"""In this order: each returns None for a measurement that it cannot draw."""


def drawing_of(measurement: Measurement) -> Drawing | None:
    """Return the plot of a measurement; None where nothing in it is defined."""
    drawings = (plot(measurement) for plot in PLOTS)
    return next((drawing for drawing in drawings if drawing is not None), None)


# Estimates before and after, one per row.


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


# Self-bias round by round, one line a loop.


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


# A loop's own score and the quality of its outputs, step by step, on one range.


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


# Plots of an instruction search: what it tried, what it chose, and whether fairness agrees with people.


BLUE, GRAY, ORANGE = "#2b6cb0", "0.6", "#c05621"


def curve_plot(curves: Mapping[str, Sequence[CurvePoint]], path: Path) -> None:
    """Write a PNG of the first position's win rate against agreement, one point an instruction, and the parabola.

    Args:
        curves: Title -> points, such as those before and after debiasing; they stand side by side on one axis of
            agreement.
        path: File to write.
    """
    figure = new_figure(5.6 * len(curves), 4.2)
    axes = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axis, (heading, points) in zip(axes, curves.items(), strict=True):
        _draw_curve(axis, heading, points)
    axes[0].set_ylabel("agreement (mean Spearman by document)")
    save_figure(figure, path)


def _draw_curve(axis: Any, title: str, points: Sequence[CurvePoint]) -> None:
    rates, agreed = [p.decision_rate for p in points], [p.agreement for p in points]
    fit = quadratic_fit(rates, agreed)
    axis.axvline(0.5, color=GRAY, linewidth=1)
    axis.scatter(rates, agreed, s=22, alpha=0.7, edgecolors="none", color=BLUE)
    title = f"{title}, {fit.n} instructions"
    if not math.isnan(fit.curvature):
        x = np.linspace(min(rates), max(rates), 100)
        axis.plot(x, fit(x), color=ORANGE, linewidth=1.5)
        top = "" if math.isnan(fit.top) else f", top at {fit.top:.2f}"
        title += f"\nquadratic fit, R² = {fit.r_squared:.2f}{top}"
    axis.set_title(title, fontsize="medium")
    axis.set_xlabel("decision rate of the first position")


def history_plot(report: ZEPOReport, path: Path) -> None:
    """Write a PNG of every instruction's objective by epoch, and the incumbent's."""
    figure = new_figure(5.6, 4.2)
    axis = figure.subplots()
    most = max(t.examples for t in report.tried)
    whole, left = ([t for t in report.tried if (t.examples == most) == want] for want in (True, False))
    axis.scatter(
        [t.epoch for t in whole], [t.objective for t in whole], s=22, alpha=0.6, color=BLUE, label="instruction"
    )
    if left:
        places = [t.epoch for t in left], [t.objective for t in left]
        axis.scatter(*places, s=22, alpha=0.6, facecolors="none", edgecolors=BLUE, label="left early, on fewer pairs")
    axis.step(range(len(report.history)), report.history, where="post", color=ORANGE, label="incumbent")
    axis.set_xticks(range(len(report.history)))
    axis.set_title(f"{len(report.tried)} instructions, {report.judgments} judgments", fontsize="medium")
    axis.set_xlabel("epoch")
    axis.set_ylabel(report.objective)
    axis.legend(frameon=False, loc="best")
    save_figure(figure, path)


def consistency_bars(consistency: Mapping[str, float], path: Path) -> None:
    """Write a PNG of every judge's position consistency, in [0, 1]; an undefined one has no bar and says so."""
    figure = new_figure(5.6, 0.9 + 0.45 * len(consistency))
    axis = figure.subplots()
    names, values = list(consistency), list(consistency.values())
    bars = axis.barh(names, np.nan_to_num(values), color=BLUE)
    axis.bar_label(bars, list(map(share, values)), padding=3)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.1)
    axis.set_xlabel("position consistency")
    save_figure(figure, path)


# The paper's scatter plot: likelihood score against unfairness score, before and after (Ohi et al. 2024, figure 2).


def likelihood_scatter(before: Judged, after: Judged | None, path: Path) -> None:
    """Write a PNG with one panel a judge.

    Args:
        before: Answers of the first judge, with likelihoods and human scores.
        after: Answers of the second judge; None draws one panel.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    panels = [("before", before)] if after is None else [("before", before), ("after", after)]
    figure = new_figure(5.2 * len(panels), 4.4)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (heading, judged) in zip(axes, panels, strict=True):
        _panel(axis, heading, judged)
    axes[0].set_ylabel("unfairness score US (model - human)")
    save_figure(figure, path)


def _panel(axis: Axes, title: str, judged: Judged) -> None:
    likelihoods, model, human = judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)
    kept = np.isfinite(likelihoods) & np.isfinite(model) & np.isfinite(human)
    unfairness = unfairness_scores(model[kept], human[kept])
    axis.axhline(0.0, color="0.6", linewidth=1)
    axis.scatter(likelihoods[kept], unfairness, s=12, alpha=0.5, edgecolors="none", color="#2b6cb0")
    values = {one.name: one.value() for one in LikelihoodBias().numbers(judged) if "effect" not in one.name}
    bias, performance = values["bias_score"], values["performance"]
    axis.set_title(
        f"{judged.criterion}, {title} (n = {kept.sum()}): BiasScore {bias:+.2f}, performance {performance:+.2f}",
        fontsize="medium",
    )
    axis.set_xlabel(f"likelihood score LS ({judged.provenance.get('reduction', 'sum')} over tokens, nats)")
