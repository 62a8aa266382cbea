"""A run folder belongs to one process at a time."""

from __future__ import annotations

from pathlib import Path

from filelock import SoftFileLock, Timeout

FILE = ".lock"
PATIENCE = 0.5
"""Seconds to wait for a lock that another process holds only while it looks whether the folder is free."""


class FolderInUse(ValueError):  # noqa: N818 - a value error like the others, named for what it says
    """Another process works in the folder."""


def lock_folder(path: Path) -> SoftFileLock:
    """Acquire a folder's lock; the same process may do so several times, and releases it as often.

    The lock names its process, so that the lock of a process that died is taken over.

    Raises:
        FolderInUse: Another process holds the lock; its process id is named.
    """
    lock = SoftFileLock(path / FILE, timeout=PATIENCE, poll_interval=0.05, thread_local=False, is_singleton=True)
    try:
        _acquire(lock)
    except Timeout as error:
        process = "Another process" if lock.pid is None else f"Process {lock.pid}"
        raise FolderInUse(
            f"{process} works in {path}: wait until it ends, or choose another folder. (If it runs on another "
            f"machine and has died, delete {path / FILE}.)"
        ) from error
    return lock


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a folder's lock; None if the folder is free or that process has died."""
    if not (path / FILE).exists():
        return None
    lock = SoftFileLock(path / FILE, timeout=PATIENCE, poll_interval=0.05)
    try:
        _acquire(lock)
    except Timeout:
        return lock.pid
    lock.release()
    return None


def _acquire(lock: SoftFileLock) -> None:
    """Acquire a lock, also that of a process that died: one attempt removes that lock, and the next one acquires it.

    Raises:
        Timeout: Another process holds the lock.
    """
    try:
        lock.acquire()
    except Timeout:  # perhaps after the first attempt, if this process was paused for longer than PATIENCE
        lock.acquire(blocking=False)
