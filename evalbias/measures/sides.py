"""Curvature of people's ratings of single outputs, told from the differences between the two outputs of pairs.

Where most outputs are good, two of them often have the same rating because the scale ends, and a rater tells two bad
outputs apart better than two good ones. This does not show in the distribution of the differences as it does in that of
ratings (see ``curvature``): the differences bend to both sides alike. So the ratings themselves are recovered first, as
the distribution of which two independent draws differ most likely as they do here.
"""

from __future__ import annotations

import numpy as np

from evalbias.measures.arrays import FloatArray
from evalbias.measures.curvature import coefficients, covariance_at, solved_correlation

FINEST = 20
"""Largest number of steps between the lowest and the highest rating; finer differences are rounded to it."""
ITERATIONS = 500


def curvature_of_sides(differences: FloatArray, *, shared: float) -> float:
    """Compute by how much a feature goes with the scores of an unbiased judge more than equal ratings explain.

    Args:
        differences: (m,) each rater's rating of one output of a pair less that of the other, without NaN.
        shared: Covariance of the differences of two raters of a pair.

    Returns:
        k as from ``curvature``, for a judge that compares qualities without a scale: 0 or more. 0 where no two
        differences differ, or raters share nothing.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> quality = rng.normal(size=(20_000, 1, 2))
        >>> ratings = np.clip(np.round(4.5 + quality + 0.7 * rng.normal(size=(20_000, 2, 2))), 1, 5)
        >>> first, second = (ratings @ [1, -1]).T
        >>> round(curvature_of_sides(np.concatenate([first, second]), shared=float((first * second).mean())), 2)
        0.12
    """
    if shared <= 0 or not np.any(differences):
        return 0.0
    step, counts = _lags(differences)
    c = step * coefficients(_likeliest(counts))
    r = solved_correlation(lambda r: covariance_at(r, c, c) - shared / 2)  # the sides differ on their own
    return float(covariance_at(r, c, c) / (r * c[0] ** 2) - 1)


def _lags(differences: FloatArray) -> tuple[float, FloatArray]:
    """Return the step between neighboring ratings, and how often two ratings lie 0, 1, ... steps apart."""
    sizes = np.abs(differences)
    step = max(float(np.diff(np.unique(np.append(sizes, 0.0))).min()), float(sizes.max()) / FINEST)
    return step, np.bincount(np.round(sizes / step).astype(np.int64)).astype(np.float64)


def _likeliest(counts: FloatArray) -> FloatArray:
    """Return the shares (levels,) of the ratings of which two independent draws lie apart as counted, by EM."""
    levels = len(counts)
    lags = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    shares = np.arange(1.0, levels + 1)  # uneven: even shares would stay symmetric
    weights = counts / counts.sum()
    for _ in range(ITERATIONS):
        joint = np.outer(shares, shares)
        expected = np.bincount(lags.ravel(), joint.ravel(), minlength=levels)
        ratio = weights / np.maximum(expected, np.finfo(np.float64).tiny)  # the share of what is never expected is 0
        shares = (joint * ratio[lags]).sum(axis=1)
    return np.asarray(shares / shares.sum())
