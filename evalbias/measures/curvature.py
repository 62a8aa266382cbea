"""How far two scales bend against each other: what the ends of a rating scale alone do to an effect at equal quality.

Ratings on a scale of 1 to 5 stop at 5, and where most outputs are good, many of them do. A judge whose scores go on
rising tells such outputs apart, and so does every feature that goes with quality: at equal *ratings* the judge then
seems to favor the feature. Here quality and noise are normal, and scores and ratings are step functions of them that
have the observed distributions. Of a step function v = f(Z) of a standard normal Z, let v_k be the k-th Hermite
coefficient; for two of them whose normals correlate r,

    cov(v, w) = sum_k r^k v_k w_k                                                            (Mehler 1866)

What ratings share by noise-free quality is then known, and so is how much of it a straight line in quality reaches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from evalbias.measures.arrays import FloatArray

ORDER = 50
"""Hermite coefficients that count; r^50 is below .01 for correlations up to .91."""
LIMIT = 1 - 1e-6
"""Largest correlation considered."""


def hermite_coefficients(values: FloatArray) -> FloatArray:
    """Compute the first coefficients of the step function of a standard normal with the distribution of ``values``.

    Args:
        values: (n,) numbers of any distribution with at least two values.

    Returns:
        (ORDER,) coefficients of the normalized Hermite polynomials of degree 1 and more; their squares sum to the
        variance as ORDER grows.
    """
    levels, counts = np.unique(values, return_counts=True)
    return coefficients(counts / counts.sum(), levels)


def coefficients(shares: FloatArray, levels: FloatArray | None = None) -> FloatArray:
    """Compute the same from the share of each level; by default, the levels are 0, 1, 2, ..."""
    steps = np.ones(len(shares) - 1) if levels is None else np.diff(levels)
    thresholds = scipy.special.ndtri(np.minimum(np.cumsum(shares)[:-1], 1.0))  # (levels - 1,)
    weights = steps * np.exp(-(thresholds**2) / 2) / np.sqrt(2 * np.pi)
    kept = weights > 0  # a threshold that nothing reaches adds nothing
    thresholds, weights = thresholds[kept], weights[kept]
    below, polynomial = np.zeros_like(thresholds), np.ones_like(thresholds)  # degrees k - 2 and k - 1, normalized
    found = np.empty(ORDER)
    for k in range(1, ORDER + 1):
        found[k - 1] = (weights * polynomial).sum() / np.sqrt(k)
        below, polynomial = polynomial, (thresholds * polynomial - np.sqrt(k - 1) * below) / np.sqrt(k)
    return found


def curvature(scores: FloatArray, ratings: FloatArray, *, shared: float, covariance: float) -> float:
    """Compute by how much a feature that goes with quality goes with the scores more than equal ratings explain.

    Args:
        scores: (n,) scores of a judge.
        ratings: (m,) all ratings, without NaN and without the raters' own levels.
        shared: Covariance of two ratings of an item, above 0.
        covariance: Covariance of the score and a rating.

    Returns:
        k such that a feature whose covariance with a rating is C has the covariance (1 + k) C covariance / shared with
        the scores of a judge that follows quality alone. 0 where both scales bend alike or not at all, positive where
        the ratings' ends cut off more, negative where the scores' do.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> quality, noise = rng.normal(size=(50_000, 1)), 0.7 * rng.normal(size=(50_000, 2))
        >>> ratings = np.clip(np.round(4 + quality + noise), 1, 5)  # a third of them are 5
        >>> shared, covariance = (float(np.cov(v, ratings[:, 0])[0, 1]) for v in (ratings[:, 1], quality[:, 0]))
        >>> round(curvature(quality, ratings.ravel(), shared=shared, covariance=covariance), 2)
        0.05
    """
    a, c = hermite_coefficients(scores), hermite_coefficients(ratings)
    among_raters = solved_correlation(lambda r: covariance_at(r, c, c) - shared)
    largest = np.sqrt(among_raters)
    with_judge = solved_correlation(lambda r: covariance_at(r, a, c) - covariance, -largest, largest)
    straight = with_judge * a[0] * c[0]  # covariance of scores and ratings by their straight parts
    if not straight:
        return 0.0
    explained = covariance_at(with_judge, a, c) * among_raters * c[0] ** 2 / covariance_at(among_raters, c, c)
    return float(straight / explained - 1)


def covariance_at(r: float, a: FloatArray, b: FloatArray) -> float:
    """Compute the covariance of two step functions, by their coefficients, of normals that correlate r."""
    return float((r ** np.arange(1, ORDER + 1) * a * b).sum())


def solved_correlation(excess: Callable[[float], float], low: float = 0.0, high: float = LIMIT) -> float:
    """Find where a rising function is 0; the nearer end where it is not between them."""
    if excess(low) >= 0 or excess(high) <= 0:
        return low if excess(low) >= 0 else high
    return float(scipy.optimize.brentq(excess, low, high))
