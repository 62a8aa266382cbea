"""Run folders: their settings, journals, locks and results, and how they are listed and deleted."""

from __future__ import annotations

import json
import os
import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from reprlib import Repr
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from evalbias.values import digest, read_json, to_json

# An append-only JSONL file that survives a kill: records are written in chunks, and a torn end is set aside.

CHUNK = "chunk"  # key under which each record of a chunk of several holds the chunk's length

TORN = ".torn"  # suffix of the file beside a journal that keeps the parts cut off it

_CRC = re.compile(rb', "crc": "([0-9a-f]{8})"\}$')


class Journal:
    """A log of JSON objects, each on a line with a CRC-32 of its text.

    Records that are appended together form a chunk. After a kill or a full disk, the file holds every earlier chunk;
    the first ``append`` moves the rest of a torn chunk to ``FILE.torn``. Whoever appends holds the folder's lock.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._whole: int | None = None  # bytes up to the end of the last whole chunk, until the torn end is set aside
        self._ready = False

    def read(self, *required: str) -> list[dict[str, Any]]:
        """Return the records of all whole chunks; each has the ``required`` keys, the first of which begins every line.

        A ValueError names file and line that are neither a record nor the torn end of a record; the file is unchanged.
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
        """Write records as one chunk, or none of them; without ``flush``, a power failure may lose them."""
        if not records:
            return
        if not self._ready:
            self._set_torn_end_aside()
            self._ready = True
        length = {CHUNK: len(records)} if len(records) > 1 else {}
        self._write([_checked(_line({**record, **length})) for record in records], flush=flush)

    def _write(self, lines: Sequence[str], *, flush: bool = True) -> None:
        content = memoryview("".join(lines).encode())
        with self.path.open("ab", buffering=0) as file:  # a buffer would write its rest after the truncation
            before = file.seek(0, os.SEEK_END)
            end = before + len(content)
            try:
                while content:
                    content = content[file.write(content) :]
                if flush:
                    os.fsync(file.fileno())
            except BaseException as error:
                if isinstance(error, Exception) or file.seek(0, os.SEEK_END) < end:  # Ctrl-C loses no whole chunk
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
                with open(f"{self.path}{TORN}", "ab", opener=no_link) as aside:
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
        crc = _CRC.search(line)
        if "crc" in record and (crc is None or zlib.crc32(line[: crc.start()] + b"}") != int(crc[1], 16)):
            # If a line is lost, a chunk takes the first line of the next chunk, whose length may differ.
            first, length = number - len(chunk), (chunk or [record])[0].get(CHUNK, 1)
            alone = type(length) is not int or length < 2
            lines = "the line" if alone else f"the lines {first} to {first + length - 1}, which were written together"
            raise ValueError(f"{place} is damaged (its checksum differs): delete {lines}.")
        if missing := [name for name in (*required, "crc") if name not in record]:
            raise ValueError(f"{place} is no record of this log, it lacks {missing}: delete the file.")
        del record["crc"]
        length = record.get(CHUNK, 1)
        if type(length) is not int or length < 1 or (chunk and length != chunk[0].get(CHUNK, 1)):
            expected = f", {chunk[0][CHUNK]} in the lines before" if chunk else ""
            raise ValueError(
                f"{place} is damaged (its chunk has {length!r:.80} records{expected}): delete the file to start over."
            )
        return record


def _is_torn(line: bytes, required: Sequence[str], *, first: bool) -> bool:
    """Return whether a last line without its newline is the rest of a record after a kill.

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


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a file, a text or its parts, as a whole or not at all, also if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)  # left by a killed process; or a link, which must not be followed
    file = draft.open("x", encoding="utf-8")
    try:
        with file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())  # otherwise the rename may reach the disk before the content
    except BaseException as error:
        draft.unlink()
        _name_file(error, path)
        raise
    draft.replace(path)


def _name_file(error: BaseException, path: Path) -> None:
    """Note the written file in an error: the error of a full disk does not name it."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def no_link(path: str, flags: int) -> int:
    """Open a file, but not through a link, which may lead anywhere."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """Write records to the lines of a JSONL file, as a whole or not at all."""
    write_whole(path, map(_line, records))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file as a whole or not at all."""
    write_whole(path, chain(_indented(to_json(content)), "\n"))  # in parts: it may be large


