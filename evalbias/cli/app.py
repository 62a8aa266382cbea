"""From words to commands: the table of commands, signals, errors and exit codes."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from evalbias import __version__
from evalbias.cli import runs
from evalbias.cli.commands import (
    audit,
    compile_likelihood,
    compile_refine,
    demo,
    judge,
    measure_likelihood,
    measure_preference,
    measure_self,
    optimize,
    rank,
    refine,
)
from evalbias.cli.commands import style as measure_style
from evalbias.cli.options import Sectioned
from evalbias.cli.terminal import STOPPED, LeavableStream, readers_may_leave, set_verbosity
from evalbias.values import message

# Signals that stop a command do what Ctrl-C does: SIGTERM of schedulers, and SIGHUP of a connection that is lost.


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


# The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder.


COLLECTED = (100_000, 20, 20)
"""Thresholds of Python's garbage collector. PyTorch, Transformers and DSPy make a million objects that stay; with the
usual threshold of 700 the collector looks at them a thousand times, a seventh of the time that importing them takes."""

EVERYWHERE = ("--quiet", "-q", "--verbose", "-v")
"""Options that may stand behind a command's name too, where most people write them."""

COMMANDS = ["demo", "audit", "measure", "compile", "optimize", "judge", "rank", "refine", "runs"]
"""The commands in the order in which a newcomer meets them."""

DEFECT = 70
"""Exit code of a command that failed by a fault of evalbias, as in ``sysexits.h``."""


class _Ordered(TyperGroup):
    """The commands in their order."""

    def list_commands(self, ctx: Any) -> list[str]:
        return COMMANDS

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it raises goes on, because typer exits with 1 at some errors."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ConnectionError(f"{error}") from error
        except EOFError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        except typer.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise SystemExit(STOPPED) from abort
            if isinstance(abort.__context__, EOFError):
                raise ValueError("Nobody is there to answer the question: give --yes.") from abort
            raise


app = typer.Typer(
    cls=_Ordered,
    no_args_is_help=True,
    rich_markup_mode=None,  # see evalbias.cli.options
)
measure_app = typer.Typer(no_args_is_help=True, help="Measure a bias of a judge.")
compile_app = typer.Typer(no_args_is_help=True, help="Compile a bias out of a judge.")
app.add_typer(measure_app, name="measure")
app.add_typer(compile_app, name="compile")
app.add_typer(runs.app, name="runs")
app.command(cls=Sectioned, short_help="Say whether a judge is biased, by how much, and what helps.")(audit)
app.command(cls=Sectioned, short_help="Search for a wording without position bias, without labels.")(optimize)
app.command(cls=Sectioned, short_help="Score every item of a data set.")(judge)
app.command(cls=Sectioned, short_help="Rank the outputs of each document by comparing them.")(rank)
app.command(cls=Sectioned, short_help="Run a refine loop, or best of k, on every item.")(refine)
app.command(cls=Sectioned, short_help="Measure and mitigate two biases of the embedded judge, offline.")(demo)
measure_app.command("likelihood", cls=Sectioned, short_help="Measure the likelihood bias of a judge that scores.")(
    measure_likelihood
)
measure_app.command("preference", cls=Sectioned, short_help="Measure the biases of a judge that compares.")(
    measure_preference
)
measure_app.command("self", cls=Sectioned, short_help="Measure the self-bias of refine loops.")(measure_self)
measure_app.command("style", cls=Sectioned, short_help="Measure a model's preference for its own style.")(measure_style)
compile_app.command("likelihood", cls=Sectioned, short_help="Compile a judge with less likelihood bias.")(
    compile_likelihood
)
compile_app.command("refine", cls=Sectioned, short_help="Compile a refine loop with less self-bias.")(compile_refine)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"evalbias {__version__}")
        raise typer.Exit


@app.callback()
def evalbias(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and results only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the log as well.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure the biases of LLM judges, and compile them away.

    Exit codes: 0 done; 1 a --fail-on condition is met, or you answered a question with no; 2 an error that you can
    correct (the message says how); 70 a defect of evalbias, please report it; 129 stopped by SIGHUP, 130 by Ctrl-C,
    143 by SIGTERM (run the same command again to continue).
    """
    set_verbosity(quiet=quiet, verbose=verbose)


def user_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that a user can correct; DSPy's own too (a missing key, a server that is down)."""
    ours = (ValueError, OSError, ImportError, NotImplementedError, FloatingPointError)
    loaded = sys.modules.get("dspy.utils.exceptions")
    return ours if loaded is None else (*ours, loaded.LMError)


def check_words(words: Sequence[str]) -> None:
    """Refuse an empty word, which an unset shell variable leaves: as a path, it would name the current folder.

    Raises:
        ValueError: A word is empty, or an option written as ``--name=value`` has no value.
    """
    for before, word in pairwise(["evalbias", *words]):
        joined = word.startswith("--") and "=" in word
        named, value = word.split("=", 1) if joined else (before, word)
        if not value.strip():
            remedy = f", or leave {named} out" if named.startswith("-") else ""
            raise ValueError(f"What follows {named} is empty: give a value{remedy}.")


def _exit(code: int, error: BaseException, text: str) -> NoReturn:
    """Print what went wrong and exit, also where nothing can be printed because the disk is full."""
    try:
        typer.echo(message(text), err=True)
    except OSError:
        cast(LeavableStream, sys.stderr).discard()
    finally:
        raise SystemExit(code) from error


def main() -> None:
    """Run a command; an error is printed in one line, and its traceback with ``-v`` if no user can correct it."""
    gc.set_threshold(*COLLECTED)
    words = sys.argv[1:]
    with readers_may_leave(), stopped_by_signals():
        try:
            check_words(words)
            app([word for word in words if word in EVERYWHERE] + [word for word in words if word not in EVERYWHERE])
        except user_errors() as error:
            _exit(2, error, f"evalbias: {error}")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the tokenizers, which are written in Rust, is no Exception
            logging.getLogger("evalbias").info("The error was raised here:", exc_info=error)
            said = f"evalbias: {type(error).__name__}: {error!s:.2000}".removesuffix(": ")
            remedy = "This is a defect of evalbias: please report it, with the traceback that -v prints."
            _exit(DEFECT, error, f"{said}. {remedy}")


if __name__ == "__main__":
    main()
