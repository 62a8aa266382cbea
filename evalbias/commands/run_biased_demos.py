"""RS demonstrations as a command compiles them: every criterion's judge, its plots, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbias.commands.run import Run
from evalbias.commands.task import Task
from evalbias.evaluation.likelihood import LikelihoodComparison
from evalbias.optimizers import BiasedDemos, CompiledCriteria, compile_each, count_answers
from evalbias.programs import PointwiseJudge
from evalbias.report.scatter import likelihood_scatter


def compiled(run: Run, task: Task, *, seed: int, options: Mapping[str, Any]) -> CompiledCriteria:
    """Compile every criterion's judge; judges and plots go into the run's folder."""
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
    for name, judge in found.judges.items():
        judge.save(str(run.folder.file("judge", name, ".json")))
    for name in found.comparisons:
        likelihood_scatter(found.before, found.after, name, run.folder.file("scatter", name, ".png"))
    return found


def result_of(found: CompiledCriteria) -> dict[str, Any]:
    """For result.json."""
    return {"likelihood": found.comparisons, "reports": found.reports}


def brief(comparison: LikelihoodComparison) -> dict[str, Any]:
    """For ``--json``."""
    return {"before": comparison.before, "after": comparison.after, "p_value": comparison.bias_test.p_value}
