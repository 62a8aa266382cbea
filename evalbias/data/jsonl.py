"""A user's own items: one JSON object a line with ``source``, ``output`` and, where people rated, ``scores``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, scores, text


def load_jsonl(path: Path) -> Dataset:
    """Read ``.jsonl`` or ``.jsonl.gz``; other fields are kept, ``id`` is the line's number where it is missing.

    Items with an empty output are left out.

    Raises:
        DataError: A line that is no such object; file and line are named.
    """
    source = Source("jsonl", path)
    return load_records(source, source.rows())


def load_records(source: Source, records: Iterable[tuple[str, dict[str, Any]]]) -> Dataset:
    """Items of records, each with the place it stands at.

    Raises:
        DataError: A record that is no item; its place is named.
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
    found = record.get("id")
    if found is None:
        return where.rpartition(":")[2]
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise DataError(f"{where}: 'id' is {found!r:.80}; it must be a text or a whole number.")
    return str(found)
