"""``evalbias compile threshold``: choose the score from which a judge lets an output pass."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from evalbias.cli.run import Run, RunOutcome, Split
from evalbias.evaluation.answers import answers_of, prepared
from evalbias.optimizers.base import halves
from evalbias.optimizers.thresholds import ThresholdTuning
from evalbias.options import AuditOptions, MeasuringModels, Out, ThresholdOptions
from evalbias.programs import PairwiseJudge
from evalbias.report.page import Section
from evalbias.report.tables import threshold_table


def compile_threshold_command(options: ThresholdOptions, models: MeasuringModels, out: Out) -> None:
    """Choose a threshold on half of the inputs, and measure it on the others; a judge that has it is saved."""
    asked = {name: getattr(options, name) for name in ("precision", "recall", "cost", "pass_mark", "seed")}
    tuning = ThresholdTuning(**asked)
    names = [f.name for f in fields(AuditOptions) if hasattr(options, f.name)]
    ready = prepared(AuditOptions(**{name: getattr(options, name) for name in names}))
    if isinstance(ready.judge, PairwiseJudge):
        raise ValueError(f"{options.judge} compares outputs: a threshold is one of scores.")
    train, test = halves(ready.questions, seed=options.seed)
    if not test:
        raise ValueError(f"{options.data} has one input: one half chooses, the other measures. Give two or more.")
    split = Split(ready.dataset, (ready.criterion,), test, train)
    with Run("compile threshold", options, models, out, more=split.settings()) as run:
        path, written = run.folder.path / "judge.json", "Recorded scores have no judge to save."
        if ready.judge is None:
            judge, report = (
                None,
                tuning.of_scores(*(answers_of(replace(ready, questions=some)) for some in (train, test))),
            )
        else:
            with run.progress(len(ready.questions)):
                judge = tuning.compile(ready.judge, trainset=train, valset=test, lm=run.options.lm)
            report, written = judge.report, "No judge was written."
        if judge is not None and not math.isnan(report.threshold):
            judge.save(str(path))
            written = f"{path.name} holds the judge with this threshold."
        table = threshold_table(report)
        brief = {"threshold": report.threshold, "decision": report.decision, "tested": report.tested}
        shown = [report.decision, table, written]
        more = [Section("On inputs that took no part", [table])]
        run.leave(RunOutcome({"report": report}, brief, shown, page=report, more=more, verdict=report.decision))
