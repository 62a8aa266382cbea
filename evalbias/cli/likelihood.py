"""Compile the likelihood bias of judges that score away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from evalbias.cli.items import scored, scoring_judges
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.evaluation.judged import Judged
from evalbias.optimizers import likelihood as optimizers
from evalbias.optimizers.likelihood import LikelihoodOptimizer
from evalbias.optimizers.objectives import ProbeObjective, probe_of
from evalbias.options import CompileOptions, MeasuringModels, Out
from evalbias.programs import PointwiseJudge
from evalbias.programs.judges import REDUCTIONS
from evalbias.report.page import Section
from evalbias.report.plots import scatter
from evalbias.report.tables import headlines_table, mitigation_table, words_note


def _unfairness(criterion: str, sides: Mapping[str, Judged]) -> Section:
    return Section(f"Likelihood and unfairness: {criterion}", [scatter(sides)])


def compile_likelihood_command(options: CompileOptions, models: MeasuringModels, out: Out) -> None:
    against = None if options.objective is None else probe_of(options.objective, seed=options.seed)
    judges = scoring_judges(options, options.criteria, options.judge)
    split = scored(options, tuple(judge.criterion for judge in judges))
    with Run("compile likelihood", options, models, out, more=split.settings()) as run:
        _, outcome = compile_judges(run, run.options, split, judges, _optimizer(run.options, against))
        run.leave(outcome)


def _optimizer(options: CompileOptions, against: ProbeObjective | None) -> LikelihoodOptimizer:
    shared: dict[str, Any] = {
        "likelihood_lm": options.likelihood_lm,
        "reduction": options.reduction,
        "n_resamples": options.resamples,
        "seed": options.seed,
    }
    if options.bare or against is not None:
        return optimizers.BiasedDemos(options.k, objective=against, **shared, select=not options.bare)
    sizes = sorted({size for size in (2, options.k // 2, options.k) if 2 <= size <= options.k})
    return optimizers.LikelihoodMitigation(sizes, max_loss=options.max_loss, **shared)


def compile_judges(
    run: Run, options: CompileOptions, split: Split, judges: Sequence[PointwiseJudge], optimizer: LikelihoodOptimizer
) -> tuple[optimizers.CompiledCriteria, RunOutcome]:
    """Compile every judge; plots, and judges that are better, go into the run's folder."""
    items = {"trainset": list(split.train), "valset": list(split.test)}
    train, test = map(len, items.values())
    sets = 1 + len(optimizer.k) * len(REDUCTIONS) if isinstance(optimizer.k, tuple) else 2  # of demonstrations
    if against := getattr(optimizer, "objective", None):
        sets = 3 * (1 + 2 * len(against.kinds))  # each item as it is, with each edit and with each placebo
    # About as many answers: each text's likelihood once, the training items, half of them with every set, the others.
    with run.progress(train + test + len(judges) * (train + sets * train // 2 + 3 * test)):
        compiled = optimizers.compile_each(optimizer, judges, **items, lm=options.lm)
    comparisons, reports = compiled.comparisons, compiled.reports
    written = {}
    for name, judge in compiled.judges.items():
        report, path = reports[name], run.folder.file("judge", name, ".json")
        written[name] = keep(judge, report, path, compared=report.comparison, keep_worse=options.keep_worse)
    sides = {name: {"before": compiled.before[name], "after": compiled.after[name]} for name in comparisons}
    plots = [_unfairness(name, both) for name, both in sides.items()]
    # The judges side by side, then what was chosen and why.
    mitigated = {name: r for name, r in reports.items() if isinstance(r, optimizers.MitigationReport)}
    demonstrated = {name: r for name, r in reports.items() if isinstance(r, optimizers.BiasedDemosReport)}
    shown: list[Any] = [mitigation_table(mitigated, seed=options.seed)] if mitigated else []
    if demonstrated or len(reports) > 1:
        shown.append(headlines_table(comparisons))
    if demonstrated:
        shown.append(words_note(demonstrated))
    for name, report in reports.items():
        remarks = [report.decision, getattr(report, "against_baselines", ""), written[name]]
        shown.append(f"{name}: {' '.join(filter(None, remarks))}")
    decisions = {name: report.decision for name, report in reports.items()}
    result = {"likelihood": comparisons, "reports": reports}
    brief = {"likelihood": comparisons, "decisions": decisions, "written": written}
    covered = {name: compiled.after[name].coverage for name in compiled.judges}
    page = {**comparisons, **reports}  # a report holds its criterion's comparison; the total has none
    return compiled, RunOutcome(result, brief, [Group(*shown)], covered, page=page, more=plots)
