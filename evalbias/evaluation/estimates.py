"""Estimates with intervals, measurements of a bias, and comparisons of two judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import scipy

from evalbias.evaluation.judged import LENGTH, LENGTHS, Judged
from evalbias.evaluation.words import UNDEFINED, Status, Table, count, ends, joined, mark, p_text, signed, unsigned
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.equal_quality import Effect, within_scale
from evalbias.measures.families import holm
from evalbias.measures.resample import ALONE, Draws, Interval, p_of_interval
from evalbias.values import to_json

Part = TypeVar("Part")
Tested = TypeVar("Tested", "Estimate", "Change")


class ByName(Generic[Part]):
    """Base of results with named parts, ``result[name]``, held in the field that ``parts`` names.

    A notebook shows the view of a report.
    """

    bias: Any  # the measured bias, if the parts are its numbers
    _field: ClassVar[str]

    def __init_subclass__(cls, parts: str = "") -> None:
        super().__init_subclass__()
        cls._field = parts or cls._field

    def __getitem__(self, name: str) -> Part:
        """Return a part; KeyError lists the names of all parts."""
        if name not in self._parts:
            raise KeyError(self._lacks(name))
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    @property
    def headlines(self) -> tuple[str, ...]:
        """Names of a bias's headline numbers among the parts."""
        return tuple(name for name in self.bias.headlines if name in self._parts)

    def _repr_html_(self) -> str:
        """Return the report's view, imported when needed, because the report imports this module."""
        return str(resolve_name("evalbias.report.page:view")(self))

    @property
    def _parts(self) -> Mapping[str, Part]:
        parts: Mapping[str, Part] = getattr(self, self._field)
        return parts

    def _lacks(self, name: str) -> str:
        return f"{name!r} is not among {joined([repr(part) for part in self._parts]) or 'no names at all'}."


# Numbers and their estimates with intervals, computed by an estimator from values by item.

LEVEL = 0.05  # level at which a change is called significant
N_RESAMPLES = 2_000  # bootstrap resamples of an interval


@dataclass(frozen=True)
class Named:
    """Name and meaning of a number, independent of the judge."""

    name: str  # key in a measurement and in JSON
    label: str  # column heading in tables
    _: KW_ONLY
    says: str = ""  # the number in words, which begins a sentence and names a row; empty for the label
    null: float | None = None  # value of an unbiased judge; None if the number is not of a bias
    signed: bool = True  # True if tables show a sign
    excluded: int = 0  # items left out by definition, such as pairs of equal lengths; their values are NaN
    confounded: bool = False  # True if quality may explain it: no audit calls it biased
    only_below: bool = False  # True if only values below the null count as this bias


@dataclass(frozen=True)
class Number(Named):
    """Recipe of a number about a judge: values by item and an estimator."""

    values: FloatArray  # (n,) or (n, d) values of the judge's answers by item; NaN where undefined
    estimator: Callable[..., Interval]  # of (values, *columns, before=None, clusters=None, draws); see measures
    _: KW_ONLY
    columns: tuple[FloatArray, ...] = ()  # (n,) or (n, d) each: further columns, not from the judge
    width: float = math.inf  # points between lowest and highest score, the limit of an effect
    # True if ``compare_judges`` tests it by swaps. False for numbers that are too costly to resample 100,000 times,
    # whose interval has its own test, or that are not about the judge.
    tested: bool = True

    def value(self, clusters: Sequence[object] | None = None) -> float:
        """Compute the number without its interval; NaN if no item defines it."""
        return self.estimator(self.values, *self.columns, clusters=clusters, draws=ALONE).value

    def estimate(
        self, clusters: Sequence[object] | None = None, *, seed: int, n_resamples: int = N_RESAMPLES
    ) -> Estimate:
        """Compute it with its 95 % bootstrap interval over inputs (``Judged.clusters``), and its p against the null."""
        draws = Draws(seed=seed, resamples=n_resamples, swaps=0)
        interval = self.estimator(self.values, *self.columns, clusters=clusters, draws=draws)
        if isinstance(interval, Effect):
            interval = within_scale(interval, self.width)
        p_value = math.nan if self.null is None else interval.p_value
        if self.null is not None and math.isnan(p_value):  # the interval has no test of its own
            p_value = p_of_interval(interval.value, interval.low, interval.high, null=self.null, units=interval.units)
        content = {f.name: getattr(interval, f.name) for f in fields(Estimate) if hasattr(interval, f.name)}
        content |= {f.name: getattr(self, f.name) for f in fields(Named)}
        content |= {"p_value": p_value, "undefined": len(self.values) - interval.n - self.excluded}
        if isinstance(interval, Effect):
            content |= {"points": interval.score_sd, "allowance": max(map(abs, interval.allowance))}
        return Estimate(**content)

    def change(
        self, before: FloatArray, clusters: Sequence[object] | None = None, *, seed: int, n_resamples: int, swaps: int
    ) -> Interval:
        """Compute its difference from another judge's number, with the paired interval and test."""
        draws = Draws(seed=seed, resamples=n_resamples, swaps=swaps if self.tested else 0)
        return self.estimator(self.values, *self.columns, before=before, clusters=clusters, draws=draws)

    def like(self, other: Number) -> bool:
        """Return whether another number has the same estimator with the same settings and columns."""
        # equal partials are unequal objects with equal reprs: they hold only names and numbers, columns are apart
        alike = repr(self.estimator) == repr(other.estimator) and len(self.columns) == len(other.columns)
        return alike and all(map(partial(np.array_equal, equal_nan=True), self.columns, other.columns))


