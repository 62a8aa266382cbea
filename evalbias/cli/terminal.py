"""Notices, progress and plans on stderr, results on stdout, and no text that controls a terminal."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.segment import Segment
from rich.text import Text

from evalbias.values import message, visible, without_commands

if TYPE_CHECKING:
    from evalbias.lm.types import Question

# Standard output and standard error of a command: their reader may leave, and no text commands a terminal or CI.


class LeavableStream:
    """Stream that drops all output after its reader has left, and shows texts as ``visible`` does.

    A closed pipe is no error: the command goes on, writes its files and keeps its exit code, of which 1
    means that a ``--fail-on`` condition fails the build. ``rendered``: the console has replaced the texts' control
    characters.
    """

    def __init__(self, stream: TextIO, *, rendered: bool = False) -> None:
        self._stream, self._rendered = stream, rendered
        self._last = ""  # the last character of a line that has begun

    def write(self, text: str) -> int:
        """Write a text at once, so that a full disk is an error of the command and not of Python's exit."""
        lines = self._last + text
        printable = without_commands(lines)[len(self._last) :]
        self._last = lines.rpartition("\n")[2].rstrip()[-1:]
        try:
            self._stream.write(printable if self._rendered else visible(printable))
        except OSError as error:
            self._drop(error)
        self.flush()
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it and all further output."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)
            self._stream.flush()

    def _drop(self, error: OSError) -> None:
        if error.errno not in (errno.EPIPE, errno.EIO):  # a closed pipe, a terminal that is gone
            raise error
        self.discard()

    def discard(self) -> None:
        """Discard the buffer and all further output; otherwise Python's exit would fail on it again."""
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Replace standard output and standard error by streams whose reader may leave."""
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


# Messages of a command on stderr: notices, progress, and how a stopped run goes on.

SECONDS = 30.0  # time between two lines of progress where stderr is no terminal
UNDECIDED = 3  # exit code if an interval neither shows nor refutes a condition on its number
STOPPED = 130  # exit code of a command that Ctrl-C stopped, as shells give it
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Show errors only, or also the log of models and servers."""
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
    """Console that prints texts as they are: brackets are no markup, and control characters have no effect."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(file=rendered(sys.stderr if stderr else sys.stdout), markup=False, emoji=False)
        if not self.width:  # COLUMNS=0 means an unknown width, and rich would print nothing
            self.width = shutil.get_terminal_size().columns

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to print, without control characters."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print, without control characters but the console's own."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=visible(part.text))


class Progress:
    """Progress in a terminal, as a bar; elsewhere a line after the first answers if many are left, then every 30 s."""

    def __init__(
        self,
        doing: str,
        total: int,
        *,
        bar: Bar | None = None,
        say: Callable[[str], None] = say,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.doing, self.total, self.done = doing, total, 0
        self._bar, self._say, self._now, self._began = bar, say, now, now()
        self._printed_at: float | None = None
        self._known = 0
        self._task = None if bar is None else bar.add_task("", total=total, rate="")

    def advance(self, count: int, *, known: int = 0) -> None:
        """Add to the count; print a line if the last line is old, or if none was printed and much time is left.

        ``known`` of all so far were answered before, in this run or an earlier one, and say nothing of the rate.
        """
        self.done += count
        if self._bar is not None and self._task is not None:
            speed, total = self._bar.tasks[0].speed, max(self.total, self.done)
            if known > self._known:
                self._known = known
                self._bar.reset(self._task, total=total, completed=self.done)
            else:
                self._bar.update(self._task, advance=count, total=total, rate=f"{speed:.0f}/s" if speed else "")
            return
        now = self._now()
        if now == self._began or self.done <= known:
            return
        rate = (self.done - known) / (now - self._began)
        left = max(0, self.total - self.done) / rate
        if now - (self._printed_at or self._began) >= SECONDS or (self._printed_at is None and left > SECONDS):
            self._printed_at = now
            until = f", about {duration(left)} left" if left else ""
            of = f"of {self.total:,}" if self.done <= self.total else "so far"  # the total is a forecast
            of += f" ({known:,} known already)" if known else ""
            self._say(f"{self.doing}: {self.done:,} {of}, {rate:.3g}/s{until}")

    def end(self) -> None:
        """Fill the bar, however many were foreseen."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._bar.tasks[0].completed)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        yield
        self._bar.start()


@contextmanager
def progress(total: int, doing: str) -> Iterator[Progress]:
    """Show progress on stderr; nothing if the command is quiet."""
    if _quiet.get() or not sys.stderr.isatty():
        yield Progress(doing, total, say=(lambda _: None) if _quiet.get() else say)  # threads do not see ``_quiet``
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Bar(doing, *columns, console=PlainConsole(stderr=True)) as bar:
        yield Progress(doing, total, bar=bar)


def duration(seconds: float) -> str:
    """Format a time with two digits.

    Examples:
        >>> [duration(s) for s in (8, 95, 7000, 200_000)]
        ['8 s', '2 min', '1.9 h', '56 h']
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            value = seconds / size
            return f"{value:.1f} {unit}" if unit == "h" and value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "1 s"


# The plan of a long run, printed before its first prompt: prompts, tokens and, if prices are listed, the cost.

LONG = 1000  # fewest prompts of a run with a plan, which a user at a terminal confirms
SAMPLE = 50  # largest number of prompts whose length is measured
CHARACTERS = 4.0  # characters of a token, about, in English


def tell_plan(
    questions: Sequence[Question], left: int, model: str, *, longer: float = 1.0, hosted: str | None, yes: bool
) -> None:
    """Print the plan of a long run, which a user at a terminal must confirm; short runs have no plan.

    ``questions`` are the first to the model, ``left`` is the number of answers to ask for, whose prompts are ``longer``
    times as long, ``hosted`` is a hosted model's name in price lists, and ``yes`` skips the confirmation. A user who
    declines raises Exit.
    """
    if left < LONG or not questions:
        return
    step = max(1, len(questions) // SAMPLE)
    lengths = [_length(question) for question in questions[::step]]
    tokens = longer * left * sum(lengths) / len(lengths) / CHARACTERS
    cost = None if hosted is None else _dollars(hosted, tokens)
    price = "" if cost is None else f", about ${cost:,.2f} for the prompts by litellm's price list"
    looked = "1 prompt" if len(lengths) == 1 else f"{len(lengths)} prompts"
    say(f"plan: about {left:,} prompts to {model}, {round(tokens, -2):,.0f} tokens (estimated from {looked}){price}.")
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not typer.confirm("Go on?", default=True, err=True):
        raise typer.Exit(1)


def _length(question: Question) -> int:
    from evalbias.lm.decisions import state_text
    from evalbias.lm.types import Decision, Likelihood

    prompt = question.context if isinstance(question, Likelihood) else question.prompt
    if isinstance(question, Decision):
        return len(state_text(prompt))
    length = len(prompt) if isinstance(prompt, str) else sum(len(message["content"]) for message in prompt)
    return length + (len(question.continuation) if isinstance(question, Likelihood) else 0)


def _dollars(name: str, tokens: float) -> float | None:
    """Return the cost of the prompts in dollars; None if litellm is not installed or does not list the model."""
    try:
        import litellm
    except ImportError:
        return None
    listed = litellm.model_cost.get(name) or litellm.model_cost.get(name.partition("/")[2]) or {}
    price = listed.get("input_cost_per_token")
    return None if price is None else float(price) * tokens
