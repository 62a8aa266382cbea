"""Ratings of several people reduced to what a regression on quality needs: their mean, and how much of it is noise.

Rater j moves l_j points for one of quality, h_ij = level_j + l_j q_i + noise. Raters may be stricter than others
(``without_levels``) and use more of the scale than others (``scale_correction``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from evalbias.measures.arrays import FloatArray

PRIOR_SPREAD = 1 / 3
"""Standard deviation of the scales, whose mean is about 1, that is expected before the ratings are seen: few or noisy
ratings tell little about a scale."""


@dataclass(frozen=True)
class Rated:
    """Ratings of n items, reduced to what the normal equations need; the mean over the items is 0.

    Attributes:
        mean: (n,) mean rating h.
        product: (n,) P, which is the square of the mean rating without its noise, on average over the items.
        square: (n,) mean squared rating.
    """

    mean: FloatArray
    product: FloatArray
    square: FloatArray

    @property
    def reliability(self) -> float:
        """Share of the mean rating's variance that another set of raters would reproduce."""
        return float(self.product.sum() / (self.mean**2).sum())


def pool(ratings: FloatArray) -> Rated:
    """Reduce the ratings (n, r) of two or more raters an item, NaN where a rater gave none.

    P is the mean product of two different ratings, in which the noise of one meets only that of another, times
    ``scale_correction``. A rater who is stricter than another on every item would make the products negative, so each
    rater's own level is subtracted first.
    """
    values = deviations(ratings)
    counts = (~np.isnan(values)).sum(axis=1)  # (n,)
    sums, squares = np.nansum(values, axis=1), np.nansum(values**2, axis=1)
    product = (sums**2 - squares) / (counts * (counts - 1)) * scale_correction(values)
    return Rated(sums / counts, product, squares / counts)


def with_reliability(rating: FloatArray, reliability: float) -> Rated:
    """Reduce one rating (n,) an item whose reliability is known: the share of its variance that is quality."""
    centered = rating - rating.mean()
    return Rated(centered, reliability * centered**2, centered**2)


def without_levels(ratings: FloatArray) -> FloatArray:
    """Subtract each rater's own level, fitted beside one level an item, from ratings (n, r), NaN where none."""
    present = ~np.isnan(ratings)
    counts = present.sum(axis=1)
    shares = present / counts[:, None]
    within = np.diag(present.sum(axis=0)) - present.T @ shares  # (r, r) normal equations of the raters' levels
    means = np.where(present, ratings, 0.0).sum(axis=1) / counts
    deviations = np.where(present, ratings - means[:, None], 0.0).sum(axis=0)
    return np.asarray(ratings - np.linalg.lstsq(within, deviations, rcond=None)[0])


def deviations(ratings: FloatArray) -> FloatArray:
    """Subtract from ratings (n, r) the raters' levels and the mean of the items' means; NaN stays NaN."""
    values = without_levels(ratings)
    return np.asarray(values - np.nanmean(values, axis=1).mean())


def scale_correction(values: FloatArray) -> float:
    """Compute by how much the products of two different ratings fall short because the raters' scales differ.

    The squared mean rating holds the quality times (mean of l_j)^2, the product of two different ratings only times
    the mean of l_j l_k, which is less where a fixed panel has different scales: less by the variance of l_j over r - 1
    if all rate every item. The scales of three or more raters are fitted to the covariances of their ratings,
    c_jk = l_j l_k. Those of two cannot be told apart, and count as equal.

    Args:
        values: (n, r) ``deviations`` of the ratings, NaN where a rater gave none; two or more an item.

    Returns:
        (mean of l_j)^2 over the mean of l_j l_k: 1 for equal scales, and where the ratings do not agree at all.
    """
    present = ~np.isnan(values)
    counts, filled = present.sum(axis=1), np.where(present, values, 0.0)
    pairs = 1 / (counts * (counts - 1))  # (n,) weight of each ordered pair of an item's ratings
    weights, products = ((pairs[:, None] * part).T @ part for part in (present.astype(np.float64), filled))
    for matrix in (weights, products):
        np.fill_diagonal(matrix, 0.0)
    shared = products.sum() / len(values)
    if shared <= 0:
        return 1.0
    one_item = len(values) / (counts * (counts - 1)).sum()  # what it weighs for one pair, on average
    noise = ((filled**2).sum(axis=1) / counts).mean() / shared  # of one item's product; its square is a variance
    scales = _scales(products / shared, weights, prior=one_item * (noise / PRIOR_SPREAD) ** 2)
    return float(((present / counts[:, None]).mean(axis=0) @ scales) ** 2)


def _scales(products: FloatArray, weights: FloatArray, *, prior: float) -> FloatArray:
    """Minimize the sum over j < k of w_jk (p_jk / w_jk - l_j l_k)^2 plus prior times that of (l_j - 1)^2."""
    first, second = np.nonzero(np.triu(weights))
    weight = weights[first, second]
    covariance = products[first, second] / weight

    def residuals(scales: FloatArray) -> FloatArray:
        misfit = np.sqrt(weight) * (covariance - scales[first] * scales[second])
        return np.concatenate([misfit, np.sqrt(prior) * (scales - 1)])

    return np.asarray(scipy.optimize.least_squares(residuals, np.ones(len(weights)), method="lm").x)
