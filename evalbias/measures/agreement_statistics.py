"""Measures of agreement as statistics of a judge's scores, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, IntArray, ratio
from evalbias.measures.forecasts import calibration_error
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.ranks import counted_pearson, counted_ranks, pearson_rows, rank_rows, spearman_rows
from evalbias.measures.reliability import kappa_rows
from evalbias.measures.statistic import Statistic


class PearsonStatistic(Statistic):
    """Pearson's correlation of the scores with a reference (n,)."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return pearson_rows(scores, references[0])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return counted_pearson(scores, self.references[0], counts)


class KendallStatistic(Statistic):
    """Kendall's tau-b of the scores with a reference (n,); its interval is the jackknife's over clusters."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        pairs = zip(scores, np.broadcast_to(references[0], scores.shape), strict=True)
        return np.array([scipy.stats.kendalltau(a, b).statistic for a, b in pairs], dtype=np.float64)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a t interval of Fisher's z of tau with the standard error of the jackknife; see ``Statistic``.

        Every cluster is left out once, at the cost of one pass over the pairs of items, where a bootstrap would sort
        every resample. Perfect agreement has an interval without width.
        """
        (x,), codes, part = self._defined([scores], clusters)
        units, tau = len(set(codes.tolist())), part._of(x)
        if units < 3 or np.isnan(tau):
            return ConfidenceInterval(np.nan, np.nan, tau, 0, 0, units)
        if abs(tau) > 1 - 1e-12:
            return ConfidenceInterval(tau, tau, tau, 0, 0, units)
        z = np.arctanh(np.clip(_left_out_taus(x, part.references[0], codes), -1 + 1e-9, 1 - 1e-9))
        z = z[~np.isnan(z)]
        error = np.sqrt((units - 1) * z.var())
        half = scipy.stats.t.ppf((1 + confidence) / 2, units - 1) * error
        low, high = np.tanh(np.arctanh(tau) + np.array([-half, half]))
        return ConfidenceInterval(float(low), float(high), tau, 0, 0, units)


class AlphaStatistic(Statistic):
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
        both = np.concatenate([scores, np.broadcast_to(references[0], scores.shape)], axis=1)  # (k, 2n)
        return _alphas(rank_rows(both) if self._ordinal else both, np.ones_like(both))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        both, twice = np.concatenate([scores, self.references[0]]), np.tile(counts, 2)
        return _alphas(counted_ranks(both, twice) if self._ordinal else both[None], twice)


class KappaStatistic(Statistic):
    """Cohen's kappa of choices in [0, 1] with a reference (n,); see ``cohen_kappa``."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return kappa_rows(scores, references[0])


class CalibrationStatistic(Statistic):
    """Expected calibration error of probabilities of outcomes (n,); see ``calibration_error``."""

    def __init__(self, outcomes: FloatArray) -> None:
        self.references = (outcomes,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        pairs = zip(scores, np.broadcast_to(references[0], scores.shape), strict=True)
        return np.array([calibration_error(p, y) for p, y in pairs])


class CeilingStatistic(Statistic):
    """Spearman's rho of the two columns of (n, 2) values: one rater, and the mean of the others."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return spearman_rows(scores[:, :, 0], scores[:, :, 1])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return counted_pearson(counted_ranks(scores[:, 0], counts), counted_ranks(scores[:, 1], counts), counts)


def one_against_the_others(ratings: FloatArray) -> FloatArray:
    """Return (n, 2) one rating of each item, and the mean of its others; NaN for items with fewer than two.

    The one is taken in turn: the first rating of the first item, the second of the second, and so on.

    Args:
        ratings: (n, r), NaN where a rater gave none.

    Examples:
        >>> one_against_the_others(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 6.0], [4.0, np.nan, np.nan]])).tolist()
        [[1.0, 2.5], [2.0, 3.5], [nan, nan]]
    """
    pairs = np.full((len(ratings), 2), np.nan)
    for index, row in enumerate(ratings):
        given = row[~np.isnan(row)]
        if len(given) > 1:
            place = index % len(given)
            pairs[index] = given[place], np.delete(given, place).mean()
    return pairs


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
    starts = np.append(np.flatnonzero(np.diff(codes, prepend=-1)), len(codes))
    touched = np.empty((len(starts) - 1, 3))  # pairs with an item of the cluster: concordance, untied in x, in y
    twice_within = np.empty_like(touched)
    for cluster, (start, end) in enumerate(pairwise(starts)):
        a, b = np.sign(x[start:end, None] - x), np.sign(y[start:end, None] - y)  # (items of the cluster, n)
        products = (a * b, a * a, b * b)
        touched[cluster] = [p.sum() for p in products]
        twice_within[cluster] = [p[:, start:end].sum() for p in products]
    concordance, untied_x, untied_y = (touched.sum(axis=0) / 2 - touched + twice_within / 2).T
    return ratio(concordance, np.sqrt(np.maximum(untied_x * untied_y, 0)))
