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
        help="Task that is written and refined. In mathematics votes replace the answer, as in the paper; in "
        "mathematics-refiner a refiner is told the vote, and its solution is accepted if its score is better."
    ),
]
Items = Annotated[
    str, typer.Option("--data", help="Items with the fields of the task: a file as for judge, or hf:NAME.")
]
MaxIterations = Annotated[
    int | None, typer.Option(help="Largest number of refinements of an item; by default 10.", min=0)
]
MaxTokens = Annotated[
    int | None, typer.Option(help="Largest length of an answer; by default what the task needs.", min=1)
]
Threads = Annotated[int, typer.Option("--threads", help="Items at a time.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Run only the first so many items.", min=1)]
InstructScoreLM = Annotated[
    str | None, typer.Option("--instructscore", help="Model that lists errors by the reference: external feedback.")
]
InstructScorePrompt = Annotated[
    Path | None,
    typer.Option(help="Its request, with {reference} and {output}; see InstructScore.", exists=True, dir_okay=False),
]

ExamplesFile = Annotated[
    Path | None,
    typer.Option(
        help="JSON of in-context examples for generate, feedback and refine, instead of the built-in ones ({}: none).",
        exists=True,
        dir_okay=False,
    ),
]


def measure_self(
    data: Loops,
    columns: Columns = None,
    own: Annotated[str, typer.Option(help="Field with the loop's own score.")] = "self_score",
    expected: Annotated[str, typer.Option(help="Field with the expected score of the output.")] = "expected",
    by: Annotated[Literal["iteration", "k"], typer.Option(help="Field that numbers the rounds.")] = "iteration",
    map_file: QuantileMapFile = None,
    resamples: Annotated[int, typer.Option(help="Resamples of the intervals and the test.", min=1)] = 2_000,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Bias and distance skewness of loops' own scores, round by round, with intervals. No model is asked.

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
    """Preference for the own style: the model paraphrases outputs of others (field 'output') and judges both."""
    from evalbias.commands.refine_options import MetricOptions, RefineOptions
    from evalbias.commands.refining import Refining
    from evalbias.commands.run_refine import run_style

    options = RefineOptions(examples=examples, metric=MetricOptions(metric, metric_python, checkpoint, map_file))
    with Refining(
        "measure style", task, data, columns, lm, models, max_tokens, options, limit=limit, seed=seed, out=out
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
        Literal["own", "external"], typer.Option(help="The model's own, or the task's external source.")
    ] = "own",
    program: Annotated[
        Path | None,
        typer.Option(help="A compiled loop; it decides the refinements.", exists=True, dir_okay=False),
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option(help="Draw so many outputs and keep the one with the best feedback, without refining.", min=1),
    ] = None,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    metric: Metric = "chrf",
    metric_python: MetricPython = None,
    checkpoint: Checkpoint = None,
    map_file: QuantileMapFile = None,
    aspects_lm: Annotated[
        str | None,
        typer.Option(help="Model that judges fluency and understandability of every output; 'same' is --lm itself."),
    ] = None,
    aspects_api_base: Annotated[str | None, typer.Option(help="Address of the server that --aspects-lm names.")] = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run a refine loop, or best of k, on every item; outputs.jsonl and steps.jsonl in the run's folder.

    A stopped run goes on. evalbias measure self --data FOLDER shows Bias and Dskew by refinement, or by k.
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
        "refine", task, data, columns, lm, models, max_tokens, options, limit=limit, seed=seed, out=out
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
    k: Annotated[int, typer.Option("-k", help="Largest number of demonstrations.", min=0)] = 4,
    until: Annotated[
        Literal["quality", "quality or bias"],
        typer.Option(help="Stop where the quality rises no more, or also before the bias rises."),
    ] = "quality",
    budget: Annotated[
        int | None, typer.Option(help="Requests to the model for training items, approximately.", min=1)
    ] = None,
    test_fraction: Annotated[float, typer.Option(help="Fraction of the items kept to compare before and after.")] = 0.5,
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
    """Compile a loop under external feedback: where it stops, and demonstrations from accepted refinements."""
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
        "compile refine", task, data, columns, lm, models, max_tokens, options, limit=limit, seed=seed, out=out
    ) as run:
        compile_loop(run, threads=threads, as_json=as_json, keep_worse=keep_worse)
