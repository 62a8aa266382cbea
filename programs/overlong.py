"""Items whose prompt exceeds the model's context: refused by name, or left undefined and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import dspy

from evalbias.lm.tokens import PromptTooLong

Answer = TypeVar("Answer")
Overlong = Literal["undefined", "refuse"]

logger = logging.getLogger(__name__)


def answer_items(
    ask: Callable[[Sequence[Any]], Sequence[Answer]],
    prompts: Sequence[Any],
    examples: Sequence[dspy.Example],
    *,
    undefined: Callable[[str], Answer],
    overlong: Overlong = "undefined",
) -> list[Answer]:
    """Ask for all prompts; one that exceeds the model's context costs its own answer alone.

    Args:
        ask: Call of the model with a list of prompts; it refuses the whole call if one of them is too long.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.
        undefined: Function from the model's words to the answer of an item that is too long.
        overlong: ``"undefined"`` to log such items by name and go on, ``"refuse"`` to raise.

    Raises:
        PromptTooLong: A prompt is too long and ``overlong`` is ``"refuse"``; the message names its item.
        ValueError: ``overlong`` is unknown.
    """
    if overlong == "refuse":
        return list(name_overlong_items(ask, prompts, examples))
    if overlong != "undefined":
        raise ValueError(f"overlong={overlong!r} is unknown: choose 'undefined' or 'refuse'.")
    try:
        return list(ask(prompts))
    except PromptTooLong as error:
        if len(prompts) == 1:
            message = f"{_description(examples[0])} is too long. {error}"
            logger.warning("%s Its judgment is undefined.", message)
            return [undefined(message)]
        half = len(prompts) // 2  # a refused call costs its tokenization only, so halving finds the item cheaply
        first, second = (prompts[:half], examples[:half]), (prompts[half:], examples[half:])
        return [a for part in (first, second) for a in answer_items(ask, *part, undefined=undefined)]


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
    return f"An item with the source {str(example.get('source'))[:60]!r}..."
