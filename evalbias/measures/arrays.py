"""Types, checks and small tools for arrays that all measures share; NaN means undefined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Before = ArrayLike | None  # scores of another judge of the same items, whose estimate is subtracted: after minus before
Clusters = Sequence[object] | None
"""Cluster of each item (n,), such as its input, whose outputs are drawn and swapped together; None: one per item."""

Result = TypeVar("Result")

TINY = 1e-20  # largest variance or denominator that is a rounding error of 0
SLACK = 1e-12  # largest rounding error between equal values of a statistic near 1
NO_SPREAD = 1e-9  # largest spread, relative to the largest magnitude, that is a rounding error


def settled(x: FloatArray) -> FloatArray:
    """Make the values of each row (..., n) equal where all differ by no more than rounding errors; NaN stays NaN.

    Sums, logarithms and probabilities that should be equal often differ in the last digits, which a correlation or a
    standardized score would inflate.

    Examples:
        >>> settled(np.array([[0.1 + 0.2, 0.3], [0.1, 0.2]])).tolist()
        [[0.3, 0.3], [0.1, 0.2]]
    """
    if not x.size:
        return x
    low, high = (end.reduce(x, axis=-1, keepdims=True) for end in (np.fmin, np.fmax))
    alike = high - low <= NO_SPREAD * np.maximum(-low, high)
    return np.where(alike & ~np.isnan(x), low, x) if alike.any() else x


def standardized(x: FloatArray) -> FloatArray:
    """Bring (n,) values to mean 0 and standard deviation 1; NaN if they are constant up to rounding."""
    x = settled(x)
    return np.asarray((x - x.mean()) / x.std()) if len(x) and np.ptp(x) > 0 else np.full(len(x), np.nan)


LARGEST_INTEGER = 2**53  # largest integer that floats distinguish from all of its neighbors
_NO_NUMBERS = {"c": "complex numbers", "M": "dates", "m": "durations", "S": "bytes"}


def numbers(values: ArrayLike, name: str) -> FloatArray:
    """Convert values to a float array of the same shape; True is 1, and a masked array is refused."""
    parts = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise ValueError(f"{name} is masked: give NaN for masked values, as values.filled(numpy.nan) of floats does.")
    raw: Any = np.asarray(values)
    kinds = {np.asarray(value).dtype.kind for value in raw.flat} if raw.dtype == object else {raw.dtype.kind}
    if refused := kinds & _NO_NUMBERS.keys():
        raise ValueError(f"{name} holds {_NO_NUMBERS[min(refused)]}: give real numbers.")
    integers: Any = [v for v in raw.flat if isinstance(v, int | np.integer)] if raw.dtype == object else raw
    whole = kinds & {"i", "u", "O"} and np.size(integers)
    if whole and max(abs(int(end)) for end in (np.min(integers), np.max(integers))) > LARGEST_INTEGER:
        raise ValueError(f"{name} holds integers beyond 2**53, which floats cannot tell apart: subtract an offset.")
    if raw.dtype == object:
        raw = np.array([np.nan if missing(v) else v for v in raw.flat], dtype=np.float64).reshape(raw.shape)
    return np.asarray(raw, dtype=np.float64)


def common_index(*values: object) -> Any:
    """Return the common pandas index of the values, None if none has an index; refuse different indexes."""
    attributes: list[Any] = [getattr(value, "index", None) for value in values]
    indexes = [index for index in attributes if hasattr(index, "equals")]
    if any(not indexes[0].equals(index) for index in indexes[1:]):
        fault = "The pandas indexes of the arrays differ: bring them into one order, as by second.reindex(first.index)"
        raise ValueError(f"{fault}, or give second.to_numpy() if the same items stand at the same places.")
    return indexes[0] if indexes else None


def missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, NaT, or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA is not even unequal to itself
        return True


def checked(
    columns: Mapping[str, ArrayLike], clusters: Clusters = None, *, axes: tuple[int, ...] = (1, 2)
) -> list[FloatArray]:
    """Convert arrays about the same n items, (n,) or (n, d) each, to floats; NaN is allowed and means undefined.

    Refuses other numbers of ``axes``, infinite values, and different lengths or pandas indexes, clusters included.
    """
    common_index(*columns.values(), clusters)
    arrays = {name: numbers(values, name) for name, values in columns.items()}
    for name, array in arrays.items():
        if array.ndim not in axes:
            content = "one number" if axes == (1,) else "one number, or one row,"
            raise ValueError(f"{name} has the shape {array.shape}; give {content} per item.")
        infinite = np.argwhere(np.isinf(array))
        if len(infinite):
            raise ValueError(f"{name}[{', '.join(map(str, infinite[0]))}] is infinite; use NaN for undefined values.")
    if len({len(array) for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ValueError(f"The arrays have different lengths: {sizes}. Give the same items in the same order.")
    return list(arrays.values())


def vectors(**columns: ArrayLike) -> list[FloatArray]:
    """Convert (n,) arrays with ``checked``."""
    return checked(columns, axes=(1,))


def defined(*columns: FloatArray) -> BoolArray:
    """Mark the items (n,) that hold no NaN in any of the arrays, (n,) or (n, d) each."""
    return np.asarray(~np.any([np.isnan(c).any(axis=tuple(range(1, c.ndim))) for c in columns], axis=0))


def complete(*columns: FloatArray, clusters: Clusters = None) -> tuple[list[FloatArray], IntArray]:
    """Return the columns, (n,) or (n, d), of the m items without a NaN, ``settled``, and their ``cluster_codes``."""
    kept = defined(*columns)
    return [settled(column[kept].T).T for column in columns], cluster_codes(clusters, kept)


def cluster_codes(clusters: Clusters, kept: BoolArray, name: str = "clusters") -> IntArray:
    """Number the clusters of the m kept items (m,) from 0 by first appearance; else each item is its own.

    They are matched by position, not by a pandas label. A missing cluster is refused, because it groups nothing.
    """
    if clusters is None:
        return np.arange(int(kept.sum()))
    if len(clusters) != len(kept):
        raise ValueError(f"{name} has {len(clusters)} entries for {len(kept)} items: give one entry an item.")
    codes: dict[object, int] = {}
    used = {place: cluster for place, (cluster, is_kept) in enumerate(zip(clusters, kept, strict=True)) if is_kept}
    for place, cluster in used.items():
        if missing(cluster):
            raise ValueError(f"{name}[{place}] is {cluster!r}: give each item its group, or a name of its own.")
    return np.array([codes.setdefault(cluster, len(codes)) for cluster in used.values()], dtype=np.int64)


def members_of(codes: IntArray) -> list[IntArray]:
    """Return the places of each cluster's items, in their order."""
    ends = np.cumsum(np.bincount(codes))
    return np.split(np.argsort(codes, kind="stable"), ends[:-1])[: len(ends)]


