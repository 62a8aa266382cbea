"""An append-only JSONL file that survives a kill: records are written in chunks, and a torn end is set aside."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalbias.runs.values import to_json

CHUNK = "chunk"
"""Key under which each record of a chunk of several holds the chunk's length."""

TORN = ".torn"
"""Suffix of the file beside a journal that keeps what was cut off it."""

_CRC = re.compile(rb', "crc": "([0-9a-f]{8})"\}$')


class Journal:
    """A log of JSON objects, one per line, each with a CRC-32 of its text; lines of older versions have none.

    Records that are appended together form a chunk. After a kill or a full disk, the file holds every earlier chunk
    whole. The first ``append`` moves what is left of the one that was being written to ``FILE.torn``. Whoever appends
    holds the folder's lock; see ``evalbias.runs.lock``.

    Args:
        path: The file; it is made by the first ``append``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._whole: int | None = None  # bytes up to the end of the last whole chunk, until the torn end is set aside
        self._ready = False

    def read(self, *required: str) -> list[dict[str, Any]]:
        """Return the records of all whole chunks; the file stays as it is.

        Args:
            *required: Keys that every record must have; the first one begins every line.

        Raises:
            ValueError: A line is not such a record, and no torn end of one; file and line are named.
        """
        content = self.path.read_bytes() if self.path.exists() else b""
        records: list[dict[str, Any]] = []
        chunk: list[dict[str, Any]] = []
        end = self._whole = 0
        for number, line in enumerate(content.split(b"\n"), start=1):
            end += len(line) + 1
            if end > len(content) and (not line or _is_torn(line, required, first=number == 1)):
                break
            chunk.append(self._record(line.rstrip(), number, required, chunk))
            if len(chunk) == chunk[0].get(CHUNK, 1):
                records += chunk
                chunk, self._whole = [], min(end, len(content))  # the last record may lack its newline only
        return records

    def append(self, records: Sequence[Mapping[str, Any]], *, flush: bool = True) -> None:
        """Write records as one chunk.

        Args:
            records: The records; none writes nothing.
            flush: Whether to flush the file to the disk; a power failure may cost what is not flushed.

        Raises:
            OSError: The disk is full, say; the file is cut back to what it held before.
            ValueError: The file holds something else than records.
        """
        if not records:
            return
        if not self._ready:
            self._set_torn_end_aside()
            self._ready = True
        length = {CHUNK: len(records)} if len(records) > 1 else {}
        self._write([_checked(_line({**record, **length})) for record in records], flush=flush)

    def append_lines(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write plain records without chunk and CRC, for a file whose whole chunks another journal knows."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write([_line(record) for record in records])

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace the whole content, in one step."""
        write_whole(self.path, "".join(_checked(_line(record)) for record in records))
        self._whole = None

    def _write(self, lines: Sequence[str], *, flush: bool = True) -> None:
        content = memoryview("".join(lines).encode())
        with self.path.open("ab", buffering=0) as file:  # a buffer would write its rest after the truncation
            before = file.seek(0, os.SEEK_END)
            try:
                while content:
                    content = content[file.write(content) :]
                if flush:
                    os.fsync(file.fileno())
            except BaseException as error:
                os.truncate(self.path, before)
                _name_file(error, self.path)
                raise

    def _set_torn_end_aside(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._whole is None:
            self.read()
        if not self.path.exists():
            return
        with self.path.open("r+b") as file:
            file.seek(self._whole or 0)
            if torn := file.read():
                with open(f"{self.path}{TORN}", "ab", opener=_no_link) as aside:
                    aside.write(torn + b"\n")
                    aside.flush()
                    os.fsync(aside.fileno())
                file.truncate(self._whole)
            elif self._whole:
                file.seek(self._whole - 1)
                if file.read() != b"\n":
                    file.write(b"\n")

    def _record(
        self, line: bytes, number: int, required: Sequence[str], chunk: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Read a line that follows those of its chunk."""
        place = f"{self.path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place} is not JSON ({error}): delete the file to start over.") from error
        if not isinstance(record, dict):
            raise ValueError(f"{place} is not a JSON object: delete the file to start over.")
        if (found := _CRC.search(line)) and zlib.crc32(line[: found.start()] + b"}") != int(record.pop("crc"), 16):
            raise ValueError(f"{place} is damaged (its checksum differs): delete the line.")
        if missing := [name for name in required if name not in record]:
            raise ValueError(f"{place} is no record of this log, it lacks {missing}: delete the file.")
        length = record.get(CHUNK, 1)
        if type(length) is not int or length < 1 or (chunk and length != chunk[0].get(CHUNK, 1)):
            expected = f", {chunk[0][CHUNK]} in the lines before" if chunk else ""
            raise ValueError(
                f"{place} is damaged (its chunk has {length!r:.80} records{expected}): delete the file to start over."
            )
        return record


def _is_torn(line: bytes, required: Sequence[str], *, first: bool) -> bool:
    """Return whether a last line without its newline is what a kill left of a record.

    After other records it may be any bytes, such as the zeros of a power failure. A first line must begin as a record
    does: a file of something else, in a single line, is no torn journal.
    """
    begins = b'{"' + (required[0].encode() + b'": ' if required else b"")
    if first and not (line.startswith(begins) or begins.startswith(line)):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, also if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)  # of a killed process; or a link, which must not be followed
    file = draft.open("x", encoding="utf-8")
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


def _no_link(path: str, flags: int) -> int:
    """Open a file, but not through a link, which may lead anywhere."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """Write records to a JSONL file, one per line, as a whole or not at all."""
    write_whole(path, "".join(_line(record) for record in records))


def _line(record: Any) -> str:
    return json.dumps(to_json(record), allow_nan=False) + "\n"


def _checked(line: str) -> str:
    """Add the CRC of a line of ASCII to its record."""
    return f'{line[:-2]}, "crc": "{zlib.crc32(line[:-1].encode()):08x}"}}\n'