@dataclass(frozen=True)
class Estimate(Interval, Named):
    """A number about a judge, with its 95 % interval over items, or over inputs that several items share.

    Its p-value is two-sided against ``null``, NaN without a null. The fields below are those of an ``Effect``.
    """

    _: KW_ONLY
    points: float = math.nan  # points, log-odds or verdicts per standard deviation of the score, if that is the unit
    reliability: float = math.nan
    systems: int = 0
    few_systems: int = 0
    allowance: float = 0.0  # largest effect due to the ends of the scales, which widens the interval

    def text(self, value: float | None = None) -> str:
        """Format the estimate, or another value in its form."""
        value = self.value if value is None else value
        return signed(value) if self.signed else unsigned(value)

    @classmethod
    def of(cls, e: Interval, name: str, label: str = "", *, null: float | None = None, signed: bool = True) -> Estimate:
        """Return an interval with a name, which is also the default of its label."""
        return cls(**vars(e), name=name, label=label or name, null=null, signed=signed)

    def less_null(self) -> Estimate:
        """Return the estimate as a distance from an unbiased judge."""
        return replace(self.scaled(1, less=self.null or 0.0), null=0.0, signed=True)

    @property
    def words(self) -> str:
        """Description of the number, for the beginning of a sentence and the name of a row."""
        return self.says or self.label[:1].upper() + self.label[1:]

    @property
    def interval(self) -> str:
        """Text of the 95 % interval."""
        return ends(self.text(self.low), self.text(self.high))

    @property
    def with_interval(self) -> str:
        """Text of the estimate, with its interval in brackets."""
        return UNDEFINED if math.isnan(self.value) and math.isnan(self.low) else f"{self.text()} ({self.interval})"

    @property
    def why_undefined(self) -> str:
        """Reason why the number is undefined, as far as known."""
        return self.reason or ("these items do not tell it" if self.n else "no item has all that it needs")

    def sentence(self) -> str:
        """Describe the estimate, its interval and the value of an unbiased judge."""
        unbiased = "" if self.null is None else f"; an unbiased judge has {self.text(self.null)}"
        items = count(self.n, "item") + (f", {self.undefined} undefined" if self.undefined else "")
        items += f", {self.excluded} excluded" if self.excluded else ""
        if math.isnan(self.value):
            return f"{self.label} is undefined: {self.why_undefined} ({items})."
        return f"{self.label} {self.text()} (95 % interval {self.interval}{unbiased}; {items})."


# Measurement of a bias of a judge: estimates, and everything they were computed from.


