"""Several judges of the same items: what their errors share at equal quality, and what they are worth together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import TINY, Clusters, FloatArray, IntArray, checked, cluster_codes, members_of, settled
from evalbias.measures.equal_quality import MIN_CLUSTERS, SEVERAL, SINGULAR
from evalbias.measures.ratings import Rated, pool, with_reliability
from evalbias.measures.resample import GROUPS, Interval, influences

# In z(score_j) = v_j quality + e_j, with quality of variance 1, v_j is the judge's correlation with quality, and
#
#     cov(e_j, e_k) = R_jk - v_j v_k      for the correlations R of the scores
#
# Errors against a mean rating would hold the rating's noise too, which all judges share. So v_j comes from products of
# scores and ratings, and the variance of quality from products of two different ratings (``pool``): in neither does
# noise meet itself. What it does not know: errors that an item's raters share count as quality.

MOST_JUDGES = 16  # of which all subsets are tried
FEWEST_ITEMS = 20  # fewest items from which correlations of errors are computed
NO_QUALITY = "People's ratings of an item agree no more than by chance, so they do not tell quality: rate more items."

Statistic = Callable[[FloatArray, FloatArray], FloatArray]
"""Takes correlations of K judges' scores (g, K, K) and with quality (g, K), of g samples; returns (g,) numbers."""


