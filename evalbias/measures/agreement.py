"""Agreement of a judge with people: rank and linear correlation, pooled or averaged over groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, settled
from evalbias.measures.checks import common_index, defined, groups_of, vectors
from evalbias.measures.ranks import pearson_rows, spearman_rows


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
