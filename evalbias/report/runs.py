"""Two runs side by side, from what their folders hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from evalbias.evaluation.agreement import Versions, compare_versions, judged_of
from evalbias.evaluation.bias import interval_plot
from evalbias.evaluation.biases import BIASES, title_of
from evalbias.evaluation.changes import bias_words, compare_biases
from evalbias.evaluation.estimates import Change, Comparison, Estimate
from evalbias.evaluation.words import Table, count, ends, of_outcome, p_equals
from evalbias.report.page import Block, Page, Section, title_of_run
from evalbias.runs import LONGEST_LIST, RESULT, RunRecord, compare_runs
from evalbias.values import json_number

Row = tuple[str, ...]  # a name, what the first and the second run have under it, and their difference; "-" for nothing
Pair = tuple[str, Estimate | None, Estimate | None, Change | None]
"""Name of a number, both estimates, and their difference on the items of both; None where one is lacking."""

REPEATED = tuple(  # beginnings of the names in an audit's result that say again what its measurements say
    f"result.audit.{part}"
    for part in ("biases.", "further.", "agreement", "validity", "leniency", "not_measured.", "provenance.", "missing_")
)
ONE_CRITERION = re.compile(r"^result\.criteria\..+?\.(?=audit\.)")
KINDS = {field.name: str(field.type) for field in fields(Estimate)}
PAIRED = "The difference is the second's less the first's on the items that both judged, with a paired test."
DRAWN = 3  # largest number of estimates of a section that are drawn, the first; the table holds all


@dataclass(frozen=True)
class RunDifferences:
    """Two runs side by side: the settings and results that differ, and every measurement of either."""

    names: tuple[str, str]
    settings: list[Row]
    measured: list[tuple[str, list[Pair]]]  # bias and criterion, with all estimates
    results: list[Row]
    # Criterion of two audits, "" where each has one -> ``versions`` of the judge, or why they are none, and ``biases``.
    tests: Mapping[str, Mapping[str, Any]]
    paragraphs: Sequence[str]  # what the second judge of two audits does otherwise; empty where no run is an audit
    title: str  # what the runs judged

    @property
    def tables(self) -> list[tuple[str, list[Row]]]:
        """Titles with the rows in which the runs differ."""
        measured = [
            (title, [row for row in estimate_rows(pairs) if row[1] != row[2]]) for title, pairs in self.measured
        ]
        tables = [("Settings that differ", self.settings), *measured, ("Other results that differ", self.results)]
        return [(title, rows) for title, rows in tables if rows]

    @property
    def sentence(self) -> str:
        """In how many settings, estimates and other results the runs differ."""
        first, second = self.names
        if not self.tables:
            return f"{first} and {second} have the same settings and results."
        settings, results = len(self.settings), len(self.results)
        estimates = sum(len(rows) for _, rows in self.tables) - settings - results
        return (
            f"{first} and {second} differ in {count(settings, 'setting')}, {count(estimates, 'estimate')} and "
            f"{count(results, 'other result')}."
        )


def estimate_rows(pairs: list[Pair]) -> list[Row]:
    """Return every estimate with its interval, in both runs; and the differences where any is known."""

    def shown(estimate: Estimate | None) -> str:
        return "-" if estimate is None else estimate.shown

    rows: list[Row] = [(name, shown(one), shown(other), _difference(change)) for name, one, other, change in pairs]
    return rows if any(change for *_, change in pairs) else [row[:3] for row in rows]


def _difference(change: Change | None) -> str:
    if change is None or math.isnan((d := change.difference).value):
        return "-"
    text, p = change.after.text, "" if math.isnan(d.p_value) else f", {p_equals(d.p_value)}"
    return f"{text(d.value)} ({ends(text(d.low), text(d.high))}){p}"


def run_differences(first: RunRecord, second: RunRecord, pass_mark: float | None = None) -> RunDifferences:
    """Return what differs between two runs, whose results must be of this version's form; see ``versions_of``."""
    # 1. the measurements of both, by their place in the result, and what differs on the items of both
    ours, theirs = _measurements(first), _measurements(second)
    before, after = (_audits(run) for run in (first, second))
    tests, compared, said = dict[str, Mapping[str, Any]](), dict[str, Comparison](), list[str]()
    for name in (name for name in before if name in after):
        versions = versions_of(before[name], after[name], pass_mark)
        biases = {} if isinstance(versions, str) else biases_of(before[name], after[name])
        tests[name] = {what: part for what, part in (("versions", versions), ("biases", biases)) if part}
        place = f"result.criteria.{name}" if name else "result"
        compared |= {f"{place}.measurements.{bias}": one for bias, one in biases.items()}
        texts = [versions] * bool(versions) if isinstance(versions, str) else versions.paragraphs
        said += [f"{name}: {text}" if name else text for text in texts]
    if not tests:
        said = ["The two have no criterion in common, so nothing is tested: audit both on the same ones."]
    measured = []
    for place in {**ours, **theirs}:
        (title, one), (other_title, other) = (side.get(place, ("", {})) for side in (ours, theirs))
        changes = compared[place].changes if place in compared else {}
        pairs = [(e.words, one.get(n), other.get(n), changes.get(n)) for n, e in {**one, **other}.items()]
        measured.append((title or other_title, pairs))
    # 2. what else differs, and does not say these numbers again
    known, differing = (*(f"{place}." for place in {**ours, **theirs}), *REPEATED), compare_runs(first, second)

    def rows(part: str) -> list[Row]:
        return [
            (name.removeprefix(part), _cell(one), _cell(other))
            for name, (one, other) in differing.items()
            if name.startswith(part) and not ONE_CRITERION.sub("result.", name).startswith(known)
        ]

    names = first.path.name, second.path.name
    names = names if names[0] != names[1] else (str(first.path), str(second.path))
    worded = of_outcome if second.settings.get("outcome") else str
    paragraphs = [*map(worded, said), *bias_words([*compared.values()])]
    title = " against ".join(dict.fromkeys(title_of_run(run.settings) for run in (first, second)))
    return RunDifferences(names, rows("settings."), measured, rows("result."), tests, paragraphs, title)


