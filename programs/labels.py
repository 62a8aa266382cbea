"""From a human score, on whatever range people rated, to a label of the judge's scale."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from evalbias.programs.criterion import Criterion


def label_of(score: float, criterion: Criterion, *, bins: Sequence[float] | None = None) -> str:
    """The label a demonstration shows for a score.

    Args:
        score: On the criterion's scale without ``bins``; on the range of ``bins`` with them.
        criterion: Whose labels are meant.
        bins: Ascending inner edges, one fewer than there are labels: below the first edge is the lowest label, from an
            edge upward the next one (``WEBNLG_BINS`` is the paper's for 0-100).

    Returns:
        The nearest label, the higher of two equally near.

    Raises:
        ValueError: The score is NaN or lies outside the scale, or the edges do not fit the labels.
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
            f"The score {score:g} is outside the scale {low} to {high} of {criterion.name}: pass bins that map it."
        )
    return str(math.floor(score + 0.5))
