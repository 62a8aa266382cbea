"""Texts, candidates and labels as a judge reads them from an example. Every error names the item."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import dspy
import numpy as np
import regex

from evalbias.data.items import TIE, choice, human_score, item_name, lone_surrogate, number
from evalbias.measures.arrays import FloatArray, missing
from evalbias.programs import prompts
from evalbias.programs.criterion import Criterion
from evalbias.programs.prompts import Fields

# Items and pairs. Judges, batches and optimizers read examples through these two functions.


OWN_INPUTS = {"source": "Source", "output": "Output"}
"""Input field -> label, the default of a judge's ``inputs``."""
ALL_INPUTS = "all_inputs"
"""Field of an item with several inputs besides the judged text: these inputs as a single text, the context of LS."""


def read_item(
    example: Any, index: int | None = None, inputs: Mapping[str, str] = OWN_INPUTS, judged: str = "output"
) -> dspy.Example:
    """Return an example with its inputs as texts; ``ValueError`` names the item, the field and what is wrong.

    The ``judged`` input becomes ``output``, whatever its name; the other inputs stay, and together they are the
    ``source``, or ``ALL_INPUTS`` if an input has that name already. A number is written as text. ``example`` may be the
    texts of a single call as a mapping, without an ``index``, which names an item that has no id. ``TypeError`` if the
    judge was called with an example in place of a text.
    """
    item = _as_example(example, index, "output=...", "judge_metric")
    check_item(item, f"the item {item_name(item, index)!r:.80}", inputs, judged)
    texts = own_inputs(item, inputs, judged)
    return _under_our_names(item, inputs, texts, judged, output=texts[judged])


def read_pair(
    example: Any,
    index: int | None = None,
    inputs: Mapping[str, str] = OWN_INPUTS,
    judged: str = "output",
    *,
    most: int | None = len(prompts.LETTERS),
) -> dspy.Example:
    """Return an example with inputs as ``read_item``, and distinct ``candidates``, which it may hold as ``outputs``.

    At most ``most`` candidates; with None, any number, and some may be equal.
    """
    item = _as_example(example, index, "candidates=[..., ...]", "preference_metric")
    if item.get("candidates") is None:
        if item.get("outputs") is None:
            raise _no_pair(item, index)
        item = item.copy(candidates=item["outputs"])
    name, others = f"the item {item_name(item, index)!r:.80}", [field for field in inputs if field != judged]
    candidates = check_candidates(item, name, others, most=most)
    if most is not None and len(set(candidates)) < len(candidates):
        raise ValueError(f"Two candidates of {name} are equal: give each candidate once.")
    return _under_our_names(item, inputs, own_inputs(item, others, judged), judged, candidates=candidates)


def own_inputs(item: Fields, names: Iterable[str], judged: str) -> dict[str, str]:
    """Return the texts of an item by a judge's own names; the judged text may be in the field ``output``."""
    return {name: str(item["output" if name == judged and name not in item else name]) for name in names}


def _under_our_names(
    item: dspy.Example, inputs: Mapping[str, str], texts: Mapping[str, str], judged: str, **judged_texts: Any
) -> dspy.Example:
    others = {name: text for name, text in texts.items() if name != judged}
    if judged in item and judged != "output":  # the judged text is kept once, in ``output``, where probes change it
        item = item.without(judged)
    if not others:
        return item.copy(**{ALL_INPUTS: ""} | judged_texts)
    (_, first), *further = others.items()  # the context of LS names the first by the criterion's ``source_label``
    context = "\n".join([first, *(f"{inputs[name]}: {text}" for name, text in further)])
    return item.copy(**others | {ALL_INPUTS if further and "source" in others else "source": context} | judged_texts)


def check_item(item: Fields, name: str, inputs: Iterable[str], judged: str) -> None:
    """Refuse an item or a demonstration with an input that is not a text; ``name`` identifies the item in errors."""
    for field in inputs:
        _check_text(item, "output" if field == judged and field not in item and "output" in item else field, name)


