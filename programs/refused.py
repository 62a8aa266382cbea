"""Items that a model cannot be asked about, such as too long ones: left undefined and reported, or an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import dspy

from evalbias.lm.refusals import settled
from evalbias.lm.types import ChoiceLogprobs, MeasuringLM, PromptRefused, stacked, unanswered
from evalbias.runs.visible import get_logger

Answer = TypeVar("Answer")
Refused = Literal["undefined", "raise"]

logger = get_logger(__name__)


def answer_items(
    ask: Callable[[Sequence[Any]], Sequence[Answer]],
    prompts: Sequence[Any],
    examples: Sequence[dspy.Example],
    *,
    refused: Refused = "undefined",
) -> tuple[dict[int, Answer], dict[int, str]]:
    """Ask for all prompts; one that the model refuses costs its own answer alone, and no prompt is answered twice.

    Args:
        ask: Method of the model that takes a list of prompts.
        prompts: Prompts, one per example.
        examples: Examples with ``id``, ``ids`` or ``source``.
        refused: ``"undefined"`` to log refused items by name and go on, or ``"raise"``.

    Returns:
        Index of an item -> its answer, and index of a refused item -> a sentence that names it and the reason.

    Raises:
        PromptRefused: A prompt is refused and ``refused`` is ``"raise"``; the message names its item.
        ValueError: ``refused`` is unknown.
    """
    if refused == "raise":
        return dict(enumerate(name_refused_items(ask, prompts, examples))), {}
    if refused != "undefined":
        raise ValueError(f"refused={refused!r} is unknown: choose 'undefined' or 'raise'.")
    answers, reasons = settled(ask, prompts)
    sentences = {i: f"{_prompt_of(examples[i])} {reason}" for i, reason in sorted(reasons.items())}
    if sentences:
        distinct = list(dict.fromkeys(sentences.values()))
        more = f" The same holds for {len(distinct) - 1} more." if len(distinct) > 1 else ""
        logger.warning("%s Its judgment is undefined.%s", distinct[0], more)
    return answers, sentences


def answer_choices(
    model: MeasuringLM,
    prompts: Sequence[Any],
    choices: Sequence[str],
    examples: Sequence[dspy.Example],
    *,
    refused: Refused = "undefined",
) -> ChoiceLogprobs:
    """Return the log-probabilities of choices after every prompt, NaN after one that the model refuses.

    Arguments and errors are those of ``answer_items``.
    """
    answers, _ = answer_items(
        lambda some: model.choice_logprobs(some, choices).rows(), prompts, examples, refused=refused
    )
    return stacked([answers[i] if i in answers else unanswered(choices) for i in range(len(prompts))], choices)


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
        names = {i: _prompt_of(examples[i]) for i in error.refused}
        raise type(error)(error.refused, error.answered, names) from error


def _prompt_of(example: dspy.Example) -> str:
    """Name the prompt about an item by its id, about a pair by its ids, any other by the beginning of its source."""
    if example.get("ids"):
        return f"The prompt of the pair {tuple(example.ids)!r:.80}"
    if example.get("id") is not None:
        return f"The prompt of the item {example.id!r:.80}"
    return f"The prompt of the item with the source {str(example.get('source'))[:60]!r}..."
