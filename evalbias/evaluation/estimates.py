"""Estimates of a bias with their intervals, and everything they were computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from evalbias.evaluation.formatting import Tabular, count, ends, number, share, title
from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import FloatArray
from evalbias.measures.intervals import p_of_interval
from evalbias.measures.resampling import aligned, defined_items
from evalbias.measures.statistic import Statistic

N_RESAMPLES = 2_000
"""Bootstrap resamples of an interval."""


@dataclass(frozen=True)
class Sample:
    """Per-item values and the statistic of them that an estimate is.

    Attributes:
        values: (n,) or (n, d) what the judge's answers come to, item by item; NaN where undefined.
        statistic: Statistic of the values.
        label: Column heading in tables.
        null: Value of an unbiased judge; None where the estimate is not of a bias.
        excluded: Number of items left out by definition, such as pairs of equal lengths; their values are NaN.
        signed: Whether tables show a sign.
        tested: Whether ``compare`` tests it by swaps. Not a statistic that is too costly to resample 100,000 times, or
            one whose interval has its own test.
        confounded: Whether the quality of the outputs may explain a departure from the null, as where the longer
            candidate wins because it is the better one. An audit calls no judge biased for such an estimate.
        only_below: Whether only values below the null are of this bias.
    """

    values: FloatArray
    statistic: Statistic
    label: str
    null: float | None = None
    excluded: int = 0
    signed: bool = True
    tested: bool = True
    confounded: bool = False
    only_below: bool = False


@dataclass(frozen=True)
class Estimate:
    """One number about a judge.

    Attributes:
        name: Key in a measurement.
        label: Column heading in tables.
        value: The estimate; NaN where undefined.
        low: Lower end of the 95 % interval, over inputs where several items share one.
        high: Upper end.
        null: Value of an unbiased judge; None where the estimate is not of a bias.
        n: Items that count.
        undefined: Items left out because a number is NaN.
        signed: Whether tables show a sign.
        excluded: Items left out by definition, such as pairs of equal lengths.
        units: Inputs that the interval resamples, each with its items; n where none share an input.
        p_value: Two-sided p of the test against ``null``: that of the interval where it has one, else read from the
            interval (``p_of_interval``); NaN without a null.
        unit: Unit of the estimate, such as ``"share"``; empty where it has none. See ``Statistic``.
        confounded: See ``Sample``.
        reason: Why the estimate is undefined, where that is known.
        only_below: See ``Sample``.
    """

    name: str
    label: str
    value: float
    low: float
    high: float
    null: float | None
    n: int
    undefined: int
    signed: bool = True
    excluded: int = 0
    units: int = 0
    p_value: float = float("nan")
    unit: str = ""
    confounded: bool = False
    reason: str = ""
    only_below: bool = False

    def text(self, value: float | None = None) -> str:
        """Format the estimate, or another value in its form."""
        shown = self.value if value is None else value
        return number(shown) if self.signed else share(shown)

    @property
    def interval(self) -> str:
        """The 95 % interval as text."""
        return ends(self.text(self.low), self.text(self.high))

    def sentence(self) -> str:
        """Say the estimate, its interval and what no bias would be."""
        unbiased = "" if self.null is None else f"; an unbiased judge has {self.text(self.null)}"
        left_out = f", {self.undefined} undefined" if self.undefined else ""
        left_out += f", {self.excluded} excluded" if self.excluded else ""
        if math.isnan(self.value):
            why = self.reason or ("these items do not tell it" if self.n else "no item has all that it needs")
            return f"{self.label} is undefined: {why} ({count(self.n, 'item')}{left_out})."
        return (
            f"{self.label} {self.text()} (95 % interval {self.interval}{unbiased}; {count(self.n, 'item')}{left_out})."
        )


class Bias(Protocol):
    """A bias: what its estimates are computed from. A new one is a file with this, and a line in ``registry.py``."""

    @property
    def name(self) -> str:
        """Key in the registry, in reports, in JSON and on the command line."""
        ...

    @property
    def headlines(self) -> tuple[str, ...]:
        """Names of the estimates that a short table shows."""
        ...

    @property
    def objective(self) -> str | None:
        """Name of the estimate that a search may bring to its null; None where there is none."""
        ...

    def applies(self, judged: Judged) -> bool:
        """Return whether the answers and covariates suffice to measure this bias."""
        ...

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """Return what each estimate is computed from, by name.

        Raises:
            ValueError: A covariate is missing.
        """
        ...


@dataclass(frozen=True)
class Measurement(Tabular):
    """One bias of one judge on n items.

    Attributes:
        bias: Name of the bias.
        criterion: Name of the judged criterion.
        ids: Identifiers of the items.
        estimates: Name -> estimate.
        headlines: Names of the estimates that a short table shows.
        samples: What the estimates were computed from.
        columns: Name -> (n,) or (n, d) numbers about the items.
        coverage: Median probability that any answer follows; NaN where unknown.
        cost: Name -> amount of what the measurement took, such as judgments.
        notes: Name -> count of what else happened, such as ties.
        provenance: What decides the numbers.
        clusters: (n,) input of each item; items of one input are resampled and swapped together. None where every item
            has its own.
    """

    bias: str
    criterion: str
    ids: tuple[str, ...]
    estimates: Mapping[str, Estimate]
    headlines: tuple[str, ...]
    samples: Mapping[str, Sample] = field(repr=False, compare=False)
    columns: Mapping[str, FloatArray] = field(repr=False, compare=False)
    coverage: float = float("nan")
    cost: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    clusters: Sequence[str] | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, name: str) -> Estimate:
        """Return an estimate by name."""
        return self.estimates[name]

    @property
    def undefined(self) -> dict[str, int]:
        """Column -> number of items in which it is undefined; columns without any are left out."""
        counts = {name: int((~defined_items(column)).sum()) for name, column in self.columns.items()}
        return {name: amount for name, amount in counts.items() if amount}

    def items(self) -> list[dict[str, Any]]:
        """Return one record per item: its id and every column."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        return [{"id": one, **{n: c[i] for n, c in columns.items()}} for i, one in enumerate(self.ids)]

    def to_dict(self, *, items: bool = True) -> dict[str, Any]:
        """Return everything but the samples; ``items=False`` leaves out the columns too."""
        content: dict[str, Any] = {
            "bias": self.bias,
            "criterion": self.criterion,
            "estimates": self.estimates,
            "undefined": self.undefined,
            "coverage": self.coverage,
            "cost": self.cost,
            "notes": self.notes,
            "provenance": self.provenance,
        }
        return {**content, "items": {"id": self.ids, **self.columns}} if items else content

    def _title(self) -> str:
        return f"{title(self.bias).capitalize()} on {self.criterion}"

    def _headings(self) -> tuple[str, ...]:
        return ("estimate", "value", "95 % interval", *(["no bias"] if self._has_null() else []), "n")

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for e in self.estimates.values():
            null = "" if e.null is None else e.text(e.null)
            rows.append((e.label, e.text(), e.interval, *([null] if self._has_null() else []), str(e.n)))
        return rows

    def _has_null(self) -> bool:
        return any(e.null is not None for e in self.estimates.values())

    def _caption(self) -> str:
        parts = [f"undefined {name.replace('_', ' ')}: {amount}" for name, amount in self.undefined.items()]
        if self.clusters is not None:
            parts.append(f"intervals over {count(max((e.units for e in self.estimates.values()), default=0), 'input')}")
        return "; ".join([*parts, *(f"{name.replace('_', ' ')}: {amount}" for name, amount in self.notes.items())])


