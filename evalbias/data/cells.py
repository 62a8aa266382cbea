"""What a cell may hold: a text, a number, ratings, or a choice between outputs."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

FIRST, SECOND, TIE = 0.0, 1.0, -1.0  # choices between two outputs
LARGEST = 1e30  # largest size of a score or rating: products of a few of them must stay finite in the measures
SMALLEST = 1e-9  # below, the variance of several scores or ratings is taken for a rounding error of 0

_BINARY = (("true", "false"), ("yes", "no"), ("pass", "fail"))
_WRITTEN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # float() also takes 4_5 and full-width 4
_LEADING = re.compile(r"(-?[0-9]+(?:[.,][0-9]+)?)(?:\s*/.*|\D+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


class DataError(ValueError):
    """Invalid data in a file; the message names the file, the line or item, and the remedy."""


def text(record: Mapping[str, Any], name: str, where: str, *, blank: bool = False) -> str:
    """Return a text field of a record; it must be a string, and not empty unless ``blank`` is set."""
    if name not in record:
        raise DataError(f"{where}: {name!r} is missing; the record has only {sorted(record)!r:.400}. Add the field.")
    value = record[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise DataError(f"{where}: {name!r} is {value!r:.80}; it must be a {'' if blank else 'non-empty '}string.")
    return value


def lone_surrogate(text: str) -> str | None:
    r"""Describe the first half of a UTF-16 pair in a text, which JSON can escape but no tokenizer takes; None for none.

    Example:
        >>> lone_surrogate("ab\ud800c")
        'the lone surrogate U+D800 at character 3'
    """
    match = _SURROGATE.search(text)
    return None if match is None else f"the lone surrogate U+{ord(match.group()):04X} at character {match.start() + 1}"


def number(
    value: Any,
    written: str,
    *,
    low: float = -LARGEST,
    high: float = LARGEST,
    texts: bool = False,
    required: bool = False,
) -> float:
    """Read a number in [low, high]; NaN for None, NaN or an empty text, unless it is ``required``; others are refused.

    ``True`` and ``False`` are no numbers; texts such as ``"3.5"`` are where ``texts`` is set. ``written`` says where it
    stands, such as ``"items.csv:3: 'score'"``.

    Examples:
        >>> number("3.5", "'my_score'", texts=True), number(None, "'my_score'")
        (3.5, nan)
    """
    read = _as_number(value, texts=texts)
    if low <= read <= high or (math.isnan(read) and not required):
        return read
    wanted = "a number"
    if high < LARGEST:
        wanted += f" from {low:g} to {high:g}"
    elif LARGEST < abs(read) < math.inf:
        wanted += f" of at most {LARGEST:g}"
    remedy = remedy_for(value) or ("" if required else "or leave it empty (null in JSON) where there is none")
    raise DataError(f"{written} is {value!r:.80}: give {wanted}{remedy and f', {remedy}'}.")


def _as_number(value: Any, *, texts: bool) -> float:
    """Return a value as a number; NaN for none, infinity for something else."""
    if isinstance(value, str):
        written = value.strip().lower()
        if written and not (texts and (written == "nan" or _WRITTEN.fullmatch(written))):
            return math.inf
        value = written or None
    try:
        return math.nan if value is None else math.inf if isinstance(value, bool | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.inf


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
    form = "alone" if match[1] != text else "with a decimal point" if "," in text else "without quotes"
    return f"{match[1].replace(',', '.')} {form}"


def check_size(values: ArrayLike, label: str) -> None:
    """Refuse numbers whose largest is below ``SMALLEST``, which measures would take for 0; NaN and 0 alone may be."""
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    largest = float(np.max(sizes, initial=0.0, where=~np.isnan(sizes)))
    if 0 < largest < SMALLEST:
        raise DataError(
            f"{label} are at most {largest:.2g} in size, too small to tell from 0: multiply them, so that the largest "
            f"is {SMALLEST:g} or more."
        )


def scores(given: Any, where: str) -> dict[str, float]:
    """Return criterion -> score from the ``scores`` of a record; null becomes NaN."""
    scored = as_object(given or {}, f"{where}: 'scores'")
    return {name: number(value, f"{where}: the score on {name!r:.80}") for name, value in scored.items()}


def ratings(given: Any, where: str) -> dict[str, list[float]]:
    """Return criterion -> single ratings, in the raters' order, from the ``ratings`` of a record; null becomes NaN."""
    rated = as_object(given or {}, f"{where}: 'ratings'")
    return {name: rating_row(row, name, where) for name, row in rated.items()}


