"""An append-only JSONL file that survives a kill: records are written in chunks, and a torn end is cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbias.runs.values import to_json

CHUNK = "chunk"
"""Key under which each record of a chunk of several holds the chunk's length."""


class Journal:
    """A log of JSON objects, one per line.

    Records that are appended together form a chunk. After a kill or a full disk, the file holds every earlier chunk
    whole and nothing of the one that was being written.

    Args:
        path: The file; it is made by the first ``append``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read(self, *required: str) -> list[dict[str, Any]]:
        """Return the records of all whole chunks and cut a torn end off the file.

        Args:
            *required: Keys that every record must have.

        Raises:
            ValueError: A line before the torn end is not such a record; file and line are named.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        records: list[dict[str, Any]] = []
        chunk: list[dict[str, Any]] = []
        end = whole = 0  # bytes read, and bytes up to the end of the last whole chunk
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            end += len(line)
            if not line.endswith(b"\n"):
                break
            chunk.append(self._record(line, number, required))
            if len(chunk) >= chunk[0].get(CHUNK, 1):
                records += chunk
                chunk, whole = [], end
        if whole < len(content):
            os.truncate(self.path, whole)
        return records

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records as one chunk and flush them to the disk.

        Raises:
            OSError: The disk is full, say; the file is cut back to what it held before.
        """
        length = {CHUNK: len(records)} if len(records) > 1 else {}
        self.append_lines([{**record, **length} for record in records])

    def append_lines(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records without marking their chunk, for a file whose whole chunks another journal knows."""
        if not records:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = memoryview("".join(_line(record) for record in records).encode())
        with self.path.open("ab", buffering=0) as file:  # a buffer would write its rest after the truncation
            before = file.seek(0, os.SEEK_END)
            try:
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except BaseException as error:
                os.truncate(self.path, before)
                _name_file(error, self.path)
                raise

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace the whole content, in one step."""
        write_whole(self.path, "".join(_line(record) for record in records))

    def _record(self, line: bytes, number: int, required: Sequence[str]) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self.path}:{number} is not JSON ({error}): delete the file to start over.") from error
        if not isinstance(record, dict):
            raise ValueError(f"{self.path}:{number} is not a JSON object: delete the file to start over.")
        if missing := [name for name in required if name not in record]:
            raise ValueError(f"{self.path}:{number} is no record of this log, it lacks {missing}: delete the file.")
        return record


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, also if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    file = draft.open("w", encoding="utf-8")
    try:
        with file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else the rename may reach the disk before the content
    except BaseException as error:
        draft.unlink()
        _name_file(error, path)
        raise
    draft.replace(path)


def _name_file(error: BaseException, path: Path) -> None:
    """Note in an error which file was written: the error of a full disk does not say."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """Write records to a JSONL file, one per line, as a whole or not at all."""
    write_whole(path, "".join(_line(record) for record in records))


def _line(record: Any) -> str:
    return json.dumps(to_json(record), allow_nan=False) + "\n"
