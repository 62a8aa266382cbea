"""Confidence intervals over items, or over clusters of items: by the bootstrap, and of shares without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import SLACK, TINY, FloatArray, IntArray
from evalbias.measures.resampling import (
    aligned,
    cluster_codes,
    defined_items,
    drawn,
    left_out,
    picked,
    variance_of_mean,
)

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
