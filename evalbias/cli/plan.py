"""``evalbias plan``: how small a difference between systems a judge can show."""

from __future__ import annotations

from evalbias.cli.changes import digests
from evalbias.cli.run import Run, RunOutcome
from evalbias.evaluation.rankings import plan
from evalbias.options import Out, PlanOptions
from evalbias.report.page import Section


def plan_command(options: PlanOptions, out: Out) -> None:
    planned = plan(**vars(options))
    with Run("plan", options, None, out, more=digests(options.data)) as run:
        first, *others = planned.paragraphs
        content, section = planned.to_dict(), Section("What the judge can show", [*others, planned.table()], first)
        shown = ["\n".join(planned.paragraphs), planned.table()]
        run.leave(RunOutcome(content, content, shown, more=[section], verdict=first))
