"""Read JSONL files that do not fit in memory, one chunk of lines at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalbias.data.columns import renamed
from evalbias.data.dataset import DataError, Dataset
from evalbias.data.items import load_records
from evalbias.data.reading import Source


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file.

    Attributes:
        line: Number of the first line, from 1.
        start: Byte offset of the first line.
        size: Length of the chunk in bytes.
        lines: Number of lines, blank lines included.
    """

    line: int
    start: int
    size: int
    lines: int


def joined(some: Sequence[Chunk]) -> Chunk:
    """Return consecutive chunks as one; at least one is needed."""
    first = some[0]
    return Chunk(first.line, first.start, sum(chunk.size for chunk in some), sum(chunk.lines for chunk in some))


def chunks(path: Path, lines: int) -> tuple[list[Chunk], str]:
    """Locate the chunks of a file and hash the file.

    Args:
        path: Uncompressed ``.jsonl`` file.
        lines: Number of lines per chunk, blank lines included; the last chunk may have fewer.

    Returns:
        Chunks in the order of the file, and the SHA-256 of the whole file.

    Raises:
        DataError: ``path`` is not an uncompressed ``.jsonl`` file.
    """
    if path.suffix != ".jsonl" or not path.is_file():
        raise DataError(f"{path} cannot be read in chunks; give an uncompressed .jsonl file.")
    digest, located, start, end, first = hashlib.sha256(), [], 0, 0, 1
    with path.open("rb") as file:
        for number, content in enumerate(file, start=1):
            digest.update(content)
            end += len(content)
            if number - first + 1 == lines:
                located.append(Chunk(first, start, end - start, lines))
                first, start = number + 1, end
    if end > start:
        located.append(Chunk(first, start, end - start, number - first + 1))
    return located, digest.hexdigest()


def load_chunk(path: Path, chunk: Chunk, mapping: Mapping[str, str] | None = None) -> Dataset:
    """Read the items of a chunk in the same way as ``read``; a column of the mapping may be missing from a chunk.

    Raises:
        DataError: A line is not a valid item; the message names file and line.
    """
    with path.open("rb") as file:
        file.seek(chunk.start)
        content = file.read(chunk.size)
    source = Source("jsonl", path)
    rows = source.records(source.part(content), first=chunk.line)
    return load_records(source, ((where, renamed(record, mapping or {})) for where, record in rows))
