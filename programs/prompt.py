"""The wording of a prompt: the only place where criterion, demonstrations and item become messages.

A message is ``{"role": "system" | "user" | "assistant", "content": str}``. How messages become tokens
(a chat template, or plain text for a base model) is the language model's business.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from evalbias.programs.criterion import Criterion

Message = dict[str, str]


def item_text(criterion: Criterion, source: str, output: str) -> str:
    """One item up to the point where its score follows."""
    return f"{criterion.source_label}: {source}\n{criterion.output_label}: {output}\n{criterion.title.capitalize()}:"


def judge_messages(
    criterion: Criterion,
    source: str,
    output: str,
    *,
    demos: Iterable[tuple[str, str, str]] = (),
    instructions: str | None = None,
) -> list[Message]:
    """The prompt of one judgment.

    Args:
        criterion: What is judged.
        source: What the output was made from.
        output: What is judged.
        demos: (source, output, label) of each demonstration, in the order shown.
        instructions: In place of ``criterion.instructions`` (an optimizer's wording).
    """
    head = judge_head(criterion, demos=demos, instructions=instructions)
    return [*head, {"role": "user", "content": item_text(criterion, source, output)}]


def judge_head(
    criterion: Criterion, *, demos: Iterable[tuple[str, str, str]], instructions: str | None
) -> list[Message]:
    """What stands before the item that is judged; see ``judge_messages``."""
    messages = [{"role": "system", "content": criterion.instructions if instructions is None else instructions}]
    for demo_source, demo_output, label in demos:
        messages.append({"role": "user", "content": item_text(criterion, demo_source, demo_output)})
        messages.append({"role": "assistant", "content": label})
    return messages


def likelihood_messages(criterion: Criterion, source: str) -> list[Message]:
    """The context of the likelihood score, ``log P(output | source, task)`` (Ohi et al. 2024, eq 1)."""
    content = f"{criterion.source_label}: {source}\n{criterion.output_label}:"
    return [{"role": "system", "content": criterion.task}, {"role": "user", "content": content}]


LETTERS = string.ascii_uppercase
"""What candidates are called in a comparison, by position."""

TIE = "Tie"


def comparison_labels(count: int, *, ties: bool) -> tuple[str, ...]:
    """The answers of a comparison: A, B, ... by position, and "Tie" behind them."""
    return tuple(LETTERS[:count]) + ((TIE,) if ties else ())


def comparison_instructions(criterion: Criterion) -> str:
    """What a comparison is asked before any optimizer touched it; the answers are named behind it."""
    return f"Which {criterion.output_label.lower()} is better on {criterion.title}: {criterion.definition}"


def comparison_messages(
    criterion: Criterion,
    source: str,
    candidates: Sequence[str],
    *,
    labels: Sequence[str],
    demos: Iterable[tuple[str, Sequence[str], str]] = (),
    instructions: str | None = None,
    last: bool = False,
) -> list[Message]:
    """The prompt of one comparison.

    Args:
        criterion: What is judged.
        source: What the candidates were made from.
        candidates: In the order shown.
        labels: The answers: one a candidate, and possibly one for ties.
        demos: (source, candidates, label) of each demonstration, in the order shown.
        instructions: In place of ``comparison_instructions`` (an optimizer's wording). The line that names the answers
            stands behind either, so that no wording can lose it.
        last: Put the instruction behind the candidates, where it is read after all that many wordings share.
    """
    asked = comparison_instructions(criterion) if instructions is None else instructions
    answers = f"Answer with {', '.join(labels[:-1])} or {labels[-1]}."
    told = f"{asked}\n{answers}"
    messages = [] if last else [{"role": "system", "content": told}]
    for demo_source, demo_candidates, label in demos:
        messages.append({"role": "user", "content": _candidates_text(criterion, demo_source, demo_candidates, [])})
        messages.append({"role": "assistant", "content": label})
    behind = ["", told] if last else []
    messages.append({"role": "user", "content": _candidates_text(criterion, source, candidates, behind)})
    return messages


def _candidates_text(criterion: Criterion, source: str, candidates: Sequence[str], behind: Sequence[str]) -> str:
    lines = [f"{criterion.source_label}: {source}"]
    lines += [
        f"{criterion.output_label} {label}: {candidate}" for label, candidate in zip(LETTERS, candidates, strict=False)
    ]
    return "\n".join([*lines, *behind, f"Better {criterion.title}:"])
