"""Values in columns of ratings: codes of missing ratings, ordered words, and possible codes of failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evalbias.data import items
from evalbias.data.cells import LETTERS, choice_codes, words_in, words_of
from evalbias.data.files import Source
from evalbias.data.items import LARGEST, DataError, as_number, cells_of, remedy_for, value_code, word
from evalbias.measures.arrays import FloatArray
from evalbias.values import first_few, shell_word

RATINGS = words_in("values", "people", "judges", "models", "given names")  # words in the names of columns of ratings
Cells = Sequence[tuple[str, str, Any]]  # (column, with its criterion if there are several; place; value)
ALPHA = 0.05  # p-value below which a value that other columns lack is asked about
LIKE_A_CODE = re.compile("[789]+")  # digits of codes such as 8, 99 or 777, which surveys use for no answer
LARGEST_DIGIT = 9  # a number with more digits is not the end of a scale from 1
BITS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}
FARTHER = 4  # smallest ratio between the largest numbers of two scales
MOST_CODES = 2  # different codes at one end, such as 98 and 99
MOST_LISTED = 6  # values that a message names
LONGEST, MOST_WORDS = 60, 1000  # characters of a word in a column of ratings, and different words in it


@dataclass(frozen=True)
class Codes:
    """Meanings of values in columns of ratings, as a user names them.

    Attributes:
        missing: Values that stand for a missing rating, such as 0, -1, 999 or "error".
        keep: Numbers that are ratings, although they look like such values.
        levels: Words for ratings, the worst first. Two words are 0 and 1; more are 1, 2, 3 and so on.
    """

    missing: Sequence[object] = ()
    keep: Sequence[object] = ()
    levels: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, values in (("missing", self.missing), ("keep", self.keep), ("levels", self.levels)):
            if isinstance(values, str | int | float):
                raise ValueError(f"`{name}` is {values!r:.80}: give a list of values, such as [{values!r:.80}].")
        codes = Counter(value_code(value) for value in (*self.levels, *self.missing, *self.keep))
        if twice := [code for code, count in codes.items() if count > 1 or not code]:
            fault = f"{twice[0]!r:.80} is empty, or named twice in `missing`, `keep` and `levels`"
            raise ValueError(f"{fault}: name each value once.")
        if len(self.levels) == 1:
            raise ValueError(f"`levels` {self.levels[0]!r:.80}: name two or more words, the worst first.")

    @cached_property
    def numbers(self) -> dict[str, float | None]:
        """Value -> number that it stands for; None for a missing rating."""
        first = 0 if len(self.levels) == 2 else 1
        levels = {value_code(level): float(k) for k, level in enumerate(self.levels, start=first)}
        return {**levels, **dict.fromkeys(map(value_code, self.missing))}

    def read(self, value: Any) -> Any:
        """Replace the values that the user named by numbers, at any depth.

        Examples:
            >>> Codes(missing=[0], levels=["fail", "partial", "pass"]).read({"anna": "Partial", "ben": 0, "cy": 4})
            {'anna': 2.0, 'ben': None, 'cy': 4}
        """
        return converted(value, lambda cell: self.numbers.get(value_code(cell), cell)) if self.numbers else value


NO_CODES = Codes()


class OpenValuesError(DataError):
    """Error about ``values`` that may stand for a missing rating, with the audit's options that settle it."""

    def __init__(self, message: str, values: Sequence[str], options: Sequence[str] = ("missing",)) -> None:
        super().__init__(message)
        self.values, self.options = values, options


def converted(value: Any, read: Callable[[Any], Any]) -> Any:
    """Apply ``read`` to the cells in a value, at any depth of lists and objects."""
    if isinstance(value, dict):
        return {key: converted(inner, read) for key, inner in value.items()}
    return [converted(inner, read) for inner in value] if isinstance(value, list | tuple) else read(value)


def number_of_text(cell: Any) -> Any:
    """Return a text's number, None if it says that there is none; anything else unchanged."""
    number = as_number(cell) if isinstance(cell, str) else np.nan
    return number if np.isfinite(number) else None if items.is_absent(cell) else cell


def read_codes(table: Source, columns: Sequence[str], codes: Codes) -> None:
    """Read the user's codes in columns of ratings, and note how many cells count as missing."""
    lost = Counter[tuple[str, str]]()
    absent = {code for code, number in codes.numbers.items() if number is None}
    for name in columns if codes.numbers else ():
        for _, row in table.rows:
            if (cell := row.get(name)) is not None:
                lost.update((name, code) for value in cells_of(cell) if (code := value_code(value)) in absent)
                row[name] = codes.read(cell)
    if lost:
        cells = (f"{code} in {count} of {table.mapping.get(name, name)!r:.80}" for (name, code), count in lost.items())
        table.notes = [*table.notes, f"counted as missing: {', '.join(cells)}"]


