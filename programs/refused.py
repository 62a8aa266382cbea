"""Items that a model cannot be asked about, such as too long ones: left undefined and reported, or an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import dspy

from evalbias.lm.types import ChoiceLogprobs, MeasuringLM, PromptRefused, stacked, unanswered

Answer = TypeVar("Answer")
Refused = Literal["undefined", "raise"]

logger = logging.getLogger(__name__)


def answer_items(
    ask: Callable[[Sequence[Any]], Sequence[Answer]],
    prompts: Sequence[Any],
    examples: Sequence[dspy.Example],
    *,
    undefined: Callable[[str], Answer],
    refused: Refused = "undefined",
) -> list[Answer]:
    """Ask for all prompts; one that the model refuses costs its own answer alone.

    Args:
        ask: Call of the model with a list of prompts; it refuses the whole call because of one of them.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.
        undefined: Function from the reason to the answer of an item that is refused.
        refused: ``"undefined"`` to log such items by name and go on, or ``"raise"``.

    Raises:
        PromptRefused: A prompt is refused and ``refused`` is ``"raise"``; the message names its item.
        ValueError: ``refused`` is unknown.
    """
    if refused == "raise":
        return list(name_refused_items(ask, prompts, examples))
    if refused != "undefined":
        raise ValueError(f"refused={refused!r} is unknown: choose 'undefined' or 'raise'.")
    reasons: list[str] = []

    def answers(prompts: Sequence[Any], examples: Sequence[dspy.Example]) -> list[Answer]:
        try:
            return list(ask(prompts))
        except PromptRefused as error:
            if len(prompts) == 1:
                reasons.append(f"{_description(examples[0])} cannot be asked about. {error}")
                return [undefined(reasons[-1])]
            half = len(prompts) // 2  # a refused call costs no model time, so halving finds the item cheaply
            return answers(prompts[:half], examples[:half]) + answers(prompts[half:], examples[half:])

    done = answers(prompts, examples)
    if reasons:
        distinct = list(dict.fromkeys(reasons))
        more = f" The same holds for {len(distinct) - 1} more." if len(distinct) > 1 else ""
        logger.warning("%s Its judgment is undefined.%s", distinct[0], more)
    return done


def answer_choices(
    model: MeasuringLM,
    prompts: Sequence[Any],
    choices: Sequence[str],
    examples: Sequence[dspy.Example],
    *,
    refused: Refused = "undefined",
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after every prompt, NaN after one that the model refuses.

    Arguments and errors are those of ``answer_items``; there is at least one prompt.
    """
    return stacked(
        answer_items(
            lambda some: model.choice_logprobs(some, choices).rows(),
            prompts,
            examples,
            undefined=lambda _: unanswered(choices),
            refused=refused,
        )
    )


def name_refused_items(
    ask: Callable[[Sequence[Any]], Answer], prompts: Sequence[Any], examples: Sequence[dspy.Example]
) -> Answer:
    """Call the model, and name the item if a prompt is refused; the model itself knows positions only.

    Args:
        ask: Call of the model with a list of prompts.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.

    Raises:
        PromptRefused: A prompt is refused, for example because it is too long; the message names its item.
    """
    try:
        return ask(prompts)
    except PromptRefused as error:
        for prompt, example in sorted(zip(prompts, examples, strict=True), key=lambda pair: -len(str(pair[0]))):
            try:
                ask([prompt])
            except PromptRefused as item_error:
                raise type(item_error)(f"{_description(example)} cannot be asked about. {item_error}") from error
        raise


def _description(example: dspy.Example) -> str:
    """Describe an item by its id, a pair by its ids, anything else by the beginning of its source."""
    if example.get("ids"):
        return f"The pair {tuple(example.ids)!r}"
    if example.get("id") is not None:
        return f"The item {example.id!r}"
    return f"An item with the source {str(example.get('source'))[:60]!r}..."
