"""Labels of pairs: which candidate people prefer, read in one place for metrics, demonstrations and optimizers."""

from __future__ import annotations

import math
from typing import Any

from evalbias.data.choices import TIE, chosen_candidate
from evalbias.data.item_names import item_name
from evalbias.programs import prompt

FIELDS = ("preference", "better")
"""Fields of a pair that may hold its label; the first one that is given counts."""


def preference_label(example: Any) -> str | None:
    """Return the answer that agrees with people's: "A", "B" and so on, or "Tie"; None if the pair has no label.

    The label is the field ``preference`` or else ``better``: 0 or ``"A"`` for the first candidate, 1 or ``"B"`` for the
    second, -1 or ``"tie"`` for a tie; see ``evalbias.data.choices.chosen_candidate``.

    Args:
        example: Pair, or demonstration of one, with ``candidates`` or ``outputs``; without them, two are assumed.

    Raises:
        ValueError: The label is something else; the message names the item and the codes.
    """
    candidates = example.get("candidates") or example.get("outputs")
    count = max(2, len(candidates)) if isinstance(candidates, list | tuple) else 2
    for field in FIELDS:
        where = f"The label {field!r} of the item {item_name(example)!r}"
        choice = chosen_candidate(example.get(field), where, count=count)
        if not math.isnan(choice):
            return answer_of(choice)
    return None


def answer_of(choice: float) -> str:
    """Return a choice, as ``chosen_candidate`` reads it, in the judge's words."""
    return prompt.TIE if choice == TIE else prompt.LETTERS[int(choice)]
