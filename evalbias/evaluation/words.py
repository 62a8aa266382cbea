"""Figures, amounts and conclusions as text, in the same form for terminal, page and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import rich.table
from numpy.typing import ArrayLike

from evalbias.measures.resample import Interval
from evalbias.programs.judges import LOW_COVERAGE, median_coverage

UNDEFINED = "undefined"
SIGNIFICANCE = "* p < .05, † p < .06 (paired test)"
Status = Literal["biased", "bounds only", "too few items", "no sign", "not measured"]
STATUSES: Mapping[Status, str] = {
    "biased": "the bias is significant, after a correction for testing several biases",
    "bounds only": "whatever the number of items, the effect is known between bounds only: people rated each item once "
    "(the bounds hold if such a rating is as reliable as the sentence says), or the ends of the scales may explain it",
    "too few items": "no bias was found, but one may have been missed",
    "no sign": "no bias was found, and every effect worth finding is ruled out",
    "not measured": "the data do not allow it",
}
"""Status of a bias in an audit -> its meaning, in order of importance to a reader."""

# --- figures ----------------------------------------------------------------------------------------------------------


def signed(value: float) -> str:
    """Format with two decimals and a sign."""
    return UNDEFINED if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}"  # no minus before a zero


def unsigned(value: float) -> str:
    """Format with two decimals and no sign."""
    return UNDEFINED if math.isnan(value) else f"{value:.2f}"


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{share * 100:.0f} %"


def decimals(*values: float) -> int:
    """Return the number of decimals for values: two, or more if two would show little but zeros."""
    largest = max((abs(value) for value in values if not math.isnan(value)), default=0.0)
    return 2 if largest >= 0.02 or largest == 0 else 1 - math.floor(math.log10(largest))


def ends(low: str, high: str) -> str:
    """Format an interval by its formatted ends."""
    return low if low == high == UNDEFINED else f"{low} to {high}"


def with_interval(e: Interval, *, unit: str = "", note: str = "") -> str:
    """Format an estimate in a unit with, in brackets, its 95 % interval and a note."""
    return f"{signed(e.value)}{unit} (95 % interval {ends(signed(e.low), signed(e.high))}{note})"


def p_text(p_value: float) -> str:
    """Format a p-value with five decimals; empty for NaN."""
    return "" if math.isnan(p_value) else "< 0.00001" if p_value < 5e-6 else f"{p_value:.5f}"


def p_equals(p_value: float) -> str:
    """Format a p-value for a sentence, with four decimals."""
    return f"p {UNDEFINED}" if math.isnan(p_value) else "p < 0.0001" if p_value < 5e-5 else f"p = {p_value:.4f}"


def mark(p_value: float) -> str:
    """Return the papers' sign of significance: * below .05, dagger below .06."""
    return "*" if p_value < 0.05 else "†" if p_value < 0.06 else ""


# --- amounts: how many more or fewer points something gets ------------------------------------------------------------


def amount_words(e: Interval, what: str, digits: int | None = None, *, held_if: str = "", note: str = "") -> str:
    """Return how many more or fewer of ``what``, with the 95 % interval and a note in brackets.

    Bounds hold under the condition ``held_if``; without ``digits``, there are as many decimals as needed.
    """
    digits = decimals(*e.numbers) if digits is None else digits
    return f"{amount(*e.numbers, digits)} {what} ({interval_words(*e.numbers, digits, held_if=held_if)}{note})"


def amount(value: float, low: float, high: float, digits: int = 2) -> str:
    """Format an amount with "more" or "fewer", or "between ... and ..." if only bounds are known."""
    if not math.isnan(value):
        return _signed(value, digits)
    nearer, farther = sorted((low, high), key=abs)
    if round(low, digits) * round(high, digits) < 0:
        return f"between {_signed(low, digits)} and {_signed(high, digits)}"
    return f"between {abs(nearer):.{digits}f} and {_signed(farther, digits)}"


