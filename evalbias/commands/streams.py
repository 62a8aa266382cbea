"""Standard output and standard error of a command: their reader may leave, and no text commands a terminal or CI."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from evalbias.runs.visible import visible, without_commands


class LeavableStream:
    """Stream that drops what is written once nobody reads it any more, and shows texts as ``visible`` does.

    A reader who has seen enough is no error: the command goes on, writes its files and keeps its exit code, of which 1
    says that a ``--fail-on`` condition is met.

    Args:
        stream: Stream that is written to.
        rendered: Whether the control characters are those of a console, which has replaced those of the texts.
    """

    def __init__(self, stream: TextIO, *, rendered: bool = False) -> None:
        self._stream, self._rendered = stream, rendered
        self._last = ""  # the last character of a line that has begun

    def write(self, text: str) -> int:
        """Write a text at once, so that a full disk is an error of the command and not of Python's exit."""
        lines = self._last + text
        shown = without_commands(lines)[len(self._last) :]
        self._last = lines.rpartition("\n")[2].rstrip()[-1:]
        try:
            self._stream.write(shown if self._rendered else visible(shown))
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


def rendered(stream: TextIO) -> TextIO:
    """Return the stream for a console, which adds control characters of its own."""
    stream = getattr(stream, "rich_proxied_file", stream)  # a console shows progress
    return cast(TextIO, LeavableStream(stream._stream, rendered=True)) if isinstance(stream, LeavableStream) else stream


def _leavable(stream: TextIO | None) -> TextIO:
    if stream is None:  # the shell closed it (>&-)
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    return cast(TextIO, LeavableStream(stream))
