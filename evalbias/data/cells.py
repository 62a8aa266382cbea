"""What a cell may hold: a text, a number, ratings or a choice."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


class DataError(ValueError):
    """Invalid data in a file; the message names the file, the line or item, and the remedy."""


# Choices between the two outputs of a pair, in the codes that files use: 0 and 1, A and B, or codes of their own.


FIRST, SECOND, TIE = 0.0, 1.0, -1.0


def chosen_candidate(value: Any, label: str, labels: Sequence[object] = (), *, count: int = 2) -> float:
    """Read a choice between candidates: 0 for the first, 1 for the second and so on, -1 for a tie, NaN for none.

    Args:
        value: 0 or 1, also as text; ``"A"`` or ``"B"``; -1 or ``"tie"``, in upper or lower case; None, NaN or an empty
            text where there was no choice.
        label: Names the value in the error.
        labels: Codes of the first candidate, of the second and, if there is one, of a tie, in place of 0, 1 and -1.
        count: Number of candidates, at most 26. With three, 2 and ``"C"`` are choices too.

    Raises:
        ValueError: The value is something else.

    Examples:
        >>> [chosen_candidate(value, "the winner") for value in ("b", 1, "TIE")]
        [1.0, 1.0, -1.0]
        >>> chosen_candidate(1, "the winner", labels=(1, 2))
        0.0
    """
    if value is None or value != value or not str(value).strip():
        return math.nan
    named = dict(zip(map(_code, labels), (FIRST, SECOND, TIE), strict=False))
    letters = {letter: float(index) for index, letter in enumerate(string.ascii_lowercase[:count])}
    indices = {str(index): float(index) for index in range(count)}
    known = {**letters, "tie": TIE, **(named or {**indices, "-1": TIE})}
    code = _code(value)
    if code not in known:
        raise ValueError(f"{label} is {value!r:.80}: give {_expected(labels)}, or null for none.")
    return known[code]


def recorded_choice(value: Any, label: str, labels: Sequence[object] = ()) -> int | None:
    """Read a choice of a file as ``chosen_candidate`` does; None where there was none.

    Raises:
        DataError: The value is no choice; the message says how other codes are named.
    """
    try:
        choice = chosen_candidate(value, label, labels)
    except ValueError as error:
        hint = "" if labels else " If 1 means the first and 2 the second: --labels 1,2."
        python = "in Python, labels of evalbias.audit or choices of evalbias.data.read"
        raise DataError(f"{error} Name other codes by --labels FIRST,SECOND,TIE ({python}).{hint}") from error
    return None if math.isnan(choice) else int(choice)


def choice_codes(text: str | None) -> tuple[str, ...]:
    """Read the codes of choices as a command names them, with commas between them; none for None.

    Examples:
        >>> choice_codes("model_a, model_b, tie")
        ('model_a', 'model_b', 'tie')
    """
    return () if text is None else tuple(part.strip() for part in text.split(","))


def check_labels(labels: Sequence[object]) -> None:
    """Refuse codes that leave open which output was chosen.

    Raises:
        ValueError: They are not two or three different ones.
    """
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
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def _expected(labels: Sequence[object]) -> str:
    if labels:
        return "one of the labels " + ", ".join(map(repr, map(str, labels)))
    return "0 or 'A' for the first output, 1 or 'B' for the second, 'tie' (or -1)"


# Recorded numbers, and what to do about values that only look like one.


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


# Lone surrogates: halves of UTF-16 pairs, which JSON can escape but no tokenizer takes.


_SURROGATE = re.compile("[\ud800-\udfff]")


def lone_surrogate(text: str) -> str | None:
    r"""Describe the first lone surrogate of a text; None if there is none.

    Example:
        >>> lone_surrogate("ab\ud800c")
        'the lone surrogate U+D800 at character 3'
    """
    match = _SURROGATE.search(text)
    return None if match is None else f"the lone surrogate U+{ord(match.group()):04X} at character {match.start() + 1}"


def text(record: Mapping[str, Any], name: str, where: str, *, blank: bool = False) -> str:
    """Return a text field of a record, which may be empty only if ``blank`` is set.

    Raises:
        DataError: The field is missing, not a string, or empty.
    """
    if name not in record:
        raise DataError(f"{where}: {name!r} is missing; the record has only {sorted(record)!r:.400}. Add the field.")
    value = record[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise DataError(f"{where}: {name!r} is {value!r:.80}; it must be a {'' if blank else 'non-empty '}string.")
    return value


def scores(record: Mapping[str, Any], where: str, *, required: Iterable[str] = ()) -> dict[str, float]:
    """Return criterion -> score from a record's ``scores``; null becomes NaN.

    Raises:
        DataError: A score is not a finite number, or a required criterion is missing.
    """
    raw = _object(record.get("scores") or {}, f"{where}: 'scores'")
    missing = sorted(set(required) - set(raw))
    if missing:
        raise DataError(f"{where}: 'scores' lacks {missing}; write null for an undefined score.")
    return {k: math.nan if v is None else number(v, f"{where}: the score on {k!r:.80}") for k, v in raw.items()}


def ratings(record: Mapping[str, Any], where: str) -> dict[str, list[float]]:
    """Return criterion -> single ratings in the raters' order from a record's ``ratings``; null becomes NaN.

    Raises:
        DataError: A criterion has no list of numbers.
    """
    raw = _object(record.get("ratings") or {}, f"{where}: 'ratings'")
    for name, given in raw.items():
        if not isinstance(given, list) or not given:
            raise DataError(
                f"{where}: the ratings on {name!r:.80} are {given!r:.80}; write a list with one number for each rater, "
                "null where one gave none."
            )
    return {
        name: [math.nan if v is None else number(v, f"{where}: a rating on {name!r:.80}") for v in given]
        for name, given in raw.items()
    }


def one_criterion_ratings(given: Sequence[Any], where: str) -> list[float]:
    """Return the single ratings on the one criterion that is judged, in the raters' order; null becomes NaN.

    Raises:
        DataError: A rating is not a number, or there is none.
    """
    return ratings({"ratings": {"the criterion": given}}, where)["the criterion"]


def number(value: object, label: str, *, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a JSON value as a number in [low, high]; the label names it in the error.

    Raises:
        DataError: The value is not a number (``true`` and ``null`` are not) or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        too_large = LARGEST < abs(as_number(value)) < math.inf
        bounded = high < LARGEST or too_large
        bounds = f"a number from {low:g} to {high:g}" if bounded else "a finite number"
        remedy = remedy_for(value)
        empty = "leave it empty (null in JSON) where there is none" if isinstance(value, str) or too_large else ""
        remedy = f"write {remedy}" if remedy else empty
        raise DataError(f"{label} is {value!r:.80}; it must be {bounds}{remedy and f': {remedy}'}.")
    return float(value)


def _object(value: Any, label: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{label} holds {value!r:.80}; it must be a JSON object, {{...}}.")
    return value
