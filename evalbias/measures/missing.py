"""Missing scores and ratings: tests of dependence on known properties of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import scipy

from evalbias.measures.arrays import BoolArray, Clusters, FloatArray, cluster_codes, sums_by_cluster
from evalbias.measures.ratings import levels_of

DRAWS, BLOCK = 2_000, 100  # draws of a test, and draws at a time, which limits memory
MOST_DRAWN = 20_000_000  # items in all draws of a test together, if inputs are exchanged
MANY = 100  # number of levels above which numpy draws faster by counting


def missing_by_size(absent: BoolArray, x: FloatArray, *, clusters: Clusters = None) -> tuple[float, float]:
    """Return how many standard deviations x (n,) is larger where scores (n,) are missing, and the p-value.

    The two-sided p-value is that of the score test of the logistic model on the ranks of x (Wilcoxon's), clustered by
    input if whole inputs are lost. Both are NaN if ``absent`` or x is constant.
    """
    kept = ~np.isnan(x)
    codes, lost, x = cluster_codes(clusters, kept), absent[kept], x[kept]
    if not len(x) or np.ptp(x) == 0 or lost.all() or not lost.any():
        return math.nan, math.nan
    ranks = scipy.stats.rankdata(x) - (len(x) + 1) / 2
    parts, variance = (lost - lost.mean()) * ranks, lost.var() * (ranks**2).sum() * len(x) / (len(x) - 1)
    if clusters is not None:
        variance = max(variance, (sums_by_cluster(parts, codes) ** 2).sum())
    p_value = 2 * scipy.special.stdtr(max(int(codes.max()), 1), -abs(parts.sum()) / np.sqrt(variance))
    return float((x[lost].mean() - x[~lost].mean()) / x.std()), float(p_value)


def missing_by_level(absent: BoolArray, levels: Sequence[str], *, clusters: Clusters = None, seed: int = 0) -> float:
    """Return the exact p-value, by random draws, of missing scores (n,) spreading over the levels (n,) by chance.

    An input with several items may be lost as a whole. So inputs (``clusters``) with equally many items exchange the
    numbers of their missing scores, and these fall on any items of an input alike.
    """
    codes, inputs = np.unique(levels, return_inverse=True)[1], cluster_codes(clusters, np.ones(len(absent), dtype=bool))
    sizes, counts = np.bincount(codes), np.bincount(codes, weights=absent)
    observed, rng = (counts**2 / sizes).sum() * (1 - 1e-12), np.random.default_rng(seed)
    if clusters is None:
        method: Literal["count", "marginals"] = "count" if len(sizes) > MANY else "marginals"
        n = int(absent.sum())
        drawn = (rng.multivariate_hypergeometric(sizes, n, BLOCK, method=method) for _ in range(DRAWS // BLOCK))
        return (1 + sum(int(((missing**2 / sizes).sum(axis=1) >= observed).sum()) for missing in drawn)) / (1 + DRAWS)
    items = np.bincount(inputs)  # (G,) items of each input
    lost, first = np.bincount(inputs, weights=absent), np.repeat(np.cumsum(items) - items, items)
    alike = [np.flatnonzero(items == size) for size in np.unique(items)]
    draws, as_uneven = max(DRAWS // 10, min(DRAWS, MOST_DRAWN // len(absent))), 0
    for _ in range(draws):
        for those in alike:
            lost[those] = rng.permutation(lost[those])
        order = np.argsort(inputs + rng.random(len(absent)))  # inputs one by one, the items of each in random order
        taken = order[np.arange(len(order)) - first < np.repeat(lost, items)]
        if (np.bincount(codes[taken], minlength=len(sizes)) ** 2 / sizes).sum() >= observed:
            as_uneven += 1
    return (1 + as_uneven) / (1 + draws)


# Ratings whose presence depends on an item's other ratings.
#
# If a third person decides between two who differ, the items with three ratings are the noisy ones. Averages over
# an item's pairs of ratings then count its noise less than that of others, and ratings seem more reliable than they
# are. If a second person rates what the first rated low, the items with two ratings are those that the first
# underrated.

SURE = 0.001  # p-value below which ratings are missing because of other ratings
KEEP = 0.9  # smallest share of items with two ratings that keep two if a column is left out


def selected_columns(ratings: FloatArray, *, clusters: Clusters = None) -> tuple[list[int], bool]:
    """Find columns of ratings (n, r), NaN if missing, whose presence depends on the item's other ratings.

    A column is tested by the first two other ratings of an item: their difference, and the distance of their mean from
    the middle. The presence of a second rating is tested by the first: its value, and its distance from the middle.
    These are rank tests, over inputs (``clusters``).

    Returns:
        Columns to leave out, because nine of ten items with two ratings still have two without them; and True if the
        number of remaining ratings depends on their values.
    """
    left_out, doubtful = list[int](), False
    if not (rated := ~np.isnan(ratings).all(axis=1)).any() or ratings.shape[1] < 2:
        return left_out, doubtful
    # strict raters, and teams that share out the items, are no dependence on what other ratings say
    free, groups = ratings.copy(), np.full(len(ratings), -1)
    free[rated], _, groups[rated] = levels_of(ratings[rated])

    def depends(absent: BoolArray, without: list[int], *properties: Callable[..., FloatArray]) -> bool:
        """Return whether a property of the first two ratings says so within teams, with raters' levels and without."""
        in_team = np.isin(groups, groups[~absent])
        both = [np.where(in_team, _firsts(np.delete(table, without, axis=1)), np.nan) for table in (ratings, free)]
        tests = ([missing_by_size(absent, of(*x), clusters=clusters)[1] for x in both] for of in properties)
        return any(all(p < SURE for p in each) for each in tests)  # NaN is not below

    for column in reversed(range(2, ratings.shape[1])):
        others = [column, *left_out]
        if depends(np.isnan(ratings[:, column]), others, lambda a, b: np.abs(a - b), lambda a, b: _from_middle(a + b)):
            twice = (~np.isnan(np.delete(ratings, left_out, axis=1))).sum(axis=1) > 1
            if (~np.isnan(_firsts(np.delete(ratings, others, axis=1))[1]))[twice].mean() >= KEEP:
                left_out.append(column)
            else:
                doubtful = True
    once = np.isnan(_firsts(np.delete(ratings, left_out, axis=1))[1])
    doubtful |= depends(once, left_out, lambda a, _: a, lambda a, _: _from_middle(a))
    return left_out[::-1], doubtful


def _firsts(ratings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each item's first and second rating (n,), NaN if missing."""
    order = np.argsort(np.isnan(ratings), axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(ratings, order, axis=1).T
    return first, second


def _from_middle(x: FloatArray) -> FloatArray:
    return np.abs(x - np.median(x[~np.isnan(x)])) if not np.isnan(x).all() else x
