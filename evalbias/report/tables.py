"""Results as tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation import words
from evalbias.evaluation.agreement import BOTH
from evalbias.evaluation.audit import AuditReport, AuditReports
from evalbias.evaluation.biases import title_of
from evalbias.evaluation.estimates import Comparison, Measurement
from evalbias.evaluation.findings import AGREEMENT, Finding
from evalbias.evaluation.judged import RATINGS
from evalbias.evaluation.loops import LoopRun, LoopSummary
from evalbias.evaluation.rankings import Row, order_spread
from evalbias.evaluation.words import Table, count, joined
from evalbias.measures.arrays import mean_of_defined
from evalbias.measures.resample import SHARE
from evalbias.optimizers.likelihood import MitigationReport
from evalbias.optimizers.refine import RefineReport
from evalbias.optimizers.rules import bias_number, likelihood_estimates
from evalbias.optimizers.zepo import ZEPOReport

# --- an audit ---------------------------------------------------------------------------------------------------------

INTERVAL = "95 % interval"


def criteria_table(audits: AuditReports) -> Table:
    """Return a row per criterion: its agreement with people, and every finding with its interval."""
    by_criterion = {name: {f.bias: f for f in audit.findings} for name, audit in audits.audits.items()}
    decided = [f for findings in by_criterion.values() for f in findings.values() if f.estimate is not None]
    biases, rows = list(dict.fromkeys(f.bias for f in decided)), list[tuple[str, ...]]()
    for name, findings in by_criterion.items():
        agreement, validity = audits[name].measurements.get(AGREEMENT), audits[name].validity
        valid = "" if validity is None else f"{validity.status}\n"
        people = "not rated" if agreement is None else f"{valid}{agreement[agreement.headlines[0]].with_interval}"
        rows.append((name, people, *(_cell(findings.get(bias)) for bias in biases)))
    parts = _units(sorted(decided, key=lambda finding: -finding.tolerated))
    note = "; ".join([*parts, "in brackets: 95 % intervals"])
    return Table(("criterion", "agreement", *map(title_of, biases)), rows, audits.judge, note)


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return f"{finding.status}\n{'' if finding.estimate is None else finding.estimate.with_interval}"


def _titled(finding: Finding) -> str:
    return title_of(finding.bias) + (" (others held fixed)" if finding.hidden else "")


def _units(findings: Sequence[Finding]) -> list[str]:
    """Return phrases with the units of the findings' estimates."""
    units, titles = dict[str, list[str]](), set[str]()
    for finding in findings:
        if (e := finding.estimate) is not None and (title := _titled(finding)) not in titles:
            less = f" (-{finding.tolerated:g} and more is no bias)" if finding.tolerated else ""
            units.setdefault(e.unit + less, []).append(title)
            titles.add(title)
    in_units = {unit: "as a share of comparisons" if unit == SHARE else f"in {unit}" for unit in units}
    return ["0 is no bias", ", ".join(f"{joined(of)} {in_units[unit]}" for unit, of in units.items() if unit)]


def biases_table(audit: AuditReport) -> Table:
    """Return a row per finding, as the distance from an unbiased judge."""
    rows = []
    for finding in audit.findings:
        if (e := finding.estimate) is not None:
            counts = str(e.n), str(e.undefined or "")
            rows.append((_titled(finding), finding.status, e.text(), e.interval, *counts))
    parts = _units(audit.findings)
    if once := audit.judged.rated_once:
        state = "state how reliable one is to use them (--reliability)"
        parts.append(f"effects at equal quality leave out {count(once, 'item')} with one rating: {state}")
    name, headings = f"{audit.judged.judge} on {audit.judged.criterion}", ("bias", "finding", "estimate", INTERVAL)
    caption = "; ".join(filter(None, parts))
    return Table((*headings, "n", "undefined"), rows, name, caption, left=2).without_empty()


def groups_table(groups: Mapping[str, Measurement]) -> Table:
    """Return a row per group: the agreement with people in it."""
    names = list(dict.fromkeys(name for m in groups.values() for name in m.headlines))
    names = [BOTH if name == "accuracy" and any(BOTH in m for m in groups.values()) else name for name in names]
    labels = [next(m[name].label for m in groups.values() if name in m.estimates) for name in names]
    rows, untold = [], dict[str, list[str]]()  # why a number is undefined -> the groups
    for group, m in groups.items():
        rows.append((group, *(m[name].with_interval if name in m else "" for name in names), str(len(m.ids))))
        for e in (m[name] for name in names if name in m):
            if np.isnan([e.value, e.low]).all():
                untold.setdefault(f"{e.label} is undefined: {e.why_undefined}", []).append(group)
    note = "; ".join(["95 % intervals", *(f"{why} ({joined(of)})" for why, of in untold.items())])
    return Table(("group", *labels, "n"), rows, "Agreement with people by group", note)


