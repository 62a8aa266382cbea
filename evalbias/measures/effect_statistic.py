"""The likelihood effect as a statistic of one judge's scores, with the interval and the test that belong to it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.effect import LikelihoodEffect, likelihood_effect, likelihood_effect_change
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.statistic import Statistic


class EffectStatistic(Statistic):
    """Likelihood effect of the scores; nothing is resampled, and differences are tested by their own interval.

    Args:
        likelihoods: (n,) LS.
        ratings: (n, r) single ratings, NaN where a rater gave none.
        reliability: Reliability of a single rating; see ``likelihood_effect``.
    """

    def __init__(self, likelihoods: FloatArray, ratings: FloatArray, *, reliability: float | None = None) -> None:
        self._likelihoods, self._ratings, self._reliability = likelihoods, ratings, reliability

    @property
    def usable(self) -> BoolArray:
        """(n,) whether an item has a likelihood and enough ratings: two, or one where no item has two."""
        counts = np.where(np.isnan(self._likelihoods), 0, (~np.isnan(self._ratings)).sum(axis=1))
        return np.asarray(counts >= (2 if (counts > 1).any() else 1))

    def keep(self, kept: BoolArray) -> Statistic:
        """Return the same statistic of a part of the items; see ``Statistic``."""
        part = copy.copy(self)
        part._likelihoods, part._ratings = self._likelihoods[kept], self._ratings[kept]
        return part

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the effect of every row; see ``Statistic``."""
        return np.array([self.measure(row).effect for row in scores])

    def measure(self, scores: ArrayLike, *, clusters: Sequence[object] | None = None) -> LikelihoodEffect:
        """Compute the effect of one judge's scores (n,) with all that belongs to it."""
        return likelihood_effect(
            self._likelihoods, scores, self._ratings, clusters=clusters, reliability=self._reliability
        )

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the interval of ``likelihood_effect``; see ``Statistic``."""
        return _interval(self.measure(scores, clusters=clusters), confidence)

    def difference(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the paired interval and p of ``likelihood_effect_change``; see ``Statistic``."""
        change = likelihood_effect_change(
            self._likelihoods, a, b, self._ratings, clusters=clusters, reliability=self._reliability
        )
        return _interval(change, confidence)


def _interval(found: LikelihoodEffect, confidence: float) -> ConfidenceInterval:
    if confidence != 0.95:
        raise ValueError(f"confidence={confidence}: the likelihood effect has a 95 % interval only.")
    p_value = found.p_value if found.effect == found.effect else np.nan  # bounds have no estimate that could be marked
    return ConfidenceInterval(found.low, found.high, found.effect, 0, 0, found.clusters, p_value)
