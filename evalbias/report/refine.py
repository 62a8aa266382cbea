"""Refine loops as tables and plots: one loop, own beside external feedback, aspects, style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation import Aspect, StyleReport
from evalbias.evaluation.loops import LoopRun
from evalbias.measures.checks import mean_of_defined
from evalbias.optimizers.refine_report import LoopRecord, RefineReport
from evalbias.report.figure import new_figure
from evalbias.report.self_bias import COLORS
from evalbias.report.tables import mark, number, share, short


def loop_table(run: LoopRun, worth: ArrayLike, external: str) -> Table:
    """One row a number of refinements: mean own score, mean worth, tokens spent on an item."""
    table = Table(
        title=f"{run.feedback} beside {external}", caption=f"{len(run.failed)} of {len(run.loops)} items failed"
    )
    for heading in ("refinements", "own score", "worth", "tokens", "undefined"):
        table.add_column(heading, justify="right")
    values = np.asarray(worth, dtype=np.float64)
    for k, (own, true, tokens) in enumerate(zip(run.own(), values, run.tokens(), strict=True)):
        undefined = int(np.isnan(own + true).sum())
        table.add_row(
            str(k), number(mean_of_defined(own)), number(mean_of_defined(true)), f"{tokens:.0f}", str(undefined)
        )
    return table


def refine_table(report: RefineReport) -> Table:
    """One row a number of refinements: the loop that was compiled, and external feedback, side by side."""
    own = compiled_side(report)
    table = Table(title=f"own ({own.feedback}) | external ({report.external.feedback})", caption=_compiled(report))
    for heading in ("round", *("worth", "Bias", "Dskew", "calls") * 2):
        table.add_column(heading, justify="right")
    for k in range(max(len(own.worth), len(report.external.worth))):
        cells = []
        for side in (own, report.external):
            at = min(k, len(side.worth) - 1)  # a loop that stopped keeps what it has
            found = side.bias[at].found
            cells += [short(number(side.worth[at])), short(number(found.bias)), short(share(found.skewness))]
            cells.append(f"{side.calls[at]:.1f}")
        table.add_row(str(k), *cells)
    return table


def _compiled(report: RefineReport) -> str:
    """What was compiled, and what it does on other items."""
    told = f"compiled from {report.items} items, {report.calls} calls: {_many(report.iterations, 'refinement')} at most"
    if report.iterations and report.margin > 0:
        told += f", accepted when better by more than {report.margin:.0%} of the range"
    told += f", {_many(len(report.demonstrations), 'demonstration')}"
    if report.shown is not None and not report.demonstrations:
        told += " (some were tried and did not help)"
    if report.validation is None:
        return told
    before, after, test = report.validation.before, report.validation.after, report.validation.test
    undefined = f", {test.undefined} undefined" if test.undefined else ""
    return (
        f"{told}; on {test.n} other items{undefined}: worth {number(before.worth)} -> {number(after.worth)} "
        f"(p = {test.p_value:.4f}), Bias {number(before.bias.bias)} -> {number(after.bias.bias)}, "
        f"calls an item {before.calls:.1f} -> {after.calls:.1f}"
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def aspects_table(found: Sequence[Aspect]) -> Table:
    """One row an aspect: its mean before and after the loop."""
    table = Table(title="Besides quality", caption="* p < .05, † p < .06, last against first (paired permutation)")
    for heading in ("aspect", "first output", "last output", "undefined"):
        table.add_column(heading, justify="left" if heading == "aspect" else "right")
    for aspect in found:
        last = number(aspect.means[-1]) + mark(aspect.test.p_value)
        table.add_row(aspect.name, number(aspect.means[0]), last, str(aspect.undefined))
    return table


def style_table(found: StyleReport) -> Table:
    """Before and after paraphrasing."""
    caption = f"Bias p = {found.bias.p_value:.4f}, Dskew p = {found.skewness.p_value:.4f} (paired permutation)"
    table = Table(title="Outputs of others, and in the model's own words", caption=caption)
    for heading in ("", "own score", "worth", "Bias", "Dskew", "n"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, side in (("as it is", found.before.found), ("paraphrased", found.after.found)):
        figures = number(side.own), number(side.expected), number(side.bias), share(side.skewness)
        table.add_row(name, *figures, str(side.n))
    return table


def sides_plot(report: RefineReport, path: Path) -> None:
    """Write a PNG: own beside external feedback, what each loop scores and is worth, and its Bias with 95 % intervals.

    Args:
        report: Of the compilation; scores and worth are drawn as shares of their ranges.
        path: Of the PNG.
    """
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2)
    for name, side, color in zip(("own", "external"), (compiled_side(report), report.external), COLORS, strict=False):
        x = [step.number for step in side.bias]
        own, worth = ([getattr(step.found, of) for step in side.bias] for of in ("own", "expected"))
        if own == worth:  # the feedback is itself the worth
            left.plot(x, own, color=color, label=f"{name}: its score, the worth")
        else:
            left.plot(x, own, color=color, label=f"{name}: its score")
            left.plot(x, worth, color=color, linestyle="--", label=f"{name}: worth")
        right.plot(x, [step.found.bias for step in side.bias], color=color, marker="o", markersize=3, label=name)
        low, high = ([getattr(s.bias_interval, end) for s in side.bias] for end in ("low", "high"))
        right.fill_between(x, low, high, color=color, alpha=0.15)
    right.axhline(0.0, color="0.6", linewidth=1)
    left.set_ylabel("share of the range")
    right.set_ylabel("Bias (score minus worth)")
    for axis in (left, right):
        axis.set_xlabel("refinements")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False)
    figure.savefig(path, dpi=120)


def compiled_side(report: RefineReport) -> LoopRecord:
    """The loop under its own feedback that was compiled."""
    if report.demonstrations and report.shown is not None:
        return report.shown
    return next(r for r in report.own if r.margin == report.margin or math.isnan(report.margin))
