"""Read the rows of a file: JSONL, JSON, CSV, TSV or Parquet, the text formats also compressed as ``.gz``.

Each reader yields (place, record). The place names the file and the line or row, and ends in its number.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source

Rows = Iterator[tuple[str, dict[str, Any]]]


def json_rows(source: Source) -> Rows:
    """Yield the records of a JSON list, or of JSON objects one a line, as pandas and Hugging Face also name ``.json``.

    Raises:
        DataError: The file holds something else.
    """
    content = source.read(source.path)
    if content.lstrip().startswith("{") and "\n" in content.strip():
        return source.records(content, first=1)
    return source.listed(content, source.path)


def csv_rows(source: Source) -> Rows:
    """Yield the rows of a CSV file under its header; a header with semicolons and no comma is read with semicolons.

    Programs write semicolons where the comma is the decimal mark. Cells are texts; quoted ones may hold line breaks. An
    empty file has no rows.

    Raises:
        DataError: A row is not valid CSV or has another number of cells than the header, or two columns have one name.
    """
    content = source.read(source.path)
    header = content.partition("\n")[0]
    if ";" not in header or "," in header:
        return _separated(source.path, content, ",")
    source.decimal_mark = ","
    return _separated(source.path, content, ";")


def tsv_rows(source: Source) -> Rows:
    """Yield the rows of a file whose cells are separated by tabs; otherwise as ``csv_rows``."""
    return _separated(source.path, source.read(source.path), "\t")


def parquet_rows(source: Source) -> Rows:
    """Yield the rows of a Parquet file.

    Raises:
        ImportError: pyarrow is not installed.
        DataError: The file is damaged.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"{source.path} is a Parquet file, which pyarrow reads: pip install 'evalbias[parquet]', or save it as "
            ".jsonl or .csv."
        ) from error
    raw = source.content(source.path)
    try:
        records = pyarrow.parquet.read_table(io.BytesIO(raw)).to_pylist()
    except pyarrow.ArrowException as error:
        raise DataError(f"{source.path} is damaged or no Parquet file ({error}); download it again.") from error
    return ((f"{source.path}, row {number}", record) for number, record in enumerate(records, start=1))


FORMATS: dict[str, Callable[[Source], Rows]] = {
    "jsonl": Source.rows,
    "json": json_rows,
    "csv": csv_rows,
    "tsv": tsv_rows,
    "parquet": parquet_rows,
}
TEXT_CELLS = ("csv", "tsv")
"""Formats in which every cell is a text."""


def format_of(path: str) -> str | None:
    """Return the format that a file's ending names; None if it names none.

    Examples:
        >>> format_of("items.csv.gz"), format_of("items.txt")
        ('csv', None)
    """
    ending = Path(path.lower().removesuffix(".gz")).suffix.removeprefix(".")
    return ending if ending in FORMATS else None


def _separated(path: Path, content: str, delimiter: str) -> Rows:
    """Yield the rows of a table; the number of a place is that of the row's first line."""
    line, limit = 1, csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a document may exceed 131072 characters
    try:
        reader = csv.reader(io.StringIO(content, newline=""), strict=True, delimiter=delimiter)
        header = [name.strip() for name in next(reader, [])]
        repeated = {name for name in header if header.count(name) > 1}
        if repeated:
            raise DataError(f"{path}:1 has several columns named {min(repeated)!r}; give each column its own name.")
        line = reader.line_num + 1
        for cells in reader:
            if cells:  # a blank line has none
                if len(cells) != len(header):
                    raise DataError(
                        f"{path}:{line} has {len(cells)} cells, the header has {len(header)}; correct the row, and "
                        f"quote texts that contain {'a tab' if delimiter == chr(9) else repr(delimiter)}."
                    )
                yield f"{path}:{line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line} is not valid CSV ({error}); correct the row.") from error
    finally:
        csv.field_size_limit(limit)
