"""Plots of an instruction search: what it tried, what it chose, and whether fairness agrees with people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.evaluation.formatting import share
from evalbias.measures import quadratic_fit
from evalbias.optimizers.zepo.sensitivity import CurvePoint
from evalbias.optimizers.zepo.trace import ZEPOReport
from evalbias.report.figure import new_figure, save_figure

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
    for axis, (title, points) in zip(axes, curves.items(), strict=True):
        _draw_curve(axis, title, points)
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
