"""Read rows from any source: files, compressed files, data frames, lists and the Hugging Face hub.

A row is (place, record). The place names the file and the line or row, and ends in its number.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import itertools
import json
import math
import os
import re
import shlex
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from evalbias.data.items import DataError, as_object, lone_surrogate
from evalbias.values import python_literal

UNPACKED_GB = "EVALBIAS_UNPACKED_GB"  # environment variable: gigabytes that a file may unpack to (check_unpacked)
_PIECE = 2**20  # bytes that are decompressed at once

Record = dict[str, Any]  # column or name -> cell or value, as the file has it
Row = tuple[str, Record]  # place of a row, such as file:line, ending in its number; and the row
Rows = Iterator[Row]


@dataclass
class Source:
    """Files or data in memory, and the rows read from them."""

    name: str  # name of the data set or the format
    path: Path  # file or folder that the user named
    mapping: Mapping[str, str] = field(default_factory=dict)  # our field -> the table's column, where they differ
    rows: Sequence[Row] = ()  # of a table, under our names
    left_out: dict[str, list[str]] = field(default_factory=dict)  # reason -> items
    notes: Sequence[str] = ()  # sentences about how the rows were changed
    decimal_mark: str = "."  # of numbers that are written as text
    digest: Any = field(default_factory=hashlib.sha256)  # hash of all content read so far

    @property
    def sha256(self) -> str:
        """SHA-256 of all content read so far."""
        return str(self.digest.hexdigest())

    @property
    def columns(self) -> list[str]:
        """Columns of a table, in order of first appearance."""
        return list(dict.fromkeys(itertools.chain(*dict.fromkeys(map(tuple, map(itemgetter(1), self.rows))))))

    def content(self, path: Path | None = None) -> bytes:
        """Read a file, by default ``self.path``, and add it to the hash; ``.gz`` is decompressed."""
        path = self.path if path is None else path
        if not path.is_file():
            problem = "a folder, not a file" if path.is_dir() else "missing"
            raise DataError(f"{path} is {problem}; give the file that {self.name} is read from.")
        content = path.read_bytes()
        if path.suffix == ".gz":
            try:
                with gzip.open(io.BytesIO(content)) as packed:
                    content = read_unpacked(packed, len(content), path)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise DataError(f"{path} is damaged ({error}); download it again.") from error
        self.digest.update(content)
        return content

    def text(self, path: Path | None = None) -> str:
        """Read a file of UTF-8 text as ``content`` does; a byte-order mark is dropped."""
        return decoded(self.content(path), self.path if path is None else path)

    def json_list(self) -> Rows:
        """Yield (``file[index]``, record) of a JSON list, or of an object's only list, such as ``{"data": [...]}``.

        A ``.json`` file with an object on each line, as pandas writes it, yields (``file:line``, record).
        """
        path = self.path
        for where, value in json_values(self.text(), path, lines=path.name.endswith((".jsonl", ".jsonl.gz"))):
            records = _unwrapped(value)
            if where != str(path):
                yield where, _record(value, where)
            elif isinstance(records, list):
                for index, record in enumerate(records):
                    yield f"{path}[{index}]", _record(record, f"{path}[{index}]")
            else:
                held = value.items() if isinstance(value, dict) else ()
                lists = " or ".join(repr(name) for name, inner in held if isinstance(inner, list))
                fault = f"{path} holds {value!r:.80}; it must be a JSON list of records, [{{...}}, {{...}}]"
                raise DataError(f"{fault}{lists and f', such as that in {lists}'}.")

    def json_lines(self, path: Path | None = None) -> Rows:
        """Yield (``file:line``, record) for every line of a JSONL file that is not blank."""
        for where, value in json_values(self.text(path), self.path if path is None else path, lines=True):
            yield where, _record(value, where)

    def leave_out(self, reason: str, item: str) -> None:
        """Record that an item is left out."""
        self.left_out.setdefault(reason, []).append(item)


def decoded(content: bytes, path: Path) -> str:
    """Decode a file, or a part of it, in UTF-8 or in UTF-16 with a byte-order mark; the mark is dropped."""
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line, at = content.count(b"\n", 0, error.start) + 1, error.start
        begin = max(content.rfind(b"\n", 0, at) + 1, at - 20)
        read = content[begin : at + 20].partition(b"\n")[0].decode("cp1252", "replace")
        convert = f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(path))} > NEW"
        remedy = "" if is_utf_16 else f" If {read!r} is what stands there: {convert}"
        raise DataError(
            f"{path} is not {'UTF-16' if is_utf_16 else 'UTF-8'} text: line {line} has the byte "
            f'0x{content[at]:02x}; save it as UTF-8 (in a spreadsheet, the type "CSV UTF-8").{remedy}'
        ) from error


def read_unpacked(
    file: IO[bytes] | gzip.GzipFile, packed: int, path: Path, *, before: int = 0, piece: int = _PIECE
) -> bytes:
    """Unpack a part of a file in pieces, and check the size; other parts had ``before`` bytes."""
    content = io.BytesIO()
    while content.write(file.read(piece)):
        check_unpacked(before + content.tell(), packed, path)
    return content.getvalue()


def check_unpacked(size: int, packed: int, path: Path) -> None:
    """Refuse a file of ``packed`` bytes whose unpacked ``size``, so far or in all, is more than 100 times as large.

    At least 256 MB and at most 2 GB are allowed, or the gigabytes in the variable ``EVALBIAS_UNPACKED_GB``.
    """
    gigabytes = os.environ.get(UNPACKED_GB)
    try:
        limit = float(gigabytes) * 1e9 if gigabytes else max(256e6, min(100 * packed, 2e9))
    except ValueError:
        raise ValueError(f"{UNPACKED_GB} is {gigabytes!r:.80}: give a number of gigabytes, such as 8.") from None
    if size > limit:
        raise DataError(
            f"{path} has {packed / 1e6:.3g} MB and unpacks to more than {limit / 1e6:.4g} MB. If that is right and "
            f"your memory holds it, set the environment variable {UNPACKED_GB}=8 (gigabytes)."
        )


# JSON: strict, and each record checked for halves of characters.


def json_values(content: str, path: Path, *, lines: bool = False, nan: bool = False) -> Rows:
    """Yield (place, value) of a file's single JSON value, or of each of its ``lines``.

    A file with a value on each line is also read without ``lines``. ``nan`` is as in ``parsed``.
    """
    if not lines:
        try:
            yield str(path), _decode(content, path, 1, nan=nan)
            return
        except DataError as error:
            if "(Extra data)" not in str(error):
                raise
    for number, line in enumerate(content.split("\n"), start=1):  # splitlines would split at U+2028 in texts, too
        if line.strip():
            yield f"{path}:{number}", _decode(line, path, number, nan=nan)


def _unwrapped(value: Any) -> Any:
    """Return the list inside objects with a single name, at any depth; conversations and other values unchanged."""
    inner = value
    while isinstance(inner, dict) and len(inner) == 1:
        (inner,) = inner.values()
    return inner if isinstance(inner, list) and _turns(inner) is None else value


def parsed(content: str, *, nan: bool = False) -> Any:
    """Parse strict JSON; refuses repeated names in an object, deep nesting and integers of thousands of digits.

    With ``nan``, NaN becomes None, because Python's writers write it; otherwise NaN is refused, as is infinity.
    """

    def constant(token: str) -> None:
        if not (nan and token == "NaN"):
            raise ValueError(f"{token} is not a JSON value; write null for an undefined score")

    try:
        return json.loads(content, parse_constant=constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r:.80} stands twice in one object")
    return record


def _decode(content: str, path: Path, line: int, *, nan: bool = False) -> Any:
    try:
        return parsed(content, nan=nan)
    except ValueError as error:
        at, problem = (error.lineno, error.msg) if isinstance(error, json.JSONDecodeError) else (1, str(error))
        raise DataError(f"{path}:{line + at - 1} is not valid JSON ({problem}); correct it.") from error


def _record(value: Any, where: str) -> Record:
    record = as_object(value, where)
    check_text(record, where)
    return record


def check_text(record: Record, where: str) -> None:
    """Refuse a record with a lone surrogate in a name or text at any depth, which tokenizers and plots cannot take."""
    for name, value in record.items():
        nested = isinstance(value, list | dict)
        content = json.dumps(value, ensure_ascii=False, default=str) if nested else value
        if problem := lone_surrogate(name) or (isinstance(content, str) and lone_surrogate(content)):
            place = problem.partition(" at ")[0] if nested else problem
            raise DataError(f"{where}: {name!r:.80} holds {place}; write the character whole, or remove it.")


def parsed_cell(content: str) -> Any:
    """Parse a list or object in a cell: JSON, or Python's notation, which pandas' ``to_csv`` writes.

    Examples:
        >>> parsed_cell("{'anna': [4, None], 'ben': np.float64(3.0)}")
        {'anna': [4, None], 'ben': 3.0}
    """
    try:
        return parsed(content)
    except json.JSONDecodeError as error:
        try:
            return parsed(json.dumps(python_literal(content), allow_nan=False))  # lists for tuples
        except (ValueError, TypeError):
            raise error from None


def parsed_or_given(value: Any) -> Any:
    """Parse a text of JSON; return any other value unchanged, and so JSON with lone surrogates."""
    try:
        content = parsed_cell(value) if isinstance(value, str) else value
    except ValueError:
        return value
    escapes = isinstance(value, str) and "\\ud" in value.lower()
    return value if escapes and lone_surrogate(json.dumps(content, ensure_ascii=False)) else content


# Conversations: the turns before the last answer, and that answer; and values of any shape as text.

ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}
_SAID = ("content", "parts", "tool_calls")


def transcript(messages: Any) -> tuple[str, str] | None:
    r"""Return what stands before the last turn of the assistant, and that turn; None if these are no messages.

    Messages are a list of ``{role, content}`` or ``{role, parts}``, also as JSON or under ``messages`` or ``choices``.
    Each becomes a paragraph ``role: text``; one alone has no role before it. A call of a tool is a line
    ``tool call: NAME(ARGUMENTS)``, another part that is no text is its type in brackets, and reasoning is left out.
    What follows the last turn of the assistant is left out. Without such a turn, the second text is empty.

    Examples:
        >>> transcript([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"},
        ...             {"role": "assistant", "content": [{"type": "text", "text": "4"}]}])
        ('system: Be brief.\n\nuser: 2 + 2?', '4')
    """
    turns = _turns(messages)
    if turns is None:
        return None
    last = max((k for k, (role, _) in enumerate(turns) if role == "assistant"), default=len(turns))
    return _joined(turns[:last]), "".join(text for _, text in turns[last : last + 1])


def _joined(turns: Sequence[tuple[str, str]]) -> str:
    return turns[0][1] if len(turns) == 1 else "\n\n".join(f"{role}: {text}" for role, text in turns)


def _turns(value: Any) -> list[tuple[str, str]] | None:
    """Return (role, text) of each message; None for anything else."""
    if isinstance(value, str):
        if value.lstrip()[:1] not in ("[", "{") or not ('"role"' in value or "'role'" in value):
            return None
        value = parsed_or_given(value)
    if isinstance(value, dict):
        choices = value.get("choices")
        inner = [c.get("message") for c in choices[:1] if isinstance(c, dict)] if isinstance(choices, list) else None
        value = value.get("messages") or inner or [value]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        (value,) = value
    if not isinstance(value, list) or not value:
        return None
    turns = []
    for message in value:
        role = message.get("role") or message.get("type") if isinstance(message, dict) else None
        if not isinstance(role, str) or not any(name in message for name in _SAID):
            return None
        texts = [_part(part) for name in _SAID for part in as_list(message.get(name))]
        turns.append((ROLES.get(role, role), "\n".join(filter(None, texts))))
    return turns


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, None as an empty list, and any other value as a list of one entry."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _part(part: Any) -> str:
    """Return a part of a message as text; see ``transcript``."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else json.dumps(part)
    kind, function = str(part.get("type") or ""), part.get("function")
    if kind in ("reasoning", "thinking"):
        return ""
    call = function if isinstance(function, dict) else part
    name = call.get("name") or (function if isinstance(function, str) else None)
    if name and (sent := next((call[key] for key in ("arguments", "args", "input") if key in call), None)) is not None:
        return f"tool call: {name}({sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)})"
    content = next((part[key] for key in ("text", "content", "response", "result") if key in part), None)
    return f"[{kind or 'part'}]" if content is None else content if isinstance(content, str) else json.dumps(content)


