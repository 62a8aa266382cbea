"""Measuring a judge's likelihood bias on human-rated items: what the models are asked; the formulas are in measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from evalbias.lm.contract import measuring
from evalbias.lm.types import FloatArray, MeasuringLM
from evalbias.measures import (
    ConfidenceInterval,
    LikelihoodBias,
    PermutationTest,
    bias_score_statistic,
    bootstrap_ci,
    likelihood_bias,
    paired_permutation_test,
    performance_statistic,
    spearman_rows,
    unfairness_scores,
)
from evalbias.measures.likelihood import TOTAL
from evalbias.programs.context_errors import name_overlong_items
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.prompt import likelihood_messages

REDUCTIONS = ("sum", "mean")


@dataclass(frozen=True)
class LikelihoodMeasurement:
    """Everything measured on n items.

    Attributes:
        ids: The items.
        likelihoods: (n,) LS in nats (eq 1).
        model_scores: criterion -> (n,) Score_m (eq 7).
        human_scores: criterion -> (n,) Score_h, as rated.
        coverage: criterion -> (n,) probability mass on the labels.
        reduction: ``"sum"`` (eq 1) or ``"mean"`` over the output's tokens.
        normalization: How US was normalized.
    """

    ids: tuple[str, ...]
    likelihoods: FloatArray
    model_scores: Mapping[str, FloatArray]
    human_scores: Mapping[str, FloatArray]
    coverage: Mapping[str, FloatArray]
    reduction: str
    normalization: str

    def result(self) -> dict[str, LikelihoodBias]:
        """BiasScore and performance by criterion, and ``total`` where there are several criteria."""
        found = likelihood_bias(
            self.likelihoods, dict(self.model_scores), dict(self.human_scores), normalization=self.normalization
        )
        return found if len(self.model_scores) > 1 else {k: v for k, v in found.items() if k != TOTAL}

    def arrays(self, criterion: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(likelihoods, model scores, human scores) of a criterion or of ``total``, each (n,)."""
        if criterion == TOTAL:
            model = np.mean(list(self.model_scores.values()), axis=0)
            return self.likelihoods, model, np.mean(list(self.human_scores.values()), axis=0)
        return self.likelihoods, self.model_scores[criterion], self.human_scores[criterion]


@dataclass(frozen=True)
class LikelihoodComparison:
    """One criterion before and after, on the same items.

    Attributes:
        before: Measured with the first judge.
        after: Measured with the second judge.
        before_interval: 95 % bootstrap interval of the first BiasScore.
        after_interval: 95 % bootstrap interval of the second BiasScore.
        bias_test: Two-sided paired permutation test of the difference in BiasScore.
        performance_test: The same for the performance.
    """

    before: LikelihoodBias
    after: LikelihoodBias
    before_interval: ConfidenceInterval
    after_interval: ConfidenceInterval
    bias_test: PermutationTest
    performance_test: PermutationTest


