"""The commands. Results go to stdout, progress to stderr; every command that costs time leaves a run folder."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

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
Seed = Annotated[int, typer.Option(help="Of the split, the random demonstrations and the tests.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/, the same for the same run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on stdout.")]
K = Annotated[int, typer.Option("-k", help="Number of demonstrations.", min=1)]
SplitBy = Annotated[str, typer.Option(help="'instance', or 'input': no input on both sides of the split.")]
Reduction = Annotated[str, typer.Option(help="Of the likelihood over tokens: 'sum' (the paper) or 'mean'.")]
Normalization = Annotated[str, typer.Option(help="Of scores in US: 'min-max' or 'mean-range'.")]
Resamples = Annotated[int, typer.Option(help="Of the permutation test.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Use only so many items, drawn with the seed.", min=1)]


@measure_app.command("likelihood")
def measure_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    api_base: ApiBase = None,
    k: K = 8,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    split_by: SplitBy = "instance",
    reduction: Reduction = "sum",
    normalization: Normalization = "min-max",
    limit: Limit = None,
) -> None:
    """Likelihood bias of a judge with k random demonstrations, on a fifth of human-rated items."""
    from evalbias.measures import bootstrap_ci, spearman_rows, unfairness_scores
    from evalbias.optimizers.demos import draw_demos, rated_items, with_demos
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.measurement import measure_likelihood_bias
    from evalbias.report.scatter import likelihood_scatter
    from evalbias.report.tables import measurement_table

    task = _task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit)
    options: dict[str, Any] = {"k": k, "reduction": reduction, "normalization": normalization}
    run = _start("measure likelihood", task, lm, likelihood_lm, api_base, seed, out, options)
    judges = []
    for c in task.criteria:
        demos, _ = draw_demos(rated_items(task.train, c), k, seed=seed)
        judges.append(with_demos(PointwiseJudge(c), demos, bins=task.bins))
    with run.progress(len(task.test) * (1 + len(judges))):
        found = measure_likelihood_bias(
            judges,
            task.test,
            lm=run.lm,
            likelihood_lm=run.likelihood_lm,
            reduction=reduction,
            normalization=normalization,
        )
    results = found.result()
    intervals = {}
    for name in results:
        likelihoods, model, human = found.arrays(name)
        unfairness = unfairness_scores(model, human, normalization=normalization)
        intervals[name] = bootstrap_ci(spearman_rows, likelihoods, unfairness, seed=seed)
        likelihood_scatter(found, None, name, run.folder.path / f"scatter-{name}.png")
    result = {"likelihood": results, "intervals": intervals, "measurement": found}
    run.finish(result, {"likelihood": results}, as_json, measurement_table(results, intervals))


@compile_app.command("likelihood")
def compile_likelihood(
    lm: LM,
    data: Data,
    criterion: Criteria = None,
    scale: Scale = "1-5",
    likelihood_lm: LikelihoodLM = None,
    api_base: ApiBase = None,
    k: K = 8,
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
    from evalbias.report.tables import comparison_table

    task = _task(data, criterion, scale, seed=seed, split_by=split_by, limit=limit)
    options: dict[str, Any] = {"k": k, "reduction": reduction, "normalization": normalization, "resamples": resamples}
    run = _start("compile likelihood", task, lm, likelihood_lm, api_base, seed, out, options)
    with run.progress(len(task.criteria) * (2 * (len(task.train) - k) + 4 * len(task.test))):
        comparisons, reports = _compile(run, task, seed=seed, **options)
    brief = {
        name: {"before": c.before, "after": c.after, "p_value": c.bias_test.p_value} for name, c in comparisons.items()
    }
    result = {"likelihood": comparisons, "reports": reports}
    run.finish(result, {"likelihood": brief}, as_json, comparison_table(comparisons))


@app.command()
def demo(
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """The whole method on the embedded judge and its synthetic world: no network, no key, no GPU."""
    from evalbias.report.tables import comparison_table

    task = _demo_task(seed)
    options: dict[str, Any] = {"k": 8, "reduction": "sum", "normalization": "min-max", "resamples": 100_000}
    run = _start("demo", task, "embedded", None, None, seed, out, options)
    with run.progress(2 * (len(task.train) - 8) + 4 * len(task.test)):
        comparisons, reports = _compile(run, task, seed=seed, **options)
    (found,) = comparisons.values()
    brief = {"before": found.before, "after": found.after, "p_value": found.bias_test.p_value}
    result = {"likelihood": comparisons, "reports": reports}
    run.finish(result, {"likelihood": brief}, as_json, comparison_table(comparisons))


@app.command()
def judge(
    judge: Annotated[Path, typer.Option(help="A compiled judge's JSON file.", exists=True, dir_okay=False)],
    data: Data,
    lm: LM,
    api_base: ApiBase = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Score every item of a data set with a compiled judge; scores.jsonl in the run's folder, one line an item."""
    from evalbias.programs import load_judge
    from evalbias.report.run import plain

    program = load_judge(judge)
    items, sha256 = _load(data)
    task = _Task(data, sha256, (program.criterion,), None, [], items)
    options = {"judge": hashlib.sha256(judge.read_bytes()).hexdigest()}
    run = _start("judge", task, lm, None, api_base, 0, out, options)
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
    run.finish(brief, brief, as_json, f"{brief['n']} items scored, {brief['undefined']} undefined: {file}")


