"""A page as one HTML file, and its blocks as a part of a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from evalbias.report.html.blocks import Section
from evalbias.report.html.glossary import TERMS, Term, split_terms
from evalbias.report.html.words import STATUSES
from evalbias.runs.journal import write_whole
from evalbias.runs.visible import visible

FILE = "report.html"


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: What was asked of which judge.
        command: Command as the user typed it, without its options.
        verdict: The answer in one sentence; empty where the findings are the answer.
        sections: What was found, in order.
        run: What was run, for a reader: name -> value.
        settings: Every setting, for one who repeats the run: dotted name -> value.
    """

    title: str
    command: str
    sections: Sequence[Section]
    verdict: str = ""
    run: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def answer(self) -> tuple[str, str]:
        """The verdict's first sentence, and the rest."""
        first, _, rest = re.sub(r"(?<=\.) (?=[A-Z])", "\n", self.verdict, count=1).partition("\n")
        return first, rest

    @property
    def findings(self) -> list[tuple[int, Section, str]]:
        """Number, section and sentences of every finding; without the finding itself where the verdict says it."""
        said = self.verdict.lower()
        listed = []
        for number, section in enumerate(self.sections, start=1):
            if section.finding:
                finding = "" if section.finding.rstrip(".").lower() in said else section.finding
                listed.append((number, section, f"{finding} {section.remark}".strip()))
        return listed

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


def fragment(sections: Sequence[Section]) -> str:
    """Return sections with their style, for a notebook."""
    return _environment().get_template("fragment.html.j2").render(sections=sections, explained=Explainer(linked=False))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("evalbias.report.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
    )


class Explainer:
    """Escapes our own texts and explains their terms.

    Args:
        linked: Whether the page has a glossary to which the terms lead.
    """

    def __init__(self, *, linked: bool) -> None:
        self._linked = linked
        self._used: set[str] = set()

    @property
    def terms(self) -> list[Term]:
        """The terms that were explained so far."""
        return [term for term in TERMS if term.name in self._used]

    def __call__(self, text: str) -> Markup:
        """Return a sentence, or a cell of a table, as HTML."""
        return Markup("").join(
            escape(visible(piece).replace(" %", "\u00a0%")) if term is None else self._term(piece, term)
            for piece, term in split_terms(text)
        )

    def _term(self, piece: str, term: Term) -> Markup:
        self._used.add(term.name)
        target = Markup('tabindex="0"')
        if self._linked:
            target = Markup('href="#{0}" aria-describedby="{0}-says"').format(term.anchor)
        words = escape(piece.replace(" %", "\u00a0%"))
        tip = Markup('<span class="tip" aria-hidden="true"><b>{}</b> {}</span>').format(term.name, term.says)
        return Markup('<a class="term" {}>{}{}</a>').format(target, words, tip)
