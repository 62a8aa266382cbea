"""Errors about prompts that exceed the model's context, with the id of the item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dspy

from evalbias.lm.tokens import PromptTooLong

Answer = TypeVar("Answer")


def name_overlong_items(
    ask: Callable[[Sequence[Any]], Answer], prompts: Sequence[Any], examples: Sequence[dspy.Example]
) -> Answer:
    """Call the model, and name the item if a prompt is too long; the model itself knows positions only.

    Args:
        ask: Call of the model with a list of prompts.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.

    Raises:
        PromptTooLong: A prompt does not fit into the model's context; the message names its item.
    """
    try:
        return ask(prompts)
    except PromptTooLong as error:
        for prompt, example in sorted(zip(prompts, examples, strict=True), key=lambda pair: -len(str(pair[0]))):
            try:
                ask([prompt])
            except PromptTooLong as item_error:
                raise PromptTooLong(f"{_description(example)} is too long. {item_error}") from error
        raise


def _description(example: dspy.Example) -> str:
    """Describe an item by its id, a pair by its ids, anything else by the beginning of its source."""
    if example.get("ids"):
        return f"The pair {tuple(example.ids)!r}"
    if example.get("id") is not None:
        return f"The item {example.id!r}"
    return f"A comparison of the source {str(example.get('source'))[:60]!r}..."
