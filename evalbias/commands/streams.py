"""Standard output and standard error whose reader may leave before a command ends, as ``head`` does."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast


class LeavableStream:
    """Stream that drops what is written once nobody reads it any more.

    A reader who has seen enough is no error: the command goes on, writes its files and keeps its exit code, of which 1
    says that a ``--fail-on`` condition is met.

    Args:
        stream: Stream that is written to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text at once, so that a full disk is an error of the command and not of Python's exit."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        self.flush()
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it and all that follows."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)
            self._stream.flush()

    def _drop(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.EIO):  # a closed pipe, a terminal that is gone
            raise error
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Put streams whose reader may leave in the place of standard output and standard error."""
    with redirect_stdout(_leavable(sys.stdout)), redirect_stderr(_leavable(sys.stderr)):
        yield


def _leavable(stream: TextIO | None) -> TextIO:
    if stream is None:  # the shell closed it (>&-)
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    return cast(TextIO, LeavableStream(stream))