def text_of(value: Any) -> str | None:
    """Return a value as text: a conversation as paragraphs, an object as its only value or as lines "name: value"."""
    if value is None or (isinstance(value, str) and _turns(value) is None):
        return value
    if (turns := _turns(value)) is not None:
        return _joined(turns)
    if isinstance(value, dict):
        values = {name: inner for name, inner in value.items() if inner is not None}
        if len(values) == 1:
            return text_of(*values.values())
        return "\n".join(f"{name}: {cell if isinstance(cell, str) else _dumped(cell)}" for name, cell in values.items())
    return _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def flatten_texts(record: Record) -> None:
    """Turn conversations in an item's source, output and outputs into texts.

    If the item has no source, its output is the last turn and its source the turns before; otherwise the output is the
    whole conversation. For two outputs, the turns that both begin with are the source, and the rest of each is the
    output. A list of questions with a list of answers for each output is such a pair, too.
    """
    for name in ("source", "output", "output_1", "output_2"):
        record |= {name: one_text(record[name])} if name in record else {}
    if record.get("source") is None and (halves := transcript(record.get("output"))) is not None:
        record |= dict(zip(("source", "output"), halves, strict=True))
    pair = record.get("outputs") or [record.get("output_1"), record.get("output_2")]
    is_pair = isinstance(pair, list) and len(pair) == 2 and None not in pair
    if is_pair and (parted := _parted(record.get("source"), *pair)) is not None:
        record["source"], *pair = parted
        record |= {"outputs": pair} if "outputs" in record else {"output_1": pair[0], "output_2": pair[1]}
    for name in ("source", "output", "output_1", "output_2"):
        if _turns(record.get(name)) is not None:
            record[name] = text_of(record[name])
    for name in ("outputs", "candidates"):
        if isinstance(pair := record.get(name), list):
            record[name] = [text if _turns(text) is None else text_of(text) for text in pair]