@dataclass(frozen=True, repr=False)
class Measurement(ByName[Estimate], parts="estimates"):
    """A bias of a judge measured on n items; ``measurement["fairness"]`` is an estimate.

    Attributes:
        bias: The measured bias.
        criterion: Name of the judged criterion.
        ids: Identifiers of the items.
        estimates: Name -> estimate.
        numbers: Name -> recipe of the estimate.
        columns: Name -> (n,) or (n, d) numbers about the items.
        coverage: Median probability that any answer follows; NaN where unknown.
        cost: Name -> amount that the measurement used, such as judgments.
        notes: Name -> count of other events, such as ties.
        provenance: Settings that decide the numbers.
        clusters: (n,) input of each item, whose items are resampled and swapped together; None if all differ.
        judged: The judge's answers; None if the numbers are about something else, such as whole rankings.
    """

    bias: Any
    criterion: str
    ids: tuple[str, ...]
    estimates: Mapping[str, Estimate]
    numbers: Mapping[str, Number] = field(compare=False)
    columns: Mapping[str, FloatArray] = field(compare=False)
    coverage: float = float("nan")
    cost: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    clusters: Sequence[str] | None = field(default=None, compare=False)
    judged: Judged | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return the bias and its estimates; ``table`` shows them in rows, ``columns`` the numbers by item."""
        estimates = "; ".join(f"{e.label} {e.with_interval}" for e in self.estimates.values())
        return f"Measurement({self.bias.title} on {self.criterion}, n={len(self.ids)}: {estimates})"

    @property
    def undefined(self) -> dict[str, int]:
        """Column -> number of items for which it is undefined; without columns that are always defined."""
        counts = {name: int((~defined(column)).sum()) for name, column in self.columns.items()}
        return {name: amount for name, amount in counts.items() if amount}

    def to_dict(self, *, items: bool = True) -> dict[str, Any]:
        """Return everything but the numbers, and the columns only with ``items``, as JSON data; NaN becomes None."""
        names = ("criterion", "estimates", "undefined", "coverage", "cost", "notes", "provenance")
        content = {"bias": self.bias.name, **{name: getattr(self, name) for name in names}}
        return dict(to_json({**content, "items": {"id": self.ids, **self.columns}} if items else content))

    def table(self) -> Table:
        """Return a table with a row for each estimate; empty columns are left out."""
        rows = []
        for e in self.estimates.values():
            left_out = ((e.undefined, "undefined"), (e.excluded, "excluded"))
            unbiased = "" if e.null is None else f"{e.null:g}"
            lost = ", ".join(f"{amount} {word}" for amount, word in left_out if amount)
            rows.append((e.words, e.text(), e.interval, unbiased, f"{e.n:,}", lost))
        headings = ("", "value", "95 % interval", "no bias", "items", "left out")
        title = f"{self.bias.title.capitalize()} on {self.criterion}"
        return Table(headings, rows, title, self.caption()).without_empty()

    def caption(self) -> str:
        """Describe the undefined items, the inputs of the intervals, and the notes."""
        parts = [f"undefined {name.replace('_', ' ')}: {amount}" for name, amount in self.undefined.items()]
        if self.clusters is not None:
            parts.append(f"intervals over {count(max((e.units for e in self.estimates.values()), default=0), 'input')}")
        parts += [f"{name.replace('_', ' ')}: {round(amount, 2)}" for name, amount in self.notes.items()]
        return "; ".join(parts)


def measured(
    numbers: Iterable[Number],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    clusters: Sequence[str] | None = None,
    **described: Any,
) -> Measurement:
    """Estimate numbers; the other arguments are fields of ``Measurement``."""
    by_name = {number.name: number for number in numbers}
    estimates = {name: n.estimate(clusters, seed=seed, n_resamples=n_resamples) for name, n in by_name.items()}
    return Measurement(estimates=estimates, numbers=by_name, clusters=clusters, **described)


# Comparison of two judges on the same items: both estimates, their difference with its interval, and a paired test.


@dataclass(frozen=True)
class Change:
    """A number of two judges, and its difference.

    Attributes:
        before: Estimate of the first judge, on the items that both define.
        after: Estimate of the second judge, on the same items.
        difference: After minus before, with its paired 95 % interval. Its p-value is that of a paired permutation test,
            which swaps the outputs of an input together, or of the interval's own test; NaN without a test.
        p_itemwise: p-value of the same test, swapping item by item as in the papers' tables; None without swaps.
    """

    before: Estimate
    after: Estimate
    difference: Interval
    p_itemwise: float | None

    @property
    def label(self) -> str:
        """Column heading in tables."""
        return self.after.label

    @property
    def p_value(self) -> float:
        """p-value of the difference."""
        return self.difference.p_value

    def text(self) -> str:
        """Format as "before -> after" with the paper's sign of significance.

        The test is of the difference, which is large if an effect changes sign. Then significance also needs distances
        from the null whose intervals do not overlap: +0.83 -> -0.69 is not shown to be less.
        """
        null, sides = self.after.null, (self.before, self.after)
        sign = mark(self.p_value)
        if null is not None and (self.before.value - null) * (self.after.value - null) < 0:
            farthest = [max(abs(e.low - null), abs(e.high - null)) for e in sides]
            nearest = [max(e.low - null, null - e.high, 0.0) for e in sides]
            sign = sign if farthest[1] < nearest[0] or farthest[0] < nearest[1] else ""
        return f"{self.before.text()} -> {self.after.text()}{sign}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data; ``test`` and ``itemwise_test`` are None without swaps."""
        change = self.difference
        counts = {"n": change.n, "undefined": change.undefined, "units": change.units}
        swapped = self.p_itemwise is not None
        return {
            "before": self.before,
            "after": self.after,
            "difference": {"estimate": change.value, "low": change.low, "high": change.high, "reason": change.reason}
            | {"p_value": change.p_value, **counts},
            "test": {"p_value": change.p_value, **counts} if swapped else None,
            "itemwise_test": {"p_value": self.p_itemwise, **counts, "units": change.n} if swapped else None,
        }


