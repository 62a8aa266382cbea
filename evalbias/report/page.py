"""The report: one HTML file without network or scripts, made of the blocks of what a command found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import dspy
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from evalbias.evaluation.audit import Audit
from evalbias.evaluation.words import STATUSES, model_title
from evalbias.report.blocks import Section, Words
from evalbias.report.sections import Context, sections, several_criteria, worst_of
from evalbias.runs import SETTINGS, flatten, write_whole
from evalbias.values import read_json, visible

# Terms of the report in one or two plain sentences each, and where they occur in our own words.


@dataclass(frozen=True)
class Term:
    """A term of the report.

    Attributes:
        name: The term as ``docs/glossary.md`` writes it.
        says: One or two sentences for a reader who knows no paper.
        forms: Other words that mean it in tables and sentences.
    """

    name: str
    says: str
    forms: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """Name of its place in the page."""
        return "term-" + re.sub(r"\W+", "-", self.name.lower())


TERMS = (
    Term(
        "Likelihood effect",
        "How much more or less a judge gives a text that is just as good but one standard deviation likelier under "
        "a language model. A judge that looks at quality alone has 0.",
        ("effect of likelihood",),
    ),
    Term(
        "BiasScore",
        "How closely the judge's excess over people follows the likelihood of the texts, as a rank correlation "
        "from -1 to 1. Where the two do not go together, it is 0.",
        ("BiasScore (z)",),
    ),
    Term(
        "LS",
        "Likelihood score: how probable a language model finds a text after its input. Higher means likelier.",
        ("likelihood score",),
    ),
    Term(
        "Evaluation performance",
        "How well the judge's scores put the texts into the order that people give them, as a rank correlation. "
        "The same order has 1.",
        ("performance",),
    ),
    Term(
        "Krippendorff's alpha",
        "How closely the judge and people agree on the scores themselves, not only on their order. Perfect "
        "agreement has 1, scores given at random have 0.",
    ),
    Term(
        "Cohen's kappa",
        "How much more often the judge and people make the same choice than chance would. Perfect agreement has 1, "
        "chance has 0.",
    ),
    Term(
        "Calibration error",
        "How far the judge's probabilities lie from how often it is right. If it says 80 % and is right in 80 of "
        "100 such cases, the error is 0.",
        ("ECE",),
    ),
    Term(
        "Reliability",
        "How much of the differences between ratings comes from the quality of the texts rather than from the "
        "raters. Perfect raters have 1.",
    ),
    Term(
        "Fairness",
        "How evenly the positions win. If both win equally often, it is 0; otherwise it is negative.",
    ),
    Term(
        "Position consistency",
        "How often the same output wins after the two change places. A judge that ignores the order has 1.",
        ("consistent", "consistency"),
    ),
    Term(
        "Decision rate",
        "How often a position wins. If order does not matter, each of the two wins half of the time.",
    ),
    Term(
        "Verbosity",
        "A taste for long text: of two equally good texts, the longer one gets the higher score or wins more often.",
    ),
    Term(
        "Longer win rate",
        "How often the longer of two outputs wins. Without a preference for length it is .5, unless the long "
        "outputs are also the better ones.",
    ),
    Term(
        "Confidence",
        "How sure the judge is of its answers. It is 0 if one answer has all of the probability, and negative "
        "otherwise.",
    ),
    Term(
        "Self-bias",
        "How much higher a model scores its own texts than they deserve, on average.",
    ),
    Term(
        "Dskew",
        "How lopsided the differences are. It is 0 if they lie evenly on both sides of 0, and 1 if all lie on one "
        "side.",
    ),
    Term(
        "Coverage",
        "How probable it is that the judge answers with one of the allowed labels at all. Near 0, its scores mean "
        "little.",
    ),
    Term(
        "Undefined",
        "Left out of a number because something that it needs is missing or could not be read. It never counts as 0.",
    ),
    Term(
        "Confidence interval",
        "A range computed in such a way that, of 100 such ranges from 100 samples, about 95 hold the true value.",
        ("95 % interval", "95 % intervals"),
    ),
    Term(
        "Paired permutation test",
        "A check whether a difference could be chance: it swaps the two judges' answers at random many times and "
        "counts how often the difference is as large.",
        ("paired test",),
    ),
    Term(
        "Held-back items",
        "Items that were not used to make the candidates, only to choose between them.",
        ("held-back inputs", "held-back pairs"),
    ),
    Term(
        "ZEPO",
        "A search that rewords the judge's instruction until both positions win equally often.",
    ),
    Term(
        "MQM score",
        "A score of a text from its errors. Each grave error costs 5 points and each small one 1 point, down to -25.",
        ("MQM",),
    ),
    Term(
        "Permutation debiasing",
        "Asking about every pair in both orders and averaging, so that the order cannot decide.",
        ("permutation",),
    ),
)

_FORMS: Mapping[str, Term] = {form.lower(): term for term in TERMS for form in (term.name, *term.forms)}
_PATTERN = re.compile(
    r"(?<![\w-])(" + "|".join(re.escape(form) for form in sorted(_FORMS, key=len, reverse=True)) + r")(?![\w-])",
    re.IGNORECASE,
)


def split_terms(text: str) -> list[tuple[str, Term | None]]:
    """Cut a text into pieces, each with the term that it is; a term counts only where it first occurs.

    Examples:
        >>> [(piece, None if term is None else term.name) for piece, term in split_terms("a BiasScore of .3")]
        [('a ', None), ('BiasScore', 'BiasScore'), (' of .3', None)]
    """
    pieces: list[tuple[str, Term | None]] = []
    seen: set[str] = set()
    end = 0
    for match in _PATTERN.finditer(text):
        term = _FORMS[match[0].lower()]
        if term.name in seen:
            continue
        seen.add(term.name)
        pieces += [(text[end : match.start()], None), (match[0], term)]
        end = match.end()
    pieces.append((text[end:], None))
    return [(piece, term) for piece, term in pieces if piece]


# A page as one HTML file, and its blocks as a part of a notebook.


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
        loader=PackageLoader("evalbias.report", "templates"),
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


# Show a result in a notebook as the blocks of the report.


def view(result: Any) -> str:
    """Return a measurement, a comparison or an audit as HTML."""
    shown = [*sections(result, Context(several=True))]
    if isinstance(result, Audit):
        shown.insert(0, Section(result.judged.judge, [Words(result.verdict.sentence)]))
    return fragment(shown)


# The report of a run folder: what a command found, and what was run, from run.json.


TITLES = {"measure self": "Self-bias of recorded loops"}
"""Command -> title of a run that names neither criterion nor task."""


def write_report(
    folder: Path,
    result: Any,
    *,
    verdict: str = "",
    examples: Sequence[dspy.Example] = (),
    more: Sequence[Section | None] = (),
) -> Path:
    """Write report.html into a run folder and return its path.

    Args:
        folder: The run folder, which holds run.json.
        result: What the command found: measurements, comparisons and reports, in mappings and lists of any depth.
        verdict: The answer in one sentence, which stands first; empty leaves that to the sections' findings.
        examples: The judged items, in the order of the measurements, for the texts of the worst.
        more: Sections that follow those of the result; None is left out.
    """
    settings = read_json(folder / SETTINGS)
    parts = [*sections(result, Context(several_criteria(result))), *filter(None, more)]
    worst = worst_of(result, examples)
    title = result.judged.judge if isinstance(result, Audit) else title_of_run(settings)
    page = Page(
        title[:1].upper() + title[1:],
        str(settings["command"]),
        parts if worst is None else [*parts, worst],
        verdict=verdict,
        run=_run(settings),
        settings={name: str(value) for name, value in flatten(settings).items()},
    )
    page.write(folder / FILE)
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
    task = str(settings.get("task") or "").replace("-", " ")
    command = str(settings.get("command", ""))
    what = names or task or TITLES.get(command, command)
    model = model_title(_model(settings.get("lm")))
    done = "written and judged by" if task else "judged by"
    title = f"{what}, {done} {model}" if model else what
    return title[:1].upper() + title[1:]


def _run(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a reader asks for, in words."""
    items = {side: (settings.get(side) or {}).get("items") for side in ("train", "test")}
    data = settings.get("data", "")
    facts = {
        "command": f"evalbias {settings['command']}",
        "data": ", ".join(data) if isinstance(data, list) else str(data),
        "items": "; ".join(f"{n:,} to {use}" for use, n in _uses(items) if n),
        "judge's model": _model(settings.get("lm")),
        "model of the likelihood": _model(settings.get("likelihood_lm")),
        "model that rewords": _model(settings.get("proposer_lm")),
        "seed": str(settings.get("seed", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items()),
    }
    return {name: value for name, value in facts.items() if value}


def _uses(items: Mapping[str, int | None]) -> list[tuple[str, int | None]]:
    return [("measure", items["test"]), ("compile on or draw demonstrations from", items["train"])]


def _model(identity: Any) -> str:
    """Return the name of a model from what run.json keeps of it."""
    if not isinstance(identity, Mapping):
        return ""
    return str(identity.get("model") or identity.get("name") or "")
