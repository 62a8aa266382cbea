"""The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evalbias import __version__
from evalbias.commands import runs
from evalbias.commands.audit import audit
from evalbias.commands.demo import demo
from evalbias.commands.judge import judge
from evalbias.commands.likelihood import compile_likelihood, measure_likelihood
from evalbias.commands.preference import measure_preference, optimize, rank
from evalbias.commands.self_bias import compile_refine, measure_self, measure_style, refine
from evalbias.commands.terminal import set_verbosity
from evalbias.runs.visible import visible

app = typer.Typer(no_args_is_help=True)
measure_app = typer.Typer(no_args_is_help=True, help="Measure a bias of a judge.")
compile_app = typer.Typer(no_args_is_help=True, help="Compile a bias out of a judge.")
app.add_typer(measure_app, name="measure")
app.add_typer(compile_app, name="compile")
app.add_typer(runs.app, name="runs")
app.command()(audit)
app.command()(optimize)
app.command()(judge)
app.command()(rank)
app.command()(refine)
app.command()(demo)
measure_app.command("likelihood")(measure_likelihood)
measure_app.command("preference")(measure_preference)
measure_app.command("self")(measure_self)
measure_app.command("style")(measure_style)
compile_app.command("likelihood")(compile_likelihood)
compile_app.command("refine")(compile_refine)


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
    """Measure the biases of LLM judges; compile them away.

    Exit codes: 0 done, 1 a --fail-on condition is met or a question is answered with no, 2 something is to be
    corrected (the message says what), 130 stopped by Ctrl-C: the same command goes on.
    """
    set_verbosity(quiet=quiet, verbose=verbose)


def user_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that a user can correct; DSPy's own too (a missing key, a server that is down)."""
    ours = (ValueError, OSError, ImportError, NotImplementedError, FloatingPointError)
    loaded = sys.modules.get("dspy.utils.exceptions")
    return ours if loaded is None else (*ours, loaded.LMError)


def main() -> None:
    """Run a command; an error that a user can correct is printed in one line."""
    try:
        app()
    except user_errors() as error:
        typer.echo(visible(f"evalbias: {error}"), err=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
