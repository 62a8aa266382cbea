"""Demonstrations: the items that can serve, a random draw of them, and a judge that shows them."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.evaluation.item_facts import human_scores
from evalbias.programs.criterion import Criterion
from evalbias.programs.labels import item_label
from evalbias.programs.pointwise import PointwiseJudge


def rated_items(examples: Sequence[dspy.Example], criterion: Criterion) -> list[dspy.Example]:
    """Return the items whose human score on the criterion is defined.

    Raises:
        ValueError: An item was not rated on the criterion at all.
    """
    scores = human_scores(examples, criterion)
    return [e for e, score in zip(examples, scores, strict=True) if np.isfinite(score)]


def draw_demos(examples: Sequence[dspy.Example], k: int, *, seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return k items drawn at random, in their order, and all the others.

    Raises:
        ValueError: Fewer than k items.
    """
    if k > len(examples):
        raise ValueError(f"{k} demonstrations cannot be drawn from {len(examples)} rated items: lower k.")
    picked = set(np.random.default_rng(seed).choice(len(examples), k, replace=False).tolist())
    drawn = [e for i, e in enumerate(examples) if i in picked]
    return drawn, [e for i, e in enumerate(examples) if i not in picked]


def with_demos(
    student: PointwiseJudge, examples: Sequence[dspy.Example], *, bins: Sequence[float] | None = None
) -> PointwiseJudge:
    """Return a copy of the judge with these demonstrations, labeled by their human scores (see ``label_of``).

    A likelihood calibration is discarded, because it was fitted under the old demonstrations.
    """
    judge: PointwiseJudge = student.deepcopy()
    judge.likelihood_calibration = None
    judge.predict.demos = [
        dspy.Example(
            source=e.source,
            output=e.output,
            score=item_label(e, student.criterion, bins=bins),
        )
        for e in examples
    ]
    return judge