def measure(bias: Bias, judged: Judged, *, seed: int, n_resamples: int = N_RESAMPLES) -> Measurement:
    """Measure a bias on what a judge did; no model is asked.

    Args:
        bias: See ``BIASES``.
        judged: Answers and covariates; see ``judge_examples``.
        seed: Seed for the bootstrap.
        n_resamples: Bootstrap resamples of each interval.

    Raises:
        ValueError: A covariate that the bias needs is missing.
    """
    columns = {"scores": judged.answers} if not judged.pairwise else _orders(judged)
    return measured(
        bias.samples(judged),
        clusters=clusters_of(judged),
        bias=bias.name,
        headlines=bias.headlines,
        criterion=judged.criterion,
        ids=judged.ids,
        columns={**columns, **judged.covariates},
        seed=seed,
        n_resamples=n_resamples,
        coverage=_median(judged.coverage),
        cost={"judgments": judged.judgments},
        provenance={**judged.provenance, "seed": seed, "n_resamples": n_resamples},
    )


def measured(
    samples: Mapping[str, Sample],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    clusters: Sequence[str] | None = None,
    **fields: Any,
) -> Measurement:
    """Compute the estimates of samples; the other arguments are fields of ``Measurement``."""
    estimates = estimates_of(samples, seed=seed, n_resamples=n_resamples, clusters=clusters)
    return Measurement(estimates=estimates, samples=samples, clusters=clusters, **fields)


