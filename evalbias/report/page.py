"""The report: sections of a command's results, and the HTML file made of them, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import ArrayLike
from rich.console import Group
from rich.text import Text

from evalbias.evaluation.audit import AuditReport, AuditReports
from evalbias.evaluation.bias import (
    Block,
    Plot,
    Quote,
    Report,
    Section,
    Shown,
    ShownItem,
    by_construction,
    comparison_section,
    interval_plot,
    measurement_section,
)
from evalbias.evaluation.biases import BIASES, score_bars, title_of
from evalbias.evaluation.estimates import Comparison, Measurement
from evalbias.evaluation.findings import AGREEMENT
from evalbias.evaluation.judged import BETTER, EXPECTED, HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.evaluation.loops import LoopRun
from evalbias.evaluation.rankings import Row
from evalbias.evaluation.words import STATUSES, Table, joined, model_title
from evalbias.measures.arrays import FloatArray
from evalbias.optimizers.selection import CompileReport
from evalbias.report import plots
from evalbias.report.plots import draw
from evalbias.report.tables import biases_table, criteria_table, groups_table
from evalbias.runs import SETTINGS, flatten, write_whole
from evalbias.values import read_json, visible

# --- results as sections ----------------------------------------------------------------------------------------------


def sections(result: Any, *, several: bool = False, part: str = "") -> Iterator[Section]:
    """Yield the sections of a result, in mappings and lists of any depth; a plain number has none.

    Titles name the criterion if the page has ``several``; ``part`` is the key of the mapping in which a result lies.
    """
    match result:
        case AuditReports():
            yield Section("All criteria", [criteria_table(result)])
            for name, audit in result.audits.items():
                yield Section(name.capitalize(), audit.first_screen)
                for section in filter(None, (*_audited(audit), worst_of(audit.measurements))):
                    yield replace(section, title=f"{section.title}: {name}", finding="")
        case AuditReport():
            yield from _audited(result)
        case Report():
            for section in result.sections():
                yield replace(section, title=f"{section.title}: {part}") if several and part else section
            yield from sections([*vars(result).values()], several=several)  # its measurements and comparisons
        case Shown():
            yield from result.sections()
        case Measurement():
            yield measurement_section(result, _title(result, several))
        case Comparison():
            yield comparison_section(result, f"{_title(result, several)}, before and after")
        case Mapping():
            if rows := {name: value for name, value in result.items() if isinstance(value, Row)}:
                yield from _side_by_side(rows)
            for name, value in result.items():
                yield from sections(value, several=several, part=str(name))
        case list() | tuple():
            for value in result:
                yield from sections(value, several=several, part=part)


def _title(result: Measurement | Comparison, several: bool) -> str:
    title = result.bias.title.capitalize()
    return f"{title}: {result.criterion}" if several else title


SETTLED = " †"  # mark of results that are true by construction


def _side_by_side(rows: Mapping[str, Row]) -> Iterator[Section]:
    """Yield a section per bias that compares several judges."""
    for bias, first in next(iter(rows.values())).measurements.items():
        sides = {name: row.measurements[bias] for name, row in rows.items()}
        names = first.headlines
        if not names:  # no bias by itself, such as the joint model
            continue
        marked = {judge + (SETTLED if by_construction(m) else ""): m for judge, m in sides.items()}
        each = ({judge: m[name] for judge, m in marked.items() if not math.isnan(m[name].value)} for name in names)
        drawn = next(filter(None, each), {})
        words = next((e.words for e in drawn.values()), "")
        plot = interval_plot(drawn, f"{words}, on documents that took no part in the search")
        settled = next(filter(None, map(by_construction, sides.values())), "")
        cells = [(judge, *(m[name].text() for name in names)) for judge, m in marked.items()]
        headings, note = ("", *(first[name].label for name in names)), settled and f"{SETTLED.strip()} {settled}"
        yield Section(first.bias.title.capitalize(), [first.bias.question, plot, Table(headings, cells, caption=note)])


# --- an audit: every bias with its conclusion, the agreement with people, and the measures that are missing -----------

DIFFER = {"raters": "your raters differ most from each other", "judge": "the judge differs most from people"}
NAMED = 20  # largest number of items without an answer that are named


def _audited(audit: AuditReport) -> Iterator[Section]:
    findings = {f.bias: f for f in sorted(audit.findings, key=lambda f: [*STATUSES].index(f.status))}
    overview = [biases_table(audit)] if any(f.estimate is not None for f in findings.values()) else []
    task = str(audit.provenance.get("task", "")) if LIKELIHOODS in audit.judged.covariates else ""
    about = f"Likelihood is that of an output after its source and the task: {task}" if task else ""
    screen = "\n".join(audit.first_screen)  # which lists the missing measures
    more = [line for line in audit.paragraphs if line not in screen]
    if overview or more or about:
        yield Section("Findings", [*overview, *more, *filter(None, [about])])
    for name in dict.fromkeys([AGREEMENT, *findings, *audit.measurements]):
        if (measurement := audit.measurements.get(name)) is not None:
            section = measurement_section(measurement, measurement.bias.title.capitalize())
            if name in findings:
                finding = findings[name]
                if finding.status == "not measured" and finding.estimate is None:  # none of the numbers tells it
                    section = replace(section, blocks=[*section.blocks, f"Not measured: {finding.sentence}."])
                section = replace(section, finding=_sentence(finding.sentence), status=finding.status)
            elif name == AGREEMENT and audit.validity is not None:
                section = replace(section, finding=audit.validity.sentence, status=audit.validity.status)
            yield section
    if audit.groups:
        yield Section("Agreement with people by group", [groups_table(audit.groups)])
    only = audit.provenance.get("only")
    unasked = [name for name, bias in BIASES.items() if bias.kind == "bias" and only not in (None, name)]
    unlisted = (*audit.measurements, *unasked)
    if missing := {title_of(n): why for n, why in audit.not_measured.items() if n not in unlisted}:
        rows = [(title.capitalize(), why) for title, why in missing.items()]
        table = Table(("", "why, and what would make it possible"), rows, left=2)
        yield Section("Not measured", [table], _sentence(joined([*missing])))
    for whose, ids in audit.discuss.items():
        yield Section(f"Items to discuss: {DIFFER[whose]}", [Quote(", ".join(ids))])
    if audit.missing is not None:
        yield Section("Missing judgments", [audit.missing.table()], audit.missing.sentence())
    if reasons := audit.judged.asked.reasons:
        yield Section(f"Items without an answer ({len(reasons):,})", [dict(list(reasons.items())[:NAMED])])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".") + "."


# --- the items on which a judge looks worst, with their texts ---------------------------------------------------------

FIRST, LISTED = 10, 50  # largest number of items in view at first, and on a page


def several_criteria(result: Any) -> bool:
    """Return whether a result has measurements or comparisons of more than one criterion."""
    return len({part.criterion for part in _parts(result)}) > 1


def worst_of(result: Any) -> Section | None:
    """List the worst items of the first measurement in a result that knows any."""
    for measurement in (part for part in _parts(result) if isinstance(part, Measurement)):
        if (section := worst_items(measurement)) is not None:
            of = f": {measurement.criterion}" if several_criteria(result) else ""
            return replace(section, title=section.title + of)
    return None


def _parts(result: Any) -> Iterator[Measurement | Comparison]:
    """Yield the measurements and comparisons in a result, but for those of loops."""
    match result:
        case Measurement() | Comparison():
            yield result
        case CompileReport():
            yield from (part for part in _parts(result.comparison) if isinstance(part, Comparison))
        case AuditReport():
            yield from _parts(result.measurements)
        case Mapping():
            yield from _parts([*result.values()])
        case list() | tuple():
            for part in result:
                yield from _parts(part)


ItemNumbers = Mapping[str, tuple[str, FloatArray]]
"""Numbers of items, such as "judge" -> their form, "{:.2f}", and (n,) values, NaN where undefined."""
Ranked = tuple[FloatArray, ItemNumbers, str]
"""(n,) how bad each item is, NaN where undefined; why it is listed; and a sentence about the list."""


def worst_items(measurement: Measurement, examples: Sequence[dspy.Example] = ()) -> Section | None:
    """List the items that a reader should look at first; None without a measure to rank them by.

    The (n,) examples, in the measurement's order, are by default the judged items.
    """
    judged, ranked = measurement.judged, None
    if judged is None:
        return None
    if BETTER in judged.covariates:
        ranked = _by_people(judged)
    elif judged.both_orders:
        ranked = _by_order(judged)
    elif not judged.pairwise and judged.covariates.keys() & {EXPECTED, HUMAN_SCORES}:
        ranked = _by_gap(judged)
    if ranked is None:
        return None
    texts = [*map(passages_of, examples or judged.examples)] or [[] for _ in judged.ids]
    return _look_first(*ranked, judged.ids, texts)


def _look_first(
    badness: FloatArray, numbers: ItemNumbers, rule: str, ids: Sequence[str], texts: Sequence[Sequence[tuple[str, str]]]
) -> Section | None:
    """List the worst of n items with their texts; None where none is bad."""
    order = np.argsort(-np.nan_to_num(badness, nan=-np.inf), kind="stable")[:LISTED]
    items = [_item(i, numbers, ids[i], texts[i]) for i in map(int, order) if badness[i] > 0]
    return Section(f"The {len(items)} items to look at first", [rule, items]) if items else None


def _item(i: int, numbers: ItemNumbers, item: str, passages: Sequence[tuple[str, str]]) -> ShownItem:
    defined = {name: float(values[i]) for name, (_, values) in numbers.items() if not np.isnan(values[i])}
    reason = ", ".join(f"{name} {numbers[name][0].format(value)}" for name, value in defined.items())
    return ShownItem(str(item), reason, passages, defined)


def _by_gap(judged: Judged) -> Ranked | None:
    """Rank by the distance from the expected scores, or from those of people at the same mean and spread."""
    scores, covariates, likelihoods = judged.answers, judged.covariates, judged.covariates.get(LIKELIHOODS)
    whose, source = ("expected", EXPECTED) if EXPECTED in covariates else ("people", HUMAN_SCORES)
    human = covariates[source]
    both = ~np.isnan(scores + human)
    if both.sum() < 2:
        return None
    apart, where = scores - human, "the expected scores"  # a common scale needs no standardization
    if whose == "people":
        standard = [(v - v[both].mean()) / (v[both].std() or 1.0) for v in (scores, human)]
        apart, where = standard[0] - standard[1], "those of people, after both were put on the same mean and spread"
    numbers = {"judge": ("{:.2f}", scores), whose: ("{:.2f}", human)}
    if likelihoods is not None:
        below = np.searchsorted(np.sort(likelihoods), likelihoods) / len(likelihoods)  # NaN is last
        numbers["likelier than"] = "{:.0f} % of the outputs", np.where(np.isnan(likelihoods), np.nan, 100 * below)
    return np.abs(apart), numbers, f"The outputs whose scores are farthest from {where}."


def _by_people(judged: Judged) -> Ranked:
    better = judged.covariates[BETTER]
    worse = np.where(np.isin(better, (0, 1)), np.abs(1 - better - judged.win_shares), np.nan)
    numbers = {"people prefer output": ("{:.0f}", better + 1), "the judge gives it": ("{:.0f} %", 100 * (1 - worse))}
    rule = "The pairs in which the judge most clearly prefers what people like less, averaged over both orders."
    return np.where(worse >= 0.5, worse, np.nan), numbers, rule


def _by_order(judged: Judged) -> Ranked:
    first, second = judged.first_wins.T
    below, other = "in the order below, the first position gets", "in the other"
    numbers = {below: ("{:.0f} %", 100 * first), other: ("{:.0f} %", 100 * second)}
    rule = "The pairs in which the order changes the verdict most: without bias the two percentages add up to 100 %."
    return np.abs(first + second - 1), numbers, rule


def passages_of(example: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the texts of an item: its input, and its output or its two."""
    outputs = example.get("candidates") or example.get("outputs")
    named = [(f"output {n}", text) for n, text in enumerate(outputs, start=1)] if outputs else []
    passages = [("input", example.get("source")), *(named or [("output", example.get("output"))])]
    return [(label, str(text)) for label, text in passages if text not in (None, "")]


