"""``evalbias compare``, ``drift`` and ``jury``: systems, changes between two files, and the worth of judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalbias.cli.audit import parse_conditions, refuse_unused, tell_build
from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.bias import Section
from evalbias.evaluation.changes import FAVOR, FEATURES, LABELS, PEOPLE, CompareReport, Parts, compare, drift
from evalbias.evaluation.juries import jury_worth, panel_of
from evalbias.evaluation.words import joined
from evalbias.optimizers.juries import learn_jury
from evalbias.options import CompareOptions, DriftOptions, GateOut, JuryOptions, MeasuringModels, Out
from evalbias.programs.files import save
from evalbias.report.builds import check_summary
from evalbias.runs import RESULT
from evalbias.values import file_digest


def drift_command(options: DriftOptions, out: GateOut) -> None:
    _split(drift, options, out, LABELS, options.before, options.after)


def compare_command(options: CompareOptions, out: GateOut) -> None:
    parts = (PEOPLE, FAVOR, *FEATURES, *options.features)
    _split(compare, options, out, parts, options.data, options.before, options.after, options.rated)


def _split(split: Callable[..., Parts], options: Any, out: GateOut, parts: Iterable[str], *sides: Any) -> None:
    """Split a change into parts, on which the conditions are."""
    conditions = parse_conditions(out.fail_on, [*parts])
    if out.summary is not None:
        check_summary(out.summary)
    report = split(**vars(options))
    if conditions and isinstance(report, CompareReport) and len(names := report.split.systems) > 2:
        raise ValueError(f"`fail_on` is on the difference of two systems, of {joined(names)}: name two, `systems`.")
    with Run(split.__name__, options, None, out, more=digests(*filter(None, sides))) as run:
        run.leave(RunOutcome.of(report, without=WHOLE))
    decided = [condition.decide_on(report.estimates.get(condition.bias)) for condition in conditions]
    tell_build(report.question, {"": [*report.paragraphs, *report.tables]}, decided, out)


WHOLE = ("split", "comparisons")  # parts of a result that ``--json`` leaves to the folder


def digests(*sides: Any) -> dict[str, Any]:
    """Return the names of files or run folders, and the digests of their content, which decides the numbers."""
    files = [Path(side) / RESULT if Path(side).is_dir() else Path(side) for side in sides]
    return {"data": [*map(str, sides)], "sides_sha256": [file_digest(f) if f.is_file() else None for f in files]}


def jury_command(options: JuryOptions, models: MeasuringModels, out: Out) -> None:
    refuse_unused(out.typed, "likelihood_lm")
    with Run("jury", options, models, out) as run:
        options = run.options
        with run.progress(0):
            judged = panel_of(options)
        worth = jury_worth(judged, costs=options.costs, reliability=options.reliability)
        learned = learn_jury(judged, costs=options.costs, reliability=options.reliability, seed=options.seed)
        file = run.folder.path / "jury.json"
        save(learned.rule, file)
        result = {**worth.to_dict(), "jury": {**asdict(learned), "answers": None}}
        printed = [*worth.paragraphs, worth.tables[0], f"{learned}\njury: {file}"]
        more = [Section("The jury", learned.sentences, learned.sentences[0])]
        run.leave(RunOutcome(result, result, printed, page=worth, more=more, verdict=worth.paragraphs[:1]))
