"""Sections of refine loops: self-bias by round, two loops, other qualities, the own style."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evalbias.evaluation.aspects import Aspect
from evalbias.evaluation.loop_comparison import LoopPair
from evalbias.evaluation.loop_summary import LoopSummary
from evalbias.evaluation.style import StyleReport
from evalbias.report.html.blocks import Block, Section
from evalbias.report.html.plots.changes import changes
from evalbias.report.html.plots.rounds import rounds
from evalbias.report.html.sections.base import Context, measurement_section, sections
from evalbias.report.html.sections.tables import changes_table
from evalbias.report.html.svg import plot


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
    yield Section(f"{result.second} against {result.first}", [*blocks, changes_table(result.comparison)])


@sections.register
def _of_aspect(result: Aspect, context: Context) -> Iterator[Section]:
    yield Section(f"{result.name.capitalize()}, first and last output", [changes_table(result.change)])


@sections.register
def _of_style(result: StyleReport, context: Context) -> Iterator[Section]:
    for words, side in (("as given", result.before), ("in the model's own words", result.after)):
        yield measurement_section(side, f"Outputs of others, {words}")
    yield from sections(result.change, context)
