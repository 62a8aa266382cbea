"""Judges that score: measure their likelihood bias, compile it away, and repair what else is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from rich.console import Group

from evalbias import optimizers
from evalbias.cli.items import scored, scoring_judges
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.evaluation import judge_examples, measure, total
from evalbias.evaluation.answers import PreparedAudit, answers_of, criteria_of, language_of, prepared
from evalbias.evaluation.biases import Likelihood
from evalbias.lm.cache import CachedLM
from evalbias.optimizers.base import JudgeOptimizer, halves
from evalbias.optimizers.likelihood import LikelihoodOptimizer, draw_demos, rated_items, with_demos
from evalbias.optimizers.repairs import ForecastRepair, OrderRepair
from evalbias.optimizers.thresholds import ThresholdTuning
from evalbias.options import (
    AuditOptions,
    CompileOptions,
    ForecastOptions,
    LikelihoodBiasOptions,
    MeasuringModels,
    OrderOptions,
    Out,
    RepairOptions,
    ThresholdOptions,
)
from evalbias.programs import PairwiseJudge, PointwiseJudge
from evalbias.programs.judges import REDUCTIONS, asked_together
from evalbias.report.page import Section, scatter_section
from evalbias.report.tables import candidates_table, headlines_table, mitigation_table, threshold_table, words_note


def measure_likelihood_command(options: LikelihoodBiasOptions, models: MeasuringModels, out: Out) -> None:
    split = scored(options, criteria_of(options, options.criteria))
    with Run("measure likelihood", options, models, out, more=split.settings()) as run:
        judged, scorer = {}, CachedLM(run.likelihood_lm)
        with run.progress(len(split.test) * (1 + len(split.criteria))):
            judges = []
            for c in split.criteria:
                demos, _ = draw_demos(rated_items(split.train, c), options.k, seed=options.seed)
                judges.append(with_demos(PointwiseJudge(c, language=language_of(options)), demos, bins=split.bins))
            lm = asked_together(judges, split.test, run.options.lm)
            for judge in judges:
                judged[judge.criterion.name] = judge_examples(
                    judge, split.test, lm=lm, likelihood_lm=scorer, reduction=options.reduction
                )
        coverage = {name: one.coverage for name, one in judged.items()}
        if len(judged) > 1:
            judged["total"] = total(list(judged.values()))
        bias = Likelihood(options.reliability)
        measurements = {name: measure(bias, one, seed=options.seed) for name, one in judged.items()}
        more = [scatter_section({"": one}, run.folder.file("scatter", name, "").name) for name, one in judged.items()]
        effects = {name: bias.fit(one) for name, one in judged.items()}
        sentences = {name: bias.conclusion(m[bias.effect_name], judged[name]) for name, m in measurements.items()}
        lines = [f"{name}: {text}" for name, text in sentences.items()]
        brief = {
            "likelihood": {name: m.to_dict(items=False) for name, m in measurements.items()},
            "effects": effects,
            "sentences": sentences,
        }
        result = {"likelihood": measurements, "effects": effects}
        shown = [Group(headlines_table(measurements), *lines)]
        run.leave(RunOutcome(result, brief, shown, coverage, more=more))


def compile_likelihood_command(options: CompileOptions, models: MeasuringModels, out: Out) -> None:
    judges = scoring_judges(options, options.criteria, options.judge)
    split = scored(options, tuple(judge.criterion for judge in judges))
    with Run("compile likelihood", options, models, out, more=split.settings()) as run:
        _, outcome = compile_judges(run, run.options, split, judges, _optimizer(run.options, split))
        run.leave(outcome)


def _optimizer(options: CompileOptions, split: Split) -> LikelihoodOptimizer:
    shared: dict[str, Any] = {
        "likelihood_lm": options.likelihood_lm,
        "bins": split.bins,
        "reduction": options.reduction,
        "n_resamples": options.resamples,
        "seed": options.seed,
    }
    if options.bare:
        return optimizers.BiasedDemos(options.k, **shared, select=False)
    sizes = sorted({size for size in (2, options.k // 2, options.k) if 2 <= size <= options.k})
    return optimizers.LikelihoodMitigation(sizes, max_loss=options.max_loss, **shared)


def compile_judges(
    run: Run, options: CompileOptions, split: Split, judges: Sequence[PointwiseJudge], optimizer: LikelihoodOptimizer
) -> tuple[optimizers.CompiledCriteria, RunOutcome]:
    """Compile every judge; plots, and judges that are better, go into the run's folder."""
    items = {"trainset": list(split.train), "valset": list(split.test)}
    train, test = map(len, items.values())
    sets = 1 + len(optimizer.k) * len(REDUCTIONS) if isinstance(optimizer.k, tuple) else 2  # of demonstrations
    # About as many answers: each text's likelihood once, the training items, half of them with every set, the others.
    with run.progress(train + test + len(judges) * (train + sets * train // 2 + 3 * test)):
        compiled = optimizers.compile_each(optimizer, judges, **items, lm=options.lm)
    comparisons, reports = compiled.comparisons, compiled.reports
    written = {}
    for name, judge in compiled.judges.items():
        report, path = reports[name], run.folder.file("judge", name, ".json")
        written[name] = keep(judge, report, path, compared=report.comparison, keep_worse=options.keep_worse)
    plots = []
    for name in comparisons:
        sides = {"before": compiled.before[name], "after": compiled.after[name]}
        plots.append(scatter_section(sides, run.folder.file("scatter", name, "").name))
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


# Repairs of a judge that scores, and of decisions by it, that are shown.


def _halved(options: Any) -> tuple[PreparedAudit, Split]:
    """Load the judge and the items, half of the inputs on each side; refuse a judge that compares."""
    names = [f.name for f in fields(AuditOptions) if hasattr(options, f.name)]
    asked = AuditOptions(**{name: getattr(options, name) for name in names})
    ready = prepared(replace(asked, pass_mark=None))  # which is of a threshold, not of probabilities
    if isinstance(ready.judge, PairwiseJudge):
        raise ValueError(f"{options.judge} compares outputs: give a judge that scores.")
    train, test = halves(ready.questions, seed=options.seed)
    if not test:
        raise ValueError(f"{options.data} has one input: one half chooses, the other measures. Give two or more.")
    return ready, Split(ready.dataset, (ready.criterion,), test, train)


def _repair(command: str, optimizer: JudgeOptimizer, options: RepairOptions, models: MeasuringModels, out: Out) -> None:
    """Repair a judge by half of the inputs, and compare it with the given one on the others."""
    ready, split = _halved(options)
    with Run(command, options, models, out, more=split.settings()) as run:
        sides: dict[str, Any] = {"trainset": split.train, "valset": split.test}
        with run.progress(3 * len(ready.questions)):
            judge = optimizer.compile(ready.judge, **sides, lm=run.options.lm)
        report, path = judge.report, run.folder.path / "judge.json"
        written = keep(judge, report, path, compared=report.comparison, keep_worse=options.keep_worse)
        brief = {"decision": report.decision, **report.comparison, "written": written}
        tables = [candidates_table(report), *(one.table() for one in report.comparison.values())]
        shown = [report.decision, *tables, written]
        run.leave(RunOutcome({"report": report}, brief, shown, page=report, verdict=report.decision))


def compile_order_command(options: OrderOptions, models: MeasuringModels, out: Out) -> None:
    """Repair a judge whose scores depend on the order of levels, or on a negation."""
    _repair("compile order", OrderRepair(negation=options.negation, seed=options.seed), options, models, out)


def compile_forecasts_command(options: ForecastOptions, models: MeasuringModels, out: Out) -> None:
    """Recalibrate a judge's probabilities."""
    _repair("compile forecasts", ForecastRepair(pass_mark=options.pass_mark, seed=options.seed), options, models, out)


def compile_threshold_command(options: ThresholdOptions, models: MeasuringModels, out: Out) -> None:
    """Choose a threshold on half of the inputs, and measure it on the others; a judge that has it is saved."""
    asked = {name: getattr(options, name) for name in ("precision", "recall", "cost", "pass_mark", "seed")}
    tuning = ThresholdTuning(**asked)
    ready, split = _halved(options)
    with Run("compile threshold", options, models, out, more=split.settings()) as run:
        path, written = run.folder.path / "judge.json", "Recorded scores have no judge to save."
        if ready.judge is None:
            sides = [answers_of(replace(ready, questions=some)) for some in (split.train, split.test)]
            judge, report = None, tuning.of_scores(*sides)
        else:
            with run.progress(len(ready.questions)):
                judge = tuning.compile(ready.judge, trainset=split.train, valset=split.test, lm=run.options.lm)
            report, written = judge.report, "No judge was written."
        if judge is not None and not math.isnan(report.threshold):
            judge.save(str(path))
            written = f"{path.name} holds the judge with this threshold."
        table = threshold_table(report)
        brief = {"threshold": report.threshold, "decision": report.decision, "tested": report.tested}
        shown = [report.decision, table, written]
        more = [Section("On inputs that took no part", [table])]
        run.leave(RunOutcome({"report": report}, brief, shown, page=report, more=more, verdict=report.decision))