def _audits(run: RunRecord) -> dict[str, RunRecord]:
    """Return the audit of each criterion of a run as a run of its own; a run of one, or of none, has the name ""."""
    several = (run.result or {}).get("criteria")
    audits = several if isinstance(several, Mapping) else {"": run.result}
    return {name: replace(run, result=result) for name, result in audits.items()}


def biases_of(first: RunRecord, second: RunRecord) -> dict[str, Comparison]:
    """Compare the biases of two audits on the items that both judged, by paired tests.

    They are audits that ``versions_of`` compares. Settings such as the reliability of a rating are the second's. What
    two judges give their own systems is no difference of one number, if these are not the same systems.
    """
    contents = [run.result or {} for run in (first, second)]
    sides = [judged_of(content["items"]) for content in contents]
    before, settings = (content.get("audit", {}).get("provenance", {}) for content in contents)
    alike = [
        bias.configured(**{"scale": sides[1].scale, **settings})
        for bias in BIASES.values()
        if bias.kind == "bias"
        and all(before.get(f.name) == settings.get(f.name) for f in fields(bias) if f.name in ("own", "family"))
    ]
    return compare_biases(alike, *sides, seed=0)


def versions_of(first: RunRecord, second: RunRecord, pass_mark: float | None = None) -> Versions | str:
    """Compare two audits as versions of a judge; or say why not.

    If none is given, the pass mark is the second's, where the judge's scale has it: it may be of people's ratings. A
    version has the name of the model that answered, where it is kept. The reason is empty where a run is no audit, and
    no pass mark is given.
    """
    sides = []
    try:
        for run in (first, second):
            if not isinstance(kept := (run.result or {}).get("items"), Mapping):
                return "" if pass_mark is None else "A pass mark is for two audits, whose result.json has their items."
            one = judged_of(kept)
            sides.append(replace(one, judge=(run.settings.get("lm") or {}).get("answered_by", one.judge)))
        mark, (low, high) = second.settings.get("pass_mark"), sides[1].scale or (math.nan, math.nan)
        if pass_mark is None and mark is not None and low < mark <= high:
            pass_mark = mark
        return compare_versions(*sides, pass_mark=pass_mark)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"They are not compared as versions of one judge. {error}"


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _measurements(run: RunRecord) -> dict[str, tuple[str, dict[str, Estimate]]]:
    """Return place in the result -> title of the measurement, and its estimates by name."""
    try:
        return dict(_measured(run.result or {}, "result", outcome=bool(run.settings.get("outcome"))))
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{run.path / RESULT} holds a measurement of another form ({error}): run its command again."
        ) from error