def _indented(value: Any, margin: str = "\n") -> Iterator[str]:
    """Yield the parts of JSON with an indent of 2: a list of plain values in one, a table with a line for each row."""
    inner = f"{margin}  "
    if isinstance(value, dict) and value:
        for place, (name, entry) in enumerate(value.items()):
            yield f"{',' if place else '{'}{inner}{json.dumps(name)}: "
            yield from _indented(entry, inner)
        yield f"{margin}}}"
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        table = json.dumps(value, allow_nan=False) if isinstance(value[0], list) else '"'
        if '"' not in table:  # numbers
            yield f"[{inner}{table[1:-1].replace('], [', f'],{inner}[')}{margin}]"
            return
        for place, entry in enumerate(value):
            yield f"{',' if place else '['}{inner}"
            yield from _indented(entry, inner)
        yield f"{margin}]"
    else:
        encoded = json.dumps(value, allow_nan=False, separators=(f",{inner}", ": "))
        yield f"[{inner}{encoded[1:-1]}{margin}]" if isinstance(value, list) and value else encoded


def _line(record: Any) -> str:
    return json.dumps(to_json(record), allow_nan=False) + "\n"


def _checked(line: str) -> str:
    """Add the CRC of a line of ASCII to its record."""
    return f'{line[:-2]}, "crc": "{zlib.crc32(line[:-1].encode()):08x}"}}\n'


# A run folder belongs to a single process at a time.
#
# A lock is two files. ``.lock`` names its process, so that the lock of a process that died is taken over; the same
# number may be another process in another PID namespace, as of a container. ``.lock.fd`` is locked by the kernel, for
# all processes of a machine and until its process ends; some file systems of networks have no such locks.

LOCK, KERNEL = ".lock", ".lock.fd"
PATIENCE = 0.5  # seconds to wait for a lock that another process holds only to check whether the folder is free


class FolderInUse(ValueError):  # noqa: N818 - a value error like the others, named for its meaning
    """Another process works in the folder."""


def lock_folder(path: Path) -> ExitStack:
    """Acquire a folder's lock, or raise FolderInUse; the same process may do so again, and closes each that it gets."""
    try:
        return _acquired(path, thread_local=False, is_singleton=True)
    except Timeout as error:
        pid = SoftFileLock(path / LOCK).pid
        process = "Another process" if pid is None else f"Process {pid}"
        raise FolderInUse(
            f"{process} works in {path}: wait until it ends, or choose another folder. (If it runs on another "
            f"machine and has died, delete {path / LOCK}.)"
        ) from error


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a folder's lock; None if the folder is free or that process has died."""
    if not (path / LOCK).exists():
        return None
    pid = SoftFileLock(path / LOCK).pid
    try:
        _acquired(path).close()
    except Timeout:
        return pid
    return None


def _acquired(path: Path, **options: Any) -> ExitStack:
    """Acquire both locks; Timeout if another process holds either."""
    options |= {"timeout": PATIENCE, "poll_interval": 0.05}
    kernel = FileLock(path / KERNEL, fallback_to_soft=False, **options)
    named = SoftFileLock(path / LOCK, **options)
    with ExitStack() as held:
        try:
            kernel.acquire()
            held.callback(_release, kernel)
        except Timeout:
            raise
        except OSError:  # no such locks here; a folder that cannot be written is an error of the next lock too
            pass
        try:
            named.acquire()
        except Timeout:  # an attempt removes the lock of a dead process; perhaps after PATIENCE, if paused
            named.acquire(blocking=False)
        held.callback(named.release)
        return held.pop_all()


def _release(kernel: BaseFileLock) -> None:
    """Release a kernel lock; its file is removed first, since whoever waits for a removed file looks again."""
    if kernel.lock_counter == 1:
        with suppress(OSError):  # Windows removes no open file
            Path(kernel.lock_file).unlink()
    kernel.release()


# The folder of a run: run.json (its settings), journals, result.json (its results).

PACKAGES = ("evalbias", "dspy", "torch", "transformers", "numpy", "scipy")
SETTINGS, RESULT = "run.json", "result.json"
UNANSWERED = {SETTINGS, "sample.json"}  # files of a run that has no answer yet
LOCKS = (LOCK, KERNEL)
WRITTEN = re.compile(  # files that runs write into their folders and subfolders
    r"((run|result|sample|program|loop|search|correction|jury|judge(-.+)?)\.json|report\.html"
    r"|(judgments|likelihoods|answers|scores|rankings|outputs|steps|quality|proposals|corrected)\.jsonl"
    r"|(consistency|sides|trajectory|history|curve|(scatter|scores|differences)(-.+)?)\.png)(\.part|\.torn)?"
    r"|\.lock(\.fd)?"
)

