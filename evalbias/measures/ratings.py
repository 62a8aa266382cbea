"""Ratings of several people: their mean, their noise, and curvature on their scale."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from evalbias.measures.arrays import SLACK, FloatArray, IntArray, defined, sums_by_cluster

# Curvature of two scales relative to each other: effect of the ends of a rating scale on effects at equal quality.
#
# Ratings on a scale of 1 to 5 stop at 5, and where most outputs are good, many of them do. A judge whose scores go on
# rising tells such outputs apart, and so does every feature that goes with quality: at equal *ratings* the judge then
# seems to favor the feature. Here quality and noise are normal, and scores and ratings are step functions of them that
# have the observed distributions. Of a step function v = f(Z) of a standard normal Z, let v_k be the k-th Hermite
# coefficient; for two of them whose normals correlate r,
#
#     cov(v, w) = sum_k r^k v_k w_k                                                            (Mehler 1866)
#
# What ratings share by noise-free quality is then known, and so is how much of it a straight line in quality reaches.

ORDER = 50  # Hermite coefficients that count; r^50 is below .01 for correlations up to .91
DEGREES = np.arange(1.0, ORDER + 1)
LIMIT = 1 - 1e-6  # largest correlation considered


def hermite_coefficients(values: FloatArray) -> FloatArray:
    """Compute (ORDER,) coefficients of the step function of a standard normal with the distribution of ``values`` (n,).

    They are of the normalized Hermite polynomials of degree 1 on; their squares sum to the variance as ORDER grows.
    """
    return _coefficients_of(np.asarray(values, dtype=np.float64).tobytes())


@functools.lru_cache(maxsize=64)  # an effect is asked for at many reliabilities, with and without parts of the items
def _coefficients_of(values: bytes) -> FloatArray:
    levels, counts = np.unique(np.frombuffer(values), return_counts=True)
    kept = coefficients(counts / counts.sum(), levels)
    kept.flags.writeable = False  # shared by all callers
    return kept


def coefficients(shares: FloatArray, levels: FloatArray | None = None) -> FloatArray:
    """Compute the same from the share of each level; by default, the levels are 0, 1, 2, ..."""
    steps = np.ones(len(shares) - 1) if levels is None else np.diff(levels)
    thresholds = scipy.special.ndtri(np.minimum(np.cumsum(shares)[:-1], 1.0))  # (levels - 1,)
    weights = steps * np.exp(-(thresholds**2) / 2) / np.sqrt(2 * np.pi)
    kept = weights > 0  # a threshold that nothing reaches adds nothing
    thresholds, weights = thresholds[kept], weights[kept]
    below, polynomial = np.zeros_like(thresholds), np.ones_like(thresholds)  # degrees k - 2 and k - 1, normalized
    polynomials = np.empty((ORDER, len(thresholds)))
    for k in range(1, ORDER + 1):
        polynomials[k - 1] = polynomial
        below, polynomial = polynomial, (thresholds * polynomial - math.sqrt(k - 1) * below) / math.sqrt(k)
    return np.asarray((weights * polynomials).sum(axis=1) / np.sqrt(DEGREES))


def curvature(scores: FloatArray, ratings: FloatArray, *, shared: float, covariance: float) -> float:
    """Compute k, the relative excess covariance of a correlate of quality with the scores at equal ratings.

    A feature whose covariance with a rating is C has the covariance (1 + k) C covariance / shared with the scores (n,)
    of a judge that follows quality alone, where two ratings of an item have the covariance ``shared`` and a score and a
    rating ``covariance``. Ratings (m,) are all, without the raters' own levels. k is 0 where both scales bend alike or
    not at all, positive where the ratings' ends cut off more, negative where the scores' do.
    """
    a, c = hermite_coefficients(scores), hermite_coefficients(ratings)
    among_raters, with_judge = latent_correlations(a, c, shared=shared, covariance=covariance)
    straight = with_judge * a[0] * c[0]  # covariance of scores and ratings by their straight parts
    if not straight:
        return 0.0
    explained = covariance_at(with_judge, a, c) * among_raters * c[0] ** 2 / covariance_at(among_raters, c, c)
    return float(straight / explained - 1)


def latent_correlations(a: FloatArray, c: FloatArray, *, shared: float, covariance: float) -> tuple[float, float]:
    """Return the correlation of the normals behind two ratings of an item, and behind a score and a rating."""
    among_raters = solved_correlation(lambda r: covariance_at(r, c, c) - shared)
    largest = float(np.sqrt(among_raters))
    return among_raters, solved_correlation(lambda r: covariance_at(r, a, c) - covariance, -largest, largest)


def difference_of_group(
    scores: FloatArray, ratings: FloatArray, share: float, difference: float, *, shared: float, covariance: float
) -> float:
    """Compute a group's excess in mean score over the others if scores follow quality alone.

    Within the group and among the others, quality is normal with equal variance, and the group's ``share`` of the items
    has a mean rating that is higher by ``difference``. Other arguments as in ``curvature``.
    """
    a, c = hermite_coefficients(scores), hermite_coefficients(ratings)
    among_raters, with_judge = latent_correlations(a, c, shared=shared, covariance=covariance)
    mixed = share * (1 - share)
    most = 0.99 / math.sqrt(mixed)  # standard deviations apart: what is left is the variance within

    def apart(values: FloatArray) -> Callable[[float], float]:
        levels, counts = np.unique(values, return_counts=True)
        thresholds, steps = scipy.special.ndtri(np.cumsum(counts)[:-1] / len(values)), np.diff(levels)

        def of(shift: float) -> float:
            within, means = math.sqrt(1 - mixed * shift**2), np.array([[(1 - share) * shift], [-share * shift]])
            above = (scipy.special.ndtr((means - thresholds) / within) * steps).sum(axis=1)
            return float(above[0] - above[1])

        return of

    of_ratings = apart(ratings)
    shift = solved_correlation(lambda x: of_ratings(x) - difference, -most, most)
    return apart(scores)(float(np.clip(shift * with_judge / max(among_raters, SLACK), -most, most)))


def covariance_at(r: float, a: FloatArray, b: FloatArray) -> float:
    """Compute the covariance of two step functions, by their coefficients, of normals that correlate r."""
    return float(r**DEGREES @ (a * b))


def solved_correlation(excess: Callable[[float], float], low: float = 0.0, high: float = LIMIT) -> float:
    """Find the zero of a rising function; the nearer end if it has none between the ends."""
    if excess(low) >= 0 or excess(high) <= 0:
        return low if excess(low) >= 0 else high
    return float(scipy.optimize.brentq(excess, low, high))


# Ratings of several people, reduced to their mean and its noise for a regression on quality.
#
# Rater j moves l_j points per point of quality, h_ij = level_j + l_j q_i + noise. Raters may be stricter than others
# (``levels_of``) and use more of the scale than others (``scale_correction``).

MOST_SCALES = 12  # most raters whose scales are fitted
PRIOR_SPREAD = 1 / 3  # standard deviation of the scales, whose mean is about 1, that is expected beforehand


@dataclass(frozen=True)
class Rated:
    """Ratings of n items, reduced for the normal equations; the mean over the items is 0."""

    mean: FloatArray  # (n,) mean rating h; (n, q) of several functions of a rating, and the others likewise
    product: FloatArray  # (n,) P: on average over the items, the square of the mean rating without its noise
    square: FloatArray  # (n,) mean squared rating

    @property
    def reliability(self) -> float:
        """Share of the mean rating's variance that another set of raters would reproduce."""
        return float(self.product.sum() / (self.mean**2).sum())


