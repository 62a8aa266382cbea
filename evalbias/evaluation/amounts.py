"""An effect and its interval in words: how many points more or fewer something gets."""

from __future__ import annotations

import math


def more(value: float, low: float, high: float, digits: int = 2) -> str:
    """Return by how much, and "between ... and ..." where only bounds are known.

    Examples:
        >>> more(0.21, 0.1, 0.3), more(-0.21, -0.3, -0.1), more(math.nan, 0.07, 0.55)
        ('0.21 more', '0.21 fewer', 'between 0.07 and 0.55 more')
    """
    if not math.isnan(value):
        return _signed(value, digits)
    nearer, farther = sorted((low, high), key=abs)
    if round(low, digits) * round(high, digits) < 0:
        return f"between {_signed(low, digits)} and {_signed(high, digits)}"
    return f"between {abs(nearer):.{digits}f} and {_signed(farther, digits)}"


def span(value: float, low: float, high: float, digits: int = 2) -> str:
    """Return the 95 % interval of what ``more`` says; of bounds, for which reliabilities they hold.

    Of something that gets fewer, it is the interval of how many fewer.

    Examples:
        >>> span(0.21, 0.1, 0.3), span(-0.21, -0.3, -0.1)
        ('95 % interval 0.10 to 0.30', '95 % interval 0.10 to 0.30')
    """
    if math.isnan(value):
        return "95 % interval, if the reliability of one rating is .5 or more"
    if _is_fewer(value, digits):
        low, high = -high, -low
    return f"95 % interval {low + 0.0:.{digits}f} to {high + 0.0:.{digits}f}"


def _signed(value: float, digits: int) -> str:
    return f"{abs(value):.{digits}f} {'fewer' if _is_fewer(value, digits) else 'more'}"


def _is_fewer(value: float, digits: int) -> bool:
    return round(value, digits) < 0
