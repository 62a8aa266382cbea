"""Resampling: bootstrap, permutation tests, and statistics as functions of counts."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import (
    SLACK,
    TINY,
    BoolArray,
    FloatArray,
    IntArray,
    common_index,
    groups_of,
    numbers,
    settled,
)

# Resamples of items, or of clusters of items, and the arrays that they are drawn from.


CELLS = 1 << 21
"""Numbers in a chunk of resamples."""


def chunks(rows: int, width: int, cells: int = CELLS) -> Iterator[range]:
    """Split so many rows of a matrix into chunks of at most ``cells`` numbers, or of one row where that has more."""
    size = max(1, cells // max(1, width))
    for start in range(0, rows, size):
        yield range(start, min(start + size, rows))


def aligned(*arrays: ArrayLike, beside: Sequence[object] = ()) -> list[FloatArray]:
    """Return float arrays of the same n items, (n,) or (n, d) each.

    Args:
        *arrays: Numbers about the items.
        beside: What else belongs to the items and may have a pandas index: clusters, or a ``Statistic``.

    Raises:
        ValueError: Another number of axes, infinite values, different numbers of items, different pandas indexes, or
            values that are no numbers.
    """
    common_index(*arrays, *beside)
    columns = [numbers(array, f"Array {number}") for number, array in enumerate(arrays)]
    for number, column in enumerate(columns):
        if column.ndim not in (1, 2):
            raise ValueError(f"Array {number} has the shape {column.shape}: give one number, or one row, an item.")
        if np.isinf(column).any():
            raise ValueError(f"Array {number} holds an infinite value: give NaN where it is undefined.")
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise ValueError(f"The arrays have {sizes} items: give the same items in the same order.")
    return columns


def defined_items(*columns: FloatArray) -> BoolArray:
    """Return the mask (n,) of the items without a NaN."""
    undefined = [np.isnan(column).any(axis=tuple(range(1, column.ndim))) for column in columns]
    return np.asarray(~np.any(undefined, axis=0))


def cluster_codes(clusters: Sequence[object] | None, kept: BoolArray) -> IntArray:
    """Number the clusters of the kept items from 0 by first appearance; without clusters every item is its own.

    Args:
        clusters: (n,) cluster (document) of each item, or None.
        kept: (n,) mask of the m items that are kept.

    Returns:
        (m,) numbers.

    Raises:
        ValueError: Another number of entries than items, or a missing one.
    """
    if clusters is None:
        return np.arange(int(kept.sum()))
    codes: dict[object, int] = {}
    used = groups_of(clusters, kept, "clusters")
    return np.array([codes.setdefault(cluster, len(codes)) for cluster in used], dtype=np.int64)


def sums_by_cluster(values: FloatArray, codes: IntArray) -> FloatArray:
    """Sum (n, ...) values over each of G clusters, numbered by ``cluster_codes``; (G, ...)."""
    sums = np.zeros((int(codes.max()) + 1, *values.shape[1:]))
    np.add.at(sums, codes, values)
    return sums


def variance_of_mean(x: FloatArray, codes: IntArray) -> float:
    """Estimate the variance of the mean of (n,) values from two or more clusters, numbered by ``cluster_codes``."""
    sums = np.bincount(codes, weights=x - x.mean())
    return len(sums) / (len(sums) - 1) * float((sums**2).sum()) / len(x) ** 2


def drawn(codes: IntArray, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draw whole clusters with replacement, as many as there are.

    Args:
        codes: (n,) number of each item's cluster, from 0.
        resamples: Number of resamples.
        rng: Source of the draws.

    Yields:
        (k, n) how often each of k resamples holds each item.
    """
    n, units = len(codes), int(codes.max()) + 1
    for k in map(len, chunks(resamples, n)):
        cells = rng.integers(0, units, size=(k, units)) + (np.arange(k) * units)[:, None]
        counts = np.bincount(cells.ravel(), minlength=k * units).reshape(k, units).astype(np.float64)
        yield counts if units == n else counts[:, codes]


