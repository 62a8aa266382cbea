"""Statistics of one system's scores that tests and intervals compute for many resamples at once.

A statistic belongs to n items. Besides a system's scores it may need arrays about the same items (``references``), such
as the human scores that the scores are correlated with.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import SLACK, BoolArray, FloatArray, IntArray, settled
from evalbias.measures.bias_and_skewness import skewness_rows, symmetry_p_value, weighted_skewness
from evalbias.measures.checks import common_index, numbers
from evalbias.measures.intervals import ConfidenceInterval, counted_interval, share_interval, stretched
from evalbias.measures.resampling import aligned, cluster_codes, defined_items, picked

SHARE, SCORE_SD = "share", "standard deviations of the score"
"""Units: a number in [0, 1], and the judge's score divided by its standard deviation over the items."""

ALIKE = "all items have the same value, which does not tell how much others would differ"

Swapping = Callable[[BoolArray], tuple[FloatArray, FloatArray]]


class Statistic:
    """A number of one system's scores.

    A subclass defines ``rows``; the rest follows from it, unless a subclass has a faster ``swapping``.

    Attributes:
        references: Arrays (n,) about the items that the statistic needs besides the scores.
        index: Pandas index of the references; scores with another one are refused.
        unit: Unit of the value: ``SHARE``, ``SCORE_SD``, or empty where it has none of these.
        limits: Least and greatest value, where an interval ends.
    """

    references: tuple[FloatArray, ...] = ()
    index: Any = None
    unit: ClassVar[str] = ""
    limits: tuple[float, float] = (-np.inf, np.inf)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the statistic of k systems or resamples.

        Args:
            scores: (k, n), or (k, n, d) for a statistic of d numbers an item.
            *references: (k, n) or (1, n) each.

        Returns:
            (k,) values; NaN where undefined.
        """
        raise NotImplementedError

    def __call__(self, scores: ArrayLike) -> float:
        """Compute the statistic of one system's scores, (n,) or (n, d)."""
        common_index(self, scores)
        return self.rows(numbers(scores, "scores")[None], *self._single()).item()

    def matches(self, other: Statistic) -> bool:
        """Return whether another statistic has the same kind, settings and references."""
        return type(self) is type(other) and all(_same(value, vars(other).get(n)) for n, value in vars(self).items())

    def keep(self, kept: BoolArray) -> Statistic:
        """Return the same statistic of a part of the items, given as a mask (n,)."""
        part = copy.copy(self)
        part.references = tuple(reference[kept] for reference in self.references)
        return part

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """Return the function from swaps (k, n) to the statistics (k,) of a and of b after the items were exchanged."""

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            mask = swap.reshape(*swap.shape, *(1,) * (a.ndim - 1))
            rows = np.where(mask, b, a), np.where(mask, a, b)
            return self.rows(rows[0], *self._single()), self.rows(rows[1], *self._single())

        return swapped

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a confidence interval of the statistic; a subclass for which the bootstrap is wrong has its own.

        Args:
            scores: (n,) or (n, d) of one system; items with a NaN are left out.
            clusters: (n,) cluster (document) of each item. By default every item is its own.
            n_resamples: Bootstrap resamples.
            confidence: In (0, 1).
            seed: Seed for the resamples.

        Returns:
            The interval, within ``limits``; its ends are NaN for fewer than ``FEWEST_UNITS`` clusters, and where all
            resamples are alike.
        """
        (own,), codes, part = self._defined([scores], clusters)
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        found = counted_interval(lambda counts: part.resampled(own, counts), codes, part._of(own), **options)
        return _unless_alike(_within(found, *self.limits))

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
        """Compute a confidence interval of the statistic of b minus that of a, on the items that both define.

        It is the ``"normal"`` one of ``bootstrap_ci``, unless a subclass has its own.

        Args:
            a: (n,) or (n, d) of the first system.
            b: The same of the second.
            clusters: See ``interval``.
            n_resamples: See ``interval``.
            confidence: See ``interval``.
            seed: See ``interval``.
        """
        (first, second), codes, part = self._defined([a, b], clusters)

        def values(counts: FloatArray) -> FloatArray:
            return part.resampled(second, counts) - part.resampled(first, counts)

        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        found = counted_interval(values, codes, part._of(second) - part._of(first), method="normal", **options)
        widest = self.limits[1] - self.limits[0]
        return _within(found, -widest, widest)

    def _defined(
        self, systems: list[ArrayLike], clusters: Sequence[object] | None
    ) -> tuple[list[FloatArray], IntArray, Statistic]:
        """Return systems, clusters and the statistic of the items that are defined everywhere."""
        columns = aligned(*systems, *self.references, beside=[self, clusters])
        kept = defined_items(*columns)
        own = [settled(column[kept].T).T for column in columns[: len(systems)]]
        return own, cluster_codes(clusters, kept), self.keep(kept)

    def _of(self, scores: FloatArray) -> float:
        return self(scores) if len(scores) else float("nan")

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """Compute the statistic of k resamples of one system's scores; a subclass may have a faster way.

        Args:
            scores: (n,) or (n, d).
            counts: (k, n) how often each resample holds each item.

        Returns:
            (k,) values; NaN where undefined.
        """
        values = np.empty(len(counts))
        for rows, items in picked(counts):
            values[rows] = self.rows(scores[items], *(reference[items] for reference in self.references))
        return values

    def _single(self) -> tuple[FloatArray, ...]:
        return tuple(reference[None] for reference in self.references)


def _within(found: ConfidenceInterval, low: float, high: float) -> ConfidenceInterval:
    """Return an interval within the limits of its statistic."""
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def _unless_alike(found: ConfidenceInterval) -> ConfidenceInterval:
    """Return an interval with undefined ends where it has no width: equal items do not tell how much others differ."""
    if found.high - found.low > SLACK * max(abs(found.low), abs(found.high)) or np.isnan(found.low):
        return found
    return replace(found, low=float("nan"), high=float("nan"), reason=ALIKE)


class MeanStatistic(Statistic):
    """Mean of the scores."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the means; see ``Statistic``."""
        return np.asarray(scores.mean(axis=1))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return np.asarray(counts @ scores / counts.sum(axis=1))


