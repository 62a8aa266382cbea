"""Constrained generation: which of the wanted concepts are missing, as the model says or as a search finds."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.plain_text import PlainPredict

NOTHING_MISSING = "all of them are there"


class FindMissing(dspy.Signature):  # type: ignore[misc]
    """Say which of the concepts the text leaves out.

    Write them with commas between; write none where every concept stands in the text.
    """

    concepts: list[str] = dspy.InputField()
    text: str = dspy.InputField()
    missing: str = dspy.OutputField()


class ConceptsFeedback(dspy.Module):  # type: ignore[misc]
    """The model says what it left out (Xu et al. 2024, section 4.2): 1 where it finds nothing missing, else 0.

    Attributes:
        name: For reports.
        low: 0.
        high: 1.
    """

    name = "own list of missing concepts"
    low, high = 0.0, 1.0

    def __init__(self, *, demos: Sequence[dspy.Example] = (), **config: Any) -> None:
        super().__init__()
        self.find = PlainPredict(FindMissing, **{"temperature": 0.0, "max_tokens": 200, **config})
        self.find.predict.demos = list(demos)

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on a text for the example's ``concepts``."""
        concepts = required_concepts(self.name, example)
        told = self.find(concepts=concepts, text=output).missing
        missing = read_missing(told, concepts)
        if missing is None:
            return Feedback(float("nan"), told, status="empty" if not told.strip() else "unreadable")
        return _feedback(missing)


class ExactConcepts:
    """The external oracle: a concept is there if the text holds it as a word, letter by letter.

    Attributes:
        name: For reports.
        low: 0.
        high: 1.
    """

    name = "exact match of concepts"
    low, high = 0.0, 1.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on a text for the example's ``concepts``."""
        concepts = required_concepts(self.name, example)
        there = covered_concepts(concepts, output)
        return _feedback([c for c in concepts if c not in there])


def required_concepts(source: str, example: Mapping[str, Any]) -> list[str]:
    """The example's ``concepts``.

    Raises:
        ValueError: They are no list of texts.
    """
    concepts = required_field(source, example, "concepts")
    if isinstance(concepts, str) or not all(isinstance(c, str) and c.strip() for c in concepts):
        raise ValueError(f"The item {example.get('id')!r} has the concepts {concepts!r:.60}: give a list of words.")
    return list(concepts)


def covered_concepts(concepts: Sequence[str], text: str) -> list[str]:
    """The concepts that stand in the text as words of their own, upper or lower case; "dogs" does not hold "dog"."""
    lowered = text.lower()
    words = set(re.findall(r"\w+", lowered))
    return [concept for concept in concepts if concept.lower() in words or _phrase(concept.lower(), lowered)]


def _phrase(concept: str, text: str) -> bool:
    """Whether the text holds a concept of more than one word."""
    return not concept.isalnum() and re.search(rf"(?<!\w){re.escape(concept)}(?!\w)", text) is not None


def coverage(concepts: Sequence[str], text: str) -> float:
    """Share of the concepts that are present, in [0, 1]; NaN without any concept."""
    return len(covered_concepts(concepts, text)) / len(concepts) if concepts else float("nan")


_NONE = re.compile(
    r"\[\s*\]|\W*n/a\W*|\W*(?:none|nothing|no (?:missing )?concepts?)(?: (?:of them )?(?:is|are) missing)?\W*"
    r"|\W*all (?:of )?(?:the |them |these )?(?:concepts? )?(?:is|are) (?:all )?"
    r"(?:present|included|covered|mentioned|there)\W*",
    re.IGNORECASE,
)


def read_missing(text: str, concepts: Sequence[str]) -> list[str] | None:
    """The concepts that a feedback names, in their order; None where it names none and does not say so.

    It may be a list as Python writes it, lines with bullets, or words with commas or "and" between. A word that is no
    concept is ignored; in a sentence that says more than their names, nothing is read.
    """
    bare = text.strip()
    if _NONE.fullmatch(bare):
        return []
    try:
        found = ast.literal_eval(bare)
    except (ValueError, SyntaxError):
        found = re.split(r"[,\n;]|\band\b", re.sub(r"^[^,\n:]*\bmissing\b[^,\n:]*:", "", bare))
    parts = found if isinstance(found, list | tuple) else [found]
    named = {str(word).strip(" \t'\"[].*-\u2022").lower() for word in parts}
    if any(covered_concepts(concepts, word) and word not in {c.lower() for c in concepts} for word in named):
        return None
    return [concept for concept in concepts if concept.lower() in named] or None


def _feedback(missing: Sequence[str]) -> Feedback:
    return Feedback(float(not missing), f"missing: {', '.join(missing)}" if missing else NOTHING_MISSING)
