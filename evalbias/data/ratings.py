"""Human scores of examples: by criterion in ``scores``, or the one label ``score`` that DSPy's data sets have.

``ratings`` may hold the single ratings behind a score, from which the noise of the raters is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import dspy

from evalbias.data.item_names import item_name
from evalbias.data.numbers import LARGEST, allowed, as_number


def is_rated(example: dspy.Example, criterion: str) -> bool:
    """Return whether an example has a human score on a criterion, defined or not; see ``human_score``."""
    scores = _by_criterion(example)
    return "score" in example if scores is None else criterion in scores


def human_score(example: dspy.Example, criterion: str, *, required: bool = True) -> float:
    """Return an example's human score on a criterion, NaN where undefined.

    The score is ``scores[criterion]``. Where the example has no ``scores``, it is ``score``. An example that has
    ``scores`` without the criterion is not rated on it, because its ``score`` may be that of another criterion.

    Args:
        example: Example with ``scores`` (criterion -> number) or ``score``; None stands for an undefined score.
        criterion: Name of the criterion.
        required: Whether to refuse an example that is not rated on the criterion. If False, its score is NaN.

    Raises:
        ValueError: The example is not rated on the criterion, or its score is not a number.

    Examples:
        >>> human_score(dspy.Example(score=4), "politeness")
        4.0
        >>> human_score(dspy.Example(score=4, scores={"politeness": 2}), "politeness")
        2.0
    """
    scores = _by_criterion(example)
    if not is_rated(example, criterion):
        if not required:
            return math.nan
        raise ValueError(
            f"The item {item_name(example)!r:.80} has no score on {criterion!r:.80}, "
            f"{_what_there_is(example, scores)}: name another criterion, leave the item out, or add "
            f"scores={{{criterion!r:.80}: NUMBER}} (None if undefined)."
        )
    value = example["score"] if scores is None else scores[criterion]
    if value is None:
        return math.nan
    number = as_number(value)
    if abs(number) > LARGEST:
        raise ValueError(
            f"The item {item_name(example)!r:.80} has the score {value!r:.80} on {criterion!r:.80}: give "
            f"{allowed(number)}, or None if it is undefined."
        )
    return number


def single_ratings(example: dspy.Example, criterion: str) -> list[float]:
    """Return an example's single ratings on a criterion in the raters' order, NaN where a rater gave none.

    They stand in ``ratings`` (criterion -> numbers, or the numbers alone beside the one label ``score``); without it,
    the list is empty.

    Raises:
        ValueError: A rating is not a number.

    Examples:
        >>> single_ratings(dspy.Example(ratings={"politeness": [4, None, 5]}), "politeness")
        [4.0, nan, 5.0]
    """
    given = example.get("ratings") or {}
    try:
        row = given if isinstance(given, list | tuple) else given.get(criterion) or ()
        if isinstance(row, str):
            raise TypeError
        numbers = [math.nan if rating is None else as_number(rating) for rating in row]
        if any(abs(number) > LARGEST for number in numbers):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"The item {item_name(example)!r:.80} has ratings={given!r:.80}: give criterion -> list of numbers of at "
            f"most {LARGEST:g}, None where a rater gave none."
        ) from None
    return numbers


def rated_criteria(examples: Iterable[dspy.Example]) -> list[str]:
    """Return the names of the criteria in the examples' ``scores`` and ``ratings``, in the order they appear.

    A bare ``score`` and a bare list of ratings name no criterion.

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


def _what_there_is(example: dspy.Example, scores: Mapping[str, Any] | None) -> str:
    if scores is None:
        return "neither in 'scores' nor as 'score'"
    beside = "; its 'score' is not used, because 'scores' says what was rated" if "score" in example else ""
    return f"only on {sorted(scores)}{beside}"
