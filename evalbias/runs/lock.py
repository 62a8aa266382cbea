"""A run folder belongs to one process at a time.

A lock is two files. ``.lock`` names its process, so that the lock of a process that died is taken over; the same number
may be another process in another PID namespace, as of a container. ``.lock.fd`` is locked by the kernel, for all
processes of a machine and until its process ends; some file systems of networks have no such locks.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

FILE, KERNEL = ".lock", ".lock.fd"
PATIENCE = 0.5
"""Seconds to wait for a lock that another process holds only while it looks whether the folder is free."""


class FolderInUse(ValueError):  # noqa: N818 - a value error like the others, named for what it says
    """Another process works in the folder."""


def lock_folder(path: Path) -> ExitStack:
    """Acquire a folder's lock; the same process may do so several times, and closes what it gets as often.

    Raises:
        FolderInUse: Another process holds the lock; its process id is named.
    """
    try:
        return _acquired(path, thread_local=False, is_singleton=True)
    except Timeout as error:
        pid = SoftFileLock(path / FILE).pid
        process = "Another process" if pid is None else f"Process {pid}"
        raise FolderInUse(
            f"{process} works in {path}: wait until it ends, or choose another folder. (If it runs on another "
            f"machine and has died, delete {path / FILE}.)"
        ) from error


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a folder's lock; None if the folder is free or that process has died."""
    if not (path / FILE).exists():
        return None
    pid = SoftFileLock(path / FILE).pid
    try:
        _acquired(path).close()
    except Timeout:
        return pid
    return None


def _acquired(path: Path, **options: Any) -> ExitStack:
    """Acquire both locks.

    Raises:
        Timeout: Another process holds one of them.
    """
    options |= {"timeout": PATIENCE, "poll_interval": 0.05}
    kernel = FileLock(path / KERNEL, fallback_to_soft=False, **options)
    named = SoftFileLock(path / FILE, **options)
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
        except Timeout:  # one attempt removes the lock of a process that died; perhaps after PATIENCE, if paused
            named.acquire(blocking=False)
        held.callback(named.release)
        return held.pop_all()


def _release(kernel: BaseFileLock) -> None:
    """Release a kernel lock; its file is removed first, since whoever waits for a removed file looks again."""
    if kernel.lock_counter == 1:
        with suppress(OSError):  # Windows removes no open file
            Path(kernel.lock_file).unlink()
    kernel.release()
