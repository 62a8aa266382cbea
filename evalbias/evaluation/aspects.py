"""Other qualities that a loop changes, such as fluency and understandability, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.estimates import N_RESAMPLES, Sample
from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import LoopRun
from evalbias.evaluation.measurement import Measurement, measured
from evalbias.measures.statistic import MeanStatistic
from evalbias.programs.feedback.source import FeedbackSource

SCORE = "score"


@dataclass(frozen=True)
class Aspect:
    """One quality of a loop's outputs.

    Attributes:
        name: Name of its source.
        rounds: (t + 1,) mean score after each number of refinements.
        change: Last outputs against the first.
    """

    name: str
    rounds: tuple[Measurement, ...]
    change: Comparison


def measure_aspects(
    run: LoopRun,
    examples: Sequence[Mapping[str, Any]],
    sources: Sequence[FeedbackSource | CachedScorer],
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> list[Aspect]:
    """Score all outputs of a finished loop on several qualities (Xu et al. 2024, figure 6, with judges for UniEval).

    Args:
        run: The loops.
        examples: Their items, in the run's order.
        sources: Sources such as ``JudgeFeedback(PointwiseJudge(FLUENCY))``; each distinct output is scored once.
        n_resamples: Resamples of intervals and tests.
        seed: Seed for intervals and tests.
    """
    aspects = []
    for source in sources:
        name = source.source.name if isinstance(source, CachedScorer) else source.name
        rounds = [
            measured(
                {SCORE: Sample(row, MeanStatistic(), name)},
                bias="aspect",
                criterion=name,
                headlines=(SCORE,),
                ids=run.ids,
                columns={SCORE: row},
                n_resamples=n_resamples,
                seed=seed,
            )
            for row in run.quality(examples, source)
        ]
        change = compare(rounds[0], rounds[-1], n_resamples=n_resamples, n_intervals=n_resamples, seed=seed)
        aspects.append(Aspect(name, tuple(rounds), change))
    return aspects
