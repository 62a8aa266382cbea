"""Agreement of scores, labels and forecasts, and its reliability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import (
    FloatArray,
    IntArray,
    common_index,
    defined,
    groups_of,
    numbers,
    ratio,
    settled,
    vectors,
)
from evalbias.measures.ratings import without_levels
from evalbias.measures.resample import (
    ConfidenceInterval,
    CorrelationStatistic,
    Statistic,
    aligned,
    chunks,
    defined_items,
    jackknife_variance,
)

# Ranks and rank correlation of many rows at once, for the resampling tests.


CONSTANT = 1e-14
"""Standard deviation, in units of the mean, up to which values are constant but for the rounding of their mean."""


def rank_rows(x: FloatArray) -> FloatArray:
    """Rank the values within each row, from 1; equal values share the mean of their ranks.

    Args:
        x: (k, n) values without NaN.

    Returns:
        (k, n) ranks in [1, n].

    Examples:
        >>> rank_rows(np.array([[30.0, 10.0, 30.0], [1.0, 2.0, 3.0]])).tolist()
        [[2.5, 1.0, 2.5], [1.0, 2.0, 3.0]]
    """
    k, n = x.shape
    order = np.argsort(x, axis=1)  # equal values share a rank, so their order does not matter
    values = np.take_along_axis(x, order, axis=1)
    starts = np.ones((k, n), dtype=bool)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    codes = np.empty((k, n), dtype=np.int64)
    np.put_along_axis(codes, order, np.cumsum(starts, axis=1) - 1, axis=1)
    cells = codes + (np.arange(k) * n)[:, None]
    counts = np.bincount(cells.ravel(), minlength=k * n).reshape(k, n)
    ranks = np.cumsum(counts, axis=1) - 0.5 * (counts - 1)  # cumsum is the last rank of a value's ties
    return np.asarray(ranks.ravel()[cells.ravel()].reshape(k, n), dtype=np.float64)


def pearson_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Pearson's correlation of each row of x with the same row of y.

    Args:
        x: (k, n) values without NaN.
        y: (k, n) values, or (1, n) or (n,) to correlate every row of x with the same values.

    Returns:
        (k,) correlations in [-1, 1]; NaN for an empty row, and one that is constant up to rounding.

    Examples:
        >>> pearson_rows(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), np.array([1.0, 2.0, 3.0])).tolist()
        [1.0, -1.0]
    """
    y = np.atleast_2d(y)
    n = x.shape[1]
    if not n:
        return np.full(len(x), np.nan)
    x, y = settled(x), settled(y)
    means = x.mean(axis=1), y.mean(axis=1)
    x, y = x - means[0][:, None], y - means[1][:, None]
    squares = (_unless_constant((v * v).sum(axis=1), n, mean) for v, mean in zip((x, y), means, strict=True))
    return _correlations((x * y).sum(axis=1), *squares)