_DIGEST = re.compile(r"[0-9a-f]{16,}")
_SHORT = Repr()
_SHORT.maxstring = 120


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that make the numbers, as far as they are installed."""
    packages = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return packages


def default_path(settings: Mapping[str, Any]) -> Path:
    """Return ``runs/COMMAND-DIGEST``: the same settings always name the same folder."""
    return Path("runs") / f"{str(settings['command']).replace(' ', '-')}-{digest(to_json(settings), 10)}"


def check_free(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a folder in use, of no run, or of other settings, as far as these are set before models are opened."""
    if not (path.is_dir() and os.access(path, os.W_OK)):
        return
    _check_files(path, SETTINGS)
    with lock_folder(path):
        if (path / SETTINGS).exists():
            kept, current = read_json(path / SETTINGS), to_json(settings)
            _check_same(path, {name: kept.get(name) for name in current}, current)


class RunFolder(AbstractContextManager["RunFolder"]):
    """The folder of a run, locked until it is closed; a run with the same settings continues in it.

    ``settings`` are all that affects the numbers, and are kept in run.json. A missing folder is made. Refused are
    folders in use (FolderInUse), and folders of another run, of no run, or without write access (ValueError).
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path = default_path(settings) if path is None else path
        self.schema = f"evalbias.{str(settings.get('command', 'run')).replace(' ', '-')}/1"  # schema of its results
        content = {**settings, "versions": versions()}
        self._is_new, self._begins = not path.exists(), not (path / SETTINGS).exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
            _check_files(path, SETTINGS)
            self._lock = lock_folder(path)
            try:
                check_settings(path / SETTINGS, content)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise ValueError(
                f"{path} cannot be written ({error.strerror or error}): choose another folder (`out`)."
            ) from error

    @property
    def journal(self) -> Path:
        """File to which answers are appended as they come."""
        return self.path / "judgments.jsonl"

    def file(self, kind: str, name: str, suffix: str) -> Path:
        """Return the path of a named artifact; a digest keeps names with characters unfit for files apart."""
        plain = re.sub(r"[^\w.-]+", "-", name)
        return self.path / (f"{kind}-" + (plain if plain == name else f"{plain}-{digest(name, 6)}") + suffix)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json, which names its form."""
        write_json(self.path / RESULT, {"schema": self.schema, **result})

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Release the lock; after an error before any answer, delete the settings, so that corrected ones fit."""
        written = {file.name for file in self.path.iterdir()} - {*LOCKS}
        nothing = isinstance(error, Exception) and self._begins and written <= UNANSWERED
        for name in written if nothing else ():
            (self.path / name).unlink()
        self.close()
        if nothing and self._is_new:
            with suppress(OSError):  # another process has just begun to work in it
                self.path.rmdir()


def _check_files(path: Path, settings: str) -> None:
    """Refuse a folder that holds files but no run, and no log with these settings: they could be overwritten.

    A link that stands where the run writes, which may lead to any file, is refused too.
    """
    names = {file.name for file in path.iterdir()}
    other = names - {*LOCKS, f"{settings}.part"}
    if other and not other & {SETTINGS, settings}:
        raise ValueError(
            f"{path} holds files of no run, such as {min(other):.80}: choose a new folder (`out` or log_dir)."
        )
    if links := [name for name in sorted(names) if WRITTEN.fullmatch(name) and (path / name).is_symlink()]:
        raise ValueError(f"{path / links[0]} is a link, and a run writes there: delete the link.")


def check_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Keep settings in a file, or refuse them if it keeps others; a folder with files of no run is refused too."""
    content = to_json(settings)
    if file.parent.exists():
        _check_files(file.parent, file.name)
    if file.exists():
        _check_same(file.parent, read_json(file), content)
    else:
        write_json(file, content)


def _check_same(path: Path, kept: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    differences = "; ".join(_differences(kept, current))
    if differences:
        raise ValueError(
            f"{path} holds a run with other settings ({differences}): choose another folder, or delete this one."
        )


def _differences(kept: Any, current: Any, name: str = "") -> Iterator[str]:
    """List the differences between two JSON values by their paths, such as ``criteria[0].definition``."""
    if kept == current:
        return
    if isinstance(kept, Mapping) and isinstance(current, Mapping):
        for key in sorted({*kept, *current}):
            yield from _differences(kept.get(key), current.get(key), f"{name}.{key}" if name else key)
    elif isinstance(kept, list) and isinstance(current, list) and len(kept) == len(current):
        for index, pair in enumerate(zip(kept, current, strict=True)):
            yield from _differences(*pair, f"{name}[{index}]")
    else:
        yield f"{name}: {_shown(kept)} there, {_shown(current)} now"


def _shown(value: Any) -> str:
    """Format a setting; a digest by its first 8 digits, a long text by both ends, so that different values differ."""
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:8]}..."
    return _SHORT.repr(value)


