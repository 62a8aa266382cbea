"""``evalbias compile order``, ``forecasts`` and ``threshold``: repairs of a judge, and decisions, that are shown."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from evalbias.cli.items import audited_items
from evalbias.cli.run import Run, RunOutcome, Split, keep
from evalbias.evaluation.answers import PreparedAudit, answers_of
from evalbias.optimizers.base import JudgeOptimizer, halves
from evalbias.optimizers.repairs import ForecastRepair, OrderRepair
from evalbias.optimizers.thresholds import ThresholdTuning
from evalbias.options import ForecastOptions, MeasuringModels, OrderOptions, Out, RepairOptions, ThresholdOptions
from evalbias.programs import PairwiseJudge
from evalbias.report.page import Section
from evalbias.report.tables import candidates_table, threshold_table


def _halved(options: Any) -> tuple[PreparedAudit, Split]:
    """Load the judge and the items, half of the inputs on each side; refuse a judge that compares."""
    ready = audited_items(options, pass_mark=None)  # which is of a threshold, not of probabilities
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
    aims = {name: getattr(options, name) for name in ("precision", "recall", "cost", "pass_mark", "seed")}
    tuning = ThresholdTuning(**aims)
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
