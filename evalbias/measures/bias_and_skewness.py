"""Self-bias: how far a model's scores of its own outputs exceed their true quality (Xu et al. 2024, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import NO_SPREAD, FloatArray, IntArray
from evalbias.measures.checks import defined, vectors
from evalbias.measures.resampling import chunks

ROUNDING = 1e-9
"""Relative rounding error up to which a resample is as skewed as the data."""


@dataclass(frozen=True)
class SelfBias:
    """Self-bias of a model on a set of its outputs.

    Attributes:
        bias: Mean of own minus expected score (eq 1), in points; positive if the model overrates its outputs.
        skewness: Distance skewness of the differences around 0 (eq 2), in [0, 1].
        own: Mean of the model's own scores, in points.
        expected: Mean of the expected scores, in points.
        n: Number of items used.
        undefined: Number of items left out because a score is NaN.
    """

    bias: float
    skewness: float
    own: float
    expected: float
    n: int
    undefined: int


def self_bias(own: ArrayLike, expected: ArrayLike) -> float:
    """Compute Bias, ``1/n sum_i (theta_i - E(theta_i))``: own minus expected score (Xu et al. 2024, eq 1).

    Args:
        own: (n,) scores that the model gave to its own outputs; items with a NaN are left out.
        expected: (n,) expected scores of the same outputs on the same scale: human scores, a reference-based metric
            mapped with ``QuantileMap``, or a predefined criterion.

    Returns:
        Bias in points, positive if the model overrates its outputs; NaN if no item is defined.

    Raises:
        ValueError: The lengths differ, or a score is infinite.

    Examples:
        >>> self_bias([-5, -1, 0], [-10, -4, 0])
        2.6666666666666665
    """
    return measure_self_bias(own, expected).bias


def distance_skewness(x: ArrayLike, *, gamma: float = 0.0) -> float:
    """Compute the distance skewness of a sample around gamma (Xu et al. 2024, eq 2).

    ``dSkew = 1 - sum_ij |x_i - x_j| / sum_ij |x_i + x_j - 2 gamma|`` over all ordered pairs with i = j included,
    computed from the sorted values in O(n log n).

    Args:
        x: (n,) values, such as own minus expected scores; NaN is left out.
        gamma: Center of symmetry.

    Returns:
        Skewness in [0, 1]: 0 if and only if the sample is symmetric around gamma, 1 if all values equal one constant
        other than gamma. NaN if no value is defined or all of them equal gamma.

    Raises:
        ValueError: A value is infinite.

    Examples:
        >>> distance_skewness([0.0, 3.0])
        0.5
    """
    (values,) = vectors(x=x)
    values = values[defined(values)]
    if np.isinf(values - gamma).any():
        raise ValueError(f"x minus gamma={gamma} is infinite for at least one value; leave such values out as NaN.")
    y = np.sort(differences(values, np.full(len(values), float(gamma))))
    denominator = _sum_of_sums(y)
    if not len(y) or denominator == 0.0:
        return float("nan")
    return float(np.clip(1.0 - _sum_of_differences(y) / denominator, 0.0, 1.0))


def skewness_rows(x: FloatArray) -> FloatArray:
    """Compute the distance skewness around 0 of each row of x (k, n), without NaN; see ``weighted_skewness``."""
    order = np.argsort(np.abs(x), axis=1)
    ordered = np.take_along_axis(x, order, axis=1)
    return _skewness(np.abs(ordered), np.sign(ordered) / x.shape[1], np.full(x.shape, 1 / x.shape[1]))


def weighted_skewness(x: FloatArray, counts: FloatArray) -> FloatArray:
    """Compute the distance skewness around 0 of resamples.

    With ``min(|a|, |b|) = integral_0^inf 1[|a| > t] 1[|b| > t] dt``, the sums of ``|a - b|`` and ``|a + b|`` over all
    pairs are integrals of squares: of the signed and of the plain number of values beyond t.

    Args:
        x: (n,) values without NaN.
        counts: (k, n) how often each resample holds each value.

    Returns:
        (k,) skewness in [0, 1]; NaN where all values of a resample are 0.
    """
    order, starts, sizes = _sizes(x)
    shares = counts / counts.sum(axis=1, keepdims=True)
    signed, plain = (np.add.reduceat(w[:, order], starts, axis=1) for w in (shares * np.sign(x), shares))
    return _skewness(sizes[None], signed, plain)


def _sizes(x: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Sort values by magnitude: return the order (n,), where in it each magnitude starts (m,), and the magnitudes."""
    order = np.argsort(np.abs(x))
    starts = np.flatnonzero(np.diff(np.abs(x)[order], prepend=np.nan))
    return order, starts, np.abs(x)[order][starts]


