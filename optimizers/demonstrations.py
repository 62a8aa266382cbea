"""Demonstrations against likelihood bias: which items can be shown, and which have the highest RS."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
import numpy as np

from evalbias.evaluation.judged import human_scores
from evalbias.lm.cache import measuring
from evalbias.lm.types import Choices, MeasuringLM, PromptRefused, RequestRefused
from evalbias.measures.arrays import FloatArray
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import item_label
from evalbias.programs.judges import answer_items
from evalbias.programs.pointwise import PointwiseJudge

TRIED = 16  # number of the longest items whose prompts are tried before anything is judged

# The items that can be shown, a random draw of them, and a judge that shows them.


def rated_items(examples: Sequence[dspy.Example], criterion: Criterion) -> list[dspy.Example]:
    """Return the items whose human score on the criterion is defined; refuse items that were not rated on it at all."""
    scores = human_scores(examples, criterion)
    return [e for e, score in zip(examples, scores, strict=True) if np.isfinite(score)]


def draw_demos(examples: Sequence[dspy.Example], k: int, *, seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Return k items drawn at random, in their order, and all the others; fewer than k items are refused."""
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
    judge.correction = None
    judge.predict.demos = [
        dspy.Example(source=e.source, output=e.output, score=item_label(e, student.criterion, bins=bins))
        for e in examples
    ]
    return judge


class UnusableDemosError(ValueError):
    """There are too few items of one kind to choose demonstrations from, or they do not fit the model's context."""


def check_demos_fit(judge: PointwiseJudge, examples: Sequence[dspy.Example], lm: MeasuringLM) -> None:
    """Refuse demonstrations with which one of the longest items exceeds the model's context, and say how many fit.

    An item that the model cannot take even without demonstrations is undefined anyway, and says nothing of them.
    """
    longest = sorted(examples, key=lambda e: len(e.source) + len(e.output))[-TRIED:]
    model = measuring(lm, judge.sampling)
    demos, trial = judge.predict.demos, judge.deepcopy()

    def refusal(items: Sequence[dspy.Example], count: int) -> PromptRefused | RequestRefused | None:
        trial.predict.demos = demos[:count]
        questions = [Choices(trial.messages(e), tuple(judge.criterion.labels)) for e in items]
        try:
            answer_items(model, questions, items, refused="raise")
        except (PromptRefused, RequestRefused) as error:  # the latter: not even a harmless text fits
            return error
        return None

    first = refusal(longest, len(demos))
    if first is None:
        return
    alone = [item for item in longest if refusal([item], 0) is None]
    if not alone:
        raise UnusableDemosError(f"Not even a prompt without demonstrations fits. {first}") from first
    problem = refusal(alone, len(demos))
    if problem is not None:
        count = next(count for count in range(len(demos) - 1, -1, -1) if refusal(alone, count) is None)
        raise UnusableDemosError(f"{count} of {len(demos)} demonstrations fit: lower k. {problem}") from problem


# The paper's choice: the items of highest RS.


def highest_rs(rs: FloatArray, k: int) -> list[int]:
    """Return the k items (n,) of largest RS, ascending as in the paper (Ohi et al. 2024, section 2.2)."""
    usable = np.flatnonzero(np.isfinite(rs))
    if len(usable) < k:
        raise UnusableDemosError(f"RS is defined for only {len(usable)} items: {k} demonstrations cannot be chosen.")
    top = usable[np.argsort(-rs[usable], kind="stable")[:k]]
    return [int(i) for i in top[::-1]]
