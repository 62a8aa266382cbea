"""``evalbias compile threshold``: a threshold that is shown to reach what is asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from evalbias.cli.items import audited_items
from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.evaluation.answers import PreparedAudit, answers_of
from evalbias.optimizers.base import halves
from evalbias.optimizers.thresholds import ThresholdTuning
from evalbias.options import MeasuringModels, Out, ThresholdOptions
from evalbias.programs import PairwiseJudge
from evalbias.report.page import Section
from evalbias.report.tables import threshold_table


def _halved(options: Any) -> tuple[PreparedAudit, Split]:
    """Load the judge and the items, half of the inputs on each side; refuse a judge that compares."""
    ready = audited_items(options, pass_mark=None)  # which is of a threshold
    if isinstance(ready.judge, PairwiseJudge):
        raise ValueError(f"{options.judge} compares outputs: give a judge that scores.")
    train, test = halves(ready.questions, seed=options.seed)
    if not test:
        raise ValueError(f"{options.data} has one input: one half chooses, the other measures. Give two or more.")
    return ready, Split(ready.dataset, (ready.criterion,), test, train)


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