def check_candidates(
    item: Fields, name: str, others: Iterable[str], *, most: int | None = len(prompts.LETTERS)
) -> list[str]:
    """Return the list of candidates of a pair or a demonstration: 2 to ``most``, possibly with equal ones.

    ``others`` are the fields of its other texts, which are checked too.
    """
    candidates = item["candidates"]
    listed = isinstance(candidates, Collection) and not isinstance(candidates, str)
    if not listed or len(candidates) < 2 or (most is not None and len(candidates) > most):
        count = "2 or more" if most is None else f"2 to {most}"
        raise ValueError(f"T{name[1:]} has the candidates {candidates!r:.80}: give a list of {count} texts.")
    for field in others:
        _check_text(item, field, name)
    for place, text in enumerate(candidates, start=1):
        if problem := text_problem(text):
            raise ValueError(f"Candidate {place} of {name} {problem}: give a text.")
    return list(map(str, candidates))


def candidates_of(example: dspy.Example) -> Sequence[Any]:
    """Return the two candidates of a pair (``candidates`` or ``outputs``); empty for any other number."""
    candidates = example.get("candidates") or example.get("outputs") or ()
    listed = isinstance(candidates, Sequence) and not isinstance(candidates, str)
    return candidates if listed and len(candidates) == 2 else ()


def check_two_candidates(examples: Sequence[dspy.Example]) -> None:
    """Raise ``ValueError`` for the first example that does not have exactly two candidates."""
    for index, example in enumerate(examples):
        if not candidates_of(example):
            raise _no_pair(example, index)


def text_problem(value: Any) -> str | None:
    """Say why a value cannot be judged as a text, such as "is empty"; None if it can."""
    if value is None or (isinstance(value, Number) and value != value):  # an empty cell of a data frame is NaN
        return f"is {value}"
    if not isinstance(value, str | Number):  # a model would read Python's notation of a list or an object
        return f"is a {type(value).__name__}, not a text"
    if not str(value).strip():
        return "is empty"
    return (surrogate := lone_surrogate(str(value))) and f"holds {surrogate}"


def _check_text(item: Fields, field: str, name: str) -> None:
    if field not in item:
        raise ValueError(f"{field!r} of {name} is missing; it has {', '.join(map(repr, item.keys()))}: add the text.")
    if problem := text_problem(item.get(field)):
        raise ValueError(f"{field!r} of {name} {problem}: give a text.")


def _as_example(example: Any, index: int | None, texts: str, metric: str) -> dspy.Example:
    if index is None and not isinstance(example, dspy.Example):
        example = dspy.Example(example)
        if any(isinstance(text, dspy.Example) for text in example.values()):
            raise TypeError(
                "The judge was called with an example in place of a text. To use it as a metric, pass "
                f"metric=evalbias.{metric}(judge); to judge an example, call judge(**example.inputs())."
            )
    if not isinstance(example, dspy.Example):
        raise ValueError(f"The example {index} is a {type(example).__name__}: give dspy.Example(source=..., {texts}).")
    return example


def _no_pair(example: dspy.Example, index: int | None) -> ValueError:
    return ValueError(
        f"The item {item_name(example, index)!r:.80} does not have two candidates: give pairs; evalbias.data.pairs "
        "makes them."
    )


# Labels: human scores on a judge's scale, and the candidate of a pair that people prefer.


