"""Shared parts of the loaders: read and hash files, check fields, and collect items."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.numbers import LARGEST, as_number, remedy_for
from evalbias.data.surrogates import lone_surrogate

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


def text(record: Mapping[str, Any], name: str, where: str, *, blank: bool = False) -> str:
    """Return a text field of a record, which may be empty only if ``blank`` is set.

    Raises:
        DataError: The field is missing, not a string, or empty.
    """
    if name not in record:
        raise DataError(f"{where}: {name!r} is missing; the record has only {sorted(record)!r:.400}. Add the field.")
    value = record[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise DataError(f"{where}: {name!r} is {value!r:.80}; it must be a {'' if blank else 'non-empty '}string.")
    return value


def scores(record: Mapping[str, Any], where: str, *, required: Iterable[str] = ()) -> dict[str, float]:
    """Return criterion -> score from a record's ``scores``; null becomes NaN.

    Raises:
        DataError: A score is not a finite number, or a required criterion is missing.
    """
    raw = _object(record.get("scores") or {}, f"{where}: 'scores'")
    missing = sorted(set(required) - set(raw))
    if missing:
        raise DataError(f"{where}: 'scores' lacks {missing}; write null for an undefined score.")
    return {k: math.nan if v is None else number(v, f"{where}: the score on {k!r:.80}") for k, v in raw.items()}


def ratings(record: Mapping[str, Any], where: str) -> dict[str, list[float]]:
    """Return criterion -> single ratings in the raters' order from a record's ``ratings``; null becomes NaN.

    Raises:
        DataError: A criterion has no list of numbers.
    """
    raw = _object(record.get("ratings") or {}, f"{where}: 'ratings'")
    for name, given in raw.items():
        if not isinstance(given, list) or not given:
            raise DataError(
                f"{where}: the ratings on {name!r:.80} are {given!r:.80}; write a list with one number for each rater, "
                "null where one gave none."
            )
    return {
        name: [math.nan if v is None else number(v, f"{where}: a rating on {name!r:.80}") for v in given]
        for name, given in raw.items()
    }


def one_criterion_ratings(given: Sequence[Any], where: str) -> list[float]:
    """Return the single ratings on the one criterion that is judged, in the raters' order; null becomes NaN.

    Raises:
        DataError: A rating is not a number, or there is none.
    """
    return ratings({"ratings": {"the criterion": given}}, where)["the criterion"]


def number(value: object, label: str, *, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a JSON value as a number in [low, high]; the label names it in the error.

    Raises:
        DataError: The value is not a number (``true`` and ``null`` are not) or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        too_large = LARGEST < abs(as_number(value)) < math.inf
        bounded = high < LARGEST or too_large
        bounds = f"a number from {low:g} to {high:g}" if bounded else "a finite number"
        remedy = remedy_for(value)
        empty = "leave it empty (null in JSON) where there is none" if isinstance(value, str) or too_large else ""
        remedy = f"write {remedy}" if remedy else empty
        raise DataError(f"{label} is {value!r:.80}; it must be {bounds}{remedy and f': {remedy}'}.")
    return float(value)


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


def _object(value: Any, label: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{label} holds {value!r:.80}; it must be a JSON object, {{...}}.")
    return value


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
