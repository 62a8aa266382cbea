"""Users' own items: one JSON object per line with ``source``, ``output`` and, if people rated it, ``scores``.

``ratings`` may add the single ratings by criterion, a list with one number for each rater. They tell how reliable the
scores are, without which a judge's bias cannot be told from the raters' noise. A criterion without a score gets the
mean of its ratings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.reading import Source, ratings, scores, text
from evalbias.measures.checks import mean_of_defined


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
        rated = ratings(record, where)
        means = {name: mean_of_defined(given) for name, given in rated.items()}
        fields: dict[str, Any] = {
            "id": _id(record, where),
            "source": text(record, "source", where),
            "output": text(record, "output", where, blank=True),
            "scores": means | scores(record, where),
        }
        if rated:
            fields["ratings"] = rated
        source.add({**record, **fields}, where)
    return source.dataset()


def _id(record: Mapping[str, Any], where: str) -> str:
    name = record.get("id")
    if name is None:
        return where.rpartition(":")[2]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"{where}: 'id' is {name!r:.80}; it must be a string or an integer.")
    return str(name)
