"""Effects on a judge's scores at equal quality: for likelihood, length, writer or any other feature."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.arrays import (
    BoolArray,
    Clusters,
    FloatArray,
    IntArray,
    cluster_codes,
    ratio,
    settled,
    sums_by_cluster,
)
from evalbias.measures.ratings import (
    Rated,
    curvature,
    curvature_of_differences,
    difference_of_group,
    levels_of,
    pool,
    pool_squares,
)
from evalbias.measures.resample import DRAWS, Draws, Interval, influences

SCORE_SD = "standard deviations of the score"
"""Unit of an effect: the judge's score divided by its standard deviation over the items."""
RATED_BY = "group of raters"  # beginning of the names of their columns
QUALITY = "quality"  # name of the quality among the terms of a model
MIN_CLUSTERS = 5  # fewest inputs for an interval
RELIABILITIES = (0.5, 1.0)  # range of a single rating's reliability for bounds if it is unknown
CHOICES = (1 / np.pi, 1.0)  # range for ratings of two values: half of 2/pi, that of the sign of a normal quality
STRONG = 10.0  # F of the first stage from which the usual interval holds (Staiger and Stock 1997)
SINGULAR = 1e-9  # largest variance, or eigenvalue of scaled normal equations, that counts as 0
ROUNDING = 1e-6  # largest standard error or interval width that is a rounding error of 0
LEANS = 0.4  # share of an effect's information in a single input above which its interval is widened
PARTS = 20  # parts of the inputs that are left out in turn to estimate the error of an allowance
BENT = 0.012
"""Least curvature allowed for: that of ratings from 1 to 5 around the middle, beside a judge without a scale. It need
not show in the distribution of scores and ratings, as for differences between the candidates of a pair."""
ENOUGH = 20  # fewest items with two ratings that are used alone, unless most items have two
ONE_RATING = (
    "the items have one rating, and the effect depends on its reliability: state it, or have a second person rate them"
)
SEVERAL = "All items have several ratings, which tell their reliability: leave out reliability."
UNRELATED = "what people say of an item agrees no more than its {feature} explains: collect more reliable ratings"
COLLINEAR = "the {feature} can hardly be told apart from what is held fixed: leave a covariate out"
ONE_INPUT = "without the items of one input the effect is unknown: judge outputs of more inputs"
TOO_WEAK = "the ratings are too few or too unreliable to hold the quality fixed: rate more items, or each more often"
EXACT = "the scores follow people's ratings exactly, which does not tell how far others would deviate: judge more items"


# Model. Ratings are noisy, and likely or long text is often good text: at an equal mean rating, an unbiased judge seems
# biased too, because the feature stands for quality that the rating misses. So the quality itself is held fixed. In
#
#     z(score) = a + b quality + sum_j c_j z(feature_j) + error
#
# c is 0 for a judge whose mean score depends on quality alone, whatever the noise of two or more ratings an item, each
# an instrument for the others. Two-stage least squares, stacked over their ordered pairs, is that on the mean rating h
# with h^2 replaced by P, where noise never meets itself:
#
#     sum_i X_i (y_i - X_i'c - b h_i) = 0,   sum_i h_i (y_i - X_i'c) - b P_i = 0,   P_i = mean over j != k of h_ij h_ik
#
# Limits: errors that an item's raters share count as quality, and so does their influence on each other.


@dataclass(frozen=True)
class Effect(Interval):
    """Effect of a feature on a judge's scores at equal quality, in standard deviations of the score.

    The value is the change per standard deviation of the feature, or per unit if it is not scaled. The 95 % interval
    allows for ``allowance``; if only the reliability is unknown, the value is NaN, and the interval holds for every
    reliability from .5 to 1, or from 1/pi if the rating has only two values.
    """

    standard_error: float = math.nan  # from the jackknife over inputs
    bounds: tuple[float, float] = (math.nan, math.nan)  # least and greatest effect; equal if the reliability is known
    quality: float = math.nan  # change in the score per point of quality, in standard deviations of the score
    score_sd: float = 1.0  # standard deviation of the scores, in points: ``value * score_sd`` is the effect in points
    reliability: float = math.nan  # share of the mean rating's variance that is quality; NaN if unknown
    first_stage_f: float = math.nan  # F of a rating as instrument for another; below 10, Anderson and Rubin's interval
    # least and greatest effect that the ends of the scales, and scores that bend with quality, give an unbiased judge;
    # 0 for a change, and for single ratings
    allowance: tuple[float, float] = (0.0, 0.0)
    systems: int = 0  # systems, if they are the units because their outputs' shared errors widen the interval; else 0
    few_systems: int = 0  # systems that wrote the items, if several but too few to be units; else 0

    @property
    def weak(self) -> bool:
        """True if the ratings hold the quality fixed only weakly."""
        return self.first_stage_f < STRONG