@dataclass(frozen=True, repr=False)
class Comparison(ByName[Change], parts="changes"):
    """A bias of two judges on the same items; ``comparison["fairness"]`` is the change of an estimate.

    Attributes:
        bias: The measured bias.
        criterion: Name of the judged criterion.
        changes: Name -> change of the estimate.
        cost: Name -> amounts that the measurements (before, after) used.
    """

    bias: Any
    criterion: str
    changes: Mapping[str, Change]
    cost: Mapping[str, tuple[float, float]]

    def __repr__(self) -> str:
        """Return the bias and the changes of its estimates; ``table`` adds differences and tests."""
        changes = "; ".join(f"{change.label} {change.text()}" for change in self.changes.values())
        return f"Comparison({self.bias.title} on {self.criterion}, n={self.n}: {changes})"

    @property
    def n(self) -> int:
        """Largest number of items that an estimate counts."""
        return max((change.after.n for change in self.changes.values()), default=0)

    def to_dict(self) -> dict[str, Any]:
        content = {"bias": self.bias.name, "criterion": self.criterion, "changes": self.changes, "cost": self.cost}
        return dict(to_json(content))

    def table(self) -> Table:
        """Return a table with a row for each estimate: before, after, and their difference."""
        rows = []
        for change in self.changes.values():
            text, difference = change.after.text, change.difference
            values = (change.before.text(), change.after.text(), text(difference.value))
            interval = ends(text(difference.low), text(difference.high))
            rows.append((change.after.words, *values, interval, p_text(change.p_value)))
        headings = ("", "before", "after", "difference", "95 % interval", "p")
        return Table(headings, rows, caption=f"{self.n:,} items; p of a paired test")


