"""Mapping of human scores, on any range, to the labels of a judge's scale."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from evalbias.data.item_names import item_name
from evalbias.data.ratings import human_score
from evalbias.programs.criterion import Criterion


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
