"""Estimates and their errors: a single statistic of counted items serves bootstrap, jackknife and permutation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike
from typing_extensions import Unpack

from evalbias.measures import arrays
from evalbias.measures.arrays import SLACK, TINY, Before, BoolArray, Clusters, FloatArray, IntArray, checked, complete

# A statistic here is a function ``f(counts, *columns) -> (k,)``. ``counts`` (k, n) says how often each of k resamples
# holds each of n items; the columns, (n,) or (n, d) each, are the same for all of them. Then a row of ones is the data,
# draws of whole clusters are the bootstrap, rows without one cluster each are the jackknife, and a swap of two judges
# is a resample of their 2n scores that holds every item once, from either judge. So a measure writes its formula
# once, and its interval, that of a change between two judges and the paired test of that change follow. A measure with
# an interval of its own has the form of ``estimate``: ``(values, ..., *, before=None, clusters=None, draws=DRAWS)``,
# where ``before`` are another judge's values, whose estimate is subtracted with the interval and test of ``change``.

CELLS = 1 << 21  # numbers in a chunk of resamples
METHODS = ("bca", "percentile", "normal", "jackknife", "bootstrap")
FEWEST_UNITS = 6  # of a bootstrap interval: five random answers agree in 1 of 16 samples, and so do all their resamples
MANY = 5_000  # most units to resample: above it, estimates are nearly normal, and ``GROUPS`` give their error
GROUPS = 200  # groups of units that are left out in turn, where there are more units than that
ALIKE = "all items have the same value, which does not tell how much others would differ"
SHARE = "share"  # unit of a number in [0, 1]

Statistic = Callable[..., FloatArray]
Swapped = Callable[[BoolArray], tuple[FloatArray, FloatArray]]
"""Function of swaps (k, n) that returns the statistics (k,) of the first and second judge after the exchange."""


@dataclass(frozen=True)
class Draws:
    """Numbers and seed of resamples; ValueError for a number out of range."""

    seed: int = 0  # of resamples and swaps
    resamples: int = 2_000  # of an interval; 0 computes values alone where an interval needs resamples
    swaps: int = 100_000  # of a paired permutation test; 0 makes none
    confidence: float = 0.95  # level of the intervals, in (0, 1)

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence={self.confidence}: give a number between 0 and 1, such as 0.95.")
        if self.resamples < 0 or self.swaps < 0:
            raise ValueError(f"resamples={self.resamples}, swaps={self.swaps}: neither can be negative.")


class Common(TypedDict, total=False):
    """Options of ``estimate`` that other estimators take and pass on."""

    before: Before
    clusters: Clusters
    exchanged: Callable[..., Swapped] | None
    draws: Draws


DRAWS = Draws()
ALONE = Draws(resamples=0, swaps=0)  # no draws, for a value without interval and test


AnyInterval = TypeVar("AnyInterval", bound="Interval")


@dataclass(frozen=True)
class Interval:
    """An estimate, or its difference between two judges, with confidence interval and test.

    The value and the ends ``low`` and ``high`` are NaN where undefined.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0  # number of items used
    undefined: int = 0  # items left out because a number is NaN
    units: int = 0  # independent units: clusters, or items without clusters
    p_value: float = math.nan  # two-sided, of its own test against an unbiased judge, or of a change; NaN without
    unit: str = ""  # unit of the value, such as ``SHARE``; empty without one
    reason: str = ""  # why the estimate or its interval is undefined, if known

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Value and both ends of the interval."""
        return self.value, self.low, self.high

    def scaled(self: AnyInterval, factor: float, *, less: float = 0.0) -> AnyInterval:
        """Return the interval with value and ends multiplied by a nonnegative factor, minus ``less``."""
        value, low, high = (factor * end - less for end in self.numbers)
        return replace(self, value=value, low=low, high=high)


# A single judge.


def estimate(
    statistic: Statistic,
    *columns: ArrayLike,
    before: Before = None,
    clusters: Clusters = None,
    method: str = "bca",
    limits: tuple[float, float] = (-np.inf, np.inf),
    exchanged: Callable[..., Swapped] | None = None,
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate a statistic with its interval over items, or over clusters: inputs with all of their outputs.

    The columns are (n,) or (n, d) each, the judge's scores first; the statistic takes those of the m items without a
    NaN, and counts (k, m). ``limits`` are its least and greatest value, ``exchanged`` is that of ``change``.

    ``"bca"`` corrects the percentiles of resamples for bias and skewness (Efron 1987, as in ``scipy.stats.bootstrap``),
    ``"percentile"`` does not; ``"normal"`` suits differences of two judges, and statistics that jump; for others see
    ``estimate_coefficient``. No method is right for a statistic whose true value is at the end of its range. Ends are
    NaN for fewer than ``FEWEST_UNITS`` clusters, and where all resamples are alike. ValueError for columns of different
    lengths, or none.

    Examples:
        >>> average = estimate(mean, [1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
        >>> average.value, round(average.low, 1), average.units
        (4.0, 1.8, 6)
    """
    if not columns or method not in METHODS:
        raise ValueError(f"{len(columns)} arrays, method={method!r}: give one or more, and one of {METHODS}.")
    if before is not None:
        return change(statistic, before, *columns, clusters=clusters, limits=limits, exchanged=exchanged, draws=draws)
    numbers = numbered(columns, clusters)
    kept, codes = complete(*numbers, clusters=clusters)
    estimated = interval(lambda counts: statistic(counts, *kept), codes, method=method, limits=limits, draws=draws)
    return replace(unless_alike(estimated), undefined=len(numbers[0]) - len(codes))