def sums_by_cluster(values: FloatArray, codes: IntArray) -> FloatArray:
    """Sum (n, ...) values over each of G clusters, numbered by ``cluster_codes``; (G, ...)."""
    groups = int(codes.max()) + 1
    columns = [np.bincount(codes, column, groups) for column in values.reshape(len(values), -1).T]
    return np.stack(columns, axis=1).astype(np.float64).reshape(groups, *values.shape[1:])


def remembered(work: Callable[..., Result], results: int = 1) -> Callable[..., Result]:
    """Cache the last results of a function of arrays and hashable options, from which several numbers are read."""

    @lru_cache(maxsize=results)
    def kept(*parts: Any, **options: Any) -> Result:
        return work(*(np.frombuffer(data, kind).reshape(shape) for data, kind, shape in parts), **options)

    def call(*arrays: NDArray[Any], **options: Any) -> Result:
        return kept(*((array.tobytes(), array.dtype.str, array.shape) for array in arrays), **options)

    return call


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide arrays of equal shape; NaN where the denominator is not above 0."""
    undefined = np.full(denominator.shape, np.nan)
    return np.asarray(np.divide(numerator, denominator, out=undefined, where=denominator > TINY))


def normalized(logprobs: FloatArray) -> FloatArray:
    """Normalize log-probabilities of answers (..., c) to probabilities; NaN for a row of -inf."""
    with np.errstate(invalid="ignore"):  # a row of -inf becomes NaN: undefined, not uniform
        return np.asarray(scipy.special.softmax(logprobs, axis=-1), dtype=np.float64)


def mean_of_defined(values: ArrayLike) -> float:
    """Average the values that are not NaN; NaN if all of them are.

    Examples:
        >>> mean_of_defined([1.0, float("nan"), 2.0])
        1.5
    """
    row = np.asarray(values, dtype=np.float64)  # None becomes NaN
    kept = row[~np.isnan(row)]
    return float(kept.mean()) if len(kept) else float("nan")
