"""Likelihood bias: a judge overrates what is likely under a model (Ohi et al., Findings of ACL 2024)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evalbias.evaluation.estimates import Sample, clusters_of
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.evaluation.quality import (
    effect_sample,
    effect_statistic,
    first_position,
    is_rated_by_people,
    judge_scores,
)
from evalbias.measures.arrays import FloatArray
from evalbias.measures.decision_statistics import OddsStatistic
from evalbias.measures.effect import FeatureEffect
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.rank_statistic import bias_score_statistic, performance_statistic
from evalbias.measures.ranks import spearman_rows
from evalbias.measures.statistic import Statistic

EFFECT = "likelihood_effect"


@dataclass(frozen=True)
class LikelihoodBias:
    """Effect of likelihood on a judge at equal quality, and the paper's BiasScore.

    Estimates of a judge that scores: ``likelihood_effect`` (change in the score, in standard deviations, for an output
    that is one standard deviation likelier, at equal quality; NaN with one rating of unknown reliability),
    ``bias_score`` (eq 5, with the published normalization, which depends on the extremes and thereby on n),
    ``bias_score_z`` (the same of z-scores, which does not) and ``performance``. Of one that compares:
    ``likelihood_effect`` (the same for the log-odds of a candidate's win; only where people rated or compared the
    candidates), ``likelihood_correlation`` (Spearman's rho of the difference in LS and the win probability),
    ``odds_per_nat`` (factor on the odds of winning for each nat by which a candidate is likelier, position held fixed)
    and ``odds_of_first`` (odds of the first position between equally likely candidates).

    Attributes:
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    reliability: float | None = None
    name: ClassVar[str] = "likelihood"
    headlines: ClassVar[tuple[str, ...]] = (EFFECT, "bias_score", "performance", "likelihood_correlation")
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        needed = {LIKELIHOODS} if judged.pairwise else {LIKELIHOODS, HUMAN_SCORES}
        return needed <= judged.covariates.keys()

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        likelihoods = judged.covariate(LIKELIHOODS)
        samples: dict[str, Sample] = {}
        if is_rated_by_people(judged):
            samples[EFFECT] = effect_sample(judged, self.statistic(judged), "effect of likelihood")
        if judged.pairwise:
            return samples | _pairwise_samples(judged, likelihoods)
        human = judged.covariate(HUMAN_SCORES)
        scores = np.where(np.isnan(likelihoods + human), np.nan, judged.answers)  # these estimates on the same items
        published = bias_score_statistic(likelihoods, human)
        standardized = bias_score_statistic(likelihoods, human, normalization="z-score")
        return {
            **samples,
            "bias_score": Sample(scores, published, "BiasScore", null=0.0, confounded=True),
            "bias_score_z": Sample(scores, standardized, "BiasScore (z)", null=0.0, confounded=True),
            "performance": Sample(scores, performance_statistic(human), "performance"),
        }

    def effect(self, judged: Judged) -> FeatureEffect:
        """Measure the likelihood effect with its slopes, its F and why it may be undefined.

        Raises:
            ValueError: A covariate is missing, or a reliability is given for items with several ratings.
        """
        return self.statistic(judged).measure(judge_scores(judged), clusters=clusters_of(judged))

    def statistic(self, judged: Judged) -> EffectStatistic:
        """Return the likelihood effect as a statistic of ``judge_scores``."""
        features = {"likelihood": judged.covariate(LIKELIHOODS)}
        return effect_statistic(judged, "likelihood", features, reliability=self.reliability)


def _pairwise_samples(judged: Judged, likelihoods: FloatArray) -> dict[str, Sample]:
    difference = likelihoods[:, 0] - likelihoods[:, 1]
    wins = first_position(judged)  # (n, r)
    odds = OddsStatistic(difference)
    return {
        "likelihood_correlation": Sample(
            wins, _Orders(_Correlation(difference)), "likelihood correlation", null=0.0, confounded=True
        ),
        "odds_per_nat": Sample(
            wins,
            _Orders(odds),
            "odds per nat",
            null=1.0,
            signed=False,
            tested=False,
            confounded=True,
        ),
        "odds_of_first": Sample(
            wins,
            _Orders(OddsStatistic(difference, at_zero=True, shared=odds)),
            "odds of first",
            null=1.0,
            signed=False,
            tested=False,
        ),
    }


class _Correlation(Statistic):
    """Spearman's rho of values with a difference."""

    def __init__(self, difference: FloatArray) -> None:
        self.references = (difference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        (difference,) = references
        return spearman_rows(np.broadcast_to(difference, scores.shape), scores)


class _Orders(Statistic):
    """A statistic of win probabilities (n, r) over r orders; the second order swaps the sign of the difference."""

    def __init__(self, inner: Statistic) -> None:
        self._inner = inner
        self.references = inner.references

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        (difference,) = references
        k, _, orders = scores.shape
        signed = np.stack([difference, -difference][:orders], axis=2)
        return self._inner.rows(scores.reshape(k, -1), signed.reshape(len(signed), -1))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        inner, orders = copy.copy(self._inner), scores.shape[1]
        (difference,) = self.references
        inner.references = (np.concatenate([difference, -difference][:orders]),)
        return inner.resampled(scores.T.ravel(), np.tile(counts, orders))