def one_text(value: Any) -> Any:
    """Return the only text of a list, at any depth, as harnesses log responses; any other value unchanged."""
    inner = value
    while isinstance(inner, list) and len(inner) == 1:
        (inner,) = inner
    return inner if isinstance(inner, str) else value


def _parted(source: Any, first: Any, second: Any) -> tuple[str, str, str] | None:
    """Return the common beginning of two conversations, and the rest of each; None for anything else."""
    a, b = (_turns(side) if source is None else _in_turn(source, side) for side in (first, second))
    if a is None or b is None:
        return None
    shared = len([*itertools.takewhile(lambda turns: turns[0] == turns[1], zip(a[:-1], b[:-1], strict=False))])
    return (_joined(a[:shared]), _joined(a[shared:]), _joined(b[shared:])) if shared else None


def _in_turn(questions: Any, answers: Any) -> list[tuple[str, str]] | None:
    """Return (role, text) of lists of questions and of their answers, also as JSON; None for anything else."""
    prompts, replies = parsed_or_given(questions), parsed_or_given(answers)
    if not (isinstance(prompts, list) and isinstance(replies, list) and len(prompts) == len(replies)):
        return None
    if not all(isinstance(text, str | None) for text in (*prompts, *replies)):
        return None
    return [turn for q, a in zip(prompts, replies, strict=True) for turn in (("user", q or ""), ("assistant", a or ""))]


