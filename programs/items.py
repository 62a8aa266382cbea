"""What a judge can take: texts, candidates and labels, checked."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from numbers import Number
from typing import Any

import dspy

from evalbias.data import cells
from evalbias.data.cells import TIE, lone_surrogate
from evalbias.data.items import item_name
from evalbias.data.pairing import human_score
from evalbias.programs import prompts as prompt
from evalbias.programs.criterion import Criterion
from evalbias.programs.prompts import LETTERS

# Mapping of human scores, on any range, to the labels of a judge's scale.


def label_of(score: float, criterion: Criterion, *, bins: Sequence[float] | None = None) -> str:
    """Return the label that a demonstration shows for a human score.

    Args:
        score: Human score, on the criterion's scale without ``bins``, else on the range of ``bins``.
        criterion: Criterion with the labels.
        bins: Ascending inner edges, one fewer than there are labels. A score below the first edge gets the lowest
            label, a score at or above an edge the next one. ``WEBNLG_BINS`` holds the paper's edges for 0-100.

    Returns:
        The nearest label; the higher one if two are equally near.

    Raises:
        ValueError: The score is NaN or outside the scale, or the edges do not fit the labels.

    Examples:
        >>> label_of(3.5, Criterion("politeness", "is the reply polite?"))
        '4'
    """
    if math.isnan(score):
        raise ValueError(f"A score of NaN has no label on {criterion.name}: leave the item out of the demonstrations.")
    if bins is not None:
        if len(bins) != len(criterion.labels) - 1 or list(bins) != sorted(set(bins)):
            raise ValueError(
                f"bins={tuple(bins)} cannot cut scores into the {len(criterion.labels)} labels of {criterion.name}: "
                f"give {len(criterion.labels) - 1} ascending edges."
            )
        return criterion.labels[bisect_right(bins, score)]
    low, high = criterion.scale
    if not low <= score <= high:
        raise ValueError(
            f"The score {score:g} is outside the scale {low} to {high} of {criterion.name}: correct it, or give bins=, "
            "edges that cut people's scores into labels."
        )
    return str(math.floor(score + 0.5))


def item_label(example: Any, criterion: Criterion, *, bins: Sequence[float] | None = None) -> float:
    """Return the label that a demonstration shows for an item's human score, as a number; see ``label_of``.

    Raises:
        ValueError: The item has no score on the criterion, or its score fits no label.
    """
    score = human_score(example, criterion.name)
    try:
        return float(label_of(score, criterion, bins=bins))
    except ValueError as error:
        raise ValueError(f"The item {item_name(example)!r:.80} has no label. {error}") from error


def check_no_metric(source: Any, factory: str) -> None:
    """Refuse an example in place of a text, as a judge gets it that is itself called as a metric.

    Raises:
        TypeError: It is an example; the message names the factory that makes a metric of a judge.
    """
    if isinstance(source, dspy.Example):
        raise TypeError(
            "The judge was called with an example in place of a text. To use it as a metric, pass "
            f"metric=evalbias.{factory}(judge); to judge an example, call judge(**example.inputs())."
        )


def text_problem(value: Any) -> str | None:
    """Say what keeps a value from being shown to a judge as a text, such as "is empty"; None if nothing does."""
    if value is None:
        return "is None"
    if not isinstance(value, str | Number):  # a model would read Python's notation of a list or an object
        return f"is a {type(value).__name__}, not a text"
    if not str(value).strip():
        return "is empty"
    surrogate = lone_surrogate(str(value))
    return surrogate and f"holds {surrogate}"


# Labels of pairs: which candidate people prefer, read in one place for metrics, demonstrations and optimizers.


FIELDS = ("preference", "better")
"""Fields of a pair that may hold its label; the first one that is given counts."""


def preference_label(example: Any) -> str | None:
    """Return the answer that agrees with people's: "A", "B" and so on, or "Tie"; None if the pair has no label.

    Raises:
        ValueError: See ``people_choice``.
    """
    choice = people_choice(example)
    return None if math.isnan(choice) else answer_of(choice)


def people_choice(example: Any, fields: Sequence[str] = FIELDS, *, index: int | None = None) -> float:
    """Return which candidate people prefer: 0 for the first, 1 for the second and so on, -1 for a tie, NaN for none.

    In a field, 0 or ``"A"`` is the first candidate, 1 or ``"B"`` the second, -1 or ``"tie"`` a tie; see
    ``evalbias.data.cells.choice``.

    Args:
        example: Pair, or demonstration of one, with ``candidates`` or ``outputs``; without them, two are assumed.
        fields: Fields that may hold the label; the first one that is given counts.
        index: Number of the item, which names it in errors if it has no id.

    Raises:
        ValueError: The label is something else; the message names the item and the codes.
    """
    candidates = example.get("candidates") or example.get("outputs")
    count = max(2, len(candidates)) if isinstance(candidates, list | tuple) else 2
    for field in fields:
        where = f"The label {field!r} of the item {item_name(example, index)!r:.80}"
        choice = cells.choice(example.get(field), where, count=count)
        if not math.isnan(choice):
            return choice
    return math.nan


def answer_of(choice: float) -> str:
    """Return a choice, as ``evalbias.data.cells.choice`` reads it, in the judge's words."""
    return prompt.TIE if choice == TIE else prompt.LETTERS[int(choice)]


