"""Signals that stop a command do what Ctrl-C does: SIGTERM of schedulers, and SIGHUP of a connection that is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
REPEATED = 1.0
"""Seconds in which a second signal counts as the first: timeout(1) sends two, and an impatient user types Ctrl-C twice.

What had arrived is kept meanwhile.
"""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let each signal raise ``KeyboardInterrupt``, as Ctrl-C does; one that is ignored stays so.

    Once the command is stopped, a further signal ends the process at once.

    Raises:
        SystemExit: A signal stopped the command; the code is 128 and its number, as shells give it.
    """
    received: list[int] = []
    times: list[float] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        times.append(time.monotonic())
        if len(times) == 1 or times[-1] - times[-2] > REPEATED:
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled: dict[int, Any] = {number: handler for number, handler in before.items() if handler in usual}
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if not received or (isinstance(stop, SystemExit) and stop.code != 128 + signal.SIGINT):
            raise
        code = 128 + received[0]
        handled = dict.fromkeys(handled, lambda *_: os._exit(code))
        raise SystemExit(code) from stop
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
