"""Agreement of a judge with people in ranks, values and choices, and of people with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike
from typing_extensions import Unpack

from evalbias.measures import arrays, resample
from evalbias.measures.arrays import SLACK, Before, Clusters, FloatArray, IntArray, complete, ratio, settled, vectors
from evalbias.measures.resample import ALONE, DRAWS, FEWEST_UNITS, Draws, Interval, estimate_coefficient, left_out

CONSTANT = 1e-14
"""Largest standard deviation, relative to the mean, that is a rounding error of constant values."""


# Correlations in resamples: counts (k, n) say how often each of k resamples holds each of n items.


def counted_ranks(counts: FloatArray, x: FloatArray) -> FloatArray:
    """Rank values (n,) without NaN within each of k resamples, from 1; equal values share the mean of their ranks.

    The rank of a value that a resample lacks is meaningless.

    Examples:
        >>> counted_ranks(np.array([[1, 1, 1], [2, 1, 0]]), np.array([30.0, 10.0, 20.0]))[:, :2].tolist()
        [[3.0, 1.0], [2.5, 1.0]]
    """
    codes, order, starts = _by_value(x)
    totals = np.add.reduceat(counts[:, order], starts, axis=1)  # (k, different values)
    return np.asarray((np.cumsum(totals, axis=1) - 0.5 * (totals - 1))[:, codes], dtype=np.float64)


@partial(arrays.remembered, results=2)  # both sides of a correlation, whose resamples come in chunks
def _by_value(x: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the (n,) codes of values among the distinct values, their order (n,), and the start of each in it."""
    codes = np.unique(x, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    return codes, order, np.flatnonzero(np.diff(codes[order], prepend=np.nan))


def counted_pearson(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Pearson's correlation of x with y, (n,) or (k, n), in resamples (k, n); NaN where a side is constant."""
    totals = counts.sum(axis=1)
    means = [(counts * v).sum(axis=1) / totals for v in (x, y)]
    x, y = x - means[0][:, None], y - means[1][:, None]
    of_x, of_y = counts * x, counts * y
    squares = ((of_x * x).sum(axis=1), (of_y * y).sum(axis=1))
    kept = (unless_constant(v, totals, mean) for v, mean in zip(squares, means, strict=True))
    return np.asarray(np.clip((of_x * y).sum(axis=1) / np.sqrt(np.multiply(*kept)), -1.0, 1.0))


def unless_constant(squares: FloatArray, n: FloatArray, mean: FloatArray) -> FloatArray:
    """Return (k,) sums of n squared deviations from a mean, NaN where they are rounding errors of the mean."""
    return np.where(squares > n * (CONSTANT * mean) ** 2, squares, np.nan)


def counted_spearman(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Spearman's rho in resamples."""
    return counted_pearson(counts, counted_ranks(counts, x), counted_ranks(counts, y))


def counted_kendall(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Kendall's tau-b in resamples: for few items from all pairs, for many one resample at a time."""
    if len(x) > 500:  # above, a table of pairs takes longer
        return np.array([scipy.stats.kendalltau(a, b).statistic for a, b in _samples(counts, x, y)])
    a, b = (np.sign(np.subtract.outer(values, values)) for values in (x, y))
    alike, of_x, of_y = (((counts @ signs) * counts).sum(axis=1) for signs in (a * b, a**2, b**2))
    return ratio(alike, np.sqrt(of_x * of_y))


def _ordered_alike(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute the share of the pairs untied in y that x orders alike, from tau-b and the ties; ties in x count half."""
    untied = [[len(v) ** 2 - (np.unique(v, return_counts=True)[1] ** 2).sum() for v in pair]
              for pair in _samples(counts, x, y)]  # fmt: skip
    of_x, of_y = np.array(untied, dtype=np.float64).T  # twice the numbers of pairs
    more = np.round(np.nan_to_num(counted_kendall(counts, x, y)) * np.sqrt(of_x * of_y))  # concordant less discordant
    return (1 + ratio(more, of_y)) / 2


def _samples(counts: FloatArray, *columns: FloatArray) -> Iterator[list[FloatArray]]:
    for row in counts:
        yield [np.repeat(column, row.astype(np.int64)) for column in columns]


# Agreement of two sets of scores: rank and linear correlation, pooled or averaged over groups.


@dataclass(frozen=True)
class Agreement:
    """Agreement between two sets of scores of the same items."""

    value: float  # correlation in [-1, 1], or accuracy in [0, 1]; with groups, the mean over those that define it
    n: int  # items used
    undefined: int  # items left out because a score is NaN
    groups: int  # groups with a defined value (1 when pooled)
    undefined_groups: int  # groups without a value: fewer than two items, or constant scores
    by_group: tuple[float, ...]  # value of each group, in order of first appearance; NaN where undefined


def spearman(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Spearman's rank correlation, rho in [-1, 1]; tied scores share their mean rank.

    For (n,) judge and human scores on any scales, it is the evaluation performance of Ohi et al. (2024); averaged over
    the documents named by ``groups`` (n,), the human alignment of Zhou et al. (2024). NaN for fewer than two items and
    for constant scores. ValueError if lengths or pandas indexes differ, a score is infinite, or a group is missing.

    Examples:
        >>> spearman([1, 2, 3], [1, 3, 2]).value
        0.5
        >>> spearman([1, 2, 1, 2], [1, 2, 9, 8], groups=["a", "a", "b", "b"]).by_group
        (1.0, -1.0)
    """
    return _agreement(counted_spearman, x, y, groups)


def pearson(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Pearson's linear correlation; arguments, result and errors as in ``spearman``.

    Examples:
        >>> round(pearson([1, 2, 3], [0, 0, 3]).value, 3)
        0.866
    """
    return _agreement(counted_pearson, x, y, groups)


def kendall(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute Kendall's tau-b, which corrects for ties; arguments, result and errors as in ``spearman``.

    Examples:
        >>> round(kendall([1, 2, 3], [1, 3, 2]).value, 3)  # two pairs in the same order, one in the opposite
        0.333
    """
    return _agreement(counted_kendall, x, y, groups)


def pairwise_accuracy(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Compute the share of pairs that x puts in the same order as y; arguments and errors as in ``spearman``.

    Pairs tied in y are left out; a pair tied only in x counts half. A random order has .5; NaN if y orders no pair.

    Examples:
        >>> round(pairwise_accuracy([1, 2, 2], [1, 2, 3]).value, 3)  # correct, correct, tied
        0.833
    """
    return _agreement(_ordered_alike, x, y, groups)


def _agreement(statistic: resample.Statistic, x: ArrayLike, y: ArrayLike, groups: Sequence[object] | None) -> Agreement:
    arrays.common_index(x, y, groups)
    a, b = vectors(x=x, y=y)
    kept = arrays.defined(a, b)
    codes = np.zeros(len(a), int) if groups is None else arrays.cluster_codes(groups, np.ones_like(kept), "groups")
    values = []
    for items in arrays.members_of(codes):
        i = items[kept[items]]
        alone = np.ones((1, len(i)))
        values.append(statistic(alone, settled(a[i]), settled(b[i])).item() if len(i) > 1 else float("nan"))
    groups_known = int((~np.isnan(values)).sum())
    value, lost = arrays.mean_of_defined(values), int((~kept).sum())
    return Agreement(value, len(kept) - lost, lost, groups_known, len(values) - groups_known, tuple(values))


# Estimates of these statistics with intervals, for a judge's scores and a reference (n,).


def estimate_spearman(scores: ArrayLike, reference: ArrayLike, **options: Unpack[resample.Common]) -> Interval:
    """Estimate Spearman's rho of a judge's scores (n,) with a reference (n,), such as the human scores (performance).

    Swaps exchange z-scores of each judge's ranks, without ranking a mixture again, because that would order equal
    scores by the judge who gave them. Raw scores are exchangeable only between judges that use the scale alike:
    otherwise a test at 5 % rejects 0 to 2 % of equal judges. Options as in ``estimate``.
    """
    options["exchanged"] = exchanged_ranks
    return estimate_coefficient(counted_spearman, scores, reference, **options)


def exchanged_ranks(a: FloatArray, b: FloatArray, reference: FloatArray) -> resample.LinearSwaps:
    """Swap z-scores of ranks (see ``change``): an exchanged item moves its terms between the sums."""
    a, b, y = (arrays.standardized(scipy.stats.rankdata(x)) for x in (a, b, reference))
    first, second = (np.column_stack([x, x**2, x * y]) for x in (a, b))  # (n, 3)

    def rho(sums: FloatArray) -> FloatArray:  # NaN for a row that is constant but for rounding errors
        (total, squares, products), n = sums.T, len(y)
        spread = n * squares - total**2
        return ratio(products, np.sqrt(np.where(spread > SLACK * (1 + n * squares), spread, 0.0)))

    return resample.LinearSwaps(first, second, rho)


def estimate_pearson(
    scores: ArrayLike, reference: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate Pearson's correlation; options as in ``estimate_spearman``. Its error is the jackknife's over clusters.

    A change between judges has Student's t interval and test (``draws`` gives only the level). Use this measure to test
    a correction: breaking the ties of coarse scores moves ranks by half of the items, but hardly the values.
    """
    if before is None:
        return estimate_coefficient(counted_pearson, scores, reference, clusters=clusters, draws=draws)
    alone = resample.change(counted_pearson, before, scores, reference, clusters=clusters, draws=ALONE)
    (a, b, y), codes = complete(*vectors(before=before, scores=scores, reference=reference), clusters=clusters)
    if alone.units < FEWEST_UNITS or np.isnan(alone.value) or not draws.resamples:
        return alone
    first, second = pearson_influence(np.column_stack([a, b]), y, codes).T
    return _with_t(alone, second - first, draws.confidence, most=2.0)


def pearson_influence(scores: FloatArray, reference: FloatArray, codes: IntArray) -> FloatArray:
    """Return (G, s) the jackknife's influence of each cluster, or of 200 groups, on the correlations of s judges.

    The scores (n, s) and the reference (n,) have no NaN. See ``resample.influences``.
    """
    correlations = [np.column_stack([counted_pearson(c, x, reference) for x in scores.T]) for c in left_out(codes)]
    return resample.influences(np.concatenate(correlations))


def _with_t(interval: Interval, influence: FloatArray, confidence: float, *, most: float) -> Interval:
    """Give a change of up to ``most`` Student's t interval and test, from each cluster's influence on it (G,)."""
    error, df, value = float(np.sqrt((influence**2).sum())), len(influence) - 1, interval.value
    if error <= SLACK:  # scores that are a linear function of the others have the same correlation
        return replace(interval, low=value, high=value, p_value=float(abs(value) <= SLACK))
    half = float(scipy.special.stdtrit(df, (1 + confidence) / 2)) * error
    p_value = 2 * scipy.special.stdtr(df, -abs(value) / error)
    return replace(interval, low=max(value - half, -most), high=min(value + half, most), p_value=float(p_value))


ALL_TIED = "people rate all outputs of an input alike, so there is no order to agree with"
MOST_PAIRS = 2_000_000  # most pairs for an accuracy; above it, each item is compared with equally many others


def estimate_tied_accuracy(
    scores: ArrayLike, reference: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate pairwise accuracy with calibrated ties, acc*_eq in [0, 1] (Deutsch et al. 2023, "Ties matter").

    It is the share of pairs of items that the scores put in the reference's order, or tie where the reference ties.
    Scores that differ by a threshold or less are tied; the threshold maximizes the number of correct pairs (tie
    calibration). Pairs lie within a cluster, or are all pairs if no cluster has two items; undefined if the reference
    ties all of them. The jackknife over clusters keeps the threshold. Arguments as in ``estimate_pearson``.

    Examples:
        >>> estimate_tied_accuracy([1.0, 1.1, 3.0], [1, 1, 2]).value  # .1 apart is a tie
        1.0
    """
    judges = {"scores": scores} if before is None else {"before": before, "scores": scores}
    all_columns = vectors(**judges, reference=reference)
    (*columns, y), codes = complete(*all_columns, clusters=clusters)
    pairs = _pairs(codes)
    units = len(held := np.unique(codes[pairs]))  # clusters without a pair do not count
    accuracy = Interval(np.nan, n=len(y), undefined=len(all_columns[0]) - len(y), units=units, unit=resample.SHARE)
    if not len(pairs):
        return accuracy
    if not np.diff(y[pairs]).any():
        return replace(accuracy, reason=ALL_TIED)
    right = [_right(x, y, pairs) for x in columns]
    gains = right[-1] - (right[0] if before is not None else 0.0)  # (m,)
    accuracy = replace(accuracy, value=float(gains.mean()))
    few = f"fewer than {FEWEST_UNITS} groups of outputs hold a pair" if units < FEWEST_UNITS else ""
    if few or not draws.resamples:
        return replace(accuracy, reason=few)
    first, second = np.searchsorted(held, codes[pairs]).T
    touched, amounts = (  # sums over the pairs of each cluster; a pair between two clusters counts in both
        np.bincount(first, part, units) + np.bincount(second, part * (first != second), units)
        for part in (gains, np.ones(len(pairs)))
    )
    accuracies = ratio(gains.sum() - touched, np.asarray(len(pairs) - amounts, dtype=np.float64))
    if before is not None:
        return _with_t(accuracy, resample.influences(accuracies), draws.confidence, most=1.0)
    variance = resample.jackknife_variance(accuracies)
    df = resample.worth(codes[np.isin(codes, held)]) - 1
    low, high = resample.share_ends(accuracy.value, variance, units=units, df=df, confidence=draws.confidence)
    return replace(accuracy, low=low, high=high)


def _pairs(codes: IntArray) -> IntArray:
    """Return (m, 2) items to compare: pairs within a cluster (n,), or of all items if each is its own cluster."""
    n = len(codes)
    if len(np.unique(codes)) < n:
        return np.concatenate([i[np.column_stack(np.triu_indices(len(i), 1))] for i in arrays.members_of(codes)])
    if n * (n - 1) // 2 <= MOST_PAIRS:
        return np.column_stack(np.triu_indices(n, 1))
    order = np.random.default_rng(0).permutation(n)
    return np.concatenate([np.column_stack([order, np.roll(order, shift)]) for shift in range(1, MOST_PAIRS // n + 1)])


def _right(x: FloatArray, y: FloatArray, pairs: IntArray) -> FloatArray:
    """Return (m,) 1 if the scores order or tie a pair like the reference at the calibrated threshold, else 0."""
    apart, wanted = (np.round(np.subtract(*v[pairs].T) / (np.ptp(v) or 1.0), 9) for v in (x, y))
    sizes, tied, ordered = np.abs(apart), wanted == 0, (np.sign(apart) == np.sign(wanted)) & (wanted != 0)
    order = np.argsort(sizes, kind="stable")
    thresholds = np.unique(np.append(sizes, 0.0))
    below = np.searchsorted(sizes[order], thresholds, side="right")  # number of pairs that each threshold ties
    gained = np.cumsum(np.append(0, tied[order].astype(np.int64) - ordered[order]))[below]
    return np.asarray(np.where(sizes <= thresholds[np.argmax(gained)], tied, ordered), dtype=np.float64)


# Agreement in the values themselves, not only in their order: Krippendorff's alpha and Cohen's kappa.
def counted_kappa(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """Compute Cohen's kappa (1960) in resamples (k, n) of choices (n,) between classes 0 and 1; .5 is a tie.

    It is (p_o - p_e) / (1 - p_e) with the share p_o of equal choices, ties counting half, and the share p_e expected by
    chance from the raters' rates; NaN if both always choose the same class.
    """
    observed, p, q = (counts @ np.column_stack([x * y + (1 - x) * (1 - y), x, y]) / counts.sum(axis=1)[:, None]).T
    chance = p * q + (1 - p) * (1 - q)
    return ratio(observed - chance, 1 - chance)


def counted_alpha(counts: FloatArray, scores: FloatArray, human: FloatArray) -> FloatArray:
    """Compute Krippendorff's alpha of a judge and people as two raters (n,) on a common scale in resamples (k, n).

    It is 1 minus observed divided by expected disagreement (Krippendorff 2011): the mean squared difference between the
    two ratings of an item, and between any two ratings. NaN if all ratings are equal.
    """
    both, twice = settled(np.concatenate([scores, human])), np.tile(counts, 2)  # (2n,), (k, 2n)
    total = twice.sum(axis=1)
    x = both - (twice @ both / total)[:, None]
    of_judge, of_people = np.split(x, 2, axis=1)
    observed = (counts * 2 * (of_judge - of_people) ** 2).sum(axis=1) / total
    expected = 2 * (twice * x**2).sum(axis=1) / (total - 1)  # the centered sum is 0
    return ratio(expected - observed, expected)


# Agreement of people with each other.


def one_against_the_others(ratings: FloatArray) -> FloatArray:
    """Return (n, r, 2): each of the (n, r) ratings, and the mean of its item's others; NaN if either is missing."""
    present = ~np.isnan(ratings)
    others = np.where(present, present.sum(axis=1, keepdims=True) - 1, 0).astype(np.float64)
    means = ratio(np.nansum(ratings, axis=1, keepdims=True) - np.nan_to_num(ratings), others)
    return np.stack([np.where(np.isnan(means), np.nan, ratings), means], axis=2)


def ceiling_columns(ratings: FloatArray) -> FloatArray:
    """Return (n, 3r) columns for ``counted_ceiling`` from (n, r) ratings, NaN where a rater gave none.

    They are the ratings, the mean of the item's others, and 1 if both exist, else 0; NaN for an item without ratings.
    """
    present = ratings[~np.isnan(ratings)]
    unit = float(np.ptp(present)) or 1.0 if len(present) else 1.0
    pairs = np.round(one_against_the_others(ratings / unit), 9) * unit  # rounding errors would break ties of means
    compared = ~np.isnan(pairs[:, :, 1])
    columns = [np.where(compared, part, 0.0) for part in np.moveaxis(pairs, 2, 0)]
    return np.where(compared.any(axis=1, keepdims=True), np.concatenate([*columns, compared], axis=1), np.nan)


def counted_ceiling(
    counts: FloatArray, columns: FloatArray, *, statistic: resample.Statistic = counted_spearman
) -> FloatArray:
    """Average over raters the agreement of a rater with the mean of the item's other ratings, in resamples (k, n).

    Raters are compared singly, so a stricter rater changes nothing; each counts by the number of its items (columns (n,
    3r) from ``ceiling_columns``), unless its ``statistic`` is undefined. A column with a different person for each
    item, such as crowd workers, counts as a rater whose error includes the workers' severity. For ratings 0 and 1,
    ``counted_kappa`` gives Cohen's kappa of a rater with another rater of the item, drawn at random.
    """
    own, others, compared = np.split(columns, 3, axis=1)  # (n, r) each
    rated = [np.flatnonzero(column) for column in compared.T]
    with np.errstate(invalid="ignore"):  # a resample without a rater's items
        agreements = np.stack([statistic(counts[:, i], own[i, j], others[i, j]) for j, i in enumerate(rated)], axis=1)
    weights = np.where(np.isnan(agreements), 0.0, counts @ compared)  # (k, r)
    return ratio((np.nan_to_num(agreements) * weights).sum(axis=1), weights.sum(axis=1))
