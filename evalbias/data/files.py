"""From any source to rows: files, compressed files, data frames, lists and the hub."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.cells import DataError, _object, lone_surrogate
from evalbias.data.columns import check_mapping, renamed

# A data set in memory: DSPy examples, their origin, and the items that were left out.


class Dataset(list[Any]):
    """List of ``dspy.Example`` with ``id``, ``source``, ``output`` and ``scores`` (criterion -> number or NaN).

    Where single ratings are known, ``ratings`` maps a criterion to them, in the raters' order, NaN where one gave none.
    A slice or a copy is a plain list without the attributes.

    Attributes:
        name: Name of the data set.
        path: File or folder it was read from.
        sha256: SHA-256 of the uncompressed contents of all files read, in a fixed order.
        left_out: Reason -> items left out for this reason, each as ``file:line`` or as its id.
    """

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        *,
        name: str,
        path: Path,
        sha256: str,
        left_out: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(examples)
        self.name = name
        self.path = path
        self.sha256 = sha256
        self.left_out = {reason: tuple(items) for reason, items in left_out.items()}

    def summary(self) -> str:
        """Describe the data set in one line: number of items, and items left out by reason."""
        left = "; ".join(f"{len(items)} left out ({reason}: {_few(items)})" for reason, items in self.left_out.items())
        return f"{self.name}: {len(self)} items" + (f"; {left}" if left else "")


def _few(items: Sequence[str]) -> str:
    """Join the first three items, with an ellipsis if there are more."""
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")


# Shared parts of the loaders: read and hash files, check fields, and collect items.


UNPACKED_GB = "EVALBIAS_UNPACKED_GB"
"""Environment variable: gigabytes that a file may unpack to, in place of the default (see ``check_unpacked``)."""
_PIECE = 2**20
"""Bytes that are decompressed at once."""


@dataclass
class Source:
    """Data set that is being read.

    Attributes:
        name: Name of the data set.
        path: File or folder that the user named.
        digest: SHA-256 of everything read so far.
        left_out: Reason -> items left out for this reason.
        examples: Items in the order they were read.
        places: Item id -> place where it was read, such as ``file:line``.
        decimal_mark: Mark between the whole and the fraction of a number that is written as text.
        id_column: Column that is read as ``id``.
    """

    name: str
    path: Path
    digest: Any = field(default_factory=hashlib.sha256)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    examples: list[dspy.Example] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    decimal_mark: str = "."
    id_column: str = "id"

    def read(self, path: Path) -> str:
        """Read a text file and add it to the hash; ``.gz`` is decompressed and a byte-order mark dropped.

        Raises:
            DataError: The file is missing, damaged, unpacks to too much or is not UTF-8.
        """
        return decoded(self.content(path), path)

    def content(self, path: Path) -> bytes:
        """Read a file and add it to the hash; ``.gz`` is decompressed.

        Raises:
            DataError: The file is missing, its compression is damaged, or it unpacks to too much.
        """
        if not path.is_file():
            problem = "a folder, not a file" if path.is_dir() else "missing"
            raise DataError(f"{path} is {problem}; give the file that {self.name} is read from.")
        content = path.read_bytes()
        if path.suffix == ".gz":
            unpacked = io.BytesIO()
            try:
                with gzip.open(io.BytesIO(content)) as packed:
                    while unpacked.write(packed.read(_PIECE)):
                        check_unpacked(unpacked.tell(), len(content), path)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise DataError(f"{path} is damaged ({error}); download it again.") from error
            content = unpacked.getvalue()
        self.digest.update(content)
        return content

    def part(self, content: bytes) -> str:
        """Decode a part of the file and add it to the hash.

        Raises:
            DataError: The bytes are not UTF-8.
        """
        self.digest.update(content)
        return decoded(content, self.path)

    def json_object(self, path: Path) -> dict[str, Any]:
        """Read a file that contains one JSON object."""
        return _record(_decode(self.read(path), path, 1), str(path))

    def json_records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (``file[index]``, record) for every entry of a file that contains one JSON list.

        Raises:
            DataError: The file contains something else.
        """
        return self.listed(self.read(self.path), self.path)

    def listed(self, content: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (``file[index]``, record) for every entry of a file's content, a JSON list.

        Raises:
            DataError: The text is something else.
        """
        records = _decode(content, path, 1)
        if not isinstance(records, list):
            raise DataError(f"{path} holds {records!r:.80}; it must be a JSON list of records, [{{...}}, {{...}}].")
        for index, record in enumerate(records):
            where = f"{path}[{index}]"
            yield where, _record(record, where)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (``file:line``, record) for every line of a JSONL file that is not blank.

        Raises:
            DataError: A line is not a JSON object.
        """
        return self.records(self.read(self.path), first=1)

    def records(self, content: str, *, first: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (``file:line``, record) for every line of a text that is not blank.

        Args:
            content: Lines of JSON.
            first: Line number of the first line in the file.

        Raises:
            DataError: A line is not a JSON object.
        """
        lines = content.split("\n")  # str.splitlines would also split at U+2028 and U+0085 inside texts
        for number, line in enumerate(lines, start=first):
            if line.strip():
                where = f"{self.path}:{number}"
                yield where, _record(_decode(line, self.path, number), where)

    def add(self, fields: Mapping[str, Any], where: str) -> None:
        """Add an item with an ``output`` or a pair of ``candidates``, or leave it out if its texts are empty.

        Raises:
            DataError: Another item has the same id.
        """
        if fields["id"] in self.places:
            first = self.places[fields["id"]]
            raise DataError(
                f"{where}: the id {fields['id']!r:.80} is already used at {first}; give each item its own id. If it "
                f"names an input that several outputs share: --map input_id={self.id_column}."
            )
        self.places[fields["id"]] = where
        judged = "candidates" if "candidates" in fields else "output"
        texts = fields[judged] if judged == "candidates" else [fields[judged]]
        if any(text.strip() for text in texts):
            self.examples.append(dspy.Example(dict(fields)).with_inputs("source", judged))
        else:
            self.leave_out("empty output", where)

    def leave_out(self, reason: str, item: str) -> None:
        """Record that an item is left out, and the reason."""
        self.left_out.setdefault(reason, []).append(item)

    def dataset(self) -> Dataset:
        """Return the items added so far as a data set."""
        return Dataset(
            self.examples, name=self.name, path=self.path, sha256=self.digest.hexdigest(), left_out=self.left_out
        )


def decoded(content: bytes, path: Path) -> str:
    """Return the text of a file or of a part of it, without a byte-order mark.

    Raises:
        DataError: The bytes are not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, content, error) from error


def check_unpacked(size: int, packed: int, path: Path) -> None:
    """Refuse a file that unpacks to more than 100 times its size; at least 256 MB and at most 2 GB are allowed.

    Args:
        size: Bytes that were unpacked, or will be.
        packed: Size of the file in bytes.
        path: The file, for the error.

    Raises:
        DataError: It is more than that, or than the gigabytes in the environment variable ``EVALBIAS_UNPACKED_GB``.
        ValueError: The variable holds no number.
    """
    given = os.environ.get(UNPACKED_GB)
    try:
        limit = float(given) * 1e9 if given else max(256e6, min(100 * packed, 2e9))
    except ValueError:
        raise ValueError(f"{UNPACKED_GB} is {given!r:.80}: give a number of gigabytes, such as 8.") from None
    if size > limit:
        raise DataError(
            f"{path} has {packed / 1e6:.3g} MB and unpacks to more than {limit / 1e6:.4g} MB. If that is right and "
            f"your memory holds it, set the environment variable {UNPACKED_GB}=8 (gigabytes)."
        )


def check_text(record: Mapping[str, Any], where: str) -> None:
    """Refuse a record that holds a lone surrogate in a name or text, at any depth: no tokenizer and no plot takes it.

    Raises:
        DataError: There is one; the message names the place and the field.
    """
    for name, value in record.items():
        nested = isinstance(value, list | dict)
        content = json.dumps(value, ensure_ascii=False, default=str) if nested else value
        if problem := lone_surrogate(name) or (isinstance(content, str) and lone_surrogate(content)):
            place = problem.partition(" at ")[0] if nested else problem
            raise DataError(f"{where}: {name!r:.80} holds {place}; write the character whole, or remove it.")


def parsed(content: str) -> Any:
    """Parse strict JSON: without NaN and without a name twice in one object.

    Raises:
        ValueError: It is something else, nests too deeply, or holds an integer of thousands of digits.
    """
    try:
        return json.loads(content, parse_constant=_refuse, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _record(value: Any, where: str) -> dict[str, Any]:
    record = _object(value, where)
    check_text(record, where)
    return record


def _decode(content: str, path: Path, line: int) -> Any:
    try:
        return parsed(content)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{line + error.lineno - 1} is not valid JSON ({error.msg}); correct it.") from error
    except ValueError as error:
        raise DataError(f"{path}:{line} is not valid JSON ({error}); correct it.") from error


def _not_utf8(path: Path, content: bytes, error: UnicodeDecodeError) -> DataError:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem = "is UTF-16 text"
    else:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text: line {line} has the byte 0x{content[error.start]:02x}"
    return DataError(f'{path} {problem}; save it as UTF-8 (in a spreadsheet, the type "CSV UTF-8").')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r:.80} stands twice in one object")
    return record


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not a JSON value; write null for an undefined score")


# Read the rows of a file: JSONL, JSON, CSV, TSV or Parquet, the text formats also compressed as ``.gz``.
#
# Each reader yields (place, record). The place names the file and the line or row, and ends in its number.


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


# Rows of any source under our column names: files, pandas data frames, lists, and Hugging Face data sets.


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
