"""What every measure asks of its arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def vector(values: ArrayLike, name: str) -> FloatArray:
    """A 1-D float array; NaN is allowed and means undefined.

    Raises:
        ValueError: Another shape, or infinite values; the first is named.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has the shape {array.shape}: give one number an item.")
    if np.isinf(array).any():
        raise ValueError(f"{name}[{int(np.flatnonzero(np.isinf(array))[0])}] is infinite: give NaN if it is undefined.")
    return array


def vectors(**arrays: ArrayLike) -> list[FloatArray]:
    """Several of them, of one length.

    Raises:
        ValueError: As ``vector``, or different lengths; all are named.
    """
    found = {name: vector(values, name) for name, values in arrays.items()}
    if len({len(v) for v in found.values()}) > 1:
        sizes = ", ".join(f"{name} {len(v)}" for name, v in found.items())
        raise ValueError(f"Different numbers of items: {sizes}. Give the same items in the same order.")
    return list(found.values())


def defined(*arrays: FloatArray) -> NDArray[np.bool_]:
    """(n,) whether an item is defined in every array."""
    return np.asarray(~np.isnan(np.stack(arrays)).any(axis=0))


def mean_of_defined(values: ArrayLike) -> float:
    """The mean without what is NaN; NaN where nothing is left."""
    row = np.asarray(values, dtype=np.float64)
    kept = row[~np.isnan(row)]
    return float(kept.mean()) if len(kept) else float("nan")
