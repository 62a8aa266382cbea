"""Terms of the report in one or two plain sentences each, and where they occur in our own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
