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


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide arrays of one shape; NaN where the denominator is not above 0.

    Examples:
        >>> ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0])).tolist()
        [0.5, nan]
    """
    undefined = np.full(denominator.shape, np.nan)
    return np.asarray(np.divide(numerator, denominator, out=undefined, where=denominator > TINY))
