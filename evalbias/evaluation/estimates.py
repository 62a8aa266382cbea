"""Estimates with their intervals, from values by item and a statistic of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalbias.evaluation.formatting import count, ends, number, share
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
        tested: Whether ``compare`` tests it by swaps. Not a statistic that is too costly to resample 100,000 times,
            one whose interval has its own test, or one that is not of the judge.
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

    @property
    def why_undefined(self) -> str:
        """Why there is no number, as far as is known."""
        return self.reason or ("these items do not tell it" if self.n else "no item has all that it needs")

    def sentence(self) -> str:
        """Say the estimate, its interval and what no bias would be."""
        unbiased = "" if self.null is None else f"; an unbiased judge has {self.text(self.null)}"
        left_out = f", {self.undefined} undefined" if self.undefined else ""
        left_out += f", {self.excluded} excluded" if self.excluded else ""
        if math.isnan(self.value):
            return f"{self.label} is undefined: {self.why_undefined} ({count(self.n, 'item')}{left_out})."
        return (
            f"{self.label} {self.text()} (95 % interval {self.interval}{unbiased}; {count(self.n, 'item')}{left_out})."
        )


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
