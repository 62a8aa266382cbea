"""JSONL files that are too large for memory, a chunk of lines at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from evalbias.data.dataset import DataError, Dataset
from evalbias.data.jsonl import load_records
from evalbias.data.reading import Source


@dataclass(frozen=True)
class Chunk:
    """Neighboring lines of a file.

    Attributes:
        line: Number of the first one, from 1.
        start: Its first byte.
        size: Bytes of all of them.
        lines: How many they are.
    """

    line: int
    start: int
    size: int
    lines: int


def chunks(path: Path, lines: int) -> tuple[list[Chunk], str]:
    """Where every so many lines stand, and the hash of the whole file.

    Args:
        path: A ``.jsonl`` file, not packed.
        lines: Lines to a chunk; blank ones count.

    Raises:
        DataError: Another kind of file, or none.
    """
    if path.suffix != ".jsonl" or not path.is_file():
        raise DataError(f"{path} is no .jsonl file: one that is not packed can be read in parts.")
    digest, found, start, end, first = hashlib.sha256(), [], 0, 0, 1
    with path.open("rb") as file:
        for number, content in enumerate(file, start=1):
            digest.update(content)
            end += len(content)
            if number - first + 1 == lines:
                found.append(Chunk(first, start, end - start, lines))
                first, start = number + 1, end
    if end > start:
        found.append(Chunk(first, start, end - start, number - first + 1))
    return found, digest.hexdigest()


def load_chunk(path: Path, chunk: Chunk) -> Dataset:
    """The items of a chunk, as ``load_jsonl`` reads them.

    Raises:
        DataError: A line that is no item; file and line are named.
    """
    with path.open("rb") as file:
        file.seek(chunk.start)
        content = file.read(chunk.size)
    source = Source("jsonl", path)
    return load_records(source, source.records(source.text(content, path), first=chunk.line))
