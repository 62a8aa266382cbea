"""Results of commands as sections of a page: their blocks, and what each kind of result is shown as."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.audit import AGREEMENT, Audit, Finding
from evalbias.evaluation.bias import Plot, interval_plot
from evalbias.evaluation.biases import BIASES, score_bars, title_of
from evalbias.evaluation.estimates import Comparison, Measurement
from evalbias.evaluation.judged import BETTER, EXPECTED, HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.evaluation.loops import LoopPair, LoopRun, LoopSummary, StyleReport
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import STATUSES, Table, joined, percent, signed
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.refine import RefineReport
from evalbias.optimizers.selection import CompileReport
from evalbias.optimizers.zepo import CurvePoint, ZEPOReport
from evalbias.report import plots
from evalbias.report.plots import by_construction
from evalbias.report.tables import candidates_table, estimates_table, groups_table, search_table

# --- what a page is made of -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quote:
    """A text from a file or a model, in which nothing is explained."""

    text: str


@dataclass(frozen=True)
class ShownItem:
    """One item with its texts."""

    name: str
    reason: str  # why it is shown, with its numbers
    passages: Sequence[tuple[str, str]] = ()  # what a text is, such as "input", and the text; empty if not known


Block = str | Quote | Table | Plot | Mapping[str, str] | list[ShownItem]
"""Our own words, whose terms are explained; a text of others; a table; a plot; values to look up; items with texts."""


@dataclass(frozen=True)
class Section:
    """A heading with its blocks; the top of the page repeats its finding and remark; empty is none."""

    title: str
    blocks: Sequence[Block]
    finding: str = ""  # its result in a sentence
    status: str = ""  # what an audit concludes from it, such as "biased"
    remark: str = ""  # what follows from it, such as what helps, at its end


# --- results as sections ----------------------------------------------------------------------------------------------


def sections(result: Any, *, several: bool = False, part: str = "") -> Iterator[Section]:
    """Yield the sections of a result, in mappings and lists of any depth; of others, such as a plain number, nothing.

    Titles name the criterion if the page has ``several``; ``part`` is the key of the mapping in which a result lies.
    """
    match result:
        case Audit():
            yield from _audited(result)
        case CompileReport():
            yield from _compiled(result, several and part)
            yield from sections(result.comparison, several=several)
        case Measurement():
            yield measurement_section(result, _title(result, several))
        case Comparison():
            title = f"{_title(result, several)}, before and after"
            yield Section(title, [*plots.changes(result), result.table()])
        case LoopSummary() if "bias" not in result.change:  # of another quality than the loop's own
            yield Section(f"{result.name.capitalize()}, first and last output", [result.change.table()])
        case LoopSummary():
            last = measurement_section(result.rounds[-1], f"Self-bias of {result.name}")
            question, *rest = last.blocks
            drawn = plots.rounds({result.name: (result.numbers, result.rounds)})
            yield replace(last, blocks=[question, *_known(drawn), *rest])
            if result.change["bias"].after.n:
                yield from sections(result.change, several=several)
        case LoopPair():
            blocks: list[Block] = [*plots.changes(result.comparison), result.comparison.table()]
            yield Section(f"{result.second} against {result.first}", blocks)
        case StyleReport():
            for words, side in (("as given", result.before), ("in the model's own words", result.after)):
                yield measurement_section(side, f"Outputs of others, {words}")
            yield from sections(result.change, several=several)
        case Mapping():
            if rows := {name: one for name, one in result.items() if isinstance(one, Row)}:
                yield from _side_by_side(rows)
            for name, one in result.items():
                yield from sections(one, several=several, part=str(name))
        case list() | tuple():
            for one in result:
                yield from sections(one, several=several, part=part)


def _title(one: Measurement | Comparison, several: bool) -> str:
    title = one.bias.title.capitalize()
    return f"{title}: {one.criterion}" if several else title


def _known(block: Block | None) -> list[Block]:
    return [block] if block else []


def _compiled(report: CompileReport, part: str | bool) -> Iterator[Section]:
    """Yield what an optimizer chose, from what, why and at which cost, and how it searched."""
    finding, more = report.decision, list[Section]()
    if isinstance(report, ZEPOReport):
        first, best = report.tried[0].objective, report.tried[report.best].objective
        name = f"{report.objective[:1].upper()}{report.objective[1:]}"
        finding = finding or f"{name} went from {signed(first)} to {signed(best)} in the search."
        more.append(Section("The search", [plots.history(report), search_table(report)]))
    if isinstance(report, RefineReport):
        own, external = report.compiled_loop, report.external
        loops = {f"own feedback ({own.feedback})": own, f"external feedback ({external.feedback})": external}
        rounds = {name: (tuple(range(len(loop.rounds))), loop.rounds) for name, loop in loops.items()}
        if plot := plots.rounds(rounds, file="sides"):
            more.append(Section("Self-bias over the refinements", [BIASES["self"].question, plot]))
    blocks: list[Block] = []
    if report.chosen:
        blocks += ["The compiled program was made with:", Quote(report.chosen)]
    if report.candidates:
        blocks.append(candidates_table(report))
    if spent := {name: amount for name, amount in report.cost.to_dict().items() if amount}:
        blocks.append("It took " + ", ".join(f"{amount:,} {name}" for name, amount in spent.items()) + ".")
    yield Section(f"The choice: {part}" if part else "The choice", blocks, finding)
    yield from more


def measurement_section(measurement: Measurement, title: str) -> Section:
    """Return question, plot and numbers of one bias; the finding is what the plot shows, if there is a headline."""
    drawing = measurement.bias.plot(measurement)
    certain = by_construction(measurement)
    blocks = [measurement.bias.question, *_known(certain), *_known(drawing), estimates_table(measurement)]
    names = measurement.headlines
    if not names:
        return Section(title, blocks)
    return Section(title, blocks, measurement[names[0]].sentence() if drawing is None else f"{drawing.title}.")


SETTLED = " †"  # mark of what is true by construction


def _side_by_side(rows: Mapping[str, Row]) -> Iterator[Section]:
    """Yield one section a bias in which several judges stand side by side."""
    for bias, first in next(iter(rows.values())).measurements.items():
        sides = {name: row.measurements[bias] for name, row in rows.items()}
        names = first.headlines
        if not names:  # of no bias by itself, such as the joint model
            continue
        blocks: list[Block] = [first.bias.question]
        marked = {judge + SETTLED * bool(by_construction(m)): m for judge, m in sides.items()}
        drawn = next((name for name in names if not all(math.isnan(m[name].value) for m in sides.values())), None)
        if drawn is not None:
            title = f"{first[drawn].words}, on documents that took no part in the search"
            defined = {judge: m[drawn] for judge, m in marked.items() if not math.isnan(m[drawn].value)}
            blocks.append(interval_plot(defined, title))
        settled = next(filter(None, map(by_construction, sides.values())), "")
        cells = [(judge, *(m[name].text() for name in names)) for judge, m in marked.items()]
        headings, note = ("", *(first[name].label for name in names)), settled and f"{SETTLED.strip()} {settled}"
        yield Section(first.bias.title.capitalize(), [*blocks, Table(headings, cells, caption=note)])


# --- an audit: every bias with what is concluded, the agreement with people, and what was not measured ----------------

NAMED = 20  # largest number of items without an answer that are named


def _audited(audit: Audit) -> Iterator[Section]:
    findings = sorted(audit.findings, key=lambda finding: [*STATUSES].index(finding.status))
    remarks = {finding.bias: _remark(finding) for finding in findings} | {AGREEMENT: audit.caution}
    known = {finding.bias: finding for finding in findings}
    for name in dict.fromkeys([*known, *audit.measurements]):
        if (measurement := audit.measurements.get(name)) is not None:
            section = measurement_section(measurement, measurement.bias.title.capitalize())
            if name in known:
                section = replace(section, finding=_sentence(known[name].sentence), status=known[name].status)
            if remark := remarks.get(name):
                section = replace(section, blocks=[*section.blocks, remark], remark=remark)
            yield section
    if audit.groups:
        yield Section("Agreement with people by group", [groups_table(audit.groups)])
    missing = {bias: why for bias, why in audit.not_measured.items() if bias not in audit.measurements}
    if missing:
        reasons_of = [(title_of(bias).capitalize(), why) for bias, why in missing.items()]
        table = Table(("", "why, and what would make it possible"), reasons_of)
        yield Section("Not measured", [table], _sentence(joined([title_of(bias) for bias in missing])))
    if audit.label_next:
        said = "Ratings of these items would make the corrected mean most precise:"
        yield Section(f"Items to label next ({len(audit.label_next):,})", [said, Quote(", ".join(audit.label_next))])
    if reasons := audit.judged.reasons:
        yield Section(f"Items without an answer ({len(reasons):,})", [dict(list(reasons.items())[:NAMED])])


def _remark(finding: Finding) -> str:
    if finding.remedy:
        caution = "" if finding.alone else "With the other biases held fixed, this one is not shown. "
        return f"{caution}What helps: {finding.remedy}."
    if finding.status == "no sign" and finding.margin_in_words:
        return _sentence(f"{finding.margin_in_words} is ruled out")
    if finding.status == "too few items" and finding.items_needed is not None:
        return f"About {finding.items_needed:,} items would show an effect worth finding, if there is one."
    return ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))


# --- the items on which a judge looks worst, with their texts ---------------------------------------------------------

WORST = 10  # largest number of items that are listed


def several_criteria(result: Any) -> bool:
    """Return whether a result has measurements or comparisons of more than one criterion."""
    return len({one.criterion for one in _parts(result)}) > 1


def worst_of(result: Any, examples: Sequence[dspy.Example] = ()) -> Section | None:
    """List the worst items of the first measurement in a result that knows any."""
    known = result.judged.examples if isinstance(result, Audit) else examples
    for measurement in (one for one in _parts(result) if isinstance(one, Measurement)):
        if (section := worst_items(measurement, known)) is not None:
            of = f": {measurement.criterion}" if several_criteria(result) else ""
            return replace(section, title=section.title + of)
    return None


def _parts(result: Any) -> Iterator[Measurement | Comparison]:
    """Yield the measurements and comparisons in a result; of a loop or a style, the one whose items to look at."""
    match result:
        case Measurement() | Comparison():
            yield result
        case CompileReport():
            yield from (one for one in _parts(result.comparison) if isinstance(one, Comparison))
        case LoopSummary() if "bias" in result.change:
            yield result.rounds[-1]
        case StyleReport():
            yield result.before
        case Audit():
            yield from _parts(result.measurements)
        case Mapping():
            for one in result.values():
                yield from _parts(one)
        case list() | tuple():
            for one in result:
                yield from _parts(one)


Ranked = tuple[FloatArray, Callable[[int], str], str]
"""(n,) how bad each item is, NaN where undefined; why item i is listed; and what is listed, as a sentence."""


def worst_items(measurement: Measurement, examples: Sequence[dspy.Example] = ()) -> Section | None:
    """List the items that a reader should look at first; None where nothing says which these are.

    The (n,) examples are in the measurement's order; of another number, items show their ids only.
    """
    columns, ranked = measurement.columns, None
    if "answers" in columns and BETTER in columns:
        ranked = _by_people(columns)
    elif "answers" in columns and "answers_swapped" in columns:
        ranked = _by_order(columns)
    elif "scores" in columns and "answers" not in columns and columns.keys() & {EXPECTED, HUMAN_SCORES}:
        ranked = _by_gap(columns)
    if ranked is None:
        return None
    badness, reason, rule = ranked
    order = np.argsort(-np.nan_to_num(badness, nan=-np.inf), kind="stable")
    chosen = [int(i) for i in order[:WORST] if badness[i] > 0]
    known = len(examples) == len(measurement.ids)
    items = [ShownItem(measurement.ids[i], reason(i), passages_of(examples[i]) if known else ()) for i in chosen]
    return Section(f"The {len(items)} items to look at first", [rule, items]) if items else None


def _by_gap(columns: Mapping[str, FloatArray]) -> Ranked | None:
    """Rank by the distance from the expected scores, or from those of people at the same mean and spread."""
    scores, whose = columns["scores"], "expected" if EXPECTED in columns else "people"
    human = columns[EXPECTED] if EXPECTED in columns else columns[HUMAN_SCORES]
    both = ~np.isnan(scores + human)
    if both.sum() < 2:
        return None
    apart, where = scores - human, "the expected scores"  # on one scale: points count as they are
    if whose == "people":
        standard = [(v - v[both].mean()) / (v[both].std() or 1.0) for v in (scores, human)]
        apart, where = standard[0] - standard[1], "those of people, after both were put on the same mean and spread"
    likelihoods = columns.get(LIKELIHOODS)

    def reason(i: int) -> str:
        said = f"judge {scores[i]:.2f}, {whose} {human[i]:.2f}"
        if likelihoods is not None and likelihoods.ndim == 1 and not np.isnan(likelihoods[i]):
            said += f"; likelier than {percent(float(np.nanmean(likelihoods < likelihoods[i])))} of the outputs"
        return said

    return np.abs(apart), reason, f"The outputs whose scores are farthest from {where}."


def _by_people(columns: Mapping[str, FloatArray]) -> Ranked:
    better, first = columns[BETTER], _first_place(columns["answers"])
    if "answers_swapped" in columns:
        first = (first + 1 - _first_place(columns["answers_swapped"])) / 2
    worse = np.where(better == 0, 1 - first, np.where(better == 1, first, np.nan))

    def reason(i: int) -> str:
        return f"people prefer output {better[i] + 1:.0f}, the judge gives it {percent(1 - worse[i])}"

    rule = "The pairs in which the judge most clearly prefers what people like less, averaged over both orders."
    return np.where(worse >= 0.5, worse, np.nan), reason, rule


def _by_order(columns: Mapping[str, FloatArray]) -> Ranked:
    first, second = (_first_place(columns[name]) for name in ("answers", "answers_swapped"))

    def reason(i: int) -> str:
        below, other = percent(first[i]), percent(second[i])
        return f"the first position gets {below} in the order below and {other} in the other order"

    rule = "The pairs in which the order changes the verdict most: without bias the two percentages add up to 100 %."
    return np.abs(first + second - 1), reason, rule


def _first_place(answers: FloatArray) -> FloatArray:
    """Return (n,) the first position's probability from those of all answers (n, c); a tie, the third, counts half."""
    return np.asarray(answers[:, 0] + (answers[:, 2] / 2 if answers.shape[1] == 3 else 0))


