"""What a command found, as sections of a page: one rule for each kind of result, none for single commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import dspy

from evalbias.evaluation.aspects import Aspect
from evalbias.evaluation.baselines import Row
from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.estimates import Measurement
from evalbias.evaluation.formatting import p_text
from evalbias.evaluation.loop_comparison import LoopPair
from evalbias.evaluation.loop_summary import LoopSummary
from evalbias.evaluation.style import StyleReport
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.refine_report import RefineReport
from evalbias.report.html.blocks import Block, Section, Table, Words
from evalbias.report.html.plots import drawing_of
from evalbias.report.html.plots.changes import changes
from evalbias.report.html.plots.rounds import rounds
from evalbias.report.html.svg import plot
from evalbias.report.html.words import by_construction, question_of, title_of
from evalbias.report.html.worst import worst_items


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
def _of_row(result: Row, context: Context) -> Iterator[Section]:
    yield from sections(result.measurements, context)


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
    for measurement in _measurements(result):
        if (section := worst_items(measurement, context.examples)) is not None:
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
        yield result.after
    elif isinstance(result, Row):
        yield from _measurements(result.measurements)
    elif isinstance(result, Mapping | list | tuple):
        for part in result.values() if isinstance(result, Mapping) else result:
            yield from _measurements(part)


def _title(result: Measurement | Comparison, context: Context) -> str:
    title = title_of(result.bias)
    return f"{title}: {result.criterion}" if context.several else title


def _estimates_table(measurement: Measurement) -> Table:
    rows = []
    for e in measurement.estimates.values():
        left_out = ", ".join(
            f"{amount} {word}" for amount, word in ((e.undefined, "undefined"), (e.excluded, "excluded")) if amount
        )
        unbiased = "" if e.null is None else f"{e.null:g}"
        rows.append((e.label, e.text(), e.interval, unbiased, f"{e.n:,}", left_out))
    headings = ("", "value", "95 % interval", "no bias", "items", "left out")
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
