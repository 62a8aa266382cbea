"""The change of a judged mean, split into the judge's part and the system's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures import arrays, resample
from evalbias.measures.arrays import SLACK, Clusters, FloatArray, IntArray, checked, cluster_codes, mean_of_defined
from evalbias.measures.repeats import sample_moments
from evalbias.measures.resample import DRAWS, FEWEST_UNITS, Draws, Interval, bootstrapped, p_of_interval, quantiles

# An old judge scored the first period's outputs, a new judge the second's, and both scored the same anchors. The change
# of the mean is split by the scores that the new judge would have given the old outputs, g(x) for the old judge's x:
#
#     mean(new period) - mean(old period)  =  [mean g(x) - mean x]  +  [mean(new period) - mean g(x)]
#
# the judge's part and the system's. g is monotone and no shift: a judge may have become stricter with good texts alone.
# Nor is it a regression: noise in the old scores flattens that, and a period better than the anchors would be pulled
# down to them. It is the equipercentile map of the anchors' two distributions (Kolen and Brennan 2014, chapter 2),
# which equal noise in both does not change. Tied scores get the mean of the quantiles that their place takes, so the
# mean of g over the anchors is the new judge's mean there. Beyond the anchors' scores, the outermost shift holds.
#
# It does not know which judge is noisier. The slope of g is the ratio of the two spreads, right if both are
# equally noisy. If all noise is one judge's, the slope is that of a regression in one direction, and g errs by the
# difference times how far the period is from the anchors: ``unsure``. The intervals of the parts allow for that: with a
# standard error of hypot(s, unsure), an error of that size is covered in 95 % or more. Where both judges scored anchors
# several times, nothing is unsure: scores are first moved to the mean of their group until they vary only as much as
# the steady opinions do (Kelley 1947).

PARTS = ("change", "judge", "system")
FEW = "the anchors, or a period, are of fewer than six inputs"
NO_MAP = (
    "the scores of the two judges do not rise together on the anchors, so that no map tells what the new judge would "
    "have given: draw anchors from the old outputs"
)


@dataclass(frozen=True)
class SplitChange:
    """Parts of the change of a mean score, and the map between two judges' scores, in points."""

    # "change" of the mean; "judge": new judge's minus old judge's scores of the old outputs; "system", the rest: new
    # minus old outputs on the new judge's scale
    parts: dict[str, Interval]
    levels: FloatArray  # (L,) scores of the old judge on the anchors, from the lowest
    mapped: FloatArray  # (L, 3) new judge's score of equal rank for each, with the ends of its interval
    # (L, 2) number of anchors with each score, and their mean score by the new judge: noise alone moves it to the mean
    # of all anchors, so it is no part of the split
    met: FloatArray
    spread: float  # standard deviation over the anchors of the change of a score
    apart: float  # mean of the old judge's scores: old period minus anchors
    beyond: float  # share of the old period's scores beyond those of all anchors
    # possible error of both parts if all noise is one judge's, which their intervals allow for; 0 if the noise is
    # known, infinite if the scores of the two judges do not rise together
    unsure: float