def spearman_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Spearman's rank correlation of each row of x with the same row of y.

    Args:
        x: (k, n) values.
        y: (k, n) values, or (1, n) or (n,) to correlate every row of x with the same values.

    Returns:
        (k,) rho in [-1, 1]; NaN where a row is constant up to rounding or contains a NaN.

    Examples:
        >>> spearman_rows(np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), np.array([1.0, 3.0, 2.0])).tolist()
        [0.5, nan]
    """
    x, y = np.atleast_2d(numbers(x, "x")), np.atleast_2d(numbers(y, "y"))
    undefined = np.isnan(x).any(axis=1) | np.isnan(y).any(axis=1)
    return np.where(undefined, np.nan, pearson_rows(rank_rows(settled(x)), rank_rows(settled(y))))


def counted_ranks(x: FloatArray, counts: FloatArray) -> FloatArray:
    """Rank values of which each resample holds some several times, as ``rank_rows`` does those resamples.

    Args:
        x: (n,) values without NaN, the same in every resample, or (k, n) values of each.
        counts: (k, n) how often each resample holds each value.

    Returns:
        (k, n) rank of each value among a resample's; that of a value that a resample lacks means nothing.

    Examples:
        >>> counted_ranks(np.array([30.0, 10.0, 20.0]), np.array([[1, 1, 1], [2, 1, 0]]))[:, :2].tolist()
        [[3.0, 1.0], [2.5, 1.0]]
    """
    k, n = counts.shape
    if x.ndim == 1:  # one order for all resamples: no row is sorted
        codes = np.unique(x, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=np.nan))
        totals = np.add.reduceat(counts[:, order], starts, axis=1)  # (k, different values)
        return np.asarray((np.cumsum(totals, axis=1) - 0.5 * (totals - 1))[:, codes], dtype=np.float64)
    order = np.argsort(x, axis=1)
    values = np.take_along_axis(x, order, axis=1)
    starts = np.zeros((k, n), dtype=np.int64)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    codes = np.empty((k, n), dtype=np.int64)
    np.put_along_axis(codes, order, np.cumsum(starts, axis=1) + (np.arange(k) * n)[:, None], axis=1)
    totals = np.bincount(codes.ravel(), weights=counts.ravel(), minlength=k * n).reshape(k, n)
    ranks = np.cumsum(totals, axis=1) - 0.5 * (totals - 1)
    return np.asarray(ranks.ravel()[codes], dtype=np.float64)


def counted_pearson(x: FloatArray, y: FloatArray, counts: FloatArray) -> FloatArray:
    """Compute Pearson's correlation in resamples given as counts (k, n); x and y are (k, n) or (n,).

    Returns:
        (k,) correlations in [-1, 1]; NaN where a side is constant.
    """
    totals = counts.sum(axis=1)
    means = [(counts * v).sum(axis=1) / totals for v in (x, y)]
    x, y = x - means[0][:, None], y - means[1][:, None]
    of_x, of_y = counts * x, counts * y
    squares = ((of_x * x).sum(axis=1), (of_y * y).sum(axis=1))
    kept = (_unless_constant(v, totals, mean) for v, mean in zip(squares, means, strict=True))
    return _correlations((of_x * y).sum(axis=1), *kept)


def _unless_constant(squares: FloatArray, n: FloatArray | int, mean: FloatArray) -> FloatArray:
    """Return sums of n squared deviations from a mean (k,), NaN where they are rounding errors of that mean."""
    return np.where(squares > n * (CONSTANT * mean) ** 2, squares, np.nan)


def _correlations(products: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Divide sums of products by the roots of both sums of squares."""
    return np.asarray(np.clip(products / np.sqrt(x * y), -1.0, 1.0), dtype=np.float64)


# Agreement of a judge with people: rank and linear correlation, pooled or averaged over groups.


@dataclass(frozen=True)
class Agreement:
    """Agreement between two sets of scores of the same items.

    Attributes:
        value: Correlation in [-1, 1], or pairwise accuracy in [0, 1]. With groups, the mean over the groups where it
            is defined. NaN if it is defined nowhere.
        n: Number of items used.
        undefined: Number of items left out because a score is NaN.
        groups: Number of groups with a defined value (1 when pooled).
        undefined_groups: Number of groups without one: fewer than two items, or constant scores.
        by_group: (groups + undefined_groups,) value of each group, in order of first appearance; NaN where undefined.
    """

    value: float
    n: int
    undefined: int
    groups: int
    undefined_groups: int
    by_group: tuple[float, ...]


