"""Self-bias as tables and plots: over the rounds, own against true score, the differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation import LoopSummary
from evalbias.measures import Iteration
from evalbias.report.figure import new_figure
from evalbias.report.tables import mark, number, share

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")


def trajectory_plot(found: Sequence[tuple[str, Sequence[Iteration]]], path: Path, *, rounds: str = "iteration") -> None:
    """Write a PNG: Bias and Dskew against the iteration with 95 % intervals, a line a loop.

    Args:
        found: (name, its iterations) of every loop.
        path: Of the PNG.
        rounds: What the x-axis counts.
    """
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2)
    for (name, steps), color in zip(found, COLORS * len(found), strict=False):
        x = [s.number for s in steps]
        for axis, value, interval in (
            (left, [s.found.bias for s in steps], [s.bias_interval for s in steps]),
            (right, [s.found.skewness for s in steps], [s.skewness_interval for s in steps]),
        ):
            axis.plot(x, value, color=color, marker="o", markersize=3, label=name)
            axis.fill_between(x, [i.low for i in interval], [i.high for i in interval], color=color, alpha=0.15)
    left.axhline(0.0, color="0.6", linewidth=1)
    left.set_ylabel("Bias (own minus expected score)")
    right.set_ylabel("Dskew")
    right.set_ylim(0, 1)
    for axis in (left, right):
        axis.set_xlabel(rounds)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=120)


def scores_plot(own: ArrayLike, expected: ArrayLike, path: Path) -> None:
    """Write a PNG: every item's own score against its expected one; above the diagonal a judge flatters itself.

    Args:
        own: (n,) NaN is left out.
        expected: (n,).
        path: Of the PNG. A larger dot is several items.
    """
    mine, worth = np.asarray(own, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    kept = ~np.isnan(mine + worth)
    figure = new_figure(4.6, 4.2)
    axis = figure.subplots()
    if kept.any():
        ends = [min(mine[kept].min(), worth[kept].min()), max(mine[kept].max(), worth[kept].max())]
        axis.plot(ends, ends, color="0.6", linewidth=1)
    points, counts = np.unique(np.stack([worth[kept], mine[kept]], axis=1), axis=0, return_counts=True)
    axis.scatter(points[:, 0], points[:, 1], s=16 * counts, alpha=0.4, edgecolors="none", color=COLORS[0])
    axis.set_title(f"n = {int(kept.sum())}, {int((~kept).sum())} undefined", fontsize="medium")
    axis.set_xlabel("expected score")
    axis.set_ylabel("own score")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def differences_plot(first: ArrayLike, last: ArrayLike, path: Path, *, names: tuple[str, str]) -> None:
    """Write a PNG: histogram of own minus expected score, in two rounds on the same bins.

    Args:
        first: (n,) differences; NaN is left out.
        last: (n,).
        path: Of the PNG.
        names: Of the two.
    """
    rows = [np.asarray(values, dtype=np.float64) for values in (first, last)]
    rows = [row[~np.isnan(row)] for row in rows]
    figure = new_figure(5.6, 4.0)
    axis = figure.subplots()
    every = np.concatenate(rows)
    bins = np.histogram_bin_edges(every, bins=20) if len(every) else np.array([0.0, 1.0])
    for row, name, color in zip(rows, names, COLORS, strict=False):
        axis.hist(row, bins=bins.tolist(), alpha=0.5, color=color, label=f"{name} (n = {len(row)})")
    axis.axvline(0.0, color="0.4", linewidth=1)
    axis.set_xlabel("own minus expected score")
    axis.set_ylabel("items")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def self_bias_table(found: LoopSummary, *, rounds: str) -> Table:
    """One row a round: own and expected score, Bias and Dskew with their intervals."""
    told = f"last against first: Bias p = {found.bias.p_value:.4f}, Dskew p = {found.skewness.p_value:.4f}"
    undefined = sum(s.found.undefined for s in found.rounds)
    caption = f"{told} (paired permutation); {undefined} scores undefined"
    table = Table(title=f"Self-bias by {rounds}, with 95 % intervals", caption=caption)
    for heading in ("round", "own", "worth", "Bias", "Dskew", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for s in found.rounds:
        if not s.found.n:
            table.add_row(str(s.number), "-", "-", "-", "-", "0")
            continue
        bias = f"{number(s.found.bias)} ({share(s.bias_interval.low)}, {share(s.bias_interval.high)})"
        skewness = f"{share(s.found.skewness)} ({share(s.skewness_interval.low)}, {share(s.skewness_interval.high)})"
        cells = number(s.found.own), number(s.found.expected), bias, skewness.replace("undefined", "-")
        table.add_row(str(s.number), *cells[:2], cells[2].replace("undefined", "-"), cells[3], str(s.found.n))
    return table


def loops_table(found: Sequence[LoopSummary], *, rounds: str) -> Table:
    """One row a loop: its first and its last round; * and the dagger say that the last differs from the first."""
    caption = f"{rounds} first -> last; * p < .05, † p < .06 (paired permutation); intervals in result.json"
    table = Table(title="Self-bias", caption=caption)
    for heading in ("loop", "worth", "Bias", "Dskew", "n"):
        left = heading == "loop"
        table.add_column(heading, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for loop in found:
        first, last = loop.rounds[0].found, loop.rounds[-1].found
        table.add_row(
            loop.name,
            f"{number(first.expected)} -> {number(last.expected)}",
            f"{number(first.bias)} -> {number(last.bias)}{mark(loop.bias.p_value)}",
            f"{share(first.skewness)} -> {share(last.skewness)}{mark(loop.skewness.p_value)}",
            str(last.n),
        )
    return table
