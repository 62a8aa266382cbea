"""Plot of a judge's scores over a property of the text (its likelihood, its length) at equal quality."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evalbias.evaluation.formatting import decimals
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.quality import are_verdicts
from evalbias.measures.arrays import FloatArray
from evalbias.measures.effect import FeatureEffect
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.joint_model import QUALITY
from evalbias.report.html.plots.marks import DASHED, grid
from evalbias.report.html.svg import ACCENT, INK, MUTED, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    names = [name for name in PROPERTIES if name in measurement.samples]
    points = _points(measurement, names[0]) if names else None
    if points is None:
        return None
    more, less = PROPERTIES[names[0]]
    pairs = "answers" in measurement.columns
    unit = "log-odds" if pairs else "points"
    verdicts = pairs and are_verdicts(measurement.samples[names[0]].values)
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
    sample = measurement.samples[name]
    statistic = sample.statistic
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


def _quality_slope(x: FloatArray, scores: FloatArray, quality: FloatArray, effect: FeatureEffect) -> float:
    """Return points of the score for one point of quality: the effect's own, or least squares where that is unknown."""
    if QUALITY in effect.slopes and not np.isnan(effect.slopes[QUALITY].value):
        return effect.slopes[QUALITY].value * effect.score_sd
    return float(np.linalg.lstsq(np.stack([quality, x], axis=1), scores, rcond=None)[0][0])
