"""Which candidate wins when the order of the two is swapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalbias.evaluation.measurement import Measurement
from evalbias.measures.arrays import FloatArray
from evalbias.report.html.plots.marks import interval_mark, percent, percentages, unbiased_line
from evalbias.report.html.svg import ACCENT, INK, LINE, MUTED, OTHER, PAPER, Drawing, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    for row, (name, share) in enumerate(shares.items()):
        axis.barh(0, share, left=left, color=COLORS[name], height=0.9, edgecolor=PAPER, linewidth=1.5)
        if share >= NARROWEST:
            axis.text(
                left + share / 2,
                0,
                percent(share),
                ha="center",
                va="center",
                color=INK if name == SAME else PAPER,
            )
        left += share
        y = -1.0 - 0.75 * row
        axis.plot([0.012], [y], "s", color=COLORS[name], markersize=9, clip_on=False)
        axis.annotate(
            f"{name}: {percent(share)}", (0.012, y), (14, 0), textcoords="offset points", va="center", color=INK
        )