# --- texts and scores: a judge's scores, its rankings, a loop's outputs -----------------------------------------------


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


def ranked_section(rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[dspy.Example]]) -> Section:
    """Show the first rankings: a row has the ``input_id`` of a document, and ``order``, its ids best first."""
    items = []
    for row, group in list(zip(rows, groups, strict=True))[:FIRST]:
        outputs = {str(e.get("id")): str(e.output) for e in group}
        source = passages_of({"source": group[0].get("source")})
        ranked = [(f"{place}. {name}", outputs[name]) for place, name in enumerate(row["order"], start=1)]
        unranked = len(row.get("unranked", ()))
        words = f"{len(ranked)} outputs ranked" + (f", {unranked} not" if unranked else "")
        items.append(ShownItem(str(row["input_id"]), words, [*source, *ranked]))
    title = "Rankings" if len(items) == len(rows) else f"The first {len(items)} of {len(rows):,} rankings"
    return Section(title, ["Best output first; all are in rankings.jsonl.", items])


def loop_sections(
    run: LoopRun, quality: ArrayLike, examples: Sequence[Mapping[str, Any]], *, limits: tuple[float, float]
) -> list[Section]:
    """Show a loop's own score beside its (t + 1, n) quality within ``limits``, and the items farthest apart."""
    sides = (run.own(), (run.low, run.high)), (np.asarray(quality, dtype=np.float64), limits)
    own, good = (np.asarray((values - low) / (high - low)) for values, (low, high) in sides)
    drawing = plots.sides(own, good)
    parts = [] if drawing is None else [Section("Own score and quality", [drawing], f"{drawing.title}.")]
    texts = []
    for loop, example in zip(run.loops, examples, strict=True):
        last = loop.at(run.iterations)
        ends = [] if last is None else [loop.steps[0].output, last.output]
        outputs = zip(("first output", "last output"), dict.fromkeys(ends), strict=False)
        texts.append([*passages_of({"source": example.get("source")}), *outputs])

    quality_of = "{:.0f} % of the way from worst to best", 100 * good[-1]
    numbers = {"own score": ("{:.0f} %", 100 * own[-1]), "quality": quality_of}
    rule = "Where the loop's own score of its last output exceeds the quality most."
    return [*parts, *filter(None, [_look_first(own[-1] - good[-1], numbers, rule, run.ids, texts)])]