def passages_of(example: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the texts of an item: its input, and its output or its two."""
    outputs = example.get("candidates") or example.get("outputs")
    named = [(f"output {n}", text) for n, text in enumerate(outputs, start=1)] if outputs else []
    passages = [("input", example.get("source")), *(named or [("output", example.get("output"))])]
    return [(label, str(text)) for label, text in passages if text not in (None, "")]


# --- texts and scores: what a judge scored, how it ranked, what a loop wrote ------------------------------------------


def scored_section(scores: ArrayLike) -> Section:
    """Show which scores (n,) a judge gave; NaN where undefined."""
    values = np.asarray(scores, dtype=np.float64)
    defined = values[~np.isnan(values)]
    undefined = len(values) - len(defined)
    if not len(defined):
        return Section("Scores", ["No item has a defined score."])
    left_out = f" {undefined:,} without a defined score." if undefined else ""
    finding = f"{len(defined):,} items were scored, {defined.mean():.2f} on average.{left_out}"
    return Section("Scores", [score_bars({"judge": defined})], finding)


def lowest_section(scores: ArrayLike, examples: Sequence[dspy.Example], ids: Sequence[Any]) -> Section | None:
    """Show the items (n,) with the lowest scores (n,); None where no score is defined."""
    values = np.asarray(scores, dtype=np.float64)
    order = [int(i) for i in np.argsort(values, kind="stable")[:WORST] if not np.isnan(values[i])]
    items = [ShownItem(str(ids[i]), f"score {values[i]:.2f}", passages_of(examples[i])) for i in order]
    return Section(f"The {len(items)} lowest scores", [items]) if items else None


def ranked_section(rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[dspy.Example]]) -> Section:
    """Show the first rankings: a row has the ``input_id`` of a document, and ``order``, its ids best first."""
    items = []
    for row, group in list(zip(rows, groups, strict=True))[:WORST]:
        outputs = {str(e.get("id")): str(e.output) for e in group}
        source = passages_of({"source": group[0].get("source")})
        ranked = [(f"{place}. {name}", outputs[name]) for place, name in enumerate(row["order"], start=1)]
        unranked = len(row.get("unranked", ()))
        said = f"{len(ranked)} outputs ranked" + (f", {unranked} not" if unranked else "")
        items.append(ShownItem(str(row["input_id"]), said, [*source, *ranked]))
    title = "Rankings" if len(items) == len(rows) else f"The first {len(items)} of {len(rows):,} rankings"
    return Section(title, ["Best output first; all are in rankings.jsonl.", items])


def scatter_section(sides: Mapping[str, Judged], file: str) -> Section:
    """Show how unfair scores follow the likelihood."""
    plot = plots.scatter(sides, file=file)
    return Section(f"Likelihood and unfairness: {next(iter(sides.values())).criterion}", [plot])


def curve_section(curves: Mapping[str, Sequence[CurvePoint]]) -> Section:
    """Show whether fairer instructions agree better with people."""
    return Section("Fairness and agreement", [plots.curve(curves)])


def loop_sections(
    run: LoopRun, quality: ArrayLike, examples: Sequence[Mapping[str, Any]], *, limits: tuple[float, float], step: str
) -> list[Section]:
    """Show a loop's own score beside the (t + 1, n) quality of its outputs, and the items that are farthest apart.

    ``limits`` are those of the quality; ``step`` is what a loop does between two rows, such as "refinement".
    """
    sides = (run.own(), (run.low, run.high)), (np.asarray(quality, dtype=np.float64), limits)
    own, good = (np.asarray((values - low) / (high - low)) for values, (low, high) in sides)
    drawing = plots.sides(own, good, step)
    parts = [] if drawing is None else [Section("Own score and quality", [drawing], f"{drawing.title}.")]
    gap, items = own[-1] - good[-1], list[ShownItem]()
    order = np.argsort(-np.nan_to_num(gap, nan=-np.inf), kind="stable")[:WORST]
    for i in (int(i) for i in order if gap[i] > 0):
        steps = run.loops[i].steps
        last = run.loops[i].at(steps[-1].iteration) if steps else None
        texts = [("first output", steps[0].output)]
        if last is not None and last.output != steps[0].output:
            texts.append(("last output", last.output))
        said = f"own score {own[-1, i] * 100:.0f} %, quality {good[-1, i] * 100:.0f} % of the way from worst to best"
        items.append(ShownItem(run.ids[i], said, [*passages_of({"source": examples[i].get("source")}), *texts]))
    if items:
        rule = "Where the loop's own score of its last output exceeds the quality most."
        parts.append(Section(f"The {len(items)} items to look at first", [rule, items]))
    return parts
