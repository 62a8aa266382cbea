"""A column of a user's table: the words of its name, and the kind of its cells."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evalbias.data import files, items
from evalbias.data.items import word
from evalbias.measures.arrays import missing
from evalbias.values import read_json

_WORDS = read_json(Path(__file__).with_name("columns.json"), "install evalbias again")
WORDS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
"""Meaning -> words in column names with this meaning, in English, German and French, lower case without accents."""
PREFERRED = ("chosen", "rejected")  # two outputs, the first of which people prefer
FIRSTS = {"1": "2", "a": "b", "0": "1", "left": "right", "first": "second", "chosen": "rejected"}  # in a pair's names
ENDS = {*"abcde", "left", "right", "first", "second"}
LETTERS = {"a", "b", "model_a", "model_b", *items.TIES}  # choices that mean the same whatever the labels are
NUMBERED = {  # numbers of choices -> how they may be meant: the first output, the second and a tie
    frozenset(("0", "1", "2")): ("0,2,1", "2,0,1", "1,2,0", "2,1,0"),
    frozenset(("1", "2", "1.5")): ("1,2,1.5", "2,1,1.5"),
    frozenset(("0", "1", "0.5")): ("0,1,0.5", "1,0,0.5"),
    frozenset(("-1", "0", "1")): ("0,1,-1", "1,-1,0", "-1,1,0"),
    frozenset(("1", "2", "3")): ("1,2,3", "1,3,2", "3,1,2"),
}
CONTAINERS = {"fields", "doc", "value", "values", "inputs", "example", "instance", "metadata"}
"""Names of a tool's container objects, which say nothing about their content."""
NOTHING, RATED, LISTS, BY_NAME = "nothing", "numbers", "ratings", "ratings by criterion"
PAIRS, TEXTS = "pairs of texts", "texts"
TALKS, ASKED_FOR = "conversations, each with its last answer", "conversations without an answer"
OTHERS = "dates, objects, or numbers that count the rows or exceed 100"
"""Kinds of cells that a column may have."""
MOST_CHOICES = 3  # different numbers of choices; more are probabilities
SHARES = ("1", "2")  # codes of both outputs of AlpacaEval's 1 + P
MOST_CODES, LONGEST_CODE = 99, 200  # most codes of choices, and their characters