def split_change(
    before: ArrayLike,
    after: ArrayLike,
    anchors_before: ArrayLike,
    anchors_after: ArrayLike,
    *,
    clusters: tuple[Clusters, Clusters, Clusters] = (None, None, None),
    draws: Draws = DRAWS,
) -> SplitChange:
    """Split the change of a mean score into the judge's part and the system's, with joint intervals over inputs.

    Args:
        before: (n,) scores of the old period's outputs by the old judge, or (n, s) of the same prompts, NaN for none.
            Empty: the anchors are the old period's outputs, judged anew.
        after: (m,) or (m, s) the same of the new period and the new judge.
        anchors_before: (a,) or (a, s) scores of the anchors by the old judge; repeated scores show its noise.
        anchors_after: (a,) or (a, s) scores of the anchors by the new judge.
        clusters: Input of each output before, after, and of each anchor; an input is drawn as a whole.
        draws: Number and seed of the bootstrap resamples, and the level of the intervals.

    Returns:
        The parts; intervals are undefined where the anchors or a period are of fewer than six inputs, and those of the
        judge's and the system's part where the scores of both judges do not rise together.

    Raises:
        ValueError: No anchor has scores of both judges, a period has none, or lengths differ.

    Examples:
        >>> old, new = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 3.5, 4.0]  # stricter with good texts
        >>> split = split_change([4.0, 5.0, 4.0], [4.0, 4.0, 4.0], old, new)
        >>> [round(split.parts[name].value, 2) for name in PARTS]
        [-0.33, -0.67, 0.33]
    """
    # 1. rows: outputs of the periods and anchors with scores, and their inputs
    scores = {"before": before, "after": after, "anchors_before": anchors_before, "anchors_after": anchors_after}
    first, second, third, fourth = (checked({name: values})[0] for name, values in scores.items())
    checked({"anchors_before": anchors_before, "anchors_after": anchors_after})
    ((first, noise), (third, of_x)), ((second, _), (fourth, of_y)) = _means(first, third), _means(second, fourth)
    kept = [~np.isnan(first), ~np.isnan(second), ~np.isnan(third + fourth)]
    names = [
        [(group, place) for place in range(len(mask))] if inputs is None else [("", str(name)) for name in inputs]
        for group, (mask, inputs) in enumerate(zip(kept, clusters, strict=True))
    ]
    codes = cluster_codes([name for group in names for name in group], np.concatenate(kept))
    places = np.split(np.arange(len(codes)), np.cumsum([int(mask.sum()) for mask in kept])[:2])
    rows = [places[2] if not len(mask) else where for mask, where in zip(kept[:2], places[:2], strict=True)]
    groups = (*rows, places[2])
    if not all(map(len, groups)):
        raise ValueError("No anchor has scores of both judges, or a period has none: give texts that were scored.")
    x, y = third[kept[2]], fourth[kept[2]]
    old, new = (first[kept[0]] if len(kept[0]) else x), (second[kept[1]] if len(kept[1]) else y)
    noises = [of_x[kept[2]], of_y[kept[2]], noise[kept[0]] if len(kept[0]) else of_x[kept[2]]]
    noise_known = not any(np.isnan(noise).any() for noise in noises)
    noises = noises if noise_known else [np.zeros(len(noise)) for noise in noises]
    columns = [(*np.unique(column, return_inverse=True), e) for column, e in zip((x, y, old), noises, strict=True)]
    levels = columns[0][0]

    # 2. the parts, how far the anchors are, and the map (k, 4 + L), in the data and in resamples of whole inputs
    def statistics(counts: FloatArray) -> FloatArray:
        weights = [counts[:, where] for where in groups]
        drawn = np.logical_and.reduce([part.any(axis=1) for part in weights])  # True if each group has an output
        ours, theirs, both = (part[drawn] for part in weights)
        first, second, anchors = (resample.mean(*pair) for pair in ((ours, old), (theirs, new), (both, x)))
        moved, mapped = _mapped(columns, (both, both, ours))
        return np.column_stack([second - first, moved - first, second - moved, first - anchors, mapped])

    values, ends = statistics(np.ones((1, len(codes))))[0], np.full((2, 4 + len(levels)), np.nan)
    units = min(len(set(codes[where])) for where in groups)
    some: Iterable[FloatArray] = bootstrapped(codes, draws.resamples, draws.seed) if units >= FEWEST_UNITS else ()
    drawn = np.concatenate([np.empty((0, 4 + len(levels))), *map(statistics, some)])
    errors = np.nanstd(drawn[:, :4], axis=0) if len(drawn) else np.zeros(4)
    # 3. uncertainty of the split: change of slope if all noise is one judge's, times the distance of the anchors beyond
    #    random sampling (twice its variance: once leaves too much of it if there is no real distance)
    apart, unsure = float(values[3]), 0.0
    if apart and not noise_known:
        together = float(np.cov(x, y)[0, 1]) if len(x) > 1 else 0.0
        far = math.sqrt(max(apart**2 - 2 * errors[3] ** 2, 0.0))
        unsure = far * (y.var(ddof=1) / together - y.std() / x.std()) if together > 0 else math.inf
    if len(drawn):
        tails = np.array([(1 - draws.confidence) / 2, (1 + draws.confidence) / 2])
        ends = np.nanquantile(drawn, tails, axis=0)
        allowed = np.hypot(errors[:3], [0.0, unsure, unsure])
        least = min(resample.worth(codes[where]) for where in groups)
        ends[:, :3] = values[:3] + allowed * quantiles(tails, least)[:, None]
    tiny = SLACK * max(float(np.abs(column).max()) for column in (old, new, x, y))
    values, ends = (np.where(np.abs(part) <= tiny, 0.0, part) for part in (values, ends))  # rounding errors of 0
    undefined, inputs = int((~kept[2]).sum()), len(set(codes[places[2]]))
    bare, parts = Interval(math.nan, n=len(x), undefined=undefined, units=inputs, unit="points"), {}
    for name, value, low, high in zip(PARTS, values.tolist(), *ends.tolist(), strict=False):
        p = p_of_interval(value, low, high, null=0.0, units=inputs) if name == "judge" else math.nan
        parts[name] = replace(bare, value=value, low=low, high=high, p_value=p)
        if why := FEW if units < FEWEST_UNITS else NO_MAP if math.isinf(low) else "":
            parts[name] = replace(bare, value=value, reason=why)
    return SplitChange(
        parts=parts,
        levels=levels,
        mapped=np.column_stack([values[4:], *ends[:, 4:]]),
        met=np.column_stack([sizes := np.bincount(columns[0][1]), np.bincount(columns[0][1], y) / sizes]),
        spread=float((y - x).std(ddof=1)) if len(x) > 1 else math.nan,
        apart=apart,
        beyond=float(((old < x.min()) | (old > x.max())).mean()),
        unsure=unsure,
    )


