"""An effect at equal quality as a statistic of one judge's scores, with the interval and the test that belong to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray, common_index, numbers
from evalbias.measures.equal_quality import SCORE_SD, FeatureEffect, effect_at_equal_quality, effect_change
from evalbias.measures.resample import DRAWS, Draws, Interval


class EffectStatistic:
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EffectStatistic) or self._options != other._options:
            return False
        if [*self._columns] != [*other._columns]:
            return False
        pairs = [(self._ratings, other._ratings), *zip(self._columns.values(), other._columns.values(), strict=True)]
        return all(np.array_equal(*one, equal_nan=True) for one in pairs)

    __hash__ = None  # type: ignore[assignment]

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

    def __call__(
        self,
        scores: ArrayLike,
        *,
        before: ArrayLike | None = None,
        clusters: Sequence[object] | None = None,
        draws: Draws = DRAWS,
    ) -> Interval:
        """Return the interval of ``effect_at_equal_quality``, or with ``before`` that of ``effect_change``."""
        if draws.confidence != 0.95:
            raise ValueError(f"confidence={draws.confidence}: an effect at equal quality has a 95 % interval only.")
        if before is None:
            found = self.measure(scores, clusters=clusters)
        else:
            common_index(self, before, scores, clusters)
            feature, covariates = self._arguments()
            options: dict[str, Any] = {**self._options, "clusters": clusters, "covariates": covariates}
            found = effect_change(feature, before, scores, self._ratings, **options)
        p_value = math.nan if math.isnan(found.effect) else found.p_value  # bounds have no estimate to be marked
        return Interval(
            value=found.effect,
            low=found.low,
            high=found.high,
            p_value=p_value,
            n=found.n,
            undefined=found.undefined,
            units=found.clusters,
            unit=SCORE_SD,
            reason=found.reason,
        )
