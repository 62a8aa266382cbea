"""The commands of self-bias: measure it on recorded loops or by paraphrases, run a loop, compile a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.options import (
    LM,
    Bare,
    Checkpoint,
    Columns,
    Json,
    KeepWorse,
    Metric,
    MetricPython,
    Models,
    Out,
    QuantileMapFile,
    Seed,
    opening_models,
)

Loops = Annotated[
    list[Path],
    typer.Option("--data", help="File of recorded loops, or a run folder of evalbias refine. Repeatable.", exists=True),
]
Task = Annotated[
    Literal["translation", "constrained-generation", "mathematics", "mathematics-refiner"],
    typer.Option(
        help="Task of the loop. In mathematics, votes replace the answer, as in the paper. In mathematics-refiner, a "
        "refiner is told the vote, and its solution is accepted if its score is better."
    ),
]
Items = Annotated[
    str,
    typer.Option(
        "--data", help="Items with the fields of the task: a file of the same formats as for judge, or hf:NAME."
    ),
]
MaxIterations = Annotated[
    int | None, typer.Option(help="Maximum number of refinements per item (10 if not given).", min=0)
]
MaxTokens = Annotated[
    int | None, typer.Option(help="Maximum length of an answer, in tokens. By default, what the task needs.", min=1)
]
Threads = Annotated[int, typer.Option("--threads", help="Number of items to process at a time.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Process only this many items, from the start.", min=1)]
InstructScoreLM = Annotated[
    str | None,
    typer.Option(
        "--instructscore", help="Model for external feedback: it lists the errors by comparing with the reference."
    ),
]
InstructScorePrompt = Annotated[
    Path | None,
    typer.Option(
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


@opening_models
def measure_style(
    task: Task,
    data: Items,
    lm: LM,
    columns: Columns = None,
    max_tokens: MaxTokens = None,
    examples: ExamplesFile = None,
    metric: Metric = "chrf",
    metric_python: MetricPython = None,
    checkpoint: Checkpoint = None,
    map_file: QuantileMapFile = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure a model's preference for its own style.

    The model paraphrases outputs that others wrote (field 'output'), and judges both versions.
    """
    from evalbias.commands.refine_options import MetricOptions, RefineOptions
    from evalbias.commands.refining import Refining
    from evalbias.commands.run_refine import run_style

    options = RefineOptions(examples=examples, metric=MetricOptions(metric, metric_python, checkpoint, map_file))
    with Refining(
        "measure style",
        task,
        data,
        lm,
        columns=columns,
        models=models,
        max_tokens=max_tokens,
        options=options,
        limit=limit,
        seed=seed,
        out=out,
    ) as run:
        run_style(run, threads=threads, as_json=as_json)


@opening_models
def refine(
    task: Task,
    data: Items,
    lm: LM,
    columns: Columns = None,
    max_iterations: MaxIterations = None,
    max_tokens: MaxTokens = None,
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
    metric: Metric = "chrf",
    metric_python: MetricPython = None,
    checkpoint: Checkpoint = None,
    map_file: QuantileMapFile = None,
    aspects_lm: Annotated[
        str | None,
        typer.Option(help="Model that judges the fluency and understandability of every output; 'same' means --lm."),
    ] = None,
    aspects_api_base: Annotated[str | None, typer.Option(help="Address of the server that runs --aspects-lm.")] = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run a refine loop, or best of k, on every item.

    Writes outputs.jsonl and steps.jsonl to the run's folder. A stopped run continues. To see Bias and Dskew for each
    refinement, or by k, run evalbias measure self --data FOLDER.
    """
    from evalbias.commands.refine_options import MetricOptions, RefineOptions
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
        metric=MetricOptions(metric, metric_python, checkpoint, map_file),
    )
    with Refining(
        "refine",
        task,
        data,
        lm,
        columns=columns,
        models=models,
        max_tokens=max_tokens,
        options=options,
        limit=limit,
        seed=seed,
        out=out,
    ) as run:
        run_loop(run, threads=threads, as_json=as_json)


@opening_models
def compile_refine(
    task: Task,
    data: Items,
    lm: LM,
    columns: Columns = None,
    max_iterations: MaxIterations = None,
    max_tokens: MaxTokens = None,
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
    metric: Metric = "chrf",
    metric_python: MetricPython = None,
    checkpoint: Checkpoint = None,
    map_file: QuantileMapFile = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compile a loop under external feedback: when to stop, and demonstrations from accepted refinements."""
    from evalbias.commands.refine_options import MetricOptions, RefineOptions
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
        metric=MetricOptions(metric, metric_python, checkpoint, map_file),
    )
    with Refining(
        "compile refine",
        task,
        data,
        lm,
        columns=columns,
        models=models,
        max_tokens=max_tokens,
        options=options,
        limit=limit,
        seed=seed,
        out=out,
    ) as run:
        compile_loop(run, threads=threads, as_json=as_json, keep_worse=keep_worse)
