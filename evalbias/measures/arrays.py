"""Types of arrays, and division that leaves undefined what it cannot divide."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

TINY = 1e-20
"""Variance, or denominator of a sum of squares or of counts, up to which it is a rounding error of 0."""
SLACK = 1e-12
"""Rounding error up to which two values of a statistic, such as those of two resamples, are equal, for values of 1."""

NO_SPREAD = 1e-9
"""Spread of values, in units of the largest magnitude among them, up to which it is a rounding error of 0."""


def settled(x: FloatArray) -> FloatArray:
    """Return rows (..., n) whose values are made equal where all differ by no more than rounding errors.

    Sums, logarithms and probabilities that should be equal often differ in the last digits, and a correlation or a
    standardized score knows no size. What holds for equal values holds for such rows then. NaN stays NaN.

    Examples:
        >>> settled(np.array([[0.1 + 0.2, 0.3], [0.1, 0.2]])).tolist()
        [[0.3, 0.3], [0.1, 0.2]]
    """
    if not x.size:
        return x
    low, high = (end.reduce(x, axis=-1, keepdims=True) for end in (np.fmin, np.fmax))
    alike = high - low <= NO_SPREAD * np.maximum(-low, high)
    return np.where(alike & ~np.isnan(x), low, x) if alike.any() else x


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide arrays of one shape; NaN where the denominator is not above 0.

    Examples:
        >>> ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0])).tolist()
        [0.5, nan]
    """
    undefined = np.full(denominator.shape, np.nan)
    return np.asarray(np.divide(numerator, denominator, out=undefined, where=denominator > TINY))
