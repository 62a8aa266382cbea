"""What examples say of each other: inputs, people's scores, pairs and splits."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import dspy

from evalbias.data.cells import FIRST, LARGEST, SECOND, DataError, choice, number
from evalbias.data.items import item_name


def is_rated(example: dspy.Example, criterion: str) -> bool:
    """Return whether an example has a human score on a criterion, defined or not; see ``human_score``."""
    scores = _by_criterion(example)
    return "score" in example if scores is None else criterion in scores


def human_score(example: dspy.Example, criterion: str, *, required: bool = True) -> float:
    """Return an example's human score on a criterion, NaN where undefined: ``scores[criterion]``, or else ``score``.

    An example that has ``scores`` without the criterion is not rated on it, as its ``score`` may be that of another.
    One that is not rated is refused if ``required``; its score is NaN otherwise.

    Examples:
        >>> human_score(dspy.Example(score=4), "politeness")
        4.0
        >>> human_score(dspy.Example(score=4, scores={"politeness": 2}), "politeness")
        2.0
    """
    scores = _by_criterion(example)
    item = f"{item_name(example)!r:.80}"
    if is_rated(example, criterion):
        value = example["score"] if scores is None else scores[criterion]
        return number(value, f"The score of the item {item} on {criterion!r:.80}", texts=True)
    if not required:
        return math.nan
    others = "neither in 'scores' nor as 'score'"
    if scores is not None:
        others = f"only on {sorted(scores)}"
        others += "; its 'score' is not used, because 'scores' says what was rated" if "score" in example else ""
    raise ValueError(
        f"The item {item} has no score on {criterion!r:.80}, {others}: name another criterion, leave the item out, or "
        f"add scores={{{criterion!r:.80}: NUMBER}} (None if undefined)."
    )


def single_ratings(example: dspy.Example, criterion: str) -> list[float]:
    """Return an example's single ratings on a criterion in the raters' order, NaN where a rater gave none.

    ``ratings`` are criterion -> numbers, or the numbers alone beside the one ``score``; without them the list is empty.

    Examples:
        >>> single_ratings(dspy.Example(ratings={"politeness": [4, None, 5]}), "politeness")
        [4.0, nan, 5.0]
    """
    given = example.get("ratings") or {}
    row = given if isinstance(given, list | tuple) else isinstance(given, Mapping) and (given.get(criterion) or ())
    try:
        if not isinstance(row, list | tuple):
            raise DataError(f"they are {row!r:.80}")
        return [number(rating, "one of them", texts=True) for rating in row]
    except DataError as error:
        raise ValueError(
            f"The item {item_name(example)!r:.80} has ratings={given!r:.80}: give criterion -> list of numbers of at "
            f"most {LARGEST:g}, None where a rater gave none."
        ) from error


def rated_criteria(examples: Iterable[dspy.Example]) -> list[str]:
    """Return the criteria that the examples' ``scores`` and ``ratings`` name, in the order they appear.

    Examples:
        >>> rated_criteria([dspy.Example(scores={"wit": 4}), dspy.Example(ratings={"wit": [4, 5], "tone": [2, 2]})])
        ['wit', 'tone']
    """
    given = (e.get(field) for e in examples for field in ("scores", "ratings"))
    return list(dict.fromkeys(name for by_name in given if isinstance(by_name, Mapping) for name in by_name))


def _by_criterion(example: dspy.Example) -> Mapping[str, Any] | None:
    scores = example.get("scores")
    if scores is None or isinstance(scores, Mapping):
        return scores
    raise ValueError(
        f"The item {item_name(example)!r:.80} has scores={scores!r:.80}: give criterion -> number, or one number as "
        "score=."
    )


def by_input(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """Group examples by input, as ``input_key`` identifies it, in order of first appearance.

    An ``input_id`` of two sources is refused, because outputs would be judged against the wrong one; so is a source of
    two values of ``input_id``, which could be on both sides of a split.
    """
    groups: dict[str, list[dspy.Example]] = {}
    keys: dict[str, str] = {}
    for example in examples:
        key = input_key(example)
        group = groups.setdefault(key, [])
        source = example.get("source")
        if group and group[0].get("source") != source:
            raise ValueError(
                f"The items {item_name(group[0])!r:.80} and {item_name(example)!r:.80} have the same input_id "
                f"{key!r:.80} but different sources; give each source its own input_id."
            )
        if source is not None and keys.setdefault(source, key) != key:
            raise ValueError(
                f"The item {item_name(example)!r:.80} has the input_id {key!r:.80}, but another item with the same "
                f"source has {keys[source]!r:.80}; give all items of a source the same input_id, or none."
            )
        group.append(example)
    return groups


def input_key(example: dspy.Example) -> str:
    """Identify an example's input: its ``input_id``, its source where that is missing, or else its own id."""
    field = input_field(example)
    if field is None:
        raise ValueError(f"The example {example} has no input_id, source or id; give each example an id.")
    return str(example[field])


