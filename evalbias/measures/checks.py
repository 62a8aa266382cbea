"""Checks of input arrays that all measures share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray


def vector(values: ArrayLike, name: str) -> FloatArray:
    """Convert values to a 1-D float array; NaN is allowed and means undefined.

    Raises:
        ValueError: The values are not one-dimensional, or one is infinite; the message gives its index.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has the shape {array.shape}; give one number per item.")
    infinite = np.flatnonzero(np.isinf(array))
    if len(infinite):
        raise ValueError(f"{name}[{infinite[0]}] is infinite; use NaN for undefined values.")
    return array


def vectors(**arrays: ArrayLike) -> list[FloatArray]:
    """Convert several arrays with ``vector`` and check that they have the same length.

    Raises:
        ValueError: The lengths differ, or an array fails ``vector``.
    """
    checked = {name: vector(values, name) for name, values in arrays.items()}
    if len({len(v) for v in checked.values()}) > 1:
        sizes = ", ".join(f"{name} {len(v)}" for name, v in checked.items())
        raise ValueError(f"The arrays have different lengths: {sizes}. Give the same items in the same order.")
    return list(checked.values())


def check_confidence(confidence: float) -> None:
    """Refuse a confidence level that is no probability, such as 95.

    Raises:
        ValueError: The level does not lie between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: give a number between 0 and 1, such as 0.95.")


def defined(*arrays: FloatArray) -> BoolArray:
    """Mark the items that are not NaN in any of the arrays, shape (n,)."""
    return np.asarray(~np.isnan(np.stack(arrays)).any(axis=0))


def mean_of_defined(values: ArrayLike) -> float:
    """Average the values that are not NaN; NaN if all of them are.

    Examples:
        >>> mean_of_defined([1.0, float("nan"), 2.0])
        1.5
    """
    row = np.asarray(values, dtype=np.float64)
    kept = row[~np.isnan(row)]
    return float(kept.mean()) if len(kept) else float("nan")
