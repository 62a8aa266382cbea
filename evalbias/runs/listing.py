"""Read, list, compare and delete run folders, without loading a model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from evalbias.runs.folder import RESULT, SETTINGS
from evalbias.runs.lock import holder, lock_folder
from evalbias.runs.values import read_json

ITEM_FIELDS = (".items", ".samples", ".loops.steps", "result.loops")
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
        settings = read_json(path / SETTINGS)
        result = read_json(path / RESULT) if (path / RESULT).exists() else None
    except ValueError as error:
        damage = str(error)
    changed = max(_changed(file) for file in path.iterdir())
    return RunRecord(path, settings, result, datetime.fromtimestamp(changed, tz=timezone.utc), holder(path), damage)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # a draft or a lock of the run that goes on
        return 0.0


def list_runs(root: Path) -> list[RunRecord]:
    """Read every run folder in a folder, the latest first."""
    folders = [file.parent for file in root.glob(f"*/{SETTINGS}")]
    return sorted((read_run(folder) for folder in folders), key=lambda run: run.changed, reverse=True)


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as dotted names -> plain values and short lists; what belongs to single items is left out."""
    if isinstance(content, list) and any(isinstance(value, dict) for value in content):
        content = {value.get("name", str(n)): value for n, value in enumerate(content) if isinstance(value, dict)}
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


def delete_run(path: Path) -> None:
    """Delete a run folder.

    Raises:
        FolderInUse: A process works in it.
    """
    lock = lock_folder(path)  # nobody can begin to work in it now
    try:
        shutil.rmtree(path)
    finally:
        lock.release()
