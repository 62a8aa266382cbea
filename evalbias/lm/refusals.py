"""Items that a model refuses: which of a call they are, and whether the item or the settings are to blame.

A server answers "400 Bad Request" to a prompt that is too long or against its policy, and also to a setting that it
does not know. Codes and wordings differ between servers and versions, so they are not read. The same request with a
harmless text in place of the judged one tells the two apart: if it is answered, the refusal was about the item, which
is left out; if it is refused too, so would be every item, and the call ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from evalbias.lm.types import Interrupted, Prompt, PromptRefused, Unanswered

Item = TypeVar("Item")
Answer = TypeVar("Answer")

STATUSES = frozenset({400, 413, 422})
"""HTTP statuses that may be about the prompt: bad request, too large, unprocessable."""

HARMLESS = "Answer with one digit."
"""Text in place of the judged one."""


def harmless(prompt: Prompt) -> Prompt:
    """Return a prompt with ``HARMLESS`` as its last user message; instructions and demonstrations stay as they are."""
    if isinstance(prompt, str):
        return HARMLESS
    last = max((i for i, message in enumerate(prompt) if message["role"] == "user"), default=len(prompt) - 1)
    return [{**message, "content": HARMLESS} if i == last else message for i, message in enumerate(prompt)]


def each(check: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Apply a function to every item of a call.

    Args:
        check: Function of one item, which raises ``PromptRefused`` as for a call with this item alone.
        items: Items of the call.

    Raises:
        PromptRefused: Items are refused, all of which the exception holds.
    """
    done: list[Answer] = []
    errors: dict[int, PromptRefused] = {}
    for number, item in enumerate(items):
        try:
            done.append(check(item))
        except PromptRefused as error:
            errors[number] = error
    if errors:
        kinds = {type(error) for error in errors.values()}
        kind = kinds.pop() if len(kinds) == 1 else PromptRefused
        raise kind({number: error.refused[0] for number, error in errors.items()})
    return done


def settled(
    ask: Callable[[list[Item]], Sequence[Answer]], items: Sequence[Item]
) -> tuple[dict[int, Answer], dict[int, str]]:
    """Ask about all items, and again about those that a refused call left unanswered.

    Returns:
        Index of an item -> its answer, in the order of the items, and index of a refused item -> the reason.

    Raises:
        Unanswered: There was a connection error; the exception holds all answers so far.
        Interrupted: The user interrupted a call; the exception holds all answers so far.
        ValueError: The model gives more or fewer answers than it was asked for.
    """
    answered: dict[int, Answer] = {}
    refused: dict[int, str] = {}
    while waiting := [i for i in range(len(items)) if i not in answered and i not in refused]:
        try:
            answers: Mapping[int, Answer] = _numbered(ask([items[i] for i in waiting]), len(waiting))
        except PromptRefused as error:
            answers = error.answered
            refused |= {waiting[i]: reason for i, reason in error.refused.items()}
        except (Unanswered, Interrupted) as error:
            error.answered = answered | {waiting[i]: answer for i, answer in error.answered.items()}
            raise
        answered |= {waiting[i]: answer for i, answer in answers.items()}
    return dict(sorted(answered.items())), refused


def _numbered(answers: Sequence[Answer], asked: int) -> dict[int, Answer]:
    if len(answers) != asked:  # asking again for those that are missing might never end
        raise ValueError(f"The model gave {len(answers)} answers to {asked} prompts: correct it, one answer a prompt.")
    return dict(enumerate(answers))


def remembered(
    ask: Callable[[list[Item]], Sequence[Answer]],
    items: Sequence[Item],
    keys: Sequence[str],
    known: MutableMapping[str, Answer],
) -> list[Answer]:
    """Return the answers to all items; those that are not known yet are asked for and kept, whatever ends the call.

    Args:
        ask: Function from items to their answers.
        items: Items of the call.
        keys: Key of every item; items with the same key have the same answer.
        known: Key -> answer; new answers are added.

    Raises:
        PromptRefused: Items are refused; the exception holds the answers of the others.
        Unanswered: There was a connection error; the exception holds all answers so far.
        Interrupted: The user interrupted a call; the exception holds all answers so far.
    """
    new = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
    names = list(new)
    try:
        answered, refused = settled(ask, list(new.values()))
    except (Unanswered, Interrupted) as error:
        known.update({names[i]: answer for i, answer in error.answered.items()})
        error.answered = {number: known[key] for number, key in enumerate(keys) if key in known}
        raise
    known.update({names[i]: answer for i, answer in answered.items()})
    check_refused(keys, {names[i]: reason for i, reason in refused.items()}, known.__getitem__)
    return [known[key] for key in keys]


def check_refused(keys: Sequence[str], refused: Mapping[str, str], answer: Callable[[str], Any]) -> None:
    """Check that no item of a call is refused.

    Args:
        keys: Key of every item.
        refused: Key of a refused item -> the reason.
        answer: Function from the key of any other item to its answer.

    Raises:
        PromptRefused: An item is refused.
    """
    if refused:
        raise PromptRefused(
            {number: refused[key] for number, key in enumerate(keys) if key in refused},
            {number: answer(key) for number, key in enumerate(keys) if key not in refused},
        )
