"""Tables of results for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Group
from rich.table import Table
from rich.text import Text

from evalbias.evaluation import LoopPair, LoopRun, LoopSummary, StyleReport, doublings
from evalbias.evaluation.audit import Audit, Finding, is_of_bias
from evalbias.evaluation.estimates import Comparison, Estimate, Measurement
from evalbias.evaluation.judged import LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.rankings import NAME as AGREEMENT
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import (
    SIGNIFICANCE,
    count,
    counted_table,
    ends,
    joined,
    mark,
    median_coverage,
    number,
    p_equals,
    p_text,
    short,
    title,
)
from evalbias.measures.arrays import mean_of_defined
from evalbias.measures.resample import SHARE
from evalbias.optimizers.likelihood import BiasedDemosReport, MitigationReport
from evalbias.optimizers.likelihood_rules import LikelihoodRule, bias_number
from evalbias.optimizers.refine import RefineReport
from evalbias.optimizers.zepo import ZEPOReport
from evalbias.report.plots import new_figure, save_figure

# An audit for a terminal: the verdict, a table of biases of which 0 is none, the agreement, and what is missing.


ROWS = 12
"""Rows of the longest table that a terminal shows."""
SHOWN = 5
"""Number of the items to label next that a terminal names."""


def audit_view(audit: Audit) -> Group:
    """Return the whole audit for a terminal."""
    first, *others = audit.verdict.paragraphs
    parts: list[object] = [Text(first, style="bold"), *([""] if others else []), *map(Text, others), ""]
    decided = {finding.bias for finding in audit.verdict.findings if finding.estimate is not None}
    if decided:
        parts.append(_biases(audit))
    further = {name: m for name, m in audit.measurements.items() if name not in decided and not is_of_bias(m)}
    for m in (m for m in further.values() if len(m.estimates) <= ROWS):
        parts += ["", m.table()]
    if audit.groups:
        parts += ["", _groups(audit.groups)]
    wide = [title(name) for name, m in further.items() if len(m.estimates) > ROWS]
    return Group(*parts, "", *map(Text, _remarks(audit, wide)))  # type: ignore[arg-type]


def _remarks(audit: Audit, wide: Sequence[str]) -> Iterator[str]:
    """Say what the likelihood is of, what was not measured, what to label next, and what is shown elsewhere."""
    if LIKELIHOODS in audit.judged.covariates and "task" in audit.provenance:
        yield f"Likelihood is that of an output after its source and the task: {audit.provenance['task']}"
    in_verdict = {finding.bias for finding in audit.verdict.having("not measured") if finding.estimate is not None}
    for bias, why in audit.not_measured.items():
        if bias not in in_verdict:
            yield f"Not measured: {title(bias)}: {why}"
    if audit.label_next:
        first = ", ".join(audit.label_next[:SHOWN])
        rest = " ... (all in result.json)" if len(audit.label_next) > SHOWN else ""
        yield f"Label {count(len(audit.label_next), 'item')} next: {first}{rest}"
    if wide:
        yield f"Numbers in result.json and the report only: {', '.join(wide)}"
    if reasons := audit.judged.reasons:
        name, why = next(iter(reasons.items()))
        yield f"The judge gave no answer to {count(len(reasons), 'item')}, such as {name}: {why}"


def _biases(audit: Audit) -> Table:
    rows = [_row(finding) for finding in audit.verdict.findings if finding.estimate is not None]
    headings = ("bias", "finding", "estimate", "95 % interval", "n", "undefined")
    table = counted_table(f"{audit.judged.judge} on {audit.judged.criterion}", headings, rows)
    table.caption = _caption(audit)
    return table


def _caption(audit: Audit) -> str:
    """Say what 0 means, in which units the estimates are, and which items are left out."""
    units: dict[str, list[str]] = {}
    for finding in audit.verdict.findings:
        if finding.estimate is not None:
            less = f" (-{finding.tolerated:g} and more is no bias)" if finding.tolerated else ""
            units.setdefault(finding.estimate.unit + less, []).append(title(finding.bias))
    parts = ["0 is no bias", ", ".join(f"{joined(names)} {_unit(unit)}" for unit, names in units.items() if unit)]
    once = audit.judged.rated_once
    parts.append(f"effects at equal quality leave out {count(once, 'item')} with one rating" if once else "")
    return "; ".join(filter(None, parts))


def _unit(unit: str) -> str:
    return "as a share of comparisons" if unit == SHARE else f"in {unit}"


def _groups(groups: Mapping[str, Measurement]) -> Table:
    names = list(dict.fromkeys(name for m in groups.values() for name in m.headlines if name in m.estimates))
    table = Table(title="Agreement with people by group", caption="95 % intervals")
    table.add_column("group", overflow="fold")
    for name in names:
        table.add_column(next(m[name].label for m in groups.values() if name in m.estimates), justify="right")
    table.add_column("n", justify="right")
    for group, m in groups.items():
        shown = [f"{m[name].text()} ({m[name].interval})" if name in m.estimates else "" for name in names]
        table.add_row(group, *shown, str(len(m.ids)))
    return table


def _row(finding: Finding) -> tuple[str, ...]:
    estimate = finding.estimate
    assert estimate is not None
    interval = ends(number(estimate.low), number(estimate.high))
    figures = (number(estimate.value), interval, str(estimate.n), str(estimate.undefined))
    return (title(finding.bias), finding.status, *figures)


# Table of a compiled mitigation of likelihood bias: the given judge, the paper's method, the choice, and baselines.


def mitigation_table(reports: Mapping[str, MitigationReport], *, seed: int) -> Table:
    """Return one row per criterion and judge, on the items of the valset, which nothing was fitted on or chosen by."""
    table = Table(title="Likelihood bias on items that took no part", caption="in brackets: 95 % intervals")
    for heading in ("criterion", "judge"):
        table.add_column(heading, overflow="fold")
    headed, reasons = False, list[str]()
    for criterion, report in reports.items():
        sides = {"given": report.before, "paper's method": report.paper, "compiled": report.after}
        for place, (heading, judged) in enumerate((t, j) for t, j in sides.items() if j is not None):
            estimates = _estimates(judged, seed=seed)
            if not headed:
                for estimate in estimates.values():
                    table.add_column(estimate.label, justify="right", overflow="fold")
                headed = True
            table.add_row("" if place else criterion, heading, *map(_cell, estimates.values()))
            reasons += [f"{e.label} is undefined: {e.why_undefined}" for e in estimates.values() if _is_undefined(e)]
        for name, baseline in report.baselines.items():
            table.add_row("", f"{name} (held-back items)", *([""] * (len(estimates) - 1)), _cell(baseline))
        table.add_section()
    if reasons:
        table.caption = f"{table.caption}; {'; '.join(dict.fromkeys(reasons))}"
    return table


def _estimates(judged: Judged, *, seed: int) -> dict[str, Estimate]:
    return LikelihoodRule(bias_number(judged.covariates.get(RATINGS)), n_resamples=1, seed=seed).estimates(judged)


def _is_undefined(estimate: Estimate) -> bool:
    return math.isnan(estimate.value) and math.isnan(estimate.low)


def _cell(estimate: Estimate) -> str:
    if _is_undefined(estimate):
        return "undefined"
    low, high = (estimate.text(end) for end in (estimate.low, estimate.high))
    return f"{estimate.text()} [{low}, {high}]"


# Self-bias as tables and plots: over the rounds, own against expected score, the differences.


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
    for place, measurement in zip(loop.numbers, loop.rounds, strict=True):
        bias, skewness = measurement["bias"], measurement["skewness"]
        if not bias.n:
            table.add_row(str(place), "-", "-", "-", "-", "0")
            continue
        intervals = (f"{e.text()} ({e.low:.2f}, {e.high:.2f})" for e in (bias, skewness))
        cells = (measurement["own"].text(), measurement["expected"].text(), *intervals)
        table.add_row(str(place), *(short(cell).replace("nan", "-") for cell in cells), str(bias.n))
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


# Refine loops as tables and plots: one loop, own beside external feedback, aspects, style.


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


def aspects_table(aspects: Sequence[LoopSummary], *, judge: str) -> Table:
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


# Results as tables for a terminal.


def measurement_table(measurements: Mapping[str, Measurement]) -> Table:
    """Return one row per criterion and headline estimate of one bias, with its interval."""
    first = next(iter(measurements.values()))
    rows: list[tuple[str, ...]] = []
    for criterion, measurement in measurements.items():
        estimates = [measurement[name] for name in measurement.headlines if name in measurement.estimates]
        for place, e in enumerate(estimates):
            counts = (str(e.n), str(e.undefined))
            rows.append(("" if place else criterion, e.label, e.text(), e.interval, *counts))
    headings = ("criterion", "estimate", "value", "95 % interval", "n", "undefined")
    return counted_table(f"{title(first.bias).capitalize()} bias", headings, rows)


def comparison_table(comparisons: Mapping[str, Comparison]) -> Table:
    """Return one row per criterion and headline estimate of one bias, before -> after, with its p-value."""
    first = next(iter(comparisons.values()))
    rows: list[tuple[str, ...]] = []
    for criterion, comparison in comparisons.items():
        changes = [comparison[name] for name in comparison.headlines if name in comparison.changes]
        for place, change in enumerate(changes):
            counts = (str(change.after.n), str(change.after.undefined))
            cells = (change.label, change.text(), p_text(change.p_value), *counts)
            rows.append(("" if place else criterion, *cells))
    headings = ("criterion", "estimate", "before -> after", "p", "n", "undefined")
    table = counted_table(f"{title(first.bias).capitalize()} bias, before -> after", headings, rows)
    table.caption = SIGNIFICANCE
    return table


def words_note(reports: Mapping[str, BiasedDemosReport]) -> str:
    """Return the lengths of the chosen demonstrations beside those of all items, by criterion."""
    listed = ", ".join(
        f"{name} {np.mean(r.demonstration_words):.0f} ({min(r.demonstration_words)} to {max(r.demonstration_words)}; "
        f"all items {r.mean_words:.0f})"
        for name, r in reports.items()
    )
    return f"mean words of the demonstrations: {listed}"


def rows_table(rows: Mapping[str, Row], report: ZEPOReport, *, pairs: tuple[int, int] | None = None) -> Table:
    """Return one column a judge, on the documents that took no part in the search: every bias's headline estimates.

    Args:
        rows: Judge -> its measurements.
        report: Report of the search.
        pairs: Number of ordered pairs that the search used, and number of all that its documents have.
    """
    used = [] if pairs is None else [f"searched on {pairs[0]} of {pairs[1]} ordered pairs"]
    table = Table(title=f"Chosen: {report.chosen}", caption="; ".join([*used, *_rows_caption(rows, report)]))
    table.add_column("estimate")
    for name in rows:
        table.add_column(name, justify="right")
    measurements = next(iter(rows.values())).measurements
    for bias, measurement in measurements.items():
        for name in (name for name in measurement.headlines if name in measurement.estimates):
            cells = []
            for row in rows.values():
                tested = bias == AGREEMENT and bias in row.comparisons
                sign = mark(row.comparisons[bias][name].p_value) if tested else ""
                cells.append(row.measurements[bias][name].text() + sign)
            table.add_row(measurement[name].label, *cells)
    return table


def _rows_caption(rows: Mapping[str, Row], report: ZEPOReport) -> list[str]:
    best, first = report.tried[report.best], report.tried[0]
    counts_of = [row.measurements["position"].undefined for row in rows.values()]
    undefined = sum(counts.get(name, 0) for counts in counts_of for name in ("answers", "answers_swapped"))
    caption = [
        f"{report.objective} in the search {number(first.objective)} -> {number(best.objective)}",
        f"{report.judgments} judgments{saved_text(report)}, {report.stopped}",
        "first, longer: win rate of the first, of the longer output",
        f"{undefined} comparisons undefined",
    ]
    people = [row.measurements[AGREEMENT] for row in rows.values() if AGREEMENT in row.measurements]
    agreements = [measurement["spearman"] for measurement in people if "spearman" in measurement.estimates]
    if agreements:  # rankings; pairs have an accuracy
        counts = sorted({agreement.n for agreement in agreements})
        caption.append(f"Spearman with people over {' to '.join(map(str, counts))} documents")
        if without := max(agreement.undefined for agreement in agreements):
            caption.append(f"up to {without} documents without a correlation")
        if 2 ** (1 - counts[0]) >= 0.05:
            caption.append("too few documents for a significant difference")
    if people:
        caption.append("* p < .05, † p < .06 against the initial judge (paired permutation test)")
    return caption


def saved_text(report: ZEPOReport) -> str:
    """Return what racing saved of a search's judgments, as a remark in brackets; empty without rounds."""
    if len(report.rounds) < 2:
        return ""
    share, sizes = report.saved / (report.judgments + report.saved), ", ".join(map(str, report.rounds))
    return f" ({share:.0%} saved by racing in rounds up to {sizes} pairs)"


def coverage_note(coverage: Mapping[str, ArrayLike]) -> str:
    """Return the median probability that the labels hold, by criterion.

    Empty where no coverage is known, as from a server that reports only shares.
    """
    medians = {name: median_coverage(c) for name, c in coverage.items()}
    listed = ", ".join(f"{name} {value:.2g}" for name, value in medians.items() if not np.isnan(value))
    return f"median coverage of the labels: {listed}" if listed else ""
