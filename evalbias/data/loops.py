"""Recorded refine loops, and pairs of scores for a quantile map."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data.cells import DataError, number
from evalbias.data.cells import number as finite
from evalbias.data.files import Source
from evalbias.data.items import default_id
from evalbias.data.sets import read_table
from evalbias.measures.arrays import FloatArray
from evalbias.measures.loops import QuantileMap

# Recorded refine loops: every output of every iteration, with the model's own score and the expected score.


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


# Read a quantile map: one that was saved, or pairs of a metric's score and a human MQM score to fit one to.


UNNAMED = ("", "expected", "metric", "quality", "raw", "score", "scores", "source", "value", "x")
"""Names of fields that do not tell which metric the scores are of."""
EXAMPLE = '{"chrf": 54.2, "mqm": -5.0}\n{"chrf": 31.7, "mqm": -12.0}'


def load_quantile_map(path: Path) -> tuple[QuantileMap, str]:
    """Read a quantile map of a metric onto MQM scores.

    Args:
        path: ``.json`` file that ``QuantileMap.save`` wrote; or pairs, as ``.jsonl`` (also ``.jsonl.gz``) or as
            ``.csv`` with a header. A pair has two fields: the one with "mqm" in its name is the MQM score; the other
            is the metric's score and has its name, such as "chrf" or "comet wmt22-comet-da". The map is fitted to both
            columns (Xu et al. 2024, appendix B) and is of this metric only.

    Returns:
        The map, and the SHA-256 of the file's content.

    Raises:
        DataError: The file holds neither, or a field does not name its metric; the message names the line.
        ValueError: Fewer than two different scores of the metric.
    """
    source = Source("quantile map", path)
    if path.suffix == ".json":
        source.read(path)
        return QuantileMap.load(path), source.digest.hexdigest()
    pairs: list[list[float]] = []
    names: tuple[str, str] | None = None
    for where, record in _csv(source) if path.suffix == ".csv" else source.rows():
        names = _names(record, where) if names is None else names
        pairs.append([number(record.get(name), f"{where}: {name!r}") for name in names])
    if names is None:
        raise DataError(f"{path} holds no pairs; give a metric's score and an MQM score on each line.")
    return QuantileMap.fit(*zip(*pairs, strict=True), metric=names[0].strip()), source.digest.hexdigest()


def _csv(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (``file:line``, record) for every row; cells that are numbers become numbers."""
    for line, row in enumerate(csv.DictReader(source.read(source.path).splitlines()), start=2):
        yield f"{source.path}:{line}", {name: _value(cell) for name, cell in row.items()}


def _value(cell: Any) -> Any:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return cell


def _names(record: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Return the names of the metric's field and of the MQM field."""
    mqm = [name for name in record if "mqm" in str(name).lower()]
    metric = [name for name in record if name not in mqm]
    if (len(mqm), len(metric)) != (1, 1):
        raise DataError(
            f"{where} has the fields {sorted(map(str, record))}; a pair has two: the name of the MQM score has 'mqm' "
            f"in it, and the other is the metric's name, such as\n{EXAMPLE}"
        )
    if metric[0].strip().lower() in UNNAMED:
        raise DataError(f"{where}: {metric[0]!r} does not name a metric; name the field after it, such as\n{EXAMPLE}")
    return metric[0], mqm[0]