def rating_row(row: Any, name: str, where: str) -> list[float]:
    """Return one item's single ratings on a criterion."""
    if not isinstance(row, list) or not row:
        raise DataError(
            f"{where}: the ratings on {name!r:.80} are {row!r:.80}; write a list with one number for each rater, null "
            "where one gave none."
        )
    return [number(value, f"{where}: a rating on {name!r:.80}") for value in row]


def as_object(value: Any, label: str) -> dict[str, Any]:
    """Return a JSON object; refuse any other value."""
    if not isinstance(value, dict):
        raise DataError(f"{label} holds {value!r:.80}; it must be a JSON object, {{...}}.")
    return value


def choice(value: Any, written: str, labels: Sequence[object] = (), *, count: int = 2) -> float:
    """Read a choice between outputs: 0 for the first, 1 for the second and so on, -1 for a tie, NaN for none.

    A value is 0, 1 or -1, also as text; a letter from A on or ``"tie"``, in any case; None, NaN or an empty text for
    none; others are refused. ``labels`` are codes of the first output, the second and, if there is one, a tie,
    in place of 0, 1 and -1: letters keep their meaning, unless one of the codes is a letter. At most 26 outputs.

    Examples:
        >>> [choice(value, "the winner") for value in ("b", 1, "TIE")]
        [1.0, 1.0, -1.0]
        >>> choice(1, "the winner", labels=(1, 2))
        0.0
    """
    if value is None or value != value or not str(value).strip():
        return math.nan
    known = {"tie": TIE}
    if labels:
        known |= zip(map(_code, labels), (FIRST, SECOND, TIE), strict=False)
    else:
        known |= {str(place): float(place) for place in range(count)} | {"-1": TIE}
    if not any(len(code) == 1 and code.isalpha() for code in known):
        known |= {letter: float(place) for place, letter in enumerate(string.ascii_lowercase[:count])}
    if (code := _code(value)) in known:
        return known[code]
    codes = "0 or 'A' for the first output, 1 or 'B' for the second, 'tie' (or -1)"
    if labels:
        codes = "one of the labels " + ", ".join(map(repr, map(str, labels)))
    raise DataError(f"{written} is {value!r:.80}: give {codes}, or null for none.")


def choice_codes(text: str | None) -> tuple[str, ...]:
    """Read the codes of choices as a command names them, with commas between them; none for None.

    Examples:
        >>> choice_codes("model_a, model_b, tie")
        ('model_a', 'model_b', 'tie')
    """
    return () if text is None else tuple(part.strip() for part in text.split(","))


def check_labels(labels: Sequence[object]) -> None:
    """Refuse codes that leave open which output was chosen: they must be two or three different ones."""
    codes = {_code(one) for one in labels} - {""}
    if labels and (len(codes) != len(labels) or len(codes) not in (2, 3)):
        raise ValueError(
            f"The labels {', '.join(map(repr, labels))} do not tell the outputs apart: give the code of the first "
            "output, that of the second and, if there is one, that of a tie, such as --labels 1,2,tie (in Python, "
            "labels=(1, 2, 'tie'))."
        )


def _code(value: object) -> str:
    """Return a code as text in lower case; 1, 1.0 and "1.0" are the same."""
    text = str(value).strip().lower()
    if not _WRITTEN.fullmatch(text) or not (found := float(text)).is_integer():
        return text
    return str(int(found))