def label_of(score: float, criterion: Criterion, *, bins: Sequence[float] | None = None) -> str:
    """Return a demonstration's label for a human score: the nearest label, or the higher of two equally near.

    Without ``bins``, ``ValueError`` if the score is outside the criterion's scale; always ``ValueError`` if it is NaN.
    ``bins`` are ascending inner edges, one fewer than the labels: a score below the first edge gets the lowest label, a
    score at or above an edge the next label.

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
    return criterion.labels[math.floor(score + 0.5) - low]


def labeled_as_in_dspy(example: Any, criterion: Criterion) -> Any:
    """Return an example with the label in ``score``, or a pair with it in ``preference``, unless it has such a field.

    An example of DSPy's holds it in the output field of the judge's signature, whose name is the criterion's: a number,
    a truth value, one of the signature's words, or a pair's choice. ``ValueError`` names an item with another value.
    """
    held = {*FIELDS, "score"} - {criterion.name} | {"scores"}
    if not isinstance(example, dspy.Example) or any(field in example for field in held):
        return example
    value = example.get(criterion.name)
    if missing(value):
        return example
    if "candidates" in example or "outputs" in example:
        return example.copy(preference=value)
    answers = [answer.casefold() for answer in criterion.answers]
    if (word := str(value).strip().casefold()) in answers:
        return example.copy(score=float(criterion.values[answers.index(word)]))
    words = f" (one of {', '.join(map(repr, criterion.answers))})" if answers else ""
    place = f"{criterion.name!r:.80} of the item {item_name(example)!r:.80}{words}"
    is_truth = isinstance(value, bool) and criterion.scale == (0, 1)
    return example.copy(score=float(value) if is_truth else number(value, place, texts=True))


def item_label(example: Any, criterion: Criterion, *, bins: Sequence[float] | None = None) -> float:
    """Return the label of an item's human score, as a number; ``ValueError`` without a score that fits a label."""
    score = human_score(labeled_as_in_dspy(example, criterion), criterion.name)
    try:
        return float(criterion.values[criterion.labels.index(label_of(score, criterion, bins=bins))])
    except ValueError as error:
        raise ValueError(f"The item {item_name(example)!r:.80} has no label. {error}") from error


FIELDS = ("preference", "better")  # fields of a pair that may hold its label; the first field with a value counts


def preference_label(example: Any) -> str | None:
    """Return the answer that people chose: "A", "B" and so on, or "Tie"; None if the pair has no label."""
    preferred = people_choice(example)
    return None if math.isnan(preferred) else letter_of(preferred)


def people_choice(example: Any, fields: Sequence[str] = FIELDS, *, index: int | None = None) -> float:
    """Return people's preferred candidate: 0 for the first, 1 for the second and so on, -1 for a tie, NaN if unknown.

    The first of ``fields`` with a value counts: 0 or ``"A"``, 1 or ``"B"``, -1 or ``"tie"``, as
    ``evalbias.data.items.choice`` reads it; anything else is a ``ValueError``. An example without candidates is a pair.
    """
    candidates = example.get("candidates") or example.get("outputs")
    count = max(2, len(candidates)) if isinstance(candidates, list | tuple) else 2
    for field in fields:
        where = f"The label {field!r} of the item {item_name(example, index)!r:.80}"
        preferred = choice(example.get(field), where, count=count)
        if not math.isnan(preferred):
            return preferred
    return math.nan


def letter_of(index: float) -> str:
    """Return a choice, as ``evalbias.data.items.choice`` reads it, in the judge's words."""
    return prompts.TIE if index == TIE else prompts.LETTERS[int(index)]


def length_feature(lengths: FloatArray) -> FloatArray:
    """Return the logarithms of lengths, in which their effect is measured; NaN for an empty text."""
    return np.asarray(np.log(np.where(lengths > 0, lengths, np.nan)))


def text_length(text: str, unit: str = "characters") -> int:
    r"""Count a text's characters, or the graphemes that a reader takes for one: an emoji of several, か with its mark.

    Characters are the code points of the composed form (NFC), so that a text has one length however it was typed.

    Examples:
        >>> text_length("ガ👍🏽", "graphemes"), text_length("ガ👍🏽"), text_length("カ\u3099👍🏽")
        (2, 3, 3)
    """
    if unit == "graphemes":
        return len(regex.findall(r"\X", text))
    return len(text) if text.isascii() else len(unicodedata.normalize("NFC", text))
