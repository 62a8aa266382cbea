"""Use of the scale by a judge: slope on quality, levels, and spread."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.agreement import one_against_the_others, unless_constant
from evalbias.measures.arrays import TINY, Before, Clusters, FloatArray, checked, defined, numbers, ratio
from evalbias.measures.equal_quality import EXACT, MIN_CLUSTERS, ROUNDING, STRONG
from evalbias.measures.ratings import pool
from evalbias.measures.resample import DRAWS, Draws, Interval, estimate, estimate_share

# Slope of a judge's scores on quality: does the judge use as much of the scale as people do?

SLOPE = "points per point of quality"  # unit of the slope
LEAST = 0.9
"""Least slope of an unbiased judge: a scale ends, and scores that are noisier than the ratings are cut off more often.
In simulations of scales of five levels with noise from 0 to 1 point it was .94 to 1.06."""
TOO_WEAK = "the ratings agree too little to tell the slope: rate more items, or each more often"


def quality_slope(
    scores: ArrayLike, ratings: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the rise of the score, in points, per point of quality on the scale of the ratings.

    It is cov(score, mean rating) / cov(rating, other rating) of scores (n,) and single ratings (n, r) on the judge's
    scale; 1 for an unbiased judge. Items with one rating do not count. Where ratings hardly agree (F below 10), the
    interval is Fieller's (1954), undefined where it has no end. The test rejects only slopes below ``LEAST``: one above
    1 is the mark of another bias; a change from ``before`` is tested against 0. Scores that follow the ratings exactly
    have no interval.
    """
    first, y, ratings = checked(
        {"before": scores if before is None else before, "scores": scores, "ratings": ratings}, clusters
    )
    y = y if before is None else y - first
    kept = ~np.isnan(y) & ((~np.isnan(ratings)).sum(axis=1) > 1)
    codes, x = arrays.cluster_codes(clusters, kept), y[kept]
    units = len(set(codes.tolist()))
    bare = Interval(math.nan, n=len(x), undefined=len(y) - len(x), units=units, unit=SLOPE)
    none = replace(bare, reason=f"the slope needs items of {MIN_CLUSTERS} inputs whose ratings agree")
    if units < MIN_CLUSTERS:
        return none
    rated = pool(ratings[kept])
    moments = np.column_stack([np.ones_like(x), x, rated.mean, x * rated.mean, rated.product])
    sums = arrays.sums_by_cluster(moments, codes)

    def covariances(sums: FloatArray) -> FloatArray:  # (m, 5) to (m, 2)
        n, score, rating, product, square = sums.T
        return np.stack([product / n - score * rating / n**2, square / n - rating**2 / n**2], axis=1)

    ((a, b),) = covariances(sums.sum(axis=0, keepdims=True))
    if not b > TINY:
        return none
    left_out = covariances(sums.sum(axis=0) - sums)  # (G, 2)
    covariance = (units - 1) * np.cov(left_out.T, bias=True)
    error = math.sqrt((units - 1) * np.nanvar(ratio(*left_out.T)))
    slope, t = a / b, float(scipy.special.stdtrit(units - 1, (1 + draws.confidence) / 2))
    null = 0.0 if before is not None else LEAST
    low, high, away = slope - t * error, slope + t * error, abs(slope - null)
    if b**2 < STRONG * covariance[1, 1]:  # Fieller: (a - x b)^2 <= aa - 2 x ab + x^2 bb
        (aa, ab), (_, bb) = covariance * t**2
        square, middle = b**2 - bb, a * b - ab
        inside = middle**2 - square * (a**2 - aa)
        if square <= 0 or inside < 0:
            return replace(bare, value=slope, reason=TOO_WEAK)
        low, high = ((middle + sign * math.sqrt(inside)) / square for sign in (-1, 1))
        away, part = abs(a - null * b), np.array([1.0, -null])
        error = math.sqrt(part @ covariance @ part)
    p = 1.0 if away == 0 else float(2 * scipy.special.stdtr(units - 1, -away / error)) if error > 0 else 0.0
    if before is None:
        if high - low <= ROUNDING and abs(slope) > ROUNDING:  # constant scores have slope 0
            return replace(bare, value=slope, reason=EXACT)
        p = 1.0 if slope >= null else p
    return replace(bare, value=slope, low=low, high=high, p_value=p)