# CSV and TSV: all cells are texts.

SEPARATORS = (",", ";", "\t")  # separators of the cells of a CSV file; of equally frequent ones, the first is used
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?')


def csv_rows(source: Source) -> Rows:
    """Yield the rows of a CSV or TSV file under its header; an empty file has no rows.

    Tabs separate the cells of a TSV file whose header has tabs. Otherwise the separator is the most frequent one of the
    header (comma, semicolon, tab; without any of them, a vertical bar), or the one named by a first line such as
    ``sep=;``, which Excel reads. With semicolons, the comma is the decimal mark. Quoted cells may hold line breaks.
    Columns without a name are left out, such as the index that pandas writes, and so are notes above the header.
    """
    path, content, first = source.path, source.text(), 1
    if "\n" not in content:
        content = content.replace("\r", "\n")  # of old Macintosh files
    header, _, body = content.partition("\n")
    delimiter = max(SEPARATORS, key=header.count)
    if delimiter not in header and "|" in header:
        delimiter = "|"
    if source.name == "tsv" and "\t" in header:
        delimiter = "\t"
    elif named := _NAMED_SEPARATOR.fullmatch(header.strip("\r")):
        content, delimiter, first = body, named[1], 2
    if delimiter == ";":
        source.decimal_mark = ","
    line, limit = first, csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a document may exceed 131072 characters
    lines = _lines(content)
    try:
        for _ in range(_notes(content, delimiter)):
            next(lines)
            source.leave_out("note above the header", f"{path}:{first}")
            line = first = first + 1
        reader = csv.reader(lines, strict=True, delimiter=delimiter)
        names = [name.strip() for name in next(reader, [])]
        _check_distinct(filter(None, names), f"{path}:{first}")
        line = reader.line_num + first  # of the next row's first line
        for cells in reader:
            if any(cells):  # a blank line has none, or empty ones
                if len(cells) != len(names):
                    raise DataError(
                        f"{path}:{line} has {len(cells)} cells, the header has {len(names)}; correct the row, and "
                        f"quote texts that contain {'a tab' if delimiter == chr(9) else repr(delimiter)}."
                    )
                yield f"{path}:{line}", {name: cell for name, cell in zip(names, cells, strict=True) if name}
            line = reader.line_num + first
    except csv.Error as error:
        raise DataError(f"{path}:{line} is not valid CSV ({error}); correct the row.") from error
    finally:
        csv.field_size_limit(limit)


