"""The commands of self-bias: measure it on recorded loops, run a loop, compile one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evalbias.commands.options import LM, ApiBase, Device, Dtype, Json, Out, Seed

Loops = Annotated[
    Path,
    typer.Option("--data", help="JSONL of recorded loops, or a run folder of evalbias refine.", exists=True),
]
Task = Annotated[
    Literal["translation", "constrained-generation", "mathematics"], typer.Option(help="What is written and refined.")
]
Items = Annotated[Path, typer.Option("--data", help="JSONL with the fields of the task.", exists=True, dir_okay=False)]
MaxIterations = Annotated[int, typer.Option(help="Refinements of an item at most.", min=0)]
MaxTokens = Annotated[int | None, typer.Option(help="Of every answer; by default what the task needs.", min=1)]
Threads = Annotated[int, typer.Option("--threads", help="Items at a time.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Run only the first so many items.", min=1)]


def measure_self(
    data: Loops,
    own: Annotated[str, typer.Option(help="Field with the loop's own score.")] = "self_score",
    expected: Annotated[str, typer.Option(help="Field with what the output was worth.")] = "expected",
    by: Annotated[Literal["iteration", "k"], typer.Option(help="Field that numbers the rounds.")] = "iteration",
    resamples: Annotated[int, typer.Option(help="Of the intervals and the test.", min=1)] = 2_000,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Bias and distance skewness of a loop's own scores, round by round, with intervals. No model is asked."""
    from evalbias.commands.recorded import measured_self

    measured_self(data, own=own, expected=expected, by=by, resamples=resamples, seed=seed, out=out, as_json=as_json)


def refine(
    task: Task,
    data: Items,
    lm: LM,
    max_iterations: MaxIterations = 10,
    max_tokens: MaxTokens = None,
    feedback: Annotated[
        Literal["own", "external"], typer.Option(help="The model's own, or the task's external source.")
    ] = "own",
    threads: Threads = 1,
    limit: Limit = None,
    api_base: ApiBase = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run a refine loop on every item; outputs.jsonl and steps.jsonl in the run's folder. A stopped run goes on."""
    from evalbias.commands.refining import Refining

    models = {"api_base": api_base, "device": device, "dtype": dtype}
    run = Refining(
        "refine", task, data, lm, models, max_iterations, max_tokens, limit=limit, seed=seed, out=out, feedback=feedback
    )
    run.refine(threads=threads, as_json=as_json)


def compile_refine(
    task: Task,
    data: Items,
    lm: LM,
    max_iterations: MaxIterations = 10,
    max_tokens: MaxTokens = None,
    k: Annotated[int, typer.Option("-k", help="Demonstrations at most.", min=0)] = 4,
    test_fraction: Annotated[float, typer.Option(help="Of the items, kept for before and after.")] = 0.5,
    threads: Threads = 1,
    limit: Limit = None,
    api_base: ApiBase = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compile a loop under external feedback: where it should stop, and what it learns from accepted refinements."""
    from evalbias.commands.refining import Refining

    models = {"api_base": api_base, "device": device, "dtype": dtype}
    options: dict[str, Any] = {"k": k, "test_fraction": test_fraction}
    run = Refining(
        "compile refine", task, data, lm, models, max_iterations, max_tokens, limit=limit, seed=seed, out=out, **options
    )
    run.compile(threads=threads, as_json=as_json)