def pool(ratings: FloatArray, reliability: float | None = None) -> Rated:
    """Reduce the ratings (n, r) of one or more raters per item, NaN where a rater gave none.

    P is the mean product of two different ratings, in which a rating's noise never meets itself, times
    ``scale_correction``; for an item with a single rating h, h^2 times the ``reliability`` of a rating, the share of
    its variance that is quality (the noise of other items says too little of it). Each rater's own level is subtracted
    first: stricter raters make the products negative.
    """
    values, noise, _ = levels_of(ratings)
    counts = (~np.isnan(values)).sum(axis=1)  # (n,)
    sums, squares, several = np.nansum(values, axis=1), np.nansum(values**2, axis=1), counts > 1
    product = squares * (math.nan if reliability is None else reliability)
    if several.any():
        products = ((sums**2 - squares) / np.maximum(counts * (counts - 1), 1) - noise)[several]
        product[several] = products * scale_correction(values[several])
    return Rated(sums / counts, product, squares / counts)


def pool_squares(ratings: FloatArray) -> Rated:
    """Reduce ratings (n, r) of two or more raters per item, together with their squares: q = 2 functions of a rating.

    Raters count as using the scale alike. Whatever the noise, the mean square of a rating is a nonlinear function of
    quality.
    """
    values, noise, _ = levels_of(ratings)
    counts, squares = (~np.isnan(values)).sum(axis=1), values**2
    both = np.stack([values, squares - np.nanmean(squares, axis=1).mean()], axis=2)  # (n, r, 2)
    filled = np.nan_to_num(both)
    sums, own = filled.sum(axis=1), filled.transpose(0, 2, 1) @ filled  # own: (n, 2, 2)
    products = (sums[:, :, None] * sums[:, None, :] - own) / (counts * (counts - 1))[:, None, None]
    products[:, 0, 0] -= noise
    return Rated(sums / counts[:, None], products, (filled**2).sum(axis=1) / counts[:, None])


