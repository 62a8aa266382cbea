"""Numbers for the likelihood bias of a pointwise judge that a mitigation brings to 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from evalbias.evaluation.estimates import Estimate, Sample, clusters_of, estimate_value, estimates_of
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.measures import FeatureEffect, bias_score_statistic, likelihood_effect
from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined
from evalbias.measures.effect import TOO_WEAK
from evalbias.measures.equal_quality import likelihood_effects
from evalbias.measures.ranks import pearson_rows
from evalbias.measures.resampling import cluster_codes, drawn

EFFECT, BIAS_SCORE_Z = "likelihood_effect", "bias_score_z"


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

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure s judges on the items that all of them scored, and draw how far the numbers may err together.

        Returns:
            (s,) numbers, NaN where undefined; (draws, s) joint draws of their errors, at most so many.
        """
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
            name=self.name,
            label=self.label,
            value=found.effect,
            low=found.low,
            high=found.high,
            null=0.0,
            n=found.n,
            undefined=found.undefined,
            reason=found.reason or TOO_WEAK * found.weak,
        )

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure several judges; see ``Objective``.

        The errors have the t distribution of the jackknife over inputs, as the interval of one effect. Where the
        ratings are too few or too unreliable for that (see ``FeatureEffect.weak``), the numbers are undefined.
        """
        first = self._found(judges[0])
        if first.weak or first.reason:
            return np.full(len(judges), np.nan), np.full((draws, len(judges)), np.nan)
        ls, _, ratings = self._columns(judges[0])
        scores = np.column_stack([one.answers for one in judges])
        effects, influence = likelihood_effects(ls, scores, ratings, clusters=judges[0].inputs or None)
        rng, inputs = np.random.default_rng(seed), len(influence)
        normal = rng.standard_normal((draws, inputs)) @ influence
        return effects, normal / np.sqrt(rng.chisquare(inputs - 1, size=(draws, 1)) / (inputs - 1))

    def _found(self, judged: Judged) -> FeatureEffect:
        return likelihood_effect(*self._columns(judged), clusters=judged.inputs or None)

    @staticmethod
    def _columns(judged: Judged) -> tuple[FloatArray, FloatArray, FloatArray]:
        return judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(RATINGS)


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
        samples = {self.name: self._sample(judged)}
        return estimates_of(samples, seed=self._seed, clusters=clusters_of(judged))[self.name]

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure several judges; see ``Objective``. The errors are those of the bootstrap over inputs."""
        statistic = self._sample(judges[0]).statistic
        scores = [one.answers for one in judges]
        kept = defined(*scores, *statistic.references)
        codes = cluster_codes(clusters_of(judges[0]), kept)
        inputs = len(set(codes.tolist()))
        if inputs < 2:
            return np.full(len(judges), np.nan), np.full((draws, len(judges)), np.nan)
        part, rng = statistic.keep(kept), np.random.default_rng(seed)
        values = np.array([part(x[kept]) for x in scores])
        counts = list(drawn(codes, draws, rng))
        resampled = np.column_stack([np.concatenate([part.resampled(x[kept], c) for c in counts]) for x in scores])
        errors = (resampled - values)[~np.isnan(resampled).any(axis=1)]
        widened = np.sqrt(inputs / rng.chisquare(inputs - 1, size=(len(errors), 1)))  # to the t of ``quantiles``
        return values, errors * widened

    def _sample(self, judged: Judged) -> Sample:
        human = judged.covariate(HUMAN_SCORES)
        statistic = bias_score_statistic(judged.covariate(LIKELIHOODS), human, normalization="z-score")
        return Sample(judged.answers, statistic, self.label, null=0.0)


def objective_of(judged: Judged, *, seed: int) -> Objective:
    """Return the likelihood effect where some items have several ratings, else the standardized BiasScore."""
    ratings = judged.covariates.get(RATINGS)
    several = ratings is not None and (np.isfinite(ratings).sum(axis=1) > 1).any()
    return Effect() if several else StandardizedBiasScore(seed=seed)