class BoundedStatistic(Statistic):
    """A statistic in [0, 1] of numbers in [0, 1], from whose own interval that of a difference follows."""

    unit: ClassVar[str] = SHARE

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
        """See ``Statistic``: the interval of the statistic of (1 + b - a) / 2, brought to the scale of b - a."""
        first, second = aligned(a, b, beside=[self, clusters])
        found = self.interval((1 + second - first) / 2, clusters=clusters, confidence=confidence, seed=seed)
        return stretched(found)


class ShareStatistic(BoundedStatistic, MeanStatistic):
    """Mean of numbers in [0, 1], such as wins; its interval keeps its coverage near 0 and 1."""

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic`` and ``share_interval``; nothing is resampled."""
        return share_interval(scores, clusters=clusters, confidence=confidence)


class SkewnessStatistic(Statistic):
    """Distance skewness of the scores around 0 (Xu et al. 2024, eq 2)."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the distance skewness of every row; see ``Statistic``."""
        return skewness_rows(scores)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return weighted_skewness(scores, counts)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute an interval that holds 0 unless the scores are significantly skewed, with p; see ``Statistic``.

        Every resample of symmetric scores is skewed, so no quantile reaches 0. The lower end is 0 where changes of sign
        (``symmetry_p_value``) do not reject symmetry, else that of the BCa interval. The upper end is the larger of
        the BCa and the percentile interval, because near 0 the first corrects too much.
        """
        (x,), codes, _ = self._defined([scores], clusters)
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        resampled = functools.partial(weighted_skewness, x)
        found = _within(counted_interval(resampled, codes, self._of(x), **options), *self.limits)
        if np.isnan(found.low):
            return found
        plain = counted_interval(resampled, codes, found.estimate, method="percentile", **options)
        p = symmetry_p_value(x, codes, n_resamples=n_resamples, rng=np.random.default_rng(seed))
        low, high = 0.0 if p > 1 - confidence else found.low, max(found.high, plain.high)
        return _unless_alike(replace(found, low=low, high=high, p_value=p))


def _same(a: object, b: object) -> bool:
    if isinstance(a, Statistic) and isinstance(b, Statistic):
        return a.matches(b)
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(value, b[name]) for name, value in a.items())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b, equal_nan=True)
    return a is b or bool(a == b)
