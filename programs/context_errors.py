"""Which item is too long, by its id: a model knows positions only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dspy

from evalbias.lm.tokens import PromptTooLong

Answer = TypeVar("Answer")


def name_overlong_items(
    ask: Callable[[Sequence[Any]], Answer], asked: Sequence[Any], examples: Sequence[dspy.Example]
) -> Answer:
    """What the model answers.

    Args:
        ask: The call.
        asked: Its questions, one an example.
        examples: With ``id``, ``ids`` or ``source``.

    Raises:
        PromptTooLong: A question does not fit into the model's context; its item is named.
    """
    try:
        return ask(asked)
    except PromptTooLong as error:
        for question, example in sorted(zip(asked, examples, strict=True), key=lambda pair: -len(str(pair[0]))):
            try:
                ask([question])
            except PromptTooLong as one:
                raise PromptTooLong(f"{_named(example)} is too long. {one}") from error
        raise


def _named(example: dspy.Example) -> str:
    """An item by its id, a pair by those of its outputs, anything else by how its source begins."""
    if example.get("ids"):
        return f"The pair {tuple(example.ids)!r}"
    if example.get("id") is not None:
        return f"The item {example.id!r}"
    return f"A comparison of the source {str(example.get('source'))[:60]!r}..."