# --- terms in our own words, explained where they first occur ---------------------------------------------------------


class Term(NamedTuple):
    """A term of ``templates/glossary.md``: its name, and its meaning for a reader who has read no paper."""

    name: str
    says: str

    @property
    def anchor(self) -> str:
        """Name of its place in the page."""
        return "term-" + re.sub(r"\W+", "-", self.name.lower())


@cache
def terms() -> dict[str, Term]:
    """Return every form of a term, in lower case -> the term, in the order of the glossary."""
    text = (Path(__file__).parent / "templates" / "glossary.md").read_text(encoding="utf-8")
    forms: dict[str, Term] = {}
    for name, others, says in re.findall(r"^- \*\*(.+?)\*\*(?: \((.+?)\))?: (.+)$", text.replace("\n  ", " "), re.M):
        forms |= {form.lower(): Term(name, says) for form in [name, *filter(None, others.split(", "))]}
    return forms


@cache
def _forms() -> re.Pattern[str]:
    longest_first = sorted(terms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])", re.IGNORECASE)


class Explainer:
    """Escapes our own texts and explains each term at its first occurrence, by the page's glossary if ``linked``."""

    def __init__(self, *, linked: bool) -> None:
        self._linked = linked
        self._used: set[Term] = set()

    @property
    def terms(self) -> list[Term]:
        """The terms that were explained so far, in the order of the glossary."""
        return [term for term in dict.fromkeys(terms().values()) if term in self._used]

    def __call__(self, text: str) -> Markup:
        """Return a sentence, or a cell of a table, as HTML."""
        html, seen = Markup(""), set[Term]()
        for place, piece in enumerate(_forms().split(text)):  # text, term, text, ..., text
            words = escape(visible(piece).replace(" %", "\u00a0%"))
            term = terms()[piece.lower()] if place % 2 else None
            html += words if term is None or term in seen else self._explained(words, term)
            if term is not None:
                seen.add(term)
        self._used |= seen
        return html

    def _explained(self, words: Markup, term: Term) -> Markup:
        target = Markup('href="#{0}" aria-describedby="{0}-says"').format(term.anchor)
        tip = Markup('<span class="tip" aria-hidden="true"><b>{}</b> {}</span>').format(term.name, term.says)
        target = target if self._linked else Markup('tabindex="0"')
        return Markup('<a class="term" {}>{}{}</a>').format(target, words, tip)


