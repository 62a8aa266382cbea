"""Messages of a command on stderr: notices, progress, and how a stopped run goes on."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from evalbias.commands.streams import rendered
from evalbias.runs.folder import Closable, RunFolder
from evalbias.runs.visible import message, visible

SECONDS = 30.0
"""Time between two lines of progress where stderr is no terminal."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk or a quota that is full."""
STOPPED = 130
"""Exit code of a command that Ctrl-C stopped, as shells give it."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Show errors only, or the log of what models and servers do as well."""
    _quiet.set(quiet)
    level = logging.ERROR if quiet else logging.INFO if verbose else logging.NOTSET  # as the root logger: warnings
    logging.getLogger("evalbias").setLevel(level)
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")


def say(text: str) -> None:
    """Print a notice on stderr, unless the command is quiet."""
    if not _quiet.get():
        typer.echo(message(text), err=True)


def print_json(content: Any) -> None:
    """Print a result as JSON on stdout; no text in it is a command to a CI job, which would be blanked."""
    sys.stdout.write(json.dumps(content, allow_nan=False).replace("##", r"#\u0023") + "\n")


class PlainConsole(Console):
    """Console that prints texts as they are: brackets are no markup, and a terminal obeys nothing in them."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(file=rendered(sys.stderr if stderr else sys.stdout), markup=False, emoji=False)
        if not self.width:  # COLUMNS=0 means an unknown width, and rich would print nothing
            self.width = shutil.get_terminal_size().columns

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to print, without control characters."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is printed, without control characters but the console's own."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=visible(part.text))


class Resumable(Closable):
    """An open run in a folder; after Ctrl-C, and on a full disk, it says how to go on."""

    folder: RunFolder

    def __exit__(self, kind: object = None, error: object = None, *rest: object) -> None:
        """Close the run.

        Raises:
            SystemExit: Ctrl-C stopped it.
            OSError: The disk is full; the message says what is kept.
        """
        self.close()
        if isinstance(error, OSError) and error.errno in FULL:
            raise OSError(
                f"{error.strerror}: {error.filename or self.folder.path}. Answers that could be written are kept in "
                f"{self.folder.path}: free some space, and the same command goes on from here."
            ) from error
        if isinstance(kind, type) and issubclass(kind, KeyboardInterrupt):
            typer.echo(
                f"\nStopped. The same command goes on from here: what was answered is kept in {self.folder.path}.",
                err=True,
            )
            raise SystemExit(STOPPED)


class Shown(Protocol):
    """Progress that is shown."""

    total: int

    def advance(self, count: int) -> None:
        """Count so many more."""

    def end(self) -> None:
        """Count all as done, however many were foreseen."""

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to a question."""


class Bar:
    """Bar in a terminal, with the rate and the time left."""

    def __init__(self, doing: str, total: int) -> None:
        self.total = total
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        self.progress = Progress(doing, *columns, console=PlainConsole(stderr=True))
        self._task = self.progress.add_task("", total=total, rate="")

    def advance(self, count: int) -> None:
        """Count so many more."""
        speed = self.progress.tasks[0].speed
        self.progress.update(self._task, advance=count, rate=f"{speed:.0f}/s" if speed else "")

    def end(self) -> None:
        """Fill the bar."""
        self.progress.update(self._task, total=self.progress.tasks[0].completed)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question."""
        self.progress.stop()
        yield
        self.progress.start()


class Lines:
    """A line of progress after the first answers if many are left, then every 30 seconds; for logs and pipes.

    Args:
        doing: What is done, in a word.
        total: Number of things to do.
        say: Prints a line.
        now: Clock in seconds.
    """

    def __init__(
        self, doing: str, total: int, say: Callable[[str], None] = say, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = total
        self._doing, self._say, self._now = doing, say, now
        self._done, self._began = 0, now()
        self._told: float | None = None

    def advance(self, count: int) -> None:
        """Count so many more; print a line if the last one is old, or if there is none and much time is left."""
        self._done += count
        now = self._now()
        if now == self._began or not self._done:
            return
        rate = self._done / (now - self._began)
        left = max(0, self.total - self._done) / rate
        if now - (self._began if self._told is None else self._told) >= SECONDS or (
            self._told is None and left > SECONDS
        ):
            self._told = now
            until = f", about {duration(left)} left" if left else ""
            self._say(f"{self._doing}: {self._done:,} of {self.total:,}, {rate:.3g}/s{until}")

    def end(self) -> None:
        """Do nothing: the result follows."""

    def paused(self) -> AbstractContextManager[None]:
        """Do nothing: no bar is in the way."""
        return nullcontext()


@contextmanager
def progress(total: int, doing: str) -> Iterator[Shown]:
    """Show progress on stderr: a bar in a terminal, else a line every 30 seconds; nothing if the command is quiet."""
    if _quiet.get() or not sys.stderr.isatty():
        yield Lines(doing, total, (lambda _: None) if _quiet.get() else say)  # threads do not see what is quiet
        return
    bar = Bar(doing, total)
    with bar.progress:
        yield bar


@contextmanager
def counting(total: int, doing: str) -> Iterator[Callable[[int], None]]:
    """Show progress as ``progress`` does; yields the function that advances it."""
    with progress(total, doing) as shown:
        yield shown.advance


def duration(seconds: float) -> str:
    """Say a time to two figures.

    Examples:
        >>> [duration(s) for s in (8, 95, 7000, 200_000)]
        ['8 s', '2 min', '1.9 h', '56 h']
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            value = seconds / size
            return f"{value:.1f} {unit}" if unit == "h" and value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