def _skewness(size: FloatArray, signed: FloatArray, plain: FloatArray) -> FloatArray:
    """Compute the skewness of rows.

    Args:
        size: (k, m) or (1, m) ascending magnitudes.
        signed: (k, m) share of the row's values with this magnitude that are positive, minus that of negative ones.
        plain: (k, m) share of both.
    """
    steps = np.diff(size, axis=1, prepend=0.0)
    differences, lower = ((_beyond(w) ** 2 * steps).sum(axis=1) for w in (signed, plain))  # of +-min(|a|, |b|)
    sums = 2 * (plain * size).sum(axis=1) - lower + differences  # |a + b| = max(|a|, |b|) +- min(|a|, |b|)
    values = np.divide(2 * differences, sums, out=np.full(len(plain), np.nan), where=sums > 0)
    return np.asarray(np.clip(values, 0.0, 1.0))


def symmetry_p_value(x: FloatArray, codes: IntArray, *, n_resamples: int, rng: np.random.Generator) -> float:
    """Test whether values are distributed symmetrically around 0, by random changes of sign.

    Under symmetry every cluster is as likely as the same with all signs changed. p is the share of resamples, the data
    among them, at least as skewed as the data.

    Args:
        x: (n,) values without NaN.
        codes: (n,) number of each value's cluster, from 0.
        n_resamples: Random changes of sign.
        rng: Source of the changes.

    Returns:
        p in [1 / (n_resamples + 1), 1].
    """
    order, starts, sizes = _sizes(x)
    signs, steps, codes = np.sign(x[order]), np.diff(sizes, prepend=0.0), codes[order]

    def differences(signs: FloatArray) -> FloatArray:  # the other sums of the skewness have no signs
        return np.asarray(_beyond(np.add.reduceat(signs, starts, axis=1)) ** 2 @ steps)

    observed = differences(signs[None]).item()
    extreme = 0
    for k in map(len, chunks(n_resamples, len(x))):
        flips = rng.choice(np.array([-1.0, 1.0]), size=(k, int(codes.max()) + 1))
        extreme += int((differences(signs * flips[:, codes]) >= observed * (1 - ROUNDING)).sum())
    return (1 + extreme) / (1 + n_resamples)


def _beyond(weights: FloatArray) -> FloatArray:
    """Sum each value's weight and those after it."""
    return np.asarray(np.cumsum(weights[:, ::-1], axis=1)[:, ::-1])


def differences(own: FloatArray, expected: FloatArray) -> FloatArray:
    """Subtract expected from own scores; 0 where all of the differences are rounding errors of the scores."""
    found = own - expected
    sizes = [np.abs(x[~np.isnan(found)]).max(initial=0.0) for x in (found, own, expected)]
    return np.where(np.isnan(found), np.nan, 0.0) if sizes[0] <= NO_SPREAD * max(sizes[1:]) else found


def measure_self_bias(own: ArrayLike, expected: ArrayLike) -> SelfBias:
    """Compute Bias and the distance skewness around 0; arguments and errors as in ``self_bias``.

    Examples:
        >>> measure_self_bias([-5, -1, -2], [-10, -4, float("nan")])
        SelfBias(bias=4.0, skewness=0.875, own=-3.0, expected=-7.0, n=2, undefined=1)
    """
    own_scores, expected_scores = vectors(own=own, expected=expected)
    kept = defined(own_scores, expected_scores)
    own_scores, expected_scores = own_scores[kept], expected_scores[kept]
    n, undefined = len(own_scores), int((~kept).sum())
    if not n:
        nan = float("nan")
        return SelfBias(nan, nan, nan, nan, 0, undefined)
    difference = differences(own_scores, expected_scores)
    bias, skewness = float(difference.mean()), distance_skewness(difference)
    return SelfBias(bias, skewness, float(own_scores.mean()), float(expected_scores.mean()), n, undefined)


def _sum_of_differences(y: FloatArray) -> float:
    """Compute ``sum_ij |y_i - y_j|`` for sorted values: each gap counts once per pair with a value on either side."""
    n = len(y)
    below = np.arange(1, n, dtype=np.float64)
    return float(2 * (np.diff(y) * below * (n - below)).sum())


def _sum_of_sums(y: FloatArray) -> float:
    """Compute ``sum_ij |y_i + y_j|`` for sorted values: in row i the sums are positive from ``y_j >= -y_i`` on."""
    n, before = len(y), np.concatenate([[0.0], np.cumsum(y)])
    first = n - np.searchsorted(-y[::-1], y, side="right")  # first j with y_j >= -y_i
    above = before[n] - 2 * before[first] + y * (n - 2 * first)
    return float(above.sum())
