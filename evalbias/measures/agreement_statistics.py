"""Measures of agreement as statistics of a judge's scores, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, IntArray, ratio, settled
from evalbias.measures.correlation_statistic import CorrelationStatistic, jackknife_variance
from evalbias.measures.forecasts import calibration_error, calibration_errors_by_chance
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.ranks import counted_pearson, counted_ranks, pearson_rows, rank_rows
from evalbias.measures.raters import without_levels
from evalbias.measures.reliability import kappa_rows
from evalbias.measures.resampling import aligned, defined_items
from evalbias.measures.statistic import Statistic


class PearsonStatistic(CorrelationStatistic):
    """Pearson's correlation of the scores with a reference (n,)."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        return pearson_rows(scores, reference)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = self.references
        return counted_pearson(scores, reference, counts)


class KendallStatistic(CorrelationStatistic):
    """Kendall's tau-b of the scores with a reference (n,)."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        pairs = zip(scores, np.broadcast_to(reference, scores.shape), strict=True)
        if scores.shape[1] < 2:  # scipy warns
            return np.full(len(scores), np.nan)
        taus = [scipy.stats.kendalltau(settled(a), settled(b)).statistic for a, b in pairs]
        return np.array(taus, dtype=np.float64)

    def _variance(self, scores: FloatArray, codes: IntArray, *, n_resamples: int, seed: int) -> float:
        """See ``CorrelationStatistic``; one pass over the pairs of items leaves every cluster out."""
        (reference,) = self.references
        return jackknife_variance(_left_out_taus(scores, reference, codes))


class AlphaStatistic(CorrelationStatistic):
    """Krippendorff's alpha of a judge and people as two raters; see ``krippendorff_alpha``.

    Args:
        human: (n,) human scores on the scale of the judge.
        ordinal: Whether ranks are compared instead of values.
    """

    def __init__(self, human: FloatArray, *, ordinal: bool = False) -> None:
        self.references = (human,)
        self._ordinal = ordinal

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (human,) = references
        both = settled(np.concatenate([scores, np.broadcast_to(human, scores.shape)], axis=1))  # (k, 2n)
        return _alphas(rank_rows(both) if self._ordinal else both, np.ones_like(both))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        both, twice = settled(np.concatenate([scores, *self.references])), np.tile(counts, 2)
        return _alphas(counted_ranks(both, twice) if self._ordinal else both[None], twice)


class KappaStatistic(CorrelationStatistic):
    """Cohen's kappa of choices in [0, 1] with a reference (n,); see ``cohen_kappa``."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        return kappa_rows(scores, reference)


