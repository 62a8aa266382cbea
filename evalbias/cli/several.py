"""``evalbias drift``, ``gain`` and ``jury``: what changed between two files, and what several judges are worth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalbias.cli.audit import parse_conditions, tell_build
from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.changes import FEATURES, LABELS, drift, gain
from evalbias.evaluation.juries import jury_worth, panel_of
from evalbias.measures.corrections import GAIN, PEOPLE, REST
from evalbias.measures.equal_quality import QUALITY
from evalbias.optimizers.juries import learn_jury
from evalbias.options import DriftOptions, GainOptions, GateOut, JuryOptions, MeasuringModels, Out
from evalbias.programs.files import save
from evalbias.report.builds import check_summary
from evalbias.report.page import Section
from evalbias.runs import RESULT
from evalbias.values import file_digest


def drift_command(options: DriftOptions, out: GateOut) -> None:
    conditions, more = parse_conditions(out.fail_on, [*LABELS]), digests(options.before, options.after)
    if out.summary is not None:
        check_summary(out.summary)
    split = drift(**vars(options))
    tables = split.table(), split.map_table()
    with Run("drift", options, None, out, more=more) as run:
        content = split.to_dict()
        brief = {name: content[name] for name in ("paragraphs", "estimates", "margin", "enough")}
        shown = ["\n".join(split.paragraphs), *tables]
        run.leave(RunOutcome(content, brief, shown, page=split, verdict=split.paragraphs[:1]))
    decided = [one.decide_on(split.estimates.get(one.bias)) for one in conditions]
    tell_build("Did the system improve, or did the judge change?", {"": [*split.paragraphs, *tables]}, decided, out)


def gain_command(options: GainOptions, out: GateOut) -> None:
    names = [GAIN, REST, PEOPLE, QUALITY, *FEATURES, *options.features]
    conditions, sides = parse_conditions(out.fail_on, names), (options.before, options.after, options.rated)
    if out.summary is not None:
        check_summary(out.summary)
    parts = gain(**vars(options))
    table = parts.table()
    with Run("gain", options, None, out, more=digests(*filter(None, sides))) as run:
        content = parts.to_dict()
        shown = ["\n".join(parts.paragraphs), table]
        run.leave(RunOutcome(content, content, shown, page=parts, verdict=parts.paragraphs[:1]))
    decided = [one.decide_on(parts.estimates.get(one.bias)) for one in conditions]
    tell_build("What was gained by a judge's scores", {"": [*parts.paragraphs, table]}, decided, out)


def digests(*sides: Any) -> dict[str, Any]:
    """Return what decides the numbers of two files or run folders: their content, and not their names."""
    files = [Path(one) / RESULT if Path(one).is_dir() else Path(one) for one in sides]
    return {"data": [*map(str, sides)], "sides_sha256": [file_digest(one) if one.is_file() else None for one in files]}


def jury_command(options: JuryOptions, models: MeasuringModels, out: Out) -> None:
    with Run("jury", options, models, out) as run:
        given = run.options
        with run.progress(0):
            judged = panel_of(given)
        how: dict[str, Any] = {"costs": given.costs, "reliability": given.reliability}
        worth, learned = jury_worth(judged, families=given.families, **how), learn_jury(judged, seed=given.seed, **how)
        members, sets, errors = worth.tables()
        file = run.folder.path / "jury.json"
        save(learned.rule, file)
        result = {**worth.to_dict(), "jury": {**asdict(learned), "answers": None}}
        first, *others = worth.paragraphs
        sections = [
            Section("Is a jury worth it?", [*others, members, worth.plot()], first),
            Section("The best judges at each cost", [sets]),
            Section("The jury", [*learned.sentences], learned.sentences[0]),
            Section("What the errors share", [errors]),
        ]
        if worth.writers:
            sections.append(Section("What each writer gets from each judge", [worth.writers_table()]))
        shown = ["\n".join(worth.paragraphs), members, sets, f"{learned}\njury: {file}"]
        run.leave(RunOutcome(result, result, shown, more=sections, verdict=[first]))
