"""An effect at equal quality as a statistic of one judge's scores, with the interval and the test that belong to it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, common_index, numbers
from evalbias.measures.equal_quality import FeatureEffect, effect_at_equal_quality, effect_change
from evalbias.measures.resample import SCORE_SD, ConfidenceInterval, Statistic


class EffectStatistic(Statistic):
    """Effect of a feature on the scores; nothing is resampled, and differences are tested by their own interval.

    Args:
        feature: (n,) numbers; see ``effect_at_equal_quality``.
        ratings: (n, r) single ratings, NaN where a rater gave none.
        name: Name of the feature in messages.
        covariates: Name -> (n,) other features that are held fixed.
        standardized: Whether the effect is that of one standard deviation of the feature.
        reliability: Reliability of a single rating.
        differences: Whether feature, scores and ratings are differences between the candidates of pairs.
        mirrored: Whether each pair counts both ways.
    """

    unit: ClassVar[str] = SCORE_SD

    def __init__(
        self,
        feature: FloatArray,
        ratings: FloatArray,
        *,
        name: str = "likelihood",
        covariates: Mapping[str, FloatArray] | None = None,
        standardized: bool = True,
        reliability: float | None = None,
        differences: bool = False,
        mirrored: bool = False,
    ) -> None:
        self.index = common_index(feature, ratings, *(covariates or {}).values())
        columns = {name: feature, **(covariates or {})}
        self._columns = {label: numbers(column, label) for label, column in columns.items()}
        self._ratings = numbers(ratings, "ratings")
        self._options: dict[str, Any] = {"name": name, "standardized": standardized, "reliability": reliability}
        self._options["mirrored"] = mirrored
        self._differences = differences

    @property
    def feature(self) -> FloatArray:
        """(n,) the feature whose effect is meant."""
        return self._columns[self._options["name"]]

    @property
    def ratings(self) -> FloatArray:
        """(n, r) single ratings."""
        return self._ratings

    def both_ways(self, values: FloatArray) -> FloatArray:
        """Return (n,) features, ratings or scores as they are fitted: (2n,) where each pair counts both ways."""
        return np.concatenate([values, -values]) if self._options["mirrored"] else values

    @property
    def usable(self) -> BoolArray:
        """(n,) whether an item has all features and enough ratings: two, or one where no item has two."""
        undefined = np.isnan(np.stack(list(self._columns.values()))).any(axis=0)
        counts = np.where(undefined, 0, (~np.isnan(self._ratings)).sum(axis=1))
        return np.asarray(counts >= (2 if (counts > 1).any() else 1))

    def keep(self, kept: BoolArray) -> Statistic:
        """Return the same statistic of a part of the items; see ``Statistic``."""
        part = copy.copy(self)
        part._columns = {name: column[kept] for name, column in self._columns.items()}
        part._ratings = self._ratings[kept]
        return part

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the effect of every row; see ``Statistic``."""
        return np.array([self.measure(row).effect for row in scores])

    def measure(self, scores: ArrayLike, *, clusters: Sequence[object] | None = None) -> FeatureEffect:
        """Compute the effect of one judge's scores (n,) with all that belongs to it."""
        common_index(self, scores, clusters)
        feature, covariates = self._arguments()
        options: dict[str, Any] = {**self._options, "differences": self._differences}
        return effect_at_equal_quality(
            feature, scores, self._ratings, clusters=clusters, covariates=covariates, **options
        )

    def _arguments(self) -> tuple[FloatArray, dict[str, Sequence[object]]]:
        feature, *others = self._columns.values()
        return feature, dict(zip(list(self._columns)[1:], (list(column) for column in others), strict=True))

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the interval of ``effect_at_equal_quality``; see ``Statistic``."""
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
        """Return the paired interval and p of ``effect_change``; see ``Statistic``."""
        common_index(self, a, b, clusters)
        feature, covariates = self._arguments()
        change = effect_change(feature, a, b, self._ratings, clusters=clusters, covariates=covariates, **self._options)
        return _interval(change, confidence)


def _interval(found: FeatureEffect, confidence: float) -> ConfidenceInterval:
    if confidence != 0.95:
        raise ValueError(f"confidence={confidence}: an effect at equal quality has a 95 % interval only.")
    p_value = np.nan if math.isnan(found.effect) else found.p_value  # bounds have no estimate that could be marked
    return ConfidenceInterval(found.low, found.high, found.effect, 0, 0, found.clusters, p_value, found.reason)
