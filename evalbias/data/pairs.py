"""Pairs of outputs of one input: what a pairwise judge compares, without any label."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import dspy


def by_input(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """The examples of every input (``input_id``, else ``source``), in the order they come."""
    found: dict[str, list[dspy.Example]] = {}
    for example in examples:
        found.setdefault(input_key(example), []).append(example)
    return found


def input_key(example: dspy.Example) -> str:
    """What tells an example's input from another one: its ``input_id``, else its source."""
    key = example.get("input_id")
    return str(example.source if key is None else key)


def pairs(
    examples: Sequence[dspy.Example],
    *,
    inputs: int | None = None,
    limit: int | None = None,
    criterion: str | None = None,
    seed: int,
) -> list[dspy.Example]:
    """Every ordered pair of different outputs of one input, or a part of them.

    Of 10 documents of SummEval with 16 systems these are the paper's 2400 pairs, of 20 of Newsroom its 840.

    Args:
        examples: With ``source`` and ``output``; outputs that an input has twice count once.
        inputs: Draw so many inputs; all by default.
        limit: Draw so many pairs in the end; all by default.
        criterion: Label the pairs by the human scores on it; those that people rated alike, or did not rate, are left
            out. By default there are no labels.
        seed: Of the draws.

    Returns:
        Examples with ``source``, ``candidates`` (two outputs), ``ids`` and ``input_id``, labelled ones also with
        ``preference``: ``"A"`` where people prefer the first, ``"B"`` where the second.

    Raises:
        ValueError: There are fewer inputs with two different outputs, or a number below 1.
    """
    rng, groups = random.Random(seed), {k: _distinct(v) for k, v in by_input(examples).items()}
    groups = {key: found for key, found in groups.items() if len(found) > 1}
    wanted = len(groups) if inputs is None else inputs
    if not 1 <= wanted <= len(groups) or (limit is not None and limit < 1):
        raise ValueError(f"inputs={inputs}, limit={limit}: {len(groups)} inputs have two different outputs or more.")
    chosen = sorted(rng.sample(sorted(groups), wanted))
    found = [_pair(key, a, b) for key in chosen for a, b in itertools.permutations(groups[key], 2)]
    if criterion is not None:
        preferred = [_preferred(a, b, criterion) for key in chosen for a, b in itertools.permutations(groups[key], 2)]
        found = [p.copy(preference=label) for p, label in zip(found, preferred, strict=True) if label is not None]
    return found if limit is None or limit >= len(found) else rng.sample(found, limit)


def _distinct(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    return list({e.output: e for e in reversed(examples)}.values())[::-1]


def _preferred(a: dspy.Example, b: dspy.Example, criterion: str) -> str | None:
    first, second = ((e.get("scores") or {}).get(criterion, math.nan) for e in (a, b))
    if first == second or math.isnan(first) or math.isnan(second):
        return None
    return "A" if first > second else "B"


def _pair(key: str, a: dspy.Example, b: dspy.Example) -> dspy.Example:
    pair = dspy.Example(
        source=a.source, candidates=[a.output, b.output], ids=[str(a.get("id")), str(b.get("id"))], input_id=key
    )
    return pair.with_inputs("source", "candidates")