def interval(
    statistic: Callable[[FloatArray], FloatArray],
    codes: IntArray,
    *,
    method: str = "bca",
    limits: tuple[float, float] = (-np.inf, np.inf),
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate a statistic of counts (k, n) for complete items whose clusters (n,) are numbered from 0."""

    def computed(rows: Iterator[FloatArray]) -> FloatArray:
        values: FloatArray = np.concatenate([statistic(counts) for counts in rows])
        return values[~np.isnan(values)]

    value = float(statistic(np.ones((1, len(codes))))[0]) if len(codes) else math.nan
    bare = Interval(value, n=len(codes), units=int(codes.max(initial=-1)) + 1)
    if bare.units < FEWEST_UNITS or math.isnan(value) or not draws.resamples:
        return bare
    levels, units = np.array([(1 - draws.confidence) / 2, (1 + draws.confidence) / 2]), worth(codes)
    # 1. without resamples: for many units, 200 groups give the error in a tenth of the time, about 5 % less precisely
    if method == "jackknife" or (bare.units > MANY and method != "percentile"):
        variance = jackknife_variance(computed(left_out(codes)))
        ends = value + math.sqrt(variance) * scipy.special.stdtrit(min(units, GROUPS) - 1, levels)
    # 2. from resamples, which vary too little by a factor of (units - 1) / units
    elif not len(drawn := computed(bootstrapped(codes, draws.resamples, draws.seed))):
        return bare
    else:
        variance = float(drawn.var()) * units / (units - 1)
        if method == "bca":
            levels = _corrected(levels, value, drawn, computed(left_out(codes)), units)
        ends = np.quantile(drawn, levels)
        if method == "normal":
            ends = value + drawn.std() * quantiles(levels, units)
    if method in ("jackknife", "bootstrap"):
        return with_variance(bare, variance, df=units - 1, confidence=draws.confidence)
    return replace(bare, low=max(float(ends[0]), limits[0]), high=min(float(ends[1]), limits[1]))


def numbered(columns: Sequence[ArrayLike], clusters: Clusters) -> list[FloatArray]:
    """Convert columns, (n,) or (n, d) each, with ``checked``, which names them by their number."""
    return checked({f"Array {number}": column for number, column in enumerate(columns)}, clusters)


def unless_alike(bounds: Interval) -> Interval:
    """Return an interval, with undefined ends if it has no width: equal items do not show how much others differ."""
    if bounds.high - bounds.low > SLACK * max(abs(bounds.low), abs(bounds.high)) or math.isnan(bounds.low):
        return bounds
    return replace(bounds, low=math.nan, high=math.nan, reason=ALIKE)


def _corrected(levels: FloatArray, value: float, drawn: FloatArray, jackknife: FloatArray, units: float) -> FloatArray:
    """Correct levels of quantiles for bias and acceleration, and widen them for few units."""
    slack = SLACK * float(np.abs(drawn).max())  # rounding errors have the statistic's unit
    below = ((drawn < value - slack).mean() + (drawn <= value + slack).mean()) / 2
    edge = 1 / (2 * len(drawn))  # limit if all resamples are on one side of the estimate
    bias = scipy.special.ndtri(np.clip(below, edge, 1 - edge))
    influence = jackknife.mean() - jackknife if len(jackknife) else np.zeros(1)
    spread = (influence**2).sum() ** 1.5
    acceleration = (influence**3).sum() / (6 * spread) if spread > 0 else 0.0
    z = bias + quantiles(levels, units)
    scale = np.maximum(1 - acceleration * z, 1e-9)  # very skewed: the outermost resample
    return np.asarray(scipy.special.ndtr(bias + z / scale))


def quantiles(levels: FloatArray, units: float) -> FloatArray:
    """Return the largest deviation, in standard errors, of an estimate from ``units`` resampled units at each level.

    These are quantiles of Student's t (units - 1) times sqrt(units / (units - 1)), because resamples vary too little.
    """
    return np.asarray(scipy.special.stdtrit(units - 1, levels) * np.sqrt(units / (units - 1)))


# Draws, all as counts (k, n) or swaps (k, n), in chunks that fit into memory.


def chunks(rows: int, width: int, cells: int = CELLS) -> Iterator[range]:
    """Split ``rows`` rows of a matrix into chunks of at most ``cells`` numbers, or of a single row if it has more."""
    size = max(1, cells // max(1, width))
    for start in range(0, rows, size):
        yield range(start, min(start + size, rows))


def bootstrapped(codes: IntArray, resamples: int, seed: int | np.random.Generator) -> Iterator[FloatArray]:
    """Draw whole clusters with replacement, as many as there are; yields how often each resample holds each item."""
    rng, n, units = np.random.default_rng(seed), len(codes), int(codes.max()) + 1
    for k in map(len, chunks(resamples, n)):
        cells = rng.integers(0, units, size=(k, units)) + (np.arange(k) * units)[:, None]
        counts = np.bincount(cells.ravel(), minlength=k * units).reshape(k, units).astype(np.float64)
        yield counts if units == n else counts[:, codes]


def left_out(codes: IntArray) -> Iterator[FloatArray]:
    """Leave out each cluster, or each of ``GROUPS`` groups of clusters, in turn; yields like ``bootstrapped``."""
    codes = codes % GROUPS
    for some in chunks(int(codes.max()) + 1, len(codes)):
        yield (codes != np.array(some)[:, None]).astype(np.float64)


def random_swaps(codes: IntArray, swaps: int, seed: int, *, by_unit: bool = False) -> Iterator[BoolArray]:
    """Draw random halves of the clusters, in which two judges exchange their scores; yields swaps of items or units."""
    rng, n, units = np.random.default_rng(seed), len(codes), int(codes.max()) + 1
    for k in map(len, chunks(swaps, n)):
        bits = rng.integers(0, 256, size=(k, (units + 7) // 8), dtype=np.uint8)
        swap = np.unpackbits(bits, axis=1, count=units).astype(bool)  # (k, units)
        yield swap if by_unit or units == n else swap[:, codes]


# Two judges on the same items.


def change(
    statistic: Statistic,
    before: ArrayLike,
    after: ArrayLike,
    *columns: ArrayLike,
    clusters: Clusters = None,
    exchanged: Callable[..., Swapped] | None = None,
    limits: tuple[float, float] = (-np.inf, np.inf),
    draws: Draws = DRAWS,
) -> Interval:
    """Estimate the difference of a statistic between two judges on the items that both define: after minus before.

    The difference has the paired ``"normal"`` interval and the p of ``permutation_p``. The ``columns`` are not
    the judge's. ``exchanged`` takes both judges' complete scores and those columns and returns a function of swaps, for
    statistics whose raw scores cannot be exchanged (ranks).

    Examples:
        >>> gain = change(mean, [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0])
        >>> gain.value, round(float(gain.p_value), 2)  # of 16 equally likely swaps, 2 are as large as the data: .125
        (1.0, 0.13)
    """
    numbers = numbered((before, after, *columns), clusters)
    (a, b, *kept), codes = complete(*numbers, clusters=clusters)
    ends = limits[0] - limits[1], limits[1] - limits[0]

    def difference(counts: FloatArray) -> FloatArray:
        return statistic(counts, b, *kept) - statistic(counts, a, *kept)

    changed = interval(difference, codes, method="normal", limits=ends, draws=draws)
    p = math.nan
    if draws.swaps and len(codes) > 1:
        once = np.ones((1, len(codes)))
        values = statistic(once, b, *kept).item(), statistic(once, a, *kept).item()
        exchanged = exchanged or (SWAPPED_MEANS if statistic is mean else counted_swaps(statistic))
        p = permutation_p(exchanged(b, a, *kept), *values, codes, draws=draws)
    return replace(changed, p_value=p, undefined=len(numbers[0]) - len(codes))


def counted_swaps(statistic: Statistic) -> Callable[..., Swapped]:
    """Return a function from scores to statistics of swaps: a swap resamples both judges' scores, each item once."""

    def exchanged(a: FloatArray, b: FloatArray, *columns: FloatArray) -> Swapped:
        both = [np.concatenate(pair) for pair in ((a, b), *((column, column) for column in columns))]  # (2n, ...)

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            counts = np.concatenate([~swap, swap], axis=1).astype(np.float64)  # (k, 2n)
            return statistic(counts, *both), statistic(1 - counts, *both)

        return swapped

    return exchanged


@dataclass(frozen=True)
class LinearSwaps:
    """Statistics of sums over items, where a swapped item adds its terms to the other judge's sums."""

    first: FloatArray  # (n, d) terms of each item in the first judge's sums
    second: FloatArray  # (n, d)
    of_sums: Callable[[FloatArray], FloatArray]  # (k, d) sums -> (k,) statistics

    def __call__(self, swap: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return both judges' statistics after swaps (k, n)."""
        difference, first, second = self._sums
        moved = swap.astype(np.float64) @ difference  # (k, d)
        return self.of_sums(first + moved), self.of_sums(second - moved)

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the (n, d) change of sums by exchanging each item, and both judges' sums (d,)."""
        return self.second - self.first, self.first.sum(axis=0), self.second.sum(axis=0)

    def by_unit(self, codes: IntArray) -> LinearSwaps:
        """Return the same with units in place of items, which are fewer."""
        first, second = (arrays.sums_by_cluster(side, codes) for side in (self.first, self.second))
        return LinearSwaps(first, second, self.of_sums)


def swapped_means(of_means: Callable[[FloatArray], FloatArray]) -> Callable[..., LinearSwaps]:
    """Return the swaps of a function of mean scores, (k, d) to (k,)."""

    def exchanged(a: FloatArray, b: FloatArray) -> LinearSwaps:
        first, second = (x.reshape(len(x), -1) for x in (a, b))  # (n, d)
        return LinearSwaps(first, second, lambda sums: of_means(sums / len(a)))

    return exchanged


SWAPPED_MEANS = swapped_means(lambda means: means[:, 0])


def permutation_p(
    swapped: Swapped, a: float, b: float, codes: IntArray, *, draws: Draws = DRAWS, ties: float = 0.5
) -> float:
    """Test whether two judges differ, by a two-sided randomized pairwise permutation test (the paper: R = 100000).

    Each resample swaps both judges' scores on a random half of the units (``codes``, from 0); p is the share of
    resamples, the data among them, whose difference exceeds the observed one of the statistics ``a`` and ``b``. A tie
    counts half (mid-p, Fagerland et al. 2013), or as ``ties`` says: in full, two equal judges that are consistent in 70
    % of 30 pairs differ "significantly" in 1.6 % of samples instead of 5 %; in half, the error of many tests of few
    units together may be twice the level. Resamples that swap every unit or none are the data and count in full, and so
    does one without a statistic. p is at least 1 / (swaps + 1), 1 without a difference, and NaN if a statistic is
    undefined.

    Judges with equal statistics need not be exchangeable: with rho .9 each, one that guesses a tenth of the items and
    one that is always a little off differ "significantly" in 29 % of samples of 20 items and 7 % of 200.
    """
    observed, extreme = abs(a - b), 0.0
    if math.isnan(observed):
        return math.nan
    if observed <= SLACK * max(abs(a), abs(b)):  # rounding errors have the statistic's unit
        return 1.0
    if by_unit := isinstance(swapped, LinearSwaps):
        swapped = swapped.by_unit(codes)
    for swap in random_swaps(codes, draws.swaps, draws.seed, by_unit=by_unit):
        first, second = swapped(swap)
        size = np.abs(first - second)
        slack = SLACK * np.maximum(observed, np.maximum(np.abs(first), np.abs(second)))
        tied = np.abs(size - observed) <= slack
        data = swap.all(axis=1) | ~swap.any(axis=1)  # both judges are whole, so this resample is the data itself
        extreme += float((~(size <= observed) | tied).sum()) - (1 - ties) * (tied & ~data).sum()  # NaN counts
    return (1 + extreme) / (1 + draws.swaps)


# Statistics and intervals shared by several measures.


def mean(counts: FloatArray, x: FloatArray) -> FloatArray:
    """Average (n,) or (n, d) values over the items of each resample; (k,) or (k, d), NaN for an empty resample."""
    with np.errstate(invalid="ignore"):
        return np.asarray(counts @ x / counts.sum(axis=1).reshape(-1, *(1,) * (x.ndim - 1)))


def estimate_mean(x: ArrayLike, *, method: str = "bca", **options: Unpack[Common]) -> Interval:
    """Estimate the mean of (n,) numbers; options as in ``estimate``."""
    return estimate(mean, x, method=method, **options)


def estimate_share(
    x: ArrayLike, *, before: Before = None, clusters: Clusters = None, exact: bool = False, draws: Draws = DRAWS
) -> Interval:
    """Estimate a mean of (n,) numbers in [0, 1], such as wins, with Wilson's interval and the effective n.

    Resamples of 30 decisions that all agree agree too, and their interval has no width; Wilson's keeps its coverage
    near 0 and 1. Its n is the number of independent decisions that would vary as much as the mean does over the u
    clusters (Korn and Graubard 1998), its quantile Student's t for clusters of one size (``worth``). Units that hardly
    differ say little about those that would, so n is at most u + 4 m (1 - m) u^2 for the mean m: about as if one more
    unit differed as much as it can. Ends are NaN for fewer than two units. An ``exact`` interval is that of Clopper and
    Pearson for the effective n, which covers at least as often as it says, also near 0 and 1. A change from ``before``
    has the interval of (1 + x - before) / 2, and nothing is resampled but the swaps of its test. ValueError for a value
    outside [0, 1], or different lengths.

    Examples:
        >>> share = estimate_share([1.0] * 30)
        >>> round(share.low, 3), share.high
        (0.878, 1.0)
    """
    if before is not None:
        return difference_of_shares(estimate_share, before, x, clusters=clusters, draws=draws)
    (values,) = checked({"x": x}, clusters)
    (kept,), codes = complete(values, clusters=clusters)
    outside = kept[(kept < 0) | (kept > 1)]
    if len(outside):
        raise ValueError(f"The values must lie between 0 and 1; {outside[:3].tolist()} do not.")
    value = float(kept.mean()) if len(kept) else math.nan
    bare = Interval(value, n=len(kept), undefined=len(values) - len(kept), units=len(set(codes.tolist())), unit=SHARE)
    if bare.units < 2:
        return bare
    units, variance, df = bare.units, variance_of_mean(kept, codes), worth(codes) - 1
    if exact:
        size, tail = effective_size(value, variance * df / (df + 1), units), (1 - draws.confidence) / 2
        hits = value * size  # of n items without clusters, size is n
        low = float(scipy.stats.beta.ppf(tail, hits, size - hits + 1)) if hits > 0 else 0.0
        high = float(scipy.stats.beta.isf(tail, hits + 1, size - hits)) if hits < size else 1.0
        return replace(bare, low=low, high=high)
    low, high = share_ends(value, variance, units=units, df=df, confidence=draws.confidence)
    return replace(bare, low=low, high=high)


def difference_of_shares(
    own: Callable[..., Interval],
    before: ArrayLike,
    after: ArrayLike,
    *columns: FloatArray,
    statistic: Statistic = mean,
    clusters: Clusters,
    draws: Draws,
) -> Interval:
    """Estimate a difference of two shares: the interval of (1 + after - before) / 2, and the paired test.

    ``own`` estimates a share of (n,) values, linear in them; ``statistic``, the same of counts, is tested by swaps.
    """
    first, second = checked({"before": before, "after": after}, clusters)
    tested = change(statistic, first, second, *columns, clusters=clusters, draws=replace(draws, resamples=0))
    rescaled = own((1 + second - first) / 2, *columns, clusters=clusters, draws=draws)
    return replace(stretched(rescaled), p_value=tested.p_value)


def share_ends(value: float, variance: float, *, units: int, df: float, confidence: float) -> tuple[float, float]:
    """Compute Wilson's interval of a share from its variance over two or more units; see ``estimate_share``."""
    spread, size = value * (1 - value), effective_size(value, variance, units)
    squared = float(scipy.special.stdtrit(df, (1 + confidence) / 2)) ** 2
    center = (value + squared / (2 * size)) / (1 + squared / size)
    half = np.sqrt(squared / size * (spread + squared / (4 * size))) / (1 + squared / size)
    return float(min(value, center - half)), float(max(value, center + half))


def effective_size(value: float, variance: float, units: int) -> float:
    """Compute the number of independent decisions that vary as much as a share does; see ``estimate_share``."""
    spread = value * (1 - value)
    most = units + 4 * spread * units**2
    return most if variance < TINY else min(spread / variance, most)


def estimate_coefficient(
    statistic: Statistic, *columns: ArrayLike, method: str = "jackknife", **options: Unpack[Common]
) -> Interval:
    """Estimate a coefficient in [-1, 1], such as a correlation or kappa, with Wilson's interval of (1 + it) / 2.

    Resamples of items that agree perfectly agree too; the interval of a share with the same variance has a width there
    (``share_ends``). The variance is that of the jackknife over clusters, or over 200 groups of them, and by
    ``method="bootstrap"`` that of resamples, for a statistic that jumps. Arguments as in ``estimate``.
    """
    return estimate(statistic, *columns, method=method, limits=(-1.0, 1.0), **options)


def with_variance(bare: Interval, variance: float, *, df: float, confidence: float) -> Interval:
    """Give a coefficient in [-1, 1] the interval of ``estimate_coefficient``."""
    ends = share_ends((1 + bare.value) / 2, variance / 4, units=bare.units, df=df, confidence=confidence)
    return replace(bare, low=2 * ends[0] - 1, high=2 * ends[1] - 1)


def estimate_mean_coefficient(
    x: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the mean of coefficients (n,) in [-1, 1], such as each input's correlation: a stretched share."""
    if before is not None:
        return change(mean, before, x, clusters=clusters, limits=(-1.0, 1.0), draws=draws)
    (values,) = checked({"x": x}, clusters)
    return replace(stretched(estimate_share((1 + values) / 2, clusters=clusters, draws=draws)), unit="")


def influences(values: FloatArray) -> FloatArray:
    """Return each of G clusters' influence on a statistic, from its values (G, ...) without each cluster.

    The sum of squares is the jackknife's variance (Efron and Stein 1981), and ``of.T @ of`` the covariance of several.
    """
    return np.asarray((values.mean(axis=0) - values) * np.sqrt((len(values) - 1) / len(values)))


def jackknife_variance(values: FloatArray) -> float:
    """Estimate the variance of a statistic from its values without each cluster, ignoring undefined values."""
    estimates = values[~np.isnan(values)]
    return float((influences(estimates) ** 2).sum()) if len(estimates) else 0.0


def variance_of_mean(x: FloatArray, codes: IntArray) -> float:
    """Estimate the variance of the mean of (n,) values from two or more clusters, numbered from 0."""
    sums, units = np.bincount(codes, weights=x - x.mean()), worth(codes)
    return units / (units - 1) * float((sums**2).sum()) / len(x) ** 2


def worth(codes: IntArray) -> float:
    """Return the number of clusters of one size that say as much as these (n,): n^2 / sum of sizes^2, at least 2.

    A cluster with a third of the items moves a mean as much as all errors that the others show. Counted as one among
    134, such a mean's intervals of 95 % cover it in 80 to 87 % (Kish 1965, section 5.6).
    """
    sizes = np.bincount(codes)
    return max(2.0, float(sizes.sum() ** 2 / (sizes**2).sum()))


def skewed_mean_p(x: FloatArray, codes: IntArray) -> float:
    """Compute the two-sided p-value of a mean of 0 for (n,) values from G clusters, however skewed they are.

    The t statistic of the clusters' sums, transformed so that their skewness g moves it less (Hall 1992):

        t + g t^2 / (3 G^.5) + g^2 t^3 / (27 G) + g / (6 G^.5)

    NaN for a single cluster, and for clusters that do not differ.
    """
    sums = np.bincount(codes, weights=x - x.mean())
    groups, spread = len(sums), float(sums.std(ddof=1)) if len(sums) > 1 else 0.0
    if not spread > SLACK:
        return math.nan
    t = x.mean() / math.sqrt(variance_of_mean(x, codes))
    g = float((sums**3).mean()) / spread**3 / math.sqrt(groups)
    return float(2 * scipy.special.stdtr(worth(codes) - 1, -abs(t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6)))


def stretched(share: Interval) -> Interval:
    """Return the estimate of 2 x - 1 from that of a share x: from [0, 1] to [-1, 1]."""
    return share.scaled(2, less=1)


def p_of_interval(value: float, low: float, high: float, *, null: float, units: int = 0) -> float:
    """Compute a two-sided p-value from a 95 % interval: the distance to the null relative to the interval's half.

    The half is taken for the standard errors of a 95 % interval of Student's t, 1.96 for many ``units`` (the default),
    so p < .05 exactly where the interval excludes the null; other p are as good as this distribution is. The interval's
    middle stands for a value that is NaN, as between bounds, or outside of it. NaN where an end is.
    """
    centre = value if low <= value <= high else (low + high) / 2  # NaN where an end is, as is all that follows
    if centre == null:
        return 1.0
    half = centre - low if centre > null else high - centre
    if half <= 0:
        return 0.0
    df = units - 1 if units > 1 else math.inf
    return float(2 * scipy.special.stdtr(df, -abs(centre - null) / half * scipy.special.stdtrit(df, 0.975)))
