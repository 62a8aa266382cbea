"""Training and test items."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dspy

BY = ("instance", "input")


def split(
    examples: Sequence[dspy.Example], *, test_fraction: float = 0.2, seed: int, by: str = "instance"
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """(train, test), drawn with a seed; the order of the examples does not matter, their ids do.

    Args:
        examples: With ``id``, each its own. Both sides come sorted by it.
        test_fraction: In (0, 1). The test part is the nearest whole number of instances, or of inputs, a half upwards:
            2846 instances give 569, 4221 give 844.
        seed: Of the draw.
        by: ``"instance"``, or ``"input"``: all outputs of one input (``input_id``, else ``source``) on one side.

    Raises:
        ValueError: A side would be empty, ids are missing or repeat, or a parameter is out of range.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is unknown: choose one of {BY}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction={test_fraction}: give a number between 0 and 1, such as 0.2.")
    items = _sorted(examples)
    keys = [_key(e, by) for e in items]
    groups = sorted(set(keys))
    size = math.floor(len(groups) * Fraction(test_fraction).limit_denominator(10**6) + Fraction(1, 2))
    if not 0 < size < len(groups):
        raise ValueError(f"{len(groups)} {by}(s) cannot be split at {test_fraction}: one side would be empty.")
    random.Random(seed).shuffle(groups)
    held = set(groups[:size])
    train = [e for e, key in zip(items, keys, strict=True) if key not in held]
    return train, [e for e, key in zip(items, keys, strict=True) if key in held]


def _sorted(examples: Sequence[dspy.Example]) -> list[Any]:
    bare = next((i for i, e in enumerate(examples) if e.get("id") is None), None)
    if bare is not None:
        raise ValueError(f"The example at index {bare} has no id: give each its own, the split is drawn from the ids.")
    items = sorted(examples, key=lambda e: str(e.id))
    twice = next((a.id for a, b in itertools.pairwise(items) if str(a.id) == str(b.id)), None)
    if twice is not None:
        raise ValueError(f"Several examples have the same id, {twice!r}: give each its own.")
    return items


def _key(example: Any, by: str) -> tuple[str, str]:
    """What stays on one side; an ``input_id`` is never mistaken for a source of the same text."""
    if by == "instance":
        return "id", str(example.id)
    found = example.get("input_id")
    return ("source", str(example.source)) if found is None else ("input_id", str(found))
