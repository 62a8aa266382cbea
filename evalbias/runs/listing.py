"""Read, list, compare and delete run folders, without loading a model."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from evalbias.runs.folder import LOCKS, RESULT, SETTINGS, WRITTEN
from evalbias.runs.lock import holder, lock_folder
from evalbias.runs.values import read_json

ITEM_FIELDS = (".items", ".samples", ".loops.steps", "result.loops")
DEEPEST = 100
"""Deepest nesting that is read; results have about ten levels."""
LONGEST_LIST = 16
"""Longest list that is shown; longer ones hold one value per item."""


@dataclass(frozen=True)
class RunRecord:
    """One run folder.

    Attributes:
        path: The folder.
        settings: Content of run.json; empty where it is damaged.
        result: Content of result.json; None before the run has finished.
        changed: Time of the last change of any file.
        process: Id of the process that works in it; None where there is none.
        damage: Error of a damaged file; empty where none is.
    """

    path: Path
    settings: dict[str, Any]
    result: dict[str, Any] | None
    changed: datetime
    process: int | None
    damage: str = ""

    @property
    def status(self) -> str:
        """State of the run: running, damaged, finished or stopped."""
        if self.process is not None:
            return f"running ({self.process})"
        return "damaged" if self.damage else "stopped" if self.result is None else "finished"


def read_run(path: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        ValueError: The folder is not one of a run.
    """
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
    """Read every run folder in a folder, the latest first; one that cannot be read is listed as damaged."""
    folders = [folder for folder in root.iterdir() if os.path.lexists(folder / SETTINGS)]
    return sorted(map(_listed, folders), key=lambda run: run.changed, reverse=True)


def _listed(path: Path) -> RunRecord:
    try:
        return read_run(path)
    except (OSError, ValueError) as error:
        changed = datetime.fromtimestamp(_changed(path), tz=timezone.utc)
        return RunRecord(path, {}, None, changed, None, str(error))


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as dotted names -> plain values and short lists; what belongs to single items is left out."""
    if isinstance(content, list) and any(isinstance(value, dict) for value in content):
        content = {str(value.get("name", n)): value for n, value in enumerate(content) if isinstance(value, dict)}
    if isinstance(content, dict):
        named = ((f"{prefix}.{name}" if prefix else str(name), value) for name, value in content.items())
        parts = (flatten(value, name) for name, value in named if not name.endswith(ITEM_FIELDS))
        return {name: value for part in parts for name, value in part.items()}
    return {} if isinstance(content, list) and len(content) > LONGEST_LIST else {prefix: content}


def compare_runs(a: RunRecord, b: RunRecord) -> dict[str, tuple[Any, Any]]:
    """Return dotted name -> (value in a, value in b) of every setting and number in which two runs differ."""
    first, second = (flatten({"settings": run.settings, "result": run.result or {}}) for run in (a, b))
    names = dict.fromkeys([*first, *second])
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def delete_run(path: Path) -> list[Path]:
    """Delete what a run wrote into its folder, and the folder if nothing else is in it.

    Returns:
        What is not the run's and stays.

    Raises:
        FolderInUse: A process works in it.
        ValueError: The folder is not one of a run.
    """
    path = Path(os.path.abspath(path))  # the current folder has no other name that can be removed
    versions = read_json(path / SETTINGS).get("versions")
    if path.is_symlink() or not (isinstance(versions, dict) and "evalbias" in versions):
        raise ValueError(f"{path} is a link or its {SETTINGS} is not one of a run: delete it yourself.")
    with lock_folder(path):  # nobody can begin to work in it now
        _delete_written(path)
    return _left(path)


def _delete_written(path: Path, folders: str = "search|loops", kept: tuple[str, ...] = LOCKS) -> None:
    for file in sorted(path.iterdir(), key=lambda file: file.name == SETTINGS):  # last: it says that this is a run
        if file.is_dir() and not file.is_symlink():
            if re.fullmatch(folders, file.name):
                _delete_written(file, ".*", ())
                _left(file)
        elif WRITTEN.fullmatch(file.name) and file.name not in kept:
            file.unlink()


def _left(path: Path) -> list[Path]:
    """Remove a folder if it is empty, and return what is in it otherwise."""
    left = sorted(path.iterdir())
    if not left:
        path.rmdir()
    return left
