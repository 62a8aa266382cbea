"""Scores and ratings that are missing: whether that depends on what is known about the items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy

from evalbias.measures.arrays import BoolArray, Clusters, FloatArray, cluster_codes, sums_by_cluster

DRAWS, BLOCK = 2_000, 100  # draws of a test, and of these at a time, which bounds the memory
MOST_DRAWN = 20_000_000  # items that the draws of a test hold together, where inputs are exchanged
MANY = 100  # levels from which numpy draws faster by counting


def missing_by_size(absent: BoolArray, x: FloatArray, *, clusters: Clusters = None) -> tuple[float, float]:
    """Return by how many standard deviations x (n,) is larger where scores (n,) are missing, and the p that it is not.

    The two-sided p is that of the score test of the logistic model on the ranks of x (Wilcoxon's), clustered by input
    where inputs are lost as a whole. Both are NaN where ``absent`` or x is constant.
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
    """Return the exact p, by random draws, that the missing scores (n,) spread over the levels (n,) by chance.

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
    items = np.bincount(inputs)  # (G,) of each input
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


# Ratings that were given or not according to an item's other ratings.
#
# Where a third person decides between two who differ, the items with three ratings are those with noise. Averages over
# an item's pairs of ratings then count its noise less than that of others, and ratings seem more reliable than they
# are. Where a second person rates what the first one rated low, the items with two ratings are those that the first
# one underrated.

SURE = 0.001  # p below which ratings are missing for what the others say
KEEP = 0.9  # share of the items with two ratings that still have two without a column that is left out


def selected_columns(ratings: FloatArray, *, clusters: Clusters = None) -> tuple[list[int], bool]:
    """Find ratings (n, r), NaN where none, that were given or not for what the item's other ratings say.

    A column is tested by the first two others of an item: how far they differ, and how far their mean lies from the
    middle; whether there is a second rating by the first one: how high it is, and how far it lies from the middle.
    These are rank tests, over inputs (``clusters``).

    Returns:
        Columns to leave out, because nine of ten items with two ratings still have two without them; and whether the
        number of ratings that are left depends on what they say.
    """
    left_out, doubtful = list[int](), False

    def depends(absent: BoolArray, *properties: FloatArray) -> bool:
        return any(missing_by_size(absent, x, clusters=clusters)[1] < SURE for x in properties)  # NaN is not below

    def remaining(*columns: int) -> FloatArray:
        return np.delete(ratings, [*columns, *left_out], axis=1)

    for column in reversed(range(2, ratings.shape[1])):
        first, second = _firsts(remaining(column))
        if depends(np.isnan(ratings[:, column]), np.abs(first - second), _from_middle(first + second)):
            twice = (~np.isnan(remaining())).sum(axis=1) > 1
            if (~np.isnan(second))[twice].mean() >= KEEP:
                left_out.append(column)
            else:
                doubtful = True
    if ratings.shape[1] > 1:
        first, second = _firsts(remaining())
        doubtful |= depends(np.isnan(second), first, _from_middle(first))
    return left_out[::-1], doubtful


def _firsts(ratings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each item's first and second rating (n,), NaN where it has none."""
    order = np.argsort(np.isnan(ratings), axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(ratings, order, axis=1).T
    return first, second


def _from_middle(x: FloatArray) -> FloatArray:
    return np.abs(x - np.median(x[~np.isnan(x)])) if not np.isnan(x).all() else x