def _lines(content: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; a StringIO of it would take four bytes a character."""
    return (line[0] for line in re.finditer(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", content))


def _notes(content: str, delimiter: str) -> int:
    """Return the number of lines above the header: notes of several words in the first cell, or rows with gaps."""
    reader, widths, lines = csv.reader(_lines(content), delimiter=delimiter), {0}, 0
    for cells in itertools.islice(reader, 9):
        if any(cells[1:]):  # the first row with several cells is the header, if all cells are names
            if cells.count("") > 1:  # a row that names groups of columns
                lines, cells = reader.line_num, next(reader, [])
            named = all(cells) and not any(cell[0].isdigit() or cell[-1] in ".!?" for cell in cells)
            return lines if named and widths <= {0, len(cells)} else 0
        if any(cells) and " " not in cells[0].strip():
            return 0  # the name of the first column, over others without one
        widths.add(len(cells))
        lines = reader.line_num
    return 0


def _check_distinct(names: Iterable[str], where: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where} has several columns named {min(repeated)!r:.80}; give each its own name.")


# Parquet: read in pieces, because a file of kilobytes may hold gigabytes.

BATCH = 16  # rows read at once: many copies of a long text may take few bytes
VALUE = 64  # bytes that a value of a Parquet file takes in Python besides its text


def parquet_rows(source: Source) -> Rows:
    """Yield the rows of a Parquet file; a value that Python cannot hold, such as a date after 9999, is refused."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        fault = f"{source.path} is a Parquet file, which pyarrow reads"
        raise ImportError(f"{fault}: pip install 'evalbias[parquet]', or save it as .jsonl or .csv.") from error
    path, raw = source.path, source.content()
    number = 0
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw))
        file.scan_contents()  # raises where the layout is damaged; to look at it would end the process
        groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
        size = VALUE * sum(group.column(k).num_values for group in groups for k in range(group.num_columns))
        check_unpacked(size, len(raw), path)
        names = file.schema_arrow.names
        _check_distinct(names, str(path))
        for group in range(file.num_row_groups):  # Arrow cannot join the nested texts of two groups
            for batch in file.iter_batches(BATCH, row_groups=[group]):
                size += sum(map(_size, batch.columns))
                check_unpacked(size, len(raw), path)
                where = f"{path}, rows {number + 1} to {number + batch.num_rows}"
                columns = [_values(c, f"{where}: {name!r:.80}") for name, c in zip(names, batch.columns, strict=True)]
                for record in zip(*columns, strict=True):
                    number += 1
                    yield f"{path}, row {number}", dict(zip(names, record, strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged or no Parquet file ({error!s:.200}); download it again.") from error


def _size(array: Any) -> int:
    """Return the bytes of an Arrow array's values; a text that several values share counts for each."""
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


# A table: the rows of a file, of objects in memory, or of a data set on the hub.

FORMATS: dict[str, Callable[[Source], Rows]] = {
    "jsonl": Source.json_lines,
    "json": Source.json_list,
    "csv": csv_rows,
    "tsv": csv_rows,
    "parquet": parquet_rows,
}
HUB = "hf"  # name of the Hugging Face hub as a source
EXPORTS: tuple[str, ...] = ("mlflow", "langfuse", "langsmith", "phoenix", "inspect")
EXPORTS += ("promptfoo", "deepeval", "opik", "pydantic-evals", "otel")
ANNOTATED = ("label-studio", "mturk")
"""Names of the tools whose exports ``importers`` reads: exports of judged texts, and of columns named by users."""


def file_table(kind: str, path: Path) -> Source:
    """Read a file of a format in ``FORMATS``, or a folder's files of that format, which must have the same columns."""
    source, parts = Source(kind, path), list[Source]()
    for file in folder_files(path, kind) if path.is_dir() else [path]:
        parts.append(part := Source(kind, file, digest=source.digest, left_out=source.left_out))
        rows = FORMATS[kind](part)
        part.rows = [(where, _plain(record)) for where, record in rows] if kind == "parquet" else list(rows)
        if differing := sorted({*part.columns} ^ {*parts[0].columns}):
            fault = f"{file} and {parts[0].path} differ in the columns {differing!r:.400}"
            raise DataError(f"{fault}: give one of these files, or write them with the same columns.")
    numbered = enumerate(itertools.chain.from_iterable(part.rows for part in parts), start=1)
    source.rows = [(f"{where}, row {n}" if path.is_dir() else where, row) for n, (where, row) in numbered]
    if not parts:
        raise DataError(f"{path} is a folder, not a file, and holds no file that ends in .{kind}: give another.")
    source.decimal_mark = parts[0].decimal_mark
    return source


def folder_files(folder: Path, kind: str | None = None) -> list[Path]:
    """Return the files of a folder with format ``kind``, by default any in ``FORMATS``, sorted by name."""
    endings = tuple(f".{ending}" for ending in FORMATS if kind in (ending, None))
    return sorted(file for file in folder.iterdir() if file.name.lower().removesuffix(".gz").endswith(endings))


def memory_table(data: Any, *, name: str = "list") -> Source:
    """Take the rows of a pandas data frame, or mappings such as dicts and DSPy examples; they are hashed as JSON."""
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        name, data = "data frame", data.astype(object).where(data.notna(), None).to_dict("records")
    source, rows = Source(name, Path(name)), list[Row]()
    for number, record in enumerate(data, start=1):
        where = f"{name}, row {number}"
        if not isinstance(record, Mapping) and not hasattr(record, "toDict"):
            raise DataError(f"{where} is {record!r:.80}; give dicts or DSPy examples.")
        fields = {str(column): _plain(value) for column, value in record.items()}
        check_text(fields, where)
        rows.append((where, fields))
    source.digest.update(json.dumps([record for _, record in rows], sort_keys=True, default=str).encode())
    source.rows = rows
    return source


def hub_table(name: str) -> Source:
    """Read ``NAME`` or ``NAME:SPLIT`` of the Hugging Face hub, or of a folder that the datasets library can read."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"{HUB}:{name} is read by the datasets library: pip install 'evalbias[hf]'.") from error
    path, _, split = name.partition(":")
    remedy = "name it as hf:NAME:SPLIT, or load it in Python and pass it to evalbias.data.read"
    try:
        loaded = datasets.load_dataset(path, split=split or None)
    except (ValueError, OSError, RuntimeError) as error:  # unknown split or name, several configurations, no network
        raise DataError(f"{HUB}:{name} cannot be loaded ({error}); check name and network, {remedy}.") from error
    if isinstance(loaded, Mapping):
        if len(loaded) > 1:
            raise DataError(f"{HUB}:{name} has the splits {', '.join(map(str, loaded))}; {remedy}.")
        (loaded,) = loaded.values()
    return memory_table(loaded, name=f"{HUB}:{name}")


def _plain(value: Any) -> Any:
    """Return plain Python values at any depth: NaN and pandas' NA are None, and numpy's values are Python's."""
    if type(value) in (str, int, float, bool):  # most values of a table; NaN is not equal to itself
        return None if value != value else value
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
