"""Sections of measurements, comparisons, and mappings and lists of results; other results add their own rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from evalbias.evaluation.baselines import Row
from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.measurement import Measurement
from evalbias.optimizers.compile_report import CompileReport
from evalbias.report.html.blocks import Block, Section, Words
from evalbias.report.html.plots import drawing_of
from evalbias.report.html.plots.changes import changes
from evalbias.report.html.sections.side_by_side import side_by_side
from evalbias.report.html.sections.tables import changes_table, estimates_table
from evalbias.report.html.svg import plot
from evalbias.report.html.words import by_construction, question_of, title_of


@dataclass(frozen=True)
class Context:
    """Circumstances of a result that its sections depend on.

    Attributes:
        several: Whether the page has sections of several criteria, which their titles then name.
        part: Key of the mapping in which a result lies, such as a criterion.
    """

    several: bool = False
    part: str = ""


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
        yield from side_by_side(rows)
    for name, part in result.items():
        yield from sections(part, replace(context, part=str(name)))


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
    blocks.append(changes_table(result))
    yield Section(f"{_title(result, context)}, before and after", blocks)


def measurement_section(measurement: Measurement, title: str) -> Section:
    """Return question, plot and numbers of one bias; the finding is what the plot shows, if there is a headline."""
    blocks: list[Block] = [Words(question_of(measurement.bias))]
    if certain := by_construction(measurement):
        blocks.append(Words(certain))
    drawing = drawing_of(measurement)
    if drawing is not None:
        blocks.append(plot(drawing))
    blocks.append(estimates_table(measurement))
    names = [name for name in measurement.headlines if name in measurement.estimates]
    if not names:
        return Section(title, blocks)
    return Section(title, blocks, measurement[names[0]].sentence() if drawing is None else f"{drawing.title}.")


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


def _title(result: Measurement | Comparison, context: Context) -> str:
    title = title_of(result.bias)
    return f"{title}: {result.criterion}" if context.several else title
