"""A judge's probabilities as forecasts of what people say: their skill, and what it is made of.

An item has a probability p that a person says yes (or passes, or prefers the first), and the outcomes y of the people
who were asked, 1 or 0: of each of them, not of their mean. The mean over an item's people of (p - y)^2 is
p^2 - 2 p s + s, where s is the share that said yes, so the shares are all that is needed; NaN where nobody was asked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import Before, Clusters, FloatArray, defined, ratio, vectors
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

    1 is a forecaster who knows everybody's answer, 0 one who says the base rate of every item; below 0, the base rate
    is better. NaN where all people say the same. The base rate is that of the same items.

    Examples:
        >>> p, shares = np.array([0.9, 0.9, 0.1, 0.1]), np.array([1.0, 1.0, 0.0, 0.5])
        >>> counted_brier_skill(np.ones((1, 4)), p, shares).round(2).tolist()  # 1 - .11 / (.625 * .375)
        [0.53]
    """
    base = mean(counts, shares)
    return ratio(base * (1 - base) - mean(counts, squared_errors(p, shares)), base * (1 - base))


def counted_ranked_skill(counts: FloatArray, levels: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute 1 - RPS / RPS of the climatology of level probabilities (n, K) in resamples (k, n).

    The ranked probability score (Epstein 1969) of one rating is the sum over the levels of the squared difference of
    the two cumulative distributions; ``shares`` (n, K) of the item's people gave each level. The climatology forecasts
    of every item how often each level is given at all. Ends and undefined as of ``counted_brier_skill``.

    Examples:
        >>> levels, shares = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]), np.array([[1.0, 0, 0], [0, 0, 1.0]])
        >>> counted_ranked_skill(np.ones((1, 2)), levels, shares).round(2).tolist()  # 1 - .125 / .5
        [0.75]
    """
    forecast, given = (np.cumsum(one, axis=1)[:, :-1] for one in (levels, shares))  # (n, K - 1)
    often = mean(counts, given)
    climatology = (often * (1 - often)).sum(axis=1)
    return ratio(climatology - mean(counts, squared_errors(forecast, given).sum(axis=1)), climatology)


# Reliability and resolution: how much better the forecasts would be if each value said how often it comes true, and how
# much better than the base rate they would be then. With isotonic regression in place of bins, no width is chosen
# (Dimitriadis, Gneiting and Jordan 2021); Brier = reliability - resolution + uncertainty, as of Murphy (1973).


def recalibrated(p: FloatArray, shares: FloatArray, weights: FloatArray) -> FloatArray:
    """Return (n,) the isotonic regression of people's shares on forecasts p: the best forecasts in the same order."""
    values, places = np.unique(p, return_inverse=True)
    w, sums = (np.bincount(places, one, minlength=len(values)) for one in (weights, shares * weights))
    kept, fitted = w > 0, np.full(len(values), np.nan)
    fitted[kept] = scipy.optimize.isotonic_regression(sums[kept] / w[kept], weights=w[kept]).x
    return np.asarray(fitted[places])


# Recalibration: points (log-odds of a forecast, log-odds that come true), joined by lines, and level beyond the ends.

Curve = tuple[tuple[float, float], ...]
CERTAIN = 15.0  # largest log-odds that count: a probability of 3e-7 or less is as good as 0


def _odds(p: FloatArray) -> FloatArray:
    """Return the log-odds of probabilities, at most ``CERTAIN`` in magnitude; NaN stays."""
    return np.clip(np.asarray(scipy.special.logit(p)), -CERTAIN, CERTAIN)


def on_curve(p: FloatArray, curve: Curve) -> FloatArray:
    """Return the probabilities to which a curve maps forecasts p, of any shape.

    Examples:
        >>> on_curve(np.array([0.5, 0.75, 0.9]), ((0.0, 0.0), (2 * np.log(3), np.log(3)))).round(3).tolist()
        [0.5, 0.634, 0.75]
    """
    return np.asarray(scipy.special.expit(np.interp(_odds(p), *np.transpose(curve))))


def platt_curve(p: FloatArray, shares: FloatArray) -> Curve:
    """Fit the logistic curve of people's shares on the log-odds of forecasts p (n,), with Platt's targets (1999).

    Its slope is at least 0: where forecasts rank items the wrong way, all become the base rate.
    """
    x, yes = _odds(p), shares.sum()
    y = shares * (yes + 1) / (yes + 2) + (1 - shares) / (len(p) - yes + 2)
    start, bounds = (1.0, 0.0), ((0.0, None), (None, None))
    loss = lambda w: np.mean(np.logaddexp(0.0, w[0] * x + w[1]) - y * (w[0] * x + w[1]))  # noqa: E731
    slope, shift = scipy.optimize.minimize(loss, start, bounds=bounds).x
    return tuple((end, float(slope * end + shift)) for end in (-CERTAIN, CERTAIN))


def isotonic_curve(p: FloatArray, shares: FloatArray) -> Curve:
    """Fit the isotonic curve (``recalibrated``) with lines between its levels, which stay half an item off 0 and 1."""
    x, first = np.unique(_odds(p), return_index=True)
    best = recalibrated(_odds(p), shares, np.ones(len(p)))[first]
    y = _odds(np.clip(best, 0.5 / len(p), 1 - 0.5 / len(p)))
    ends = (np.diff(y, prepend=-np.inf) > 0) | (np.diff(y, append=np.inf) > 0)  # of a level
    return tuple(zip(x[ends].tolist(), y[ends].tolist(), strict=True))