ENOUGH = 20  # fewest items for comparing columns of ratings
ROUNDING = 1e-9  # largest share of the largest eigenvalue of normal equations that is a rounding error of 0
FOLLOWS = 0.01  # largest deviation, as a share of its spread, of a column that follows from others: rounding


def dependent_columns(ratings: FloatArray) -> dict[int, list[int]]:
    """Find columns of the ratings (n, r) that follow from others: copies, means, sums. Column -> those others.

    A column follows if a weighted sum of others, with weights of 0 or more and a constant, nearly equals it wherever
    all of them rated. For a mean and its parts, only the mean has such weights; among equal columns, the first stays.
    """
    dependent: dict[int, list[int]] = {}
    for column in reversed(range(ratings.shape[1])):
        candidates = [other for other in range(ratings.shape[1]) if other not in (column, *dependent)]
        for others in (candidates, *([other] for other in candidates)):
            values = ratings[defined(ratings[:, [column, *others]])]
            if len(values) < ENOUGH or np.ptp(values[:, column]) == 0 or not others:
                continue
            values = values - values.mean(axis=0)
            weights, missed = scipy.optimize.nnls(values[:, others], values[:, column])
            if missed <= FOLLOWS * np.linalg.norm(values[:, column]):
                dependent[column] = [other for other, weight in zip(others, weights, strict=True) if weight > FOLLOWS]
                break
    return dependent


FEWEST = 10  # fewest ratings of a rater, of items with two, that tell a level of their own; or of half of these items


