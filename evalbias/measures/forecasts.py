"""A judge's probabilities as forecasts of people's answers: their skill, and their calibration compared with chance.

An item has a probability p that a person says yes (or passes, or prefers the first), and the outcomes y of the people
who were asked, 1 or 0: of each of them, not of their mean. The mean over an item's people of (p - y)^2 is
p^2 - 2 p s + s, where s is the share that said yes, so the shares are all that is needed; NaN where nobody was asked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.arrays import Before, FloatArray, cluster_codes, complete, ratio, sums_by_cluster, vectors
from evalbias.measures.resample import DRAWS, Draws, Interval, estimate, mean


def squared_errors(p: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute the mean over an item's people of (p - y)^2, whose mean is the Brier score (Brier 1950), in [0, 1]."""
    return np.asarray(p * p - 2 * p * shares + shares)


def brier_scores(probabilities: ArrayLike, outcomes: ArrayLike) -> FloatArray:
    """Compute (n,) squared errors of probabilities (n,) of outcomes 1 or 0; NaN where undefined.

    ValueError for a probability outside [0, 1], or an outcome that is not 0, 1 or NaN.

    Examples:
        >>> brier_scores([0.9, 0.5], [1, 0]).round(2).tolist()
        [0.01, 0.25]
    """
    return squared_errors(*_checked(probabilities, outcomes))


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, y = vectors(probabilities=probabilities, outcomes=outcomes)
    outside = p[(p < 0) | (p > 1)]
    if len(outside):
        raise ValueError(f"A probability is {outside[0]:g}: it lies in [0, 1].")
    wrong = y[~np.isnan(y) & ~np.isin(y, (0.0, 1.0))]
    if len(wrong):
        raise ValueError(f"An outcome is {wrong[0]:g}: give 1, 0, or NaN where it is undefined.")
    return p, y


