"""Wording of the prompts, in which criterion, demonstrations and item become chat messages.

A message is ``{"role": "system" | "user" | "assistant", "content": str}``. The language model turns messages into
tokens, with its chat template or as plain text for a base model.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from evalbias.programs.criterion import Criterion

Message = dict[str, str]


def item_text(criterion: Criterion, source: str, output: str) -> str:
    """Render one item up to the point where its score follows."""
    return f"{criterion.source_label}: {source}\n{criterion.output_label}: {output}\n{criterion.title.capitalize()}:"


def judge_messages(
    criterion: Criterion,
    source: str,
    output: str,
    *,
    shown: Sequence[Message] = (),
    instructions: str | None = None,
) -> list[Message]:
    """Render the prompt of one judgment; ``instructions`` default to ``criterion.instructions``.

    ``shown`` holds the messages of ``demonstrations``, which are rendered once for all prompts.
    """
    head = {"role": "system", "content": criterion.instructions if instructions is None else instructions}
    return [head, *shown, {"role": "user", "content": item_text(criterion, source, output)}]


def demonstrations(shown: Iterable[tuple[str, str]]) -> list[Message]:
    """Render the text and the label of each demonstration, in the order shown."""
    return [
        {"role": role, "content": content}
        for text, label in shown
        for role, content in (("user", text), ("assistant", label))
    ]


def likelihood_messages(criterion: Criterion, source: str) -> list[Message]:
    """Render the context of the likelihood score, ``log P(output | source, task)`` (Ohi et al. 2024, eq 1)."""
    content = f"{criterion.source_label}: {source}\n{criterion.output_label}:"
    return [{"role": "system", "content": criterion.task}, {"role": "user", "content": content}]


LETTERS = string.ascii_uppercase
"""Names of the candidates in a comparison, by position."""

TIE = "Tie"


def comparison_labels(count: int, *, ties: bool) -> tuple[str, ...]:
    """Return the answers of a comparison: A, B, ... by position, then possibly "Tie"."""
    return tuple(LETTERS[:count]) + ((TIE,) if ties else ())


def comparison_instructions(criterion: Criterion) -> str:
    """Return a comparison's initial instruction, without the line that names the answers."""
    return f"Which {criterion.output_label.lower()} is better on {criterion.title}: {criterion.definition}"


def comparison_messages(
    criterion: Criterion,
    source: str,
    candidates: Sequence[str],
    *,
    labels: Sequence[str],
    shown: Sequence[Message] = (),
    instructions: str | None = None,
    last: bool = False,
) -> list[Message]:
    """Render the prompt of one comparison; ``labels`` has one per candidate, and possibly one for ties.

    ``shown`` holds the messages of ``demonstrations``. ``instructions`` default to
    ``comparison_instructions``; the line that names the answers follows in either case, so that no wording can lose it.
    ``last`` puts both after the candidates, so that prompts of different wordings share a long prefix.
    """
    wording = comparison_instructions(criterion) if instructions is None else instructions
    instruction = f"{wording}\nAnswer with {', '.join(labels[:-1])} or {labels[-1]}."
    head = [] if last else [{"role": "system", "content": instruction}]
    question = pair_text(criterion, source, candidates, ["", instruction] if last else [])
    return [*head, *shown, {"role": "user", "content": question}]


def pair_text(criterion: Criterion, source: str, candidates: Sequence[str], ending: Sequence[str] = ()) -> str:
    """Render candidates up to the point where the better one is named, which follows the lines of ``ending``."""
    lines = [f"{criterion.source_label}: {source}"]
    lines += [
        f"{criterion.output_label} {label}: {candidate}" for label, candidate in zip(LETTERS, candidates, strict=False)
    ]
    return "\n".join([*lines, *ending, f"Better {criterion.title}:"])
