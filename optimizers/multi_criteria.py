"""One task judged on several criteria: each compiled on its own, all of them compared, and the total."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.evaluation.likelihood import (
    LikelihoodComparison,
    LikelihoodMeasurement,
    combine,
    compare_likelihood_bias,
)
from evalbias.lm.contract import measuring
from evalbias.lm.memo import LikelihoodMemo
from evalbias.measures.likelihood import TOTAL
from evalbias.optimizers.biased_demos import BiasedDemos, BiasedDemosReport
from evalbias.optimizers.demos import draw_demos, rated_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge


@dataclass(frozen=True)
class CompiledCriteria:
    """Judges compiled side by side.

    Attributes:
        judges: criterion -> compiled judge.
        reports: criterion -> what compiling it found.
        before: The valset under the random demonstrations, all criteria.
        after: The valset under the chosen ones.
        comparisons: By criterion, and ``total`` where there are several.
    """

    judges: dict[str, PointwiseJudge]
    reports: dict[str, BiasedDemosReport]
    before: LikelihoodMeasurement
    after: LikelihoodMeasurement
    comparisons: dict[str, LikelihoodComparison]


def compile_each(
    optimizer: BiasedDemos,
    judges: Sequence[PointwiseJudge],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    lm: Any = None,
) -> CompiledCriteria:
    """Compile one judge for each of several criteria of one task.

    Args:
        optimizer: Used for every criterion with the same settings and seed; one model's likelihood for all of them.
        judges: At least one, each of another criterion.
        trainset: See ``BiasedDemos.compile``.
        valset: Items on which all are compared.
        lm: The judges' model; by default their own or DSPy's.

    Raises:
        ValueError: As ``BiasedDemos.compile``, or an empty valset.
    """
    if not judges or not valset:
        raise ValueError(f"{len(judges)} judges and {len(valset)} validation items: give at least one of each.")
    optimizer = copy.copy(optimizer)
    optimizer.likelihood_lm = LikelihoodMemo(
        measuring(optimizer.likelihood_lm or lm or judges[0].predict.lm or dspy.settings.lm)
    )
    compiled = {j.criterion.name: optimizer.compile(j, trainset=trainset, valset=valset, lm=lm) for j in judges}
    reports = {name: judge.report for name, judge in compiled.items()}
    before = combine([r.before for r in reports.values()])
    after = combine([r.after for r in reports.values()])
    comparisons = {name: r.comparison for name, r in reports.items()}
    if len(reports) > 1:
        settings = {"n_resamples": optimizer.n_resamples, "seed": optimizer.seed}
        comparisons |= compare_likelihood_bias(before, after, only=[TOTAL], **settings)
    return CompiledCriteria(compiled, reports, before, after, comparisons)


def count_answers(
    optimizer: BiasedDemos,
    criteria: Sequence[Criterion],
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
) -> int:
    """How many answers ``compile_each`` asks for: judgments, and each text's likelihood once."""
    texts = {(e.source, e.output) for e in valset}
    for criterion in criteria:
        _, candidates = draw_demos(rated_items(trainset, criterion), optimizer.k, seed=optimizer.seed)
        texts |= {(e.source, e.output) for e in candidates}
    return len(texts) + sum(optimizer.judgments(trainset, valset, c) for c in criteria)