def estimates_of(
    samples: Mapping[str, Sample],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    clusters: Sequence[str] | None = None,
) -> dict[str, Estimate]:
    """Compute the estimates of samples alone, with their intervals.

    Args:
        samples: Name -> what the estimate is computed from.
        seed: Seed for the bootstrap.
        n_resamples: Bootstrap resamples of each interval.
        clusters: (n,) input of each item, as from ``clusters_of``; None where every item has its own.
    """
    return {name: _estimate(name, sample, clusters, n_resamples, seed) for name, sample in samples.items()}


def clusters_of(judged: Judged) -> Sequence[str] | None:
    """Return the input of each item where some items share one, else None.

    Several outputs of one input alone are resampled one by one: the interval is then about other outputs of this input.
    """
    return judged.inputs if 1 < len(set(judged.inputs)) < len(judged.ids) else None


def estimate_value(sample: Sample) -> float:
    """Compute a sample's statistic over the items that define it; NaN without any."""
    values, *references = aligned(sample.values, *sample.statistic.references)
    kept = defined_items(values, *references)
    return float(sample.statistic.keep(kept)(values[kept])) if kept.any() else float("nan")


def _estimate(name: str, sample: Sample, clusters: Sequence[str] | None, n_resamples: int, seed: int) -> Estimate:
    arrays = (sample.values, *sample.statistic.references)
    interval = sample.statistic.interval(sample.values, clusters=clusters, n_resamples=n_resamples, seed=seed)
    n = int(defined_items(*aligned(*arrays)).sum())
    undefined = len(sample.values) - n - sample.excluded
    value, p_value = estimate_value(sample), interval.p_value
    if sample.null is None:
        p_value = float("nan")
    elif np.isnan(p_value):
        p_value = p_of_interval(value, interval.low, interval.high, null=sample.null, units=interval.units)
    return Estimate(
        name=name,
        label=sample.label,
        value=value,
        low=interval.low,
        high=interval.high,
        null=sample.null,
        n=n,
        undefined=undefined,
        signed=sample.signed,
        excluded=sample.excluded,
        units=interval.units,
        p_value=p_value,
        unit=sample.statistic.unit,
        confounded=sample.confounded,
        reason=interval.reason,
        only_below=sample.only_below,
    )


def _orders(judged: Judged) -> dict[str, FloatArray]:
    names = ("answers", "answers_swapped")
    return {name: judged.answers[:, order] for order, name in enumerate(names[: judged.answers.shape[1]])}


def _median(coverage: FloatArray) -> float:
    return float(np.nanmedian(coverage)) if len(coverage) and not np.isnan(coverage).all() else float("nan")
