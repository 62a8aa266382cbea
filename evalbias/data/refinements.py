"""Recorded refine loops: every output of every iteration with the loop's own score and what it was worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from numpy.typing import NDArray

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source
from evalbias.data.reading import number as finite
from evalbias.measures.answers import boxed_answer

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Refinements:
    """Recorded loops over the same n items.

    Attributes:
        name: Of the file, without its ending.
        ids: The items, in one order for all arrays.
        numbers: (t,) the iterations (or the k of best-of-k), ascending.
        records: number -> item -> the whole record.
        sha256: Of the file's content.
    """

    name: str
    ids: tuple[str, ...]
    numbers: tuple[int, ...]
    records: Mapping[int, Mapping[str, Mapping[str, Any]]]
    sha256: str

    def scores(self, field: str, *, of: Sequence[str] | None = None) -> FloatArray:
        """(t, n) a numeric field; NaN where it is missing or null.

        Args:
            field: Its name.
            of: The items; all by default.

        Raises:
            DataError: Something that is no number; item and round are named.
        """
        ids = self.ids if of is None else of
        return np.array([[self._number(k, i, field) for i in ids] for k in self.numbers])

    def _number(self, number: int, item: str, field: str) -> float:
        value = self.records[number].get(item, {}).get(field)
        return math.nan if value is None else finite(value, f"{self.name}: {field} of item {item}, round {number},")


def load_refinements(path: Path, *, by: str = "iteration") -> Refinements:
    """Read a JSONL file of recorded loops: one line an output, with ``iteration`` (or ``k``) and ``i`` or ``id``.

    Args:
        path: ``.jsonl`` or ``.jsonl.gz``.
        by: What numbers the rounds: ``"iteration"`` or ``"k"``.

    Raises:
        DataError: A line without a number or an item, or two lines of the same one; file and line are named.
    """
    source = Source("refinements", path)
    records: dict[int, dict[str, dict[str, Any]]] = {}
    for where, record in source.rows():
        number, item = record.get(by), record.get("id", record.get("i"))
        if not isinstance(number, int) or isinstance(number, bool) or item is None:
            raise DataError(f"{where}: {by!r} is {number!r}, 'id' or 'i' is {item!r}; both must be there.")
        of = records.setdefault(number, {})
        if str(item) in of:
            raise DataError(f"{where}: a second line for item {item!r} in {by} {number}.")
        of[str(item)] = record
    if not records:
        raise DataError(f"{path} holds no records.")
    ids = tuple(dict.fromkeys(i for of in records.values() for i in of))
    return Refinements(
        path.name.partition(".jsonl")[0], ids, tuple(sorted(records)), records, source.digest.hexdigest()
    )


def load_items(path: Path) -> tuple[list[dspy.Example], str]:
    """Items of a refine loop, and the hash of the file: one JSON object a line, with any fields.

    ``id`` is the line's number where it is missing.

    Raises:
        DataError: A line that is no object, an id that comes twice, or no line at all.
    """
    source = Source("items", path)
    found: dict[str, dspy.Example] = {}
    for where, record in source.rows():
        name = str(where.rpartition(":")[2] if record.get("id") is None else record["id"])
        if name in found:
            raise DataError(f"{where}: a second item with the id {name!r}; give each its own.")
        found[name] = dspy.Example({**record, "id": name})
    if not found:
        raise DataError(f"{path} holds no items.")
    return list(found.values()), source.digest.hexdigest()


def load_parallel(sources: Path, references: Path, *, target_language: str) -> list[dspy.Example]:
    """Two plain text files, line by line: a source and its translation, as Flores gives them out.

    Raises:
        DataError: Different numbers of lines.
    """
    first, second = (Source("parallel", p).read(p).rstrip("\n").split("\n") for p in (sources, references))
    if len(first) != len(second):
        raise DataError(f"{sources} has {len(first)} lines, {references} has {len(second)}: they must be parallel.")
    return [
        dspy.Example(id=str(n), source=s, reference=r, target_language=target_language)
        for n, (s, r) in enumerate(zip(first, second, strict=True), start=1)
    ]


def load_mathematics(path: Path) -> list[dspy.Example]:
    """JSONL with ``problem`` and ``solution`` (its last box is the answer) or ``answer``, as MATH gives them out.

    Raises:
        DataError: A problem without an answer; file and line are named.
    """
    source, done = Source("mathematics", path), []
    for number, (where, record) in enumerate(source.rows(), start=1):
        answer = record.get("answer")
        if answer is None or answer == "":
            answer = boxed_answer(str(record.get("solution", "")))
        if answer is None or not record.get("problem"):
            raise DataError(f"{where}: a problem needs 'problem', and 'answer' or a 'solution' with a box.")
        done.append(dspy.Example(id=str(record.get("id", number)), source=record["problem"], answer=str(answer)))
    return done