# --- a page as a single HTML file, and its sections as a part of a notebook -------------------------------------------

FILE = "report.html"
LONGEST_NUMBER = 24  # characters of the longest cell that is set like a number


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str  # the question and the judge
    command: str  # as the user typed it, without its options
    sections: Sequence[Section]
    verdict: Sequence[str] = ()  # the answer, its first line in large letters; empty where the findings are the answer
    run: Mapping[str, str] = field(default_factory=dict)  # description of the run, for a reader
    settings: Mapping[str, str] = field(default_factory=dict)  # every setting by its dotted name, to repeat the run

    @property
    def findings(self) -> list[tuple[int, Section, str]]:
        """Number, section and sentence of every finding; without the sentence if the page has a verdict."""
        sections = [(n, section) for n, section in enumerate(self.sections, start=1) if section.finding]
        return [(n, section, "" if self.verdict else section.finding) for n, section in sections]

    @property
    def statuses(self) -> list[str]:
        """Meaning of the statuses of the findings; empty on a page that is no audit."""
        used = {section.status for section in self.sections}
        return [f"{status.capitalize()}: {meaning}." for status, meaning in STATUSES.items() if status in used]

    def html(self) -> str:
        """Return the file: a page that loads nothing else, and runs only the script for its items, if any."""
        has_items = any(_kind(block) == "items" for section in self.sections for block in section.blocks)
        file = Path(__file__).parent / "templates" / "items.js"  # which the page's policy allows by its hash alone
        script = file.read_text(encoding="utf-8") if has_items else ""
        allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() if script else ""
        content = {"page": self, "explained": Explainer(linked=True), "script": Markup(script), "allowed": allowed}
        return _environment().get_template("page.html.j2").render(content)


