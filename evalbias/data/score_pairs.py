"""Read a quantile map: one that was saved, or pairs of a metric's score and a human MQM score to fit one to."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError
from evalbias.data.reading import Source, number
from evalbias.measures.quantiles import QuantileMap


def load_quantile_map(path: Path) -> tuple[QuantileMap, str]:
    """Read a quantile map of a metric onto MQM scores.

    Args:
        path: ``.json`` file that ``QuantileMap.save`` wrote; or pairs, as ``.jsonl`` (also ``.jsonl.gz``) or as
            ``.csv`` with a header. A pair has two fields: the one with "mqm" in its name is the MQM score, the other
            the metric's. The map is fitted to both columns (Xu et al. 2024, appendix B).

    Returns:
        The map, and the SHA-256 of the file's content.

    Raises:
        DataError: The file holds neither; the message names the line.
        ValueError: Fewer than two different scores of the metric.
    """
    source = Source("quantile map", path)
    if path.suffix == ".json":
        source.read(path)
        return QuantileMap.load(path), source.digest.hexdigest()
    pairs = list(_pairs(source))
    if not pairs:
        raise DataError(f"{path} holds no pairs; give a metric's score and an MQM score on each line.")
    return QuantileMap.fit(*zip(*pairs, strict=True)), source.digest.hexdigest()


def _pairs(source: Source) -> Iterator[tuple[float, float]]:
    names: tuple[str, str] | None = None
    for where, record in _csv(source) if source.path.suffix == ".csv" else source.rows():
        names = _names(record, where) if names is None else names
        metric, mqm = (number(record.get(name), f"{where}: {name!r}") for name in names)
        yield metric, mqm


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
            f"{where} has the fields {sorted(map(str, record))}; a pair has two, such as 'chrf' and 'mqm': the name of "
            "the MQM score has 'mqm' in it, the other is the metric's."
        )
    return metric[0], mqm[0]
