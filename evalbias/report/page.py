"""The report: one HTML file without network or scripts, made of the sections of what a command found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.bias import Plot
from evalbias.evaluation.words import STATUSES, Table, model_title
from evalbias.report.plots import draw, write_png
from evalbias.report.sections import Block, Quote, Section, sections, several_criteria, worst_of
from evalbias.runs import SETTINGS, flatten, write_whole
from evalbias.values import read_json, visible

# --- terms in our own words, explained where they first occur ---------------------------------------------------------


class Term(NamedTuple):
    """A term of ``templates/glossary.md``: its name, and what it means for a reader who knows no paper."""

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
    """Escapes our own texts and explains a term where it first occurs in one, by the page's glossary if ``linked``."""

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
        return Markup('<a class="term" {}>{}{}</a>').format(
            target if self._linked else Markup('tabindex="0"'), words, tip
        )


# --- a page as one HTML file, and its sections as a part of a notebook ------------------------------------------------

FILE = "report.html"
LONGEST_NUMBER = 24  # characters of the longest cell that is set like a number


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str  # what was asked of which judge
    command: str  # as the user typed it, without its options
    sections: Sequence[Section]
    verdict: str = ""  # the answer in one sentence; empty where the findings are the answer
    run: Mapping[str, str] = field(default_factory=dict)  # what was run, for a reader
    settings: Mapping[str, str] = field(default_factory=dict)  # every setting by its dotted name, to repeat the run

    @property
    def answer(self) -> tuple[str, str]:
        """The verdict's first sentence, and the rest."""
        first, _, rest = re.sub(r"(?<=\.) (?=[A-Z])", "\n", self.verdict, count=1).partition("\n")
        return first, rest

    @property
    def findings(self) -> list[tuple[int, Section, str]]:
        """Number, section and sentences of every finding; without the finding itself where the verdict says it."""
        said = self.verdict.lower()
        return [
            (
                number,
                section,
                section.remark
                if section.finding.rstrip(".").lower() in said
                else f"{section.finding} {section.remark}".rstrip(),
            )
            for number, section in enumerate(self.sections, start=1)
            if section.finding
        ]

    @property
    def statuses(self) -> list[str]:
        """Meaning of the statuses of the findings; empty on a page that is no audit."""
        used = {section.status for section in self.sections}
        return [f"{status.capitalize()}: {meaning}." for status, meaning in STATUSES.items() if status in used]

    def html(self) -> str:
        """Return the file: one page that asks for nothing else and runs nothing."""
        return _environment().get_template("page.html.j2").render(page=self, explained=Explainer(linked=True))

    def write(self, file: Path) -> None:
        """Write the file, whole or not at all."""
        write_whole(file, self.html())


def is_page(file: Path) -> bool:
    """Return whether a file is a page that ``Page.write`` wrote, and may be replaced."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        begins = opened.read(1 << 16)
    return begins.startswith(b"<!DOCTYPE html>") and b'<body class="evalbias">' in begins


def view(result: Any) -> str:
    """Return a measurement, a comparison or an audit as HTML with its style, for a notebook."""
    shown = [*sections(result, several=True)]
    if isinstance(result, Audit):
        shown.insert(0, Section(result.judged.judge, [result.verdict]))
    return _environment().get_template("fragment.html.j2").render(sections=shown, explained=Explainer(linked=False))


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
    environment.globals |= {"kind": _kind, "draw": draw, "prose": _prose}
    return environment


def _kind(block: Block) -> str:
    """Return the name of a block's rule in ``blocks.html.j2``."""
    kinds: dict[type, str] = {str: "words", Quote: "quote", Table: "table", Plot: "plot", list: "items"}
    return kinds.get(type(block), "facts")


def _prose(table: Table) -> list[bool]:
    """(c,) whether a column holds sentences, which are set from the left and wrapped."""
    return [any(len(row[place]) > LONGEST_NUMBER for row in table.rows) for place in range(len(table.headings))]


# --- the report of a run folder: what a command found, and what was run, from run.json --------------------------------

TITLES = {"measure self": "Self-bias of recorded loops"}  # by command, where no criterion or task is named


def write_report(
    folder: Path,
    result: Any,
    *,
    verdict: str = "",
    examples: Sequence[dspy.Example] = (),
    more: Sequence[Section | None] = (),
) -> Path:
    """Write report.html into a run folder, and the plots that have a file beside it; return the page's path.

    An empty ``verdict`` leaves the first sentence to the sections' findings. ``examples`` are the judged items in the
    order of the measurements, for the texts of the worst; ``more`` are sections that follow those of the result.
    """
    settings = read_json(folder / SETTINGS)
    parts = [*sections(result, several=several_criteria(result)), *more, worst_of(result, examples)]
    shown = [section for section in parts if section is not None]
    title = result.judged.judge if isinstance(result, Audit) else title_of_run(settings)
    every = {name: str(value) for name, value in flatten(settings).items()}
    page = Page(title[:1].upper() + title[1:], str(settings["command"]), shown, verdict, _run(settings), every)
    page.write(folder / FILE)
    for plot in (block for section in shown for block in section.blocks if isinstance(block, Plot) and block.file):
        write_png(plot, folder / f"{plot.file}.png")
    return folder / FILE


def title_of_run(settings: Mapping[str, Any]) -> str:
    """Return what was judged, by which model and on which data, as far as the settings tell.

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
    """Return the settings that a reader asks for, in words."""
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
    """Return the name of a model from what run.json keeps of it."""
    if not isinstance(identity, Mapping):
        return ""
    return str(identity.get("model") or identity.get("name") or "")
