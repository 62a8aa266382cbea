"""The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure the biases of LLM judges; compile them away."
)
measure_app = typer.Typer(no_args_is_help=True, help="Measure a bias of a judge.")
compile_app = typer.Typer(no_args_is_help=True, help="Compile a bias out of a judge.")
app.add_typer(measure_app, name="measure")
app.add_typer(compile_app, name="compile")

LM = Annotated[str, typer.Option("--lm", help="'embedded', a folder, a Hugging Face name, or hosted_vllm/NAME.")]
Data = Annotated[str, typer.Option(help="webnlg2020:PATH, tmu-gfm:PATH or items.jsonl.")]
Criteria = Annotated[
    list[str] | None, typer.Option("--criterion", help="A preset's name, or 'name: definition'. Repeatable.")
]
Scale = Annotated[str, typer.Option(help="Of criteria given as 'name: definition', such as 1-5.")]
LikelihoodLM = Annotated[str | None, typer.Option(help="Whose likelihood is meant; by default the judge's model.")]
ApiBase = Annotated[str | None, typer.Option(help="Address of the server that --lm names.")]
Device = Annotated[str, typer.Option(help="Of local models: auto, cpu, cuda or cuda:0.")]
Dtype = Annotated[str, typer.Option(help="Of local models: auto, float32, bfloat16 or float16.")]
Seed = Annotated[int, typer.Option(help="Of the split, the random demonstrations and the tests.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/, the same for the same run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
SplitBy = Annotated[
    Literal["instance", "input"], typer.Option(help="By input: no input stands on both sides of the split.")
]
Reduction = Annotated[Literal["sum", "mean"], typer.Option(help="Of the likelihood over tokens; the paper's is sum.")]
Normalization = Annotated[Literal["min-max", "mean-range"], typer.Option(help="Of scores in US.")]
Resamples = Annotated[int, typer.Option(help="Of the permutation test.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Use only so many items, drawn with the seed.", min=1)]
Candidates = Annotated[
    Path | None,
    typer.Option(
        help="File of ids, one a line: only these training items may become demonstrations.",
        exists=True,
        dir_okay=False,
    ),
]


@measure_app.command("likelihood")
def measure_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    api_base: ApiBase = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    k: K = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "min-max",
    limit: Limit = None,
) -> None:
    """Likelihood bias of a judge with k random demonstrations, on a fifth of human-rated items."""
    from evalbias.commands.run import Run
    from evalbias.commands.task import open_task
    from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.measurement import bias_interval, measure_likelihood_bias
    from evalbias.report.scatter import likelihood_scatter
    from evalbias.report.tables import measurement_table

    task = open_task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit, candidates=candidates)
    measured: dict[str, Any] = {"reduction": reduction, "normalization": normalization}
    run = Run(
        "measure likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models={"api_base": api_base, "device": device, "dtype": dtype},
        seed=seed,
        out=out,
        options={"k": k, **measured},
    )
    judges = []
    for c in task.criteria:
        demos, _ = draw_demos(rated_items(task.train, c), k, seed=seed)
        judges.append(with_demos(PointwiseJudge(c), demos, bins=task.bins))
    with run.progress(len(task.test) * (1 + len(judges))):
        found = measure_likelihood_bias(judges, task.test, lm=run.lm, likelihood_lm=run.likelihood_lm, **measured)
    results = found.result()
    intervals = {name: bias_interval(found, name, seed=seed) for name in results}
    for name in results:
        likelihood_scatter(found, None, name, run.folder.file("scatter", name, ".png"))
    result = {"likelihood": results, "intervals": intervals, "measurement": found}
    run.finish(result, {"likelihood": results}, as_json, measurement_table(results, intervals), found.coverage)


@compile_app.command("likelihood")
def compile_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    api_base: ApiBase = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    k: K = 8,
    candidates: Candidates = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "min-max",
    resamples: Resamples = 100_000,
    limit: Limit = None,
) -> None:
    """Compile RS demonstrations into a judge for every criterion; before and after on a fifth of the items."""
    from evalbias.commands.run import Run
    from evalbias.commands.task import open_task

    task = open_task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit, candidates=candidates)
    options = {"k": k, "reduction": reduction, "normalization": normalization, "resamples": resamples}
    run = Run(
        "compile likelihood",
        task,
        lm=lm,
        likelihood_lm=likelihood_lm,
        models={"api_base": api_base, "device": device, "dtype": dtype},
        seed=seed,
        out=out,
        options=options,
    )
    found = _compile(run, task, seed=seed, options=options)
    _finish(run, found, {name: _brief(c) for name, c in found.comparisons.items()}, as_json=as_json)


@app.command()
def demo(
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """The whole method on the embedded judge and its synthetic world: no network, no key, no GPU."""
    from evalbias.commands.run import Run
    from evalbias.commands.task import demo_task

    task = demo_task(seed)
    options = {"k": 8, "reduction": "sum", "normalization": "min-max", "resamples": 100_000}
    run = Run("demo", task, lm="embedded", seed=seed, out=out, options=options)
    found = _compile(run, task, seed=seed, options=options)
    (only,) = found.comparisons.values()
    _finish(run, found, _brief(only), as_json=as_json)


@app.command()
def judge(
    judge: Annotated[Path, typer.Option(help="A compiled judge's JSON file.", exists=True, dir_okay=False)],
    data: Data,
    lm: LM,
    api_base: ApiBase = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Score every item of a data set with a compiled judge; scores.jsonl in the run's folder, one line an item."""
    from evalbias.commands.run import Run
    from evalbias.commands.task import Task, load_items
    from evalbias.programs import load_judge
    from evalbias.report.run import plain

    program = load_judge(judge)
    items = load_items(data)
    task = Task(data, items.sha256, (program.criterion,), None, [], list(items), left_out=items.left_out)
    options = {"judge": hashlib.sha256(judge.read_bytes()).hexdigest()}
    models = {"api_base": api_base, "device": device, "dtype": dtype}
    run = Run("judge", task, lm=lm, models=models, out=out, options=options)
    with run.progress(len(items)):
        found = program.batch(items, lm=run.lm)
    rows = [
        {"id": e.get("id", i), "score": p.score, "mode": p.mode, "coverage": p.coverage, "distribution": p.distribution}
        for i, (e, p) in enumerate(zip(items, found, strict=True))
    ]
    file = run.folder.path / "scores.jsonl"
    file.write_text("".join(json.dumps(plain(r)) + "\n" for r in rows), encoding="utf-8")
    scores = [r["score"] for r in rows if r["score"] == r["score"]]
    brief = {
        "n": len(scores),
        "undefined": len(rows) - len(scores),
        "mean": sum(scores) / len(scores) if scores else None,
    }
    told = f"{brief['n']} items scored, {brief['undefined']} undefined: {file}"
    run.finish(brief, brief, as_json, told, {program.criterion.name: [r["coverage"] for r in rows]})


