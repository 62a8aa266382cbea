"""Feedback for constrained generation: the missing concepts, listed by the model or found by exact match."""

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
    """Self-feedback that lists missing concepts (Xu et al. 2024, section 4.2): score 1 if none is missing, else 0.

    Args:
        demos: Demonstrations with ``concepts``, ``text`` and ``missing``.
        **config: Settings of the requests.

    Attributes:
        name: Name in reports.
        low: Worst score, 0.
        high: Best score, 1.
    """

    name = "own list of missing concepts"
    low, high = 0.0, 1.0

    def __init__(self, *, demos: Sequence[dspy.Example] = (), **config: Any) -> None:
        super().__init__()
        self.find = PlainPredict(FindMissing, **{"temperature": 0.0, "max_tokens": 200, **config})
        self.find.predict.demos = list(demos)

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Ask the model which of the example's ``concepts`` the output lacks."""
        concepts = required_concepts(self.name, example)
        answer = self.find(concepts=concepts, text=output).missing
        missing = read_missing(answer, concepts)
        if missing is None:
            return Feedback(float("nan"), answer, status="empty" if not answer.strip() else "unreadable")
        return _feedback(missing)


class ExactConcepts:
    """External oracle: score 1 if every concept occurs in the text as a whole word, ignoring case, else 0.

    Attributes:
        name: Name in reports.
        low: Worst score, 0.
        high: Best score, 1.
    """

    name = "exact match of concepts"
    low, high = 0.0, 1.0

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Search the output for the example's ``concepts``."""
        concepts = required_concepts(self.name, example)
        covered = covered_concepts(concepts, output)
        return _feedback([c for c in concepts if c not in covered])


def required_concepts(source: str, example: Mapping[str, Any]) -> list[str]:
    """Return the example's ``concepts``; ``source`` names the caller in error messages.

    Raises:
        ValueError: ``concepts`` is missing or not a list of texts.
    """
    concepts = required_field(source, example, "concepts")
    if isinstance(concepts, str) or not all(isinstance(c, str) and c.strip() for c in concepts):
        raise ValueError(f"The item {example.get('id')!r} has the concepts {concepts!r:.60}: give a list of words.")
    return list(concepts)


def covered_concepts(concepts: Sequence[str], text: str) -> list[str]:
    """Return the concepts that occur in the text as whole words, ignoring case; "dogs" does not cover "dog"."""
    lowered = text.lower()
    words = set(re.findall(r"\w+", lowered))
    return [concept for concept in concepts if concept.lower() in words or _phrase(concept.lower(), lowered)]


def _phrase(concept: str, text: str) -> bool:
    """True if the text contains a concept of several words."""
    return not concept.isalnum() and re.search(rf"(?<!\w){re.escape(concept)}(?!\w)", text) is not None


def coverage(concepts: Sequence[str], text: str) -> float:
    """Return the fraction of the concepts that the text covers, in [0, 1]; NaN without concepts."""
    return len(covered_concepts(concepts, text)) / len(concepts) if concepts else float("nan")


_NONE = re.compile(
    r"\[\s*\]|\W*n/a\W*|\W*(?:none|nothing|no (?:missing )?concepts?)(?: (?:of them )?(?:is|are) missing)?\W*"
    r"|\W*all (?:of )?(?:the |them |these )?(?:concepts? )?(?:is|are) (?:all )?"
    r"(?:present|included|covered|mentioned|there)\W*",
    re.IGNORECASE,
)


def read_missing(text: str, concepts: Sequence[str]) -> list[str] | None:
    r"""Read the missing concepts from a written answer, in the order of ``concepts``.

    The answer may be a Python list, a bulleted list, or words separated by commas or "and". Words that are not concepts
    are ignored. A sentence that contains a concept among other words is unreadable.

    Returns:
        The missing concepts; an empty list if the answer says that none is missing; None if it is unreadable.

    Examples:
        >>> read_missing("- dog\n- cat", ["dog", "park"])
        ['dog']
    """
    answer = text.strip()
    if _NONE.fullmatch(answer):
        return []
    try:
        words = ast.literal_eval(answer)
    except (ValueError, SyntaxError):
        words = re.split(r"[,\n;]|\band\b", re.sub(r"^[^,\n:]*\bmissing\b[^,\n:]*:", "", answer))
    parts = words if isinstance(words, list | tuple) else [words]
    named = {str(word).strip(" \t'\"[].*-\u2022").lower() for word in parts}
    if any(covered_concepts(concepts, word) and word not in {c.lower() for c in concepts} for word in named):
        return None
    return [concept for concept in concepts if concept.lower() in named] or None


def _feedback(missing: Sequence[str]) -> Feedback:
    return Feedback(float(not missing), f"missing: {', '.join(missing)}" if missing else NOTHING_MISSING)
