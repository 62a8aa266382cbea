"""The commands of self-bias: measure it on recorded loops or by paraphrases, run a loop, compile a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.model_options import WriterOptions
from evalbias.commands.option_groups import option_groups
from evalbias.commands.options import Bare, Columns, Json, KeepWorse, Out, Seed
from evalbias.commands.refine_options import LoopOptions, MetricOptions, QuantileMapFile, RefineOptions
from evalbias.commands.sections import data_option, external_option, run_option

Loops = Annotated[
    list[Path],
    data_option(
        "--data",
        metavar="PATH",
        help="File of recorded loops, or a run folder of evalbias refine. Repeatable.",
        exists=True,
    ),
]
MaxIterations = Annotated[
    int | None, typer.Option(help="Maximum number of refinements per item (10 if not given).", min=0)
]
Threads = Annotated[int, run_option("--threads", help="Number of items to process at a time.", min=1)]
InstructScoreLM = Annotated[
    str | None,
    external_option(
        "--instructscore", help="Model for external feedback: it lists the errors by comparing with the reference."
    ),
]
InstructScorePrompt = Annotated[
    Path | None,
    external_option(
        help="File with the prompt of --instructscore; holds {reference} and {output}.", exists=True, dir_okay=False
    ),
]
ExamplesFile = Annotated[
    Path | None,
    typer.Option(
        help="JSON file of in-context examples for generate, feedback and refine, to replace the built-in ones ({}: "
        "none).",
        exists=True,
        dir_okay=False,
    ),
]


def measure_self(
    data: Loops,
    columns: Columns = None,
    own: Annotated[str, typer.Option(help="Field that holds the loop's own score.")] = "self_score",
    expected: Annotated[str, typer.Option(help="Field that holds the output's expected score.")] = "expected",
    by: Annotated[Literal["iteration", "k"], typer.Option(help="Field that numbers the rounds.")] = "iteration",
    map_file: QuantileMapFile = None,
    resamples: Annotated[int, typer.Option(help="Number of resamples for the intervals and the test.", min=1)] = 2_000,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the Bias and distance skewness of recorded loops, round by round, with intervals. Runs no model.

    Several loops, such as those of several models, are shown side by side.
    """
    from evalbias.commands.measure_recorded import measure_recorded

    measure_recorded(
        data,
        columns=columns,
        own=own,
        expected=expected,
        by=by,
        map_file=map_file,
        resamples=resamples,
        seed=seed,
        out=out,
        as_json=as_json,
    )


@option_groups
def measure_style(
    loop: LoopOptions,
    *,
    examples: ExamplesFile = None,
    metric: MetricOptions,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Measure a model's preference for its own style.

    The model paraphrases outputs that others wrote (field 'output'), and judges both versions.
    """
    from evalbias.commands.refining import Refining
    from evalbias.commands.run_refine import run_style

    options = RefineOptions(examples=examples, metric=metric)
    with Refining("measure style", loop, options=options, models=models) as run:
        run_style(run, threads=threads, as_json=as_json)


@option_groups
def refine(
    loop: LoopOptions,
    *,
    max_iterations: MaxIterations = None,
    examples: ExamplesFile = None,
    feedback: Annotated[
        Literal["own", "external"],
        typer.Option(help="Source of feedback: the model itself, or the task's external source."),
    ] = "own",
    program: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of a compiled loop, which decides the number of refinements.", exists=True, dir_okay=False
        ),
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option(
            help="Instead of refining, draw this many outputs and keep the one with the best feedback.", min=1
        ),
    ] = None,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    metric: MetricOptions,
    aspects_lm: Annotated[
        str | None,
        external_option(help="Model that judges the fluency and understandability of every output; 'same' means --lm."),
    ] = None,
    aspects_api_base: Annotated[
        str | None, external_option(help="Address of the server that runs --aspects-lm.")
    ] = None,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Run a refine loop, or best of k, on every item.

    Writes outputs.jsonl and steps.jsonl to the run's folder. A stopped run continues. To see Bias and Dskew for each
    refinement, or by k, run evalbias measure self --data FOLDER.
    """
    from evalbias.commands.refining import Refining
    from evalbias.commands.run_refine import run_loop

    options = RefineOptions(
        max_iterations=max_iterations,
        examples=examples,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        program=program,
        feedback=feedback,
        best_of=best_of,
        aspects_lm=aspects_lm,
        aspects_api_base=aspects_api_base,
        metric=metric,
    )
    with Refining("refine", loop, options=options, models=models) as run:
        run_loop(run, threads=threads, as_json=as_json)


@option_groups
def compile_refine(
    loop: LoopOptions,
    *,
    max_iterations: MaxIterations = None,
    examples: ExamplesFile = None,
    k: Annotated[int, typer.Option("-k", help="Maximum number of demonstrations.", min=0)] = 4,
    until: Annotated[
        Literal["quality", "quality or bias"],
        typer.Option(help="Stop when quality stops rising, or already before the bias rises."),
    ] = "quality",
    budget: Annotated[
        int | None, typer.Option(help="Approximate number of requests to the model for training items.", min=1)
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Fraction of the items to keep for comparing before and after.")
    ] = 0.5,
    bare: Bare = False,
    keep_worse: KeepWorse = False,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    metric: MetricOptions,
    threads: Threads = 1,
    models: WriterOptions,
    as_json: Json = False,
) -> None:
    """Compile a loop under external feedback: when to stop, and demonstrations from accepted refinements."""
    from evalbias.commands.refining import Refining
    from evalbias.commands.run_refine import compile_loop

    options = RefineOptions(
        max_iterations=max_iterations,
        examples=examples,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        k=k,
        until=until,
        budget=budget,
        test_fraction=test_fraction,
        bare=bare,
        metric=metric,
    )
    with Refining("compile refine", loop, options=options, models=models) as run:
        compile_loop(run, threads=threads, as_json=as_json, keep_worse=keep_worse)