@dataclass(frozen=True)
class _Task:
    """What is judged: items on two sides of a split, criteria, and how human scores become labels."""

    spec: str
    sha256: str
    criteria: tuple[Any, ...]
    bins: Sequence[float] | None
    train: list[Any]
    test: list[Any]


@dataclass
class _Run:
    """An open run: its folder, its models behind the journal, its way to report."""

    folder: Any
    lm: Any
    likelihood_lm: Any
    bar: Any = None

    @contextmanager
    def progress(self, total: int) -> Iterator[None]:
        """A bar on stderr with rate and time left."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        with Progress("judging", *columns, console=Console(stderr=True)) as bar:
            self.bar = (bar, bar.add_task("", total=total, rate=""))
            yield
        self.bar = None

    def advance(self, count: int) -> None:
        """Move the bar by so many answers."""
        if self.bar is not None:
            bar, row = self.bar
            speed = bar.tasks[0].speed
            bar.update(row, advance=count, rate=f"{speed:.0f}/s" if speed else "")

    def finish(self, result: dict[str, Any], brief: dict[str, Any], as_json: bool, shown: Any) -> None:
        """Write result.json; print the brief result as JSON, or what is to be shown."""
        from rich.console import Console

        from evalbias.report.run import plain

        self.folder.write_result(result)
        if as_json:
            sys.stdout.write(json.dumps(plain(brief)) + "\n")
            return
        console = Console()
        console.print(shown)
        console.print(f"answers asked {self.lm.asked + self.likelihood_asked}, replayed {self.replayed}", style="dim")
        console.print(f"run folder: {self.folder.path}", soft_wrap=True)

    @property
    def likelihood_asked(self) -> int:
        """Answers of a likelihood model of its own."""
        return 0 if self.likelihood_lm is self.lm else int(self.likelihood_lm.asked)

    @property
    def replayed(self) -> int:
        """Answers that the journal had."""
        return int(self.lm.replayed + (0 if self.likelihood_lm is self.lm else self.likelihood_lm.replayed))


def _start(
    command: str,
    task: _Task,
    lm: str,
    likelihood_lm: str | None,
    api_base: str | None,
    seed: int,
    out: Path | None,
    options: dict[str, Any],
) -> _Run:
    from evalbias.lm.journal import JournaledLM
    from evalbias.models import open_measuring
    from evalbias.report.run import RunFolder

    model, told = open_measuring(lm, api_base=api_base)
    other, other_told = (model, told) if likelihood_lm is None else open_measuring(likelihood_lm)
    settings = {
        "command": command,
        "data": task.spec,
        "data_sha256": task.sha256,
        "criteria": [{"name": c.name, "definition": c.definition, "scale": c.scale} for c in task.criteria],
        "items": {"train": len(task.train), "test": len(task.test)},
        "lm": told,
        "likelihood_lm": other_told,
        "seed": seed,
        **options,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    folder = RunFolder(out or Path("runs") / f"{command.replace(' ', '-')}-{digest}", settings)
    run = _Run(folder, None, None)
    key = json.dumps(told, sort_keys=True)
    run.lm = JournaledLM(model, folder.journal, model=key, progress=run.advance)
    run.likelihood_lm = run.lm
    if likelihood_lm is not None:
        file = folder.path / "likelihoods.jsonl"
        run.likelihood_lm = JournaledLM(other, file, model=json.dumps(other_told, sort_keys=True), progress=run.advance)
    return run


def _compile(run: _Run, task: _Task, *, k: int, seed: int, resamples: int, **options: str) -> tuple[Any, Any]:
    """Comparisons by criterion (and total) and the compilers' reports; judges and plots go into the folder."""
    from evalbias.optimizers import BiasedDemos
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.measurement import TOTAL, combine, compare_likelihood_bias
    from evalbias.report.scatter import likelihood_scatter

    reports = {}
    comparisons = {}
    for criterion in task.criteria:
        optimizer = BiasedDemos(
            k,
            likelihood_lm=run.likelihood_lm,
            bins=task.bins,
            reduction=options["reduction"],
            normalization=options["normalization"],
            n_resamples=resamples,
            seed=seed,
        )
        compiled = optimizer.compile(PointwiseJudge(criterion), trainset=task.train, valset=task.test, lm=run.lm)
        compiled.save(str(run.folder.path / f"judge-{criterion.name}.json"))
        reports[criterion.name] = compiled.report
        comparisons[criterion.name] = compiled.report.comparison
    before, after = (combine([getattr(r, side) for r in reports.values()]) for side in ("before", "after"))
    if len(reports) > 1:
        comparisons[TOTAL] = compare_likelihood_bias(before, after, n_resamples=resamples, seed=seed)[TOTAL]
    for name in comparisons:
        likelihood_scatter(before, after, name, run.folder.path / f"scatter-{name}.png")
    return comparisons, reports


