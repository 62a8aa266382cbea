"""Repeated answers of a judge to the same input: their noise, and the parts of its disagreement with people."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Unpack

from evalbias.measures import resample
from evalbias.measures.arrays import SLACK, FloatArray, IntArray, checked, cluster_codes, complete, ratio, remembered
from evalbias.measures.ratings import pool
from evalbias.measures.resample import ALIKE, DRAWS, Common, Draws, Interval, Statistic, estimate, share_ends

# A judge's score of item i is its steady opinion plus an answer's noise, x_ik = t_i + e_ik. With s answers, the
# variance within items is the noise's, and the variance of item means minus 1/s of it is that of t: moments, which need
# no distribution (the one-way analysis of variance of Shrout and Fleiss 1979, ICC(1,1) and ICC(1,k)).

RELIABLE = 0.9  # share of the variance of a mean of answers over the items that is not noise, for ``counted_needed``


def sample_moments(samples: ArrayLike) -> FloatArray:
    """Reduce repeated scores (n, s) of inputs, NaN if missing, to the (n, 3) moments of this module's statistics.

    Mean, variance within the item (s - 1 in the denominator) and 1 / s; NaN for an item with fewer than two scores.

    Examples:
        >>> sample_moments([[1.0, 3.0, np.nan], [2.0, np.nan, np.nan]]).tolist()
        [[2.0, 2.0, 0.5], [nan, nan, nan]]
    """
    (x,) = checked({"samples": samples}, axes=(2,))
    counts = (~np.isnan(x)).sum(axis=1)
    counts = np.where(counts > 1, counts, np.nan)
    least = np.fmin.reduce(x, axis=1)
    above = x - least[:, None]  # equal scores are exactly 0
    mean = np.nansum(above, axis=1) / counts
    within = np.nansum((above - mean[:, None]) ** 2, axis=1) / (counts - 1)
    return np.column_stack([least + mean, within, 1 / counts])


def flip_shares(samples: ArrayLike) -> FloatArray:
    """Compute (n,) shares of the pairs of an item's scores (n, s) that differ; NaN for fewer than two scores.

    Examples:
        >>> flip_shares([[1.0, 1.0, 2.0], [3.0, 3.0, np.nan]]).round(3).tolist()  # 2 of 3 pairs, 0 of 1
        [0.667, 0.0]
    """
    (x,) = checked({"samples": samples}, axes=(2,))
    counts = [np.unique(row[~np.isnan(row)], return_counts=True)[1] for row in x]
    return np.array([1 - (c * (c - 1)).sum() / (c.sum() * (c.sum() - 1)) if c.sum() > 1 else math.nan for c in counts])


def _variances(counts: FloatArray, moments: FloatArray) -> tuple[FloatArray, ...]:
    """Return (k,) variances over items: of the steady opinion, of a score's noise, and of an item mean's noise."""
    totals, (x, within, inverse) = counts.sum(axis=1), moments.T
    x = x - x.mean()
    spread = counts @ x**2 / totals - (counts @ x / totals) ** 2
    single, mean = (counts @ v / totals * (1 - 1 / totals) for v in (within, within * inverse))  # by n, as the spread
    return spread - mean, single, mean


def counted_steadiness(counts: FloatArray, moments: FloatArray) -> FloatArray:
    """Compute the correlation of two scores of the same input in resamples (k, n); NaN where all scores are equal."""
    steady, noise, _ = _variances(counts, moments)
    return np.clip(ratio(steady, steady + noise), -1.0, 1.0)


def counted_noise_share(counts: FloatArray, moments: FloatArray) -> FloatArray:
    """Compute the share of the variance of the items' mean scores that is noise in resamples (k, n)."""
    steady, _, mean = _variances(counts, moments)
    return ratio(mean, steady + mean)


def counted_noise(counts: FloatArray, moments: FloatArray) -> FloatArray:
    """Compute the standard deviation of a score's noise, in points, in resamples (k, n)."""
    return np.asarray(np.sqrt(counts @ moments[:, 1] / counts.sum(axis=1)))


def counted_needed(counts: FloatArray, moments: FloatArray) -> FloatArray:
    """Compute the number of scores whose mean has a share R = ``RELIABLE`` of its variance free of noise.

    By the formula of Spearman and Brown, R / (1 - R) (1 - r) / r with the correlation r between two scores; NaN if r is
    not above 0.
    """
    r = counted_steadiness(counts, moments)
    return ratio(RELIABLE * (1 - r), (1 - RELIABLE) * r)


def estimate_part(statistic: Statistic, *columns: ArrayLike, **options: Unpack[Common]) -> Interval:
    """Estimate a share of a variance with its BCa interval within [0, 1]; options as in ``estimate``.

    An estimate beyond an end is that end. If all resamples reach an end, it is Wilson's interval for the units.
    """
    part = estimate(statistic, *columns, limits=(0.0, 1.0), **options)
    if options.get("before") is not None or math.isnan(part.value):
        return part
    value = min(max(part.value, 0.0), 1.0)
    if part.reason != ALIKE or min(value, 1 - value) > SLACK:
        return replace(part, value=value)
    draws = options.get("draws", DRAWS)
    low, high = share_ends(round(value), 0.0, units=part.units, df=part.units - 1, confidence=draws.confidence)
    return replace(part, value=round(value), low=max(low, 0.0), high=min(high, 1.0), reason="")