def compare_judges(
    before: Measurement, after: Measurement, *, n_resamples: int = 100_000, n_intervals: int = N_RESAMPLES, seed: int
) -> Comparison:
    """Compare two judges by the same bias, on the items that both define.

    Each permutation test makes ``n_resamples`` swaps, each interval ``n_intervals`` bootstrap resamples, with ``seed``.

    TypeError if an argument is an audit, not a measurement; ValueError if the two measure different biases or items, or
    were measured differently.
    """
    _check_comparable(before, after)
    clusters, changes = after.clusters, {}
    for name, first in before.numbers.items():
        if name not in after.numbers:
            continue
        # 1 both judges on the items that both define
        second = after.numbers[name]
        common = defined(first.values, second.values)
        sides = [replace(number, values=np.array(number.values, dtype=np.float64)) for number in (first, second)]
        for number in sides:
            number.values[~common] = np.nan
        earlier, later = (number.estimate(clusters, seed=seed, n_resamples=n_intervals) for number in sides)
        # 2 the difference, and its test by swaps: of whole inputs, and item by item as in the papers' tables
        difference = sides[1].change(sides[0].values, clusters, seed=seed, n_resamples=n_intervals, swaps=n_resamples)
        p_itemwise = difference.p_value if second.tested else None
        if second.tested and clusters is not None:
            p_itemwise = sides[1].change(sides[0].values, seed=seed, n_resamples=0, swaps=n_resamples).p_value
        changes[name] = Change(earlier, later, difference, p_itemwise)
    cost = {name: (before.cost[name], after.cost[name]) for name in before.cost if name in after.cost}
    return Comparison(after.bias, after.criterion, changes, cost)


def _check_comparable(before: Measurement, after: Measurement) -> None:
    for kind in (type(before), type(after)):
        if not issubclass(kind, Measurement):
            fault = f"compare takes two measurements of one bias, and one is of type {kind.__name__}"
            example = "compare_judges(before['verbosity'], after['verbosity'], seed=0)"
            raise TypeError(f"{fault}: give one bias of each audit, such as {example}.")
    if (before.bias.name, before.criterion, before.ids) != (after.bias.name, after.criterion, after.ids):
        fault = "Before and after are of different items, criteria or biases"
        raise ValueError(f"{fault}: measure both on the same valset.")
    if before.clusters is not None and after.clusters is not None and [*before.clusters] != [*after.clusters]:
        raise ValueError("The items of before and after belong to different inputs: measure both on the same valset.")
    for name, what in (("reduction", "reductions of LS"), (LENGTH, "units of length")):
        if len({measurement.provenance.get(name) for measurement in (before, after)} - {None}) > 1:
            raise ValueError(f"Before and after were measured with different {what}: use the same.")
    for name, first in before.numbers.items():
        if name in after.numbers and not first.like(after.numbers[name]):
            ways = "with different likelihoods, human scores or normalizations, or in one order and in both"
            remedy = "use the same likelihood_lm, scores, settings and orders for both"
            raise ValueError(f"{name} was measured before and after {ways}: {remedy}.")


