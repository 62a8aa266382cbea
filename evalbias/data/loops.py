"""Recorded refine loops, the items of a loop, and pairs of scores for a quantile map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import DataError, number
from evalbias.data.reading import item_id, table_of
from evalbias.measures.arrays import FloatArray
from evalbias.measures.loops import QuantileMap


@dataclass(frozen=True)
class RecordedLoop:
    """Recorded refine loop over n items: the output of every round, with the model's own and the expected score."""

    name: str  # of the file, without its ending
    ids: tuple[str, ...]  # (n,), in the order of all arrays
    numbers: tuple[int, ...]  # (t,) numbers of the iterations (or values of k in best-of-k), ascending
    records: Mapping[int, Mapping[str, Mapping[str, Any]]]  # round -> item -> complete record
    sha256: str  # of the file's content

    def scores(self, field: str) -> FloatArray:
        """Return a numeric field, (t, n); NaN where missing or null; refuse other values."""

        def score(k: int, item: str) -> float:
            return number(self.records[k].get(item, {}).get(field), f"{self.name}: {field} of item {item}, round {k},")

        return np.array([[score(k, item) for item in self.ids] for k in self.numbers])


def recorded_loop(path: Path, *, by: str = "iteration", mapping: Mapping[str, str] | None = None) -> RecordedLoop:
    """Read a file of recorded loops: an output per row, with ``id`` or ``i``, and the round in the field ``by``.

    The file is in one of ``read``'s formats; ``by`` is ``"iteration"`` or ``"k"``. Rows without round or id, and two
    rows for the same round and id, are refused.
    """
    table = table_of(path, mapping)
    records: dict[int, dict[str, dict[str, Any]]] = {}
    for where, record in table.rows:
        k, item = record.get(by), record.get("id", record.get("i"))
        if not isinstance(k, int) or isinstance(k, bool):
            problem = f"{by!r} is {k!r:.80}" if by in record else f"{by!r} is missing"
            fault = f"{where}: {problem}"
            raise DataError(f"{fault}; give the round's number, an integer (--map {by}=COLUMN names its column).")
        if item is None:
            fault = f"{where}: 'id' and 'i' are missing"
            raise DataError(f"{fault}; give the item's id (--map id=COLUMN names its column).")
        if records.setdefault(k, {}).setdefault(str(item), record) is not record:
            raise DataError(f"{where}: a second line for item {item!r:.80} in {by} {k}; keep one of them.")
    if not records:
        raise DataError(f"{path} holds no records; give a file with one JSON object per line.")
    ids = tuple(dict.fromkeys(item for of_round in records.values() for item in of_round))
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return RecordedLoop(name, ids, tuple(sorted(records)), records, table.sha256)


def loop_items(path: str | Path, *, mapping: Mapping[str, str] | None = None) -> tuple[list[dspy.Example], str]:
    """Return the items of a refine loop, rows of a source as in ``read`` with any fields, and the content's SHA-256.

    A missing ``id`` becomes the number of the line or row; repeated ids and an empty file are refused.
    """
    table = table_of(path, mapping)
    items: dict[str, dspy.Example] = {}
    for where, record in table.rows:
        name = item_id(record, where)
        if name in items:
            raise DataError(f"{where}: a second item with the id {name!r:.80}; give each item its own id.")
        items[name] = dspy.Example({**record, "id": name})
    if not items:
        raise DataError(f"{path} holds no items; give a file with one JSON object per line, or a table.")
    return list(items.values()), table.sha256


UNNAMED = ("", "expected", "metric", "quality", "raw", "score", "scores", "source", "value", "x")  # name no metric
EXAMPLE = '{"chrf": 54.2, "mqm": -5.0}\n{"chrf": 31.7, "mqm": -12.0}'


def quantile_map(path: Path) -> tuple[QuantileMap, str]:
    """Read a quantile map of a metric onto MQM scores, and the SHA-256 of the file's content.

    The file holds pairs, in one of ``read``'s formats. A pair has two fields: the one with "mqm" in its name is the MQM
    score; the other is the metric's score and has its name, such as "chrf" or "comet wmt22-comet-da". The map is fitted
    to both columns (Xu et al. 2024, appendix B) for this metric only, which must have two different scores.
    """
    table = table_of(path)
    if not table.rows:
        raise DataError(f"{path} holds no pairs; give a metric's score and an MQM score on each line.")
    where, first = table.rows[0]
    mqm = [name for name in first if "mqm" in name.lower()]
    metric = [name for name in first if name not in mqm]
    if (len(mqm), len(metric)) != (1, 1):
        fault = f"{where} has the fields {sorted(first)}; a pair has two: the name of the MQM score has 'mqm' in it"
        raise DataError(f"{fault}, and the other is the metric's name, such as\n{EXAMPLE}")
    if metric[0].strip().lower() in UNNAMED:
        raise DataError(f"{where}: {metric[0]!r} does not name a metric; name the field after it, such as\n{EXAMPLE}")
    scores, human = (
        [number(record.get(name), f"{where}: {name!r}", texts=True, required=True) for where, record in table.rows]
        for (name,) in (metric, mqm)
    )
    return QuantileMap.fit(scores, human, metric=metric[0].strip()), table.sha256
