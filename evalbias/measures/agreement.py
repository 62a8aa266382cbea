"""Agreement of a judge with people: rank and linear correlation, pooled or within groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from evalbias.measures.checks import defined, vectors
from evalbias.measures.ranks import pearson_rows, spearman_rows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """A correlation.

    Attributes:
        value: In [-1, 1]; with groups, the mean over those where it is defined; NaN if there is none.
        n: Items that count.
        undefined: Items left out because a score is NaN.
        groups: Groups that count (1 when pooled).
        undefined_groups: Groups without a correlation: fewer than two items, or a constant side.
        by_group: (groups + undefined_groups,) of each group in the order they come; NaN where undefined.
    """

    value: float
    n: int
    undefined: int
    groups: int
    undefined_groups: int
    by_group: tuple[float, ...]


def spearman(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Spearman's rho with ties averaged.

    Args:
        x: (n,) scores, NaN where undefined.
        y: (n,) scores of the same items.
        groups: (n,) the group (document) of each item; by default all are pooled.

    Examples:
        >>> spearman([1, 2, 3], [1, 3, 2]).value
        0.5
    """
    return _agreement(_unless_constant(lambda a, b: float(spearman_rows(a[None], b[None])[0])), x, y, groups)


def pearson(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Pearson's correlation; arguments as ``spearman``."""
    return _agreement(_unless_constant(lambda a, b: float(pearson_rows(a[None], b[None])[0])), x, y, groups)


def kendall(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Kendall's tau-b; arguments as ``spearman``."""
    return _agreement(_unless_constant(lambda a, b: float(stats.kendalltau(a, b).statistic)), x, y, groups)


def pairwise_accuracy(x: ArrayLike, y: ArrayLike, *, groups: Sequence[object] | None = None) -> Agreement:
    """Share of pairs that x orders as y does, in [0, 1]; chance is .5. Arguments as ``spearman``.

    Pairs that y ties are left out; a pair that only x ties counts half.

    Examples:
        >>> pairwise_accuracy([1, 2, 2], [1, 2, 3]).value  # right, right, a tie
        0.8333333333333334
    """
    return _agreement(_ordered_alike, x, y, groups)


def _ordered_alike(a: FloatArray, b: FloatArray) -> float:
    first, second = np.triu_indices(len(a), 1)
    mine, theirs = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    alike = (mine * theirs)[theirs != 0]
    return float((1 + alike).mean() / 2) if len(alike) else float("nan")


def _agreement(
    correlation: Callable[[FloatArray, FloatArray], float],
    x: ArrayLike,
    y: ArrayLike,
    groups: Sequence[object] | None,
) -> Agreement:
    a, b = vectors(x=x, y=y)
    if groups is not None and len(groups) != len(a):
        raise ValueError(f"groups has {len(groups)} entries for {len(a)} items: give each item its group.")
    kept = defined(a, b)
    members: dict[object, list[int]] = {}
    for index, usable in enumerate(kept):
        members.setdefault(None if groups is None else groups[index], []).extend([index] if usable else [])
    values = tuple(correlation(a[i], b[i]) if len(i) > 1 else float("nan") for i in members.values())
    found = [v for v in values if not np.isnan(v)]
    value = float(np.mean(found)) if found else float("nan")
    return Agreement(value, int(kept.sum()), int((~kept).sum()), len(found), len(values) - len(found), values)


def _unless_constant(correlation: Callable[[FloatArray, FloatArray], float]) -> Callable[..., float]:
    """The correlation, NaN where a side is constant."""
    return lambda a, b: float("nan") if a.min() == a.max() or b.min() == b.max() else correlation(a, b)