class EqualQuality:
    """Scores of a judge, ratings and features of the same items; each feature's effect holds the others fixed.

    The estimator is consistent if an item's ratings are independent given its quality and the mean score is linear in
    quality and features. Judges that compare are measured alike: pass the features of the first candidate minus those
    of the second, the log-odds that the first wins, and the differences in rating or preferences (1, 0, -1).

    Args:
        scores: (n,) Score_m on any scale.
        ratings: (n, r) on any scale, NaN where a rater gave none. Items with a single rating are left out, unless
            ``reliability`` is stated, or fewer than 20 items have two.
        features: Name -> (n,) numbers. NaN leaves the item out.
        before: (n,) scores of another judge, whose effects are subtracted.
        clusters: (n,) input of each item. By default every item is its own.
        systems: (n,) system that wrote each item. With five or more, the interval also allows for errors that a
            system's outputs share: two-way clusters (Cameron, Gelbach and Miller 2011). A change's interval does not.
        unscaled: Names of features whose effect is per unit, such as a feature that is 0 or 1.
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only if an item has just one.
        differences: Whether all numbers are differences between the candidates of pairs. The interval then allows for
            ratings near the end of their scale, which hides differences between them.
        mirrored: Whether each pair counts both ways, with all signs turned, so that it does not matter which candidate
            is named first. Not for scores of one order of showing: there the constant holds the lean to a position.

    Raises:
        ValueError: Different lengths, an infinite number, a feature called "quality", or ``reliability`` out of range.
    """

    def __init__(
        self,
        scores: ArrayLike,
        ratings: ArrayLike,
        features: Mapping[str, ArrayLike],
        *,
        before: arrays.Before = None,
        clusters: Clusters = None,
        systems: Clusters = None,
        unscaled: Sequence[str] = (),
        reliability: float | None = None,
        differences: bool = False,
        mirrored: bool = False,
    ) -> None:
        if reliability is not None and not 0 < reliability <= 1:
            raise ValueError(f"reliability={reliability} is out of range: it is a share of the variance, in (0, 1].")
        if QUALITY in features:
            raise ValueError(f"A feature is called {QUALITY!r}, as another term of the model is: rename it.")
        # 1. numbers of the same items
        judges = {"scores": scores} if before is None else {"before": before, "scores": scores}
        arrays.common_index(ratings, *judges.values(), *features.values(), clusters)
        table = arrays.numbers(ratings, "ratings")
        if table.ndim != 2:
            raise ValueError(f"ratings has the shape {table.shape}: give one row an item, (n, raters).")
        named = {**judges, "ratings": table, **features}
        columns = dict(zip(named, arrays.checked(named), strict=True))
        for name, array in columns.items():
            if array.ndim != 1 and name != "ratings":
                raise ValueError(f"{name} has the shape {array.shape}; give one number per item.")
        # 2. items with scores, every feature and a rating, or two ratings if enough items have two
        judged = np.column_stack([columns[name] for name in judges])
        usable = arrays.defined(judged, *(columns[name] for name in features)) & ~np.isnan(table).all(axis=1)
        twice = usable & ((~np.isnan(table)).sum(axis=1) > 1)
        if reliability is not None and usable.any() and (twice == usable).all():
            raise ValueError(SEVERAL)
        self.several = reliability is None and told_by_several(usable.sum(), twice.sum())
        kept = twice if self.several else usable
        self.kept, self.n, self.undefined = kept, int(kept.sum()), int((~kept).sum())
        # 3. m rows: one per item, or two per mirrored pair
        signs = (1.0, -1.0) if mirrored else (1.0,)

        def rows(values: FloatArray) -> FloatArray:
            return np.concatenate([sign * values[kept] for sign in signs])

        used = {name: rows(columns[name]) for name in features}
        scaled = [settled(x) if name in unscaled else np.nan_to_num(arrays.standardized(x)) for name, x in used.items()]
        self.ratings = rows(table)
        # raters who share no items cannot be compared: each of their groups has a mean of its own
        groups = levels_of(self.ratings)[2] if self.n else np.empty(0, dtype=np.int64)
        apart = {f"{RATED_BY} {k + 1}": groups == k for k in range(1, max(groups, default=0) + 1)}
        self.names = ["", *features, *apart]  # names of the columns: "" for the constant
        self.x = np.column_stack([np.ones(len(self.ratings)), *scaled, *apart.values()])  # (m, p)
        self.scaled = np.array([name not in ("", *unscaled) for name in self.names], dtype=np.float64)
        # (m, s), NaN if a judge gives all items the same score
        self.scores = np.column_stack([arrays.standardized(rows(column)) for column in judged.T])
        self.change = before is not None
        self.target = self.scores[:, -1] - (self.scores[:, 0] if self.change else 0.0)
        self.score_sd = 1.0 if self.change or not self.n else float(rows(judged[:, 0]).std())
        self.codes = np.tile(cluster_codes(clusters, kept), len(signs))
        self.groups = len(np.unique(self.codes))
        # (m,) codes of the systems; empty if these are too few
        codes = np.empty(0, dtype=np.int64) if systems is None or before is not None else cluster_codes(systems, kept)
        systems_of_items = len(set(codes))
        self.systems = np.tile(codes, len(signs)) if systems_of_items >= MIN_CLUSTERS else codes[:0]
        self.few_systems = systems_of_items if 1 < systems_of_items < MIN_CLUSTERS else 0
        self.reliability, self.differences = reliability, differences

    def effect(self, name: str) -> Effect:
        """Return the effect of a feature, by its name, with the other features and the quality held fixed."""
        bare = self._bare(name)
        if bare.reason:
            return bare
        if self.several or self.reliability is not None:
            effect = self._fitted(name, self.rated(self.reliability), bare)
            if not effect.standard_error <= ROUNDING:
                return effect
            # No score deviates from the ratings, so the error is unknown.
            return replace(effect, low=math.nan, high=math.nan, standard_error=math.nan, p_value=math.nan, reason=EXACT)
        ends = CHOICES if len(np.unique(self.ratings[~np.isnan(self.ratings)])) == 2 else RELIABILITIES
        return _between(bare, *(self._fitted(name, self.rated(end), bare) for end in ends))

    def _bare(self, name: str) -> Effect:
        """Return an effect without a value: counts of its items, and the reason if it cannot be fitted."""
        bare = Effect(math.nan, n=self.n, undefined=self.undefined, units=self.groups, few_systems=self.few_systems)
        return replace(bare, unit=SCORE_SD, score_sd=self.score_sd, reason=self._problem(name))

    def holding(self, name: str) -> tuple[float, float]:
        """Return the least and greatest reliability of the mean rating for which an effect's interval excludes 0.

        Precise to about .01, by intervals at every .05 from the assumed reliability, each on the same side of 0 as the
        effect's. NaN if the effect's interval includes 0, or the effect has only bounds.
        """
        taken, bare = self.effect(name), self._bare(name)
        if not (taken.low > 0 or taken.high < 0) or math.isnan(taken.value):
            return math.nan, math.nan
        rated = self.rated(self.reliability or 1.0)

        def excludes(reliability: float) -> bool:
            product = rated.product * (reliability / taken.reliability)
            effect = self._fitted(name, replace(rated, product=product), bare)
            return effect.low > 0 if taken.low > 0 else effect.high < 0

        def last(first: float, steps: FloatArray) -> float:
            for step in steps:
                if not excludes(step):
                    break
                first = step
            return float(first)

        coarse, fine, own = np.arange(1, 21) / 20, np.arange(1, 5) / 100, taken.reliability
        least, greatest = last(own, coarse[coarse < own][::-1]), last(own, coarse[coarse > own])
        return last(least, least - fine[fine < least]), last(greatest, greatest + fine[fine <= 1 - greatest])

    def rated(self, reliability: float | None) -> Rated:
        """Pool the ratings of the rows (m, r), with the ``reliability`` of a rating if items have a single rating."""
        if self.several or self.reliability is not None:
            return pool(self.ratings, None if self.several else reliability)
        return pool(np.nanmean(self.ratings, axis=1, keepdims=True), reliability)

    def _problem(self, feature: str) -> str:
        """Say why the model cannot be fitted; empty if it can."""
        least, words = self.x.shape[1] + 3, feature.replace("_", " ")
        if self.groups < MIN_CLUSTERS or self.n < least:
            items, inputs = "item" if self.n == 1 else "items", "input" if self.groups == 1 else "inputs"
            return (
                f"too few items have a score, ratings and a value of {words} ({self.n} {items} from {self.groups} "
                f"{inputs}): at least {least} items from {MIN_CLUSTERS} inputs are needed"
            )
        if np.isnan(self.scores).any() or np.ptp(self.target) <= arrays.SLACK:
            return "both judges score alike" if self.change else "all items have the same score"
        for name in (feature, *self.names[1:]):
            if np.ptp(self.x[:, self.names.index(name)]) == 0:
                return f"all items have the same {name.replace('_', ' ')}{'' if name == feature else ': leave it out'}"
        if np.ptp(settled(np.nanmean(self.ratings, axis=1))) == 0:
            return "all items have the same rating"
        if np.linalg.matrix_rank(self.x) < self.x.shape[1]:
            return f"{', '.join(self.names[1:]).replace('_', ' ')} determine each other: leave one of them out"
        return ""

    def _fitted(self, name: str, rated: Rated, bare: Effect) -> Effect:
        """Return the effect of a feature, from the ratings reduced to their mean and noise."""
        x, place = self.x, self.names.index(name)
        df = int(smaller_group(x[:, place], self.codes).sum()) - 1  # the smaller group has most of the error
        # 1. the coefficient and its error, by leaving out each input, each system, and each cell of both
        values, variance = self._jackknife(place, rated, self.codes)
        value, error = float(values[place]), math.sqrt(variance)
        if len(self.systems):
            other_units = self.systems, self._cells
            over_systems, over_cells = (self._jackknife(place, rated, codes)[1] for codes in other_units)
            both, systems = math.sqrt(max(variance + over_systems - over_cells, 0.0)), int(self.systems.max()) + 1
            if scipy.special.stdtrit(systems - 1, 0.975) * both > scipy.special.stdtrit(df, 0.975) * error:
                error, df, bare = both, systems - 1, replace(bare, units=systems, systems=systems)
        # 2. first stage: covariance of two ratings with the columns held fixed, and its clustered F
        residuals = rated.mean - x @ np.linalg.lstsq(x, rated.mean, rcond=None)[0]
        agreement, spread = rated.product + residuals**2 - rated.mean**2, rated.square + residuals**2 - rated.mean**2
        relevance = agreement.sum() / spread.sum() if spread.sum() > 0 else 0.0
        small = small_sample(self.groups, len(x), x.shape[1] + 1)
        noise = (sums_by_cluster(agreement - relevance * spread, self.codes) ** 2).sum() * small
        f = float(agreement.sum() ** 2 / noise) if noise > 0 else math.inf
        bare = replace(bare, reliability=rated.reliability)
        if not agreement.sum() > 0:
            return replace(bare, reason=UNRELATED.format(feature=name.replace("_", " ")))
        bare = replace(bare, first_stage_f=f)
        if math.isnan(value):
            return replace(bare, reason=COLLINEAR.format(feature=name.replace("_", " ")))
        # 3. the effects that the ends of the scales, and scores that bend with quality, would produce alone
        allowed = (0.0, 0.0) if self.change or not self.several else self._allowance(place, rated)
        bent = float(self._bent[place])
        allowed = min(allowed[0], bent), max(allowed[1], bent)
        null = min(max(value, allowed[0]), allowed[1])
        # 4. the interval: Student's t, or Anderson and Rubin's for weak ratings
        errors, strong = np.full(2, error * self._widening(place, rated)), f >= STRONG and error > 0
        if strong and allowed != (0.0, 0.0) and not self.differences and len(np.unique(x[:, place])) == 2:
            # the allowance for a group's mean quality has its own error
            allowances = [self._allowance(place, rated, rows) for rows in self._without_parts(place)]
            errors = np.hypot(error, np.sqrt((len(allowances) - 1) * np.var(allowances, axis=0)))
        half = float(scipy.special.stdtrit(df, 0.975)) * errors
        low, high, p_value = value - half[1], value + half[0], math.nan
        if f < STRONG:
            ways = [codes for codes in (self.codes, self.systems) if len(codes)]
            tests = [weak_test(self.target, x, place, rated, codes, null=null) for codes in ways]
            low, high, p_value = (
                most(ends) for most, ends in zip((min, max, max), zip(*tests, strict=True), strict=True)
            )
            if not np.isfinite([low, high]).all():
                return replace(bare, reason=TOO_WEAK)
        elif strong:
            p_value = float(2 * scipy.special.stdtr(df, -abs(value - null) / errors[int(value > null)]))
        return replace(
            bare,
            value=value,
            low=float(low - allowed[1]),
            high=float(high - allowed[0]),
            p_value=p_value,
            standard_error=error,
            bounds=(value, value),
            quality=float(values[-1]),
            allowance=allowed,
            reason=ONE_INPUT if math.isnan(low) else "",
        )

    @functools.cached_property
    def _cells(self) -> IntArray:
        """(m,) codes of the combinations of input and system."""
        return np.unique(self.codes * (self.systems.max() + 1) + self.systems, return_inverse=True)[1]

    @functools.cached_property
    def _bent(self) -> FloatArray:
        """(p,) change of each effect if the square of quality is held fixed too; 0 if the square has no shown effect.

        Scores that level off at high quality give correlates of quality less than a straight line predicts.
        """
        few = len(np.unique(self.ratings[~np.isnan(self.ratings)])) < 3  # their squares are linear in them
        if self.change or self.differences or not self.several or few:
            return np.zeros(self.x.shape[1])
        values, variance = self._jackknife(-1, pool_squares(self.ratings), self.codes)
        limit = scipy.special.stdtrit(self.groups - 1, 0.975) * math.sqrt(variance)
        if not abs(values[-1]) > limit:  # NaN is not above
            return np.zeros(self.x.shape[1])
        return self._jackknife(-1, self.rated(None), self.codes)[0][:-1] - values[:-2]

    def _widening(self, place: int, rated: Rated) -> float:
        """Return the factor that widens a column's t interval if a single input has much of its information."""
        others = np.column_stack([np.delete(self.x, place, axis=1), rated.mean])
        own = self.x[:, place] - others @ np.linalg.lstsq(others, self.x[:, place], rcond=None)[0]
        of_inputs = sums_by_cluster(own**2, self.codes)
        share = float(of_inputs.max() / of_inputs.sum())
        return _leaning(round(share, 2)) if share > LEANS and len(np.unique(self.x[:, place])) > 2 else 1.0

    def _without_parts(self, place: int) -> list[BoolArray]:
        """Return the (m,) rows without each part of the inputs, if columns stay independent; parts split each group."""
        order = np.argsort(np.argsort(~smaller_group(self.x[:, place], self.codes), kind="stable"))
        parts = order[self.codes] % PARTS
        without = [parts != part for part in np.unique(parts)]
        return [rows for rows in without if np.linalg.matrix_rank(self.x[rows]) == self.x.shape[1]]

    def _jackknife(self, place: int, rated: Rated, codes: IntArray) -> tuple[FloatArray, float]:
        """Return the coefficients (p + 1,) of the columns and the quality, and the variance of the one at ``place``."""
        solved = regressed(self.scores, self.x, rated, codes, scaled=self.scaled)
        values, left_out = (slopes[..., -1] - (slopes[..., 0] if self.change else 0.0) for slopes in solved)
        return values, float((len(left_out) - 1) * left_out[:, place].var())

    def _allowance(self, place: int, rated: Rated, kept: BoolArray | slice = slice(None)) -> tuple[float, float]:
        """Return the smallest and largest effect of a column that curvature of the scales explains (kept rows)."""
        x, target, ratings, mean = self.x[kept], self.target[kept], self.ratings[kept], rated.mean[kept]
        shared = float(rated.product[kept].mean() - mean.mean() ** 2)
        target, mean = target - target.mean(), mean - mean.mean()
        covariance = float((target * mean).mean())
        present = ~np.isnan(ratings)
        values = levels_of(ratings)[0][present]
        bent = curvature(target, values, shared=shared, covariance=covariance)
        least = max(curvature_of_differences(ratings[present], shared=shared), BENT) if self.differences else BENT
        design = np.column_stack([x, mean])
        products = design.T @ design / len(design)
        products[-1, -1] = shared
        # association of a column with scores beyond equal ratings: without curvature, with the least, with this one
        explained = x.T @ mean / len(design) * covariance / shared
        surplus = np.outer(explained, (0.0, least, bent))
        column = x[:, place]
        if not self.differences and len(ends := np.unique(column)) == 2:  # a group's quality is not on a straight line
            among = column == ends[1]
            share, difference = float(among.mean()), float(mean[among].mean() - mean[~among].mean())
            above = difference_of_group(target, values, share, difference, shared=shared, covariance=covariance)
            surplus[place, 2] = share * (1 - share) * (ends[1] - ends[0]) * above - explained[place]
        effects = np.linalg.solve(products, np.append(surplus, np.zeros((1, 3)), axis=0))[place]
        return float(effects.min()), float(effects.max())


