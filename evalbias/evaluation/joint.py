"""Joint model of likelihood, length, the own system and position: each bias with the others held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import LENGTHS, LIKELIHOODS, Judged
from evalbias.evaluation.quality import (
    effect_sample,
    effect_statistic,
    is_rated_by_people,
    log_lengths,
    position_scores,
)
from evalbias.evaluation.self_preference import OWN, written_by
from evalbias.measures.arrays import FloatArray
from evalbias.measures.statistic import MeanStatistic

IN_ONE_MODEL = {"likelihood": "likelihood", "verbosity": "length", "self_preference": "own_system"}
"""Bias -> estimate of the joint model that has the others held fixed."""
LABELS = {"likelihood": "effect of likelihood", "length": "effect of length", OWN: "own system"}


@dataclass(frozen=True)
class JointEffects:
    """Effects of likelihood, length and the judge's own system in one model, each with the others and quality fixed.

    Likely text is often short, and a system's own outputs are likely under it, so that one bias looks like another
    (Wataoka et al. 2024; Dubois et al. 2026). Estimates, of at least two features that are known: ``likelihood``,
    ``length`` (for one standard deviation each) and ``own_system`` (for an output of the judge's own system instead of
    another one), in standard deviations of the score; for pairs judged in both orders ``position`` too, the mean
    advantage of the first position in log-odds, or in shares of verdicts. The features of a pair change sign with its
    order, so ``position`` is the same with and without them.

    It has no headline: it explains what the single biases find, and is not one more of them.

    Attributes:
        own: Name of the judge's own system among the writers; None leaves it out of the model.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    own: str | None = None
    reliability: float | None = None
    name: ClassVar[str] = "joint"
    headlines: ClassVar[tuple[str, ...]] = ()
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return is_rated_by_people(judged) and len(self._features(judged)) > 1

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        features = self._features(judged)
        samples = {}
        for name in features:
            statistic = effect_statistic(judged, name, features, standardized=name != OWN, reliability=self.reliability)
            samples["own_system" if name == OWN else name] = effect_sample(judged, statistic, LABELS[name])
        if judged.pairwise and judged.answers.shape[1] == 2:
            samples["position"] = Sample(position_scores(judged), MeanStatistic(), "first position", null=0.0)
        return samples

    def _features(self, judged: Judged) -> dict[str, FloatArray]:
        features = {}
        if LIKELIHOODS in judged.covariates:
            features["likelihood"] = judged.covariate(LIKELIHOODS)
        if LENGTHS in judged.covariates:
            features["length"] = log_lengths(judged.covariate(LENGTHS))
        if self.own is not None and self.own in np.asarray(judged.writers):
            features[OWN] = written_by(judged, self.own)
        return features
