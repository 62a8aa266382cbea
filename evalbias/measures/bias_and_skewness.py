"""Self-bias: how far a judge's scores of its own outputs lie above what they are worth (Xu et al. 2024, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.checks import defined, vectors

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class SelfBias:
    """Own scores beside expected ones.

    Attributes:
        bias: Mean difference (eq 1), in points of the scores; positive where the judge flatters itself.
        skewness: Distance skewness of the differences around 0 (eq 2), in [0, 1].
        own: Mean own score.
        expected: Mean expected score.
        n: Items that count.
        undefined: Items left out because a score is NaN.
    """

    bias: float
    skewness: float
    own: float
    expected: float
    n: int
    undefined: int


def self_bias(own: ArrayLike, expected: ArrayLike) -> float:
    """Mean of own minus expected score: ``1/n sum_i (theta_i - E(theta_i))`` (eq 1).

    Args:
        own: (n,) the judge's scores of its own outputs.
        expected: (n,) what they are worth, on the same range: people's scores, or a mapped metric's.

    Returns:
        Positive where the judge flatters itself. Pairs with a NaN are left out; NaN without any.

    Examples:
        >>> self_bias([-5, -1, 0], [-10, -4, 0])
        2.6666666666666665
    """
    return measure_self_bias(own, expected).bias


def distance_skewness(x: ArrayLike, *, gamma: float = 0.0) -> float:
    """How asymmetric a sample lies around gamma (eq 2).

    ``1 - sum_ij |x_i - x_j| / sum_ij |x_i + x_j - 2 gamma|`` over all ordered pairs, i = j included, in O(n log n).

    Args:
        x: (n,) values, NaN where undefined: left out.
        gamma: The center.

    Returns:
        In [0, 1]: 0 if and only if symmetric, 1 where all values are the same one beside gamma. NaN if nothing is
        defined or every value is gamma.

    Raises:
        ValueError: An infinite value.

    Examples:
        >>> distance_skewness([0.0, 3.0])
        0.5
    """
    (values,) = vectors(x=x)
    y = np.sort(values[defined(values)] - gamma)
    if np.isinf(y).any():
        raise ValueError("x holds an infinite value: leave it out as NaN.")
    whole = _sum_of_sums(y)
    if not len(y) or whole == 0.0:
        return float("nan")
    return float(np.clip(1.0 - _sum_of_differences(y) / whole, 0.0, 1.0))


def measure_self_bias(own: ArrayLike, expected: ArrayLike) -> SelfBias:
    """Bias and distance skewness (gamma = 0) of own minus expected scores; arguments as ``self_bias``."""
    mine, worth = vectors(own=own, expected=expected)
    kept = defined(mine, worth)
    mine, worth = mine[kept], worth[kept]
    n, undefined = len(mine), int((~kept).sum())
    if not n:
        nan = float("nan")
        return SelfBias(nan, nan, nan, nan, 0, undefined)
    difference = mine - worth
    bias, skewness = float(difference.mean()), distance_skewness(difference)
    return SelfBias(bias, skewness, float(mine.mean()), float(worth.mean()), n, undefined)


def _sum_of_differences(y: FloatArray) -> float:
    """``sum_ij |y_i - y_j|`` of sorted values: each gap is crossed by the pairs of one below and one above."""
    n = len(y)
    below = np.arange(1, n, dtype=np.float64)
    return float(2 * (np.diff(y) * below * (n - below)).sum())


def _sum_of_sums(y: FloatArray) -> float:
    """``sum_ij |y_i + y_j|`` of sorted values: in row i the sums turn positive at the first ``y_j >= -y_i``."""
    n, before = len(y), np.concatenate([[0.0], np.cumsum(y)])
    first = n - np.searchsorted(-y[::-1], y, side="right")  # first j with y_j >= -y_i
    above = before[n] - 2 * before[first] + y * (n - 2 * first)
    return float(above.sum())