# Parts of a disagreement. A person's rating is h_ij = q_i + d_ij, with the quality q that raters share and what
# a single rater adds, d. Ratings and scores may have different scales, so the score is first moved onto people's:
# centered, and stretched by c = sd(q) / sd(t), so that both opinions spread alike. Then, for a rating and a score,
#
#     E (h_ij - c x_ik)^2 = var(d) + c^2 var(e) + E (q_i - c t_i)^2
#
# between raters, the judge's noise, and a systematic part: 2 var(q) (1 - corr(q, t)), which neither more raters
# nor more scores reduce. Differences of level and of spread are left out: they are leniency and scale use. All
# variances and cov(q, t) = cov(h, x) are moments of two ratings and two scores per item. Limits: errors that raters
# share count as quality, and a rater's own taste as noise between raters.

PARTS = ("raters", "judge_noise", "systematic")
NO_REPEATS = "fewer than two items have two scores of the judge"
NO_RATINGS = "it takes two ratings of an item, or the reliability of one (reliability, --reliability)"
UNSHARED = "two ratings of an item are not shown to agree, so there is nothing to compare the judge with"
UNSTEADY = "two scores of an input are not shown to agree, so the judge has no opinion to compare"


def rating_moments(ratings: FloatArray, *, reliability: float | None = None) -> FloatArray:
    """Reduce ratings (n, r), NaN if missing, to (n, 3): mean, product of two, and mean square (see ``Rated``).

    NaN for an item with fewer than two ratings, or, if the ``reliability`` of a rating is stated, with none.
    """
    counts, moments = (~np.isnan(ratings)).sum(axis=1), np.full((len(ratings), 3), np.nan)
    kept = counts >= (2 if reliability is None else 1)
    if not kept.any():
        return moments
    rated = pool(ratings[kept], reliability)
    moments[kept] = np.column_stack([rated.mean, rated.product, rated.square])
    return moments


def counted_agreement(counts: FloatArray, people: FloatArray) -> FloatArray:
    """Compute the correlation of two ratings of an item in resamples (k, n), of ``rating_moments``."""
    quality, rating = _spreads(counts, people)
    return np.clip(ratio(quality, rating), -1.0, 1.0)


def _spreads(counts: FloatArray, people: FloatArray) -> tuple[FloatArray, ...]:
    """Return (k,) variances over items: of the quality and of a rating."""
    level, *squares = (counts @ v / counts.sum(axis=1) for v in people.T)
    return tuple(square - level**2 for square in squares)


def _stretch(counts: FloatArray, judge: FloatArray, people: FloatArray) -> FloatArray:
    """Return (k,) points of people's scale per point of the judge's; NaN if raters or scores do not agree."""
    quality = _spreads(counts, people)[0]
    return np.sqrt(ratio(np.where(quality > 0, quality, np.nan), _variances(counts, judge)[0]))


def counted_shares(counts: FloatArray, judge: FloatArray, people: FloatArray) -> FloatArray:
    """Compute (k, 3) shares of ``PARTS`` in the mean squared difference between a rating and a score, in resamples.

    Their sum is 1; negative parts are 0. ``judge`` (n, 3) is of ``sample_moments``, ``people`` of ``rating_moments``.
    """
    totals, x, h = counts.sum(axis=1), judge[:, 0] - judge[:, 0].mean(), people[:, 0]
    shared = counts @ (x * h) / totals - counts @ h * (counts @ x) / totals**2
    (quality, rating), (steady, noise, _) = _spreads(counts, people), _variances(counts, judge)
    c = _stretch(counts, judge, people)
    systematic = quality + c**2 * steady - 2 * c * shared
    parts = np.maximum(np.stack([rating - quality, c**2 * noise, systematic], axis=1), 0.0)  # NaN stays NaN
    return np.asarray(parts / parts.sum(axis=1, keepdims=True))


def estimate_disagreement(judge: FloatArray, people: FloatArray, *, part: str, **options: Unpack[Common]) -> Interval:
    """Estimate the share of a part in ``PARTS`` (see ``counted_shares``); options as in ``estimate``.

    Undefined, with the reason, if two ratings, or two scores of the judge, are not shown to agree.
    """
    place = PARTS.index(part)
    disagreement = estimate_part(lambda *of: counted_shares(*of)[:, place], judge, people, **options)
    if not disagreement.n:
        return replace(disagreement, reason=NO_RATINGS if np.isnan(people).all() else NO_REPEATS)
    if options.get("before") is not None or not options.get("draws", DRAWS).resamples:
        return disagreement
    codes = cluster_codes(options.get("clusters"), np.ones(len(judge), dtype=bool))
    why = _unshown(judge, people, codes, draws=options.get("draws", DRAWS))
    return replace(disagreement, value=math.nan, low=math.nan, high=math.nan, reason=why) if why else disagreement


@remembered
def _unshown(judge: FloatArray, people: FloatArray, codes: IntArray, *, draws: Draws) -> str:
    """Return the reason if raters, or the judge's scores, are not shown to agree; empty if both are."""
    for statistic, column, why in ((counted_agreement, people, UNSHARED), (counted_steadiness, judge, UNSTEADY)):
        if not resample.estimate_coefficient(statistic, column, clusters=codes.tolist(), draws=draws).low > 0:
            return why
    return ""


def item_differences(judge: FloatArray, people: FloatArray) -> FloatArray:
    """Compute (n, 2) by item, in people's points: the variance of its ratings, and the judge's mean minus theirs.

    On people's scale, with the arguments of ``counted_shares``; NaN if either is undefined.
    """
    (x, h), _ = complete(judge, people)
    moved = _stretch(np.ones((1, len(x))), x, h) * (judge[:, 0] - x[:, 0].mean())
    return np.column_stack([people[:, 2] - people[:, 1], moved - (people[:, 0] - h[:, 0].mean())])
