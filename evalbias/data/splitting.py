"""Split examples into training and test sets."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dspy

from evalbias.data.pairing import input_field, input_key

BY = ("instance", "input")


def split(
    examples: Sequence[dspy.Example], *, test_fraction: float = 0.2, seed: int, by: str = "instance"
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples at random into a training and a test set.

    The split depends on the ids and the seed, not on the order of the examples.

    Args:
        examples: Examples with distinct ``id``.
        test_fraction: Share of the test set, in (0, 1). The number of test instances (or inputs) is rounded to the
            nearest integer, halves up: 2846 instances give 569, 4221 give 844.
        seed: Seed of the draw.
        by: ``"instance"``, or ``"input"`` to keep all outputs of an input (``input_id``, or ``source`` where it is
            missing) in the same set.

    Returns:
        Training set and test set, each sorted by id.

    Raises:
        ValueError: A set would be empty, an id is missing or repeated, or a parameter is out of range.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is unknown; choose one of {BY}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction={test_fraction} is out of range; give a number between 0 and 1, such as 0.2.")
    items = _sorted(examples)
    keys = [_key(e, by) for e in items]
    groups = sorted(set(keys))
    size = math.floor(len(groups) * Fraction(test_fraction).limit_denominator(10**6) + Fraction(1, 2))
    if not 0 < size < len(groups):
        raise ValueError(
            f"{len(groups)} {by}{'s' * (len(groups) != 1)} cannot be split with test_fraction={test_fraction}: one set "
            "would be empty. Give more examples or another fraction."
        )
    random.Random(seed).shuffle(groups)
    test_keys = set(groups[:size])
    train = [e for e, key in zip(items, keys, strict=True) if key not in test_keys]
    return train, [e for e, key in zip(items, keys, strict=True) if key in test_keys]


def _sorted(examples: Sequence[dspy.Example]) -> list[Any]:
    missing = next((i for i, e in enumerate(examples) if e.get("id") is None), None)
    if missing is not None:
        raise ValueError(f"The example at index {missing} has no id; give each example an id, which the split uses.")
    items = sorted(examples, key=lambda e: str(e.id))
    repeated = next((a.id for a, b in itertools.pairwise(items) if str(a.id) == str(b.id)), None)
    if repeated is not None:
        raise ValueError(f"Several examples have the same id {repeated!r:.80}; give each example its own id.")
    return items


def _key(example: Any, by: str) -> tuple[str, str]:
    """Identify the group that stays in one set; the field's name keeps an ``input_id`` apart from an equal source."""
    if by == "instance":
        return "id", str(example.id)
    return str(input_field(example)), input_key(example)
