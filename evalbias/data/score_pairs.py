"""Read a quantile map: one that was saved, or pairs of a metric's score and a human MQM score to fit one to."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source, number
from evalbias.measures.quantiles import QuantileMap

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
