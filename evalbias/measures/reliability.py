"""Agreement in the values themselves, not only in their order: Krippendorff's alpha and Cohen's kappa."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, ratio, settled
from evalbias.measures.checks import defined, numbers, vectors
from evalbias.measures.ranks import rank_rows

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