def counted_brier_skill(counts: FloatArray, p: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute 1 - Brier / Brier of the base rate (Murphy 1973) of forecasts p (n,) in resamples (k, n).

    1 is a forecaster who knows every answer, 0 a forecaster who says the base rate for every item; below 0, the base
    rate is better. NaN if all people say the same. The base rate is that of the same items.

    Examples:
        >>> p, shares = np.array([0.9, 0.9, 0.1, 0.1]), np.array([1.0, 1.0, 0.0, 0.5])
        >>> counted_brier_skill(np.ones((1, 4)), p, shares).round(2).tolist()  # 1 - .11 / (.625 * .375)
        [0.53]
    """
    base = mean(counts, shares)
    return ratio(base * (1 - base) - mean(counts, squared_errors(p, shares)), base * (1 - base))


def agreement_beyond(p: FloatArray, outcomes: FloatArray) -> float:
    """Return the correlation, in [0, 1], between two people's outcomes (n, r) on an item beyond its forecast p.

    Forecasts that know less about an item than people do, or are wrong, leave a correlation; 0 without two people.
    """
    errors = outcomes - p[:, None]
    people = (~np.isnan(errors)).sum(axis=1)
    together = np.nansum(errors, axis=1) ** 2 - np.nansum(errors**2, axis=1)  # sum over pairs of people
    most = (people * (people - 1) * p * (1 - p)).sum()
    return float(np.clip(together.sum() / most, 0.0, 1.0)) if most > 0 else 0.0


def flawless(p: FloatArray, outcomes: FloatArray, *, draws: int, seed: int) -> FloatArray:
    """Draw (draws, n) shares of yes among as many people per item as were asked, with the forecast p as rate.

    Two people correlate beyond p as much as in the data: an item's own rate is drawn from a beta distribution around p.
    """
    rng, people, shape = np.random.default_rng(seed), (~np.isnan(outcomes)).sum(axis=1), (draws, len(p))
    alike = np.clip(agreement_beyond(p, outcomes), 1e-6, 1 - 1e-6)
    within = np.clip(p, 1e-9, 1 - 1e-9) * (1 - alike) / alike
    rates = rng.beta(within, (1 - alike) / alike - within, shape)
    return np.asarray(ratio(rng.binomial(people, rates).astype(np.float64), np.full(shape, people, dtype=np.float64)))


# The calibration error, which is positive by chance alone.

BINS = 10  # bins of equal width of a calibration error
FEWER = 400  # draws of flawless forecasts


def counted_calibration_error(counts: FloatArray, p: FloatArray, y: FloatArray) -> FloatArray:
    """Compute the expected calibration error, in [0, 1], of probabilities p of outcomes y (n,) in resamples (k, n).

    Forecasts are put in ten bins; the error is the mean over the forecasts of the distance between the mean
    probability and the frequency of outcome 1 in their bin (Naeini et al. 2015).

    Examples:
        >>> p, y = np.array([0.85, 0.85, 0.35, 0.35]), np.array([1, 1, 1, 0])
        >>> counted_calibration_error(np.ones((1, 4)), p, y).round(2).tolist()  # (.15 + .15 + .15 + .15) / 4
        [0.15]
    """
    return np.asarray(np.abs(counts @ binned_gaps(p, y)).sum(axis=1) / counts.sum(axis=1))


def binned_gaps(p: FloatArray, y: FloatArray) -> FloatArray:
    """Return (n, BINS) each forecast less its outcome in its bin, 0 in the others; the last bin holds 1, too."""
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    return np.asarray((p - y)[:, None] * (bins[:, None] == np.arange(BINS)))


def flawless_errors(p: FloatArray, outcomes: FloatArray, codes: arrays.IntArray, *, at: float, seed: int) -> FloatArray:
    """Return the median and the quantile ``at`` of the calibration error of flawless forecasts.

    They come from draws of ``flawless``; for inputs (``codes``) with several items, whose outcomes may deviate together
    from right forecasts, also from draws in which whole inputs' deviations change sign, if that quantile is larger.
    """
    n, once = len(p), np.ones((1, len(p)))
    drawn = flawless(p, outcomes, draws=FEWER, seed=seed)
    quantiles = np.quantile([counted_calibration_error(once, p, shares)[0] for shares in drawn], (0.5, at))
    if (inputs := int(codes.max()) + 1) < n:
        shares = ratio(np.nansum(outcomes, axis=1), (~np.isnan(outcomes)).sum(axis=1).astype(np.float64))
        gaps = sums_by_cluster(binned_gaps(p, shares), codes)  # (inputs, BINS)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FEWER, inputs))
        flipped = np.abs(signs @ gaps).sum(axis=1) / n
        quantiles = np.maximum(quantiles, np.quantile(flipped, (0.5, at)))
    return np.asarray(quantiles)


def estimate_calibration_error(
    probabilities: ArrayLike, outcomes: ArrayLike, *, before: Before = None, draws: Draws = DRAWS, **options: Any
) -> Interval:
    """Estimate the calibration error: the BCa interval, with the lower end 0 unless the error is larger than chance's.

    The error is positive by chance alone, and more so in resamples. Arguments and errors as in ``brier_scores``.
    """
    p, y = _checked(probabilities, outcomes)
    error = estimate(counted_calibration_error, p, y, before=before, limits=(0.0, 1.0), draws=draws, **options)
    if before is not None or np.isnan(error.low):
        return error
    (p, y), codes = complete(p, y, clusters=options.get("clusters"))
    _, bound = flawless_errors(p, y[:, None], codes, at=draws.confidence, seed=draws.seed)
    return replace(error, low=0.0) if error.value <= bound else error


def estimate_flawless_error(
    p: ArrayLike, outcomes: ArrayLike, *, before: Before = None, clusters: arrays.Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Compute the median calibration error of ``flawless`` forecasts of these items, below ``high`` in 95 of 100."""
    forecasts, answers = np.asarray(p, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    kept = ~np.isnan(forecasts) & ~np.isnan(answers).all(axis=1)
    n = int(kept.sum())
    if n == 0 or before is not None:
        return Interval(math.nan, n=n, undefined=len(kept) - n, reason="no item has a forecast and an outcome")
    codes = cluster_codes(clusters, kept)
    errors = flawless_errors(forecasts[kept], answers[kept], codes, at=draws.confidence, seed=draws.seed)
    middle, bound = errors.tolist()
    return Interval(middle, 0.0, bound, n=n, undefined=len(kept) - n, units=int(codes.max()) + 1)
