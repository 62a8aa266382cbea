"""Which scores a judge gives, beside those that people give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.estimates import Measurement
from evalbias.evaluation.judged import HUMAN_SCORES
from evalbias.report.html.plots.marks import grid, percent
from evalbias.report.html.svg import ACCENT, INK, Drawing, axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "scale_use"


def scale_shares(measurement: Measurement) -> Drawing | None:
    """Draw the shares of the scores, rounded to whole points; None for other measurements."""
    scores = measurement.columns.get("scores")
    if measurement.bias != NAME or scores is None or np.isnan(scores).all():
        return None
    sides = {"judge": scores, "people": measurement.columns.get(HUMAN_SCORES, np.empty(0))}
    defined = {name: values[~np.isnan(values)] for name, values in sides.items()}
    defined = {name: values for name, values in defined.items() if len(values)}
    every = np.concatenate([*defined.values()])
    edges = _edges(float(every.min()), float(every.max()))
    shares = {name: np.histogram(values, bins=edges)[0] / len(values) for name, values in defined.items()}
    most = int(np.argmax(shares["judge"]))
    title = (
        f"{percent(shares['judge'][most])} of the judge's scores lie between {edges[most]:g} and {edges[most + 1]:g}"
    )
    caption = "A judge that puts most outputs into one or two bars cannot tell them apart."

    def draw(figure: Figure, narrow: bool) -> None:
        axis = axis_of(figure)
        width = (edges[1] - edges[0]) * 0.4
        centres = (edges[:-1] + edges[1:]) / 2
        for (name, share), color, side in zip(shares.items(), (ACCENT, INK), (-0.5, 0.5), strict=False):
            axis.bar(
                centres + side * width, share, width=width, color=color, alpha=0.8 if side < 0 else 0.3, label=name
            )
        axis.set_xlabel("score")
        axis.set_ylabel("share of the items")
        axis.yaxis.set_major_formatter(lambda value, _: percent(value))
        grid(axis, "y")
        axis.legend(loc="upper left")

    return Drawing(title, caption, 260, draw)


def _edges(low: float, high: float) -> np.ndarray:
    """Edges around whole points where these are few, else ten equal parts."""
    if high - low <= 12:
        return np.arange(np.floor(low + 0.5) - 0.5, np.floor(high + 0.5) + 1.0)
    return np.linspace(low, high, 11)
