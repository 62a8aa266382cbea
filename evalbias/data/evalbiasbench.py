"""EvalBiasBench (Park et al. 2024): 80 pairs in which a bias of one of six kinds favors the worse output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.items import load_records
from evalbias.data.reading import Source, text


def load_evalbiasbench(path: Path) -> Dataset:
    """Read the published ``biasbench.json``, or its recorded JSONL form; both give the same items.

    Items have the fields of pairs and ``bias``, its kind. The better output always stands first (``better`` is 0), so a
    judge that prefers the first position is right on all of them: ask in both orders.

    Raises:
        DataError: A record is malformed; the message names the place.
    """
    source = Source("evalbiasbench", path)
    recorded = path.name.endswith((".jsonl", ".jsonl.gz"))
    return load_records(source, source.rows() if recorded else _published(source))


def _published(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    for bias, records in source.json_object(source.path).items():
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise DataError(f"{source.path}: {bias!r} holds {records!r:.80}; it must hold a list of records.")
        for index, record in enumerate(records):
            where = f"{source.path}: {bias}[{index}]"
            if record.get("label") not in (1, 2):
                raise DataError(f"{where}: 'label' is {record.get('label')!r:.80}; it must be 1 or 2.")
            outputs = [text(record, f"response{number}", where, blank=True) for number in (1, 2)]
            row = {
                "id": f"{bias.replace(' ', '-')}/{index}",
                "bias": bias,
                "source": text(record, "instruction", where),
            }
            yield where, {**row, "outputs": outputs, "better": record["label"] - 1}
