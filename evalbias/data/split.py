"""Training and test items."""

from __future__ import annotations

import random
from collections.abc import Sequence

import dspy

BY = ("instance", "input")


def split(
    examples: Sequence[dspy.Example], *, test_fraction: float = 0.2, seed: int, by: str = "instance"
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """(train, test), drawn with a seed; the order of the examples does not matter, their ids do.

    Args:
        examples: With ``id``, each its own.
        test_fraction: In (0, 1); the test part is rounded down (2846 items: 569), by instance.
        seed: Of the draw.
        by: ``"instance"``, or ``"input"``: all outputs of one input (``input_id``, else ``source``) on one side; the
            test part is then the nearest whole number of inputs.

    Raises:
        ValueError: A side would be empty, ids repeat, or a parameter is out of range.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is unknown: choose one of {BY}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction={test_fraction}: give a number between 0 and 1, such as 0.2.")
    items = sorted(examples, key=lambda e: str(e.id))
    if len({str(e.id) for e in items}) != len(items):
        raise ValueError("Some items have the same id: give each its own, or they could stand on both sides.")
    keys = [str(e.id) if by == "instance" else str(e.get("input_id") or e.source) for e in items]
    groups = sorted(set(keys))
    random.Random(seed).shuffle(groups)
    size = int(len(groups) * test_fraction) if by == "instance" else round(len(groups) * test_fraction)
    if not 0 < size < len(groups):
        raise ValueError(f"{len(groups)} {by}s cannot be split at {test_fraction}: one side would be empty.")
    held = set(groups[:size])
    train = [e for e, key in zip(items, keys, strict=True) if key not in held]
    return train, [e for e, key in zip(items, keys, strict=True) if key in held]
