"""Tests of several systems together: the chance of any false finding stays at the level (family-wise error)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evalbias.measures.arrays import SLACK, FloatArray


def step_down(statistics: FloatArray, draws: FloatArray) -> FloatArray:
    """Adjust p-values of one-sided tests, of statistics (m,), by joint draws (R, m) of them under the null hypotheses.

    This is the step-down max-T procedure of Westfall and Young (1993, algorithm 4.1): the largest statistic is compared
    with the largest of all draws, the next one with the largest draw of the remaining statistics. Perfectly dependent
    statistics cost no more than a single test. p (m,) is in [1 / (R + 1), 1]; NaN if undefined.
    """
    adjusted, largest = np.full(len(statistics), np.nan), 0.0
    left = [int(j) for j in np.argsort(-statistics) if not np.isnan(statistics[j])]
    while left:
        reached = ~(draws[:, left].max(axis=1) < statistics[left[0]])  # NaN is not below
        largest = max(largest, (1 + reached.sum()) / (1 + len(draws)))
        adjusted[left.pop(0)] = largest
    return adjusted


def nonzero(value: float, errors: FloatArray) -> float:
    """Compute the two-sided p, at least 1 / (R + 1), of a number being 0, from draws (R,) of its error."""
    if np.isnan(value) or np.isnan(errors).any():
        return float("nan")
    return float((1 + (np.abs(errors) >= abs(value)).sum()) / (1 + len(errors)))


def smaller_in_magnitude(values: FloatArray, errors: FloatArray) -> FloatArray:
    """Test for m estimates whether they are smaller in magnitude than the first (1 + m in all), such as biases.

    With s the sign of the first number a, ``|a| - |b|`` is the smaller of ``s (a - b)`` and ``s (a + b)``. Both must be
    positive, so the smaller t is the test statistic of b. s must be known: the error holds together with a test that a
    is not 0 (``nonzero``). Errors are joint draws (R, 1 + m). Returns (m,) one-sided p-values, adjusted by
    ``step_down``; NaN if a number or its error is undefined.
    """
    sign = np.sign(values[0])
    gaps = sign * np.stack([values[0] - values[1:], values[0] + values[1:]])  # (2, m)
    drawn = sign * np.stack([errors[:, :1] - errors[:, 1:], errors[:, :1] + errors[:, 1:]], axis=1)  # (R, 2, m)
    scale = drawn.std(axis=0)
    unit = np.where(scale > 0, scale, np.inf)  # numbers that always agree differ by 0 standard errors
    t, columns = gaps / unit, np.arange(len(values) - 1)
    nearest = np.where(t[0] <= t[1], 0, 1)  # the side on which the magnitudes may be equal
    undefined = np.isnan(t).any(axis=0) | np.isnan(scale).any(axis=0)
    return step_down(np.where(undefined, np.nan, t[nearest, columns]), (drawn / unit)[:, nearest, columns])


def higher_than_first(values: FloatArray, errors: FloatArray) -> FloatArray:
    """Test for m estimates whether they are higher than the first (1 + m in all), such as agreement with people.

    Errors are joint draws (R, 1 + m). Returns (m,) one-sided p-values, adjusted by ``step_down``; NaN where undefined.
    """
    gaps, drawn = values[1:] - values[0], errors[:, 1:] - errors[:, :1]
    scale = drawn.std(axis=0)
    unit = np.where(scale > SLACK, scale, np.inf)  # estimates that always agree differ by 0 standard errors
    return step_down(np.where(np.isnan(scale), np.nan, gaps / unit), drawn / unit)


def holm(p_values: Sequence[float], families: int = 1) -> list[float]:
    """Adjust p-values so that rejecting those below alpha has a family-wise error of alpha (Holm 1979).

    An undefined p (NaN) stays undefined and does not count as a test. With several ``families`` of tests, each adjusted
    this way, the error of all together is at most alpha (Bonferroni).

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    defined = [index for index, p_value in enumerate(p_values) if not math.isnan(p_value)]
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(sorted(defined, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, families * (len(defined) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
