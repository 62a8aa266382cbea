"""Labels of pairs: which candidate people prefer, read in one place for metrics, demonstrations and optimizers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evalbias.data.choices import TIE, chosen_candidate
from evalbias.data.item_names import item_name
from evalbias.programs import prompt

FIELDS = ("preference", "better")
"""Fields of a pair that may hold its label; the first one that is given counts."""


def preference_label(example: Any) -> str | None:
    """Return the answer that agrees with people's: "A", "B" and so on, or "Tie"; None if the pair has no label.

    Raises:
        ValueError: See ``people_choice``.
    """
    choice = people_choice(example)
    return None if math.isnan(choice) else answer_of(choice)


def people_choice(example: Any, fields: Sequence[str] = FIELDS, *, index: int | None = None) -> float:
    """Return which candidate people prefer: 0 for the first, 1 for the second and so on, -1 for a tie, NaN for none.

    In a field, 0 or ``"A"`` is the first candidate, 1 or ``"B"`` the second, -1 or ``"tie"`` a tie; see
    ``evalbias.data.choices.chosen_candidate``.

    Args:
        example: Pair, or demonstration of one, with ``candidates`` or ``outputs``; without them, two are assumed.
        fields: Fields that may hold the label; the first one that is given counts.
        index: Number of the item, which names it in errors if it has no id.

    Raises:
        ValueError: The label is something else; the message names the item and the codes.
    """
    candidates = example.get("candidates") or example.get("outputs")
    count = max(2, len(candidates)) if isinstance(candidates, list | tuple) else 2
    for field in fields:
        where = f"The label {field!r} of the item {item_name(example, index)!r:.80}"
        choice = chosen_candidate(example.get(field), where, count=count)
        if not math.isnan(choice):
            return choice
    return math.nan


def answer_of(choice: float) -> str:
    """Return a choice, as ``chosen_candidate`` reads it, in the judge's words."""
    return prompt.TIE if choice == TIE else prompt.LETTERS[int(choice)]