@dataclass(frozen=True, eq=False)
class Column:
    """A column: the words of its name, and what its cells hold."""

    name: str
    cells: Sequence[Any]  # one per row, None where there is no value
    words: tuple[str, ...] = ()  # of its name, without accents
    end: str = ""  # number or letter at the end of its name, or the side of a pair that it is about
    kind: str = NOTHING
    numbers: Mapping[str, float] = field(default_factory=dict)  # word -> number, for cells such as pass or 4/5
    codes: tuple[str, ...] | None = None  # codes of two outputs and a tie; () for 0, 1, A, B; None if not choices
    is_inside: bool = False  # a path into another column's objects

    @classmethod
    def of(cls, name: str, cells: Sequence[Any], *, is_inside: bool = False) -> Column:
        """Read a column of a table."""
        words = words_of(name)
        end = words.pop() if len(words) > 1 and (words[-1].isdecimal() or words[-1] in ENDS) else ""
        if words and words[0] in PREFERRED and WORDS["writers"] & {*words[1:]}:  # chosen_model
            end = words.pop(0)
        if is_inside or "." in name:
            words = [word for word in words if word not in CONTAINERS]
        cells = [*map(files.one_text, cells)] if all(isinstance(c, list | None) for c in cells) else cells
        cells = [None if items.is_absent(cell) else cell for cell in cells]
        opened = [files.parsed_or_given(c) if isinstance(c, str) and c.lstrip()[:1] in {*"[{"} else c for c in cells]
        if (kind := _kind([cell for cell in opened if cell is not None])) in (TALKS, ASKED_FOR):
            cells = [*map(files.text_of, opened)]
        elif kind == OTHERS:  # JSON as text
            kind = _kind([cell for cell in cells if cell is not None])
        else:
            cells = opened
        column = cls(name, cells, tuple(words), end, kind, is_inside=is_inside)
        rated = column.filled if kind == LISTS or (kind == RATED and isinstance(column.filled[0], str | bool)) else ()
        return replace(column, numbers=items.values_of_words(items.cells_of(rated)), codes=choice_codes(column.filled))

    @cached_property
    def filled(self) -> list[Any]:
        """Cells with a value."""
        return [cell for cell in self.cells if cell is not None]

    @property
    def is_names(self) -> bool:
        """True if the cells name a few of something, such as systems."""
        return self.kind == TEXTS and len({*self.filled}) > 1 and all(len(name) <= 60 for name in self.filled)

    @property
    def is_share(self) -> bool:
        """True if the cells are numbers between the codes of two outputs, such as AlpacaEval's 1 + P(second)."""
        return self.codes == SHARES and len({*self.filled}) > MOST_CHOICES

    @property
    def is_judges(self) -> bool:
        """True if a word of the name is of a judge or a model."""
        return self.has("judges", "models")

    @property
    def about(self) -> set[str]:
        """Words of its name, such as a criterion, besides those that say whose ratings it holds."""
        whose = words_in("people", "given names", "judges", "models", "values")
        return {word for word in self.words if not (word.isdecimal() or word in whose)}

    @property
    def may_count_persons(self) -> bool:
        """True if the cells may be numbers of raters: the name speaks of persons only."""
        is_number = self.kind == RATED and not self.numbers
        return self.only("persons") and is_number and all(float(cell).is_integer() for cell in self.filled)

    @cached_property
    def highest(self) -> float:
        """Largest absolute value of its numbers, or the maximum that they are out of (5 in "4/5")."""
        return max(self.numbers.values()) if self.numbers else float(np.nanmax(np.abs(self.values())))

    def has(self, *names: str) -> bool:
        """Return whether a word of the name is in one of these sets of ``WORDS``."""
        return not words_in(*names).isdisjoint(self.words)

    def only(self, *names: str) -> bool:
        """Return whether every word of the name is in one of these sets of ``WORDS``."""
        return words_in(*names).issuperset(self.words)

    def values(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return (rows,) numbers, the mean of a cell with a list; NaN for a cell without numbers."""

        def value(cell: Any) -> float:
            filled = [entry for entry in items.cells_of(cell) if not missing(entry)]
            numbers = [float(self.numbers.get(word(entry), entry) if self.numbers else entry) for entry in filled]
            return sum(numbers) / len(numbers) if numbers else np.nan

        plain = self.kind == RATED and not self.numbers
        cells = [np.nan if cell is None else cell for cell in self.cells] if plain else [*map(value, self.cells)]
        return np.array(cells, dtype=np.float64)

    def says(self) -> str:
        """Describe the cells."""
        if self.kind != RATED:
            return self.kind
        if self.numbers:
            return "words for numbers: " + ", ".join(sorted({str(cell) for cell in self.filled})[:4])
        return f"numbers from {min(self.filled):g} to {max(self.filled):g}"


def words_in(*names: str) -> frozenset[str]:
    """Return the words of several sets of ``WORDS``."""
    return frozenset().union(*(WORDS[name] for name in names))


def words_of(name: str) -> list[str]:
    """Return the words and numbers of a name, in lower case and without accents."""
    parted = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)).casefold()
    return re.findall(r"[a-z]+|\d+", "".join(c for c in parted if not unicodedata.combining(c)))


def _kind(cells: Sequence[Any]) -> str:
    if not cells:
        return NOTHING
    if _are(cells, list, dict) and all(talks := [*map(files.transcript, cells)]):
        answers = [talk[1] for talk in talks if talk]
        return TALKS if all(answers) else OTHERS if any(answers) else ASKED_FOR
    if _are(cells, list):
        inner = [value for cell in cells for value in cell if not missing(value)]
        texts = [value for value in inner if isinstance(value, str | list | dict)]  # beside a few that a tool misread
        if all(len(cell) == 2 for cell in cells) and len(texts) > 0.9 * len(inner) and _kind(texts) in (TEXTS, TALKS):
            return PAIRS
        return LISTS if _are(inner, str, int, float) and _kind(inner) == RATED else OTHERS
    if _are(cells, dict):
        inner = [value for cell in cells for value in cell.values() if not missing(value)]
        return BY_NAME if _kind(inner) in (RATED, LISTS) else OTHERS
    if _are(cells, str, bool):
        first = word(cells[0]) in items.values_of_words(cells[:1])  # most columns of texts need no further look
        if first and {word(cell) for cell in {*cells}} <= items.values_of_words(cells).keys():
            return RATED
        dates = all(re.match(r"\d{4}-\d\d-\d\d", str(cell)) for cell in cells)
        return OTHERS if dates or not _are(cells, str) else TEXTS
    if _are(cells, int, float) and bool not in {*map(type, cells)}:
        low, high = min(cells), max(cells)
        counts = len(cells) > 10 and len({*cells}) == len(cells) == high - low + 1
        return RATED if -100 <= low <= high <= 100 and not counts else OTHERS
    return OTHERS


def _are(cells: Sequence[Any], *types: type) -> bool:
    return all(issubclass(kind, types) for kind in {*map(type, cells)})


def choice_codes(cells: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the cells' codes of the first output, the second and a tie; () for usual codes, None if not choices."""
    if not cells or not _are(cells, str, int, float) or bool in {*map(type, cells)}:
        return None
    numbers = [cell for cell in cells if not isinstance(cell, str)]
    if len(numbers) == len(cells) and 1 <= min(numbers) < max(numbers) <= 2 and len({*numbers}) > MOST_CHOICES:
        return SHARES
    if len({*cells}) > MOST_CODES or any(isinstance(cell, str) and len(cell) > LONGEST_CODE for cell in cells):
        return None
    codes = {"tie" if (code := items.choice_code(cell)) in items.TIES else code for cell in {*cells}}
    if codes <= LETTERS | {"0", "1", "-1"} or frozenset(codes - LETTERS) in NUMBERED:
        return ()
    ties = sorted(codes & WORDS["ties"])
    for code, (first, second) in itertools.product(sorted(codes - {*ties}), FIRSTS.items()):
        stem = code.removesuffix(second if code.endswith(second) else first)
        named = stem[-1:].isdecimal() or words_in("people", "voters") & {*words_of(stem)}  # llama-7b, author_2
        if code != stem and not named and codes - {*ties} <= {stem + first, stem + second} and len(ties) < 2:
            return (stem + first, stem + second, *ties)
    return None
