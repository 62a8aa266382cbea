"""Two finished runs side by side, from what their folders hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from evalbias.report.html.blocks import Block, Section, Table
from evalbias.report.html.page import Page
from evalbias.report.html.plots.intervals import estimate_rows
from evalbias.report.html.run_page import title_of_run
from evalbias.report.html.svg import plot
from evalbias.report.run_differences import RunDifferences, run_differences
from evalbias.runs.listing import RunRecord

DRAWN = 12
"""Largest number of estimates that are drawn; the table holds all."""


def comparison_page(first: RunRecord, second: RunRecord) -> Page:
    """Return the page of two runs: their estimates, and every setting and result in which they differ."""
    found = run_differences(first, second)
    sections = [*_estimates(found)]
    for title, rows in (("Settings that differ", found.settings), ("Other results that differ", found.results)):
        if rows:
            shown = [(re.sub(r"([._])", "\\1\u200b", name), *values) for name, *values in rows]
            sections.append(Section(f"{title} ({len(rows)})", [Table(("", *found.names), shown)]))
    titles = [title_of_run(run.settings) for run in (first, second)]
    title = titles[0] if titles[0] == titles[1] else " against ".join(titles)
    return Page(title, "runs compare", sections, verdict=found.sentence)


def _estimates(found: RunDifferences) -> Iterator[Section]:
    """Yield one section a measurement; estimates that are defined in both runs are drawn."""
    left = DRAWN
    for measured in found.measured:
        blocks: list[Block] = []
        for name, one, other in measured.estimates:
            if one is None or other is None or one.null is None or math.isnan(one.value + other.value) or not left:
                continue
            left -= 1
            title = f"{name}: {one.text()} and {other.text()}"
            both = dict(zip(found.names, (one, other), strict=True))
            blocks.append(plot(estimate_rows(both, title, null=one.null)))
        note = "95 % intervals of each run by itself; evalbias.compare tests two judges on the same items."
        blocks.append(Table(("", *found.names), measured.rows, note))
        yield Section(measured.title, blocks)