def _load(spec: str) -> tuple[list[Any], str]:
    """The items of a data set, and its hash; what was left out is said on stderr."""
    from evalbias import data

    found = data.load_spec(spec)
    if found.left_out:
        typer.echo(found.summary(), err=True)
    return list(found), found.sha256


def _task(spec: str, names: list[str] | None, scale: str, *, seed: int, split_by: str, limit: int | None) -> _Task:
    import random

    from evalbias import data
    from evalbias.programs.criteria import BINS

    items, sha256 = _load(spec)
    if limit is not None and limit < len(items):
        items = random.Random(seed).sample(items, limit)
    dataset = data.parse_spec(spec)[0]
    train, test = data.split(items, seed=seed, by=split_by)
    return _Task(spec, sha256, _criteria(dataset, names, scale), BINS.get(dataset), train, test)


def _criteria(dataset: str, names: list[str] | None, scale: str) -> tuple[Any, ...]:
    """The data set's own criteria by name, or new ones by definition."""
    from evalbias.programs.criteria import PRESETS
    from evalbias.programs.criterion import Criterion

    presets = {c.name: c for c in PRESETS.get(dataset, ())}
    if not names:
        if not presets:
            raise typer.BadParameter("items.jsonl has no criteria of its own: give --criterion 'name: definition'.")
        return tuple(presets.values())
    low, _, high = scale.partition("-")
    if not (low.isdigit() and high.isdigit()):
        raise typer.BadParameter(f"--scale {scale}: write it as 1-5.")
    return tuple(presets.get(n) or Criterion.parse(n, scale=(int(low), int(high))) for n in names)


def _demo_task(seed: int) -> _Task:
    from evalbias.data import world
    from evalbias.programs.criteria import SYNTHETIC

    train, test = world.examples(400, seed=2 * seed + 1_000_001), world.examples(300, seed=2 * seed + 1_000_002)
    return _Task("synthetic world", "generated", (SYNTHETIC,), None, train, test)


def main() -> None:
    """Run a command; what a user can mend is told in one line."""
    try:
        app()
    except (ValueError, FileNotFoundError, ImportError, NotImplementedError, TypeError) as error:
        typer.echo(f"evalbias: {error}", err=True)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
