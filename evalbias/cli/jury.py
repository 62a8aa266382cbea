"""``evalbias jury``: what several recorded judges are worth together, and the best of them as one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.juries import jury_worth, panel_of
from evalbias.optimizers.juries import learn_jury
from evalbias.options import JuryOptions, MeasuringModels, Out
from evalbias.programs.files import save
from evalbias.report.page import Section


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
