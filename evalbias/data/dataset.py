"""A data set in memory: DSPy examples, where they came from, and what was left out."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dspy


class DataError(ValueError):
    """A file is not what its loader reads; the message names file, line and remedy."""


class Dataset(list[Any]):
    """Examples with ``id``, ``source``, ``output`` and ``scores`` (criterion -> number, NaN if undefined).

    Attributes:
        name: Of the data set.
        sha256: Of the files' contents.
        left_out: Reason -> the items left out for it.
    """

    def __init__(
        self, examples: Iterable[dspy.Example], *, name: str, sha256: str, left_out: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(examples)
        self.name = name
        self.sha256 = sha256
        self.left_out = {reason: tuple(items) for reason, items in left_out.items() if items}

    def summary(self) -> str:
        """One line: how many there are, and what was left out why."""
        left = "; ".join(f"{len(items)} left out ({reason})" for reason, items in self.left_out.items())
        return f"{self.name}: {len(self)} items" + (f"; {left}" if left else "")


@dataclass
class Source:
    """Files being read: their contents' hash, and what is left out."""

    digest: Any = field(default_factory=hashlib.sha256)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def read(self, path: Path) -> str:
        """A text file (``.gz`` is unpacked), added to the hash.

        Raises:
            FileNotFoundError: It is missing.
            DataError: It is no UTF-8 text.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: check the path after the data set's name.")
        raw = path.read_bytes()
        try:
            data = gzip.decompress(raw) if path.suffix == ".gz" else raw
            self.digest.update(data)
            return data.decode("utf-8")
        except (UnicodeDecodeError, gzip.BadGzipFile) as error:
            raise DataError(f"{path} is no UTF-8 text ({error}): save it as UTF-8.") from error

    def json(self, path: Path) -> Any:
        """A JSON file."""
        try:
            return json.loads(self.read(path))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno} is no JSON ({error.msg}): mend the line.") from error

    def leave_out(self, reason: str, item: str) -> None:
        """Note an item that a rule leaves out."""
        self.left_out.setdefault(reason, []).append(item)

    def dataset(self, name: str, examples: Iterable[dspy.Example]) -> Dataset:
        """The examples, once all are read; two may not share an id."""
        found = list(examples)
        twice = [i for i, count in Counter(e.id for e in found).items() if count > 1]
        if twice:
            raise DataError(
                f"{name}: {len(twice)} ids stand for several items, the first is {twice[0]!r}: rename them."
            )
        return Dataset(found, name=name, sha256=self.digest.hexdigest(), left_out=self.left_out)


def example(**fields: Any) -> dspy.Example:
    """An item; its inputs are ``source`` and ``output``."""
    return dspy.Example(**fields).with_inputs("source", "output")


def jsonl_rows(source: Source, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(``file:line``, record) of every line that is not blank.

    Raises:
        DataError: A line is no JSON object.
    """
    for number, line in enumerate(source.read(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line, parse_constant=partial(_refuse, where))
        except json.JSONDecodeError as error:
            raise DataError(f"{where} is no JSON ({error.msg}): mend the line.") from error
        if not isinstance(record, dict):
            raise DataError(f"{where} holds no object: write one JSON object a line.")
        yield where, record


def _refuse(where: str, token: str) -> None:
    raise DataError(f"{where} holds {token}, which is no JSON: write null for an undefined score.")


def text(record: Mapping[str, Any], name: str, where: str) -> str:
    """A text field that is there."""
    value = record.get(name)
    if not isinstance(value, str):
        raise DataError(f"{where}: {name!r} is {value!r}; it must be a text.")
    return value


def scores(record: Mapping[str, Any], where: str) -> dict[str, float]:
    """Criterion -> number; null becomes NaN."""
    found = record.get("scores", {})
    if not isinstance(found, dict):
        raise DataError(f"{where}: 'scores' is {found!r}; it must map criteria to numbers.")
    done = {}
    for name, value in found.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise DataError(f"{where}: the score on {name!r} is {value!r}; it must be a number or null.")
        done[name] = math.nan if value is None else float(value)
    return done
