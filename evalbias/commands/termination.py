"""SIGTERM, with which schedulers stop a command, does what Ctrl-C does."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from evalbias.commands.terminal import STOPPED

TERMINATED = 128 + signal.SIGTERM
"""Exit code of a command that SIGTERM stopped, as shells give it."""
REPEATED = 1.0
"""Seconds in which a second SIGTERM counts as the first: timeout(1) sends it to the process and to its group."""


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise ``KeyboardInterrupt``, as Ctrl-C does; where it is ignored, it stays so.

    Raises:
        SystemExit: SIGTERM stopped the command; the code is ``TERMINATED`` in place of ``STOPPED``.
    """
    times: list[float] = []

    def interrupt(*_: object) -> None:
        times.append(time.monotonic())
        if len(times) == 1 or times[-1] - times[-2] > REPEATED:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SystemExit as stop:
        if times and stop.code == STOPPED:
            raise SystemExit(TERMINATED) from stop
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
