"""Recorded refine loops: every output of every iteration, with the model's own score and the expected score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data.dataset import DataError
from evalbias.data.items import default_id
from evalbias.data.loaders import read_table
from evalbias.data.reading import number as finite
from evalbias.measures.arrays import FloatArray


@dataclass(frozen=True)
class Refinements:
    """Recorded refine loops over the same n items.

    Attributes:
        name: File name without its ending.
        ids: (n,) item ids, in the order of all arrays.
        numbers: (t,) numbers of the iterations (or values of k in best-of-k), ascending.
        records: Iteration number -> item id -> complete record.
        sha256: SHA-256 of the file's content.
    """

    name: str
    ids: tuple[str, ...]
    numbers: tuple[int, ...]
    records: Mapping[int, Mapping[str, Mapping[str, Any]]]
    sha256: str

    def scores(self, field: str, *, ids: Sequence[str] | None = None) -> FloatArray:
        """Return a numeric field as an array of shape (t, n); NaN where it is missing or null.

        Args:
            field: Name of the field.
            ids: Ids of the n items to return; all by default.

        Raises:
            DataError: A value is not a number; the message names item and round.
        """
        items = self.ids if ids is None else ids
        return np.array([[self._number(k, i, field) for i in items] for k in self.numbers])

    def _number(self, number: int, item: str, field: str) -> float:
        value = self.records[number].get(item, {}).get(field)
        return math.nan if value is None else finite(value, f"{self.name}: {field} of item {item}, round {number},")


def load_refinements(path: Path, *, by: str = "iteration", mapping: Mapping[str, str] | None = None) -> Refinements:
    """Read a file of recorded loops: one output per row, with ``iteration`` (or ``k``) and ``id`` or ``i``.

    Args:
        path: ``.jsonl`` file or another of ``read``'s formats.
        mapping: Our field -> the file's column.
        by: Field that numbers the rounds, ``"iteration"`` or ``"k"``.

    Raises:
        DataError: A line has no number or no item id, or two lines have the same; the message names the line.
    """
    table = read_table(path, mapping=mapping)
    records: dict[int, dict[str, dict[str, Any]]] = {}
    for where, record in table.rows:
        number, item = record.get(by), record.get("id", record.get("i"))
        if not isinstance(number, int) or isinstance(number, bool):
            given = f"{by!r} is {number!r:.80}" if by in record else f"{by!r} is missing"
            raise DataError(
                f"{where}: {given}; give the round's number, an integer (--map {by}=COLUMN names its column)."
            )
        if item is None:
            raise DataError(
                f"{where}: 'id' and 'i' are missing; give the item's id (--map id=COLUMN names its column)."
            )
        in_round = records.setdefault(number, {})
        if str(item) in in_round:
            raise DataError(f"{where}: a second line for item {item!r:.80} in {by} {number}; keep one of them.")
        in_round[str(item)] = record
    if not records:
        raise DataError(f"{path} holds no records; give a file with one JSON object per line.")
    ids = tuple(dict.fromkeys(i for in_round in records.values() for i in in_round))
    return Refinements(
        path.name.removesuffix(".gz").rpartition(".")[0],
        ids,
        tuple(sorted(records)),
        records,
        table.source.digest.hexdigest(),
    )


def load_items(given: str | Path, *, mapping: Mapping[str, str] | None = None) -> tuple[list[dspy.Example], str]:
    """Read the items of a refine loop: rows of a source as for ``read``, with any fields.

    A missing ``id`` becomes the number of the line or row.

    Returns:
        Items, and the SHA-256 of the file's content.

    Raises:
        DataError: A line is not a JSON object, an id occurs twice, or the file has no items.
    """
    table = read_table(given, mapping=mapping)
    items: dict[str, dspy.Example] = {}
    for where, record in table.rows:
        name = default_id(where) if record.get("id") is None else str(record["id"])
        if name in items:
            raise DataError(f"{where}: a second item with the id {name!r:.80}; give each item its own id.")
        items[name] = dspy.Example({**record, "id": name})
    if not items:
        raise DataError(f"{given} holds no items; give a file with one JSON object per line, or a table.")
    return list(items.values()), table.source.digest.hexdigest()