def swaps(codes: IntArray, resamples: int, rng: np.random.Generator) -> Iterator[BoolArray]:
    """Draw a random half of the clusters, of which two systems exchange their scores.

    Args:
        codes: (n,) number of each item's cluster, from 0.
        resamples: Number of resamples.
        rng: Source of the draws.

    Yields:
        (k, n) whether each of k resamples exchanges the scores of each item.
    """
    n, units = len(codes), int(codes.max()) + 1
    for k in map(len, chunks(resamples, n)):
        bits = rng.integers(0, 256, size=(k, (units + 7) // 8), dtype=np.uint8)
        swap = np.unpackbits(bits, axis=1, count=units).astype(bool)  # (k, units)
        yield swap if units == n else swap[:, codes]


def left_out(codes: IntArray, *, groups: int = 200) -> Iterator[FloatArray]:
    """Leave one cluster out at a time, or one of so many groups of clusters; yields as ``drawn``."""
    codes = codes % groups
    for some in chunks(int(codes.max()) + 1, len(codes)):
        yield (codes != np.array(some)[:, None]).astype(np.float64)


def picked(counts: FloatArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Turn counts (k, n) into items: yields the rows of one size m, and their items (rows, m)."""
    whole = counts.astype(np.int64)
    totals = whole.sum(axis=1)
    for total in np.unique(totals):
        rows = np.flatnonzero(totals == total)
        items = np.broadcast_to(np.arange(whole.shape[1]), (len(rows), whole.shape[1]))
        yield rows, np.repeat(items.ravel(), whole[rows].ravel()).reshape(len(rows), total)


# Confidence intervals over items, or over clusters of items: by the bootstrap, and of shares without it.


Method = Literal["bca", "percentile", "normal"]
METHODS = ("bca", "percentile", "normal")
FEWEST_UNITS = 6
"""Fewest units of a bootstrap interval: five random answers agree in one of 16 samples, and then all resamples do."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """A confidence interval.

    Attributes:
        low: Lower end.
        high: Upper end.
        estimate: Statistic of the data.
        n_resamples: Resamples drawn; 0 if the interval needs none.
        undefined: Resamples without a statistic, left out.
        units: Units that count as independent: clusters, or items where there are no clusters.
        p_value: p of the test against an unbiased judge that belongs to the interval; NaN where it has none.
        reason: Why the estimate is undefined, where that is known; empty where it is defined.
    """

    low: float
    high: float
    estimate: float
    n_resamples: int
    undefined: int
    units: int
    p_value: float = float("nan")
    reason: str = ""


def bootstrap_ci(
    statistic: Callable[..., FloatArray],
    *arrays: ArrayLike,
    clusters: Sequence[object] | None = None,
    method: Method = "bca",
    n_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int,
) -> ConfidenceInterval:
    """Compute a bootstrap interval over items, or over clusters of items.

    Outputs of one document share the document, so they tell less than as many outputs of different documents. With
    ``clusters``, whole documents are drawn with replacement, as many as there are, each with all of its outputs.

    ``"bca"`` corrects the percentiles for the bias of the resampled statistic and for its skewness (Efron 1987, as in
    ``scipy.stats.bootstrap``) and widens them to the quantiles of Student's t for u units, times sqrt(u / (u - 1)),
    because resamples vary too little (Hesterberg 2015). It finds the skewness by leaving out every unit once, or one of
    200 groups of units. ``"percentile"`` corrects nothing. ``"normal"`` is the estimate plus and minus the standard
    deviation of the resamples times the same quantile of Student's t. It suits differences of two systems, which are
    nearly symmetric, and statistics that jump: the order of tied US changes at once for many items, so leaving out one
    item tells nothing about the skewness.

    None is right for a statistic whose true value lies at the end of its range, such as the fairness of a fair judge;
    ``Statistic.interval`` computes such a statistic's own.

    Args:
        statistic: Takes the resampled arrays, (k, m) or (k, m, d) each, and returns (k,) values: ``spearman_rows``, or
            ``statistic.rows`` of a ``Statistic`` with its references as further arrays. m differs between calls.
        *arrays: (n,) or (n, d) each; items with a NaN are left out.
        clusters: (n,) cluster (document) of each item. By default every item is drawn by itself.
        method: ``"bca"``, ``"percentile"`` or ``"normal"``.
        n_resamples: At least 1.
        confidence: In (0, 1).
        seed: Seed for the resamples.

    Returns:
        The interval; its ends are NaN for fewer than ``FEWEST_UNITS`` units.

    Raises:
        ValueError: No arrays, different numbers of items, or parameters out of range.
    """
    if not arrays or not 0 < confidence < 1 or n_resamples < 1 or method not in METHODS:
        settings = f"confidence={confidence}, n_resamples={n_resamples}, method={method!r}"
        raise ValueError(f"{len(arrays)} arrays, {settings}: out of range.")
    columns = aligned(*arrays, beside=[clusters])
    kept = defined_items(*columns)
    columns, codes = [column[kept] for column in columns], cluster_codes(clusters, kept)

    def values(counts: FloatArray) -> FloatArray:
        computed = np.empty(len(counts))
        for rows, items in picked(counts):
            computed[rows] = statistic(*(column[items] for column in columns))
        return computed

    estimate = float(statistic(*(column[None] for column in columns))[0]) if len(codes) else np.nan
    options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
    return counted_interval(values, codes, estimate, method=method, **options)


def counted_interval(
    values: Callable[[FloatArray], FloatArray],
    codes: IntArray,
    estimate: float,
    *,
    method: Method = "bca",
    n_resamples: int,
    confidence: float,
    seed: int,
) -> ConfidenceInterval:
    """Compute the interval of ``bootstrap_ci`` for a statistic that takes resamples as counts, which saves work.

    Args:
        values: Takes counts (k, n), how often each resample holds each item, and returns (k,) values.
        codes: (n,) number of each item's cluster, from 0; see ``cluster_codes``.
        estimate: Statistic of the data.
        method: See ``bootstrap_ci``.
        n_resamples: See ``bootstrap_ci``.
        confidence: See ``bootstrap_ci``.
        seed: See ``bootstrap_ci``.
    """
    units = len(set(codes.tolist()))
    bare = ConfidenceInterval(np.nan, np.nan, estimate, n_resamples, n_resamples, units)
    if units < FEWEST_UNITS or np.isnan(estimate):
        return bare
    found = np.concatenate([values(counts) for counts in drawn(codes, n_resamples, np.random.default_rng(seed))])
    usable = found[~np.isnan(found)]
    if not len(usable):
        return bare
    levels = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if method == "bca":
        jackknife = np.concatenate([values(counts) for counts in left_out(codes)])
        levels = _corrected(levels, estimate, usable, jackknife, units)
    if method == "normal":
        low, high = estimate + usable.std() * quantiles(levels, units)
    else:
        low, high = np.quantile(usable, levels)
    return replace(bare, low=float(low), high=float(high), undefined=len(found) - len(usable))


def _corrected(levels: FloatArray, estimate: float, drawn: FloatArray, jackknife: FloatArray, units: int) -> FloatArray:
    """Correct levels of quantiles for bias and acceleration, and widen them for few units."""
    slack = SLACK * float(np.abs(drawn).max())  # rounding errors have the statistic's unit
    below = ((drawn < estimate - slack).mean() + (drawn <= estimate + slack).mean()) / 2
    edge = 1 / (2 * len(drawn))  # all resamples on one side of the estimate: as far as they can tell
    bias = scipy.special.ndtri(np.clip(below, edge, 1 - edge))
    known = jackknife[~np.isnan(jackknife)]
    influence = known.mean() - known if len(known) else np.zeros(1)
    spread = (influence**2).sum() ** 1.5
    acceleration = (influence**3).sum() / (6 * spread) if spread > 0 else 0.0
    z = bias + quantiles(levels, units)
    scale = np.maximum(1 - acceleration * z, 1e-9)  # very skewed: the outermost resample
    return np.asarray(scipy.special.ndtr(bias + z / scale))


def quantiles(levels: FloatArray, units: int) -> FloatArray:
    """Return the standard errors by which an estimate from so many resampled units deviates at most, at each level.

    They are Student's t with units - 1 degrees of freedom, times sqrt(units / (units - 1)): resamples vary that much
    too little.
    """
    return np.asarray(scipy.stats.t.ppf(levels, units - 1) * np.sqrt(units / (units - 1)))


def share_interval(
    values: ArrayLike, *, clusters: Sequence[object] | None = None, confidence: float = 0.95
) -> ConfidenceInterval:
    """Compute Wilson's interval of a mean of numbers in [0, 1], with the effective number of items.

    Resamples of 30 decisions that all agree agree too, and their interval has no width. Wilson's interval inverts the
    test of a share and keeps its coverage near 0 and 1. The n of its formula is the number of independent decisions
    that would vary as much as the mean does over the clusters (the effective sample size of Korn and Graubard 1998),
    its quantile Student's t for u units. Units that hardly differ say little about those that would, so the effective
    number is at most u + 4 m (1 - m) u^2 for the mean m: about as if one more unit differed as much as it can, and u
    where all are 0 or all 1.

    Args:
        values: (n,) numbers in [0, 1]; NaN is left out.
        clusters: (n,) cluster (document) of each item. By default every item is its own.
        confidence: In (0, 1).

    Returns:
        The interval, within [0, 1]; its ends are NaN for fewer than two units.

    Raises:
        ValueError: A value outside [0, 1], or parameters out of range.

    Examples:
        >>> found = share_interval([1.0] * 30)
        >>> round(found.low, 3), found.high
        (0.878, 1.0)
    """
    (column,) = aligned(values, beside=[clusters])
    kept = defined_items(column)
    x, codes = column[kept], cluster_codes(clusters, kept)
    if not 0 < confidence < 1 or (x < 0).any() or (x > 1).any():
        outside = x[(x < 0) | (x > 1)].tolist()
        raise ValueError(f"confidence={confidence} and the values must lie between 0 and 1; {outside[:3]} do not.")
    units = len(set(codes.tolist()))
    mean = float(x.mean()) if units else np.nan
    if units < 2:
        return ConfidenceInterval(np.nan, np.nan, mean, 0, 0, units)
    low, high = share_ends(mean, variance_of_mean(x, codes), units=units, confidence=confidence)
    return ConfidenceInterval(low, high, mean, 0, 0, units)


def stretched(found: ConfidenceInterval) -> ConfidenceInterval:
    """Return the interval of 2 x - 1 from that of a share x: from [0, 1] to [-1, 1]."""
    low, high, estimate = (2 * x - 1 for x in (found.low, found.high, found.estimate))
    return replace(found, low=low, high=high, estimate=estimate)


def share_ends(share: float, variance: float, *, units: int, confidence: float) -> tuple[float, float]:
    """Compute Wilson's interval of a share from so many units, two or more, with a variance; see ``share_interval``."""
    spread = share * (1 - share)
    most = units + 4 * spread * units**2
    size = most if variance < TINY else min(spread / variance, most)
    squared = float(scipy.stats.t.ppf((1 + confidence) / 2, units - 1)) ** 2
    center = (share + squared / (2 * size)) / (1 + squared / size)
    half = np.sqrt(squared / size * (spread + squared / (4 * size))) / (1 + squared / size)
    return float(min(share, center - half)), float(max(share, center + half))


def p_of_interval(value: float, low: float, high: float, *, null: float, units: int = 0) -> float:
    """Read a two-sided p from a 95 % interval: the distance to the null in units of the interval's half on that side.

    The half is taken for the standard errors of a 95 % interval of Student's t, 1.96 for many units, so p < .05 exactly
    where the interval excludes the null. Other p are as good as this distribution is; none is needed for a bootstrap
    interval of another level, whose tail 2,000 resamples do not resolve.

    Args:
        value: The estimate. Where it is NaN, as between bounds, or outside the interval, the middle of the interval
            stands for it.
        low: Lower end of the interval.
        high: Upper end.
        null: Value under the null hypothesis.
        units: Units (clusters, or items) of the interval; by default many.

    Returns:
        p in [0, 1]; NaN where the interval is undefined.

    Examples:
        >>> round(p_of_interval(0.196, 0.0, 0.392, null=0.0), 3), round(p_of_interval(0.3, 0.1, 0.4, null=0.0), 4)
        (0.05, 0.0033)
    """
    centre = value if low <= value <= high else (low + high) / 2  # NaN where an end is, as is all that follows
    if centre == null:
        return 1.0
    half = centre - low if centre > null else high - centre
    if half <= 0:
        return 0.0
    df = units - 1 if units > 1 else math.inf
    return float(2 * scipy.stats.t.sf(abs(centre - null) / half * scipy.stats.t.ppf(0.975, df), df))


# Statistics of one system's scores that tests and intervals compute for many resamples at once.
#
# A statistic belongs to n items. Besides a system's scores it may need arrays about the same items (``references``),
# such as the human scores that the scores are correlated with.


SHARE, SCORE_SD = "share", "standard deviations of the score"
"""Units: a number in [0, 1], and the judge's score divided by its standard deviation over the items."""

ALIKE = "all items have the same value, which does not tell how much others would differ"

Swapping = Callable[[BoolArray], tuple[FloatArray, FloatArray]]


class Statistic:
    """A number of one system's scores.

    A subclass defines ``rows``; the rest follows from it, unless a subclass has a faster ``swapping``.

    Attributes:
        references: Arrays (n,) about the items that the statistic needs besides the scores.
        index: Pandas index of the references; scores with another one are refused.
        unit: Unit of the value: ``SHARE``, ``SCORE_SD``, or empty where it has none of these.
        limits: Least and greatest value, where an interval ends.
    """

    references: tuple[FloatArray, ...] = ()
    index: Any = None
    unit: ClassVar[str] = ""
    limits: tuple[float, float] = (-np.inf, np.inf)

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the statistic of k systems or resamples.

        Args:
            scores: (k, n), or (k, n, d) for a statistic of d numbers an item.
            *references: (k, n) or (1, n) each.

        Returns:
            (k,) values; NaN where undefined.
        """
        raise NotImplementedError

    def __call__(self, scores: ArrayLike) -> float:
        """Compute the statistic of one system's scores, (n,) or (n, d)."""
        common_index(self, scores)
        return self.rows(numbers(scores, "scores")[None], *self._single()).item()

    def matches(self, other: Statistic) -> bool:
        """Return whether another statistic has the same kind, settings and references."""
        return type(self) is type(other) and all(_same(value, vars(other).get(n)) for n, value in vars(self).items())

    def keep(self, kept: BoolArray) -> Statistic:
        """Return the same statistic of a part of the items, given as a mask (n,)."""
        part = copy.copy(self)
        part.references = tuple(reference[kept] for reference in self.references)
        return part

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """Return the function from swaps (k, n) to the statistics (k,) of a and of b after the items were exchanged."""

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            mask = swap.reshape(*swap.shape, *(1,) * (a.ndim - 1))
            rows = np.where(mask, b, a), np.where(mask, a, b)
            return self.rows(rows[0], *self._single()), self.rows(rows[1], *self._single())

        return swapped

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a confidence interval of the statistic; a subclass for which the bootstrap is wrong has its own.

        Args:
            scores: (n,) or (n, d) of one system; items with a NaN are left out.
            clusters: (n,) cluster (document) of each item. By default every item is its own.
            n_resamples: Bootstrap resamples.
            confidence: In (0, 1).
            seed: Seed for the resamples.

        Returns:
            The interval, within ``limits``; its ends are NaN for fewer than ``FEWEST_UNITS`` clusters, and where all
            resamples are alike.
        """
        (own,), codes, part = self._defined([scores], clusters)
        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        found = counted_interval(lambda counts: part.resampled(own, counts), codes, part._of(own), **options)
        return _unless_alike(_within(found, *self.limits))

    def difference(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute a confidence interval of the statistic of b minus that of a, on the items that both define.

        It is the ``"normal"`` one of ``bootstrap_ci``, unless a subclass has its own.

        Args:
            a: (n,) or (n, d) of the first system.
            b: The same of the second.
            clusters: See ``interval``.
            n_resamples: See ``interval``.
            confidence: See ``interval``.
            seed: See ``interval``.
        """
        (first, second), codes, part = self._defined([a, b], clusters)

        def values(counts: FloatArray) -> FloatArray:
            return part.resampled(second, counts) - part.resampled(first, counts)

        options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
        found = counted_interval(values, codes, part._of(second) - part._of(first), method="normal", **options)
        widest = self.limits[1] - self.limits[0]
        return _within(found, -widest, widest)

    def _defined(
        self, systems: list[ArrayLike], clusters: Sequence[object] | None
    ) -> tuple[list[FloatArray], IntArray, Statistic]:
        """Return systems, clusters and the statistic of the items that are defined everywhere."""
        columns = aligned(*systems, *self.references, beside=[self, clusters])
        kept = defined_items(*columns)
        own = [settled(column[kept].T).T for column in columns[: len(systems)]]
        return own, cluster_codes(clusters, kept), self.keep(kept)

    def _of(self, scores: FloatArray) -> float:
        return self(scores) if len(scores) else float("nan")

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """Compute the statistic of k resamples of one system's scores; a subclass may have a faster way.

        Args:
            scores: (n,) or (n, d).
            counts: (k, n) how often each resample holds each item.

        Returns:
            (k,) values; NaN where undefined.
        """
        values = np.empty(len(counts))
        for rows, items in picked(counts):
            values[rows] = self.rows(scores[items], *(reference[items] for reference in self.references))
        return values

    def _single(self) -> tuple[FloatArray, ...]:
        return tuple(reference[None] for reference in self.references)


def _within(found: ConfidenceInterval, low: float, high: float) -> ConfidenceInterval:
    """Return an interval within the limits of its statistic."""
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def _unless_alike(found: ConfidenceInterval) -> ConfidenceInterval:
    """Return an interval with undefined ends where it has no width: equal items do not tell how much others differ."""
    if found.high - found.low > SLACK * max(abs(found.low), abs(found.high)) or np.isnan(found.low):
        return found
    return replace(found, low=float("nan"), high=float("nan"), reason=ALIKE)


class MeanStatistic(Statistic):
    """Mean of the scores."""

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute the means; see ``Statistic``."""
        return np.asarray(scores.mean(axis=1))

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        return np.asarray(counts @ scores / counts.sum(axis=1))


class BoundedStatistic(Statistic):
    """A statistic in [0, 1] of numbers in [0, 1], from whose own interval that of a difference follows."""

    unit: ClassVar[str] = SHARE

    def difference(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic``: the interval of the statistic of (1 + b - a) / 2, brought to the scale of b - a."""
        first, second = aligned(a, b, beside=[self, clusters])
        found = self.interval((1 + second - first) / 2, clusters=clusters, confidence=confidence, seed=seed)
        return stretched(found)


class ShareStatistic(BoundedStatistic, MeanStatistic):
    """Mean of numbers in [0, 1], such as wins; its interval keeps its coverage near 0 and 1."""

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic`` and ``share_interval``; nothing is resampled."""
        return share_interval(scores, clusters=clusters, confidence=confidence)


def _same(a: object, b: object) -> bool:
    if isinstance(a, Statistic) and isinstance(b, Statistic):
        return a.matches(b)
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(value, b[name]) for name, value in a.items())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b, equal_nan=True)
    return a is b or bool(a == b)


# Coefficients of agreement in [-1, 1] as statistics, with intervals that have a width where all items agree.


class CorrelationStatistic(Statistic):
    """A correlation, or another coefficient in [-1, 1] that is 1 for perfect agreement, such as kappa or alpha."""

    limits = (-1.0, 1.0)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Compute Wilson's interval of the share (1 + coefficient) / 2; see ``Statistic``.

        Items that agree perfectly have no variance, and resamples of them agree perfectly too. So the coefficient has
        the interval of a share with the same variance, which has a width there (``share_ends``): about as if one more
        cluster disagreed as much as it can. The variance is that of the jackknife over clusters, or over 200 groups of
        them; ``n_resamples`` and ``seed`` are for statistics that jump, whose variance is that of the bootstrap.
        """
        (own,), codes, part = self._defined([scores], clusters)
        assert isinstance(part, CorrelationStatistic)  # a part is of the same kind
        units, value = len(set(codes.tolist())), part._of(own)
        if units < FEWEST_UNITS or np.isnan(value):
            return ConfidenceInterval(np.nan, np.nan, value, 0, 0, units)
        variance = part._variance(own, codes, n_resamples=n_resamples, seed=seed)
        ends = share_ends((1 + value) / 2, variance / 4, units=units, confidence=confidence)
        low, high = (2 * end - 1 for end in ends)
        return ConfidenceInterval(low, high, value, 0, 0, units)

    def _variance(self, scores: FloatArray, codes: IntArray, *, n_resamples: int, seed: int) -> float:
        """Estimate the variance of the coefficient."""
        return jackknife_variance(np.concatenate([self.resampled(scores, counts) for counts in left_out(codes)]))


def jackknife_variance(values: FloatArray) -> float:
    """Estimate the variance of a statistic from its values without each cluster (Efron and Stein 1981)."""
    known = values[~np.isnan(values)]
    return float((len(known) - 1) * known.var()) if len(known) else 0.0


class MeanCorrelationStatistic(MeanStatistic):
    """Mean of coefficients in [-1, 1], such as the correlation in each document."""

    limits = (-1.0, 1.0)

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """See ``Statistic``; it is the ``share_interval`` of (1 + coefficient) / 2, and nothing is resampled."""
        common_index(scores, clusters)
        shares = (1 + numbers(scores, "scores")) / 2
        return stretched(share_interval(shares, clusters=clusters, confidence=confidence))


# The paired permutation test of two systems, vectorized.


@dataclass(frozen=True)
class PermutationTest:
    """A paired test of two systems.

    Attributes:
        statistic_a: Statistic of the first system.
        statistic_b: Statistic of the second system.
        difference: ``statistic_a - statistic_b``.
        p_value: Two-sided, in [1 / (n_resamples + 1), 1]; NaN if a statistic is undefined.
        n_resamples: Random swaps drawn.
        n: Items that count.
        undefined: Items left out because a number is NaN.
        units: Units that were swapped: clusters, or items where there are no clusters.
    """

    statistic_a: float
    statistic_b: float
    difference: float
    p_value: float
    n_resamples: int
    n: int
    undefined: int
    units: int


def paired_permutation_test(
    statistic: Statistic,
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters: Sequence[object] | None = None,
    n_resamples: int = 100_000,
    seed: int,
) -> PermutationTest:
    """Test whether two systems differ, by a two-sided randomized pairwise permutation test (the paper: R = 100000).

    Each resample swaps the two systems' scores on a random half of the units; p is the share of resamples, the data
    itself among them, whose difference is larger in magnitude than the observed one. A resample without a statistic
    counts too, so that undefined values never make a difference significant.

    A tie counts half (mid-p): a share of a few decisions takes few values, and where ties count in full, two equal
    judges that are consistent in 70 % of 30 pairs differ "significantly" in 1.6 % of samples instead of 5 % (Fagerland
    et al. 2013 recommend mid-p for such pairs). Without ties nothing changes: the resamples that swap every unit or
    none are the data, and count in full. Two systems without a difference have p = 1.

    Two systems may use the scale differently, and then their scores are not exchangeable although they rank the items
    alike. So a rank correlation swaps z-scores, of each system's ranks, scores or US (``RankStatistic.swapping``).

    Without ``clusters`` the units are items, as in the paper. This is right under the null hypothesis that the systems
    are exchangeable item by item: what one scores too high on an item says nothing about its other items. Outputs of
    one document share the document, and a system that misreads it errs on all of them alike. Then only whole documents
    are exchangeable, and swapping items rejects too often: give the document of each item as ``clusters``. Swapping
    documents is right under both hypotheses, but m documents have no p below 2^(1 - m).

    The test is about the statistic, so its null hypothesis can hold in several ways; then it rejects less often than
    the level says. See ``FairnessStatistic``. Two systems with equal statistics need not be exchangeable: with rho .9
    each, one that repeats people's scores but guesses a tenth of the items and one that is always a little off differ
    "significantly" in 29 % of samples of 20 items, 11 % of 100 and 7 % of 200, because the first one's rho is skewed.

    Args:
        statistic: ``performance_statistic(...)``, ``bias_score_statistic(...)``, ``MeanStatistic()`` or another.
        a: (n,) or (n, d) scores of the first system.
        b: Scores of the second system on the same items.
        clusters: (n,) cluster (document) of each item; the items of a cluster are swapped together.
        n_resamples: At least 1.
        seed: Seed for the swaps.

    Raises:
        ValueError: Different numbers of items, or fewer than one resample.
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: draw at least one.")
    first, second, *references = aligned(a, b, *statistic.references, beside=[statistic, clusters])
    kept = defined_items(first, second, *references)
    codes = cluster_codes(clusters, kept)
    first, second, part = first[kept], second[kept], statistic.keep(kept)
    n, units = int(kept.sum()), len(set(codes.tolist()))
    values = (part(first), part(second)) if n > 1 else (np.nan, np.nan)
    difference = values[0] - values[1]
    slack = SLACK * max(map(abs, values))  # rounding errors have the statistic's unit
    p = 1.0 if abs(difference) <= slack else np.nan
    if abs(difference) > slack:
        extreme = _extreme(part, first, second, codes, abs(difference), n_resamples, np.random.default_rng(seed))
        p = (1 + extreme) / (1 + n_resamples)
    return PermutationTest(values[0], values[1], difference, p, n_resamples, n, int((~kept).sum()), units)


def _extreme(
    statistic: Statistic,
    a: FloatArray,
    b: FloatArray,
    codes: IntArray,
    observed: float,
    resamples: int,
    rng: np.random.Generator,
) -> float:
    """Count the swaps whose difference is larger than the observed one, and half of those that tie with it."""
    swapped, extreme = statistic.swapping(a, b), 0.0
    for swap in swaps(codes, resamples, rng):
        first, second = swapped(swap)
        size = np.abs(first - second)
        slack = SLACK * np.maximum(observed, np.maximum(np.abs(first), np.abs(second)))
        tied = np.abs(size - observed) <= slack
        data = swap.all(axis=1) | ~swap.any(axis=1)  # both systems are whole, so this resample is the data itself
        extreme += float((~(size <= observed) | tied).sum()) - (tied & ~data).sum() / 2  # NaN counts
    return extreme