# --- measurements, and comparisons of two judges ----------------------------------------------------------------------


def headlines_table(
    results: Mapping[str, Comparison], *, of: str = "criterion", title: str = "", note: str = ""
) -> Table:
    """Return a row per result and headline of a bias: its value before -> after, and its p.

    ``of`` is the heading of the results' names. The title names the bias by default; a note follows the
    signs of significance.
    """
    rows: list[tuple[str, ...]] = []
    for told_apart, result in results.items():
        for place, part in enumerate(result[name] for name in result.headlines):
            e, p_value = part.after, words.p_text(part.p_value)
            rows.append(("" if place else told_apart, e.label, part.text(), p_value, str(e.n), str(e.undefined or "")))
    name = f"{next(iter(results.values())).bias.title.capitalize()} bias"
    caption = "; ".join(filter(None, [words.SIGNIFICANCE, note]))
    headings = (of, "estimate", "before -> after", "p", "n", "undefined")
    return Table(headings, rows, title or f"{name}, before -> after", caption, left=2).without_empty()


# --- reports of optimizers --------------------------------------------------------------------------------------------


def mitigation_table(reports: Mapping[str, MitigationReport], *, seed: int) -> Table:
    """Return a row per criterion and judge, on the items of the valset, which no fit and no choice has used."""
    headings, rows, reasons = list[str](), list[tuple[str, ...]](), dict[str, None]()
    for criterion, report in reports.items():
        sides = {"given": report.before, "paper's method": report.paper, "compiled": report.after}
        for place, (name, judged) in enumerate((name, side) for name, side in sides.items() if side is not None):
            measured = likelihood_estimates(bias_number(judged.covariates.get(RATINGS)), judged, seed).values()
            headings = headings or [estimate.label for estimate in measured]
            rows.append(("" if place else criterion, name, *(e.with_interval for e in measured)))
            unknown = [e for e in measured if np.isnan([e.value, e.low]).all()]
            reasons |= {f"{e.label} is undefined: {e.why_undefined}": None for e in unknown}
        for name, baseline in report.baselines.items():
            rows.append(("", f"{name} (held-back items)", *[""] * (len(headings) - 1), baseline.with_interval))
    caption = "; ".join(["in brackets: 95 % intervals", *reasons])
    return Table(("criterion", "judge", *headings), rows, "Likelihood bias on items that took no part", caption, left=2)


def rows_table(rows: Mapping[str, Row], report: ZEPOReport, *, pairs: tuple[int, int] | None = None) -> Table:
    """Return a column per judge with the headline estimates of every bias, on documents not used in the search.

    ``pairs``: pairs that the search used, and all pairs of its documents, in both orders if it asks in a single order.
    """
    lines: list[tuple[str, ...]] = []
    for bias, measurement in next(iter(rows.values())).measurements.items():
        for name in measurement.headlines:
            cells = []
            for row in rows.values():
                tested = bias == AGREEMENT and bias in row.comparisons
                sign = words.mark(row.comparisons[bias][name].p_value) if tested else ""
                cells.append(row.measurements[bias][name].text() + sign)
            lines.append((measurement[name].label, *cells))
    used = [] if pairs is None else [f"searched on {pairs[0]} of {pairs[1]} ordered pairs"]
    caption = "; ".join([*used, *_rows_caption(rows, report)])
    return Table(("estimate", *rows), lines, f"Chosen: {report.chosen}", caption)


def _rows_caption(rows: Mapping[str, Row], report: ZEPOReport) -> Iterator[str]:
    best, first = report.tried[report.best], report.tried[0]
    yield f"{report.objective} in the search {words.signed(first.objective)} -> {words.signed(best.objective)}"
    yield f"{report.judgments} judgments{report.saved_share}, {report.stopped}"
    yield "first, longer: win rate of the first, of the longer output"
    counts_of = [row.measurements["position"].undefined for row in rows.values()]
    undefined = sum(counts.get(name, 0) for counts in counts_of for name in ("answers", "answers_swapped"))
    yield f"{undefined} comparisons undefined"
    people = [row.measurements[AGREEMENT] for row in rows.values() if AGREEMENT in row.measurements]
    agreements = [measurement["spearman"] for measurement in people if "spearman" in measurement]
    if agreements:  # rankings; pairs have an accuracy
        counts = sorted({agreement.n for agreement in agreements})
        plural = "" if counts == [1] else "s"
        yield f"Spearman with people over {' to '.join(map(str, counts))} document{plural}"
        yield from order_spread(people)
        if without := max(agreement.undefined for agreement in agreements):
            yield f"up to {count(without, 'document')} without a correlation"
        if 2 ** (1 - counts[0]) >= 0.05:
            yield "too few documents for a significant difference"
    if people:
        yield "* p < .05, † p < .06 against the initial judge (paired permutation test)"


