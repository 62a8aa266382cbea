"""One plot for each bias, each in a file of its own; a bias without one gets its estimates with their intervals."""

from __future__ import annotations

from collections.abc import Callable

from evalbias.evaluation.measurement import Measurement
from evalbias.report.html.plots.differences import own_differences
from evalbias.report.html.plots.effect import effect_line
from evalbias.report.html.plots.intervals import intervals
from evalbias.report.html.plots.longer import longer_wins
from evalbias.report.html.plots.orders import orders
from evalbias.report.html.plots.scale import scale_shares
from evalbias.report.html.svg import Drawing

PLOTS: tuple[Callable[[Measurement], Drawing | None], ...] = (
    orders,
    effect_line,
    longer_wins,
    own_differences,
    scale_shares,
    intervals,
)
"""In this order: each returns None for a measurement that it cannot draw."""


def drawing_of(measurement: Measurement) -> Drawing | None:
    """Return the plot of a measurement; None where nothing in it is defined."""
    drawings = (plot(measurement) for plot in PLOTS)
    return next((drawing for drawing in drawings if drawing is not None), None)
