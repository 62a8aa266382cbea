"""Which scores a judge gives, beside those that people give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.judged import HUMAN_SCORES
from evalbias.evaluation.measurement import Measurement
from evalbias.measures.arrays import FloatArray
from evalbias.report.html.plots.marks import grid, percent
from evalbias.report.html.svg import ACCENT, INK, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        for k, ((name, share), (color, alpha)) in enumerate(
            zip(shares.items(), ((ACCENT, 0.85), (INK, 0.3)), strict=False)
        ):
            place = centres + (k - (len(shares) - 1) / 2) * width
            axis.bar(place, share, width=width, color=color, alpha=alpha, label=name)
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