def legible(name: str, cells: Sequence[Any], codes: Codes) -> Sequence[Any]:
    """Return a column's cells for recognition: codes of ratings are read, and likely codes of failures left out.

    So a column of numbers with ``error`` or 999 in some cells is recognized here, and refused when it is read.
    """
    if any(not isinstance(c, str | int | float | None) or (isinstance(c, str) and len(c) > LONGEST) for c in cells):
        return cells
    typed = [*zip(map(type, cells), cells, strict=True)]  # True is not 1
    read = {typed_cell: codes.read(typed_cell[1]) for typed_cell in {*typed}}
    if RATINGS & {*words_of(name)}:
        read = {typed_cell: number_of_text(cell) for typed_cell, cell in read.items()}
    filled = [cell for cell in map(read.__getitem__, typed) if not items.is_absent(cell)]
    counts = Counter(filled)
    texts = [cell for cell in counts if isinstance(cell, str)]
    if len(texts) > MOST_WORDS:
        return cells
    readable = {*items.values_of_words(filled)} if texts else set[str]()
    if 2 * sum(counts[cell] for cell in texts if items.choice_code(cell) in LETTERS) > len(filled):
        readable = {word(cell) for cell in texts if items.choice_code(cell) in LETTERS}
    for text in texts if words_in("choices") & {*words_of(name)} and not readable else ():  # model_1, tie, error
        if choice_codes(remaining := [cell for cell in texts if cell != text]):
            readable = {*map(word, remaining)}
    others: set[Any] = {cell for cell in texts if word(cell) not in readable and number_of_text(cell) is cell}
    numbers = {cell: number for cell in counts if abs(number := as_number(cell)) <= LARGEST}
    party = {name: np.array([numbers[cell] for cell in filled if cell in numbers])}
    others |= {*failure_codes(party, {name: name}).get(name, ())} - {*map(as_number, codes.keep)}
    if 2 * sum(counts[cell] for cell in others) < len(filled) and len(others) <= MOST_LISTED:
        return [None if (cell := read[typed_cell]) in others else cell for typed_cell in typed]
    return cells


# Cells other than numbers.


def refuse_words(cells: Cells, others: Cells, among: str = "") -> None:
    """Refuse a column's cells ``others`` that are not ratings: name and count them, and give remedies."""
    if not others:
        return
    name, where, first = others[0]
    codes, more = _counted(cells, others, "ratings")
    remedy = remedy_for(first)
    if not remedy and 2 * len(others) > len(cells) and len({str(cell) for *_, cell in others}) > 1:
        remedy = "or, of words in an order, all of them: `levels` WORST,...,BEST"
    elif not remedy:
        remedy = "or leave it empty (null in JSON) where there is none"
        remedy += f"; `missing` {shell_word(codes)} counts it as missing" if codes else ""
    refusal = f"{where}: {name!r:.80} is {first!r:.80}{among}: give a number, {remedy}.{more}"
    raise OpenValuesError(refusal, codes.split(",")) if remedy.endswith("as missing") else DataError(refusal)


def _counted(cells: Cells, others: Cells, what: str) -> tuple[str, str]:
    """Return the most common ``others``, separated by commas, and their number if there are several."""
    counts = Counter(str(cell).strip() for *_, cell in others)
    some = [code for code, _ in counts.most_common(MOST_LISTED)]
    listing = first_few([f"{code!r:.80} in {n}" for code, n in counts.most_common()], MOST_LISTED)
    more = f" {len(others)} of {len(cells)} cells are no {what}: {listing}." if len(others) > 1 else ""
    return ",".join(code for code in some if "," not in code and len(code) <= LONGEST), more


def refuse_choices(cells: Cells, labels: Sequence[object]) -> None:
    """Refuse cells that are not choices between two outputs by these labels; see ``items.choice``."""
    others, errors = list[tuple[str, str, Any]](), list[str]()
    for name, where, cell in cells:
        try:
            items.choice(cell, f"{where}: {name!r}", labels)
        except DataError as error:
            others.append((name, where, cell))
            errors.append(str(error))
    if others:
        hint = "" if labels else " If 1 means the first and 2 the second: --labels 1,2."
        python = "in Python, labels of evalbias.audit or choices of evalbias.data.read"
        codes, more = _counted(cells, others, "choices")
        if (are_few := 2 * len(others) < len(cells)) and codes:
            hint += f" Where no choice was made: `missing` {shell_word(codes)}.{more}"
        refusal = f"{errors[0]} Name other codes by --labels FIRST,SECOND,TIE ({python}).{hint}"
        raise OpenValuesError(refusal, codes.split(",")) if codes and are_few else DataError(refusal)


