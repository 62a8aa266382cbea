"""The wording of a prompt: the only place where criterion, demonstrations and item become messages.

A message is ``{"role": "system" | "user" | "assistant", "content": str}``. How messages become tokens
(a chat template, or plain text for a base model) is the language model's business.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    messages = [{"role": "system", "content": criterion.instructions if instructions is None else instructions}]
    for demo_source, demo_output, label in demos:
        messages.append({"role": "user", "content": item_text(criterion, demo_source, demo_output)})
        messages.append({"role": "assistant", "content": label})
    messages.append({"role": "user", "content": item_text(criterion, source, output)})
    return messages


def likelihood_messages(criterion: Criterion, source: str) -> list[Message]:
    """The context of the likelihood score, ``log P(output | source, task)`` (Ohi et al. 2024, eq 1)."""
    content = f"{criterion.source_label}: {source}\n{criterion.output_label}:"
    return [{"role": "system", "content": criterion.task}, {"role": "user", "content": content}]
