"""What the loaders share: files read and hashed, fields checked, items gathered and left out."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from evalbias.data.dataset import DataError, Dataset


@dataclass
class Source:
    """A data set being read.

    Attributes:
        name: Of the data set.
        path: What the user named: a file or a folder.
        digest: Hash of all that was read so far.
        left_out: Reason -> items.
        examples: The items, in the order they were read.
        places: Id -> where it stands.
    """

    name: str
    path: Path
    digest: Any = field(default_factory=hashlib.sha256)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    examples: list[dspy.Example] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def read(self, path: Path) -> str:
        """A text file (``.gz`` is unpacked, a byte-order mark is dropped), added to the hash.

        Raises:
            DataError: It is missing or no UTF-8 text.
        """
        if not path.is_file():
            what = "a folder, not a file" if path.is_dir() else "missing"
            raise DataError(f"{path} is {what}: {self.name} is read from such a file.")
        return self.text(path.read_bytes(), path)

    def text(self, raw: bytes, path: Path) -> str:
        """The text of a file or of a part of one, added to the hash.

        Raises:
            DataError: It is no UTF-8 text.
        """
        try:
            content = gzip.decompress(raw) if path.suffix == ".gz" else raw
            text = content.decode("utf-8-sig")
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} is damaged or no UTF-8 text ({error}): fetch it again.") from error
        self.digest.update(content)
        return text

    def json_object(self, path: Path) -> dict[str, Any]:
        """A file that holds one JSON object."""
        return _object(_decode(self.read(path), path, 1), str(path))

    def json_records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(``file[index]``, record) of every entry of a file that holds one JSON list.

        Raises:
            DataError: It holds something else.
        """
        found = _decode(self.read(self.path), self.path, 1)
        if not isinstance(found, list):
            raise DataError(f"{self.path} holds {found!r:.80}; it must be a JSON list of records.")
        for index, record in enumerate(found):
            where = f"{self.path}[{index}]"
            yield where, _object(record, where)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(``file:line``, record) of every line of a JSONL file that is not blank.

        Raises:
            DataError: A line is no JSON object.
        """
        return self.records(self.read(self.path), first=1)

    def records(self, content: str, *, first: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """(``file:line``, record) of every line of a text that is not blank; the first line's number is given.

        Raises:
            DataError: A line is no JSON object.
        """
        lines = content.split("\n")  # str.splitlines would also cut inside texts, at U+2028 or U+0085
        for number, line in enumerate(lines, start=first):
            if line.strip():
                where = f"{self.path}:{number}"
                yield where, _object(_decode(line, self.path, number), where)

    def add(self, fields: Mapping[str, Any], where: str) -> None:
        """Keep an item, or note that its output is empty.

        Raises:
            DataError: Its id stands for another item.
        """
        if fields["id"] in self.places:
            first = self.places[fields["id"]]
            raise DataError(f"{where}: the id {fields['id']!r} stands at {first} already; give each item its own.")
        self.places[fields["id"]] = where
        if fields["output"].strip():
            self.examples.append(dspy.Example(dict(fields)).with_inputs("source", "output"))
        else:
            self.leave_out("empty output", where)

    def leave_out(self, reason: str, item: str) -> None:
        """Note an item that a rule leaves out."""
        self.left_out.setdefault(reason, []).append(item)

    def dataset(self) -> Dataset:
        """All that was added."""
        return Dataset(
            self.examples, name=self.name, path=self.path, sha256=self.digest.hexdigest(), left_out=self.left_out
        )


def text(record: Mapping[str, Any], name: str, where: str, *, blank: bool = False) -> str:
    """A text field; only with ``blank`` may it be empty."""
    if name not in record:
        raise DataError(f"{where}: {name!r} is missing; the record has only {sorted(record)}.")
    value = record[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise DataError(f"{where}: {name!r} is {value!r:.80}; it must be a text{'' if blank else ', not empty'}.")
    return value


def scores(record: Mapping[str, Any], where: str, *, wanted: Iterable[str] = ()) -> dict[str, float]:
    """Criterion -> number; null becomes NaN; the criteria ``wanted`` must be there."""
    found = _object(record.get("scores") or {}, f"{where}: 'scores'")
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise DataError(f"{where}: 'scores' lacks {missing}; write null for an undefined score.")
    return {k: math.nan if v is None else number(v, f"{where}: the score on {k!r}") for k, v in found.items()}


def number(value: object, what: str, *, low: float = -sys.float_info.max, high: float = sys.float_info.max) -> float:
    """A finite number in [low, high]; what a JSON file may hold besides (true, 1e999) is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        bounds = "a finite number" if high == sys.float_info.max else f"a number from {low:g} to {high:g}"
        raise DataError(f"{what} is {value!r:.80}; it must be {bounds}.")
    return float(value)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{what} holds {value!r:.80}; it must be a JSON object, {{...}}.")
    return value


def _decode(content: str, path: Path, line: int) -> Any:
    try:
        return json.loads(content, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{line + error.lineno - 1} is no JSON ({error.msg}): mend the line.") from error
    except ValueError as error:  # from _refuse, or a number of thousands of digits
        raise DataError(f"{path}:{line} is no JSON ({error}): mend it.") from error


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is no JSON value; an undefined score is null")