def input_field(example: dspy.Example) -> str | None:
    """Return the field that identifies an example's input, None if it has none of them."""
    return next((name for name in ("input_id", "source", "id") if example.get(name) is not None), None)


def pairs(
    examples: Sequence[dspy.Example],
    *,
    inputs: int | None = None,
    limit: int | None = None,
    criterion: str | None = None,
    ordered: bool = True,
    seed: int,
) -> list[dspy.Example]:
    """Pair all different outputs of each input, or a random part of them, in random order; pairs stay as they are.

    Ten documents of SummEval with 16 different outputs give the 2400 pairs of Zhou et al. (2024, appendix A).

    Args:
        examples: Examples with ``source`` and ``output``; repeated outputs of one input count once. Or pairs, with
            ``candidates``, which come as they are and, if ``ordered``, also in the other order.
        inputs: Number of inputs to draw, each with two different outputs; all by default.
        limit: Largest number of pairs to draw; all by default.
        criterion: Criterion whose human scores label the pairs by ``preference``, ``"A"`` where people rated the first
            candidate higher, ``"B"`` where the second; pairs with equal or missing scores are left out.
        ordered: Return both orders of each pair. If False, return one order drawn at random.
        seed: Seed of all draws.

    Returns:
        Examples with ``source``, ``candidates`` (two outputs), ``ids`` and ``input_id``. Where both outputs have single
        ``ratings``, the pair has each rater's difference, the first candidate's less the second's.
    """
    rng, groups = random.Random(seed), _comparable(examples)
    n_inputs = len(groups) if inputs is None else inputs
    if not 1 <= n_inputs <= len(groups) or (limit is not None and limit < 1):
        raise ValueError(
            f"inputs={inputs} and limit={limit} cannot be drawn: only {len(groups)} inputs have two different outputs; "
            "give 1 to that many inputs, and a limit of at least 1."
        )
    chosen = sorted(rng.sample(sorted(groups), n_inputs))
    if hold_pairs(examples):
        given = [pair for key in chosen for pair in groups[key]]
        given = [pair for pair in given if criterion is None or _label(pair, "preference") in (FIRST, SECOND)]
        made = [*given, *map(_swapped, given)] if ordered else given
    else:
        paired = [(key, a, b) for key in chosen for a, b in itertools.combinations(groups[key], 2)]
        if ordered:
            paired += [(key, b, a) for key, a, b in paired]
        else:
            paired = [(key, *rng.sample((a, b), 2)) for key, a, b in paired]
        made = [pair for members in paired if (pair := _make_pair(*members, criterion)) is not None]
    return rng.sample(made, len(made) if limit is None else min(limit, len(made)))