def _compile(run: Any, task: Any, *, seed: int, options: dict[str, Any]) -> Any:
    """Compile every criterion's judge; judges and plots go into the run's folder."""
    from evalbias.optimizers import BiasedDemos, compile_each, count_answers
    from evalbias.programs import PointwiseJudge
    from evalbias.report.scatter import likelihood_scatter

    optimizer = BiasedDemos(
        options["k"],
        likelihood_lm=run.likelihood_lm,
        bins=task.bins,
        reduction=options["reduction"],
        normalization=options["normalization"],
        n_resamples=options["resamples"],
        seed=seed,
    )
    judges, items = [PointwiseJudge(c) for c in task.criteria], {"trainset": task.train, "valset": task.test}
    with run.progress(count_answers(optimizer, task.criteria, **items)):
        found = compile_each(optimizer, judges, **items, lm=run.lm)
    for name, compiled in found.judges.items():
        compiled.save(str(run.folder.file("judge", name, ".json")))
    for name in found.comparisons:
        likelihood_scatter(found.before, found.after, name, run.folder.file("scatter", name, ".png"))
    return found


def _finish(run: Any, found: Any, brief: Any, *, as_json: bool) -> None:
    from evalbias.report.tables import comparison_table

    result = {"likelihood": found.comparisons, "reports": found.reports}
    run.finish(result, {"likelihood": brief}, as_json, comparison_table(found.comparisons), found.after.coverage)


def _brief(comparison: Any) -> dict[str, Any]:
    return {"before": comparison.before, "after": comparison.after, "p_value": comparison.bias_test.p_value}


def main() -> None:
    """Run a command; what a user can mend is told in one line."""
    try:
        app()
    except (ValueError, OSError, ImportError, NotImplementedError, FloatingPointError) as error:
        typer.echo(f"evalbias: {error}", err=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