# --- self-bias and refine loops ---------------------------------------------------------------------------------------


def self_bias_table(loop: LoopSummary, *, rounds: str) -> Table:
    """Return a row per round: own and expected score, Bias and Dskew with their intervals."""
    rows = []
    for place, measurement in zip(loop.numbers, loop.rounds, strict=True):
        bias, skewness = measurement["bias"], measurement["skewness"]
        intervals = (f"{e.text()} ({e.low:.2f}, {e.high:.2f})" if bias.n else "-" for e in (bias, skewness))
        cells = (measurement["own"].text(), measurement["expected"].text(), *intervals)
        rows.append((str(place), *(words.short(cell).replace("nan", "-") for cell in cells), str(bias.n)))
    undefined = sum(measurement["bias"].undefined for measurement in loop.rounds)
    last = [loop.change[name] for name in ("bias", "skewness")]
    tests = ", ".join(f"{change.label} {words.p_equals(change.p_value)}" for change in last)
    cut = loop.last not in (-1, len(loop.rounds) - 1)
    end = f"{loop.numbers[loop.last]}, the last with scores," if cut else "last"
    caption = f"{end} against first: {tests} (paired permutation test); {undefined} scores undefined"
    headings = ("round", "own", "quality", "Bias", "Dskew", "n")
    return Table(headings, rows, f"Self-bias by {rounds}, with 95 % intervals", caption, left=0)


def loops_table(loops: Sequence[LoopSummary], *, rounds: str) -> Table:
    """Return a row per loop: its first and last round, with the signs of significance of their difference."""
    rows = []
    for loop in loops:
        first, last = loop.rounds[0], loop.rounds[loop.last]
        cells = [f"{first[name].text()} -> {last[name].text()}" for name in ("expected", "bias", "skewness")]
        signs = ["", words.mark(loop.change["bias"].p_value), words.mark(loop.change["skewness"].p_value)]
        rows.append((loop.name, *map(str.__add__, cells, signs), str(last["bias"].n)))
    caption = f"{rounds} first -> last; {words.SIGNIFICANCE}; intervals in result.json"
    return Table(("loop", "quality", "Bias", "Dskew", "n"), rows, "Self-bias", caption)


def loop_table(run: LoopRun, quality: ArrayLike, external: str) -> Table:
    """Return a row per number of refinements: means of own scores and of (t + 1, n) quality by ``external``; tokens."""
    caption = f"{len(run.failed)} of {len(run.loops)} items failed"
    own, values, tokens = run.own(), np.asarray(quality, dtype=np.float64), run.tokens()
    rows = []
    for step in range(run.iterations + 1):
        means = (words.signed(mean_of_defined(scores[step])) for scores in (own, values))
        undefined = int(np.isnan(own[step] + values[step]).sum())
        rows.append((str(step), *means, f"{tokens[step]:.0f}", str(undefined)))
    headings = ("refinements", "own score", "quality", "tokens", "undefined")
    return Table(headings, rows, f"{run.feedback} beside {external}", caption, left=0)


def refine_table(report: RefineReport) -> Table:
    """Return a row per number of refinements: the compiled loop beside external feedback."""
    own, rows = report.compiled_loop, []
    for k in range(max(len(own.rounds), len(report.external.rounds))):
        cells = []
        for side in (own, report.external):
            at = min(k, len(side.rounds) - 1)  # a loop that stopped keeps its output
            cells += [words.short(side.rounds[at][name].text()) for name in ("quality", "bias", "skewness")]
            cells.append(f"{side.calls[at]:.1f}")
        rows.append((str(k), *cells))
    name = f"own ({own.feedback}) | external ({report.external.feedback})"
    return Table(("round", *("quality", "Bias", "Dskew", "calls") * 2), rows, name, _refine_caption(report), left=0)


def _refine_caption(report: RefineReport) -> str:
    """Return a caption about the compiled loop, and its effect on other items."""
    limit = f"{count(report.iterations, 'refinement')} at most"
    caption = f"compiled from {report.items} items, {report.calls} calls: {limit}"
    caption += f", {count(len(report.demonstrations), 'demonstration')}"
    if report.shown is not None and not report.demonstrations:
        caption += " (some were tried and did not help)"
    if not report.comparison:
        return caption
    change = report.comparison["self"]
    quality, (before, after) = change["quality"], change.cost["calls"]
    undefined = f", {quality.after.undefined} undefined" if quality.after.undefined else ""
    improved = f"quality {quality.before.text()} -> {quality.after.text()} ({words.p_equals(quality.p_value)})"
    bias = f"Bias {change['bias'].before.text()} -> {change['bias'].after.text()}"
    calls = f"calls an item {before:.1f} -> {after:.1f}"
    return f"{caption}; on {quality.after.n} other items{undefined}: {improved}, {bias}, {calls}"
