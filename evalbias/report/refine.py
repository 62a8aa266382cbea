"""Refine loops as tables and plots: one loop, own beside external feedback, aspects, style."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation import Aspect, LoopRun, Measurement, StyleReport, doublings
from evalbias.evaluation.formatting import SIGNIFICANCE, count, number, p_equals, short
from evalbias.measures.checks import mean_of_defined
from evalbias.optimizers.refine_report import RefineReport
from evalbias.report.figure import new_figure, save_figure
from evalbias.report.self_bias import COLORS


def loop_table(run: LoopRun, quality: ArrayLike, external: str, *, best_of: int | None = None) -> Table:
    """Return one row a number of refinements, or a size k: mean own score, mean quality, tokens spent on an item.

    Args:
        run: The loops.
        quality: (t + 1, n) quality of the outputs.
        external: Name of its source.
        best_of: k of a run that draws the best of k; None for refinements.
    """
    caption = f"{len(run.failed)} of {len(run.loops)} items failed"
    rows, first = tuple(range(run.iterations + 1)), "refinements"
    if best_of is not None:
        rows, first = tuple(k - 1 for k in doublings(len(rows))), "k"
        caption += f"; {_repeated(run, best_of)}"
    table = Table(title=f"{run.feedback} beside {external}", caption=caption)
    for heading in (first, "own score", "quality", "tokens", "undefined"):
        table.add_column(heading, justify="right")
    own, values, tokens = run.own(), np.asarray(quality, dtype=np.float64), run.tokens()
    for row in rows:
        means = (number(mean_of_defined(scores[row])) for scores in (own, values))
        undefined = int(np.isnan(own[row] + values[row]).sum())
        table.add_row(str(row + (best_of is not None)), *means, f"{tokens[row]:.0f}", str(undefined))
    return table


def _repeated(run: LoopRun, k: int) -> str:
    """Say how many items have fewer than k different drafts."""
    counts = list(run.distinct.values())
    fewer = [count for count in counts if count < k]
    if not fewer:
        return f"all {k} drafts of every item are different"
    return f"{len(fewer)} of {len(counts)} items have fewer than {k} different drafts, {np.mean(fewer):.1f} on average"


def refine_table(report: RefineReport) -> Table:
    """Return one row a number of refinements: the compiled loop beside external feedback."""
    own = report.compiled_loop
    title = f"own ({own.feedback}) | external ({report.external.feedback})"
    table = Table(title=title, caption=_refine_caption(report))
    for heading in ("round", *("quality", "Bias", "Dskew", "calls") * 2):
        table.add_column(heading, justify="right")
    for k in range(max(len(own.rounds), len(report.external.rounds))):
        cells = []
        for side in (own, report.external):
            at = min(k, len(side.rounds) - 1)  # a loop that stopped keeps its output
            cells += [short(side.rounds[at][name].text()) for name in ("quality", "bias", "skewness")]
            cells.append(f"{side.calls[at]:.1f}")
        table.add_row(str(k), *cells)
    return table


def _refine_caption(report: RefineReport) -> str:
    """Say what was compiled, and what it does on other items."""
    caption = (
        f"compiled from {report.items} items, {report.calls} calls: {count(report.iterations, 'refinement')} at most"
    )
    if report.iterations and report.margin > 0:
        caption += f", accepted when better by more than {report.margin:.0%} of the range"
    caption += f", {count(len(report.demonstrations), 'demonstration')}"
    if report.shown is not None and not report.demonstrations:
        caption += " (some were tried and did not help)"
    if not report.comparison:
        return caption
    change = report.comparison["self"]
    quality, (before, after) = change["quality"], change.cost["calls"]
    undefined = f", {quality.after.undefined} undefined" if quality.after.undefined else ""
    return (
        f"{caption}; on {quality.after.n} other items{undefined}: quality {quality.before.text()} -> "
        f"{quality.after.text()} ({p_equals(quality.p_value)}), Bias {change['bias'].before.text()} -> "
        f"{change['bias'].after.text()}, calls an item {before:.1f} -> {after:.1f}"
    )


def aspects_table(aspects: Sequence[Aspect], *, judge: str) -> Table:
    """Return one row an aspect: its mean before and after the loop, and the name of the judge."""
    table = Table(title=f"Besides quality, judged by {judge}", caption=SIGNIFICANCE)
    for heading in ("aspect", "first -> last output", "undefined"):
        table.add_column(heading, justify="left" if heading == "aspect" else "right")
    for aspect in aspects:
        change = aspect.change["score"]
        table.add_row(aspect.name, change.text(), str(change.after.undefined))
    return table


def style_table(report: StyleReport) -> Table:
    """Return the self-bias before and after paraphrasing."""
    bias, skewness = report.change["bias"], report.change["skewness"]
    caption = f"Bias {p_equals(bias.p_value)}, Dskew {p_equals(skewness.p_value)} (paired permutation test)"
    table = Table(title="Outputs of others, and in the model's own words", caption=caption)
    for heading in ("", "own score", "quality", "Bias", "Dskew", "n"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, side in (("as given", report.before), ("paraphrased", report.after)):
        cells = [side[estimate].text() for estimate in ("own", "expected", "bias", "skewness")]
        table.add_row(name, *cells, str(side["bias"].n))
    return table


def sides_plot(report: RefineReport, path: Path) -> None:
    """Write a PNG: own and external feedback, scores and quality of each loop, and its Bias with 95 % intervals.

    Args:
        report: Report of the compilation; the quality is drawn where it is on the scale of the scores.
        path: PNG file to write.
    """
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2)
    for name, side, color in zip(("own", "external"), (report.compiled_loop, report.external), COLORS, strict=False):
        x = range(len(side.rounds))
        own, expected = _values(side.rounds, "own"), _values(side.rounds, "expected")
        if own == expected:  # the feedback itself defines the quality
            left.plot(x, own, color=color, label=f"{name}: its score, the quality")
        else:
            left.plot(x, own, color=color, label=f"{name}: its score")
            left.plot(x, expected, color=color, linestyle="--", label=f"{name}: quality")
        right.plot(x, _values(side.rounds, "bias"), color=color, marker="o", markersize=3, label=name)
        low, high = ([getattr(one["bias"], end) for one in side.rounds] for end in ("low", "high"))
        right.fill_between(x, low, high, color=color, alpha=0.15)
    right.axhline(0.0, color="0.6", linewidth=1)
    left.set_ylabel("points")
    right.set_ylabel("Bias (score minus quality)")
    for axis in (left, right):
        axis.set_xlabel("refinements")
        axis.xaxis.get_major_locator().set_params(integer=True)
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False)
    save_figure(figure, path)


def _values(rounds: Sequence[Measurement], name: str) -> list[float]:
    return [measurement[name].value for measurement in rounds]