def _means(*parts: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Return (n,) means of a judge's single or repeated scores, (n,) or (n, s), and the variance of their noise.

    An output with a single score gets the mean noise of the others in all parts; NaN if none has several.
    """
    tables = [part if part.ndim == 2 else part[:, None] for part in parts]
    within = [sample_moments(table)[:, 1] for table in tables]
    typical, means = mean_of_defined(np.concatenate(within)), []
    for table, of_one in zip(tables, within, strict=True):
        counts = np.where((~np.isnan(table)).any(axis=1), (~np.isnan(table)).sum(axis=1), np.nan)
        means.append((np.nansum(table, axis=1) / counts, np.where(np.isnan(of_one), typical, of_one) / counts))
    return means


def _mapped(
    columns: Sequence[tuple[FloatArray, IntArray, FloatArray]], counts: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the (k,) means of the mapped scores of the old period, and the (k, L) mapped levels.

    The columns, x and y of the anchors and the old period's, are levels, the index of each score among them, and the
    variance of its noise. ``counts`` say how often each of k resamples holds each score.
    """
    # 1. shares of the levels, and levels shrunk to the mean until they vary as without noise
    shares, steady = [], []
    for (values, at, noise), weights in zip(columns, counts, strict=True):
        starts = np.append(0, np.cumsum(np.bincount(at))[:-1])
        share = np.add.reduceat(weights[:, at.argsort(kind="stable")], starts, axis=1)  # (k, L)
        share /= weights.sum(axis=1, keepdims=True)
        middle = (share @ values)[:, None]
        variance = (share * (values - middle) ** 2).sum(axis=1)
        left = arrays.ratio(variance - resample.mean(weights, noise), variance)  # the part that is not noise
        part = np.sqrt(np.where(left > SLACK, left, np.isnan(left)))[:, None]
        shares.append(share)
        steady.append(middle + part * (values - middle))
    # 2. the new judge's quantiles at the ranks of the old judge's scores
    (share, share_y, share_old), (x, y, old) = shares, steady
    places, below, mass = (np.pad(np.cumsum(s, axis=1), ((0, 0), (1, 0))) for s in (share, share_y, share_y * y))
    drawn, scores = share > 0, np.hstack([old, x])
    g = np.diff(np.reshape([*map(np.interp, places, below, mass)], places.shape), axis=1)
    np.divide(g, share, out=g, where=drawn)
    rows = [np.interp(v, knots[d], to[d]) for v, knots, to, d in zip(scores, x, g, drawn, strict=True)]
    # 3. beyond the knots, the outermost shift; the mean if all scores are equal, or all variance is noise
    low = np.where(drawn, x, np.inf).min(axis=1, keepdims=True)
    high = np.where(drawn, x, -np.inf).max(axis=1, keepdims=True)
    moved = np.where(low == high, mass[:, -1:], np.reshape(rows, scores.shape))
    moved += scores - np.clip(scores, low, high)
    return (share_old * moved[:, : old.shape[1]]).sum(axis=1), moved[:, old.shape[1] :]
