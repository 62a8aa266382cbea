"""Results of commands as sections of a page: one rule for each kind of result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, NamedTuple

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.audit import AGREEMENT, Audit, Finding
from evalbias.evaluation.estimates import Comparison, Measurement
from evalbias.evaluation.judged import BETTER, EXPECTED, HUMAN_SCORES, LIKELIHOODS
from evalbias.evaluation.loops import LoopPair, LoopRun, LoopSummary, StyleReport
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import STATUSES, ends, joined, number, p_text, percent, share, title
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.refine import RefineReport
from evalbias.optimizers.selection import CompileReport
from evalbias.optimizers.zepo import ZEPOReport
from evalbias.report.blocks import Block, Facts, Item, Items, Passage, Section, Table, Words
from evalbias.report.plots import (
    by_construction,
    changes,
    drawing_of,
    estimate_rows,
    name_of,
    plot,
    question_of,
    rounds,
    shares_of,
    sides,
    title_of,
)

# Several judges side by side, one section a bias.


SETTLED = " †"
"""Mark of what is true by construction."""


def side_by_side(rows: Mapping[str, Row]) -> Iterator[Section]:
    """Yield one section a bias in which several judges stand side by side."""
    for bias, first in next(iter(rows.values())).measurements.items():
        sides = {name: row.measurements[bias] for name, row in rows.items()}
        names = [name for name in first.headlines if name in first.estimates]
        if not names:  # of no bias by itself, such as the joint model
            continue
        blocks: list[Block] = [Words(question_of(bias))]
        marked = {judge + SETTLED * bool(by_construction(m)): m for judge, m in sides.items()}
        drawn = next((name for name in names if not all(math.isnan(m[name].value) for m in sides.values())), None)
        if drawn is not None:
            title = f"{name_of(first[drawn])}, on documents that took no part in the search"
            defined = {judge: m[drawn] for judge, m in marked.items() if not math.isnan(m[drawn].value)}
            blocks.append(plot(estimate_rows(defined, title, null=first[drawn].null)))
        cells = [(judge, *(m[name].text() for name in names)) for judge, m in marked.items()]
        settled = next(filter(None, map(by_construction, sides.values())), "")
        note = settled and SETTLED.strip() + " " + settled
        blocks.append(Table(("", *(first[name].label for name in names)), cells, note))
        yield Section(title_of(bias), blocks)


# Tables of estimates, of changes and of candidates.


def estimates_table(measurement: Measurement) -> Table:
    """Return one row an estimate; columns that hold nothing are left out."""
    rows: list[tuple[str, ...]] = []
    for e in measurement.estimates.values():
        left_out = ", ".join(
            f"{amount} {word}" for amount, word in ((e.undefined, "undefined"), (e.excluded, "excluded")) if amount
        )
        unbiased = "" if e.null is None else f"{e.null:g}"
        rows.append((name_of(e), e.text(), e.interval, unbiased, f"{e.n:,}", left_out))
    headings = ("", "value", "95 % interval", "no bias", "items", "left out")
    kept = [k for k in range(len(headings)) if k == 0 or any(row[k] for row in rows)]
    return Table([headings[k] for k in kept], [[row[k] for k in kept] for row in rows], measurement.caption())


def changes_table(comparison: Comparison) -> Table:
    """Return one row an estimate: before, after, and their difference."""
    rows = []
    for change in comparison.changes.values():
        text, difference = change.after.text, change.difference
        interval = ends(text(difference.low), text(difference.high))
        p = p_text(change.p_value)
        values = (change.before.text(), change.after.text(), text(difference.value))
        rows.append((name_of(change.after), *values, interval, p))
    headings = ("", "before", "after", "difference", "95 % interval", "p")
    return Table(headings, rows, f"{comparison.n:,} items; p of a paired test")


def candidates_table(report: CompileReport) -> Table:
    """Return one row per candidate: its estimates on the held-back items."""
    names = list(dict.fromkeys(name for tried in report.candidates for name in tried.estimates))
    labels = {name: e.label for tried in report.candidates for name, e in tried.estimates.items()}
    rows = []
    for tried in report.candidates:
        cells = [tried.estimates[name].text() if name in tried.estimates else "" for name in names]
        rows.append((tried.name + " (chosen)" * tried.chosen, *cells, p_text(tried.p_value), tried.reason))
    headings = ("candidate", *(labels[name] for name in names), "p", "result")
    return Table(headings, rows, "On held-back items; p: one-sided, that it is better than the given judge.")


# Sections of measurements, comparisons, and mappings and lists of results; other results add their own rules.


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


# Sections of an audit: every bias with what is concluded, the agreement with people, and what was not measured.


NAMED = 20
"""Largest number of items without an answer that are named."""


@sections.register
def _of_audit(result: Audit, context: Context) -> Iterator[Section]:
    findings = sorted(result.verdict.findings, key=lambda finding: [*STATUSES].index(finding.status))
    for finding in findings:
        if finding.bias in result.measurements:
            yield _audited(finding, result.measurements[finding.bias])
    judged = {finding.bias for finding in findings}
    for name, measurement in result.measurements.items():
        if name not in judged:
            section = measurement_section(measurement, title_of(name))
            yield _with_remark(section, result.verdict.caution) if name == AGREEMENT else section
    missing = {bias: why for bias, why in result.not_measured.items() if bias not in result.measurements}
    if missing:
        rows = [(title_of(bias), why) for bias, why in missing.items()]
        table = Table(("", "why, and what would make it possible"), rows)
        yield Section("Not measured", [table], _sentence(joined([title(bias) for bias in missing])))
    if reasons := result.judged.reasons:
        first = dict(list(reasons.items())[:NAMED])
        yield Section(f"Items without an answer ({len(reasons):,})", [Facts(first)])


def _audited(finding: Finding, measurement: Measurement) -> Section:
    """Return the section of a measurement with what an audit concludes from it."""
    section = measurement_section(measurement, title_of(finding.bias))
    remark = ""
    if finding.remedy:
        caution = "" if finding.alone else "With the other biases held fixed, this one is not shown. "
        remark = f"{caution}What helps: {finding.remedy}."
    elif finding.status == "no sign" and finding.margin_in_words:
        remark = _sentence(f"{finding.margin_in_words} is ruled out")
    elif finding.status == "too few items" and finding.items_needed is not None:
        remark = f"About {finding.items_needed:,} items would show an effect worth finding, if there is one."
    section = replace(section, finding=_sentence(finding.sentence), status=finding.status)
    return _with_remark(section, remark)


def _with_remark(section: Section, remark: str) -> Section:
    """Return a section that ends with a remark; the same section if there is none."""
    return replace(section, blocks=[*section.blocks, Words(remark)], remark=remark) if remark else section


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))


# Sections of what optimizers report: the choice, the candidates, the search, the loops.


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


# Sections of refine loops: self-bias by round, two loops, other qualities, the own style.


@sections.register
def _of_loop(result: LoopSummary, context: Context) -> Iterator[Section]:
    if "bias" not in result.change:  # of another quality than the loop's own
        yield Section(f"{result.name.capitalize()}, first and last output", [changes_table(result.change)])
        return
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
def _of_style(result: StyleReport, context: Context) -> Iterator[Section]:
    for words, side in (("as given", result.before), ("in the model's own words", result.after)):
        yield measurement_section(side, f"Outputs of others, {words}")
    yield from sections(result.change, context)


# The items on which a judge looks worst, with their texts.


WORST = 10
LONGEST = {"input": 400, "output": 900}
"""Characters of a text that are shown."""


class Ranked(NamedTuple):
    """Items by how bad they are.

    Attributes:
        badness: (n,) higher is worse; NaN where undefined.
        reason: Says why item i is listed.
        rule: What is listed, as a sentence.
    """

    badness: FloatArray
    reason: Any
    rule: str


def worst_of(result: Any, examples: Sequence[dspy.Example] = ()) -> Section | None:
    """List the worst items of the first measurement in a result that knows any; see ``worst_items``."""
    known = result.judged.examples if isinstance(result, Audit) else examples
    for measurement in _measurements(result):
        if (section := worst_items(measurement, known)) is not None:
            return section
    return None


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


def worst_items(
    measurement: Measurement, examples: Sequence[dspy.Example] | None = None, *, count: int = WORST
) -> Section | None:
    """List the items that a reader should look at first; None where nothing says which these are.

    Args:
        measurement: Any measurement of the judge: its columns hold scores, answers and human scores.
        examples: (n,) the items in the measurement's order; None shows their ids only.
        count: Largest number of items.
    """
    ranked = _ranked(measurement)
    if ranked is None:
        return None
    order = np.argsort(-np.nan_to_num(ranked.badness, nan=-np.inf), kind="stable")
    chosen = [int(i) for i in order[:count] if ranked.badness[i] > 0]
    if not chosen:
        return None
    aligned = examples if examples is not None and len(examples) == len(measurement.ids) else None
    items = [
        Item(measurement.ids[i], ranked.reason(i), passages_of(aligned[i]) if aligned is not None else ())
        for i in chosen
    ]
    return Section(f"The {len(items)} items to look at first", (Words(ranked.rule), Items(items)))


def _ranked(measurement: Measurement) -> Ranked | None:
    columns = measurement.columns
    if "answers" in columns:
        if BETTER in columns:
            return _by_people(columns)
        return _by_order(columns) if "answers_swapped" in columns else None
    for name, whose in ((EXPECTED, "expected"), (HUMAN_SCORES, "people")):
        if name in columns and "scores" in columns:
            return _by_gap(columns, name, whose)
    return None


def _by_gap(columns: Mapping[str, FloatArray], name: str, whose: str) -> Ranked | None:
    scores, human = columns["scores"], columns[name]
    both = ~np.isnan(scores + human)
    if both.sum() < 2:
        return None
    likelihoods = columns.get(LIKELIHOODS)
    apart = _standard(scores, both) - _standard(human, both)
    if whose == "expected":  # on one scale: points count as they are
        apart = scores - human

    def reason(i: int) -> str:
        said = f"judge {scores[i]:.2f}, {whose} {human[i]:.2f}"
        if likelihoods is not None and likelihoods.ndim == 1 and not np.isnan(likelihoods[i]):
            below = float(np.nanmean(likelihoods < likelihoods[i]))
            said += f"; likelier than {percent(below)} of the outputs"
        return said

    where = (
        "the expected scores"
        if whose == "expected"
        else "those of people, after both were put on the same mean and spread"
    )
    return Ranked(np.abs(apart), reason, f"The outputs whose scores are farthest from {where}.")


def _by_people(columns: Mapping[str, FloatArray]) -> Ranked:
    better, first = columns[BETTER], first_place(columns["answers"])
    if "answers_swapped" in columns:
        first = (first + 1 - first_place(columns["answers_swapped"])) / 2
    worse = np.where(better == 0, 1 - first, np.where(better == 1, first, np.nan))

    def reason(i: int) -> str:
        return f"people prefer output {better[i] + 1:.0f}, the judge gives it {percent(1 - worse[i])}"

    rule = "The pairs in which the judge most clearly prefers what people like less, averaged over both orders."
    return Ranked(np.where(worse >= 0.5, worse, np.nan), reason, rule)


def first_place(answers: FloatArray) -> FloatArray:
    """Return (n,) the first position's probability from those of all answers (n, c); a tie, the third, counts half."""
    return np.asarray(answers[:, 0] + (answers[:, 2] / 2 if answers.shape[1] == 3 else 0))