def _measured(content: Any, place: str, *, outcome: bool) -> Iterator[tuple[str, tuple[str, dict[str, Estimate]]]]:
    parts: list[tuple[Any, Any]] = []
    if isinstance(content, Mapping):
        if {"bias", "criterion", "estimates"} <= content.keys():
            estimates = {name: _estimate(e) for name, e in content["estimates"].items()}
            title = of_outcome(title_of(str(content["bias"]))) if outcome else title_of(str(content["bias"]))
            yield place, (f"{title.capitalize()}: {content['criterion']}", estimates)
            return
        parts = [*content.items()]
    elif isinstance(content, list) and len(content) <= LONGEST_LIST:
        parts = [*enumerate(content)]
    for name, part in parts:
        yield from _measured(part, f"{place}.{name}", outcome=outcome)


def _estimate(content: Mapping[str, Any]) -> Estimate:
    """Read an estimate as ``to_json`` writes it."""
    known = {name: value for name, value in content.items() if name in KINDS}
    for name, value in known.items():
        if KINDS[name].startswith("float"):
            known[name] = None if name == "null" and value is None else json_number(value)
        elif type(value).__name__ != KINDS[name]:
            raise ValueError(f"{name} is {value!r:.80}")
    return Estimate(**known)


def comparison_page(differing: RunDifferences) -> Page:
    """Return the page of two runs: their estimates, and every setting and result in which they differ."""
    tested = any(isinstance(one.get("versions"), Versions) for one in differing.tests.values())
    heading = "Two judges on the same items" if tested else "The two judges"
    sections = [Section(heading, differing.paragraphs)] if differing.paragraphs else []
    for title, pairs in differing.measured:  # one section each; estimates that are defined in both runs are drawn
        drawn = [(name, one, other) for name, one, other, _ in pairs if one and other and one.null is not None]
        defined = [part for part in drawn if not math.isnan(part[1].value + part[2].value)]
        blocks: list[Block] = [
            interval_plot(
                dict(zip(differing.names, (one, other), strict=True)), f"{name}: {one.text()} and {other.text()}"
            )
            for name, one, other in defined[:DRAWN]
        ]
        paired = any(change for *_, change in pairs)
        headings = ("", *differing.names, *["difference"] * paired)
        note = f"95 % intervals of each run by itself. {PAIRED * paired}".rstrip()
        narrow = [[cell.replace(" (", "\n(").replace("), p", "),\np") for cell in row] for row in estimate_rows(pairs)]
        sections.append(Section(title, [*blocks, Table(headings, narrow, caption=note)]))
    for title, rows in (("Settings that differ", differing.settings), ("Other results that differ", differing.results)):
        if rows:
            shown = [(re.sub(r"([._])", "\\1\u200b", name), *values) for name, *values in rows]
            sections.append(Section(f"{title} ({len(rows)})", [Table(("", *differing.names), shown)]))
    return Page(differing.title, "runs compare", sections, verdict=differing.sentence)
