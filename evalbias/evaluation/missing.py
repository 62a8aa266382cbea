"""Judgments that a judge did not give: how many, of which systems, and whether that depends on the items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.evaluation.estimates import LEVEL
from evalbias.evaluation.judged import LENGTHS, Judged, mean_of_raters, repeats_of
from evalbias.evaluation.words import Table, joined, p_equals, percent
from evalbias.measures.arrays import BoolArray, FloatArray, defined
from evalbias.measures.families import holm
from evalbias.measures.missing import missing_by_level, missing_by_size
from evalbias.programs.items import length_feature

SIDES = {"quality": ("better", "worse"), "length": ("longer", "shorter")}
"""Property of outputs -> words for those with more and with less of it."""
SYSTEM, INPUT = "system", "input"
MOST_SYSTEMS = 10  # systems that a table lists


@dataclass(frozen=True)
class Dependence:
    """Dependence of missing judgments on one property of the items, alone."""

    # Mean of the property where judgments are missing, less where they were given, in its standard deviations; NaN for
    # systems and inputs.
    difference: float
    p_value: float  # two-sided
    p_adjusted: float  # by Holm, for all properties
    words: str


@dataclass(frozen=True)
class MissingJudgments:
    """Judgments that are missing; of pairs, those without one in some order."""

    n: int  # of all items
    missing: int  # items without a judgment
    by_system: Mapping[str, tuple[int, int]]  # system -> its items without a judgment, and all of its items
    dependence: Mapping[str, Dependence]  # quality, length, input, system, as far as known -> the dependence on it

    def sentence(self) -> str:
        """Say how many judgments are missing, and on what that depends."""
        shown = [one.words for one in self.dependence.values() if one.p_adjusted < LEVEL]
        depends = f" They are missing {joined(shown)}." if shown else ""
        if self.dependence and not shown:
            depends = f" No dependence on {joined([*self.dependence])} is shown."
        return f"{self.missing} of {self.n} judgments are missing ({_share(self.missing, self.n)}).{depends}"

    def table(self) -> Table:
        """Return one row for all items, and one for each system, in descending order of the share that is missing."""
        systems = sorted(self.by_system.items(), key=lambda row: -row[1][0] / row[1][1])
        counts = [("all", (self.missing, self.n)), *systems[:MOST_SYSTEMS]]
        rows = [(name, f"{n:,}", f"{missing:,}", _share(missing, n)) for name, (missing, n) in counts]
        caption = "" if len(systems) <= MOST_SYSTEMS else f"the {MOST_SYSTEMS} of {len(systems)} systems that lack most"
        return Table(("", "items", "missing", "share"), rows, "Missing judgments", caption)


def _share(missing: int, n: int) -> str:
    return "< 1 %" if 0 < missing / n < 0.005 else percent(missing / n)


def missing_judgments(judged: Judged, *, seed: int) -> MissingJudgments | None:
    """Describe the judgments that are missing; None where none is, or all are."""
    absent: BoolArray = ~defined(judged.answers)
    if not absent.any() or absent.all():
        return None
    tests = {name: missing_by_size(absent, x, clusters=judged.clusters) for name, x in _properties(judged).items()}
    writers = np.asarray(judged.writers, dtype=str)  # (n,), of pairs (n, 2)
    systems = [" and ".join(sorted(set(np.ravel(names)))) for names in writers]
    repeats = repeats_of(judged)  # which lack what the item lacks that they repeat
    once = [place for place in range(len(judged.inputs)) if place not in repeats]
    inputs = [judged.inputs[place] for place in once]
    for name, lost, levels, clusters in (
        (INPUT, absent[once], inputs, None),
        (SYSTEM, absent, systems, judged.clusters),
    ):
        if 1 < len(set(levels)) < len(levels):
            tests[name] = math.nan, missing_by_level(lost, levels, clusters=clusters, seed=seed)
    tests = {name: test for name, test in tests.items() if not math.isnan(test[1])}
    adjusted = holm([p_value for _, p_value in tests.values()])
    rows = {name: (np.transpose(writers) == name).reshape(-1, len(absent)).any(axis=0) for name in judged.writer_names}
    return MissingJudgments(
        n=len(absent),
        missing=int(absent.sum()),
        by_system={name: (int(absent[own].sum()), int(own.sum())) for name, own in rows.items()},
        dependence={
            name: Dependence(difference, p_value, p, _words(name, difference, p, absent, systems, judged.pairwise))
            for (name, (difference, p_value)), p in zip(tests.items(), adjusted, strict=True)
        },
    )


def _properties(judged: Judged) -> dict[str, FloatArray]:
    """Return what is known about items (n,): of pairs the size of their difference in quality, and total length."""
    columns: dict[str, FloatArray] = {}
    if judged.rated:
        quality = mean_of_raters(judged.ratings)
        columns["quality"] = np.abs(quality) if judged.pairwise else quality
    if LENGTHS in judged.covariates:
        lengths = length_feature(judged.covariates[LENGTHS])
        columns["length"] = lengths.reshape(len(lengths), -1).sum(axis=1)
    return columns


def _words(name: str, difference: float, p: float, absent: BoolArray, systems: Sequence[str], pairwise: bool) -> str:
    if name == INPUT:
        return f"unevenly by input ({p_equals(p)})"
    if name == SYSTEM:
        rates = {one: float(absent[np.array(systems) == one].mean()) for one in sorted(set(systems))}
        most, least = (choose(rates, key=rates.__getitem__) for choose in (max, min))
        shares = f"in {percent(rates[most])} of {most:.80} and in {percent(rates[least])} of {least:.80}"
        return f"unevenly by system ({shares}, {p_equals(p)})"
    which = f"{'pairs of ' * pairwise}{SIDES[name][difference <= 0]} outputs"
    if pairwise and name == "quality":
        which = f"pairs that differ {'more' if difference > 0 else 'less'} in quality"
    return f"more often for {which} ({abs(difference):.2f} standard deviations apart on average, {p_equals(p)})"
