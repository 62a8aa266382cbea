"""Names of columns: map a file's own to ours, say what is missing, and find the columns that hold numbers."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalbias.data.cells import DataError

Row = tuple[str, dict[str, Any]]  # place of a row, such as file:line, ending in its number; record: column -> cell

SYNONYMS: dict[str, tuple[str, ...]] = {
    "source": ("question", "prompt", "input", "instruction", "query", "document", "article", "context", "text"),
    "output": ("answer", "response", "reply", "completion", "generation", "prediction", "summary", "text"),
    "score": ("rating", "label", "human_score", "human_rating", "human", "grade", "mos", "quality", "stars"),
    "better": ("preference", "preferred", "chosen", "label", "winner", "human", "human_choice", "human_preference"),
    "system": ("model", "writer", "generator"),
    "output_1": ("output_a", "answer_a", "response_a", "reply_a", "completion_a", "answer_1", "response_1", "reply_1"),
    "output_2": ("output_b", "answer_b", "response_b", "reply_b", "completion_b", "answer_2", "response_2", "reply_2"),
}
"""Names that other data sets give to our fields, the likelier first."""

FIELDS = (*SYNONYMS, "outputs", "scores", "ratings", "systems", "system_1", "system_2", "input_id")
"""Our fields, apart from those that are numbered or named by criterion."""

EXPECTED = (
    "Expected are items such as\n"
    '  {"source": "What is 2 + 2?", "output": "4", "score": 5}\n'
    '  {"source": "Name a prime.", "output": "It is 9.", "score": 1}\n'
    "or the same columns in a .csv, .tsv, .json or .parquet file; pairs have two texts as "
    '"outputs": ["4", "5"], in tables as output_1 and output_2.'
)

_BETWEEN_PAIRS = re.compile(r",(?=[^,=]+=)")  # a comma before the name of a field


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Read ``ours=theirs`` pairs, several between commas, each field once; a column's own name may hold commas.

    Examples:
        >>> parse_mapping(["source=question,output=answer", "score=rating"])
        {'source': 'question', 'output': 'answer', 'score': 'rating'}
        >>> parse_mapping(["source=the question, asked twice,output=answer"])
        {'source': 'the question, asked twice', 'output': 'answer'}
    """
    mapping: dict[str, str] = {}
    for pair in (pair for text in texts for pair in _BETWEEN_PAIRS.split(text)):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise ValueError(f"--map {pair}: write OURS=THEIRS, such as --map source=question,output=answer.")
        if ours in mapping:
            raise ValueError(f"--map gives the field {ours!r} twice, as {mapping[ours]!r} and {theirs!r}: keep one.")
        mapping[ours] = theirs
    return mapping


def check_mapping(mapping: Mapping[str, str], columns: Sequence[str], place: str) -> None:
    """Refuse a mapping to a misspelt field, of a column that does not exist, or of one column to two fields.

    A misspelt field would be a further column, and without its source an item counts as an input of its own.
    """
    for theirs, count in Counter(mapping.values()).items():
        fields = [ours for ours, column in mapping.items() if column == theirs]
        if count > 1:  # two raters would agree by construction, and a text be compared with itself
            raters = all(ours.startswith("rating_") for ours in fields)
            alone = f", or this one as the only score (score={theirs})" if raters else ""
            raise DataError(
                f"{place}: --map gives the column {theirs!r} as {' and as '.join(map(repr, fields))}: give each field "
                f"its own column{alone}."
            )
    for ours, theirs in mapping.items():
        near = difflib.get_close_matches(ours, FIELDS, 1, cutoff=0.9)
        if near and not ours.startswith(near[0]):  # score2 is a further column, sorce is none
            raise DataError(f"{place}: {ours}={theirs} maps to no field of evalbias. Did you mean {near[0]}={theirs}?")
        if theirs not in columns:
            close = difflib.get_close_matches(theirs, columns, 1)
            hint = f" Did you mean {ours}={close[0]}?" if close else ""
            raise DataError(f"{place} has no column {theirs!r} for {ours!r}; it has {listed(columns)}.{hint}")


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the columns of rows, in order of first appearance."""
    return list(dict.fromkeys(name for _, record in rows for name in record))


def renamed(record: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with their columns under our names; a column that has one of these names makes way."""
    theirs = set(mapping.values())
    kept = {name: value for name, value in record.items() if name not in theirs and name not in mapping}
    return kept | {ours: record[name] for ours, name in mapping.items() if name in record}


