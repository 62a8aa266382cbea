"""Several judges side by side, one section a bias."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from evalbias.evaluation.baselines import Row
from evalbias.report.html.blocks import Block, Section, Table, Words
from evalbias.report.html.plots.intervals import estimate_rows
from evalbias.report.html.svg import plot
from evalbias.report.html.words import by_construction, name_of, question_of, title_of

SETTLED = " †"
"""Mark of what is true by construction."""


def side_by_side(rows: Mapping[str, Row]) -> Iterator[Section]:
    """Yield one section a bias in which several judges stand side by side."""
    for bias, first in next(iter(rows.values())).measurements.items():
        sides = {name: row.measurements[bias] for name, row in rows.items()}
        names = [name for name in first.headlines if name in first.estimates]
        if not names:  # of no bias by itself, such as the joint model
            continue
        blocks: list[Block] = [Words(question_of(bias))]
        marked = {judge + SETTLED * bool(by_construction(m)): m for judge, m in sides.items()}
        drawn = next((name for name in names if not all(math.isnan(m[name].value) for m in sides.values())), None)
        if drawn is not None:
            title = f"{name_of(first[drawn])}, on documents that took no part in the search"
            defined = {judge: m[drawn] for judge, m in marked.items() if not math.isnan(m[drawn].value)}
            blocks.append(plot(estimate_rows(defined, title, null=first[drawn].null)))
        cells = [(judge, *(m[name].text() for name in names)) for judge, m in marked.items()]
        settled = next(filter(None, map(by_construction, sides.values())), "")
        note = settled and SETTLED.strip() + " " + settled
        blocks.append(Table(("", *(first[name].label for name in names)), cells, note))
        yield Section(title_of(bias), blocks)
