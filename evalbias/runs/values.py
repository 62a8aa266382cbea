"""Results as JSON and back: the one way in which every file of a run writes NaN, infinities, arrays and dataclasses.

``read_json`` reads every JSON file but those of data, whose errors name a line: see ``evalbias.data.reading``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
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


def read_json(path: str | os.PathLike[str], remedy: str = "delete its folder to start over") -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Args:
        path: The file.
        remedy: What to do about a damaged file; the default is meant for the files of a run.

    Raises:
        ValueError: The file is not UTF-8, not JSON or nested too deeply, or holds something else; it is named.
    """
    return json_object(Path(path).read_bytes(), str(path), remedy)


def json_object(content: bytes, place: str, remedy: str) -> dict[str, Any]:
    """Read a JSON object from bytes, such as a line of a file; errors as those of ``read_json``, with this place."""
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not valid JSON ({error}): {remedy}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{place} holds {json.dumps(value):.80} in place of a JSON object: {remedy}.")
    return value
