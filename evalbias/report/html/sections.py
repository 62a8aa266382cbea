"""What a command found, as sections of a page: one rule for each kind of result, none for single commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import isnan
from typing import Any

import dspy

from evalbias.evaluation.aspects import Aspect
from evalbias.evaluation.audit import Audit
from evalbias.evaluation.baselines import Row
from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.estimates import Measurement
from evalbias.evaluation.finding import Finding, Status
from evalbias.evaluation.formatting import number, p_text, share
from evalbias.evaluation.loop_comparison import LoopPair
from evalbias.evaluation.loop_summary import LoopSummary
from evalbias.evaluation.style import StyleReport
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.refine_report import RefineReport
from evalbias.optimizers.zepo.trace import ZEPOReport
from evalbias.report.html.blocks import Block, Section, Table, Words
from evalbias.report.html.plots import drawing_of
from evalbias.report.html.plots.changes import changes
from evalbias.report.html.plots.intervals import estimate_rows
from evalbias.report.html.plots.rounds import rounds
from evalbias.report.html.svg import plot
from evalbias.report.html.words import by_construction, question_of, title_of
from evalbias.report.html.worst import worst_items

STATUSES: tuple[Status, ...] = ("biased", "too few items", "no sign", "not measured")
"""In the order in which a reader wants them."""


@dataclass(frozen=True)
class Context:
    """What sections need besides the result.

    Attributes:
        examples: The judged items, in the order of the measurements; empty where they are not known.
        several: Whether the page has sections of several criteria, which their titles then name.
    """

    examples: Sequence[dspy.Example] = ()
    several: bool = False


@singledispatch
def sections(result: Any, context: Context) -> Iterator[Section]:
    """Yield the sections of a result; of what has none, such as a plain number, nothing.

    Args:
        result: A measurement, a comparison, a report, or a mapping or list of them.
        context: See ``Context``.
    """
    yield from ()


@sections.register(Mapping)
def _of_mapping(result: Mapping[str, Any], context: Context) -> Iterator[Section]:
    rows = {name: part for name, part in result.items() if isinstance(part, Row)}
    if rows:
        yield from _of_rows(rows)
    for part in result.values():
        yield from sections(part, context)


@sections.register(list)
@sections.register(tuple)
def _of_sequence(result: Sequence[Any], context: Context) -> Iterator[Section]:
    for part in result:
        yield from sections(part, context)


@sections.register
def _of_measurement(result: Measurement, context: Context) -> Iterator[Section]:
    yield measurement_section(result, _title(result, context))


@sections.register
def _of_comparison(result: Comparison, context: Context) -> Iterator[Section]:
    blocks: list[Block] = [plot(drawing) for drawing in changes(result)]
    blocks.append(_changes_table(result))
    yield Section(f"{_title(result, context)}, before and after", blocks)


@sections.register
def _of_loop(result: LoopSummary, context: Context) -> Iterator[Section]:
    last = measurement_section(result.rounds[-1], f"Self-bias of {result.name}")
    drawing = rounds({result.name: (result.numbers, result.rounds)})
    question, *rest = last.blocks
    yield replace(last, blocks=[question, *([] if drawing is None else [plot(drawing)]), *rest])
    if result.change["bias"].after.n:
        yield from sections(result.change, context)


@sections.register
def _of_pair(result: LoopPair, context: Context) -> Iterator[Section]:
    blocks: list[Block] = [plot(drawing) for drawing in changes(result.comparison)]
    yield Section(f"{result.second} against {result.first}", [*blocks, _changes_table(result.comparison)])


@sections.register
def _of_aspect(result: Aspect, context: Context) -> Iterator[Section]:
    yield Section(f"{result.name.capitalize()}, first and last output", [_changes_table(result.change)])


@sections.register
def _of_style(result: StyleReport, context: Context) -> Iterator[Section]:
    for words, side in (("as given", result.before), ("in the model's own words", result.after)):
        yield measurement_section(side, f"Outputs of others, {words}")
    yield from sections(result.change, context)


@sections.register
def _of_search(result: ZEPOReport, context: Context) -> Iterator[Section]:
    yield from compiled(result)
    taken = [tried for tried in result.tried if tried.accepted or tried.number in (0, result.best)]
    rows = [
        (str(one.epoch), number(one.objective), share(one.decision_rates[0]), str(one.examples), one.instruction)
        for one in taken
    ]
    caption = f"{len(result.tried)} instructions were tried; these were the best so far when they were tried."
    headings = ("epoch", result.objective, "first place wins", "pairs", "instruction")
    yield Section("The search", [Table(headings, rows, caption)])
    yield from sections(result.comparison, context)


@sections.register
def _of_report(result: CompileReport, context: Context) -> Iterator[Section]:
    yield from compiled(result)
    yield from sections(result.comparison, context)


@sections.register
def _of_refine_report(result: RefineReport, context: Context) -> Iterator[Section]:
    yield from compiled(result)
    own, external = result.compiled_loop, result.external
    sides = {f"own feedback ({own.feedback})": own.rounds, f"external feedback ({external.feedback})": external.rounds}
    drawing = rounds({name: (tuple(range(len(side))), side) for name, side in sides.items()})
    if drawing is not None:
        yield Section("Self-bias over the refinements", [Words(question_of("self")), plot(drawing)])
    yield from sections(result.comparison, context)


@sections.register
def _of_audit(result: Audit, context: Context) -> Iterator[Section]:
    findings = sorted(result.verdict.findings, key=lambda finding: STATUSES.index(finding.status))
    for finding in findings:
        if finding.bias in result.measurements and finding.status != "not measured":
            yield _audited(finding, result.measurements[finding.bias])
    seen = {finding.bias for finding in findings if finding.status != "not measured"}
    for name, measurement in result.measurements.items():
        if name not in seen:
            yield measurement_section(measurement, title_of(name))
    if result.not_measured:
        rows = [(title_of(bias), why) for bias, why in result.not_measured.items()]
        yield Section("Not measured", [Table(("", "why, and what would make it possible"), rows)])


def _audited(finding: Finding, measurement: Measurement) -> Section:
    """Return the section of a measurement with what an audit concludes from it."""
    section = measurement_section(measurement, title_of(finding.bias))
    remarks = []
    if finding.status == "too few items" and finding.items_needed is not None:
        remarks.append(f"About {finding.items_needed:,} items would show an effect worth finding, if there is one.")
    if finding.remedy:
        remarks.append(f"What helps: {finding.remedy}.")
    blocks = [*section.blocks, *map(Words, remarks)]
    return Section(section.title, blocks, _sentence(finding.sentence), finding.status)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))


def _of_rows(rows: Mapping[str, Row]) -> Iterator[Section]:
    """Yield one section a bias in which several judges stand side by side."""
    for bias, first in next(iter(rows.values())).measurements.items():
        sides = {name: row.measurements[bias] for name, row in rows.items()}
        names = [name for name in first.headlines if name in first.estimates]
        if not names:  # of no bias by itself, such as the joint model
            continue
        blocks: list[Block] = [Words(question_of(bias))]
        estimates = {judge: m[names[0]] for judge, m in sides.items() if not isnan(m[names[0]].value)}
        if estimates:
            label = first[names[0]].label
            title = f"{label[:1].upper()}{label[1:]} of each judge, on documents that took no part in the search"
            blocks.append(plot(estimate_rows(estimates, title, null=first[names[0]].null)))
        cells = [(judge, *(m[name].text() for name in names)) for judge, m in sides.items()]
        blocks.append(Table(("", *(first[name].label for name in names)), cells))
        yield Section(title_of(bias), blocks)


def compiled(result: CompileReport) -> Iterator[Section]:
    """Yield what an optimizer chose, from what, and at which cost."""
    blocks: list[Block] = []
    if result.chosen:
        blocks.append(Words("What the compiled judge was made with:"))
        blocks.append(Words(result.chosen, data=True))
    if result.candidates:
        blocks.append(_candidates_table(result))
    spent = {name: amount for name, amount in result.cost.to_dict().items() if amount}
    if spent:
        blocks.append(Words("It took " + ", ".join(f"{amount:,} {name}" for name, amount in spent.items()) + "."))
    yield Section("The choice", blocks, result.decision)


def measurement_section(measurement: Measurement, title: str) -> Section:
    """Return question, plot and numbers of one bias; the finding is what the plot shows."""
    blocks: list[Block] = [Words(question_of(measurement.bias))]
    if certain := by_construction(measurement):
        blocks.append(Words(certain))
    drawing = drawing_of(measurement)
    if drawing is not None:
        blocks.append(plot(drawing))
    blocks.append(_estimates_table(measurement))
    if drawing is not None:
        return Section(title, blocks, f"{drawing.title}.")
    names = [name for name in measurement.headlines if name in measurement.estimates]
    return Section(title, blocks, measurement[(names or [*measurement.estimates])[0]].sentence())


def worst_section(result: Any, context: Context) -> Section | None:
    """Return the worst items of the first measurement in a result that knows any."""
    examples = result.examples if isinstance(result, Audit) else context.examples
    for measurement in _measurements(result):
        if (section := worst_items(measurement, examples)) is not None:
            return section
    return None


def several_criteria(result: Any) -> bool:
    """Return whether a result has measurements or comparisons of more than one criterion."""
    return len({part.criterion for part in _parts(result) if isinstance(part, Measurement | Comparison)}) > 1


def _parts(result: Any) -> Iterator[Any]:
    yield result
    if isinstance(result, CompileReport):
        yield from _parts(result.comparison)
    elif isinstance(result, Mapping | list | tuple):
        for part in result.values() if isinstance(result, Mapping) else result:
            yield from _parts(part)


def _measurements(result: Any) -> Iterator[Measurement]:
    if isinstance(result, Measurement):
        yield result
    elif isinstance(result, LoopSummary):
        yield result.rounds[-1]
    elif isinstance(result, StyleReport):
        yield result.before
    elif isinstance(result, Audit):
        yield from _measurements(result.measurements)
    elif isinstance(result, Mapping | list | tuple):
        for part in result.values() if isinstance(result, Mapping) else result:
            yield from _measurements(part)


def _title(result: Measurement | Comparison, context: Context) -> str:
    title = title_of(result.bias)
    return f"{title}: {result.criterion}" if context.several else title


def _estimates_table(measurement: Measurement) -> Table:
    rows: list[tuple[str, ...]] = []
    for e in measurement.estimates.values():
        left_out = ", ".join(
            f"{amount} {word}" for amount, word in ((e.undefined, "undefined"), (e.excluded, "excluded")) if amount
        )
        unbiased = "" if e.null is None else f"{e.null:g}"
        rows.append((e.label, e.text(), e.interval, unbiased, f"{e.n:,}", left_out))
    headings: tuple[str, ...] = ("", "value", "95 % interval", "no bias", "items", "left out")
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    return Table(headings, rows, measurement._caption())


def _changes_table(comparison: Comparison) -> Table:
    rows = []
    for change in comparison.changes.values():
        text, difference = change.after.text, change.difference
        interval = f"{text(difference.low)} to {text(difference.high)}"
        p = p_text(change.p_value)
        rows.append((change.label, change.before.text(), change.after.text(), text(difference.estimate), interval, p))
    headings = ("", "before", "after", "difference", "95 % interval", "p")
    return Table(headings, rows, f"{comparison.n:,} items; p of a paired test")


def _candidates_table(report: CompileReport) -> Table:
    names = list(dict.fromkeys(name for tried in report.candidates for name in tried.estimates))
    labels = {name: e.label for tried in report.candidates for name, e in tried.estimates.items()}
    rows = []
    for tried in report.candidates:
        cells = [tried.estimates[name].text() if name in tried.estimates else "" for name in names]
        rows.append((tried.name + " (chosen)" * tried.chosen, *cells, p_text(tried.p_value), tried.reason))
    headings = ("candidate", *(labels[name] for name in names), "p", "")
    return Table(headings, rows, "On held-back items; p: one-sided, that it is better than the given judge.")
