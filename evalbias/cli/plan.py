"""``evalbias plan``: how small a difference between systems a judge can show."""

from __future__ import annotations

from evalbias.cli.changes import digests
from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.rankings import plan
from evalbias.options import Out, PlanOptions
from evalbias.report.page import Section


def plan_command(options: PlanOptions, out: Out) -> None:
    found = plan(**vars(options))
    with Run("plan", options, None, out, more=digests(options.data)) as run:
        first, *others = found.paragraphs
        content, section = found.to_dict(), Section("What the judge can show", [*others, found.table()], first)
        shown = ["\n".join(found.paragraphs), found.table()]
        run.leave(RunOutcome(content, content, shown, more=[section], verdict=first))