def likelihood_scores(
    examples: Sequence[dspy.Example], criterion: Criterion, lm: MeasuringLM, *, reduction: str = "sum"
) -> FloatArray:
    """(n,) LS: ``log P(output | source, task)`` in nats (Ohi et al. 2024, eq 1).

    Args:
        examples: With ``source`` and ``output``.
        criterion: Its task is the d of eq 1.
        lm: Whose likelihood is meant.
        reduction: ``"sum"`` over the output's tokens, or ``"mean"`` as in the paper's code.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction={reduction!r} is unknown: choose one of {REDUCTIONS}.")
    asked = [(likelihood_messages(criterion, e.source), e.output) for e in examples]
    found = name_overlong_items(lm.loglikelihood, asked, examples)
    return np.array([f.total if reduction == "sum" else f.mean for f in found], dtype=np.float64)


def human_scores(examples: Sequence[dspy.Example], criterion: Criterion) -> FloatArray:
    """(n,) the examples' scores on the criterion, as rated; NaN where one is undefined.

    Raises:
        ValueError: An item was not rated on the criterion.
    """
    for example in examples:
        if criterion.name not in (example.get("scores") or {}):
            raise ValueError(
                f"The item {example.get('id')!r} has no score on {criterion.name!r}, only on "
                f"{sorted(example.get('scores') or {})}: name one of those, or add the score (null if undefined)."
            )
    return np.array([float(e["scores"][criterion.name]) for e in examples], dtype=np.float64)


def measure_likelihood_bias(
    judges: PointwiseJudge | Sequence[PointwiseJudge],
    examples: Sequence[dspy.Example],
    *,
    lm: Any = None,
    likelihood_lm: MeasuringLM | None = None,
    reduction: str = "sum",
    normalization: str = "min-max",
    progress: Callable[[int], None] | None = None,
) -> LikelihoodMeasurement:
    """Judge the examples and set the scores beside the outputs' likelihood.

    Args:
        judges: One judge, or one for each of several criteria that share a task.
        examples: With ``source``, ``output`` and ``scores`` (criterion -> human score on any range).
        lm: In place of the judges' own or DSPy's model.
        likelihood_lm: Whose likelihood is meant; by default the first judge's model's.
        reduction: See ``likelihood_scores``.
        normalization: See ``evalbias.measures.unfairness_scores``.
        progress: Called with the number of judgments done.
    """
    judges = [judges] if isinstance(judges, PointwiseJudge) else list(judges)
    if len({j.criterion.name for j in judges}) != len(judges) or not judges:
        raise ValueError(
            f"The judges' criteria are {[j.criterion.name for j in judges]}: give each its own, at least one."
        )
    human = {j.criterion.name: human_scores(examples, j.criterion) for j in judges}
    meant = measuring(likelihood_lm or lm or judges[0].predict.lm or dspy.settings.lm)
    likelihoods = likelihood_scores(examples, judges[0].criterion, meant, reduction=reduction)
    model, coverage = {}, {}
    for judge in judges:
        found = judge.batch(examples, lm=lm, progress=progress)
        model[judge.criterion.name] = np.array([p.score for p in found], dtype=np.float64)
        coverage[judge.criterion.name] = np.array([p.coverage for p in found], dtype=np.float64)
    ids = tuple(str(e.get("id", i)) for i, e in enumerate(examples))
    return LikelihoodMeasurement(ids, likelihoods, model, human, coverage, reduction, normalization)


def compare_likelihood_bias(
    before: LikelihoodMeasurement,
    after: LikelihoodMeasurement,
    *,
    only: Sequence[str] | None = None,
    n_resamples: int = 100_000,
    seed: int = 0,
) -> dict[str, LikelihoodComparison]:
    """Before against after by criterion (and ``total``), with the paper's test.

    Args:
        before: Measured with the first judge.
        after: Measured with the second judge on the same items.
        only: Of the criteria and ``total``, those to compare; all by default.
        n_resamples: Of the permutation tests.
        seed: Of the tests and intervals.

    Raises:
        ValueError: The two were not measured on the same items.
    """
    if before.ids != after.ids or before.human_scores.keys() != after.human_scores.keys():
        raise ValueError("Before and after were measured on different items or criteria: measure both on one valset.")
    if (before.reduction, before.normalization) != (after.reduction, after.normalization):
        raise ValueError("Before and after were measured with different reductions or normalizations: use the same.")
    names = before.result() if only is None else only
    return {name: _compare(name, before, after, n_resamples=n_resamples, seed=seed) for name in names}


def _compare(
    name: str, before: LikelihoodMeasurement, after: LikelihoodMeasurement, *, n_resamples: int, seed: int
) -> LikelihoodComparison:
    likelihoods, a, human = before.arrays(name)
    b = after.arrays(name)[1]
    unfinished = np.isnan(np.stack([likelihoods, a, b, human])).any(axis=0)  # on one side: compared on neither
    a, b = np.where(unfinished, np.nan, a), np.where(unfinished, np.nan, b)
    settings = {"normalization": before.normalization}
    bias, performance = bias_score_statistic(likelihoods, human, **settings), performance_statistic(human)
    return LikelihoodComparison(
        before=likelihood_bias(likelihoods, a, human, **settings),
        after=likelihood_bias(likelihoods, b, human, **settings),
        before_interval=_interval(likelihoods, a, human, seed=seed, **settings),
        after_interval=_interval(likelihoods, b, human, seed=seed, **settings),
        bias_test=paired_permutation_test(bias, a, b, n_resamples=n_resamples, seed=seed),
        performance_test=paired_permutation_test(performance, a, b, n_resamples=n_resamples, seed=seed),
    )


def bias_interval(found: LikelihoodMeasurement, criterion: str, *, seed: int) -> ConfidenceInterval:
    """95 % bootstrap interval of a criterion's (or the total's) BiasScore: items are resampled, US computed anew."""
    return _interval(*found.arrays(criterion), normalization=found.normalization, seed=seed)


def _interval(
    likelihoods: FloatArray, model: FloatArray, human: FloatArray, *, normalization: str, seed: int
) -> ConfidenceInterval:
    def statistic(ls: FloatArray, m: FloatArray, h: FloatArray) -> FloatArray:
        rows = [unfairness_scores(x, y, normalization=normalization) for x, y in zip(m, h, strict=True)]
        return spearman_rows(ls, np.stack(rows))

    return bootstrap_ci(statistic, likelihoods, model, human, n_resamples=2_000, seed=seed)


def combine(found: Sequence[LikelihoodMeasurement]) -> LikelihoodMeasurement:
    """Measurements of several criteria on the same items as one, from which ``total`` follows.

    Raises:
        ValueError: They are of different items or likelihoods, or measured differently.
    """
    first = found[0]
    for other in found[1:]:
        names = f"{list(other.model_scores)} and {list(first.model_scores)}"
        if other.ids != first.ids or not np.array_equal(other.likelihoods, first.likelihoods, equal_nan=True):
            raise ValueError(f"{names} were measured on different items: a total needs the same ones.")
        if (other.reduction, other.normalization) != (first.reduction, first.normalization):
            raise ValueError(f"{names} were measured with different reductions or normalizations: use the same.")
    return LikelihoodMeasurement(
        first.ids,
        first.likelihoods,
        {name: scores for f in found for name, scores in f.model_scores.items()},
        {name: scores for f in found for name, scores in f.human_scores.items()},
        {name: mass for f in found for name, mass in f.coverage.items()},
        first.reduction,
        first.normalization,
    )
