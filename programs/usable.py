"""Checks of the examples that a judge is given: each has the texts that the judge reads, or the error names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from evalbias.data.item_names import item_name
from evalbias.programs.adapter import text_problem
from evalbias.programs.comparison_adapter import check_candidates


def usable_pair(example: Any, index: int) -> dspy.Example:
    """Return an example with ``candidates``, which may be given as ``outputs``.

    Args:
        example: Pair, or more candidates of one ``source``.
        index: Position of the example, which names it if it has no id.

    Raises:
        ValueError: It is no ``dspy.Example``, has no candidates, or they cannot be compared; see ``check_candidates``.
    """
    _check_example(example, index, "candidates=[..., ...]")
    if example.get("candidates") is None:
        if example.get("outputs") is None:
            raise _no_pair(example, index)
        example = example.copy(candidates=example["outputs"])
    try:
        check_candidates(example.get("source"), example["candidates"])
    except ValueError as error:
        raise ValueError(f"The example {item_name(example, index)!r:.80} cannot be compared. {error}") from error
    return example


def candidates_of(example: dspy.Example) -> Sequence[Any]:
    """Return the two candidates of a pair (``candidates`` or ``outputs``); empty where there are not two."""
    given = example.get("candidates") or example.get("outputs") or ()
    return given if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2 else ()


def check_pairs(examples: Sequence[dspy.Example]) -> None:
    """Refuse examples without two candidates.

    Raises:
        ValueError: An example has another number of candidates; it is named.
    """
    for index, example in enumerate(examples):
        if not candidates_of(example):
            raise _no_pair(example, index)


def usable_item(example: Any, index: int) -> dspy.Example:
    """Return an example that has a ``source`` and an ``output`` to score.

    Args:
        example: Item.
        index: Position of the example, which names it if it has no id.

    Raises:
        ValueError: It is no ``dspy.Example``, or a text is missing, empty, of another type, or holds a lone surrogate.
    """
    _check_example(example, index, "output=...")
    for field in ("source", "output"):
        value = example.get(field)
        problem = "is missing" if field not in example else text_problem(value)
        if problem is None and not isinstance(value, str):
            problem = f"is {value!r:.80}"
        if problem:
            raise ValueError(f"{field!r} of the item {item_name(example, index)!r:.80} {problem}: give a text.")
    return example


def _check_example(example: Any, index: int, texts: str) -> None:
    if not isinstance(example, dspy.Example):
        raise ValueError(f"The example {index} is a {type(example).__name__}: give dspy.Example(source=..., {texts}).")


def _no_pair(example: dspy.Example, index: int) -> ValueError:
    return ValueError(
        f"The example {item_name(example, index)!r:.80} does not have two candidates: give pairs; evalbias.data.pairs "
        "makes them."
    )
