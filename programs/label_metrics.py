"""Training sets with labels, and DSPy metrics that compare a judge with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import dspy

from evalbias.data.choices import chosen_candidate
from evalbias.data.item_names import item_name
from evalbias.data.ratings import human_score
from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import item_label
from evalbias.programs.metrics import ProgramMetric, tell_undefined
from evalbias.programs.pair_labels import answer_of, preference_label
from evalbias.programs.prompt import LETTERS, TIE


def preference_accuracy(
    example: Any,
    prediction: Any,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
    *,
    undefined: float = 0.0,
) -> Any:
    """Score a pairwise judge, as a DSPy metric for compiling it: 1 if it agrees with the example's label.

    Args:
        example: Pair with the label ``preference`` or ``better``, which is 0 or ``"A"``, 1 or ``"B"``, or a tie; see
            ``evalbias.data.choices.chosen_candidate``.
        prediction: The judge's comparison of it.
        trace: Not used.
        pred_name: Name of the predictor that ``dspy.GEPA`` asks about.
        pred_trace: Not used.
        undefined: Value of an undefined comparison, which is also logged. Defaults to the worst one, because
            ``dspy.Evaluate`` adds up all values; ``math.nan`` keeps it undefined.

    Returns:
        1 or 0; 0.5 if people have a preference and the judge has none. If ``pred_name`` is given, a ``dspy.Prediction``
        with ``score`` and ``feedback``.

    Raises:
        ValueError: The example has no label, or one that is no choice between its candidates.
    """
    people = preference_label(example)
    if people is None:
        raise ValueError(
            f"The item {item_name(example)!r:.80} has no label: give preference='A' or 0 for the first candidate, 'B' "
            "or 1 for the second, or leave the item out. evalbias.data.pairs(items, criterion=NAME, seed=0) labels the "
            "pairs of rated outputs."
        )
    choice = chosen_candidate(prediction["preference"], "The judge's preference", count=len(LETTERS))
    chosen = None if math.isnan(choice) or answer_of(choice) == TIE else answer_of(choice)
    is_undefined = chosen is None and math.isnan(prediction.get("gap", 0.0))
    if is_undefined:
        value, found = undefined, "The judge's comparison is undefined"
    elif chosen is None:
        value, found = 1.0 if people == TIE else 0.5, "The judge has no preference"
    else:
        value, found = float(chosen == people), f"The judge prefers {chosen}"
    feedback = f"{found}; {'people have none' if people == TIE else f'people prefer {people}'}."
    if is_undefined and not math.isnan(undefined):
        tell_undefined(item_name(example), undefined, feedback)
    return value if pred_name is None else dspy.Prediction(score=value, feedback=feedback)


def score_closeness(criterion: Criterion, *, undefined: float = 0.0) -> ProgramMetric:
    """Make a metric for compiling a judge: 1 at the example's ``score``, falling to 0 over the width of the scale.

    Args:
        criterion: Criterion with the scale. The example's score is the label that ``labeled`` adds, ``score``, or else
            its human score on the criterion in ``scores``.
        undefined: Value of an undefined judgment. Defaults to the worst one; ``math.nan`` keeps it undefined.

    Returns:
        The metric. It raises ``ValueError`` for an example without a defined score on the scale, and names it.
    """
    low, high = criterion.scale

    def judged(example: Any, prediction: Any) -> tuple[float, str]:
        human, ours = _human_label(example, criterion), float(prediction["score"])
        return 1.0 - abs(human - ours) / (high - low), _closeness_feedback(criterion, human, ours)

    return ProgramMetric(judged, name="score_closeness", undefined=undefined)


def labeled(
    examples: Iterable[dspy.Example], criterion: Criterion, *, bins: Sequence[float] | None = None
) -> list[dspy.Example]:
    """Copy the examples and add ``score``, the nearest label: a training set for any DSPy optimizer.

    Args:
        examples: Examples with human ``scores`` by criterion, or one ``score``; see ``evalbias.data.human_score``.
        criterion: Criterion with the labels.
        bins: Edges that cut the human scores into labels; see ``label_of``.

    Raises:
        ValueError: An example has no score on the criterion, or its score fits no label.
    """
    copies = []
    for example in examples:
        label = item_label(example, criterion, bins=bins)
        copies.append(example.copy(score=label).with_inputs("source", "output"))
    return copies


def _human_label(example: Any, criterion: Criterion) -> float:
    """Return the score that a judge is compared with.

    Raises:
        ValueError: The example has none, or one that is undefined or outside the scale.
    """
    name = item_name(example)
    field = "score" if "score" in example else "scores"  # labeled() adds the first beside the second
    human = human_score(dspy.Example({"id": name, field: example.get(field)}), criterion.name)
    low, high = criterion.scale
    if not low <= human <= high:
        fault = "is undefined" if math.isnan(human) else f"is {human:g}, outside the scale from {low} to {high}"
        raise ValueError(
            f"The human score of the item {name!r:.80} on {criterion.name!r} {fault}: leave the item out, or map the "
            "scores to labels with evalbias.labeled(examples, criterion, bins=...)."
        )
    return human


def _closeness_feedback(criterion: Criterion, human: float, ours: float) -> str:
    """Say by how much the judge's score misses the human one, and in which direction."""
    if math.isnan(ours):
        return f"The judge gave no score on {criterion.title}; people gave {human:g}."
    gap = abs(ours - human)
    way = "as people did" if gap < 0.005 else f"{gap:.2f} too {'high' if ours > human else 'low'}"
    return f"The judge scored {ours:.2f} on {criterion.title} where people scored {human:g}: {way}."
