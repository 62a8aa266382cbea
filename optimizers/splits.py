"""Splits of examples that share nothing: held-back inputs to choose on, and a trainset apart from its valset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dspy
import numpy as np

from evalbias.data.item_names import item_name
from evalbias.evaluation.formatting import count

FEWEST_INPUTS = 8
"""Fewest inputs that a paired test can decide on."""

FEWEST_TO_CHOOSE = 2 * FEWEST_INPUTS
"""Fewest inputs of a trainset of which half is held back to choose on."""


def hold_back(
    examples: Sequence[dspy.Example], key: Callable[[dspy.Example], str], *, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split a trainset by input: examples to search on, and held-back ones to choose on.

    Raises:
        ValueError: There are too few inputs to choose on.
    """
    inputs = len(set(map(key, examples)))
    if inputs < FEWEST_TO_CHOOSE:
        raise ValueError(
            f"The trainset has {count(inputs, 'input')}: choosing between candidates and the given program keeps half "
            f"of them back, and needs {FEWEST_TO_CHOOSE} or more. Give more, or select=False (--bare) for the method "
            "as it is, whose result may be worse than the given program."
        )
    return halves(examples, key, seed=seed)


def halves(
    examples: Sequence[dspy.Example], key: Callable[[dspy.Example], str], *, seed: int
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples at random into two sets that share no input; the second has half of the inputs, rounded down."""
    inputs = list(dict.fromkeys(map(key, examples)))
    picks = np.random.default_rng(seed).permutation(len(inputs))[: len(inputs) // 2]
    second = {inputs[i] for i in picks}
    return [e for e in examples if key(e) not in second], [e for e in examples if key(e) in second]


def check_disjoint(
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    key: Callable[[dspy.Example], Any],
    *,
    noun: str = "items",
) -> None:
    """Refuse sets that share examples.

    Args:
        trainset: Training examples.
        valset: Validation examples.
        key: What makes two examples the same.
        noun: What the error calls them.

    Raises:
        ValueError: Some examples are in both; the first is named.
    """
    seen = {key(e) for e in trainset}
    both = {key(e): e for e in valset if key(e) in seen}
    if both:
        first = item_name(next(iter(both.values())))
        raise ValueError(f"{len(both)} {noun} are in trainset and valset, the first {first!r:.80}: split them.")


def identity(example: dspy.Example) -> tuple[Any, ...]:
    """Return what makes an example the same as another: its id, if any, and texts; the order of a pair does not count.

    Two systems may write the same text, so the texts of two ids are not compared.
    """
    return (example.get("id"), example.get("source"), example.get("output"), *sorted(example.get("candidates") or []))
