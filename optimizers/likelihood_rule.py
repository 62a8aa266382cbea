"""When a pointwise judge has less likelihood bias than the given one, at no significant loss of performance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy

from evalbias.evaluation.estimates import N_RESAMPLES, Estimate, Sample, clusters_of, estimate_value, measured
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.measures import (
    FeatureEffect,
    bias_score_statistic,
    bootstrap_ci,
    likelihood_effect,
    likelihood_effect_change,
    paired_permutation_test,
    performance_statistic,
)
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined
from evalbias.measures.ranks import pearson_rows

EFFECT, BIAS_SCORE_Z, PERFORMANCE = "likelihood_effect", "bias_score_z", "performance"
LOSS = 0.05
"""Level of the one-sided tests that the performance falls, and that it does not fall by more than the margin."""
MARGIN = 0.1
"""Fall in performance (Spearman's rho) that the held-back items must rule out."""


class Objective(Protocol):
    """A number for the likelihood bias of a judge, 0 for none.

    Attributes:
        name: Key of its estimate.
        label: Its name in words.
        because: Why it is the objective, as the end of a sentence.
    """

    name: str
    label: str
    because: str

    def value(self, judged: Judged) -> float:
        """Measure it."""
        ...

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it, with its interval."""
        ...

    def slope(self, judged: Judged) -> float:
        """Return the change in the score for one standard deviation of LS that is bias, in standard deviations."""
        ...

    def p_smaller(self, judged: Judged, given: Judged) -> float:
        """Return the one-sided p that its magnitude is no smaller than the given judge's; NaN if undefined."""
        ...


class Effect:
    """The likelihood effect: the slope of the score on LS at equal quality, instrumented by the single ratings."""

    name, label = EFFECT, "likelihood effect"
    because = "the items have several ratings"

    def value(self, judged: Judged) -> float:
        """Measure it; see ``Objective``."""
        return self._found(judged).effect

    def slope(self, judged: Judged) -> float:
        """Return the effect itself; see ``Objective``."""
        return self.value(judged)

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it; see ``Objective``."""
        found = self._found(judged)
        return Estimate(
            self.name, self.label, found.effect, found.low, found.high, 0.0, n=found.n, undefined=found.undefined
        )

    def p_smaller(self, judged: Judged, given: Judged) -> float:
        """Test it; see ``Objective``.

        The magnitude is smaller if difference and sum of the two effects have opposite signs; both are tested, and the
        larger p counts.
        """
        if np.array_equal(judged.answers, given.answers, equal_nan=True):
            return 1.0
        ls, before, ratings = self._columns(given, given.answers)
        sign = np.sign(self.value(given))
        p_values = []
        for first, wanted in ((before, -sign), (-before, sign)):  # a negated judge has the negated effect
            change = likelihood_effect_change(ls, first, judged.answers, ratings, clusters=given.inputs or None)
            p_values.append(change.p_value / 2 if change.effect * wanted > 0 else 1 - change.p_value / 2)
        return float(max(p_values)) if not np.isnan(p_values).any() else float("nan")

    def _found(self, judged: Judged) -> FeatureEffect:
        return likelihood_effect(*self._columns(judged, judged.answers), clusters=judged.inputs or None)

    @staticmethod
    def _columns(judged: Judged, scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return judged.covariate(LIKELIHOODS), scores, judged.covariate(RATINGS)


class StandardizedBiasScore:
    """BiasScore of z-scores, for items with a single rating: it confounds noise in the ratings with bias."""

    name, label = BIAS_SCORE_Z, "BiasScore (z)"
    because = "the items have one rating each, which cannot tell the likelihood effect"

    def __init__(self, *, seed: int) -> None:
        self._seed = seed

    def value(self, judged: Judged) -> float:
        """Measure it; see ``Objective``."""
        return estimate_value(self._sample(judged))

    def slope(self, judged: Judged) -> float:
        """Return by how much the score is correlated with LS more than the human score is; see ``Objective``."""
        columns = [judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)]
        ls, model, human = (column[defined(*columns)][None] for column in columns)
        return float((pearson_rows(model, ls) - pearson_rows(human, ls))[0])

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it; see ``Objective``."""
        return _estimates(judged, {self.name: self._sample(judged)}, self._seed)[self.name]

    def p_smaller(self, judged: Judged, given: Judged) -> float:
        """Test it by the bootstrap of the difference in magnitude, over inputs; see ``Objective``.

        The magnitude of a resample is too large on average where BiasScore is near 0, so the test is cautious.
        """
        statistic = self._sample(given).statistic

        def change(before: FloatArray, after: FloatArray, *references: FloatArray) -> FloatArray:
            return np.asarray(np.abs(statistic.rows(after, *references)) - np.abs(statistic.rows(before, *references)))

        arrays = (given.answers, judged.answers, *statistic.references)
        found = bootstrap_ci(
            change, *arrays, clusters=clusters_of(given), method="percentile", n_resamples=N_RESAMPLES, seed=self._seed
        )
        error = _error(found.low, found.high)
        if error == 0:  # the two judges agree in everything
            return 1.0
        return float(scipy.stats.norm.cdf(found.estimate / error))

    def _sample(self, judged: Judged) -> Sample:
        human = judged.covariate(HUMAN_SCORES)
        statistic = bias_score_statistic(judged.covariate(LIKELIHOODS), human, normalization="z-score")
        return Sample(judged.answers, statistic, self.label, null=0.0)


def objective_of(judged: Judged, *, seed: int) -> Objective:
    """Return the likelihood effect where some items have several ratings, else the standardized BiasScore."""
    ratings = judged.covariates.get(RATINGS)
    several = ratings is not None and (np.isfinite(ratings).sum(axis=1) > 1).any()
    return Effect() if several else StandardizedBiasScore(seed=seed)


class LikelihoodRule:
    """A judge is better if its likelihood bias is significantly smaller, and its performance is not lower.

    Not lower means two things: it is not significantly lower, and the items rule out that it is lower by more than
    ``MARGIN`` (non-inferiority), because a few items show no significant loss of anything. Of several such judges, the
    one that agrees best with people is taken among those whose bias is within one standard error of the smallest
    (``Rule``): below that, a smaller bias is mostly luck.

    Args:
        judge: Function from a judge to its answers on the held-back items.
        n_resamples: Swaps of the permutation test of the performance.
        seed: Seed for test and intervals.
    """

    def __init__(self, judge: Callable[[Any], Judged], *, n_resamples: int, seed: int) -> None:
        self._judge, self._n_resamples, self._seed = judge, n_resamples, seed
        self.aim = "less likelihood bias at no significant loss of performance"
        self.objective: Objective | None = None

    def answers(self, program: Any) -> Judged:
        """Judge the held-back items."""
        judged = self._judge(program)
        self.objective = self.objective or objective_of(judged, seed=self._seed)
        return judged

    def undefined(self, answers: Judged) -> int:
        """Return the number of items without a score."""
        return int(np.isnan(answers.answers).sum())

    def estimates(self, answers: Judged) -> dict[str, Estimate]:
        """Return the likelihood bias, the published BiasScore, and the performance."""
        objective = self._of(answers)
        samples = LikelihoodBias().samples(answers)
        others = _estimates(answers, {name: samples[name] for name in ("bias_score", PERFORMANCE)}, self._seed)
        return {objective.name: objective.estimate(answers), **others}

    def p_value(self, answers: Judged, given: Judged) -> float:
        """Return the one-sided p that the magnitude of the bias is no smaller."""
        return self._of(given).p_smaller(answers, given)

    def loss(self, answers: Judged, given: Judged) -> str:
        """Say whether the performance falls, or may fall by more than the margin."""
        test = paired_permutation_test(
            performance_statistic(given.covariate(HUMAN_SCORES)),
            answers.answers,
            given.answers,
            clusters=clusters_of(given),
            n_resamples=self._n_resamples,
            seed=self._seed,
        )
        if test.difference < 0 and test.p_value / 2 < LOSS:
            return f"loses performance ({test.statistic_b:.2f} -> {test.statistic_a:.2f}, p = {test.p_value / 2:.3f})"
        lowest = self._lowest_change(answers, given)
        if not lowest > -MARGIN:  # NaN is not above
            return (
                f"may lose more than {MARGIN:g} of performance ({test.statistic_b:.2f} -> {test.statistic_a:.2f}, "
                f"change at worst {lowest:+.2f})"
            )
        return ""

    def _lowest_change(self, answers: Judged, given: Judged) -> float:
        """Return the lower end of the one-sided 95 % interval of the change in performance."""
        statistic = performance_statistic(given.covariate(HUMAN_SCORES))

        def change(before: FloatArray, after: FloatArray, *references: FloatArray) -> FloatArray:
            return np.asarray(statistic.rows(after, *references) - statistic.rows(before, *references))

        arrays = (given.answers, answers.answers, *statistic.references)
        found = bootstrap_ci(
            change,
            *arrays,
            clusters=clusters_of(given),
            method="percentile",
            n_resamples=N_RESAMPLES,
            confidence=1 - 2 * LOSS,
            seed=self._seed,
        )
        return found.low

    def error(self, answers: Judged) -> float:
        """Return the standard error of the bias."""
        estimate = self._of(answers).estimate(answers)
        return _error(estimate.low, estimate.high)

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return the magnitude of the bias, and minus the performance."""
        performance = estimate_value(LikelihoodBias().samples(answers)[PERFORMANCE])
        return abs(self._of(answers).value(answers)), -performance

    def _of(self, judged: Judged) -> Objective:
        return self.objective or objective_of(judged, seed=self._seed)


def _error(low: float, high: float) -> float:
    """Return the standard error that a 95 % interval is about as wide as."""
    return float((high - low) / (2 * scipy.stats.norm.ppf(0.975)))


def _estimates(judged: Judged, samples: dict[str, Sample], seed: int) -> dict[str, Estimate]:
    fields: dict[str, Any] = {
        "bias": "likelihood",
        "criterion": judged.criterion,
        "ids": judged.ids,
        "headlines": (),
        "columns": {},
    }
    return dict(measured(samples, seed=seed, clusters=clusters_of(judged), **fields).estimates)
