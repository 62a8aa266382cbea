"""The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder."""

from __future__ import annotations

import typer

from evalbias.commands.demo import demo
from evalbias.commands.likelihood import compile_likelihood, judge, measure_likelihood
from evalbias.commands.preference import measure_preference, optimize, rank

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure the biases of LLM judges; compile them away."
)
measure_app = typer.Typer(no_args_is_help=True, help="Measure a bias of a judge.")
compile_app = typer.Typer(no_args_is_help=True, help="Compile a bias out of a judge.")
app.add_typer(measure_app, name="measure")
app.add_typer(compile_app, name="compile")
app.command()(optimize)
app.command()(judge)
app.command()(rank)
app.command()(demo)
measure_app.command("likelihood")(measure_likelihood)
measure_app.command("preference")(measure_preference)
compile_app.command("likelihood")(compile_likelihood)


MENDABLE = (ValueError, OSError, ImportError, NotImplementedError, FloatingPointError)


def main() -> None:
    """Run a command; what a user can mend is told in one line."""
    try:
        app()
    except Exception as error:
        # DSPy tells of a missing key, a server that is down and the like by errors of its own
        if not isinstance(error, MENDABLE) and not type(error).__module__.startswith("dspy."):
            raise
        typer.echo(f"evalbias: {error}", err=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
