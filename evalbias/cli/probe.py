"""``evalbias probe``: emit texts with a single change, read a judge's answers to them, or ask the judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import typer

from evalbias.cli.audit import refuse_unused
from evalbias.cli.items import audit_settings, audited_items
from evalbias.cli.run import Run, RunOutcome
from evalbias.cli.terminal import say
from evalbias.data.items import DataError
from evalbias.data.probes import named_kinds, with_edits
from evalbias.evaluation.answers import answers_of, tell_left_out
from evalbias.evaluation.probes import probe_answers, read_probes
from evalbias.evaluation.words import count
from evalbias.options import MeasuringModels, Out, ProbeEmitOptions, ProbeReadOptions, ProbeRunOptions
from evalbias.programs import PairwiseJudge
from evalbias.programs.judges import read_for
from evalbias.runs import write_jsonl
from evalbias.values import message

EVERY = ("all",)  # kinds, where none is named


def probe_emit_command(options: ProbeEmitOptions) -> None:
    if options.out.suffix != ".jsonl":
        raise DataError(f"{options.out}: name a .jsonl file as `out`.")
    if options.out.exists():
        raise DataError(f"{options.out} exists, maybe with scores: name another `out`, or delete it.")
    items = read_for(None, options)
    tell_left_out(items, say)
    rows = with_edits(items, options.kinds or EVERY, seed=options.seed, scale=options.scale)
    pairs = "candidates" in rows[0]
    write_jsonl(options.out, [{("outputs" if k == "candidates" else k): v for k, v in row.items()} for row in rows])
    field = "--winner-field CHOICE --swapped-field SWAPPED" if pairs else "--scores-field SCORE"
    typer.echo(
        message(
            f"{options.out}: {count(len(rows), 'row')} of {count(len(items), 'item')}. Let your judge answer each row, "
            f"in a field of its own, then: evalbias probe read --data {options.out} {field}"
        )
    )


def probe_read_command(options: ProbeReadOptions, out: Out) -> None:
    refuse_unused(out.typed - {"seed"})
    if options.scores_field is None and options.winner_field is None:
        raise ValueError("Name the field of your judge's scores (`scores_field`), or of its choices (`winner_field`).")
    ready = audited_items(options)
    with Run("probe read", options, None, out, more=audit_settings(ready)) as run:
        report = read_probes(answers_of(ready), seed=options.seed)
        run.leave(RunOutcome.of(report))


def probe_run_command(options: ProbeRunOptions, models: MeasuringModels, out: Out) -> None:
    named, ready = named_kinds(options.kinds or EVERY), audited_items(options)
    if options.limit is not None and options.limit < len(ready.questions):
        drawn = np.random.default_rng(options.seed).permutation(len(ready.questions))[: options.limit]
        ready = replace(ready, questions=[ready.questions[place] for place in sorted(drawn)])
    with Run("probe run", options, models, out, more=audit_settings(ready)) as run:
        orders = 2 if isinstance(ready.judge, PairwiseJudge) else 1
        with run.progress(orders * len(ready.questions) * (1 + 2 * len(named))):
            report = probe_answers(replace(ready, lm=run.options.lm), options.kinds or EVERY)
        run.leave(RunOutcome.of(report))
