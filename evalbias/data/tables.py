"""Rows of any source under our column names: files, pandas data frames, lists, and Hugging Face data sets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalbias.data.columns import check_mapping, renamed
from evalbias.data.dataset import DataError
from evalbias.data.formats import FORMATS, TEXT_CELLS
from evalbias.data.reading import Source

HUB = "hf"
TEXTS = frozenset({"id", "input_id", "source", "output", "output_1", "output_2", "system", "system_1", "system_2"})
TEXTS |= {"reference", "problem", "solution", "answer"}
"""Columns of tables whose cells stay texts even where all of them are numbers."""
ABSENT = ("", "na", "n/a", "nan", "null", "none")
"""Cells without a value in a column of numbers, in lower case."""
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Table:
    """Rows that were read.

    Attributes:
        source: Origin, with the hash of what was read.
        rows: (place, record) in order; a place ends in the number of its line or row.
    """

    source: Source
    rows: Sequence[tuple[str, dict[str, Any]]]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order of first appearance."""
        return list(dict.fromkeys(name for _, record in self.rows for name in record))


def file_table(kind: str, path: Path, mapping: Mapping[str, str] | None = None) -> Table:
    """Read a file of a format in ``FORMATS``.

    In CSV and TSV files, a column of which every cell is a number or empty holds numbers, except those that are texts
    by their meaning (``TEXTS``); other empty cells are None.

    Raises:
        DataError: The file is malformed, or the mapping names a column that does not exist.
    """
    source = Source(kind, path)
    rows = _mapped(list(FORMATS[kind](source)), mapping, str(path))
    if kind in TEXT_CELLS:
        rows = _typed(rows)
    elif kind == "parquet":
        rows = [(where, plain_record(record)) for where, record in rows]
    return Table(source, rows)


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
    path, _, split = name.partition(":")
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
    return Table(source, _mapped(rows, mapping, name))


def _plain_rows(name: str, records: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping) and not hasattr(record, "toDict"):
            raise DataError(f"{name}, row {number} is {record!r:.80}; give dicts or DSPy examples.")
        fields = record if isinstance(record, Mapping) else dict(record.items())
        yield f"{name}, row {number}", plain_record(fields)


def _mapped(
    rows: list[tuple[str, dict[str, Any]]], mapping: Mapping[str, str] | None, place: str
) -> list[tuple[str, dict[str, Any]]]:
    if not mapping or not rows:
        return rows
    check_mapping(mapping, list(dict.fromkeys(name for _, record in rows for name in record)), place)
    return [(where, renamed(record, mapping)) for where, record in rows]


def _typed(rows: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Give columns of numbers their numbers; an empty cell is None, but an empty output stays an empty text."""
    columns = rows[0][1].keys() if rows else ()
    numeric = {name for name in columns if name not in TEXTS and _is_numeric([record[name] for _, record in rows])}
    return [
        (where, {name: _cell(name, cell, numeric=name in numeric) for name, cell in record.items()})
        for where, record in rows
    ]


def _is_numeric(cells: Sequence[str]) -> bool:
    given = [cell.strip() for cell in cells if cell.strip().lower() not in ABSENT]
    return bool(given) and all(_NUMBER.fullmatch(cell) for cell in given)


def _cell(name: str, cell: str, *, numeric: bool) -> Any:
    if numeric:
        return None if cell.strip().lower() in ABSENT else json.loads(cell.strip())
    return cell if cell.strip() or name.startswith("output") else None


def plain_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in plain Python values: NaN is None, numpy's values are Python's, and a missing output is ""."""
    values = {str(name): _plain(value) for name, value in record.items()}
    return {k: "" if v is None and k in ("output", "output_1", "output_2") else v for k, v in values.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