def _by_order(columns: Mapping[str, FloatArray]) -> Ranked:
    first, second = (first_place(columns[name]) for name in ("answers", "answers_swapped"))

    def reason(i: int) -> str:
        below, other = percent(first[i]), percent(second[i])
        return f"the first position gets {below} in the order below and {other} in the other order"

    rule = "The pairs in which the order changes the verdict most: without bias the two percentages add up to 100 %."
    return Ranked(np.abs(first + second - 1), reason, rule)


def _standard(values: FloatArray, kept: np.ndarray) -> FloatArray:
    spread = values[kept].std()
    return np.asarray((values - values[kept].mean()) / (spread or 1.0))


def passages_of(example: Mapping[str, Any]) -> tuple[Passage, ...]:
    """Return the texts of an item: its input, and its output or its two."""
    passages = [("input", example.get("source"))]
    outputs = example.get("candidates") or example.get("outputs")
    if outputs:
        passages += [(f"output {n}", text) for n, text in enumerate(outputs, start=1)]
    else:
        passages.append(("output", example.get("output")))
    return tuple(passage(label, str(text)) for label, text in passages if text not in (None, ""))


def passage(label: str, text: str) -> Passage:
    """Return a text as a passage, cut where it is long."""
    longest = LONGEST.get(label, LONGEST["output"])
    return Passage(label, text[:longest], max(0, len(text) - longest))


