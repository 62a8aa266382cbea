"""Table of a compiled mitigation of likelihood bias: the given judge, the paper's method, the choice, and baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Judged
from evalbias.optimizers.likelihood_mitigation import MitigationReport
from evalbias.optimizers.likelihood_rule import LikelihoodRule


def mitigation_table(reports: Mapping[str, MitigationReport], *, seed: int) -> Table:
    """Return one row per criterion and judge, on the items of the valset, which nothing was fitted on or chosen by."""
    table = Table(title="Likelihood bias on items that took no part", caption="in brackets: 95 % intervals")
    for heading in ("criterion", "judge"):
        table.add_column(heading, overflow="fold")
    headed, reasons = False, list[str]()
    for criterion, report in reports.items():
        sides = {"given": report.before, "paper's method": report.paper, "compiled": report.after}
        for place, (title, judged) in enumerate((t, j) for t, j in sides.items() if j is not None):
            estimates = _estimates(judged, seed=seed)
            if not headed:
                for estimate in estimates.values():
                    table.add_column(estimate.label, justify="right", overflow="fold")
                headed = True
            table.add_row("" if place else criterion, title, *map(_cell, estimates.values()))
            reasons += [f"{e.label} is undefined: {e.why_undefined}" for e in estimates.values() if _is_undefined(e)]
        for name, baseline in report.baselines.items():
            table.add_row("", f"{name} (held-back items)", *([""] * (len(estimates) - 1)), _cell(baseline))
        table.add_section()
    if reasons:
        table.caption = f"{table.caption}; {'; '.join(dict.fromkeys(reasons))}"
    return table


def _estimates(judged: Judged, *, seed: int) -> dict[str, Estimate]:
    return LikelihoodRule(lambda _: judged, n_resamples=1, seed=seed).estimates(judged)


def _is_undefined(estimate: Estimate) -> bool:
    return math.isnan(estimate.value) and math.isnan(estimate.low)


def _cell(estimate: Estimate) -> str:
    if _is_undefined(estimate):
        return "undefined"
    low, high = (estimate.text(end) for end in (estimate.low, estimate.high))
    return f"{estimate.text()} [{low}, {high}]"
