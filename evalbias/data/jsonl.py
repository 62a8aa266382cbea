"""A user's own items: one JSON object a line with ``source``, ``output`` and, where people rated, ``scores``."""

from __future__ import annotations

from pathlib import Path

from evalbias.data.dataset import Dataset, Source, example, jsonl_rows, scores, text

EMPTY = "empty output"


def load_jsonl(path: Path) -> Dataset:
    """Read ``.jsonl`` or ``.jsonl.gz``; other fields are kept, ``id`` is the line's number where it is missing.

    Raises:
        DataError: A line that is no such object; file and line are named.
    """
    source = Source()
    done = []
    for where, record in jsonl_rows(source, path):
        output = text(record, "output", where)
        if not output.strip():
            source.leave_out(EMPTY, where)
            continue
        fields = {**record, "id": str(record.get("id", where.rpartition(":")[2])), "scores": scores(record, where)}
        done.append(example(**{**fields, "source": text(record, "source", where), "output": output}))
    return source.dataset("jsonl", done)
