"""Feedback for constrained generation: the missing concepts, listed by the model or found in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from evalbias.data.item_names import item_name
from evalbias.programs.feedback.coverage import Matching, covered_concepts
from evalbias.programs.feedback.missing import read_missing
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
    """External oracle: score 1 if the text covers every concept, else 0.

    Args:
        matching: What covers a concept: a ``"substring"``, as in the paper, or its ``"lemma"``; see
            ``evalbias.programs.feedback.coverage.covered_concepts``.

    Attributes:
        name: Name in reports.
        low: Worst score, 0.
        high: Best score, 1.

    Raises:
        ValueError: ``matching`` is unknown.
        ImportError: ``"lemma"`` is chosen and simplemma is not installed.
    """

    low, high = 0.0, 1.0

    def __init__(self, *, matching: Matching = "substring") -> None:
        covered_concepts([], "", matching=matching)
        self.matching = matching
        self.name = "exact match of concepts" if matching == "substring" else f"match of concepts by {matching}"

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Search the output for the example's ``concepts``."""
        concepts = required_concepts(self.name, example)
        covered = covered_concepts(concepts, output, matching=self.matching)
        return _feedback([c for c in concepts if c not in covered])


def required_concepts(source: str, example: Mapping[str, Any]) -> list[str]:
    """Return the example's ``concepts``; ``source`` names the caller in error messages.

    Raises:
        ValueError: ``concepts`` is missing or not a list of texts.
    """
    concepts = required_field(source, example, "concepts")
    if isinstance(concepts, str) or not all(isinstance(c, str) and c.strip() for c in concepts):
        raise ValueError(f"The item {item_name(example)!r} has the concepts {concepts!r:.60}: give a list of words.")
    return list(concepts)


def _feedback(missing: Sequence[str]) -> Feedback:
    return Feedback(float(not missing), f"missing: {', '.join(missing)}" if missing else NOTHING_MISSING)
