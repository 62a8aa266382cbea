"""Two judges on the same items: the estimates side by side, the difference with its interval, and a paired test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evalbias.evaluation.by_name import ByName
from evalbias.evaluation.estimates import N_RESAMPLES, Estimate, Sample
from evalbias.evaluation.formatting import SIGNIFICANCE, Tabular, ends, mark, p_text, title
from evalbias.evaluation.measurement import Measurement, measured
from evalbias.measures.arrays import FloatArray
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.resampling import aligned, defined_items
from evalbias.measures.significance import PermutationTest, paired_permutation_test
from evalbias.runs.values import to_json


@dataclass(frozen=True)
class Change:
    """One estimate of two judges.

    Attributes:
        before: Estimate of the first judge, on the items that both define.
        after: Estimate of the second judge, on the same items.
        difference: After minus before, with its paired 95 % bootstrap interval.
        test: Two-sided paired permutation test of after against before, which swaps the outputs of an input together;
            None where the statistic is too costly or not of the judge, or the interval of the difference has its own
            test.
        itemwise_test: The test of the papers' tables, which swaps item by item whatever inputs they share; the same as
            ``test`` where every item has its own input.
    """

    before: Estimate
    after: Estimate
    difference: ConfidenceInterval
    test: PermutationTest | None
    itemwise_test: PermutationTest | None

    @property
    def label(self) -> str:
        """Column heading in tables."""
        return self.after.label

    @property
    def p_value(self) -> float:
        """P of the test, in (0, 1], or of the interval's own; NaN where there is none."""
        return self.difference.p_value if self.test is None else self.test.p_value

    def text(self) -> str:
        """Format as "before -> after" with the paper's sign of significance."""
        return f"{self.before.text()} -> {self.after.text()}{mark(self.p_value)}"


@dataclass(frozen=True, repr=False)
class Comparison(Tabular, ByName[Change]):
    """One bias of two judges on the same items; ``comparison["fairness"]`` is the change of that estimate.

    Attributes:
        bias: Name of the bias.
        criterion: Name of the judged criterion.
        changes: Name -> what became of the estimate.
        headlines: Names of the estimates that a short table shows.
        cost: Name -> (before, after) of what each measurement took.
    """

    bias: str
    criterion: str
    changes: Mapping[str, Change]
    headlines: tuple[str, ...]
    cost: Mapping[str, tuple[float, float]]

    def __repr__(self) -> str:
        """Return the bias and what became of its estimates; ``table`` shows differences and tests too."""
        changes = "; ".join(f"{change.label} {change.text()}" for change in self.changes.values())
        return f"Comparison({title(self.bias)} on {self.criterion}, n={self.n}: {changes})"

    @property
    def n(self) -> int:
        """Largest number of items that an estimate counts."""
        return max((change.after.n for change in self.changes.values()), default=0)

    @property
    def undefined(self) -> int:
        """Largest number of items that an estimate leaves out."""
        return max((change.after.undefined for change in self.changes.values()), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON data, in which undefined numbers are None."""
        content = {"bias": self.bias, "criterion": self.criterion, "changes": self.changes, "cost": self.cost}
        return dict(to_json(content))

    def _parts(self) -> Mapping[str, Change]:
        return self.changes

    def _title(self) -> str:
        return f"{title(self.bias).capitalize()} on {self.criterion}, before -> after"

    def caption(self) -> str:
        """See ``Tabular``."""
        return SIGNIFICANCE

    def _headings(self) -> tuple[str, ...]:
        return ("estimate", "before -> after", "difference", "p", "n")

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for change in self.changes.values():
            text, difference = change.after.text, change.difference
            interval = f"{text(difference.estimate)} ({ends(text(difference.low), text(difference.high))})"
            rows.append((change.label, change.text(), interval, p_text(change.p_value), str(change.after.n)))
        return rows


def compare(
    before: Measurement,
    after: Measurement,
    *,
    n_resamples: int = 100_000,
    n_intervals: int = N_RESAMPLES,
    seed: int,
) -> Comparison:
    """Compare two judges on the items that both define.

    Args:
        before: Measurement of the first judge.
        after: Measurement of the second judge, of the same bias on the same items.
        n_resamples: Swaps of each permutation test.
        n_intervals: Bootstrap resamples of each interval.
        seed: Seed for the tests and intervals.

    Raises:
        TypeError: One is no measurement of a bias, but an audit.
        ValueError: The two measure different biases or items, or were measured differently.
    """
    _check_comparable(before, after)
    names = [name for name in before.samples if name in after.samples]
    kept = {name: _on_common_items(before.samples[name], after.samples[name]) for name in names}
    clusters = after.clusters
    sides = [
        measured(
            {name: pair[side] for name, pair in kept.items()},
            seed=seed,
            n_resamples=n_intervals,
            clusters=clusters,
            **{field: getattr(one, field) for field in ("bias", "criterion", "ids", "headlines", "columns")},
        )
        for side, one in enumerate((before, after))
    ]
    changes = {}
    for name, (first, second) in kept.items():
        difference = second.statistic.difference(
            first.values, second.values, clusters=clusters, n_resamples=n_intervals, seed=seed
        )
        test = _test(first, second, clusters, n_resamples=n_resamples, seed=seed)
        itemwise = test if clusters is None else _test(first, second, None, n_resamples=n_resamples, seed=seed)
        changes[name] = Change(sides[0].estimates[name], sides[1].estimates[name], difference, test, itemwise)
    cost = {name: (before.cost[name], after.cost[name]) for name in before.cost if name in after.cost}
    return Comparison(after.bias, after.criterion, changes, after.headlines, cost)


def _check_comparable(before: Measurement, after: Measurement) -> None:
    """Raise an error where two measurements are not of the same bias, items and settings; see ``compare``."""
    for one in (before, after):
        if not isinstance(one, Measurement):
            raise TypeError(
                f"compare takes two measurements of one bias, and one is of type {type(one).__name__}: give one bias "
                "of each audit, such as compare(before['verbosity'], after['verbosity'], seed=0)."
            )
    if (before.bias, before.criterion, before.ids) != (after.bias, after.criterion, after.ids):
        raise ValueError(
            "Before and after are of different items, criteria or biases: measure both on the same valset."
        )
    if before.clusters is not None and after.clusters is not None and [*before.clusters] != [*after.clusters]:
        raise ValueError("The items of before and after belong to different inputs: measure both on the same valset.")
    if before.provenance.get("reduction") != after.provenance.get("reduction"):
        raise ValueError("Before and after were measured with different reductions of LS: use the same.")
    for name, sample in before.samples.items():
        if name in after.samples and not sample.statistic.matches(after.samples[name].statistic):
            raise ValueError(
                f"{name} was measured before and after with different likelihoods, human scores or normalizations, or "
                "in one order and in both: use the same likelihood_lm, scores, settings and orders for both."
            )


def _on_common_items(a: Sample, b: Sample) -> tuple[Sample, Sample]:
    columns = aligned(a.values, b.values, *a.statistic.references)
    undefined = ~defined_items(*columns)
    return replace(a, values=_masked(columns[0], undefined)), replace(b, values=_masked(columns[1], undefined))


def _masked(values: FloatArray, undefined: np.ndarray) -> FloatArray:
    masked: FloatArray = values.copy()
    masked[undefined] = np.nan
    return masked


def _test(
    a: Sample, b: Sample, clusters: Sequence[str] | None, *, n_resamples: int, seed: int
) -> PermutationTest | None:
    if not b.tested:
        return None
    return paired_permutation_test(
        b.statistic, b.values, a.values, clusters=clusters, n_resamples=n_resamples, seed=seed
    )
