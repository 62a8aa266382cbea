"""``evalbias jury``: what several recorded judges are worth together."""

from __future__ import annotations

from contextlib import nullcontext

from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.juries import jury_worth, panel_of
from evalbias.options import JuryOptions, MeasuringModels, Out
from evalbias.report.page import Section


def jury_command(options: JuryOptions, models: MeasuringModels, out: Out) -> None:
    with Run("jury", options, models, out) as run:
        asked = run.options
        with run.progress(0) if asked.likelihood_lm is not None else nullcontext():
            judged = panel_of(asked)
        how = {"costs": asked.costs, "families": asked.families, "reliability": asked.reliability, "seed": asked.seed}
        worth = jury_worth(judged, **how)
        result, members, sets, errors = worth.to_dict(), *worth.tables()
        first, *others = worth.paragraphs
        sections = [
            Section("Is a jury worth it?", [*others, members, worth.plot()], first),
            Section("The best judges at each cost", [sets]),
            Section("What the errors share", [errors]),
        ]
        run.leave(
            RunOutcome(result, result, ["\n".join(worth.paragraphs), members, sets], more=sections, verdict=first)
        )