class CalibrationStatistic(Statistic):
    """Expected calibration error of probabilities of outcomes (n,); see ``calibration_error``."""

    limits = (0.0, 1.0)

    def __init__(self, outcomes: FloatArray) -> None:
        self.references = (outcomes,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (outcomes,) = references
        pairs = zip(scores, np.broadcast_to(outcomes, scores.shape), strict=True)
        return np.array([calibration_error(p, y) for p, y in pairs])

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the BCa interval, with the lower end 0 unless the error is larger than chance's; see ``Statistic``.

        Chance alone makes the error positive, in resamples once more, so no quantile of theirs reaches 0.
        """
        found = super().interval(scores, clusters=clusters, n_resamples=n_resamples, confidence=confidence, seed=seed)
        if np.isnan(found.low):
            return found
        (p, *references) = aligned(scores, *self.references)
        kept = defined_items(p, *references)
        chance = calibration_errors_by_chance(p[kept], draws=n_resamples, rng=np.random.default_rng(seed))
        return replace(found, low=0.0) if found.estimate <= np.quantile(chance, confidence) else found


class CeilingStatistic(CorrelationStatistic):
    """Spearman's rho of one rating with the mean of the item's others, over every choice of the one.

    Every item counts once, each of its r choices 1 / r. The scores are (n, 2r) ``values`` of the ratings.

    Args:
        ratings: (n, r), NaN where a rater gave none.

    Attributes:
        values: (n, 2r) what ``one_against_the_others`` returns, flattened, each rater's level subtracted first; 0 for
            choices that an item lacks, NaN for an item with fewer than two ratings.
    """

    def __init__(self, ratings: FloatArray) -> None:
        rated = (~np.isnan(ratings)).sum(axis=1) > 1
        pairs = np.full((*ratings.shape, 2), np.nan)
        if rated.any():
            level = settled(without_levels(ratings[rated]).ravel()).reshape(-1, ratings.shape[1])
            # ratings that are equal stay so but for rounding, which would break their ties
            pairs[rated] = np.round(one_against_the_others(level / (np.nanstd(level) or 1.0)), 9)
        chosen = ~np.isnan(pairs[:, :, 0])
        self.values = np.where(chosen[:, :, None] | ~rated[:, None, None], pairs, 0.0).reshape(len(ratings), -1)
        self.references = (chosen / np.maximum(chosen.sum(axis=1, keepdims=True), 1),)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (shares,) = references
        weights = np.broadcast_to(shares, (*scores.shape[:2], scores.shape[2] // 2))
        return np.array([_weighted_rho(row, w[None])[0] for row, w in zip(scores, weights, strict=True)])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (shares,) = self.references
        return _weighted_rho(scores, counts[:, :, None] * shares)


def one_against_the_others(ratings: FloatArray) -> FloatArray:
    """Return (n, r, 2) each rating of an item, and the mean of its others; NaN where one of both is missing.

    Args:
        ratings: (n, r), NaN where a rater gave none.

    Examples:
        >>> one_against_the_others(np.array([[1.0, 2.0, 6.0], [4.0, np.nan, np.nan]])).tolist()
        [[[1.0, 4.0], [2.0, 3.5], [6.0, 1.5]], [[nan, nan], [nan, nan], [nan, nan]]]
    """
    present = ~np.isnan(ratings)
    others = np.where(present, present.sum(axis=1, keepdims=True) - 1, 0).astype(np.float64)
    means = ratio(np.nansum(ratings, axis=1, keepdims=True) - np.nan_to_num(ratings), others)
    return np.stack([np.where(np.isnan(means), np.nan, ratings), means], axis=2)


def _weighted_rho(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Compute Spearman's rho of (n, 2r) flattened pairs with k weightings (k, n, r)."""
    one, others = values.reshape(-1, 2).T
    counts = weights.reshape(len(weights), -1)
    return counted_pearson(counted_ranks(one, counts), counted_ranks(others, counts), counts)


def _alphas(values: FloatArray, counts: FloatArray) -> FloatArray:
    """Compute interval alpha of (k, 2n) or (1, 2n) values, judge first, held so often (k, 2n)."""
    n = counts.shape[1] // 2
    total = counts.sum(axis=1)
    mean = (counts * values).sum(axis=1, keepdims=True) / total[:, None]
    x = values - mean
    observed = (counts[:, :n] * 2 * (x[:, :n] - x[:, n:]) ** 2).sum(axis=1) / total
    expected = 2 * (counts * x**2).sum(axis=1) / (total - 1)  # the centered sum is 0
    return ratio(expected - observed, expected)


def _left_out_taus(x: FloatArray, y: FloatArray, codes: IntArray) -> FloatArray:
    """Compute tau-b without each cluster, from the signs of all pairs of items."""
    order = np.argsort(codes, kind="stable")
    x, y, codes = x[order], y[order], codes[order]
    starts = np.append(np.flatnonzero(np.diff(codes, prepend=np.nan)), len(codes))
    touched = np.empty((len(starts) - 1, 3))  # pairs with an item of the cluster: concordance, untied in x, in y
    twice_within = np.empty_like(touched)
    for cluster, (start, end) in enumerate(pairwise(starts)):
        a, b = np.sign(x[start:end, None] - x), np.sign(y[start:end, None] - y)  # (items of the cluster, n)
        products = (a * b, a * a, b * b)
        touched[cluster] = [p.sum() for p in products]
        twice_within[cluster] = [p[:, start:end].sum() for p in products]
    concordance, untied_x, untied_y = (touched.sum(axis=0) / 2 - touched + twice_within / 2).T
    return ratio(concordance, np.sqrt(untied_x * untied_y))
