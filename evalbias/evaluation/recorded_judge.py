"""Judges whose answers are recorded with the items: a column of scores, or columns of verdicts about pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches

import dspy
import numpy as np

from evalbias.data.choices import TIE, chosen_candidate
from evalbias.data.item_names import item_name
from evalbias.data.numbers import check_size, recorded_number
from evalbias.evaluation.item_facts import item_facts, likelihood_provenance
from evalbias.evaluation.judged import Judged
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.usable import check_pairs

QUALITY = "quality"
ROUNDING = 1e-6
"""Points by which an expected score may miss the end of its scale."""


def recorded_scores(
    examples: Sequence[dspy.Example],
    field: str,
    *,
    criterion: str | Criterion = QUALITY,
    scale: tuple[float, float] | None = None,
    likelihood_lm: MeasuringLM | None = None,
    reduction: str = "sum",
) -> Judged:
    """Gather a judge's recorded scores and what is known about the items.

    Args:
        examples: Items with the field; ``source``, ``output``, ``scores`` or ``score``, ``ratings``, ``system`` and
            ``input_id`` where they are known.
        field: Field of the judge's score: a number, or None where it gave none.
        criterion: Criterion of the human scores; its task defines LS.
        scale: Lowest and highest score that the judge can give, if known.
        likelihood_lm: Model whose likelihood defines LS; None measures none.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` or ``"mean"``.

    Raises:
        ValueError: No item has the field, a value is not a number or not on the scale (the item is named), or all
            values are too small to tell from 0.

    Examples:
        >>> judged = recorded_scores([dspy.Example(mine=4), dspy.Example(mine=None)], "mine")
        >>> judged.answers.tolist()
        [4.0, nan]
    """
    judged_on = as_criterion(criterion)
    values = [_number(e, field, i, scale) for i, e in enumerate(_having(examples, field))]
    check_size(values, f"The judge's scores {field!r}")
    facts = item_facts(examples, judged_on, pairwise=False, scorer=likelihood_lm, reduction=reduction, required=False)
    return Judged(
        ids=facts.ids,
        criterion=judged_on.name,
        answers=np.array(values, dtype=np.float64),
        covariates=facts.covariates,
        inputs=facts.inputs,
        writers=facts.writers,
        scale=scale,
        provenance=likelihood_provenance(judged_on, likelihood_lm, reduction),
    )


def recorded_verdicts(
    examples: Sequence[dspy.Example],
    winner: str,
    *,
    swapped: str | None = None,
    better: str = "better",
    criterion: str | Criterion = QUALITY,
    likelihood_lm: MeasuringLM | None = None,
    reduction: str = "sum",
) -> Judged:
    """Gather a judge's recorded choices between two outputs, in one order or in both.

    Args:
        examples: Pairs with ``candidates`` or ``outputs`` and the fields named below; ``source``, ``ratings``,
            ``systems`` and ``input_id`` where they are known.
        winner: Field of the choice when the outputs were shown as they stand: 0 or ``"A"`` for the first, 1 or ``"B"``
            for the second; -1 or ``"tie"`` for a tie; None for no answer.
        swapped: Field of the choice when the outputs were shown in the other order, also of an output as they
            stand. None if only one order was asked.
        better: Field of people's choice; a tie or None means that they prefer none.
        criterion: Criterion of the ratings; its task defines LS.
        likelihood_lm: Model whose likelihood defines LS; None measures none.
        reduction: Reduction of token log-probabilities to LS.

    Returns:
        Answers (n, orders, 2) by position, 1 for the position that was chosen, with a third class where a tie occurs.

    Raises:
        ValueError: No item has a field, an item is no pair, or a value is no choice; the item is named. Or one field is
            named twice.

    Examples:
        >>> pair = dspy.Example(outputs=["yes", "no"], winner=0, winner_swapped=1)
        >>> recorded_verdicts([pair], "winner", swapped="winner_swapped").answers.tolist()  # always the first position
        [[[1.0, 0.0], [1.0, 0.0]]]
    """
    check_pairs(examples)
    judged_on = as_criterion(criterion)
    check_fields(winner, swapped, better)
    fields = [winner] if swapped is None else [winner, swapped]
    choices = np.array([[_chosen(e, f, i) for i, e in enumerate(_having(examples, f))] for f in fields])  # (r, n)
    facts = item_facts(
        examples,
        judged_on,
        pairwise=True,
        scorer=likelihood_lm,
        reduction=reduction,
        better=better,
        answered=fields,
    )
    return Judged(
        ids=facts.ids,
        criterion=judged_on.name,
        answers=by_position(choices),
        covariates=facts.covariates,
        inputs=facts.inputs,
        ties=bool((choices == TIE).any()),
        writers=facts.writers,
        provenance=likelihood_provenance(judged_on, likelihood_lm, reduction),
    )


def check_fields(winner: str, swapped: str | None, better: str) -> None:
    """Refuse one field as the choices of both orders, which shows no position bias, or of judge and people, who agree.

    Raises:
        ValueError: One field is named twice.
    """
    if swapped == winner:
        raise ValueError(
            f"The field {winner!r} is named for both orders (winner_field and swapped_field, --winner-field and "
            "--swapped-field), and a judge would seem to have no position bias: name the field of the choices in the "
            "swapped order, or leave it out if only one order was asked."
        )
    if better in (winner, swapped):
        raise ValueError(
            f"The field {better!r} is named for the judge's choices and for people's (better_field, --better-field), "
            "who would agree: name two fields. If people chose nothing, read the judge's choices under another name: "
            f"--map judge_choice={better} and judge_choice as their field."
        )


def by_position(choices: FloatArray) -> FloatArray:
    """Return (n, r, c) answers by position from choices (r, n) of candidates, the second row in the swapped order.

    A choice is 0, 1, -1 for a tie or NaN. c is 3 if there is a tie, else 2.
    """
    orders, n = choices.shape
    answers = np.zeros((n, orders, 3 if (choices == TIE).any() else 2))
    for order, row in enumerate(choices):
        answers[np.isnan(row), order] = math.nan
        for candidate in (0, 1):
            answers[row == candidate, order, candidate if order == 0 else 1 - candidate] = 1.0
        if answers.shape[2] == 3:
            answers[row == TIE, order, 2] = 1.0
    return answers


def as_criterion(criterion: str | Criterion) -> Criterion:
    """Return the criterion of recorded answers; of a name alone, no prompt is ever made but that of LS."""
    if isinstance(criterion, Criterion):
        return criterion
    return Criterion(criterion, f"{criterion}, as people rated it")


def _having(examples: Sequence[dspy.Example], field: str) -> Sequence[dspy.Example]:
    """Return the examples.

    Raises:
        ValueError: There are none, or none has the field.
    """
    if not examples:
        raise ValueError("There are no items: give at least one.")
    if not any(field in e for e in examples):
        names = list(dict.fromkeys(name for e in examples for name in e.keys()))  # noqa: SIM118 -- an Example is no dict
        folded = {name.lower(): name for name in names}
        near = get_close_matches(field.lower(), folded, n=1)
        hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
        raise ValueError(f"No item has a field {field!r}; the fields are {', '.join(names):.500}.{hint}")
    return examples


def is_on(scale: tuple[float, float] | None, score: float) -> bool:
    """Return whether a score lies on a scale, but for rounding; an unknown scale holds all, every scale holds NaN."""
    return scale is None or math.isnan(score) or scale[0] - ROUNDING <= score <= scale[1] + ROUNDING


def _number(example: dspy.Example, field: str, index: int, scale: tuple[float, float] | None) -> float:
    place = f"{field!r} of the item {item_name(example, index)!r:.80}"
    number = recorded_number(example.get(field), place)
    if scale is not None and not is_on(scale, number):
        raise ValueError(
            f"{place} is {number:g}, outside the scale from {scale[0]:g} to {scale[1]:g}: correct it, or state the "
            "judge's own scale (scale, --scale)."
        )
    return number


def _chosen(example: dspy.Example, field: str, index: int) -> float:
    return chosen_candidate(example.get(field), f"{field!r} of the item {item_name(example, index)!r:.80}")