def count_pairs(examples: Sequence[dspy.Example], *, ordered: bool = True) -> int:
    """Return how many pairs ``pairs`` makes without a limit: both orders of a pair, or one if ``ordered`` is False."""
    if hold_pairs(examples):
        return sum(map(len, _comparable(examples).values())) * (2 if ordered else 1)
    sizes = [len(_distinct(outputs)) for outputs in by_input(examples).values()]
    return sum(n * (n - 1) if ordered else n * (n - 1) // 2 for n in sizes)


def hold_pairs(examples: Sequence[dspy.Example]) -> bool:
    """Return whether the examples are pairs, with ``candidates`` instead of an ``output``: all of them or none."""
    paired = [e.get("candidates") is not None for e in examples]
    if any(paired) and not all(paired):
        raise ValueError(
            f"{sum(paired)} of {len(paired)} examples are pairs and the others single outputs: give one kind."
        )
    return any(paired)


def _comparable(examples: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """Return what can be compared by input: at least two different outputs, or pairs of different texts."""
    groups = by_input(examples)
    if hold_pairs(examples):
        different = {k: [e for e in v if len(set(e.candidates)) > 1] for k, v in groups.items()}
        return {key: pairs for key, pairs in different.items() if pairs}
    outputs = {key: _distinct(group) for key, group in groups.items()}
    return {key: group for key, group in outputs.items() if len(group) > 1}


def _swapped(pair: dspy.Example) -> dspy.Example:
    """Return a pair in the other order, with what people said about it."""
    swapped = pair.copy(id=f"{pair.get('id')} swapped", candidates=list(pair.candidates)[::-1])
    for name in ("ids", "systems"):
        if pair.get(name) is not None:
            swapped[name] = list(pair[name])[::-1]
    if (label := _label(pair, "preference")) in (FIRST, SECOND):
        swapped["preference"] = "BA"[int(label)]
    if (label := _label(pair, "better")) in (FIRST, SECOND):
        swapped["better"] = 1 - int(label)
    ratings = pair.get("ratings")
    if isinstance(ratings, list):
        swapped["ratings"] = [-difference for difference in ratings]
    elif ratings:
        swapped["ratings"] = {criterion: [-d for d in differences] for criterion, differences in ratings.items()}
    return swapped


def _label(pair: dspy.Example, field: str) -> float:
    return choice(pair.get(field), f"The label {field!r} of the item {item_name(pair)!r:.80}")


def _distinct(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    return list({e.output: e for e in reversed(examples)}.values())[::-1]


def _make_pair(key: str, a: dspy.Example, b: dspy.Example, criterion: str | None) -> dspy.Example | None:
    """Return a pair, labeled by people's scores on a criterion, if one is given; None where they prefer neither."""
    pair = dspy.Example(
        source=a.source, candidates=[a.output, b.output], ids=[str(a.get("id")), str(b.get("id"))], input_id=key
    )
    if criterion is not None:
        first, second = (human_score(e, criterion, required=False) for e in (a, b))
        if first == second or math.isnan(first + second):
            return None
        pair["preference"] = "A" if first > second else "B"
    if a.get("system") is not None and b.get("system") is not None:
        pair["systems"] = [str(a.system), str(b.system)]
    rated = [e.get("ratings") or {} for e in (a, b)]
    if all(isinstance(given, list) for given in rated):  # of the one criterion that is judged
        if differences := _differences(a, b, ""):
            pair["ratings"] = differences
    elif differences_by := {c: d for c in rated[0] if c in rated[1] and (d := _differences(a, b, c))}:
        pair["ratings"] = differences_by
    return pair.with_inputs("source", "candidates")


def _differences(a: dspy.Example, b: dspy.Example, criterion: str) -> list[float]:
    """Subtract the second output's ratings rater by rater; nothing if different numbers of raters gave them."""
    first, second = (single_ratings(e, criterion) for e in (a, b))
    return [x - y for x, y in zip(first, second, strict=True)] if len(first) == len(second) else []


BY = ("instance", "input")


def split(
    examples: Sequence[dspy.Example], *, test_fraction: float = 0.2, seed: int, by: str = "instance"
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples with distinct ``id`` at random into a training and a test set, each sorted by id.

    The split depends on the ids and the seed, not on the order of the examples. ``test_fraction`` is the share of the
    test set, in (0, 1); its number of instances or inputs is rounded to the nearest integer, halves up: 2846 instances
    give 569. ``by`` is ``"instance"``, or ``"input"`` to keep all outputs of an input (``input_id``, else ``source``)
    in one set. A set that would be empty is refused.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is unknown; choose one of {BY}.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction={test_fraction} is out of range; give a number between 0 and 1, such as 0.2.")
    missing = next((i for i, e in enumerate(examples) if e.get("id") is None), None)
    if missing is not None:
        raise ValueError(f"The example at index {missing} has no id; give each example an id, which the split uses.")
    items: list[Any] = sorted(examples, key=lambda e: str(e.id))
    repeated = next((a.id for a, b in itertools.pairwise(items) if str(a.id) == str(b.id)), None)
    if repeated is not None:
        raise ValueError(f"Several examples have the same id {repeated!r:.80}; give each example its own id.")
    keys = [
        (str(e.id),) if by == "instance" else (str(input_field(e)), input_key(e)) for e in items
    ]  # an input_id is no source
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
