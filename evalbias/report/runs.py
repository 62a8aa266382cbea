"""Two runs side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from evalbias.evaluation.bias import interval_plot
from evalbias.evaluation.biases import title_of
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.words import Table, count
from evalbias.report.page import Page, title_of_run
from evalbias.report.sections import Block, Section
from evalbias.runs import LONGEST_LIST, RESULT, RunRecord, compare_runs
from evalbias.values import number

# Differences between two runs, from the contents of their folders.


Row = tuple[str, str, str]
"""A name, and what the first and the second run have under it; "-" for nothing."""

REPEATED = tuple(
    f"result.audit.{part}" for part in ("biases.", "further.", "agreement", "not_measured.", "provenance.")
)
"""Beginnings of the names in an audit's result that say again what its measurements say."""
KINDS = {field.name: str(field.type) for field in fields(Estimate)}


@dataclass(frozen=True)
class MeasuredByTwo:
    """One measurement of two runs, of which one may lack it.

    Attributes:
        title: The bias and the criterion.
        estimates: Name in words of each estimate, and the estimate in the first and in the second run; None where a
            run lacks it.
    """

    title: str
    estimates: list[tuple[str, Estimate | None, Estimate | None]]

    @property
    def rows(self) -> list[Row]:
        """Every estimate with its interval, in both runs."""
        return [(name, _shown(one), _shown(other)) for name, one, other in self.estimates]

    @property
    def differences(self) -> list[Row]:
        """The rows in which the runs differ."""
        return [row for row in self.rows if row[1] != row[2]]


@dataclass(frozen=True)
class RunDifferences:
    """Two runs side by side.

    Attributes:
        names: Names of the runs.
        settings: Settings that differ.
        measured: Every measurement of either run.
        results: What else differs in the results.
    """

    names: tuple[str, str]
    settings: list[Row]
    measured: list[MeasuredByTwo]
    results: list[Row]

    @property
    def sentence(self) -> str:
        """In how many settings, estimates and other results the runs differ."""
        estimates = sum(len(one.differences) for one in self.measured)
        if not (self.settings or estimates or self.results):
            return f"{self.names[0]} and {self.names[1]} have the same settings and results."
        return (
            f"{self.names[0]} and {self.names[1]} differ in {count(len(self.settings), 'setting')}, "
            f"{count(estimates, 'estimate')} and {count(len(self.results), 'other result')}."
        )


def run_differences(first: RunRecord, second: RunRecord) -> RunDifferences:
    """Return what differs between two runs.

    Raises:
        ValueError: A result is not of the form in which this version writes it.
    """
    one, other = _measurements(first), _measurements(second)
    places = tuple(f"{place}." for place in {**one, **other})
    differences = compare_runs(first, second)
    results = {name: both for name, both in differences.items() if not name.startswith((*places, *REPEATED))}
    return RunDifferences(
        _names(first, second),
        _rows(differences, "settings."),
        [_paired(one.get(place), other.get(place)) for place in {**one, **other}],
        _rows(results, "result."),
    )


def _rows(differences: Mapping[str, tuple[Any, Any]], part: str) -> list[Row]:
    """Return the differences in one part, whose name is left out."""
    return [
        (name.removeprefix(part), _cell(a), _cell(b)) for name, (a, b) in differences.items() if name.startswith(part)
    ]


def _names(first: RunRecord, second: RunRecord) -> tuple[str, str]:
    names = first.path.name, second.path.name
    return names if names[0] != names[1] else (str(first.path), str(second.path))


Measured = tuple[str, dict[str, Estimate]]
"""Title of a measurement, and its estimates by name."""


def _measurements(run: RunRecord) -> dict[str, Measured]:
    try:
        return dict(_measured(run.result or {}, "result"))
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{run.path / RESULT} holds a measurement of another form ({error}): run its command again."
        ) from error


def _measured(content: Any, place: str) -> Iterator[tuple[str, Measured]]:
    """Yield the place of every measurement in a result's JSON, and the measurement."""
    if isinstance(content, Mapping):
        if {"bias", "criterion", "estimates"} <= content.keys():
            estimates = {name: _estimate(e) for name, e in content["estimates"].items()}
            yield place, (f"{title_of(str(content['bias'])).capitalize()}: {content['criterion']}", estimates)
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
    known = {name: value for name, value in content.items() if name in KINDS}
    for name, value in known.items():
        if KINDS[name].startswith("float"):
            known[name] = None if name == "null" and value is None else number(value)
        elif type(value).__name__ != KINDS[name]:
            raise ValueError(f"{name} is {value!r:.80}")
    return Estimate(**known)


def _paired(one: Measured | None, other: Measured | None) -> MeasuredByTwo:
    ours, theirs = ({} if measured is None else measured[1] for measured in (one, other))
    title = (one or other or ("", {}))[0]
    return MeasuredByTwo(title, [(e.words, ours.get(name), theirs.get(name)) for name, e in {**ours, **theirs}.items()])


def _shown(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.text()} ({estimate.interval})"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# Two finished runs side by side, from what their folders hold.


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
            blocks.append(interval_plot(both, title))
        note = "95 % intervals of each run by itself; evalbias.compare tests two judges on the same items."
        blocks.append(Table(("", *found.names), measured.rows, caption=note))
        yield Section(measured.title, blocks)