# Read, list and delete run folders, without loading a model.

ITEM_FIELDS = (".items", ".samples", ".loops.steps", "result.loops")
DEEPEST = 100  # deepest nesting that is read; results have about ten levels
LONGEST_LIST = 16  # longest list to show; longer lists hold a value per item


@dataclass(frozen=True)
class RunRecord:
    """A run folder."""

    path: Path
    settings: dict[str, Any]  # run.json; empty where it is damaged
    result: dict[str, Any] | None  # result.json; None before the run has finished
    changed: datetime  # the last change of any file
    process: int | None  # id of the process that works in it; None where there is none
    damage: str = ""  # error of a damaged file; empty where none is

    @property
    def status(self) -> str:
        """State of the run: running, damaged, finished or stopped."""
        if self.process is not None:
            return f"running ({self.process})"
        return "damaged" if self.damage else "stopped" if self.result is None else "finished"


def read_run(path: Path) -> RunRecord:
    """Read a run folder; ValueError without run.json."""
    if not (path / SETTINGS).is_file():
        raise ValueError(f"{path} has no {SETTINGS}: give the folder that a command of evalbias left.")
    settings: dict[str, Any] = {}
    result, damage = None, ""
    try:
        settings = _read(path / SETTINGS)
        result = _read(path / RESULT) if os.path.lexists(path / RESULT) else None
    except (OSError, ValueError) as error:
        damage = str(error)
    changed = max(_changed(file) for file in path.iterdir())
    return RunRecord(path, settings, result, datetime.fromtimestamp(changed, tz=timezone.utc), holder(path), damage)


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():  # reading a pipe would wait for ever
        raise ValueError(f"{file} is no file: delete it.")
    content = read_json(file)
    if _is_deeper(content, DEEPEST):
        raise ValueError(f"{file} is nested more than {DEEPEST} levels deep: no run wrote it.")
    return content


def _is_deeper(content: Any, levels: int) -> bool:
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)


def _changed(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except FileNotFoundError:  # a draft or a lock of the run that goes on
        return 0.0


def list_runs(root: Path) -> list[RunRecord]:
    """Read every run folder in a folder, the latest first; an unreadable folder is listed as damaged."""
    folders = [folder for folder in root.iterdir() if os.path.lexists(folder / SETTINGS)]
    return sorted(map(_listed, folders), key=lambda run: run.changed, reverse=True)


def _listed(path: Path) -> RunRecord:
    try:
        return read_run(path)
    except (OSError, ValueError) as error:
        changed = datetime.fromtimestamp(_changed(path), tz=timezone.utc)
        return RunRecord(path, {}, None, changed, None, str(error))


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as dotted names -> plain values and short lists; values of single items are left out."""
    if isinstance(content, list) and any(isinstance(value, dict) for value in content):
        content = {str(value.get("name", n)): value for n, value in enumerate(content) if isinstance(value, dict)}
    if isinstance(content, dict):
        named = ((f"{prefix}.{name}" if prefix else str(name), value) for name, value in content.items())
        parts = (flatten(value, name) for name, value in named if not name.endswith(ITEM_FIELDS))
        return {name: value for part in parts for name, value in part.items()}
    return {} if isinstance(content, list) and len(content) > LONGEST_LIST else {prefix: content}


def delete_run(path: Path) -> list[Path]:
    """Delete the files of a run from its folder, and the folder if it is empty then; return the paths that stay."""
    path = Path(os.path.abspath(path))  # the current folder has no other name that can be removed
    versions = read_json(path / SETTINGS).get("versions")
    if path.is_symlink() or not (isinstance(versions, dict) and "evalbias" in versions):
        raise ValueError(f"{path} is a link or its {SETTINGS} is not one of a run: delete it yourself.")
    with lock_folder(path):  # no process can begin to work in it now
        _delete_written(path)
    return _left(path)


def _delete_written(path: Path, folders: str = "search|loops", kept: tuple[str, ...] = LOCKS) -> None:
    for file in sorted(path.iterdir(), key=lambda file: file.name == SETTINGS):  # last: it marks the folder as a run
        if file.is_dir() and not file.is_symlink():
            if re.fullmatch(folders, file.name):
                _delete_written(file, ".*", ())
                _left(file)
        elif WRITTEN.fullmatch(file.name) and file.name not in kept:
            file.unlink()


def _left(path: Path) -> list[Path]:
    """Remove a folder if it is empty, otherwise return its content."""
    left = sorted(path.iterdir())
    if not left:
        path.rmdir()
    return left