# Sections of texts and scores: what a judge scored, how it ranked, what a loop wrote.


def scored_section(scores: ArrayLike) -> Section:
    """Show which scores a judge gave.

    Args:
        scores: (n,) scores; NaN where undefined.
    """
    values = np.asarray(scores, dtype=np.float64)
    defined = values[~np.isnan(values)]
    undefined = len(values) - len(defined)
    left_out = f" {undefined:,} without a defined score." if undefined else ""
    if not len(defined):
        return Section("Scores", [Words("No item has a defined score.")])
    finding = f"{len(defined):,} items were scored, {defined.mean():.2f} on average.{left_out}"
    return Section("Scores", [plot(shares_of({"judge": defined}))], finding)


def lowest_section(scores: ArrayLike, examples: Sequence[dspy.Example], ids: Sequence[Any]) -> Section | None:
    """Show the items with the lowest scores; None where no score is defined.

    Args:
        scores: (n,) scores.
        examples: (n,) the items.
        ids: (n,) their identifiers.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = [int(i) for i in np.argsort(values, kind="stable")[:WORST] if not np.isnan(values[i])]
    if not order:
        return None
    items = [Item(str(ids[i]), f"score {values[i]:.2f}", passages_of(examples[i])) for i in order]
    return Section(f"The {len(items)} lowest scores", [Items(items)])


def ranked_section(rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[dspy.Example]]) -> Section:
    """Show the first rankings, best output first.

    Args:
        rows: One record per document: ``input_id`` and ``order``, the ids best first.
        groups: The outputs of each document.
    """
    items = []
    for row, group in list(zip(rows, groups, strict=True))[:WORST]:
        outputs = {str(e.get("id")): str(e.output) for e in group}
        source = passages_of({"source": group[0].get("source")})
        ranked = [passage(f"{place}. {name}", outputs[name]) for place, name in enumerate(row["order"], start=1)]
        unranked = len(row.get("unranked", ()))
        said = f"{len(ranked)} outputs ranked" + (f", {unranked} not" if unranked else "")
        items.append(Item(str(row["input_id"]), said, [*source, *ranked]))
    title = "Rankings" if len(items) == len(rows) else f"The first {len(items)} of {len(rows):,} rankings"
    return Section(title, [Words("Best output first; all are in rankings.jsonl."), Items(items)])


def loop_sections(
    run: LoopRun, quality: ArrayLike, examples: Sequence[Mapping[str, Any]], *, limits: tuple[float, float], step: str
) -> list[Section]:
    """Show a loop's own score beside the quality of its outputs, and the items on which they lie farthest apart.

    Args:
        run: The loops.
        quality: (t + 1, n) quality of the outputs.
        examples: (n,) the items.
        limits: Lowest and highest quality.
        step: What a loop does between two rows, such as "refinement".
    """
    own = _shares(run.own(), (run.low, run.high))
    good = _shares(np.asarray(quality, dtype=np.float64), limits)
    drawing = sides(own, good, step)
    sections = [] if drawing is None else [Section("Own score and quality", [plot(drawing)], f"{drawing.title}.")]
    gap = own[-1] - good[-1]
    order = [int(i) for i in np.argsort(-np.nan_to_num(gap, nan=-np.inf), kind="stable")[:WORST] if gap[i] > 0]
    items = []
    for i in order:
        steps = run.loops[i].steps
        last = run.loops[i].at(steps[-1].iteration) if steps else None
        texts = [passage("first output", steps[0].output)]
        if last is not None and last.output != steps[0].output:
            texts.append(passage("last output", last.output))
        said = f"own score {own[-1, i] * 100:.0f} %, quality {good[-1, i] * 100:.0f} % of the way from worst to best"
        items.append(Item(run.ids[i], said, [*passages_of({"source": examples[i].get("source")}), *texts]))
    if items:
        rule = Words("Where the loop's own score of its last output exceeds the quality most.")
        sections.append(Section(f"The {len(items)} items to look at first", [rule, Items(items)]))
    return sections


def _shares(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    low, high = limits
    return np.asarray((values - low) / (high - low))
