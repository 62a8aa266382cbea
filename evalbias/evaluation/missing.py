"""Judgments that a judge did not give: whether that depends on the items, and what they could change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import scipy

from evalbias.evaluation.bias import EffectBias, full_effect
from evalbias.evaluation.biases import title_of
from evalbias.evaluation.estimates import LEVEL, Number
from evalbias.evaluation.judged import LENGTHS, LIKELIHOODS, Judged, mean_of_raters
from evalbias.evaluation.words import Table, joined, p_equals, percent, signed, unsigned
from evalbias.measures.arrays import BoolArray, Clusters, FloatArray, cluster_codes, defined, sums_by_cluster
from evalbias.measures.equal_quality import Effect, EqualQuality
from evalbias.measures.families import holm
from evalbias.programs.items import length_feature

SIDES = {"quality": ("better", "worse"), "length": ("longer", "shorter"), "likelihood": ("likelier", "less likely")}
"""Property of outputs -> words for those with more and with less of it."""
SYSTEM = "system"
MEANS = {"mean": "the mean lies", "first_rate": "the win rate of the first position lies"}
"""Number besides effects that missing judgments leave open, of judges that score and that compare -> its words."""
CAPTION = (
    "weighted: each judgment by the inverse of its chance to be given; least, most: whatever the missing ones would "
    "have been within the scale (without one, the range given); effects are in standard deviations of the scores given"
)


@dataclass(frozen=True)
class Dependence:
    """Dependence of missing judgments on one property of the items, alone."""

    odds: float  # factor on the odds of a missing judgment for one standard deviation more; NaN for the systems
    p_value: float  # two-sided
    p_adjusted: float  # by Holm, for all properties
    words: str


@dataclass(frozen=True)
class MissingJudgments:
    """Judgments that are missing; of pairs, those without one in some order."""

    n: int  # of all items
    missing: int  # items without a judgment
    dependence: Mapping[str, Dependence]  # quality, length, likelihood, system, as far as known -> the dependence on it
    # "mean", of pairs "first_rate" (win rate of the first position), or the name of a bias, for its effect in standard
    # deviations of the scores -> what the missing judgments could make of it.
    bounds: Mapping[str, Bounds]
    within: tuple[float, float] | None = None  # least and greatest score given, where no scale is stated

    def sentence(self) -> str:
        """Say how many judgments are missing, on what that depends, and what they could change."""
        shown = [one.words for one in self.dependence.values() if one.p_adjusted < LEVEL]
        depends = f" They are missing {joined(shown)}." if shown else ""
        if self.dependence and not shown:
            depends = f" No dependence on {joined([*self.dependence])} is shown."
        spans = [f"{name} between {low} and {high}" for name, _, _, low, high in self.table().rows if low[-1].isdigit()]
        given = "verdicts" if "first_rate" in self.bounds else "scores"
        unit = f" (effects in standard deviations of the {given} given)" if len(spans) > 1 else ""
        ends = " between {:g} and {:g}, the least and most given,".format(*self.within) if self.within else ","
        bounds = f" Whatever they would have been{ends} over all items {joined(spans)}{unit}." if spans else ""
        share = f"({percent(self.missing / self.n)})".replace("(0 %)", "(< 1 %)")
        return f"{self.missing} of {self.n} judgments are missing {share}.{depends}{bounds}"

    def table(self) -> Table:
        """Return one row a number: from the judgments given, weighted, and the least and the most that is possible."""
        rows = []
        for name, b in self.bounds.items():
            form, words = unsigned if name in MEANS else signed, MEANS.get(name, f"the effect of {title_of(name)}")
            rows.append((words, *map(form, (b.given, b.weighted, b.low, b.high))))
        return Table(("", "given", "weighted", "least", "most"), rows, "Missing judgments", CAPTION)


def missing_judgments(judged: Judged, effects: Sequence[EffectBias], *, seed: int) -> MissingJudgments | None:
    """Describe the judgments that are missing, and what they could make of effects; None where none is, or all are."""
    absent: BoolArray = ~defined(judged.answers)
    if not absent.any() or absent.all():
        return None
    columns, systems = _properties(judged), _systems(judged)
    # 1 whether they depend on a property, each by itself, in one family of tests
    tests = {name: missing_odds(absent, columns[name], clusters=judged.clusters) for name in SIDES if name in columns}
    if len(set(systems)) > 1:
        tests[SYSTEM] = math.nan, missing_by_level(absent, systems, seed=seed)
    tests = {name: test for name, test in tests.items() if not math.isnan(test[1])}
    adjusted = holm([p_value for _, p_value in tests.values()])
    dependence = {
        name: Dependence(odds, p_value, p, _words(name, odds, p, absent, systems, judged.pairwise))
        for (name, (odds, p_value)), p in zip(tests.items(), adjusted, strict=True)
    }
    # 2 what they could change
    scores = judged.first_wins.mean(axis=1) if judged.pairwise else judged.answers
    stated = (0.0, 1.0) if judged.pairwise else judged.scale
    ends = stated or (float(np.nanmin(scores)), float(np.nanmax(scores)))
    name = "first_rate" if judged.pairwise else "mean"
    bounds = {name: bounds_of_mean(scores, _chances(np.isnan(scores), columns, np.ones_like(absent)), ends)}
    if judged.pairwise:
        ends = (-1.0, 1.0) if judged.verdicts else (math.nan, math.nan)  # log-odds have no ends
    for bias in effects:
        recipe = next((one for one in bias.numbers(judged) if one.name == bias.effect_name), None)
        if recipe is not None and not math.isnan((given := full_effect(recipe, judged.clusters)).value):
            model, name = _of_all_items(recipe), bias.feature_name
            if not math.isnan(model.effect(name).value):
                chances = _chances(np.isnan(recipe.values), columns, model.kept)
                bounds[bias.name] = bounds_of_effect(model, name, recipe.values, chances, ends, given)
    return MissingJudgments(len(absent), int(absent.sum()), dependence, bounds, None if stated else ends)


def _of_all_items(recipe: Number) -> EqualQuality:
    """Return the model of an effect, of all items: any score stands for a missing one.

    Where the reliability of one rating is given, the first rating of each item counts: of missing ones there may be
    several.
    """
    (ratings, *features), options = recipe.given, dict(cast(partial[Effect], recipe.estimator).keywords)
    if options["reliability"] is not None:
        ratings = np.where((~np.isnan(ratings)).cumsum(axis=1) == 1, ratings, np.nan)
    known = dict(zip(options.pop("names"), features, strict=True))
    return EqualQuality(np.nan_to_num(recipe.values), ratings, known, **options)


def _properties(judged: Judged) -> dict[str, FloatArray]:
    """Return what is known about items (n,): of pairs the size of their difference in quality, and sums of the rest."""
    quality = mean_of_raters(judged.ratings) if judged.rated else np.empty(0)
    columns = {"quality": np.abs(quality) if judged.pairwise else quality} if judged.rated else {}
    texts = {"likelihood": judged.covariates.get(LIKELIHOODS)}
    if LENGTHS in judged.covariates:
        texts = {"length": length_feature(judged.covariates[LENGTHS]), **texts}
    columns |= {name: x.reshape(len(x), -1).sum(axis=1) for name, x in texts.items() if x is not None}
    systems = np.array(_systems(judged))
    others = sorted({*systems.tolist()})[1:]
    return columns | {f"{SYSTEM} {one}": (systems == one).astype(np.float64) for one in others}


def _systems(judged: Judged) -> list[str]:
    """Return the system that wrote each output, of pairs both; empty where unknown."""
    return [" and ".join(sorted(set(np.ravel(one).tolist()))) for one in np.asarray(judged.writers, dtype=str)]


def _chances(absent: BoolArray, columns: Mapping[str, FloatArray], kept: BoolArray) -> FloatArray:
    """Return (n,) chances to be given of the kept items, NaN for others; where a column has a gap, the gap counts."""
    known, chances = [np.zeros(kept.sum())], np.full(len(absent), np.nan)
    for x in (column[kept] for column in columns.values()):
        gap = np.isnan(x)
        known += [gap, np.where(gap, x[~gap].sum() / max((~gap).sum(), 1), x)]
    chances[kept] = answer_chances(absent[kept], np.column_stack(known))
    return chances


def _words(name: str, odds: float, p: float, absent: BoolArray, systems: Sequence[str], pairwise: bool) -> str:
    if name == SYSTEM:
        rates = {one: float(absent[np.array(systems) == one].mean()) for one in sorted(set(systems))}
        most, least = (choose(rates, key=rates.__getitem__) for choose in (max, min))
        shares = f"in {percent(rates[most])} of {most:.80} and in {percent(rates[least])} of {least:.80}"
        return f"unevenly by system ({shares}, {p_equals(p)})"
    which = f"{'pairs of ' * pairwise}{SIDES[name][odds <= 1]} outputs"
    if pairwise and name == "quality":
        which = f"pairs that differ {'more' if odds > 1 else 'less'} in quality"
    return (
        f"more often for {which} ({max(odds, 1 / odds):.2f} times the odds for one standard deviation, {p_equals(p)})"
    )


# --- of arrays: how missing scores depend on a property, and what they could change -----------------------------------


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
    coefficients = np.zeros(len(prior))
    for _ in range(50):
        chance = scipy.special.expit(design @ coefficients)
        hessian = design.T @ (design * (chance * (1 - chance))[:, None]) + prior
        coefficients += np.clip(np.linalg.solve(hessian, design.T @ (target - chance) - prior @ coefficients), -2, 2)
    return coefficients


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