def worsened(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Return changes that are significantly worse (paired tests, 5 %), such as "performance +0.51 -> -0.39".

    A bias is worse if farther from the null, on its own side if it has one; an agreement is worse if lower. For scores
    this is Pearson's, because ties move rank correlations, and breaking ties is no loss.
    """
    named = [(c, name) for c in comparisons.values() for name in c.headlines]
    changes = [c["pearson" if name in ("performance", "spearman") and "pearson" in c else name] for c, name in named]
    return [f"{c.label} {c.before.text()} -> {c.after.text()}" for c in changes if _is_worse(c)]


def _is_worse(change: Change) -> bool:
    if not change.p_value < LEVEL:  # NaN is not below
        return False
    before, after, null = change.before.value, change.after.value, change.after.null
    if null is None:
        return after < before
    if change.after.only_below:
        return null - after > max(null - before, 0.0)
    return abs(after - null) > abs(before - null)


# Conclusion from an estimate; number of items needed to show a bias; items that people should label next.


def decide(e: Estimate, margin: float, p_value: float) -> Status:
    """Return the status of a distance from an unbiased judge: a bias, none of ``margin`` or more, or open."""
    if math.isnan(e.low):
        return "not measured"
    if p_value < LEVEL and not math.isnan(e.value):
        return "biased"
    return "no sign" if -margin < e.low and (e.high < margin or e.only_below) else "too few items"


def significant(results: Mapping[str, Tested]) -> dict[str, Tested]:
    """Return the estimates, or changes, whose p-value is below ``LEVEL`` after Holm's correction over all."""
    adjusted = holm([result.p_value for result in results.values()])
    return {name: result for (name, result), p in zip(results.items(), adjusted, strict=True) if p < LEVEL}


def items_needed(estimate: Estimate, wanted: float, *, tests: int = 1) -> int | None:
    """Compute the number of items needed to show an effect of size ``wanted`` in 80 % of cases.

    The standard error is derived from the wider side of the 95 % interval and shrinks with the root of the number of
    items, with as many items per input as now: n' = n ((t_{1 - .025 / tests} + t_.8) standard error / beyond)^2, with
    the quantiles of Student's t for the inputs of n' items. ``tests`` biases share an error of 5 % (Holm's first). The
    interval's allowance for the ends of the scales does not shrink: the effect must be shown to lie ``beyond`` it.

    None if no number would do: the interval or the estimate is undefined (a single rating of unknown reliability), or
    the ends of the scales alone may produce an effect of that size.
    """
    half = max(estimate.high - estimate.value, estimate.value - estimate.low) - estimate.allowance
    beyond = wanted - estimate.allowance
    if not math.isfinite(estimate.high - estimate.low + estimate.value) or not beyond > 0:
        return None
    units = estimate.units or estimate.n
    error = half / float(scipy.special.stdtrit(max(units - 1, 1), 0.975))

    def growth(factor: float) -> float:
        """Return the needed multiple of the items if Student's t has the degrees of ``factor`` times the units."""
        df = max(units * factor - 1, 1)
        quantiles = sum(float(scipy.special.stdtrit(df, level)) for level in (1 - 0.025 / tests, 0.8))
        return (quantiles * error / beyond) ** 2

    fewest = 2 / units
    if growth(fewest) <= fewest:
        return math.ceil(estimate.n * fewest)
    return math.ceil(estimate.n * scipy.optimize.brentq(lambda factor: growth(factor) - factor, fewest, growth(0.0)))


def label_next(judged: Judged, count: int, seed: int) -> list[str]:
    """Choose ``count`` items that people should label next, lowest score first; all unlabeled items if fewer.

    The unlabeled items with an answer, except for a few left out at random, are ordered by the judge's score and cut
    into ``count`` strata of equal size; an item is drawn from each. Every item then has the same chance to be labeled,
    as ``corrected_mean`` and ``corrected_rate`` need it, and the labels cover the whole range of scores: with 8 labels
    of 200 simulated items, the error of the mean was a quarter smaller than of random labels.
    """
    if count < 1:
        raise ValueError(f"count={count}: ask for at least one item.")
    scores = judged.win_shares if judged.pairwise else judged.answers
    candidates = np.flatnonzero(~np.isnan(scores) & ~judged.labeled)
    rng = np.random.default_rng(seed)
    labels = min(count, len(candidates))
    if not labels:
        return []
    shuffled = rng.permutation(candidates)[: len(candidates) // labels * labels]  # equal scores are in random order
    ordered = shuffled[np.argsort(scores[shuffled], kind="stable")]
    return [judged.ids[rng.choice(stratum)] for stratum in ordered.reshape(labels, -1)]


def rate_again(judged: Judged, count: int, seed: int) -> list[str]:
    """Choose ``count`` items with a single rating for a second person to rate: the longest and shortest, in turns.

    Effects at equal quality rest on items with two ratings, and the effect of length is estimated best from extreme
    lengths: with 60 of 300 simulated items, its error was .7 of that with random items. The second item of an input
    comes after the first item of every other; items without texts come in random order.
    """
    lengths = judged.covariates.get(LENGTHS, np.zeros(len(judged.ids)))
    values = judged.first_less_second(lengths) if lengths.ndim > 1 else lengths
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero((judged.rating_counts == 1) & ~np.isnan(values)))
    ordered = shuffled[np.argsort(values[shuffled], kind="stable")]
    from_both_ends = dict.fromkeys(np.column_stack([ordered, ordered[::-1]]).ravel().tolist())
    return [judged.ids[place] for place in in_turns(judged, [*from_both_ends])[:count]]


def in_turns(judged: Judged, places: Sequence[int]) -> list[int]:
    """Reorder places of items so that an input's second item comes after the first item of every other input."""
    inputs, before, turns = judged.inputs if len(judged.inputs) else judged.ids, Counter[str](), list[int]()
    for place in places:
        turns.append(before[inputs[place]])
        before[inputs[place]] += 1
    return [places[k] for k in np.argsort(turns, kind="stable")]
