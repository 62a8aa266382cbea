"""Two finished runs side by side, from what their folders hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.formatting import count
from evalbias.report.html.blocks import Block, Section, Table
from evalbias.report.html.page import Page
from evalbias.report.html.plots.intervals import estimate_rows
from evalbias.report.html.run_page import title_of_run
from evalbias.report.html.svg import plot
from evalbias.report.html.words import name_of, title_of
from evalbias.runs.listing import LONGEST_LIST, RunRecord, compare_runs
from evalbias.runs.values import number

DRAWN = 12
"""Largest number of estimates that are drawn; the table holds all."""
FIELDS = {field.name for field in fields(Estimate)}


def comparison_page(first: RunRecord, second: RunRecord) -> Page:
    """Return the page of two runs: their estimates, and every setting and number in which they differ."""
    names = _names(first, second)
    differences = {name: (_cell(a), _cell(b)) for name, (a, b) in compare_runs(first, second).items()}
    settings = [(name, *values) for name, values in differences.items() if name.startswith("settings.")]
    numbers = [(name, *values) for name, values in differences.items() if not name.startswith("settings.")]
    sections = [*_estimates(first, second, names)]
    for title, rows in (("Settings that differ", settings), ("Numbers that differ", numbers)):
        if rows:
            shown = [(re.sub(r"([._])", "\\1\u200b", name.split(".", 1)[1]), *values) for name, *values in rows]
            sections.append(Section(f"{title} ({len(rows)})", [Table(("", *names), shown)]))
    titles = [title_of_run(run.settings) for run in (first, second)]
    title = titles[0] if titles[0] == titles[1] else " against ".join(titles)
    verdict = (
        f"{names[0]} and {names[1]} differ in {count(len(settings), 'setting')} and {count(len(numbers), 'number')}."
    )
    return Page(title, "runs compare", sections, verdict=verdict)


def _names(first: RunRecord, second: RunRecord) -> tuple[str, str]:
    names = first.path.name, second.path.name
    return names if names[0] != names[1] else (str(first.path), str(second.path))


def _estimates(first: RunRecord, second: RunRecord, names: tuple[str, str]) -> Iterator[Section]:
    """Yield one section a measurement that both runs have, with the estimates that are defined in both."""
    ours, theirs = (dict(_measured(run.result or {})) for run in (first, second))
    left = DRAWN
    for place in filter(theirs.__contains__, ours):
        bias, criterion, estimates = ours[place]
        pairs = [(e, theirs[place][2][name]) for name, e in estimates.items() if name in theirs[place][2]]
        blocks: list[Block] = []
        rows = []
        for one, other in pairs:
            rows.append((name_of(one), f"{one.text()} ({one.interval})", f"{other.text()} ({other.interval})"))
            if left and one.null is not None and not math.isnan(one.value) and not math.isnan(other.value):
                left -= 1
                title = f"{name_of(one)}: {one.text()} and {other.text()}"
                blocks.append(plot(estimate_rows(dict(zip(names, (one, other), strict=True)), title, null=one.null)))
        if rows:
            note = "95 % intervals of each run by itself; evalbias.compare tests two judges on the same items."
            blocks.append(Table(("", *names), rows, note))
            yield Section(f"{title_of(bias)}: {criterion}", blocks)


def _measured(content: Any, place: str = "") -> Iterator[tuple[str, tuple[str, str, dict[str, Estimate]]]]:
    """Yield place -> (bias, criterion, estimates) of every measurement in a result's JSON."""
    if isinstance(content, Mapping):
        if {"bias", "criterion", "estimates"} <= content.keys():
            estimates = {name: _estimate(e) for name, e in content["estimates"].items()}
            yield place, (str(content["bias"]), str(content["criterion"]), estimates)
            return
        parts = [*content.items()]
    elif isinstance(content, list) and len(content) <= LONGEST_LIST:
        parts = [(str(n), part) for n, part in enumerate(content)]
    else:
        return
    for name, part in parts:
        yield from _measured(part, f"{place}.{name}")


def _estimate(content: Mapping[str, Any]) -> Estimate:
    """Read an estimate as ``to_json`` writes it."""
    known: dict[str, Any] = {name: value for name, value in content.items() if name in FIELDS}
    numbers: dict[str, Any] = {
        name: number(known[name]) for name in ("value", "low", "high", "p_value") if name in known
    }
    return Estimate(**(known | numbers))


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