def slope_of_shifted(scores: FloatArray, ratings: FloatArray, *, scale: tuple[float, float]) -> float:
    """Compute the slope of a person whose ratings are all shifted until their mean equals that of scores (n,).

    The ratings (n, r) of items with two or more are shifted alike and cut off at the ends of the scale. The slope is
    the covariance of shifted ratings with the mean of the item's others, divided by that of the unshifted ratings.
    """
    own, others = np.moveaxis(one_against_the_others(ratings), 2, 0)  # (n, r) each
    compared = ~np.isnan(others)
    mean, width = float(np.nanmean(scores[compared.any(axis=1)])), scale[1] - scale[0]

    def moved(shift: float) -> FloatArray:
        return np.asarray(np.clip(own + shift, *scale))

    shift = scipy.optimize.brentq(lambda x: float(moved(x)[compared].mean()) - mean, -width, width)
    centered = np.where(compared, others - np.nanmean(np.where(compared, others, np.nan), axis=0), 0.0)
    slopes = [float((np.where(compared, x, 0.0) * centered).sum()) for x in (moved(shift), own)]
    return slopes[0] / slopes[1]


# Levels of the scale that a judge uses.


def nearest_levels(scores: ArrayLike, levels: ArrayLike) -> FloatArray:
    """Return (n,) the position of the level nearest to each score, the lower of two equally near; NaN stays NaN."""
    x, steps = numbers(scores, "scores"), numbers(levels, "levels")
    places = np.abs(np.nan_to_num(x)[:, None] - steps).argmin(axis=1)
    return np.where(np.isnan(x), np.nan, places)


def counted_top_two(counts: FloatArray, places: FloatArray, *, levels: int) -> FloatArray:
    """Compute the share of the two most frequent of ``levels`` levels in resamples (k, n) of positions (n,) from 0."""
    used = counts @ (places[:, None] == np.arange(levels))  # (k, levels)
    return np.asarray(np.sort(used, axis=1)[:, -2:].sum(axis=1) / counts.sum(axis=1))


def estimate_top_two(
    places: ArrayLike, *, levels: int, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the share of the two most frequent levels, from positions (n,) as returned by ``nearest_levels``.

    Two levels may lead by chance, so the lower end has a confidence divided among all pairs of levels (Bonferroni).
    """
    if before is not None:
        return estimate(partial(counted_top_two, levels=levels), places, before=before, clusters=clusters, draws=draws)
    (values,) = checked({"places": places}, clusters)
    used = np.bincount(values[kept := defined(values)].astype(np.int64), minlength=levels)
    chosen = np.where(kept, np.isin(values, np.argsort(-used, kind="stable")[:2]), np.nan)
    each = replace(draws, confidence=1 - (1 - draws.confidence) / math.comb(levels, 2))
    share, widest = (estimate_share(chosen, clusters=clusters, draws=level) for level in (draws, each))
    return replace(share, low=widest.low, unit="")


def counted_spread(counts: FloatArray, scores: FloatArray, reference: FloatArray) -> FloatArray:
    """Divide the standard deviation of (n,) scores by that of a reference in resamples; NaN if it is constant."""
    total, deviations = counts.sum(axis=1), []
    for x in (scores, reference):
        mean = counts @ x / total
        squares = (counts * (x - mean[:, None]) ** 2).sum(axis=1)
        deviations.append(np.sqrt(np.nan_to_num(unless_constant(squares, total, mean)) / total))
    return ratio(*deviations)
