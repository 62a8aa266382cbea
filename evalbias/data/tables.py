"""Rows of any source under our column names: files, pandas data frames, lists, and Hugging Face data sets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalbias.data.columns import check_mapping, renamed
from evalbias.data.dataset import DataError
from evalbias.data.formats import FORMATS, TEXT_CELLS
from evalbias.data.reading import Source, check_text, parsed

HUB = "hf"
TEXTS = frozenset({"id", "input_id", "source", "output", "output_1", "output_2", "system", "system_1", "system_2"})
TEXTS |= {"reference", "problem", "solution", "answer"}
"""Columns of tables whose cells stay texts even where all of them are numbers."""
ABSENT = ("", "na", "n/a", "nan", "null", "none")
"""Cells without a value in a column of numbers, in lower case."""
_RATED = re.compile(r"score|scores\..+|rating_\d+", re.ASCII)
"""Columns of numbers by their meaning: where a cell of them is something else, it alone stays a text, to be named."""
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,308})(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # as JSON, up to the largest float


@dataclass(frozen=True)
class Table:
    """Rows that were read.

    Attributes:
        source: Origin, with the hash of what was read.
        rows: (place, record) in order; a place ends in the number of its line or row.
        mapping: Our field -> the source's column, where they differ.
    """

    source: Source
    rows: Sequence[tuple[str, dict[str, Any]]]
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order of first appearance."""
        return list(dict.fromkeys(name for _, record in self.rows for name in record))


def file_table(kind: str, path: Path, mapping: Mapping[str, str] | None = None) -> Table:
    """Read a file of a format in ``FORMATS``.

    In CSV and TSV files, a column of which every cell is a number or empty holds numbers, except those that are texts
    by their meaning (``TEXTS``); other empty cells are None. Where semicolons separate the cells, 2,9 is a number.

    Raises:
        DataError: The file is malformed, or the mapping names a column that does not exist.
    """
    source = Source(kind, path)
    rows = _mapped(list(FORMATS[kind](source)), mapping, str(path))
    if kind in TEXT_CELLS:
        rows = _typed(rows, source.decimal_mark)
    elif kind == "parquet":
        rows = _with_outputs((where, plain_record(record)) for where, record in rows)
    return Table(source, rows, mapping or {})


def memory_table(given: Any, mapping: Mapping[str, str] | None = None) -> Table:
    """Take the rows of a pandas data frame, or mappings such as dicts and DSPy examples; they are hashed as JSON.

    Raises:
        DataError: An entry is no mapping, or the mapping names a column that does not exist.
    """
    frame = hasattr(given, "to_dict") and hasattr(given, "notna")
    records: Iterable[Any] = given
    if frame:
        records = given.astype(object).where(given.notna(), None).to_dict("records")
    name = "data frame" if frame else "list"
    return _table(name, records, mapping)


def hub_table(name: str, mapping: Mapping[str, str] | None = None) -> Table:
    """Read ``NAME`` or ``NAME:SPLIT`` of the Hugging Face hub, or of a folder that the datasets library can read.

    Raises:
        ImportError: datasets is not installed.
        DataError: The data set cannot be loaded, or it has several splits and none is named.
    """
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"{HUB}:{name} is read by the datasets library: pip install 'evalbias[hf]'.") from error
    from evalbias.data.hub import check_hub

    path, _, split = name.partition(":")
    check_hub(path)
    remedy = "name it as hf:NAME:SPLIT, or load it in Python and pass it to evalbias.data.read"
    try:
        loaded = datasets.load_dataset(path, split=split or None)
    except (ValueError, OSError, RuntimeError) as error:  # unknown split or name, several configurations, no network
        raise DataError(f"{HUB}:{name} cannot be loaded ({error}); {remedy}.") from error
    if isinstance(loaded, Mapping):
        if len(loaded) > 1:
            raise DataError(f"{HUB}:{name} has the splits {', '.join(map(str, loaded))}; {remedy}.")
        (loaded,) = loaded.values()
    return _table(f"{HUB}:{name}", loaded, mapping)


def _table(name: str, records: Iterable[Any], mapping: Mapping[str, str] | None) -> Table:
    source = Source(name, Path(name))
    rows = list(_plain_rows(name, records))
    source.digest.update(json.dumps([record for _, record in rows], sort_keys=True, default=str).encode())
    return Table(source, _with_outputs(_mapped(rows, mapping, name)), mapping or {})


def _plain_rows(name: str, records: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping) and not hasattr(record, "toDict"):
            raise DataError(f"{name}, row {number} is {record!r:.80}; give dicts or DSPy examples.")
        fields = plain_record(record if isinstance(record, Mapping) else dict(record.items()))
        check_text(fields, f"{name}, row {number}")
        yield f"{name}, row {number}", fields


def _mapped(
    rows: list[tuple[str, dict[str, Any]]], mapping: Mapping[str, str] | None, place: str
) -> list[tuple[str, dict[str, Any]]]:
    if not mapping or not rows:
        return rows
    check_mapping(mapping, list(dict.fromkeys(name for _, record in rows for name in record)), place)
    return [(where, renamed(record, mapping)) for where, record in rows]


def _typed(rows: list[tuple[str, dict[str, Any]]], decimal_mark: str) -> list[tuple[str, dict[str, Any]]]:
    """Give columns of numbers their numbers; an empty cell is None, but an empty output stays an empty text."""
    columns = rows[0][1].keys() if rows else ()
    cells = {name: [record[name] for _, record in rows] for name in columns if name not in TEXTS}
    marks = {name: mark for name, column in cells.items() if (mark := _mark_of_numbers(name, column, decimal_mark))}
    return [
        (where, {name: _cell(name, cell, marks.get(name, "")) for name, cell in record.items()})
        for where, record in rows
    ]


def _mark_of_numbers(name: str, cells: Sequence[str], decimal_mark: str) -> str:
    """Return the decimal mark with which every cell that is not empty is a number; empty where there is none.

    In a column of ratings, it is the mark with which most of them are.
    """
    given = [cell.strip() for cell in cells if cell.strip().lower() not in ABSENT]
    read = {mark: sum(_is_number(cell, mark) for cell in given) for mark in (".", decimal_mark)}
    mark = max(read, key=read.__getitem__)
    enough = 1 if _RATED.fullmatch(name) else max(len(given), 1)
    return mark if read[mark] >= enough else ""


def _is_number(cell: str, mark: str) -> bool:
    return _NUMBER.fullmatch(_with_point(cell, mark)) is not None


def _with_point(cell: str, mark: str) -> str:
    """Return a cell with a decimal point; one with a point for the thousands (1.000 beside 2,5) is no number here."""
    return cell if mark == "." else cell.replace(".", "?").replace(mark, ".")


def _cell(name: str, cell: str, mark: str) -> Any:
    if mark and cell.strip().lower() in ABSENT:
        return None
    if mark and _is_number(cell.strip(), mark):
        return parsed(_with_point(cell.strip(), mark))
    return cell if cell.strip() or name.startswith("output") else None


def plain_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in plain Python values: NaN and pandas' NA are None, and numpy's values are Python's."""
    return {str(name): _plain(value) for name, value in record.items()}


def _with_outputs(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Give rows an empty text for an output that is None, as an empty cell of a CSV file is read."""
    outputs = ("output", "output_1", "output_2")
    return [(w, {k: "" if v is None and k in outputs else v for k, v in record.items()}) for w, record in rows]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
