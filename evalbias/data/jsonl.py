"""Users' own items: one JSON object per line with ``source``, ``output`` and, if people rated it, ``scores``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, scores, text


def load_jsonl(path: Path) -> Dataset:
    """Read a ``.jsonl`` or ``.jsonl.gz`` file.

    All other fields are kept. A missing ``id`` becomes the line number. Items with an empty output are left out.

    Raises:
        DataError: A line is not a valid item; the message names file and line.
    """
    source = Source("jsonl", path)
    return load_records(source, source.rows())


def load_records(source: Source, records: Iterable[tuple[str, dict[str, Any]]]) -> Dataset:
    """Convert (place, record) pairs to items and add them to a source.

    Raises:
        DataError: A record is not a valid item; the message names its place.
    """
    for where, record in records:
        fields = {
            "id": _id(record, where),
            "source": text(record, "source", where),
            "output": text(record, "output", where, blank=True),
            "scores": scores(record, where),
        }
        source.add({**record, **fields}, where)
    return source.dataset()


def _id(record: Mapping[str, Any], where: str) -> str:
    name = record.get("id")
    if name is None:
        return where.rpartition(":")[2]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"{where}: 'id' is {name!r:.80}; it must be a string or an integer.")
    return str(name)
