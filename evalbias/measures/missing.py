"""Scores that are missing: whether that depends on the items, and what the missing ones could change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evalbias.measures.arrays import BoolArray, Clusters, FloatArray, cluster_codes, sums_by_cluster
from evalbias.measures.equal_quality import Effect, EqualQuality


@dataclass(frozen=True)
class Bounds:
    """A number of all items, some of whose scores are missing; NaN where the scale has no ends."""

    given: float  # from the scores that were given
    weighted: float  # the same, each score weighted by the inverse of its chance to be given
    low: float  # least value that any scores on the scale would give in place of the missing ones
    high: float


def missing_odds(absent: BoolArray, x: FloatArray, *, clusters: Clusters = None) -> tuple[float, float]:
    """Estimate by which factor the odds of a missing score (n,) change for one standard deviation more of x (n,).

    Also returns the two-sided p that they do not: that of the score test of the logistic model on the ranks of x
    (Wilcoxon's), clustered by input where inputs are lost as a whole. Both are NaN where ``absent`` or x is constant.
    """
    known = ~np.isnan(x)
    codes, lost, x = cluster_codes(clusters, known), absent[known], x[known]
    if not len(x) or np.ptp(x) == 0 or lost.all() or not lost.any():
        return math.nan, math.nan
    ranks = scipy.stats.rankdata(x) - (len(x) + 1) / 2
    parts, variance = (lost - lost.mean()) * ranks, lost.var() * (ranks**2).sum() * len(x) / (len(x) - 1)
    if clusters is not None:
        variance = max(variance, (sums_by_cluster(parts, codes) ** 2).sum())
    p_value = 2 * scipy.stats.t.sf(abs(parts.sum()) / np.sqrt(variance), max(int(codes.max()), 1))
    return float(np.exp(_logistic(((x - x.mean()) / x.std())[:, None], lost)[1])), float(p_value)


def missing_by_level(absent: BoolArray, levels: Sequence[str], *, draws: int = 2_000, seed: int = 0) -> float:
    """Return the exact p, by random draws, that the missing scores (n,) spread over the levels (n,) by chance."""
    codes = np.unique(levels, return_inverse=True)[1]
    sizes, counts = np.bincount(codes), np.bincount(codes, weights=absent)
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(sizes, int(absent.sum()), draws)
    as_uneven = (drawn**2 / sizes).sum(axis=1) >= (counts**2 / sizes).sum() * (1 - 1e-12)
    return float((1 + as_uneven.sum()) / (1 + draws))


def answer_chances(absent: BoolArray, columns: FloatArray) -> FloatArray:
    """Estimate the chance (n,) of each item to have a score, by a logistic model of columns (n, k) without gaps."""
    if absent.all() or not absent.any():  # nothing to fit, and the intercept would be infinite
        return np.full(len(absent), float(not absent.any()))
    varied = columns[:, np.ptp(columns, axis=0) > 0]
    standard = (varied - varied.mean(axis=0)) / varied.std(axis=0)
    intercept, *slopes = _logistic(standard, ~absent)
    return np.asarray(scipy.special.expit(intercept + standard @ slopes))


def _logistic(x: FloatArray, target: BoolArray) -> FloatArray:
    """Fit (k + 1,) intercept and slopes by Newton's method; a standard normal prior keeps the slopes finite."""
    design, prior = np.column_stack([np.ones(len(x)), x]), np.diag([0.0, *np.ones(x.shape[1])])
    found = np.zeros(len(prior))
    for _ in range(50):
        chance = scipy.special.expit(design @ found)
        hessian = design.T @ (design * (chance * (1 - chance))[:, None]) + prior
        found += np.clip(np.linalg.solve(hessian, design.T @ (target - chance) - prior @ found), -2, 2)
    return found


def bounds_of_mean(scores: FloatArray, chances: FloatArray, ends: tuple[float, float]) -> Bounds:
    """Bound the mean of scores (n,), NaN where missing, on a scale with these ends."""
    given = ~np.isnan(scores)
    low, high = (float(np.where(given, scores, end).mean()) for end in ends)
    return Bounds(float(scores[given].mean()), float(np.average(scores[given], weights=1 / chances[given])), low, high)


def bounds_of_effect(
    model: EqualQuality, name: str, scores: FloatArray, chances: FloatArray, ends: tuple[float, float], given: Effect
) -> Bounds:
    """Bound the effect of a feature in a model of all items, in standard deviations of the scores that were ``given``.

    The effect in points is linear in the scores (n,), NaN where missing: each missing one is put at that end of the
    scale which lowers the effect, or raises it. The model's own scores are not read.
    """
    scores, place = scores[model.kept], model.names.index(name)
    known, mirrored = np.nan_to_num(scores), len(model.x) > len(scores)  # a mirrored pair has two rows
    rated = model.rated(model.reliability or 1.0)
    design = np.column_stack([model.x, rated.mean])

    def moves(weights: FloatArray) -> FloatArray:
        """Return (n,) by how much each item's score moves the coefficient, with weights (n,) of the items."""
        weights = np.tile(weights, 1 + mirrored)
        products = design.T @ (design * weights[:, None])
        products[-1, -1] = (rated.product * weights).sum()
        rows = np.linalg.solve(products, design.T * weights)[place]
        return np.asarray(rows[: len(scores)] - rows[len(scores) :] if mirrored else rows)

    weighted, of_all = moves(~np.isnan(scores) / chances[model.kept]) @ known, moves(np.ones(len(scores)))
    reach = np.sort(np.outer(of_all[np.isnan(scores)], ends), axis=1).sum(axis=0)
    return Bounds(given.value, *(np.array([weighted, *(of_all @ known + reach)]) / given.score_sd).tolist())
