"""Python's garbage collector while many requests are in flight.

A request in flight holds some hundred objects. A thousand requests that begin at once make the collector run again and
again, and a full collection looks at every object of the process: about a million with PyTorch, Transformers and DSPy,
up to .3 ms of CPU a request. What is there before a call is therefore frozen during the call: the collector looks at
newer objects only.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Heap:
    """The objects of this process; what calls in several threads froze is thawed when the last of them ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._ours = False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep the collector from looking at the objects that are there now.

        A program that froze objects itself is left alone, because freezing cannot be undone for some objects only.
        """
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                self._ours = gc.get_freeze_count() == 0
            if self._ours:
                gc.freeze()
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if self._calls == 0 and self._ours:
                    gc.collect()  # what the calls left behind: later it would be among everything else
                    gc.unfreeze()
                    self._ours = False


HEAP = Heap()