def view(result: Any) -> str:
    """Return a measurement, a comparison or an audit as HTML with its style, for a notebook."""
    parts = [*sections(result, several=True)]
    if isinstance(result, AuditReport | AuditReports):
        parts.insert(0, Section(result.judge, result.first_screen))
    elif isinstance(result, Report):
        parts.insert(0, Section("In short", result.paragraphs[:1]))
    return _environment().get_template("fragment.html.j2").render(sections=parts, explained=Explainer(linked=False))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("evalbias.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
    )
    environment.globals |= {"kind": _kind, "draw": draw, "prose": _prose, "first": FIRST}
    return environment


def _kind(block: Block) -> str:
    """Return the name of a block's rule in ``blocks.html.j2``."""
    kinds: dict[type, str] = {str: "words", Quote: "quote", Table: "table", Plot: "plot", list: "items", type(None): ""}
    return kinds.get(type(block), "facts")


def _prose(table: Table) -> list[bool]:
    """(c,) True if a column holds sentences, which are set from the left and wrapped."""
    longest = [[max(map(len, cell.split("\n"))) for cell in row] for row in table.rows]
    return [any(row[place] > LONGEST_NUMBER for row in longest) for place in range(len(table.headings))]


def in_terminal(result: AuditReport | AuditReports, *, full: bool = False) -> Group:
    """Return an audit for a terminal: its first screen, or all sections of its page but plots and texts of items."""
    first, *others = result.first_screen
    parts: list[Any] = [Text(first, style="bold"), *map(Text, others)]
    if isinstance(result, AuditReports):
        parts += [] if full else ["Each criterion with its numbers: by --full."]
    elif result.groups and not full:  # which the user requested
        parts += ["", groups_table(result.groups)]
    for section in sections(result) if full else ():
        parts += ["", Text(section.title, style="bold")]
        for block in section.blocks:
            if isinstance(block, str | Quote):
                parts.append(Text(block if isinstance(block, str) else block.text))
            elif isinstance(block, Mapping):
                parts += [Text(f"{name}: {value}") for name, value in block.items()]
            elif isinstance(block, Table):
                parts.append(block)
    return Group(*parts)


