"""What a loop changes besides quality: fluency, understandability, any criterion of a judge, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalbias.evaluation.external_scores import CachedScorer
from evalbias.evaluation.loops import LoopRun
from evalbias.measures import ConfidenceInterval, MeanStatistic, PermutationTest, bootstrap_ci, paired_permutation_test
from evalbias.measures.checks import mean_of_defined
from evalbias.programs.feedback.source import FeedbackSource


@dataclass(frozen=True)
class Aspect:
    """One aspect of a loop's outputs.

    Attributes:
        name: Of the source.
        means: (t + 1,) mean score after every number of refinements.
        intervals: (t + 1,) 95 % bootstrap intervals over items.
        test: Paired permutation test, the last outputs against the first.
        undefined: Items without a score of both their first and their last output.
    """

    name: str
    means: tuple[float, ...]
    intervals: tuple[ConfidenceInterval, ...]
    test: PermutationTest
    undefined: int


def measure_aspects(
    run: LoopRun,
    examples: Sequence[Mapping[str, Any]],
    sources: Sequence[FeedbackSource | CachedScorer],
    *,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> list[Aspect]:
    """Score all outputs of a finished loop on several aspects (Xu et al. 2024, Figure 6, with judges for UniEval).

    Args:
        run: The loops.
        examples: Their items, in the run's order.
        sources: Such as ``JudgeFeedback(PointwiseJudge(FLUENCY))``; each is asked once for every different output.
        n_resamples: Of intervals and tests.
        seed: Of intervals and tests.
    """
    found = []
    for source in sources:
        values = run.worth(examples, source)
        options = {"n_resamples": n_resamples, "seed": seed}
        intervals = tuple(bootstrap_ci(lambda rows: rows.mean(axis=1), row, **options) for row in values)
        test = paired_permutation_test(MeanStatistic(values.shape[1]), values[-1], values[0], **options)
        means = tuple(map(mean_of_defined, values))
        name = source.source.name if isinstance(source, CachedScorer) else source.name
        found.append(Aspect(name, means, intervals, test, int(np.isnan(values[0] + values[-1]).sum())))
    return found
