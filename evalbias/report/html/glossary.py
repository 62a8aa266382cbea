"""Terms of the report in one plain sentence each, and where they occur in our own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A term of the report.

    Attributes:
        name: The term as ``docs/glossary.md`` writes it.
        says: One sentence for a reader who knows no paper.
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
        "The change in a judge's score for a text that is one standard deviation likelier under a language model and "
        "just as good: 0 for a judge that looks at quality alone.",
        ("effect of LS",),
    ),
    Term(
        "BiasScore",
        "The rank correlation, from -1 to 1, of how likely a text is and how far the judge scores it above people: 0 "
        "for no bias.",
        ("BiasScore (z)",),
    ),
    Term(
        "LS",
        "Likelihood score: the log-probability that a language model gives a text after its input. Higher is likelier.",
        ("likelihood score", "LS correlation"),
    ),
    Term(
        "Evaluation performance",
        "The rank correlation of the judge's scores with those of people: 1 for the same order of the items.",
        ("performance",),
    ),
    Term(
        "Reliability",
        "The share of a rating's differences that is quality and not the rater's mood: 1 for perfect raters.",
    ),
    Term(
        "Fairness",
        "Minus the distance of the positions' win rates from equal shares: 0 if every position wins equally often.",
    ),
    Term(
        "Position consistency",
        "The share of pairs in which the same reply wins when the two change places: 1 for a judge that ignores order.",
        ("consistent", "consistency"),
    ),
    Term(
        "Decision rate",
        "How often a position wins: .5 for each of two if order does not matter.",
    ),
    Term(
        "Verbosity",
        "A taste for long text: at equal quality, the longer text gets a higher score or wins more often.",
    ),
    Term(
        "Longer win rate",
        "How often the longer of two replies wins: .5 for no preference for length, and more where long replies are "
        "the better ones.",
    ),
    Term(
        "Confidence",
        "How concentrated the judge's probabilities are: 0 if one answer has all of it, more negative the evener.",
    ),
    Term(
        "Self-bias",
        "The mean difference between the scores that a model gives its own outputs and the scores they deserve.",
    ),
    Term(
        "Dskew",
        "How lopsided these differences are around 0, from 0 (as many above as below) to 1 (all on one side).",
    ),
    Term(
        "Coverage",
        "The probability that the judge's answer is a label at all: near 0, its scores mean little.",
    ),
    Term(
        "Undefined",
        "Left out of a number because something it needs is missing or could not be read; never counted as 0.",
    ),
    Term(
        "Confidence interval",
        "A range computed from these items in such a way that, of 100 samples like them, about 95 give a range that "
        "holds the value of all such items.",
        ("95 % interval", "95 % intervals"),
    ),
    Term(
        "Paired permutation test",
        "Asks how often a difference this large appears when the two judges' answers are swapped at random.",
        ("paired test",),
    ),
    Term(
        "Held-back items",
        "Items on which nothing was fitted, used to choose between candidates.",
        ("held-back inputs", "held-back pairs"),
    ),
    Term(
        "ZEPO",
        "A search that rewords a judge's instruction until no position wins more often than another.",
    ),
    Term(
        "MQM score",
        "A score of a text from its errors: minus 5 for each grave one and minus 1 for each small one, at worst -25.",
        ("MQM",),
    ),
    Term(
        "Permutation debiasing",
        "Asking for every pair in both orders and averaging, so that order cannot decide.",
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