class Panel:
    """Scores of K judges and people's ratings of the same items, reduced to correlations without the raters' noise.

    Args:
        scores: (n, K) scores on any scales; an item that a judge left out is left out.
        ratings: (n, r) on any scale, NaN where a rater gave none. Items need two, or one with a ``reliability``.
        names: (K,) names of the judges, for messages.
        clusters: (n,) input of each item. By default every item is its own.
        systems: (n,) system that wrote each item. Of five or more, intervals also allow for errors that a system's
            outputs share: two-way clusters (Cameron, Gelbach and Miller 2011).
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only where no item has two.
        mirrored: Whether the numbers are differences within pairs, which count both ways.

    Attributes:
        correlations: (K, K) correlations of the scores.
        validities: (K,) correlations of each judge's scores with quality.
        noise: Share of the mean rating's variance that is noise.
        n: Items that count; ``undefined`` are left out.

    Raises:
        ValueError: Too few items, a judge that gives all the same score, ratings that do not tell quality, or numbers
            that do not fit together.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> quality, shared = rng.normal(size=(2, 2000, 1))
        >>> scores = quality + shared + rng.normal(size=(2000, 4))  # errors that correlate at .5
        >>> panel = Panel(scores, quality + rng.normal(size=(2000, 2)))
        >>> round(panel.estimate(error_correlation).value, 2), round(panel.votes().value, 1)  # 4 / (1 + 3 * .5) = 1.6
        (0.51, 1.6)
    """

    def __init__(
        self,
        scores: ArrayLike,
        ratings: ArrayLike,
        *,
        names: Sequence[str] = (),
        clusters: Clusters = None,
        systems: Clusters = None,
        reliability: float | None = None,
        mirrored: bool = False,
    ) -> None:
        # 1 items that all judges scored and people rated
        table, people = checked({"scores": scores, "ratings": ratings}, clusters, axes=(2,))
        counts = (~np.isnan(people)).sum(axis=1)
        scored = ~np.isnan(table).any(axis=1)
        if reliability is not None and (counts[scored] > 1).any():
            raise ValueError(SEVERAL)
        kept = scored & (counts > (reliability is None))
        self.n, self.undefined, self.judges = int(kept.sum()), int((~kept).sum()), table.shape[1]
        if self.n < FEWEST_ITEMS or not 2 <= self.judges <= MOST_JUDGES:
            raise ValueError(
                f"{self.n} items have a score of each of {self.judges} judges and "
                f"{'two ratings' if reliability is None else 'a rating'}: give at least {FEWEST_ITEMS}, of 2 to "
                f"{MOST_JUDGES} judges, or state the `reliability` of one rating (1 for objective labels)."
            )
        signs = (1.0, -1.0) if mirrored else (1.0,)
        table, people = (np.concatenate([sign * values[kept] for sign in signs]) for values in (table, people))
        table = settled(table.T).T
        # 2 their moments, also without each input, each system, and each input's outputs of one system
        rated = pool(people) if reliability is None else with_reliability(np.nansum(people, axis=1), reliability)
        codes = np.tile(cluster_codes(clusters, kept), len(signs))
        ways, self.units, self.systems = [codes], int(codes.max()) + 1, 0
        if systems is not None and len(set(written := cluster_codes(systems, kept).tolist())) >= MIN_CLUSTERS:
            by = np.tile(written, len(signs))
            ways += [by, np.unique(np.stack([codes, by]), axis=1, return_inverse=True)[1].ravel()]
            self.systems = len(set(written))
        if self.units < MIN_CLUSTERS:
            raise ValueError(f"The items are of {self.units} inputs: give items of {MIN_CLUSTERS} or more.")
        spreads = np.maximum(table.std(axis=0), TINY)
        self._ways = [_correlations((table - table.mean(axis=0)) / spreads, rated, way) for way in ways]
        self.correlations, self.validities = (part[0] for part in self._ways[0])
        for place, spreads in enumerate(np.diagonal(self._ways[0][0], axis1=1, axis2=2).T):
            if np.isnan(spreads).any():
                name = repr(names[place]) if names else str(place)
                raise ValueError(f"The judge {name} gives all the same score, but for one input at most: leave it out.")
        if np.isnan(self.validities).any():
            raise ValueError(NO_QUALITY)
        self.noise = 1 - rated.reliability

    def estimate(self, statistic: Statistic) -> Interval:
        """Estimate a number with its 95 % interval and its p against 0, from the jackknife over inputs and systems."""
        every = [statistic(*way) for way in self._ways]
        value, errors = float(every[0][0]), [float((influences(rest[1:]) ** 2).sum()) for rest in every]
        error, df = math.sqrt(errors[0]), min(self.units, GROUPS) - 1
        if self.systems:  # what an input and a system share counts once
            both = math.sqrt(max(errors[0] + errors[1] - errors[2], 0.0))
            wider = scipy.stats.t.ppf(0.975, self.systems - 1) * both > scipy.stats.t.ppf(0.975, df) * error
            error, df = (both, self.systems - 1) if wider else (error, df)
        half = float(scipy.stats.t.ppf(0.975, df)) * error
        p_value = float(2 * scipy.stats.t.sf(abs(value) / error, df)) if error > 0 else math.nan
        ends, counts = (value - half, value + half), (self.n, self.undefined, df + 1)
        return Interval(value, *ends, *counts, p_value=p_value)

    def votes(self) -> Interval:
        """Estimate how many judges with independent errors would average out as much error as these do.

        Where S is the covariance of the errors, the mean of K standardized scores has the error variance 1'S1 / K^2; of
        n judges with independent errors of the mean variance tr(S) / K, it is tr(S) / (K n). So

            n = K tr(S) / 1'S1,     K / (1 + (K - 1) rho) if all variances, and all correlations rho, are equal.

        The interval is that of 1 / n, turned over; its upper end is infinite where that may be 0. More than K votes
        have errors that go against each other.
        """
        found = self.estimate(error_left)
        value, low, high = (1 / end if end > 0 else math.inf for end in (found.value, found.high, found.low))
        reason = "" if math.isfinite(value) else "the mean of the judges has no error that these items show"
        return replace(
            found, value=value if not reason else math.nan, low=low, high=high, p_value=math.nan, reason=reason
        )


