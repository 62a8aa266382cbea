"""Read, list, compare and delete run folders, without loading a model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from evalbias.runs.folder import RESULT, SETTINGS, read_json
from evalbias.runs.lock import FolderInUse, holder, lock_folder


@dataclass(frozen=True)
class RunRecord:
    """One run folder.

    Attributes:
        path: The folder.
        settings: Content of run.json.
        result: Content of result.json; None before the run has finished.
        changed: Time of the last change of any file.
        process: Id of the process that works in it; None where there is none.
    """

    path: Path
    settings: dict[str, Any]
    result: dict[str, Any] | None
    changed: datetime
    process: int | None

    @property
    def status(self) -> str:
        """State of the run: running, finished or stopped."""
        if self.process is not None:
            return f"running ({self.process})"
        return "stopped" if self.result is None else "finished"


def read_run(path: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        ValueError: The folder is not one of a run, or a file in it is damaged.
    """
    if not (path / SETTINGS).is_file():
        raise ValueError(f"{path} has no {SETTINGS}: give the folder that a command of evalbias left.")
    result = read_json(path / RESULT) if (path / RESULT).exists() else None
    changed = max(file.stat().st_mtime for file in path.iterdir())
    when = datetime.fromtimestamp(changed, tz=timezone.utc)
    return RunRecord(path, read_json(path / SETTINGS), result, when, holder(path))


def list_runs(root: Path) -> list[RunRecord]:
    """Read every run folder in a folder, the latest first."""
    folders = [file.parent for file in root.glob(f"*/{SETTINGS}")]
    return sorted((read_run(folder) for folder in folders), key=lambda run: run.changed, reverse=True)


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as dotted names -> plain values; lists are left out, because they hold items."""
    if isinstance(content, dict):
        parts = (flatten(value, f"{prefix}.{name}" if prefix else str(name)) for name, value in content.items())
        return {name: value for part in parts for name, value in part.items()}
    return {} if isinstance(content, list) else {prefix: content}


def compare_runs(a: RunRecord, b: RunRecord) -> dict[str, tuple[Any, Any]]:
    """Return dotted name -> (value in a, value in b) of every setting and number in which two runs differ."""
    first, second = (flatten({"settings": run.settings, "result": run.result or {}}) for run in (a, b))
    names = dict.fromkeys([*first, *second])
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def delete_run(run: RunRecord) -> None:
    """Delete a run folder.

    Raises:
        FolderInUse: A process works in it.
    """
    if run.process is not None:
        raise FolderInUse(f"Process {run.process} works in {run.path}: wait until it ends.")
    lock_folder(run.path)  # nobody may begin to work in it now; the lock goes with the folder
    shutil.rmtree(run.path)
