"""Compile the likelihood bias away for a command: compile each judge, leave plots and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from evalbias.cli.items import Task
from evalbias.cli.run import Run, keep
from evalbias.optimizers import BiasedDemosReport, CompiledCriteria, MitigationReport, compile_each, count_answers
from evalbias.optimizers.likelihood import LikelihoodOptimizer
from evalbias.programs import PointwiseJudge
from evalbias.report.plots import likelihood_scatter
from evalbias.report.tables import comparison_table, mitigation_table, words_note


def run_mitigation(
    run: Run,
    task: Task,
    judges: Sequence[PointwiseJudge],
    optimizer: LikelihoodOptimizer,
    *,
    keep_worse: bool = False,
) -> tuple[CompiledCriteria, dict[str, str]]:
    """Compile every judge; plots, and judges that are better, go into the run's folder.

    Returns:
        The judges, and criterion -> sentence that says whether its judge was written.
    """
    items = {"trainset": task.train, "valset": task.test}
    with run.progress(count_answers(optimizer, task.criteria, **items)):
        compiled = compile_each(optimizer, judges, **items, lm=run.lm)
    kept = {}
    for name, judge in compiled.judges.items():
        report, path = compiled.reports[name], run.folder.file("judge", name, ".json")
        kept[name] = keep(judge, report, path, compared=report.comparison, keep_worse=keep_worse)
    for name in compiled.comparisons:
        path = run.folder.file("scatter", name, ".png")
        likelihood_scatter(compiled.before[name], compiled.after[name], path)
    return compiled, kept


def shown(compiled: CompiledCriteria, kept: Mapping[str, str], *, seed: int) -> Group:
    """Return what a command prints: the judges side by side, and what was chosen and why."""
    reports = compiled.reports
    mitigated = {name: r for name, r in reports.items() if isinstance(r, MitigationReport)}
    demonstrated = {name: r for name, r in reports.items() if isinstance(r, BiasedDemosReport)}
    parts: list[Any] = []
    if mitigated:
        parts.append(mitigation_table(mitigated, seed=seed))
    if demonstrated or len(reports) > 1:
        parts.append(comparison_table(compiled.comparisons))
    if demonstrated:
        parts.append(words_note(demonstrated))
    for name, report in reports.items():
        remarks = [report.decision, getattr(report, "against_baselines", ""), kept[name]]
        parts.append(f"{name}: {' '.join(filter(None, remarks))}")
    return Group(*parts)


def result_of(compiled: CompiledCriteria) -> dict[str, Any]:
    """Return the content of result.json."""
    return {"likelihood": compiled.comparisons, "reports": compiled.reports}


def found_in(compiled: CompiledCriteria) -> dict[str, Any]:
    """Return what the report shows: the reports, which hold their criterion's comparison, and the total's."""
    return {**compiled.comparisons, **compiled.reports}


def brief_of(compiled: CompiledCriteria, kept: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of ``--json``."""
    decisions = {name: report.decision for name, report in compiled.reports.items()}
    return {"likelihood": compiled.comparisons, "decisions": decisions, "written": kept}


def coverage_of(compiled: CompiledCriteria) -> dict[str, Any]:
    """Return the compiled judges' coverage by criterion."""
    return {name: compiled.after[name].coverage for name in compiled.judges}