def interval_words(value: float, low: float, high: float, digits: int = 2, *, held_if: str = "") -> str:
    """Return the 95 % interval for ``amount``; for bounds, with the condition under which they hold.

    If the amount is "fewer", the interval counts how many fewer; if an end lies on the other side of 0 than the amount,
    both ends say on which side they are.
    """
    if math.isnan(value):
        return f"95 % interval, {held_if}"
    sign = -1 if round(value, digits) < 0 else 1
    if any(sign * round(end, digits) < 0 for end in (low, high)):
        signs = (f"{0:.{digits}f}" if round(end, digits) == 0 else _signed(end, digits) for end in (low, high))
        return f"95 % interval {' to '.join(signs)}"
    nearer, farther = sorted((abs(low), abs(high)))
    return f"95 % interval {nearer:.{digits}f} to {farther:.{digits}f}"


def _signed(value: float, digits: int) -> str:
    return f"{abs(value):.{digits}f} {'fewer' if round(value, digits) < 0 else 'more'}"


# --- names and lists --------------------------------------------------------------------------------------------------


def count(amount: int, word: str) -> str:
    """Return an amount with its noun in the right number."""
    return f"{amount} {word}" + ("" if amount == 1 else "s")


def in_one_line(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def beginning(value: object, most: int = 80) -> str:
    """Return the beginning of a value's text in one line, of at most ``most`` characters; empty for None."""
    line = in_one_line("" if value is None else str(value)[: 10 * most])
    return line if len(line) <= most else line[: most - 3] + "..."


def joined(names: Sequence[str], link: str = "and") -> str:
    """Return names as people list them: "a, b and c"; empty without any."""
    *others, last = names or [""]
    return f"{', '.join(others)} {link} {last}" if others else last


def model_title(name: str) -> str:
    """Return a model's name for people; a local model is called ``local/NAME@FINGERPRINT``."""
    return name.removeprefix("local/").partition("@")[0] if name.startswith("local/") else name


# --- conclusions ------------------------------------------------------------------------------------------------------


def conclude(e: Interval, *, above: str, below: str, neither: str, undefined: str = "") -> str:
    """Return the sentence that an interval allows: it lies above 0, below 0, holds 0, or is undefined."""
    return undefined if math.isnan(e.low) else above if e.low > 0 else below if e.high < 0 else neither


def coverage_warning(coverage: Mapping[str, ArrayLike]) -> str:
    """Return a warning if coverage is low, from criterion -> (n,) coverages or NaN; else ""."""
    medians = {name: median_coverage(values) for name, values in coverage.items()}
    low = {name: median for name, median in medians.items() if median < LOW_COVERAGE}  # NaN is not below
    if not low:
        return ""
    judge = "this judge" if len(low) == len(medians) else f"this judge's answers on {joined(list(low))}"
    shares = joined(["less than 0.1 %" if m < 0.001 else f"{100 * m:.2g} %" for m in low.values()])
    fault = f"its model hardly ever answers with a label (median probability {shares})"
    return f"Do not rely on {judge}: {fault}, so its answers mean little."


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Table of texts whose first column names the row, for a console and a page."""

    headings: Sequence[str]  # (c,) one per column
    rows: Sequence[Sequence[str]]  # (r, c) cells
    title: str = ""  # title; empty if the context makes it clear
    caption: str = ""  # note below the table
    left: int = 1  # number of columns, from the first, that hold words and are set from the left

    def without_empty(self) -> Table:
        """Return the table without its empty columns of figures."""
        kept = [k for k in range(len(self.headings)) if k < self.left or any(row[k] for row in self.rows)]
        rows = [[row[k] for k in kept] for row in self.rows]
        return replace(self, headings=[self.headings[k] for k in kept], rows=rows)

    def __rich__(self) -> rich.table.Table:
        """Return the table for a console."""
        table = rich.table.Table(title=self.title or None, caption=self.caption or None)
        for place, heading in enumerate(self.headings):
            left = place < self.left
            table.add_column(heading, justify="left" if left else "right", overflow="fold" if left else "ellipsis")
        for row in self.rows:
            table.add_row(*row)
        return table


def short(cell: str) -> str:
    """Replace "undefined" by a dash, for wide tables."""
    return cell.replace(UNDEFINED, "-")
