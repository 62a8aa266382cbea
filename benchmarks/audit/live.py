"""The planted judge, asked about any text: for peers that pad texts and judge them again. Standard library only.

The text of an output names its item and its side and is as long as the drawn length says; the judge reads both from it.
Its error belongs to the item and, of comparisons, to the order, so that it answers the same question alike.
"""

from __future__ import annotations

import math
from typing import Any

CENTER = 5.0
"""Log length, in characters, from which a judge counts."""


def text(numbers: dict[str, Any], item: int, side: int = 0) -> str:
    """Return an output of the drawn length."""
    length = numbers["lengths"][item]
    length = length[side] if numbers["pairwise"] else length
    return (f"{item:04d}.{side} " + "word " * (length // 5)).ljust(length, "x")[:length]


def score(numbers: dict[str, Any], output: str) -> float:
    """Score an output from 1 to 5."""
    item, _ = _place(output)
    seen = numbers["pull"][item] + numbers["length"] * (math.log(len(output)) - CENTER) + numbers["error"][item]
    return float(min(max(round(numbers["center"] + numbers["squeeze"] * seen), 1), 5))


def first_wins(numbers: dict[str, Any], first: str, second: str, order: int) -> bool:
    """Compare two outputs; the order 1 is the swapped one."""
    seen = [_seen(numbers, output) for output in (first, second)]
    item, _ = _place(first)
    return bool(numbers["first"] + seen[0] - seen[1] + numbers["error"][item][order] > 0)


def _seen(numbers: dict[str, Any], output: str) -> float:
    item, side = _place(output)
    return float(numbers["pull"][item][side] + numbers["length"] * (math.log(len(output)) - CENTER))


def _place(output: str) -> tuple[int, int]:
    return int(output[:4]), int(output[5])
