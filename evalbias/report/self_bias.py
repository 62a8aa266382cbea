"""Self-bias as tables and plots: over the rounds, own against expected score, the differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from evalbias.evaluation import LoopPair, LoopSummary
from evalbias.evaluation.formatting import SIGNIFICANCE, count, mark, p_equals, short
from evalbias.report.figure import new_figure, save_figure

COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")


def trajectory_plot(loops: Sequence[LoopSummary], path: Path, *, rounds: str = "iteration") -> None:
    """Write a PNG of Bias and Dskew against the round with 95 % intervals, one line a loop.

    Args:
        loops: Loops to draw.
        path: PNG file to write.
        rounds: Label of the x-axis.
    """
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2)
    for loop, color in zip(loops, COLORS * len(loops), strict=False):
        for axis, name in ((left, "bias"), (right, "skewness")):
            estimates = [measurement[name] for measurement in loop.rounds]
            axis.plot(
                loop.numbers, [e.value for e in estimates], color=color, marker="o", markersize=3, label=loop.name
            )
            axis.fill_between(
                loop.numbers, [e.low for e in estimates], [e.high for e in estimates], color=color, alpha=0.15
            )
    left.axhline(0.0, color="0.6", linewidth=1)
    left.set_ylabel("Bias (own minus expected score)")
    right.set_ylabel("Dskew")
    right.set_ylim(0, 1)
    for axis in (left, right):
        axis.set_xlabel(rounds)
        axis.xaxis.get_major_locator().set_params(integer=True)
    left.legend(frameon=False, loc="best")
    save_figure(figure, path)


def scores_plot(own: ArrayLike, expected: ArrayLike, path: Path) -> None:
    """Write a PNG of every item's own score against its expected one; above the diagonal a judge flatters itself.

    Args:
        own: (n,) own scores; NaN is left out.
        expected: (n,) expected scores.
        path: PNG file to write. A larger dot is several items.
    """
    y, x = np.asarray(own, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    kept = ~np.isnan(x + y)
    figure = new_figure(4.6, 4.2)
    axis = figure.subplots()
    if kept.any():
        ends = [min(y[kept].min(), x[kept].min()), max(y[kept].max(), x[kept].max())]
        axis.plot(ends, ends, color="0.6", linewidth=1)
    points, counts = np.unique(np.stack([x[kept], y[kept]], axis=1), axis=0, return_counts=True)
    axis.scatter(points[:, 0], points[:, 1], s=16 * counts, alpha=0.4, edgecolors="none", color=COLORS[0])
    axis.set_title(f"n = {int(kept.sum())}, {int((~kept).sum())} undefined", fontsize="medium")
    axis.set_xlabel("expected score")
    axis.set_ylabel("own score")
    save_figure(figure, path)


def differences_plot(first: ArrayLike, last: ArrayLike, path: Path, *, names: tuple[str, str]) -> None:
    """Write a PNG with histograms of own minus expected score in two rounds, on the same bins.

    Args:
        first: (n,) differences of the first round; NaN is left out.
        last: (n,) differences of the last round.
        path: PNG file to write.
        names: Names of the two rounds.
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
    save_figure(figure, path)


def self_bias_table(loop: LoopSummary, *, rounds: str) -> Table:
    """Return one row a round: own and expected score, Bias and Dskew with their intervals."""
    tests = f"Bias {p_equals(loop.change['bias'].p_value)}, Dskew {p_equals(loop.change['skewness'].p_value)}"
    undefined = sum(measurement["bias"].undefined for measurement in loop.rounds)
    caption = f"last against first: {tests} (paired permutation test); {undefined} scores undefined"
    table = Table(title=f"Self-bias by {rounds}, with 95 % intervals", caption=caption)
    for heading in ("round", "own", "quality", "Bias", "Dskew", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, measurement in zip(loop.numbers, loop.rounds, strict=True):
        bias, skewness = measurement["bias"], measurement["skewness"]
        if not bias.n:
            table.add_row(str(number), "-", "-", "-", "-", "0")
            continue
        intervals = (f"{e.text()} ({e.low:.2f}, {e.high:.2f})" for e in (bias, skewness))
        cells = (measurement["own"].text(), measurement["expected"].text(), *intervals)
        table.add_row(str(number), *(short(cell).replace("nan", "-") for cell in cells), str(bias.n))
    return table


def loops_table(loops: Sequence[LoopSummary], *, rounds: str) -> Table:
    """Return one row a loop: its first and last round, with the signs of significance of their difference."""
    caption = f"{rounds} first -> last; {SIGNIFICANCE}; intervals in result.json"
    table = Table(title="Self-bias", caption=caption)
    for heading in ("loop", "quality", "Bias", "Dskew", "n"):
        left = heading == "loop"
        table.add_column(heading, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for loop in loops:
        first, last = loop.rounds[0], loop.rounds[-1]
        cells = [f"{first['expected'].text()} -> {last['expected'].text()}"]
        cells += [
            f"{first[name].text()} -> {last[name].text()}{mark(loop.change[name].p_value)}"
            for name in ("bias", "skewness")
        ]
        table.add_row(loop.name, *cells, str(last["bias"].n))
    return table


def pairs_table(pairs: Sequence[LoopPair], *, rounds: str) -> Table:
    """Return one row per pair of loops, the second below the first: the Bias and Dskew of both and the tests' p."""
    caption = f"second against first on the items of both, in their last common {rounds}; paired permutation test"
    caption += f", two-sided, not corrected for {count(len(pairs), 'pair')}"
    table = Table(title="Between loops", caption=caption, show_lines=True)
    table.add_column("loops", overflow="fold")
    for heading in ("round", "Bias", "p", "Dskew", "p", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for pair in pairs:
        cells = []
        for name in ("bias", "skewness"):
            change = pair.comparison[name]
            cells += [f"{change.before.text()}\n{change.after.text()}", f"{change.p_value:.4f}"]
        n = str(pair.comparison["bias"].after.n)
        table.add_row(f"{pair.first}\n{pair.second}", str(pair.number), *cells, n)
    return table