def check_candidates(source: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates of one source as a list.

    Raises:
        ValueError: There are fewer than 2 or more than 26 candidates, a text is empty or holds a lone
            surrogate, or two candidates are equal.
    """
    check_no_metric(source, "preference_metric")
    texts = candidate_texts(source, candidates)
    if len(set(texts)) < len(texts):
        raise ValueError(f"Two candidates of the source {_named(source)} are equal: give each candidate once.")
    return texts


def candidate_texts(source: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates of one source, of which some may be equal, as a list.

    Raises:
        ValueError: There are fewer than 2 or more than 26 candidates, or a text is empty or holds a lone surrogate.
    """
    named = _named(source)
    listed = isinstance(candidates, Collection) and not isinstance(candidates, str)
    if not listed or not 2 <= len(candidates) <= len(LETTERS):
        most = len(LETTERS)
        raise ValueError(f"The source {named} has the candidates {candidates!r:.80}: give a list of 2 to {most} texts.")
    for text in (source, *candidates):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"A text of the source {named} is {text!r:.80}: give texts that are not empty.")
        if problem := lone_surrogate(text):
            raise ValueError(f"A text of the source {named} holds {problem}: write the character whole, or remove it.")
    return list(candidates)


def _named(source: Any) -> str:
    return f"{source[:60]!r}..." if isinstance(source, str) else repr(source)


# Checks of the examples that a judge is given: each has the texts that the judge reads, or the error names it.


def usable_pair(example: Any, index: int) -> dspy.Example:
    """Return an example with ``candidates``, which may be given as ``outputs``.

    Args:
        example: Pair, or more candidates of one ``source``.
        index: Position of the example, which names it if it has no id.

    Raises:
        ValueError: It is no ``dspy.Example``, has no candidates, or they cannot be compared; see ``check_candidates``.
    """
    _check_example(example, index, "candidates=[..., ...]")
    if example.get("candidates") is None:
        if example.get("outputs") is None:
            raise _no_pair(example, index)
        example = example.copy(candidates=example["outputs"])
    try:
        check_candidates(example.get("source"), example["candidates"])
    except ValueError as error:
        raise ValueError(f"The example {item_name(example, index)!r:.80} cannot be compared. {error}") from error
    return example


def candidates_of(example: dspy.Example) -> Sequence[Any]:
    """Return the two candidates of a pair (``candidates`` or ``outputs``); empty where there are not two."""
    given = example.get("candidates") or example.get("outputs") or ()
    return given if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2 else ()


def check_pairs(examples: Sequence[dspy.Example]) -> None:
    """Refuse examples without two candidates.

    Raises:
        ValueError: An example has another number of candidates; it is named.
    """
    for index, example in enumerate(examples):
        if not candidates_of(example):
            raise _no_pair(example, index)


def usable_item(example: Any, index: int) -> dspy.Example:
    """Return an example that has a ``source`` and an ``output`` to score.

    Args:
        example: Item.
        index: Position of the example, which names it if it has no id.

    Raises:
        ValueError: It is no ``dspy.Example``, or a text is missing, empty, of another type, or holds a lone surrogate.
    """
    _check_example(example, index, "output=...")
    for field in ("source", "output"):
        value = example.get(field)
        problem = "is missing" if field not in example else text_problem(value)
        if problem is None and not isinstance(value, str):
            problem = f"is {value!r:.80}"
        if problem:
            raise ValueError(f"{field!r} of the item {item_name(example, index)!r:.80} {problem}: give a text.")
    return example


def _check_example(example: Any, index: int, texts: str) -> None:
    if not isinstance(example, dspy.Example):
        raise ValueError(f"The example {index} is a {type(example).__name__}: give dspy.Example(source=..., {texts}).")


def _no_pair(example: dspy.Example, index: int) -> ValueError:
    return ValueError(
        f"The example {item_name(example, index)!r:.80} does not have two candidates: give pairs; evalbias.data.pairs "
        "makes them."
    )
