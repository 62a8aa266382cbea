"""Pairs of outputs of one input: what a pairwise judge compares, without any label."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import dspy


def by_input(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """The examples of every input (``input_id``, else ``source``), in the order they come.

    Raises:
        ValueError: Two sources under one ``input_id``, or one source under two: outputs would be judged against another
            source, or an input would stand on both sides of a split.
    """
    found: dict[str, list[dspy.Example]] = {}
    keys: dict[str, str] = {}
    for example in examples:
        key = input_key(example)
        group = found.setdefault(key, [])
        if group and group[0].source != example.source:
            raise ValueError(
                f"The items {group[0].get('id')!r} and {example.get('id')!r} have the input_id {key!r}, and different "
                "sources: give each source its own."
            )
        if keys.setdefault(example.source, key) != key:
            raise ValueError(
                f"The item {example.get('id')!r} has the input_id {key!r}; another item with the same source has "
                f"{keys[example.source]!r}: give one source one input_id, or none at all."
            )
        group.append(example)
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
    ordered: bool = True,
    seed: int,
) -> list[dspy.Example]:
    """Every pair of different outputs of one input, or a part of them, in an order drawn at random.

    Of 10 documents of SummEval with 16 systems these are the paper's 2400 pairs, of 20 of Newsroom its 840.

    Args:
        examples: With ``source`` and ``output``; outputs that an input has twice count once.
        inputs: Draw so many inputs; all by default.
        limit: Draw so many pairs in the end; all by default.
        criterion: Label the pairs by the human scores on it; those that people rated alike, or did not rate, are left
            out. By default there are no labels.
        ordered: Both orders of a pair, as the paper's search takes them; else one of them, drawn at random: for a
            measure that asks in both orders itself.
        seed: Of the draws.

    Returns:
        Examples with ``source``, ``candidates`` (two outputs), ``ids`` and ``input_id``, labeled ones also with
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
    both = [(key, a, b) for key in chosen for a, b in itertools.combinations(groups[key], 2)]
    if ordered:
        both += [(key, b, a) for key, a, b in both]
    else:
        both = [(key, *rng.sample((a, b), 2)) for key, a, b in both]
    found = [_pair(*one) for one in both]
    if criterion is not None:
        preferred = [_preferred(a, b, criterion) for _, a, b in both]
        found = [p.copy(preference=label) for p, label in zip(found, preferred, strict=True) if label is not None]
    return rng.sample(found, len(found) if limit is None else min(limit, len(found)))


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