# --- the report of a run folder: the results of a command, and its settings from run.json -----------------------------

TITLES = {"refine measure": "Self-bias of recorded loops"}  # by command, where no criterion or task is named


def write_report(
    folder: Path, result: Any, *, verdict: Sequence[str] = (), more: Sequence[Section | None] = ()
) -> Path:
    """Write report.html into a run folder; return its path.

    Without a ``verdict``, the page begins with the sections' findings; ``more`` are sections that follow those
    of the result.
    """
    settings = read_json(folder / SETTINGS)
    worst = None if isinstance(result, AuditReports) else worst_of(result)  # which has those of each criterion
    parts = [*sections(result, several=several_criteria(result)), *filter(None, (*more, worst))]
    title = result.judge if isinstance(result, AuditReport | AuditReports) else title_of_run(settings)
    every = {name: str(value) for name, value in flatten(settings).items()}
    page = Page(title[:1].upper() + title[1:], str(settings["command"]), parts, verdict, _run(settings), every)
    write_whole(folder / FILE, page.html())
    return folder / FILE


def title_of_run(settings: Mapping[str, Any]) -> str:
    """Return the title of a run: criterion, model and data, as far as the settings have them.

    Examples:
        >>> title_of_run({"command": "judge", "criteria": [{"name": "wit"}], "lm": {"model": "local/tiny"}})
        'Wit, judged by tiny'
    """
    criteria = settings.get("criteria")
    listed = criteria if isinstance(criteria, list) else ()
    names = ", ".join(str(c["name"]) for c in listed if isinstance(c, Mapping) and "name" in c)
    task = "" if names else str(settings.get("task") or "").replace("-", " ")  # that of a loop, which has no criteria
    command = str(settings.get("command", ""))
    what = names or task or TITLES.get(command, command)
    model = model_title(_model(settings.get("lm")))
    done = "written and judged by" if task else "judged by"
    title = f"{what}, {done} {model}" if model else what
    return title[:1].upper() + title[1:]


def _run(settings: Mapping[str, Any]) -> dict[str, str]:
    data, sides = settings.get("data", ""), (("test", "measure"), ("train", "compile on or draw demonstrations from"))
    items = [((settings.get(side) or {}).get("items"), use) for side, use in sides]
    facts = {
        "command": f"evalbias {settings['command']}",
        "data": ", ".join(data) if isinstance(data, list) else str(data),
        "items": "; ".join(f"{n:,} to {use}" for n, use in items if n),
        "judge's model": _model(settings.get("lm")),
        "model of the likelihood": _model(settings.get("likelihood_lm")),
        "model that rewords": _model(settings.get("proposer_lm")),
        "seed": str(settings.get("seed", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items()),
    }
    return {name: value for name, value in facts.items() if value}


def _model(identity: Any) -> str:
    """Return the name of a model from its description in run.json."""
    if not isinstance(identity, Mapping):
        return ""
    return str(identity.get("model") or identity.get("name") or "")
