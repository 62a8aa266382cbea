"""Measures of a judge's probabilities as forecasts of people's choices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined, vectors
from evalbias.measures.resampling import chunks

BINS = 10
"""Bins of equal width of a calibration error."""


def brier_scores(probabilities: ArrayLike, outcomes: ArrayLike) -> FloatArray:
    """Compute (n,) squared errors of probabilities, whose mean is the Brier score (Brier 1950).

    Args:
        probabilities: (n,) probability of outcome 1.
        outcomes: (n,) 1 or 0.

    Returns:
        Numbers in [0, 1], .25 for a probability of one half; NaN where undefined.

    Raises:
        ValueError: The lengths differ, a probability lies outside [0, 1], or an outcome is not 0, 1 or NaN.

    Examples:
        >>> brier_scores([0.9, 0.5], [1, 0]).round(2).tolist()
        [0.01, 0.25]
    """
    p, y = _checked(probabilities, outcomes)
    return np.asarray((p - y) ** 2)


def calibration_error(probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int = BINS) -> float:
    """Compute the expected calibration error: how far probabilities are from the frequencies of what they forecast.

    Forecasts are put in bins of equal width; the error is the mean over the forecasts of the distance between the mean
    probability and the frequency of outcome 1 in their bin (Naeini et al. 2015). Chance alone makes it positive, the
    more so the fewer forecasts a bin has, so it compares judges on the same items and is no test.

    Args:
        probabilities: (n,) probability of outcome 1.
        outcomes: (n,) 1 or 0; NaN is left out.
        bins: Number of bins of [0, 1]; the last one holds 1 too.

    Returns:
        The error in [0, 1]; NaN without a forecast.

    Raises:
        ValueError: See ``brier_scores``, or ``bins`` is below 1.

    Examples:
        >>> round(calibration_error([0.85, 0.85, 0.35, 0.35], [1, 1, 1, 0]), 2)  # (.15 + .15 + .15 + .15) / 4
        0.15
    """
    if bins < 1:
        raise ValueError(f"bins={bins}: give at least one.")
    p, y = _checked(probabilities, outcomes)
    kept = defined(p, y)
    if not kept.any():
        return float("nan")
    p, y = p[kept], y[kept]
    places = np.minimum((p * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(places, weights=p - y)).sum() / len(p))


def calibration_errors_by_chance(probabilities: FloatArray, *, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draw (draws,) calibration errors of (n,) probabilities that are right: outcomes are drawn as they say."""
    places = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    members = (places[:, None] == np.arange(BINS)).astype(np.float64)  # (n, bins)
    errors = [
        np.abs((probabilities - (rng.random((k, len(probabilities))) < probabilities)) @ members)
        for k in map(len, chunks(draws, len(probabilities)))
    ]
    return np.asarray(np.concatenate(errors).sum(axis=1) / len(probabilities))


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, y = vectors(probabilities=probabilities, outcomes=outcomes)
    outside = p[(p < 0) | (p > 1)]
    if len(outside):
        raise ValueError(f"A probability is {outside[0]:g}: it lies in [0, 1].")
    wrong = y[~np.isnan(y) & ~np.isin(y, (0.0, 1.0))]
    if len(wrong):
        raise ValueError(f"An outcome is {wrong[0]:g}: give 1, 0, or NaN where it is undefined.")
    return p, y
