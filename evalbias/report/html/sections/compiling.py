"""Sections of what optimizers report: the choice, the candidates, the search, the loops."""

from __future__ import annotations

from collections.abc import Iterator

from evalbias.evaluation.formatting import number, share
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.refine_report import RefineReport
from evalbias.optimizers.zepo.trace import ZEPOReport
from evalbias.report.html.blocks import Block, Section, Table, Words
from evalbias.report.html.plots.rounds import rounds
from evalbias.report.html.sections.base import Context, sections
from evalbias.report.html.sections.tables import candidates_table
from evalbias.report.html.svg import plot
from evalbias.report.html.words import question_of


@sections.register
def _of_report(result: CompileReport, context: Context) -> Iterator[Section]:
    yield from compiled(result, context)
    yield from sections(result.comparison, context)


@sections.register
def _of_refine_report(result: RefineReport, context: Context) -> Iterator[Section]:
    yield from compiled(result, context)
    own, external = result.compiled_loop, result.external
    sides = {f"own feedback ({own.feedback})": own.rounds, f"external feedback ({external.feedback})": external.rounds}
    drawing = rounds({name: (tuple(range(len(side))), side) for name, side in sides.items()})
    if drawing is not None:
        yield Section("Self-bias over the refinements", [Words(question_of("self")), plot(drawing)])
    yield from sections(result.comparison, context)


@sections.register
def _of_search(result: ZEPOReport, context: Context) -> Iterator[Section]:
    first, best = result.tried[0], result.tried[result.best]
    yield from compiled(result, context, f"{_moved(result.objective, first.objective, best.objective)} in the search.")
    taken = [tried for tried in result.tried if tried.accepted or tried.number in (0, result.best)]
    rows = [
        (str(one.epoch), number(one.objective), share(one.decision_rates[0]), str(one.examples), one.instruction)
        for one in taken
    ]
    caption = f"{len(result.tried)} instructions were tried; these were the best so far when they were tried."
    if len(result.rounds) > 1:
        dropped = sum(one.behind is not None for one in result.tried)
        caption += (
            f" Racing was on: {result.judgments:,} of {result.judgments + result.saved:,} judgments were asked, in "
            f"rounds up to {', '.join(map(str, result.rounds))} items, and {dropped} instructions that were behind the "
            "best were dropped early."
        )
    headings = ("epoch", result.objective, "first position wins", "pairs", "instruction")
    yield Section("The search", [Table(headings, rows, caption)])
    yield from sections(result.comparison, context)


def compiled(result: CompileReport, context: Context, finding: str = "") -> Iterator[Section]:
    """Yield what an optimizer chose, from what, and at which cost; the finding is why, or the one that is given."""
    blocks: list[Block] = []
    if result.chosen:
        blocks.append(Words("The compiled program was made with:"))
        blocks.append(Words(result.chosen, data=True))
    if result.candidates:
        blocks.append(candidates_table(result))
    spent = {name: amount for name, amount in result.cost.to_dict().items() if amount}
    if spent:
        blocks.append(Words("It took " + ", ".join(f"{amount:,} {name}" for name, amount in spent.items()) + "."))
    title = f"The choice: {context.part}" if context.several and context.part else "The choice"
    yield Section(title, blocks, result.decision or finding)


def _moved(name: str, before: float, after: float) -> str:
    return f"{name[:1].upper()}{name[1:]} went from {number(before)} to {number(after)}"
