"""The commands of self-bias: measure it on recorded loops or by paraphrases, run a loop, compile one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalbias.commands.options import LM, Json, Models, Out, Seed, opening_models

Loops = Annotated[
    list[Path],
    typer.Option(
        "--data", help="JSONL of recorded loops, or a run folder of evalbias refine. Repeatable.", exists=True
    ),
]
Task = Annotated[
    Literal["translation", "constrained-generation", "mathematics"], typer.Option(help="What is written and refined.")
]
Items = Annotated[Path, typer.Option("--data", help="JSONL with the fields of the task.", exists=True, dir_okay=False)]
MaxIterations = Annotated[int | None, typer.Option(help="Refinements of an item at most; by default 10.", min=0)]
MaxTokens = Annotated[int | None, typer.Option(help="Of every answer; by default what the task needs.", min=1)]
Threads = Annotated[int, typer.Option("--threads", help="Items at a time.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Run only the first so many items.", min=1)]
InstructScoreLM = Annotated[
    str | None, typer.Option("--instructscore", help="Model that lists errors by the reference: external feedback.")
]
InstructScorePrompt = Annotated[
    Path | None,
    typer.Option(help="Its request, with {reference} and {output}; see InstructScore.", exists=True, dir_okay=False),
]


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
    """Bias and distance skewness of loops' own scores, round by round, with intervals. No model is asked.

    Several loops (of several models, say) are set side by side.
    """
    from evalbias.commands.measure_recorded import measured_self

    measured_self(data, own=own, expected=expected, by=by, resamples=resamples, seed=seed, out=out, as_json=as_json)


@opening_models
def measure_style(
    task: Task,
    data: Items,
    lm: LM,
    max_tokens: MaxTokens = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Whether a model favors its own style: it paraphrases outside outputs (field 'output') and judges both."""
    from evalbias.commands.run_refine import Refining

    run = Refining("measure style", task, data, lm, models, max_tokens, limit=limit, seed=seed, out=out)
    run.style(threads=threads, as_json=as_json)


@opening_models
def refine(
    task: Task,
    data: Items,
    lm: LM,
    max_iterations: MaxIterations = None,
    max_tokens: MaxTokens = None,
    feedback: Annotated[
        Literal["own", "external"], typer.Option(help="The model's own, or the task's external source.")
    ] = "own",
    program: Annotated[
        Path | None,
        typer.Option(help="A compiled loop; it decides the refinements.", exists=True, dir_okay=False),
    ] = None,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    aspects: Annotated[
        bool, typer.Option("--aspects", help="Judge fluency and understandability of every output, by the same model.")
    ] = False,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run a refine loop on every item; outputs.jsonl and steps.jsonl in the run's folder. A stopped run goes on."""
    from evalbias.commands.run_refine import Refining

    run = Refining(
        "refine",
        task,
        data,
        lm,
        models,
        max_tokens,
        max_iterations=max_iterations,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        program=program,
        limit=limit,
        seed=seed,
        out=out,
        feedback=feedback,
        aspects=aspects,
    )
    run.refine(threads=threads, as_json=as_json)


@opening_models
def compile_refine(
    task: Task,
    data: Items,
    lm: LM,
    max_iterations: MaxIterations = None,
    max_tokens: MaxTokens = None,
    k: Annotated[int, typer.Option("-k", help="Demonstrations at most.", min=0)] = 4,
    until: Annotated[
        Literal["worth", "worth or bias"], typer.Option(help="Stop where the worth rises no more, or the bias rises.")
    ] = "worth",
    budget: Annotated[int | None, typer.Option(help="Requests to the model for training items, about.", min=1)] = None,
    test_fraction: Annotated[float, typer.Option(help="Of the items, kept for before and after.")] = 0.5,
    instructscore: InstructScoreLM = None,
    instructscore_prompt: InstructScorePrompt = None,
    threads: Threads = 1,
    limit: Limit = None,
    *,
    models: Models,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compile a loop under external feedback: where it should stop, and what it learns from accepted refinements."""
    from evalbias.commands.run_refine import Refining

    run = Refining(
        "compile refine",
        task,
        data,
        lm,
        models,
        max_tokens,
        max_iterations=max_iterations,
        instructscore=instructscore,
        prompt=instructscore_prompt,
        limit=limit,
        seed=seed,
        out=out,
        k=k,
        until=until,
        budget=budget,
        test_fraction=test_fraction,
    )
    run.compile(threads=threads, as_json=as_json)