def spearman(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Spearman's rank correlation; tied scores share their mean rank.

    Between judge and human scores it is the evaluation performance of Ohi et al. (2024), pooled, and the human
    alignment of Zhou et al. (2024), averaged over documents.

    Args:
        x: (n,) scores on any scale; items with a NaN are left out and counted.
        y: (n,) scores of the same items on any scale.
        groups: (n,) group (document) of each item. By default all items are pooled.

    Returns:
        Agreement whose value is rho, in [-1, 1]; NaN for fewer than two items and scores that are constant up to
        rounding.

    Raises:
        ValueError: The lengths or pandas indexes differ, a score is infinite or no number, or a group is missing.

    Examples:
        >>> spearman([1, 2, 3], [1, 3, 2]).value
        0.5
        >>> spearman([1, 2, 1, 2], [1, 2, 9, 8], groups=["a", "a", "b", "b"]).by_group
        (1.0, -1.0)
    """
    return _agreement(lambda a, b: spearman_rows(a[None], b[None]).item(), x, y, groups)


def pearson(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Pearson's linear correlation; arguments, result and errors as in ``spearman``.

    Examples:
        >>> round(pearson([1, 2, 3], [0, 0, 3]).value, 3)
        0.866
    """
    return _agreement(lambda a, b: pearson_rows(a[None], b[None]).item(), x, y, groups)


def kendall(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Kendall's tau-b, which corrects for ties; arguments, result and errors as in ``spearman``.

    Examples:
        >>> round(kendall([1, 2, 3], [1, 3, 2]).value, 3)  # two pairs in the same order, one in the opposite
        0.333
    """
    return _agreement(lambda a, b: float(scipy.stats.kendalltau(a, b).statistic), x, y, groups)


def pairwise_accuracy(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute the share of pairs that x puts in the same order as y; arguments and errors as in ``spearman``.

    Pairs tied in y are left out; a pair tied only in x counts half.

    Returns:
        Agreement whose value is the share, in [0, 1]; .5 is expected of a random order, NaN if y orders no pair.

    Examples:
        >>> pairwise_accuracy([1, 2, 2], [1, 2, 3]).value  # correct, correct, tied
        0.8333333333333334
    """
    return _agreement(_ordered_alike, x, y, groups)


def _ordered_alike(a: FloatArray, b: FloatArray) -> float:
    first, second = np.triu_indices(len(a), 1)
    a_signs, b_signs = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    concordance = (a_signs * b_signs)[b_signs != 0]
    return float((1 + concordance).mean() / 2) if len(concordance) else float("nan")


def _agreement(
    correlation: Callable[[FloatArray, FloatArray], float],
    x: ArrayLike,
    y: ArrayLike,
    groups: Sequence[object] | None,
) -> Agreement:
    common_index(x, y, groups)
    a, b = vectors(x=x, y=y)
    kept = defined(a, b)
    names = [None] * len(a) if groups is None else groups_of(groups, np.ones_like(kept), "groups")
    members: dict[object, list[int]] = {}
    for index, usable in enumerate(kept):
        members.setdefault(names[index], []).extend([index] if usable else [])
    values = tuple(correlation(settled(a[i]), settled(b[i])) if len(i) > 1 else float("nan") for i in members.values())
    finite = [v for v in values if not np.isnan(v)]
    value = float(np.mean(finite)) if finite else float("nan")
    return Agreement(value, int(kept.sum()), int((~kept).sum()), len(finite), len(values) - len(finite), values)


# Measures of a judge's probabilities as forecasts of people's choices.


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


# Agreement in the values themselves, not only in their order: Krippendorff's alpha and Cohen's kappa.


Level = Literal["nominal", "ordinal", "interval"]
LEVELS = ("nominal", "ordinal", "interval")


def krippendorff_alpha(ratings: ArrayLike, *, level: Level) -> float:
    """Compute Krippendorff's alpha: 1 minus observed by expected disagreement (Krippendorff 2011).

    Disagreement is the mean squared difference of two ratings, of one item or of any two items: the difference of the
    values (``"interval"``), of their ranks among all ratings (``"ordinal"``, Krippendorff's own metric of the levels
    between two ratings), or 1 for different values (``"nominal"``).

    Args:
        ratings: (n, r) ratings of n items by r raters on one scale, NaN where a rater gave none. Items with one rating
            are left out.
        level: Level of measurement.

    Returns:
        Alpha, at most 1: 1 is perfect agreement, 0 that of ratings drawn at random. NaN without an item that has two
        ratings, and where all ratings are equal.

    Raises:
        ValueError: Unknown level, or ratings that are no matrix or hold an infinite value.

    Examples:
        >>> round(krippendorff_alpha([[1, 1], [2, 3], [3, 3]], level="interval"), 3)  # 1 - (2 / 6) / (58 / 30)
        0.828
    """
    table = numbers(ratings, "ratings")
    if table.ndim != 2 or np.isinf(table).any() or level not in LEVELS:
        raise ValueError(f"level={level!r}, ratings of the shape {table.shape}: give one of {LEVELS}, finite (n, r).")
    table = table[(~np.isnan(table)).sum(axis=1) > 1]
    present = ~np.isnan(table)
    values = table[present] = settled(table[present])
    if not len(values):
        return float("nan")
    if level == "nominal":
        spread = np.stack([present & (table == value) for value in np.unique(values)], axis=2).astype(np.float64)
    else:
        scaled = np.full(table.shape, np.nan)
        scaled[present] = rank_rows(values[None])[0] if level == "ordinal" else values - values.mean()
        spread = scaled[:, :, None]  # (n, r, 1); nominal has one 0/1 column a value: unequal ones differ in two
    spread = np.where(present[:, :, None], spread, 0.0)
    counts, total = present.sum(axis=1), len(values)
    # of m values, the squared differences of all ordered pairs sum up to 2 (m sum x^2 - (sum x)^2)
    within = 2 * (counts[:, None] * (spread**2).sum(axis=1) - spread.sum(axis=1) ** 2).sum(axis=1)  # (n,)
    observed = (within / (counts - 1)).sum() / total
    flat = spread.reshape(-1, spread.shape[2])
    expected = 2 * (total * (flat**2).sum() - (flat.sum(axis=0) ** 2).sum()) / (total * (total - 1))
    return float(1 - observed / expected) if np.ptp(values) > 0 else float("nan")


def cohen_kappa(a: ArrayLike, b: ArrayLike) -> float:
    """Compute Cohen's kappa of two raters who choose between two classes (Cohen 1960).

    Args:
        a: (n,) choices of the first rater, from 0 for one class to 1 for the other; .5 is a tie. NaN is left out.
        b: (n,) choices of the second.

    Returns:
        (p_o - p_e) / (1 - p_e) with the share p_o of equal choices, ties half, and the share p_e that raters with these
        rates would have by chance. At most 1; 0 is chance; NaN where both always choose one and the same class.

    Raises:
        ValueError: The lengths differ, or a choice lies outside [0, 1].

    Examples:
        >>> round(cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]), 2)  # p_o = 3 / 4, p_e = 1 / 2
        0.5
    """
    x, y = vectors(a=a, b=b)
    kept = defined(x, y)
    x, y = x[kept], y[kept]
    outside = [v for v in (*x, *y) if not 0 <= v <= 1]
    if outside:
        raise ValueError(f"A choice is {outside[0]:g}: give 0, 1, or .5 for a tie.")
    return float(kappa_rows(x[None], y[None])[0]) if len(x) else float("nan")


def kappa_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Cohen's kappa of each row of choices (k, n) with the same row, or the one row, of y."""
    y = np.broadcast_to(y, x.shape)
    observed = (x * y + (1 - x) * (1 - y)).mean(axis=1)
    p, q = x.mean(axis=1), y.mean(axis=1)
    chance = p * q + (1 - p) * (1 - q)
    return ratio(observed - chance, 1 - chance)


# Measures of agreement as statistics of a judge's scores, with their intervals.


class PearsonStatistic(CorrelationStatistic):
    """Pearson's correlation of the scores with a reference (n,)."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        return pearson_rows(scores, reference)

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = self.references
        return counted_pearson(scores, reference, counts)


class KendallStatistic(CorrelationStatistic):
    """Kendall's tau-b of the scores with a reference (n,)."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        pairs = zip(scores, np.broadcast_to(reference, scores.shape), strict=True)
        if scores.shape[1] < 2:  # scipy warns
            return np.full(len(scores), np.nan)
        taus = [scipy.stats.kendalltau(settled(a), settled(b)).statistic for a, b in pairs]
        return np.array(taus, dtype=np.float64)

    def _variance(self, scores: FloatArray, codes: IntArray, *, n_resamples: int, seed: int) -> float:
        """See ``CorrelationStatistic``; one pass over the pairs of items leaves every cluster out."""
        (reference,) = self.references
        return jackknife_variance(_left_out_taus(scores, reference, codes))


class AlphaStatistic(CorrelationStatistic):
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
        (human,) = references
        both = settled(np.concatenate([scores, np.broadcast_to(human, scores.shape)], axis=1))  # (k, 2n)
        return _alphas(rank_rows(both) if self._ordinal else both, np.ones_like(both))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        both, twice = settled(np.concatenate([scores, *self.references])), np.tile(counts, 2)
        return _alphas(counted_ranks(both, twice) if self._ordinal else both[None], twice)


class KappaStatistic(CorrelationStatistic):
    """Cohen's kappa of choices in [0, 1] with a reference (n,); see ``cohen_kappa``."""

    def __init__(self, reference: FloatArray) -> None:
        self.references = (reference,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (reference,) = references
        return kappa_rows(scores, reference)


class CalibrationStatistic(Statistic):
    """Expected calibration error of probabilities of outcomes (n,); see ``calibration_error``."""

    limits = (0.0, 1.0)

    def __init__(self, outcomes: FloatArray) -> None:
        self.references = (outcomes,)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (outcomes,) = references
        pairs = zip(scores, np.broadcast_to(outcomes, scores.shape), strict=True)
        return np.array([calibration_error(p, y) for p, y in pairs])

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute the BCa interval, with the lower end 0 unless the error is larger than chance's; see ``Statistic``.

        Chance alone makes the error positive, in resamples once more, so no quantile of theirs reaches 0.
        """
        found = super().interval(scores, clusters=clusters, n_resamples=n_resamples, confidence=confidence, seed=seed)
        if np.isnan(found.low):
            return found
        (p, *references) = aligned(scores, *self.references)
        kept = defined_items(p, *references)
        chance = calibration_errors_by_chance(p[kept], draws=n_resamples, rng=np.random.default_rng(seed))
        return replace(found, low=0.0) if found.estimate <= np.quantile(chance, confidence) else found


class CeilingStatistic(CorrelationStatistic):
    """Spearman's rho of one rating with the mean of the item's others, over every choice of the one.

    Every item counts once, each of its r choices 1 / r. The scores are (n, 2r) ``values`` of the ratings.

    Args:
        ratings: (n, r), NaN where a rater gave none.

    Attributes:
        values: (n, 2r) what ``one_against_the_others`` returns, flattened, each rater's level subtracted first; 0 for
            choices that an item lacks, NaN for an item with fewer than two ratings.
    """

    def __init__(self, ratings: FloatArray) -> None:
        rated = (~np.isnan(ratings)).sum(axis=1) > 1
        pairs = np.full((*ratings.shape, 2), np.nan)
        if rated.any():
            level = settled(without_levels(ratings[rated]).ravel()).reshape(-1, ratings.shape[1])
            # ratings that are equal stay so but for rounding, which would break their ties
            pairs[rated] = np.round(one_against_the_others(level / (np.nanstd(level) or 1.0)), 9)
        chosen = ~np.isnan(pairs[:, :, 0])
        self.values = np.where(chosen[:, :, None] | ~rated[:, None, None], pairs, 0.0).reshape(len(ratings), -1)
        self.references = (chosen / np.maximum(chosen.sum(axis=1, keepdims=True), 1),)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (shares,) = references
        weights = np.broadcast_to(shares, (*scores.shape[:2], scores.shape[2] // 2))
        return np.array([_weighted_rho(row, w[None])[0] for row, w in zip(scores, weights, strict=True)])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        (shares,) = self.references
        return _weighted_rho(scores, counts[:, :, None] * shares)


def one_against_the_others(ratings: FloatArray) -> FloatArray:
    """Return (n, r, 2) each rating of an item, and the mean of its others; NaN where one of both is missing.

    Args:
        ratings: (n, r), NaN where a rater gave none.

    Examples:
        >>> one_against_the_others(np.array([[1.0, 2.0, 6.0], [4.0, np.nan, np.nan]])).tolist()
        [[[1.0, 4.0], [2.0, 3.5], [6.0, 1.5]], [[nan, nan], [nan, nan], [nan, nan]]]
    """
    present = ~np.isnan(ratings)
    others = np.where(present, present.sum(axis=1, keepdims=True) - 1, 0).astype(np.float64)
    means = ratio(np.nansum(ratings, axis=1, keepdims=True) - np.nan_to_num(ratings), others)
    return np.stack([np.where(np.isnan(means), np.nan, ratings), means], axis=2)


def _weighted_rho(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Compute Spearman's rho of (n, 2r) flattened pairs with k weightings (k, n, r)."""
    one, others = values.reshape(-1, 2).T
    counts = weights.reshape(len(weights), -1)
    return counted_pearson(counted_ranks(one, counts), counted_ranks(others, counts), counts)


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
    starts = np.append(np.flatnonzero(np.diff(codes, prepend=np.nan)), len(codes))
    touched = np.empty((len(starts) - 1, 3))  # pairs with an item of the cluster: concordance, untied in x, in y
    twice_within = np.empty_like(touched)
    for cluster, (start, end) in enumerate(pairwise(starts)):
        a, b = np.sign(x[start:end, None] - x), np.sign(y[start:end, None] - y)  # (items of the cluster, n)
        products = (a * b, a * a, b * b)
        touched[cluster] = [p.sum() for p in products]
        twice_within[cluster] = [p[:, start:end].sum() for p in products]
    concordance, untied_x, untied_y = (touched.sum(axis=0) / 2 - touched + twice_within / 2).T
    return ratio(concordance, np.sqrt(untied_x * untied_y))
