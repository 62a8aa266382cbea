"""Choices between the two outputs of a pair, in the codes that files use: 0 and 1, A and B, or codes of their own."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

from evalbias.data.dataset import DataError

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