def _correlations(z: FloatArray, rated: Rated, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return (1 + G, K, K) correlations of scores and (1 + G, K) with quality: of all items, and without each cluster.

    Of more than ``GROUPS`` clusters, groups of them are left out. NaN where ratings do not tell quality.
    """
    unit, sums = max(float(rated.mean.std()), TINY), []
    columns = np.column_stack([np.ones(len(z)), z, rated.mean / unit])
    for rows in members_of(codes % GROUPS):
        products = columns[rows].T @ columns[rows]
        products[-1, -1] = rated.product[rows].sum() / unit**2  # noise never meets itself
        sums.append(products)
    whole = np.sum(sums, axis=0)
    moments = np.concatenate([whole[None], whole - np.array(sums)])
    moments /= moments[:, :1, :1].copy()
    covariances = moments[:, 1:, 1:] - moments[:, 1:, :1] * moments[:, :1, 1:]
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spreads = np.sqrt(np.where(variances > SINGULAR, variances, np.nan))  # those that vary have about 1
    found = covariances / (spreads[:, :, None] * spreads[:, None, :])
    return found[:, :-1, :-1], found[:, :-1, -1]


# Numbers of a panel, each of correlations of the scores (g, K, K) and with quality (g, K).


def error_covariances(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute covariances (g, K, K) of the errors of standardized scores at equal quality."""
    return np.asarray(correlations - validities[:, :, None] * validities[:, None, :])


def error_correlations(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute correlations (g, K, K) of the errors at equal quality; NaN of a judge without an error."""
    covariances = error_covariances(correlations, validities)
    with np.errstate(invalid="ignore", divide="ignore"):
        spreads = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        return np.asarray(covariances / (spreads[:, :, None] * spreads[:, None, :]))


def error_correlation(
    correlations: FloatArray, validities: FloatArray, *, among: Sequence[tuple[int, int]] | None = None
) -> FloatArray:
    """Compute the mean correlation (g,) of the errors of two judges, of all pairs or of those ``among``."""
    first, second = np.triu_indices(validities.shape[1], 1) if among is None else np.array(among).T
    return np.asarray(error_correlations(correlations, validities)[:, first, second].mean(axis=1))


def error_left(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute the share (g,) of the judges' mean error variance that their mean still has: one over ``Panel.votes``."""
    covariances = error_covariances(correlations, validities)
    whole = validities.shape[1] * np.trace(covariances, axis1=1, axis2=2)
    return np.asarray(covariances.sum(axis=(1, 2)) / whole)


def validity(correlations: FloatArray, validities: FloatArray, *, weights: FloatArray) -> FloatArray:
    """Compute the correlation with quality (g, ...) of sums of standardized scores with weights (..., K)."""
    variances = np.einsum("...j,gjk,...k->g...", weights, correlations, weights)
    return np.asarray(np.einsum("...j,gj->g...", weights, validities) / np.sqrt(variances))


def gain(correlations: FloatArray, validities: FloatArray, *, more: FloatArray, less: FloatArray) -> FloatArray:
    """Compute by how much (g,) a sum with weights ``more`` follows quality better than one with weights ``less``."""
    of = partial(validity, correlations, validities)
    return np.asarray(of(weights=more) - of(weights=less))


@dataclass(frozen=True)
class Subset:
    """Judges whose mean follows quality better than that of all cheaper ones."""

    members: tuple[int, ...]  # places of the judges
    cost: float
    validity: float  # correlation of the mean of their standardized scores with quality


def best_subsets(panel: Panel, costs: Sequence[float]) -> list[Subset]:
    """Find the best judges at each cost, cheapest first: no other set is as good for the same cost or less.

    All of the 2^K - 1 sets are compared by ``validity``. The best of many looks better than it is.
    """
    masks = (np.arange(1, 2**panel.judges)[:, None] >> np.arange(panel.judges)) & 1  # (sets, K)
    sums = masks @ np.asarray(costs, dtype=np.float64)
    variances = ((masks @ panel.correlations) * masks).sum(axis=1)
    heights = (masks @ panel.validities) / np.sqrt(variances)
    front, best = list[Subset](), -math.inf
    for place in np.lexsort([-heights, sums]):
        if heights[place] > best:
            best = float(heights[place])
            front.append(Subset(tuple(np.flatnonzero(masks[place]).tolist()), float(sums[place]), best))
    return front
