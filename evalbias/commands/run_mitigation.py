"""Compile RS demonstrations for a command: every criterion's judge, its plots, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalbias.commands.run import Run
from evalbias.commands.task import Task
from evalbias.optimizers import BiasedDemos, CompiledCriteria, compile_each, count_answers
from evalbias.programs import PointwiseJudge
from evalbias.report.scatter import likelihood_scatter


@dataclass(frozen=True)
class BiasedDemosOptions:
    """Options of ``evalbias compile likelihood`` that decide its numbers; see ``BiasedDemos``."""

    k: int = 8
    reduction: str = "sum"
    normalization: str = "mean-range"
    resamples: int = 100_000


def run_biased_demos(run: Run, task: Task, options: BiasedDemosOptions, *, seed: int) -> CompiledCriteria:
    """Compile every criterion's judge; judges and plots go into the run's folder."""
    optimizer = BiasedDemos(
        options.k,
        likelihood_lm=run.likelihood_lm,
        bins=task.bins,
        reduction=options.reduction,
        normalization=options.normalization,
        n_resamples=options.resamples,
        seed=seed,
    )
    judges, items = [PointwiseJudge(c) for c in task.criteria], {"trainset": task.train, "valset": task.test}
    with run.progress(count_answers(optimizer, task.criteria, **items)):
        compiled = compile_each(optimizer, judges, **items, lm=run.lm)
    for name, judge in compiled.judges.items():
        judge.save(str(run.folder.file("judge", name, ".json")))
    for name in compiled.comparisons:
        path = run.folder.file("scatter", name, ".png")
        likelihood_scatter(compiled.before[name], compiled.after[name], path)
    return compiled


def result_of(compiled: CompiledCriteria) -> dict[str, Any]:
    """Return the content of result.json."""
    return {"likelihood": compiled.comparisons, "reports": compiled.reports}


def coverage_of(compiled: CompiledCriteria) -> dict[str, Any]:
    """Return the compiled judges' coverage by criterion."""
    return {name: compiled.after[name].coverage for name in compiled.judges}