def counted_parts(counts: FloatArray, p: FloatArray, shares: FloatArray) -> FloatArray:
    """Compute (k, 2) reliability and resolution of forecasts p (n,) in resamples (k, n).

    Reliability is 0 for forecasts that come true as often as they say, and resolution 0 for those that say the same of
    good and bad items, both at least 0; chance makes both larger, the more the fewer items there are.
    """
    parts = np.empty((len(counts), 2))
    for row, weights in enumerate(counts):
        best, base, known = recalibrated(p, shares, weights), mean(weights[None], shares)[0], weights > 0
        error, least = (mean(weights[None, known], squared_errors(q[known], shares[known]))[0] for q in (p, best))
        parts[row] = error - least, base * (1 - base) - least
    return parts


def agreement_beyond(p: FloatArray, outcomes: FloatArray) -> float:
    """Return the correlation of two people's (n, r) outcomes about an item beyond its forecast p, in [0, 1].

    Forecasts that know less of an item than people do, or are wrong of it, leave people alike; 0 without two people.
    """
    errors = outcomes - p[:, None]
    people = (~np.isnan(errors)).sum(axis=1)
    together = np.nansum(errors, axis=1) ** 2 - np.nansum(errors**2, axis=1)  # sum over pairs of people
    most = (people * (people - 1) * p * (1 - p)).sum()
    return float(np.clip(together.sum() / most, 0.0, 1.0)) if most > 0 else 0.0


def flawless(p: FloatArray, outcomes: FloatArray, *, draws: int, seed: int) -> FloatArray:
    """Draw (draws, n) shares of people who say yes as often as forecasts p say, as many of each item as were asked.

    Two people correlate beyond p as much as in the data: an item's own rate is drawn from a beta distribution around p.
    """
    rng, people, shape = np.random.default_rng(seed), (~np.isnan(outcomes)).sum(axis=1), (draws, len(p))
    alike = np.clip(agreement_beyond(p, outcomes), 1e-6, 1 - 1e-6)
    within = np.clip(p, 1e-9, 1 - 1e-9) * (1 - alike) / alike
    rates = rng.beta(within, (1 - alike) / alike - within, shape)
    return np.asarray(ratio(rng.binomial(people, rates).astype(np.float64), np.full(shape, people, dtype=np.float64)))


# The calibration error, which chance alone makes positive.

BINS = 10  # bins of equal width of a calibration error
FEWER = 400  # draws of flawless forecasts, and resamples of a part, each of which is a regression


def counted_calibration_error(counts: FloatArray, p: FloatArray, y: FloatArray) -> FloatArray:
    """Compute the expected calibration error, in [0, 1], of probabilities p of outcomes y (n,) in resamples (k, n).

    Forecasts are put in ten bins; the error is the mean over the forecasts of the distance between the mean
    probability and the frequency of outcome 1 in their bin (Naeini et al. 2015).

    Examples:
        >>> p, y = np.array([0.85, 0.85, 0.35, 0.35]), np.array([1, 1, 1, 0])
        >>> counted_calibration_error(np.ones((1, 4)), p, y).round(2).tolist()  # (.15 + .15 + .15 + .15) / 4
        [0.15]
    """
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)  # the last one holds 1 too
    gaps = (p - y)[:, None] * (bins[:, None] == np.arange(BINS))  # (n, bins)
    return np.asarray(np.abs(counts @ gaps).sum(axis=1) / counts.sum(axis=1))


def flawless_errors(p: FloatArray, outcomes: FloatArray, *, seed: int) -> FloatArray:
    """Draw (FEWER,) calibration errors of ``flawless`` forecasts."""
    one = np.ones((1, len(p)))
    drawn = flawless(p, outcomes, draws=FEWER, seed=seed)
    return np.array([counted_calibration_error(one, p, shares)[0] for shares in drawn])


def estimate_calibration_error(
    probabilities: ArrayLike, outcomes: ArrayLike, *, before: Before = None, draws: Draws = DRAWS, **options: Any
) -> Interval:
    """Estimate the calibration error: the BCa interval, with the lower end 0 unless the error is larger than chance's.

    Chance alone makes the error positive, and resamples once more. Arguments and errors as in ``brier_scores``.
    """
    p, y = _checked(probabilities, outcomes)
    error = estimate(counted_calibration_error, p, y, before=before, limits=(0.0, 1.0), draws=draws, **options)
    if before is not None or np.isnan(error.low):
        return error
    known = defined(p, y)
    chance = flawless_errors(p[known], y[known, None], seed=draws.seed)
    return replace(error, low=0.0) if error.value <= np.quantile(chance, draws.confidence) else error


PARTS = ("reliability", "resolution")


def estimate_brier_part(
    p: ArrayLike, shares: ArrayLike, *, part: str, draws: Draws = DRAWS, **options: Any
) -> Interval:
    """Estimate ``reliability`` or ``resolution``, in [0, 1]; options as those of ``estimate``."""
    statistic = lambda counts, *columns: counted_parts(counts, *columns)[:, PARTS.index(part)]  # noqa: E731
    return estimate(statistic, p, shares, draws=replace(draws, resamples=min(draws.resamples, FEWER)), **options)


def estimate_flawless_error(
    p: ArrayLike, outcomes: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Compute the median calibration error of ``flawless`` forecasts of these items, below ``high`` in 95 of 100."""
    forecasts, given = np.asarray(p, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    known = ~np.isnan(forecasts) & ~np.isnan(given).all(axis=1)
    n = int(known.sum())
    if n == 0 or before is not None:
        return Interval(math.nan, n=n, undefined=len(known) - n, reason="no item has a forecast and an outcome")
    errors = flawless_errors(forecasts[known], given[known], seed=draws.seed)
    middle, bound = map(float, np.quantile(errors, (0.5, draws.confidence)))
    return Interval(middle, 0.0, bound, n=n, undefined=len(known) - n, units=n)
