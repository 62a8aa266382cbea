"""Read JSONL files that do not fit in memory, one chunk of lines at a time."""

from __future__ import annotations

import hashlib
import itertools
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
        sha256: Hash of the chunk, by which a change of the file is noticed.
    """

    line: int
    start: int
    size: int
    lines: int
    sha256: bytes


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
    digest, located, start, first = hashlib.sha256(), list[Chunk](), 0, 1
    with path.open("rb") as file:
        while some := list(itertools.islice(file, lines)):
            content = b"".join(some)
            digest.update(content)
            located.append(Chunk(first, start, len(content), len(some), hashlib.sha256(content).digest()))
            first, start = first + len(some), start + len(content)
    return located, digest.hexdigest()


def load_chunks(path: Path, some: Sequence[Chunk], mapping: Mapping[str, str] | None = None) -> Dataset:
    """Read the items of consecutive chunks in the same way as ``read``; a column of the mapping may be missing.

    Raises:
        DataError: A line is not a valid item, or the file has changed since the chunks were located; the message names
            file and line.
    """
    content = b""
    with path.open("rb") as file:
        file.seek(some[0].start)
        for chunk in some:
            content += (part := file.read(chunk.size))
            if hashlib.sha256(part).digest() != chunk.sha256:
                raise DataError(
                    f"{path} has changed since the run began (lines {chunk.line} to {chunk.line + chunk.lines - 1}): "
                    "restore the file, or start over in a new folder (--out)."
                )
    source = Source("jsonl", path)
    rows = source.records(source.part(content), first=some[0].line)
    return load_records(source, ((where, renamed(record, mapping or {})) for where, record in rows))