def lacking(place: str, columns: Sequence[str], wanted: str, *, beside: Iterable[str] = ()) -> DataError:
    """Return the error that a column is missing: the columns there are, the likely ones, and an example.

    Fields ``beside`` it are looked for too, so that one message gives the whole ``--map``.
    """
    likely = suggestions(columns, [wanted, *beside])
    hint = f" Say which column it is: --map {wanted}=COLUMN (in Python, mapping={{{wanted!r}: COLUMN}})."
    if likely:
        alike = ", ".join(f"{theirs!r} looks like {ours!r}" for ours, theirs in likely.items())
        option = ",".join(f"{ours}={theirs}" for ours, theirs in likely.items())
        hint = f" {alike}: --map {shlex.quote(option)} (in Python, mapping={likely})."
    return DataError(f"{place} has no column {wanted!r}; it has {listed(columns)}.{hint}\n{EXPECTED}")


def suggestions(columns: Sequence[str], wanted: Iterable[str], *, alike: bool = True) -> dict[str, str]:
    """Return field -> column that looks like it, for the wanted fields that are no columns; no column twice.

    Names that are spelled like a field's count if ``alike``, besides its synonyms.

    Examples:
        >>> suggestions(["Question", "reply", "rating"], ["source", "output", "score"])
        {'source': 'Question', 'output': 'reply', 'score': 'rating'}
    """
    column_of: dict[str, str] = {}
    for field in (field for field in wanted if field not in columns):
        free = {name.lower().strip().replace(" ", "_"): name for name in columns if name not in column_of.values()}
        exact = [free[name] for name in (field, *SYNONYMS.get(field, ())) if name in free]
        close = [free[name] for name in difflib.get_close_matches(field, free, 1, cutoff=0.75) if alike]
        if exact or close:
            column_of[field] = (exact or close)[0]
    return column_of


def listed(columns: Sequence[str]) -> str:
    """Name columns in an error, the first 50 of them."""
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    return "the columns " + ", ".join(f"{c!r:.80}" for c in columns[:50]) + more if columns else "no columns"


TEXTS = frozenset({"id", "input_id", "source", "output", "output_1", "output_2", "system", "system_1", "system_2"})
TEXTS |= {"reference", "problem", "solution", "answer"}
"""Columns whose cells stay texts even where all of them are numbers."""
ABSENT = ("", "na", "n/a", "nan", "null", "none")  # cells without a value in a column of numbers, in lower case
_RATED = re.compile(r"score|scores\..+|rating_\d+", re.ASCII)
"""Columns of numbers by their meaning: where a cell of them is something else, it alone stays a text, to be named."""
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,308})(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # as JSON, up to the largest float


def typed(rows: Sequence[Row], decimal_mark: str) -> list[Row]:
    """Give columns of numbers their numbers; an empty cell is None, but an empty output stays an empty text.

    A column holds numbers if every cell that is not empty is one, with a decimal point or with the file's own mark.
    """
    columns = rows[0][1] if rows else {}
    marks: dict[str, str] = {}
    for name in columns.keys() - TEXTS:
        given = [cell for _, record in rows if (cell := record[name].strip()).lower() not in ABSENT]
        found = {mark: sum(map(bool, (_as_json(cell, mark) for cell in given))) for mark in (".", decimal_mark)}
        mark = max(found, key=found.__getitem__)
        if found[mark] >= (1 if _RATED.fullmatch(name) else max(len(given), 1)):
            marks[name] = mark
    return [
        (where, {name: _value(name, cell, marks.get(name, "")) for name, cell in record.items()})
        for where, record in rows
    ]


def _as_json(cell: str, mark: str) -> str:
    """Return a number as JSON writes it, empty for none; beside decimal commas, 1.000 has a point of thousands."""
    number = cell if mark == "." else cell.replace(".", "?").replace(mark, ".")
    return number if _NUMBER.fullmatch(number) else ""


def _value(name: str, cell: str, mark: str) -> Any:
    if mark and cell.strip().lower() in ABSENT:
        return None
    if mark and (number := _as_json(cell.strip(), mark)):
        return json.loads(number)
    return cell if cell.strip() or name.startswith("output") else None