@functools.cache
def _leaning(share: float) -> float:
    """Return the factor on t intervals if one of many inputs has this share of an effect's information.

    Its error moves the estimate, but the jackknife takes it for its distance from the others' line, which has its own
    error. The factor is the quantile of that ratio for normal errors, divided by that of a normal variable.
    """
    own, others = np.random.default_rng(0).normal(size=(2, 100_000))
    estimate = np.sqrt(share) * own + np.sqrt(1 - share) * others
    distance = own - np.sqrt(share / (1 - share)) * others
    ratios = np.abs(estimate) / np.sqrt(share * distance**2 + 1 - share)
    return max(1.0, float(np.quantile(ratios, 0.95) / scipy.special.ndtri(0.975)))


def regressed(
    scores: FloatArray, x: FloatArray, rated: Rated, codes: IntArray, *, scaled: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Regress scores (n, s) on columns (n, p) and quality, or q functions of quality.

    Returns coefficients (p + q, s), and (G, p + q, s) without each of G inputs, for which scores and the ``scaled``
    columns (p,) are standardized anew.
    """
    lengths = np.sqrt(np.append((x**2).mean(axis=0), rated.square.mean(axis=0)))
    units = np.where(lengths > 0, lengths, 1.0)  # independent of units; singular systems stay singular
    design = np.column_stack([x, rated.mean]) / units  # (n, K) of K = p + q
    p, k = x.shape[1], design.shape[1]
    q = k - p
    of_quality = rated.product.reshape(-1, q, q) / np.outer(units[-q:], units[-q:])  # of different ratings only
    products = np.empty((int(codes.max()) + 1, k, k))  # column by column: (n, K, K) would take much memory
    for i, j in np.ndindex(k, k):
        column = of_quality[:, i - p, j - p] if min(i, j) >= p else design[:, i] * design[:, j]
        products[:, i, j] = np.bincount(codes, column, len(products))
    targets = sums_by_cluster(design[:, :, None] * scores[:, None, :], codes)
    of_inputs = products, targets, sums_by_cluster(scores**2, codes)  # (G, K, K), (G, K, s) and (G, s)
    whole = [part.sum(axis=0, keepdims=True) for part in of_inputs]
    without = [total - part for total, part in zip(whole, of_inputs, strict=True)]
    scaled = np.append(scaled, np.zeros(q))
    per_unit = np.where(scaled > 0, 1.0, units)[:, None]
    return _solved(whole, scaled)[0] / per_unit, _solved(without, scaled) / per_unit


def _solved(sums: Sequence[FloatArray], scaled: FloatArray) -> FloatArray:
    """Solve m normal equations: (m, k, k), (m, k, s) and (m, s) sums to (m, k, s) coefficients in standard deviations.

    A system may occur in a single cluster. Without this cluster, its coefficient is unknown, as is that of any system
    compared with it; all other coefficients are known. NaN also for constant scores.
    """
    products, targets, squares = sums
    n, diagonal = products[:, 0, 0, None], np.diagonal(products, axis1=1, axis2=2)
    scale = np.sqrt(np.where(np.abs(diagonal) > SINGULAR * n, np.abs(diagonal), n))  # (m, k)
    unit = products / (scale[:, :, None] * scale[:, None, :])
    # |det| is at most the smallest |eigenvalue| times a norm to the power of the others: few systems need a check
    norms = np.abs(unit).sum(axis=2).max(axis=1)
    singular = np.abs(np.linalg.det(unit)) < SINGULAR * norms ** (products.shape[1] - 1)
    singular[singular] = np.abs(np.linalg.eigvalsh(unit[singular])).min(axis=1) < SINGULAR
    solutions = np.empty_like(targets)
    solutions[~singular] = np.linalg.solve(products[~singular], targets[~singular])
    inverse = np.linalg.pinv(unit[singular], rcond=SINGULAR, hermitian=True)
    solvable = np.abs(inverse @ unit[singular] - np.eye(products.shape[1])).max(axis=2) < np.sqrt(SINGULAR)
    shortest = inverse @ (targets[singular] / scale[singular][:, :, None]) / scale[singular][:, :, None]
    solutions[singular] = np.where(solvable[:, :, None], shortest, np.nan)
    variance_x = diagonal / n - (products[:, 0] / n) ** 2  # (m, k)
    variance_y = squares / n - (targets[:, 0] / n) ** 2  # (m, s)
    spread_y = np.sqrt(np.where(variance_y > SINGULAR, variance_y, np.nan))
    spread_x = np.sqrt(np.where(scaled > 0, np.maximum(variance_x, 0.0), 1.0))
    return np.asarray(solutions * spread_x[:, :, None] / spread_y[:, None, :])


def smaller_group(column: FloatArray, codes: IntArray) -> BoolArray:
    """Return (G,) True for inputs with items of the smaller of two groups; all True if a column has more values."""
    if len(values := np.unique(column)) != 2:
        return np.ones(codes.max() + 1, dtype=bool)
    return min((np.bincount(codes, column == value) > 0 for value in values), key=np.sum)


def small_sample(groups: int, n: int, k: int) -> float:
    """Return the factor on a variance over G clusters of n items after k coefficients were fitted."""
    return groups / (groups - 1) * (n - 1) / (n - k)


def _between(bare: Effect, first: Effect, second: Effect) -> Effect:
    """Combine the effects at both ends of the range of reliabilities, between which it is monotone."""
    if first.reason:  # at the least reliability: a stated one may still work
        return replace(first, reason=second.reason or ONE_RATING)
    least, most = sorted((first.value, second.value))
    p_value = max(first.p_value, second.p_value) if least > ROUNDING or most < -ROUNDING else 1.0
    low, high = min(first.low, second.low), max(first.high, second.high)
    return replace(bare, low=low, high=high, p_value=p_value, bounds=(least, most), reason=ONE_RATING)


# Weak ratings.

VALUES = np.tan(np.linspace(-1.4711, 1.4711, 401))  # coefficients to test first, up to 10 standard deviations
QUALITIES = np.tan(np.linspace(-1.566, 1.566, 201))  # coefficients of quality, up to 200 standard deviations


def weak_test(
    y: FloatArray, x: FloatArray, column: int, rated: Rated, codes: IntArray, *, null: float = 0.0
) -> tuple[float, float, float]:
    """Compute a column's 95 % interval and two-sided p-value against ``null``, valid for weak ratings too.

    This is the test of Anderson and Rubin for a part of the coefficients (Stock and Wright 2000): a value is accepted
    if some coefficient of quality brings both moments near 0, in the metric of their clustered covariance. An end is
    infinite if no value up to 10 per standard deviation of the column is rejected on its side.
    """
    unit, others = float(x[:, column].std()), np.delete(x, column, axis=1)
    score, effect, mean = (
        v - others @ np.linalg.lstsq(others, v, rcond=None)[0] for v in (y, x[:, column] / unit, rated.mean)
    )
    product, spread = mean**2 - rated.mean**2 + rated.product, mean.std()
    # moments (n, 2, 3): each is linear in (1, -coefficient of quality, -coefficient of the column)
    first = [effect * score, effect * mean / spread, effect**2]
    second = [mean * score / spread, product / spread**2, mean * effect / spread]
    sums = sums_by_cluster(np.stack([*first, *second], axis=1), codes).reshape(-1, 2, 3)
    groups, centered = len(sums), sums - sums.mean(axis=0)
    covariance = np.einsum("gia,gjb->ijab", centered, centered) * small_sample(groups, len(y), x.shape[1] + 1)

    def distance(values: FloatArray) -> FloatArray:
        """Return the (v,) squared distances of both moments from 0, minimized over the coefficient of quality."""
        theta = np.stack(np.broadcast_arrays(1.0, -QUALITIES[:, None], -values))  # (3, b, v)
        u, v = np.einsum("ia,abv->ibv", sums.sum(axis=0), theta)
        (a, c), (_, d) = np.einsum("ijcd,cbv,dbv->ijbv", covariance, theta, theta)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.nanmin((d * u**2 - 2 * c * u * v + a * v**2) / (a * d - c**2), axis=0))

    def edge(outside: float, inside: float) -> float:
        """Return the outermost accepted of 65 values between a rejected and an accepted value."""
        values = np.linspace(outside, inside, 65)
        return float(values[np.argmax(distance(values) <= limit)])

    limit = float(scipy.special.stdtrit(groups - 1, 0.975)) ** 2
    accepted = np.flatnonzero(distance(VALUES) <= limit)
    lowest, highest = accepted[[0, -1]] if len(accepted) else (0, len(VALUES) - 1)
    low = -math.inf if lowest == 0 else edge(VALUES[lowest - 1], VALUES[lowest])
    high = math.inf if highest == len(VALUES) - 1 else edge(VALUES[highest + 1], VALUES[highest])
    p_value = float(2 * scipy.special.stdtr(groups - 1, -np.sqrt(distance(np.array([null * unit]))[0])))
    return low / unit, high / unit, p_value


def told_by_several(rated: int, twice: int) -> bool:
    """Return whether only items with two ratings are used, although others among ``rated`` have a single rating."""
    return twice > 0 and twice >= min(ENOUGH, rated / 2)


# An effect in the form of other estimates, and several judges at once.


def within_scale(effect: Effect, width: float) -> Effect:
    """Cut an effect's interval to the effects that are possible on a scale ``width`` points long.

    Two equally good outputs get mean scores no farther apart than the ends of the scale, so no judge has a larger
    effect, and without larger effects the interval covers as before. Weak ratings may exclude no possible effect, or
    have an impossible estimate: then the effect is undefined.
    """
    most = width / effect.score_sd if effect.score_sd > 0 else math.inf
    low, high = max(effect.low, -most), min(effect.high, most)  # NaN stays
    if abs(effect.value) > most or (low == -most and high == most and math.isfinite(most)):
        undefined = replace(effect, value=math.nan, low=math.nan, high=math.nan, p_value=math.nan)
        return replace(undefined, bounds=(math.nan, math.nan), reason=TOO_WEAK)
    return replace(effect, low=low, high=high)


def estimate_effect(
    scores: ArrayLike,
    ratings: ArrayLike,
    feature: ArrayLike,
    *held: ArrayLike,
    names: Sequence[str],
    draws: Draws = DRAWS,
    **options: Any,
) -> Effect:
    """Estimate the effect of a feature (n,) at equal quality, in the form of ``estimate``: nothing is resampled.

    ``names`` are those of the feature and of the features held fixed; see ``EqualQuality`` for the rest. ValueError for
    another level than 95 %.
    """
    if draws.confidence != 0.95:
        raise ValueError(f"confidence={draws.confidence}: an effect at equal quality has a 95 % interval only.")
    features: dict[str, ArrayLike] = dict(zip(names, (feature, *held), strict=True))
    effect = EqualQuality(scores, ratings, features, **options).effect(names[0])
    return replace(effect, p_value=math.nan) if math.isnan(effect.value) else effect  # bounds have no estimate to test


def effects_on_judges(
    feature: ArrayLike,
    scores: FloatArray,
    ratings: ArrayLike,
    *,
    clusters: Clusters = None,
    reliability: float | None = None,
    per_point: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Estimate (s,) effects of a feature (n,) on the scores (n, s) of s judges, from items that all of them scored.

    Also returns the (G, s) jackknife influences of G inputs (``resample.influences``). Both are NaN for a judge that
    gives all items the same score. ``per_point`` divides an effect by what a point of quality adds to the score: it is
    then in points of quality, whatever the noise of the scores is, which both are smaller by; NaN where the score does
    not rise with quality. ValueError as in ``EqualQuality``, and if no item has two ratings and no ``reliability`` is
    stated.
    """
    of_all = np.where(arrays.defined(scores), scores[:, 0], np.nan)
    model = EqualQuality(of_all, ratings, {"feature": feature}, clusters=clusters, reliability=reliability)
    if not (model.several or reliability):
        raise ValueError(ONE_RATING)
    standard = np.column_stack([arrays.standardized(column) for column in scores[model.kept].T])
    varied, rated = ~np.isnan(standard).any(axis=0), model.rated(reliability)
    solved, left_out = regressed(standard[:, varied], model.x, rated, model.codes, scaled=model.scaled)
    effects, influence = np.full(varied.size, np.nan), np.full((len(left_out), varied.size), np.nan)
    found = [ratio(s[..., 1, :], s[..., -1, :]) if per_point else s[..., 1, :] for s in (solved, left_out)]
    effects[varied], influence[:, varied] = found[0], influences(found[1])
    return effects, influence