def levels_of(ratings: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Fit raters' levels, together with a level per item, to ratings (n, r), NaN where a rater gave none.

    Raters of few items share a level: one of their own would take the noise out of their ratings. Returns (n, r)
    deviations from the levels and the mean; (n,) noise that the fit leaves in the mean product of two of an item's
    ratings; (n,) groups of raters who share items, directly or through others. Levels can be compared only within a
    group, so each has a mean of its own.
    """
    return _levels_of(np.asarray(ratings, dtype=np.float64).tobytes(), ratings.shape[1])


@functools.lru_cache(maxsize=8)  # as above; of 10,000 items with three ratings, an entry takes 0.6 MB
def _levels_of(cells: bytes, raters: int) -> tuple[FloatArray, FloatArray, IntArray]:
    ratings = np.frombuffer(cells).reshape(-1, raters)
    present = ~np.isnan(ratings)
    beside, shares = present[present.sum(axis=1) > 1], present / present.sum(axis=1)[:, None]
    # 1. the normal equations of the levels, of raters with enough ratings and of all others together
    enough = beside.sum(axis=0) >= max(min(FEWEST, len(beside) / 2), 1)
    level = np.unique(np.where(enough, np.arange(len(enough)), len(enough)), return_inverse=True)[1]  # (r,)
    to = np.eye(level.max() + 1)[level]
    within = np.diag(present.sum(axis=0)) - present.T @ shares
    fit = to @ np.linalg.pinv(to.T @ within @ to, rcond=ROUNDING, hermitian=True) @ to.T
    levels = fit @ np.nansum(ratings - np.nanmean(ratings, axis=1)[:, None], axis=0)
    # 2. the groups, the deviations and the noise; levels of 0, as of pairs that count both ways, leave none
    met = scipy.sparse.csgraph.connected_components(to.T @ present.T @ present @ to)[1]
    groups = np.unique(met[level][present.argmax(axis=1)], return_inverse=True)[1]
    centers = np.bincount(groups, np.nanmean(ratings - levels, axis=1)) / np.bincount(groups)
    values = np.asarray(ratings - levels - centers[groups, None])
    found = values, noise_of_levels(values, fit, groups) * (np.abs(levels).max() > SLACK), groups
    for array in found:
        array.flags.writeable = False  # shared by all callers
    return found


def noise_of_levels(values: FloatArray, fit: FloatArray, groups: IntArray) -> FloatArray:
    """Return (n,) noise in the mean product of two of an item's deviations (n, r) from fitted levels.

    Noise of variance s^2 gives the levels the covariance s^2 ``fit``, (r, r), and correlates them with the ratings. In
    the c ratings of an item, of which the fit has the sum S and the trace T, it leaves s^2 (T + S (1 - 2 / c)) / (c (c
    - 1)), less the variance of the mean of its group. Of a panel who rate all items that is 0.
    """
    present = ~np.isnan(values)
    counts, sizes = present.sum(axis=1), np.bincount(groups)
    free = present.sum() - len(values) - np.linalg.matrix_rank(fit, hermitian=True)
    variance = np.nansum((values - np.nanmean(values, axis=1)[:, None]) ** 2) / max(free, 1)
    trace, whole = present @ np.diag(fit), ((present @ fit) * present).sum(axis=1)
    of_groups = sums_by_cluster(present / counts[:, None], groups) / sizes[:, None]
    of_mean = ((of_groups @ fit) * of_groups).sum(axis=1) + np.bincount(groups, 1 / counts) / sizes**2
    noise = (trace + whole * (1 - 2 / counts)) / np.maximum(counts * (counts - 1), 1) - of_mean[groups]
    return np.asarray(variance * noise)


def scale_correction(values: FloatArray) -> float:
    """Compute the factor for products of two different ratings that corrects for the raters' different scales.

    The squared mean rating holds the quality times (mean of l_j)^2, the product of two different ratings only times the
    mean of l_j l_k, which is less where a fixed panel has different scales: less by the variance of l_j over r - 1 if
    all rate every item. The scales of three or more raters are fitted to the covariances of their ratings (n, r), c_jk
    = l_j l_k. Those of two cannot be told apart, and count as equal. Returns (mean of l_j)^2 over the mean of l_j l_k:
    1 for equal scales, where the ratings do not agree at all, and for many raters, whose fit would add more than it is.
    """
    if values.shape[1] > MOST_SCALES:
        return 1.0
    present = ~np.isnan(values)
    counts, filled = present.sum(axis=1), np.where(present, values, 0.0)
    pairs = 1 / (counts * (counts - 1))  # (n,) weight of each ordered pair of an item's ratings
    weights, products = ((pairs[:, None] * part).T @ part for part in (present.astype(np.float64), filled))
    for matrix in (weights, products):
        np.fill_diagonal(matrix, 0.0)
    shared = products.sum() / len(values)
    if shared <= 0:
        return 1.0
    one_item = len(values) / (counts * (counts - 1)).sum()  # mean weight of an item per pair
    noise = ((filled**2).sum(axis=1) / counts).mean() / shared  # noise of an item's product; its square is a variance
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

    def derivatives(scales: FloatArray) -> FloatArray:
        of_misfit = np.zeros((len(weight), len(scales)))
        of_misfit[np.arange(len(weight)), first] = -np.sqrt(weight) * scales[second]
        of_misfit[np.arange(len(weight)), second] = -np.sqrt(weight) * scales[first]
        return np.concatenate([of_misfit, np.sqrt(prior) * np.eye(len(scales))])

    fit = scipy.optimize.least_squares(residuals, np.ones(len(weights)), derivatives, method="lm", xtol=1e-12)
    return np.asarray(fit.x)


# Curvature of people's ratings of single outputs, estimated from the differences within pairs.
#
# Where most outputs are good, two of them often have the same rating because the scale ends, and a rater tells two bad
# outputs apart better than two good ones. This does not show in the distribution of the differences as it does in that
# of ratings (see ``curvature``): the differences bend to both sides alike. So the ratings themselves are recovered
# first, as the distribution of which two independent draws differ most likely as they do here.
#
# Preferences (1, 0, -1) are no such differences: who compares two outputs gives no single ratings, whose scale ends.
# They are a step function of the difference in quality, and bend as their own distribution says. Ratings of two values
# (pass, fail) have differences of three values too, but at least half of those are 0 if both outputs of a pair are
# alike. So differences of three values of which fewer are 0 are preferences.

FINEST = 20  # largest number of steps between the lowest and the highest rating; finer differences are rounded to it
ITERATIONS = 500
TIED = 0.45  # smallest share of zeros among three differences of binary ratings: half, minus chance


def curvature_of_differences(differences: FloatArray, *, shared: float) -> float:
    """Compute ``curvature``'s k for a judge that compares qualities without a scale: 0 or more.

    Takes each rater's rating of an output of a pair minus that of the other (m,), and the covariance ``shared`` of two
    raters' differences. 0 if all differences are 0, or raters share nothing.
    """
    if shared <= 0 or not np.any(differences):
        return 0.0
    step, counts = _lags(differences)
    if len(counts) == 2 and counts[0] < TIED * counts.sum():  # preferences
        c = hermite_coefficients(np.concatenate([differences, -differences]))
    else:
        c, shared = step * coefficients(_likeliest(counts)), shared / 2  # the sides differ on their own
    r = solved_correlation(lambda r: covariance_at(r, c, c) - shared)
    return float(covariance_at(r, c, c) / (r * c[0] ** 2) - 1)


def _lags(differences: FloatArray) -> tuple[float, FloatArray]:
    """Return the step between neighboring ratings, and the counts of differences of 0, 1, ... steps."""
    sizes = np.abs(differences)
    step = max(float(np.diff(np.unique(np.append(sizes, 0.0))).min()), float(sizes.max()) / FINEST)
    return step, np.bincount(np.round(sizes / step).astype(np.int64)).astype(np.float64)


def _likeliest(counts: FloatArray) -> FloatArray:
    """Return the (levels,) distribution of ratings whose independent draws differ as counted, fitted by EM."""
    levels = len(counts)
    lags = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    shares = np.arange(1.0, levels + 1)  # uneven: even shares would stay symmetric
    weights = counts / counts.sum()
    for _ in range(ITERATIONS):
        expected = np.bincount(lags.ravel(), (shares[:, None] * shares).ravel(), minlength=levels)
        ratio = weights / np.maximum(expected, np.finfo(np.float64).tiny)  # the share of what is never expected is 0
        shares = shares * (ratio[lags] @ shares)
    return np.asarray(shares / shares.sum())
