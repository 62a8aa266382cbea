"""Figures as text, in one form for tables, sentences and plots."""

from __future__ import annotations

import math

SIGNIFICANCE = "* p < .05, † p < .06 (paired permutation test)"


def number(value: float) -> str:
    """Format with two decimals and a sign.

    Examples:
        >>> number(0.314), number(-0.001), number(float("nan"))
        ('+0.31', '+0.00', 'undefined')
    """
    return "undefined" if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}"  # no minus before a zero


def share(value: float) -> str:
    """Format with two decimals and no sign."""
    return "undefined" if math.isnan(value) else f"{value:.2f}"


def short(cell: str) -> str:
    """Replace "undefined" by a dash, for wide tables."""
    return cell.replace("undefined", "-")


def mark(p_value: float) -> str:
    """Return the paper's sign of significance: * below .05, dagger below .06."""
    return "*" if p_value < 0.05 else "†" if p_value < 0.06 else ""


def count(amount: int, word: str) -> str:
    """Return an amount with its noun in the right number."""
    return f"{amount} {word}" + ("" if amount == 1 else "s")
