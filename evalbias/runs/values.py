"""Results as JSON and back: the one way in which every file of a run writes NaN, infinities, arrays and dataclasses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

PLAIN = frozenset({str, int, float, bool, type(None)})
INFINITIES = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_json(value: Any) -> Any:
    """Convert a value to what strict JSON can hold.

    Objects with a ``to_dict`` method and dataclasses become objects, arrays and tuples become lists, NaN becomes null,
    and infinities become ``"Infinity"`` and ``"-Infinity"``.

    Examples:
        >>> to_json({"scores": np.array([1.0, np.nan, -np.inf])})
        {'scores': [1.0, None, '-Infinity']}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return INFINITIES.get(value)
    if type(value) in PLAIN:  # most values of a journal: asking them for more takes longer than writing them
        return value
    if hasattr(value, "to_dict"):
        return to_json(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def number(value: float | str | None) -> float:
    """Read a number as ``to_json`` writes it: null is NaN.

    Raises:
        ValueError: The value is no number, or too large for one.

    Examples:
        >>> number(None), number("-Infinity"), number(1.5)
        (nan, -inf, 1.5)
    """
    try:
        return math.nan if value is None else float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{value!r:.80} is not a number.") from error
