"""Read the rows of a file: JSONL, JSON, CSV, TSV or Parquet, the text formats also compressed as ``.gz``.

Each reader yields (place, record). The place names the file and the line or row, and ends in its number.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source, check_unpacked

Rows = Iterator[tuple[str, dict[str, Any]]]
SEPARATORS = (",", ";", "\t")
"""Separators of the cells of a CSV file; of equally frequent ones, the first is used."""
BATCH, SMALL_BATCH = 1024, 16
"""Rows of a Parquet file that are read at once: usually, and where many long texts may take few bytes."""
VALUE = 64
"""Bytes that a value of a Parquet file takes in Python besides its text."""
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
        DataError: The file is damaged or unpacks to too much, two columns have one name, or Python cannot hold a value,
            such as a date after the year 9999.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"{source.path} is a Parquet file, which pyarrow reads: pip install 'evalbias[parquet]', or save it as "
            ".jsonl or .csv."
        ) from error
    path, raw = source.path, source.content(source.path)
    number = 0
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw))
        file.scan_contents()  # raises where the layout is damaged; to look at it would end the process
        size, texts, rows = _layout(file.metadata)
        check_unpacked(size, len(raw), path)
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw), read_dictionary=texts)
        names = file.schema_arrow.names
        _check_distinct(names, str(path))
        for group in range(file.num_row_groups):  # Arrow cannot join the nested texts of two
            for batch in file.iter_batches(rows, row_groups=[group]):
                size += sum(map(_size, batch.columns))
                check_unpacked(size, len(raw), path)
                where = f"{path}, rows {number + 1} to {number + batch.num_rows}"
                columns = [_values(c, f"{where}: {name!r:.80}") for name, c in zip(names, batch.columns, strict=True)]
                for record in zip(*columns, strict=True):
                    number += 1
                    yield f"{path}, row {number}", dict(zip(names, record, strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged or no Parquet file ({error!s:.200}); download it again.") from error


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


def _check_distinct(names: Iterable[str], where: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where} has several columns named {min(repeated)!r:.80}; give each its own name.")


def _layout(metadata: Any) -> tuple[int, list[str], int]:
    """Say how to read a Parquet file without unpacking much at once.

    A text that many rows share may be stored once. Arrow can keep it so until the rows are counted, except in columns
    with a delta encoding, in which each text builds on the one before.

    Returns:
        Bytes that the values take in memory besides their texts, columns whose texts stay shared, and rows to read at
        once.
    """
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    size, shared, rows = 0, [], BATCH
    for i, leaf in enumerate(leaves):
        chunks = [group.column(i) for group in groups]
        size += sum(chunk.num_values for chunk in chunks) * max(VALUE, leaf.length or 0)  # length: of a fixed width
        if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type != "DECIMAL":
            if any("DELTA" in encoding for chunk in chunks for encoding in chunk.encodings):
                rows = SMALL_BATCH
            else:
                shared.append(leaf.path)
    return size, shared, rows


def _size(array: Any) -> int:
    """Return the bytes of an Arrow array's values; a text that several share counts for each."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        return int(compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0)
    if types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return sum(_size(part[first:last]) for part in (array.keys, array.items))
    if types.is_struct(array.type):
        return sum(map(_size, array.flatten()))
    return _size(array.flatten()) if types.is_nested(array.type) else int(array.nbytes)


def _values(column: Any, where: str) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError) as error:
        raise DataError(f"{where} cannot be read ({error}); correct the column, or leave it out.") from error


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
        _check_distinct(filter(None, header), f"{path}:{first}")
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
