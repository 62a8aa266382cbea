"""Recorded numbers, and what to do about values that only look like one."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.data.dataset import DataError

LARGEST = 1e30
"""Largest size of a score or rating: the measures multiply a few of them, and such products must stay finite."""
SMALLEST = 1e-9
"""Least size of the largest of several scores or ratings: below, their variance is taken for a rounding error of 0."""

_BINARY = (("true", "false"), ("yes", "no"), ("pass", "fail"))
_LEADING = re.compile(r"(-?[0-9]+(?:[.,][0-9]+)?)(?:\s*/.*|\D+)?")


def recorded_number(value: Any, label: str) -> float:
    """Read a number, also from text; NaN where there is none.

    Raises:
        DataError: The value is something else; the label names it.

    Examples:
        >>> recorded_number("3.5", "'my_score'"), recorded_number(None, "'my_score'")
        (3.5, nan)
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    number = as_number(value)
    if abs(number) > LARGEST:
        remedy = remedy_for(value) or "or leave it empty (null in JSON) where there is none"
        raise DataError(f"{label} is {value!r:.80}: give {allowed(number)}, {remedy}.")
    return number


def as_number(value: Any) -> float:
    """Return a value, also a text, as a number; infinity where it is none, as true and false are."""
    try:
        return math.inf if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def check_size(values: ArrayLike, label: str) -> None:
    """Refuse numbers that are all so small that the measures would take them for 0; NaN and 0 alone are allowed.

    Raises:
        DataError: The largest is below ``SMALLEST`` in size; the label names them.
    """
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    largest = float(np.max(sizes, initial=0.0, where=~np.isnan(sizes)))
    if 0 < largest < SMALLEST:
        raise DataError(
            f"{label} are at most {largest:.2g} in size, too small to tell from 0: multiply them, so that the largest "
            f"is {SMALLEST:g} or more."
        )


def allowed(number: float) -> str:
    """Say what to give in the place of a number of ``as_number`` that is larger than ``LARGEST``."""
    return "a number" if math.isinf(number) else f"a number of at most {LARGEST:g}"


def remedy_for(value: object) -> str:
    """Say how to write a value that means a number; empty where it means none.

    Examples:
        >>> remedy_for("2.9/5"), remedy_for("2,9"), remedy_for(True)
        ('2.9 alone', '2.9 with a decimal point', '1 for true and 0 for false')
    """
    text = str(value).strip()
    for one, zero in _BINARY:
        if text.lower() in (one, zero):
            return f"1 for {one} and 0 for {zero}"
    match = _LEADING.fullmatch(text) if isinstance(value, str) and len(text) <= 80 else None
    if match is None:
        return ""
    number, form = match[1].replace(",", "."), "alone"
    if match[1] == text:
        form = "with a decimal point" if "," in text else "without quotes"
    return f"{number} {form}"
