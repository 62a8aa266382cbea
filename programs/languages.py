"""What judges say in each language around a criterion, a user's instruction and the judged texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from evalbias.programs.criterion import Criterion


@dataclass(frozen=True)
class Language:
    """Sentences and labels of the prompts in one language.

    In braces stand ``{name}``, ``{definition}`` and ``{output}``, a criterion's words, and what a field names besides.

    Attributes:
        source: Label of the source, for a criterion with the default one.
        output: Label of an output, for a criterion with the default one.
        task: Task of the outputs, for a criterion with the default one.
        text: A labeled text, of ``{label}`` and ``{text}``.
        candidate: Label of a candidate, of the output's ``{label}`` and ``{letter}``.
        score: What precedes a score, of ``{name}`` with a capital.
        better: What precedes the name of the better candidate.
        scoring: First line of the instruction of a judge that scores.
        scale: Line that names its answers, from ``{low}`` (worst) to ``{high}`` (best).
        comparison: Instruction of a judge that compares.
        answers: Line that names its ``{answers}``.
        either: The answers, of ``{others}`` and ``{last}``.
        question: An ``{instruction}`` that follows the candidates.
        comma: What separates the answers.
        tie: Answer that there is no difference.
    """

    source: str
    output: str
    task: str
    text: str
    candidate: str
    score: str
    better: str
    scoring: str
    scale: str
    comparison: str
    answers: str
    either: str
    question: str
    comma: str
    tie: str

    def words(self, criterion: Criterion) -> dict[str, str]:
        """Return a criterion's words by their names in braces."""
        output = criterion.output_label
        return {"name": criterion.title, "definition": criterion.definition, "output": output.lower()}


LANGUAGES = {
    "en": Language(
        source=Criterion.source_label,
        output=Criterion.output_label,
        task=Criterion.task,
        text="{label}: {text}",
        candidate="{label} {letter}",
        score="{name}:",
        better="Better {name}:",
        scoring="Judge the {output} on {name}: {definition}",
        scale="Answer with a whole number from {low} (worst) to {high} (best).",
        comparison="Which {output} is better on {name}: {definition}",
        answers="Answer with {answers}.",
        either="{others} or {last}",
        question="Question: {instruction}",
        comma=", ",
        tie="Tie",
    ),
    "ja": Language(
        source="入力",
        output="出力",
        task="入力に対応する出力を書いてください。",
        text="{label}：{text}",
        candidate="{label}{letter}",
        score="{name}：",
        better="{name}がより優れている{output}：",
        scoring="{output}の{name}を評価してください：{definition}",
        scale="{low}（最低）から{high}（最高）までの整数で答えてください。",
        comparison="{name}がより優れている{output}はどれですか：{definition}",
        answers="{answers}で答えてください。",
        either="{others}または{last}",
        question="質問：{instruction}",
        comma="、",
        tie="引き分け",
    ),
}
"""Languages of a judge by their ISO 639-1 codes; a language that is added here can be given to a judge."""


def known_language(name: str, value: object) -> None:
    """Raise ``ValueError`` for a language that a judge does not have."""
    if not isinstance(value, str) or value not in LANGUAGES:
        raise ValueError(
            f"{name}={value!r:.80} is unknown: choose one of {(*LANGUAGES,)}, or add its Language to "
            "evalbias.programs.languages.LANGUAGES."
        )


def in_language(criterion: Criterion, language: str) -> Criterion:
    """Return a criterion with a language's labels and task where it has the default ones."""
    said = LANGUAGES[language]
    own: dict[str, Any] = {"source_label": said.source, "output_label": said.output, "task": said.task}
    return replace(criterion, **{n: word for n, word in own.items() if getattr(criterion, n) == getattr(Criterion, n)})
