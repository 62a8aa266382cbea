"""Read the rows of a file: JSONL, JSON, CSV, TSV or Parquet, the text formats also compressed as ``.gz``.

Each reader yields (place, record). The place names the file and the line or row, and ends in its number.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source

Rows = Iterator[tuple[str, dict[str, Any]]]
SEPARATORS = (",", ";", "\t")
"""Separators of the cells of a CSV file; of equally frequent ones, the first is used."""
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?')


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
    """Yield the rows of a CSV file under its header, whose most frequent separator (comma, semicolon, tab) is used.

    Programs write semicolons where the comma is the decimal mark. A first line such as ``sep=;``, as Excel knows it,
    names the separator. Cells are texts; quoted ones may hold line breaks. Columns without a name are left out, such as
    the index that pandas writes. An empty file has no rows.

    Raises:
        DataError: A row is not valid CSV or has another number of cells than the header, or two columns have one name.
    """
    return _rows_of(source, source.read(source.path))


def tsv_rows(source: Source) -> Rows:
    """Yield the rows of a file whose cells are separated by tabs; without a tab in its header, as ``csv_rows``."""
    content = source.read(source.path)
    return _separated(source, content, "\t") if "\t" in content.partition("\n")[0] else _rows_of(source, content)


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


def _rows_of(source: Source, content: str) -> Rows:
    """Yield the rows of a table with the separator that its first line names or has most often."""
    header, _, rest = content.partition("\n")
    if named := _NAMED_SEPARATOR.fullmatch(header.strip("\r")):
        return _separated(source, rest, named[1], first=2)
    return _separated(source, content, max(SEPARATORS, key=header.count))


def _separated(source: Source, content: str, delimiter: str, *, first: int = 1) -> Rows:
    """Yield the rows of a table whose header is line ``first``; the number of a place is that of the row's first line.

    Where semicolons separate the cells, the source's decimal mark is the comma.
    """
    path = source.path
    if delimiter == ";":
        source.decimal_mark = ","
    line, limit = first, csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a document may exceed 131072 characters
    try:
        reader = csv.reader(io.StringIO(content, newline=""), strict=True, delimiter=delimiter)
        header = [name.strip() for name in next(reader, [])]
        repeated = {name for name in header if name and header.count(name) > 1}
        if repeated:
            raise DataError(f"{path}:{first} has several columns named {min(repeated)!r}; give each its own name.")
        line = reader.line_num + first
        for cells in reader:
            if cells:  # a blank line has none
                if len(cells) != len(header):
                    raise DataError(
                        f"{path}:{line} has {len(cells)} cells, the header has {len(header)}; correct the row, and "
                        f"quote texts that contain {'a tab' if delimiter == chr(9) else repr(delimiter)}."
                    )
                yield f"{path}:{line}", {name: cell for name, cell in zip(header, cells, strict=True) if name}
            line = reader.line_num + first
    except csv.Error as error:
        raise DataError(f"{path}:{line} is not valid CSV ({error}); correct the row.") from error
    finally:
        csv.field_size_limit(limit)