def read_words(table: Source, group: Sequence[str]) -> None:
    """Read words in columns of raters or answers as numbers; refuse other values in these columns."""
    filled = {n: [*given_cells(table, n)] for n in group}
    meanings = {n: numbers for n, cells in filled.items() if (numbers := items.values_of_words(c for *_, c in cells))}
    for numbers in meanings.values():
        if {*numbers.values()} == {0, 1}:
            numbers |= BITS  # some cells of true and false may say 1 and 0
    for name, cells in filled.items():
        if meanings:
            words = {*meanings.get(name, BITS)}
            first, second, *_ = (text.replace("_", " ") for text in meanings.get(name, next(iter(meanings.values()))))
            refuse_words(cells, [c for c in cells if word(c[2]) not in words], f" among {first} and {second}")
        else:
            refuse_words(cells, [c for c in cells if not isinstance(number_of_text(c[2]), int | float)])
    for _, row in table.rows:
        for name in filter(row.__contains__, group):
            row[name] = converted(row[name], _reader(meanings[name]) if name in meanings else number_of_text)


def _reader(numbers: Mapping[str, float]) -> Callable[[Any], float | None]:
    return lambda cell: numbers[word(cell)] if word(cell) else None


def given_cells(table: Source, name: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (column, with the criterion if it has several; place; value) of each cell with a value."""
    for where, row in table.rows:
        value = row.get(name)
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            for cell in cells_of(inner):
                if word(cell):
                    yield f"{name}.{key}" if key else name, where, cell


# Numbers that may be failures.


def ask_about_failures(table: Source, people: Mapping[str, str], judges: Sequence[str], codes: Codes) -> None:
    """Refuse a table with values that may be codes of failures, which would silently count as scores.

    See ``failure_codes``. ``people`` is column of human ratings -> criterion; ``judges`` are columns of judges' scores.
    """
    cells: dict[str, list[tuple[str, float]]] = {}
    party = dict[str, str]()  # column -> party that gave its ratings
    for name in (*people, *judges):
        for column, where, cell in given_cells(table, name):
            if abs(value := as_number(cell)) <= LARGEST:
                cells.setdefault(column, []).append((where, value))
                whose = people.get(name, "") + column.removeprefix(name) if name in people else column
                party[column] = f"{'people' if name in people else 'judge'} {whose}"
    columns = {name: np.array([number for _, number in some]) for name, some in cells.items()}
    for name, suspects in unexplained(columns, party, codes.keep).items():
        places = [place for place, number in cells[name] if number in suspects]
        rows = first_few([re.findall(r"\d+", place)[-1] for place in places[:4]], 3)
        why = question(f"{table.path}: {name!r:.80}", columns[name], suspects, f" (rows {rows})")
        raise OpenValuesError(why, [f"{value:g}" for value in suspects], ("missing", "keep"))
    for name, numbers in columns.items():
        upper = numbers[~np.isin(numbers, low := lower_scale(numbers))]
        if {*(written := [f"{value:g}" for value in low])} - {*map(value_code, codes.keep)}:
            n = len(numbers) - len(upper)
            why = f"{table.path}: {name!r:.80} is {low[0]:g} to {low[-1]:g} in {n} of {len(numbers)} cells, and "
            why += f"{upper.min():g} to {upper.max():g} in the others. If these are two scales: write one. "
            raise OpenValuesError(f"{why}If they are one: `keep` {','.join(written)}.", written, ("keep",))


def lower_scale(numbers: FloatArray) -> FloatArray:
    """Return the distinct numbers of a column that may be on a lower scale than the others; empty if on the same scale.

    These are consecutive whole numbers, such as 1 to 5, in a fifth of the cells or more. The others are also in a fifth
    or more, and either far above, or in steps of 5, as no scale with 1, 2 and 3 is.
    """
    distinct = np.unique(numbers)
    n = 1 + int(np.argmax(np.append(np.diff(distinct) != 1, True)))
    low, high = distinct[:n], distinct[n:]
    if min(len(low), len(high)) < 3 or low[0] not in (0, 1) or not on_a_lower_scale(low, high) or (high % 1).any():
        return low[:0]
    is_apart = high[0] - low[-1] > np.ptp(low) or not (high % 5).any()
    return low if is_apart and 0.2 <= np.isin(numbers, low).mean() <= 0.8 else low[:0]


def on_a_lower_scale(low: FloatArray, high: FloatArray) -> bool:
    """Return whether the largest of ``high`` is at least ``FARTHER`` times that of ``low``: likely two scales."""
    return bool(0 < FARTHER * np.abs(low).max() <= np.abs(high).max())


def unexplained(
    columns: Mapping[str, FloatArray], party: Mapping[str, str], keep: Sequence[object]
) -> dict[str, list[float]]:
    """Return column -> its ``failure_codes`` that the user does not ``keep``."""
    kept = {value_code(number) for number in keep}
    codes = failure_codes(columns, party)
    left = {name: [value for value in values if value_code(value) not in kept] for name, values in codes.items()}
    return {name: values for name, values in left.items() if values}


def question(what: str, numbers: FloatArray, suspects: Sequence[float], rows: str = "") -> str:
    """Ask whether some of the numbers stand for missing ratings."""
    are = np.isin(numbers, suspects)
    values, others = ",".join(f"{value:g}" for value in suspects), numbers[~are]
    return (
        f"{what} is {values.replace(',', ' or ')} in {are.sum()} of {len(numbers)} cells{rows}, and {others.min():g} "
        f"to {others.max():g} in all others. If it says that there is no rating: `missing` {values}. If it is one: "
        f"`keep` {values}."
    )


def failure_codes(columns: Mapping[str, FloatArray], party: Mapping[str, str]) -> dict[str, list[float]]:
    """Return column -> extreme values that may stand for a missing rating.

    A value is suspected if it looks like a code (a whole number that is 0, negative, or of the digits 7, 8 and 9), is
    in two cells or more, in at most half of all cells, and is one of these:

    1. Apart: it lies farther from all other values than these lie from each other, or it is negative where all others
       are 0 or more. A number above them has two digits or more, and a negative one is not the end of -1, 0, 1.
    2. Foreign: of whole numbers, it lies outside a scale that others use from end to end, and ``ALPHA`` bounds the
       chance that all cells with it were in these columns. So a 0 below 1 to 5 is asked about where people use 1 to 5,
       but not the 0 of 0, 1, 2 or 0 to 4 where people use it too.

    Args:
        columns: Column -> its numbers.
        party: Column -> party that gave its numbers. Raters of the same criterion are a party, and so is each judge.
    """
    codes: dict[str, list[float]] = {}
    members: dict[str, list[str]] = {}
    for name, whose in party.items():
        members.setdefault(whose, []).append(name)
    pooled = {whose: np.concatenate([columns[name] for name in names]) for whose, names in members.items()}
    for whose, names in members.items():
        others = [values for other, values in pooled.items() if other != whose]
        values = [*_ends(pooled[whose], others, 1, apart=True)]
        for name in names if len(names) > 1 else ():  # a single rater's code
            beside = np.concatenate([columns[other] for other in names if other != name])
            values += _ends(columns[name], [beside, *others], len(names), apart=False)
        for name in names:
            if own := sorted({value for value in values if value in columns[name]}):
                codes[name] = own
    return codes


def _ends(own: FloatArray, others: Sequence[FloatArray], ways: int, *, apart: bool) -> Iterator[float]:
    """Yield the extreme values of a party's numbers that may be codes; see ``failure_codes``."""
    for sign in (1, -1):  # the lowest values, and the highest
        distinct = np.unique(sign * own)
        for n in range(1, MOST_CODES + 1):
            codes, inner = sign * distinct[:n], sign * distinct[n:]
            is_code = np.isin(own, codes)
            count = int(is_code.sum())
            if len(inner) < 2 or count < 2 or 2 * count > len(own) or not all(_like_a_code(c, sign) for c in codes):
                continue
            if (apart and _is_apart(codes, inner, sign)) or (n == 1 and _is_foreign(codes[0], own, others, sign, ways)):
                yield from map(float, codes)
                own = own[~is_code]
                break


def _like_a_code(value: float, sign: int) -> bool:
    is_usual = value <= 0 if sign == 1 else value > 0 and LIKE_A_CODE.fullmatch(f"{value:.0f}")
    return bool(float(value).is_integer() and is_usual)


def _is_apart(codes: FloatArray, inner: FloatArray, sign: int) -> bool:
    if sign == 1 and codes[0] < 0:
        whole = bool((inner % 1 == 0).all())
        symmetric = whole and codes[0] == -inner.max() and codes[0] >= -LARGEST_DIGIT
        least = 0 if len(codes) == 1 else 1
        return bool(codes[-1] < 0 and least <= inner.min() and not symmetric)
    if sign == -1 and codes.min() <= LARGEST_DIGIT:
        return False
    return bool(np.abs(inner[:, None] - codes).min() > np.ptp(inner))


def _is_foreign(code: float, own: FloatArray, others: Sequence[FloatArray], sign: int, ways: int) -> bool:
    inner = sign * own[own != code]
    # Others count where they use the scale to its other end.
    alike = [sign * values for values in others if (sign * values).max() == inner.max()]
    if not alike or len(np.unique(inner)) < 2:
        return False
    beside = np.concatenate(alike)
    whole = all((values % 1 == 0).all() for values in (inner, beside))
    chance = ways * (len(own) / (len(own) + len(beside))) ** int((own == code).sum())
    return bool(whole and sign * code < beside.min() <= inner.min() and chance < ALPHA)
