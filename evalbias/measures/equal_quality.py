"""Effects on a judge's scores at equal quality: of likelihood, of length, of the writer, of any feature of an output.

Ratings are noisy, and likely or long text is often good text: at an equal mean rating, an unbiased judge seems biased
too, because the feature stands for quality that the rating misses. So the quality itself is held fixed. In
``z(score) = a + b quality + sum_j c_j z(feature_j) + error``, c is 0 for a judge whose mean score depends on quality
alone, whatever the noise of two or more ratings an item, each an instrument for the others. Two-stage least squares,
stacked over their ordered pairs, is that on the mean rating h with h^2 replaced by P, where noise never meets itself:

    sum_i X_i (y_i - X_i'c - b h_i) = 0,    sum_i h_i (y_i - X_i'c) - b P_i = 0,    P_i = mean over j != k of h_ij h_ik

What it does not know: errors that an item's raters share count as quality, and so does what they saw of each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import (
    SLACK,
    BoolArray,
    FloatArray,
    IntArray,
    checked,
    cluster_codes,
    common_index,
    missing,
    numbers,
    settled,
    sums_by_cluster,
)
from evalbias.measures.ratings import (
    Rated,
    curvature,
    curvature_of_differences,
    pool,
    with_reliability,
    without_levels,
)
from evalbias.measures.resample import DRAWS, Draws, Interval

SCORE_SD = "standard deviations of the score"
"""Unit of an effect: the judge's score divided by its standard deviation over the items."""
QUALITY = "quality"
"""Name of the quality among the terms of a model."""
MIN_CLUSTERS = 5
"""Fewest inputs from which an interval is computed."""
RELIABILITIES = (0.5, 1.0)
"""Reliabilities of a single rating between which bounds are given where it is unknown."""
CHOICES = (1 / np.pi, 1.0)
"""The same where the rating has two values, such as a choice between two candidates: of a normally distributed quality,
the side alone has a reliability of 2/pi, and half of that is the least."""
STRONG = 10.0
"""F of the first stage from which the usual interval holds (Staiger and Stock 1997)."""
SINGULAR = 1e-9
"""Eigenvalue of normal equations of columns of length 1, or variance, up to which it is a rounding error of 0."""
ROUNDING = 1e-6
"""Standard error, or width of an interval, up to which it is a rounding error of 0."""
BENT = 0.012
"""Least curvature allowed for: that of ratings from 1 to 5 around the middle, beside a judge without a scale. It need
not show in the distribution of scores and ratings, as for differences between the candidates of a pair."""
ONE_RATING = (
    "the items have one rating, and the effect depends on its reliability: state it, or have a second person rate them"
)
UNRELATED = "what people say of an item agrees no more than its {feature} explains: collect more reliable ratings"
COLLINEAR = "the {feature} can hardly be told apart from what is held fixed: leave a covariate out"
ONE_INPUT = "without the items of one input the effect is unknown: judge outputs of more inputs"
TOO_WEAK = "the ratings are too few or too unreliable to hold the quality fixed: rate more items, or each more often"
EXACT = "the scores follow people's ratings exactly, which does not tell how far others would deviate: judge more items"


@dataclass(frozen=True)
class Effect(Interval):
    """Effect of a feature on a judge's scores at equal quality, in standard deviations of the score.

    The value is the change for one standard deviation of the feature, or one unit where it is not scaled; NaN where it
    cannot be told, see ``reason``. The interval is of 95 % and allows for ``allowance``; where only the reliability is
    unknown, it holds for every reliability from .5 to 1, or from 1/pi where the rating is one of two values.

    Attributes:
        standard_error: From the jackknife over inputs.
        bounds: Smallest and largest effect that the unknown reliability of a single rating allows; else the effect.
        quality: Change in the score for one point of quality, in its standard deviations.
        score_sd: Standard deviation of the scores, in points: ``value * score_sd`` is the effect in points.
        reliability: Share of the mean rating's variance that is quality; NaN if unknown.
        first_stage_f: F of one rating as instrument for another, NaN for a single rating. Below 10 the interval is that
            of Anderson and Rubin, which needs no strong instrument.
        allowance: Smallest and largest effect that an unbiased judge would show because the ends of the scales cut off
            ratings or scores; 0 lies between. Both are 0 for a change and for a single rating.
    """

    standard_error: float = math.nan
    bounds: tuple[float, float] = (math.nan, math.nan)
    quality: float = math.nan
    score_sd: float = 1.0
    reliability: float = math.nan
    first_stage_f: float = math.nan
    allowance: tuple[float, float] = (0.0, 0.0)

    @property
    def weak(self) -> bool:
        """Whether the ratings hold the quality fixed only weakly."""
        return self.first_stage_f < STRONG


class EqualQuality:
    """Scores of a judge, ratings and features of the same items, from which every effect is read.

    The estimator is consistent if an item's ratings are independent given its quality and the mean score is linear in
    quality and features. A level that differs between the columns of ``ratings`` (stricter raters) is removed, and
    scales that differ are allowed for if the columns are three or more. Intervals are of t with the standard error of
    the jackknife over inputs: they hold their level with few inputs and with many outputs of each.

    Judges that compare are measured alike: give the features of the first candidate less those of the second, the
    log-odds of the first one's win, and the differences in rating or the single annotators' preferences (1, 0, -1).

    Args:
        scores: (n,) Score_m on any scale.
        ratings: (n, r) on any scale, NaN where a rater gave none. Items with one are left out unless no item has two.
        features: Name -> (n,) numbers, or texts such as the system, of which each gets its own level. NaN, None or an
            empty cell leaves the item out of the effects that need the feature.
        before: (n,) scores of another judge, from whose effects the changes are told.
        clusters: (n,) input of each item. By default every item is its own.
        unscaled: Names of the features whose effect is that of one unit, as of a feature that is 0 or 1.
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only where no item has two.
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
        features: Mapping[str, Sequence[object] | FloatArray],
        *,
        before: ArrayLike | None = None,
        clusters: Sequence[object] | None = None,
        unscaled: Sequence[str] = (),
        reliability: float | None = None,
        differences: bool = False,
        mirrored: bool = False,
    ) -> None:
        if reliability is not None and not 0 < reliability <= 1:
            raise ValueError(f"reliability={reliability} is out of range: it is a share of the variance, in (0, 1].")
        if QUALITY in features:
            raise ValueError(f"A feature is called {QUALITY!r}, as another term of the model is: rename it.")
        judges = {"scores": scores} if before is None else {"before": before, "scores": scores}
        texts = {name: list(values) for name, values in features.items() if _is_text(values)}
        common_index(ratings, *judges.values(), *features.values(), clusters)
        table = numbers(ratings, "ratings")
        if table.ndim != 2:
            raise ValueError(f"ratings has the shape {table.shape}: give one row an item, (n, raters).")
        given = {name: values for name, values in features.items() if name not in texts}
        columns = dict(zip(*_checked({**judges, "ratings": table, **given}), strict=True))
        for name, values in texts.items():
            if len(values) != len(table):
                raise ValueError(f"{name} has {len(values)} entries for {len(table)} items: give one an item.")
        self.ratings, self.scores = columns["ratings"], np.column_stack([columns[name] for name in judges])
        self.numbers, self.texts = {name: columns[name] for name in given}, texts
        self.clusters, self.unscaled, self.reliability = clusters, frozenset(unscaled), reliability
        self.differences, self.mirrored = differences, mirrored
        self._known: dict[bytes, _Items] = {}

    def effects(self, *names: str, held: Sequence[str] = ()) -> dict[str, Effect]:
        """Return the effect of each named feature with the other ones, those ``held`` and the quality held fixed.

        ``effects("likelihood")`` is the marginal effect, ``effects("likelihood", "length")`` are the joint ones.
        """
        items = self._items((*names, *held))
        columns = [column for name in (*names, *held) for column in items.columns_of(name)]
        several, problem = items.several, items.problem(columns, names[0])
        if several and self.reliability is not None:
            raise ValueError("The items have several ratings, which tell their reliability: leave out reliability.")
        bare = Effect(math.nan, n=items.n, undefined=len(self.scores) - items.n, units=items.groups, unit=SCORE_SD)
        bare = replace(bare, score_sd=items.score_sd)
        if problem:
            return dict.fromkeys(names, replace(bare, reason=problem))
        rated = items.rated if self.reliability is None else with_reliability(items.single, self.reliability)
        if rated is not None:
            found = _read(items, columns, rated, names, bare, differences=self.differences)
            return {name: _unless_exact(effect) for name, effect in found.items()}
        ends = CHOICES if len(np.unique(items.single)) == 2 else RELIABILITIES
        first, second = (_read(items, columns, with_reliability(items.single, r), names, bare) for r in ends)
        return {name: _between(first[name], second[name]) for name in names}

    def _items(self, names: Sequence[str]) -> _Items:
        """Gather the items with the scores, these features and enough ratings; the same items are gathered once."""
        counts = (~np.isnan(self.ratings)).sum(axis=1)
        complete = ~np.isnan(self.scores).any(axis=1) & (counts > 0)
        for name in names:
            unknown = np.isnan(self.numbers[name]) if name in self.numbers else [missing(v) for v in self.texts[name]]
            complete &= ~np.asarray(unknown, dtype=bool)
        several = bool((counts[complete] > 1).any())
        kept = complete & (counts > 1) if several else complete
        if kept.tobytes() not in self._known:
            self._known[kept.tobytes()] = _Items(self, kept, several=several)
        return self._known[kept.tobytes()]


class _Items:
    """Complete items: standardized scores and columns, ratings, and the sums of their products over each input.

    ``x`` is (m, p) constant and columns, a row an item or two a mirrored pair; a text has a 0/1 column ``name=level``
    for every level but the first; a column is all NaN if a feature not asked for is undefined somewhere. ``scores`` (m,
    s) are NaN where a judge gives all items the same one; ``target`` (m,) is the score, or the second judge's minus the
    first's.
    """

    def __init__(self, model: EqualQuality, kept: BoolArray, *, several: bool) -> None:
        signs = (1.0, -1.0) if model.mirrored else (1.0,)

        def rows(values: FloatArray) -> FloatArray:
            return np.concatenate([sign * values[kept] for sign in signs])

        columns = {
            name: settled(rows(v)) if name in model.unscaled else _scaled(rows(v)) for name, v in model.numbers.items()
        }
        places = np.flatnonzero(kept)
        self._levels = {name: sorted({str(v[i]) for i in places})[1:] for name, v in model.texts.items()}
        for name, levels in self._levels.items():
            given = [str(model.texts[name][i]) for i in places] * len(signs)
            columns |= {f"{name}={level}": np.array([float(v == level) for v in given]) for level in levels}
        self.names = ["", *columns]
        standardized = [name in model.numbers and name not in model.unscaled for name in self.names]
        self.scaled = np.array(standardized, dtype=np.float64)
        self.n, self.several = len(places), several
        self.ratings = rows(model.ratings)
        self.x = np.column_stack([np.ones(len(self.ratings)), *columns.values()])
        self.scores = np.column_stack([_standardized(rows(column)) for column in model.scores.T])
        changes = self.scores.shape[1] == 2
        self.target = self.scores[:, -1] - (self.scores[:, 0] if changes else 0.0)
        self.score_sd = 1.0 if changes or not self.n else float(rows(model.scores[:, 0]).std())
        self.codes = np.tile(cluster_codes(model.clusters, kept), len(signs))
        self.groups = len(np.unique(self.codes))
        self.single = np.nansum(self.ratings, axis=1)  # the one rating of each item, where none has two
        self.rated = pool(self.ratings) if several and self.n else None

    @functools.cached_property
    def sums(self) -> Sums:
        """Sums over each input, of all features at once; every marginal and joint effect solves a block of them."""
        assert self.rated is not None  # there are several ratings
        return Sums.over(self.scores, self.x, self.rated, self.codes)

    @functools.cached_property
    def bent(self) -> float:
        """How far the scales of scores and ratings bend against each other."""
        assert self.rated is not None
        shared, covariance = float(self.rated.product.mean()), float((self.target * self.rated.mean).mean())
        ratings = without_levels(self.ratings)[~np.isnan(self.ratings)]
        return curvature(self.target, ratings, shared=shared, covariance=covariance)

    def columns_of(self, name: str) -> list[int]:
        names = [name] if name in self.names else [f"{name}={level}" for level in self._levels[name]]
        return [self.names.index(one) for one in names]

    def problem(self, columns: list[int], feature: str) -> str:
        """Say why the model cannot be fitted; empty if it can."""
        x, least = self.x[:, [0, *columns]], len(columns) + 4
        if self.groups < MIN_CLUSTERS or self.n < least:
            return (
                f"too few items have a score, a {feature} and ratings ({_count(self.n, 'item')} from "
                f"{_count(self.groups, 'input')}): at least {_count(least, 'item')} from {MIN_CLUSTERS} inputs are "
                "needed"
            )
        if np.isnan(self.scores).any() or np.ptp(self.target) <= SLACK:
            return "both judges score alike" if self.scores.shape[1] == 2 else "all items have the same score"
        if np.ptp(x[:, 1]) == 0:
            return f"all items have the same {feature}"
        if np.ptp(settled(np.nanmean(self.ratings, axis=1))) == 0:
            return "all items have the same rating"
        if np.linalg.matrix_rank(x) < x.shape[1]:
            names = ", ".join(self.names[column] for column in columns)
            return f"{names} are constant or determine each other: leave a covariate out"
        return ""


def _read(
    items: _Items, columns: list[int], rated: Rated, names: Sequence[str], bare: Effect, *, differences: bool = False
) -> dict[str, Effect]:
    """Fit the columns together and read the effects of the named ones."""
    x, change = items.x[:, [0, *columns]], items.scores.shape[1] == 2
    # 1. coefficients (k,) of the constant, the columns and the quality, and those without each input (G, k)
    sums = items.sums if items.several else Sums.over(items.scores, items.x, rated, items.codes)
    solved = sums.solved([0, *columns, -1], np.append(items.scaled[[0, *columns]], 0.0))
    values, left_out = (found[..., -1] - (found[..., 0] if change else 0.0) for found in solved)
    errors = np.sqrt((items.groups - 1) * left_out.var(axis=0))
    # 2. first stage: what two ratings share once the columns are held fixed, and its clustered F
    rest = rated.mean - x @ np.linalg.lstsq(x, rated.mean, rcond=None)[0]
    agreement, spread = rated.product + rest**2 - rated.mean**2, rated.square + rest**2 - rated.mean**2
    relevance = agreement.sum() / spread.sum() if spread.sum() > 0 else 0.0
    small = small_sample(items.groups, len(x), x.shape[1] + 1)
    noise = (sums_by_cluster(agreement - relevance * spread, items.codes) ** 2).sum() * small
    f = float(agreement.sum() ** 2 / noise) if noise > 0 else math.inf
    bare = replace(bare, reliability=rated.reliability)
    if not agreement.sum() > 0:
        return {name: replace(bare, reason=UNRELATED.format(feature=name), first_stage_f=math.nan) for name in names}
    # 3. effects that the ends of the scales alone would show, one for each column
    ends = np.zeros((2, len(values)))
    if items.several and not change:
        shared, covariance = float(rated.product.mean()), float((items.target * rated.mean).mean())
        given = items.ratings[~np.isnan(items.ratings)]
        least = max(curvature_of_differences(given, shared=shared), BENT) if differences else BENT
        design = np.column_stack([x, rated.mean])
        products = design.T @ design / len(x)
        products[-1, -1] = shared
        surplus = np.append(x.T @ rated.mean / len(x) * covariance / shared, 0.0)  # what a curvature of 1 adds
        of_one = np.linalg.solve(products, surplus)
        ends = np.sort(np.outer([min(items.bent, 0.0), max(items.bent, least)], of_one), axis=0)
    # 4. intervals: t, or for weak ratings that of Anderson and Rubin
    found, df = {}, items.groups - 1
    for name in names:
        place = 1 + columns.index(items.names.index(name))
        value, error = float(values[place]), float(errors[place])
        allowed = float(ends[0, place]), float(ends[1, place])
        null = min(max(value, allowed[0]), allowed[1])
        half = float(scipy.stats.t.ppf(0.975, df)) * error
        low, high, p_value = value - half, value + half, math.nan
        if math.isnan(value):
            found[name] = replace(bare, reason=COLLINEAR.format(feature=name), first_stage_f=f)
            continue
        if f < STRONG:
            low, high, p_value = weak_test(items.target, x, place, rated, items.codes, null=null)
            if not np.isfinite([low, high]).all():
                found[name] = replace(bare, reason=TOO_WEAK, first_stage_f=f)
                continue
        elif error > 0:
            p_value = float(2 * scipy.stats.t.sf(abs(value - null) / error, df))
        found[name] = replace(
            bare,
            value=value,
            low=low - allowed[1],
            high=high - allowed[0],
            p_value=p_value,
            standard_error=error,
            bounds=(value, value),
            quality=float(values[-1]),
            first_stage_f=f,
            allowance=allowed,
            reason=ONE_INPUT if math.isnan(low) else "",
        )
    return found


@dataclass(frozen=True)
class Sums:
    """Sums over each of G inputs of what normal equations are made of, for all columns and, last, the mean rating."""

    products: FloatArray  # (G, K, K) of the columns with each other, with P in place of the squared rating
    targets: FloatArray  # (G, K, s) of the columns with the scores of s judges
    squares: FloatArray  # (G, s) of the scores
    units: FloatArray  # (K,) length of each column: whatever its own unit, what is singular stays so

    @classmethod
    def over(cls, scores: FloatArray, x: FloatArray, rated: Rated, codes: IntArray) -> Sums:
        """Sum over the clusters (n,) of scores (n, s), columns (n, K - 1) and ratings."""
        lengths = np.sqrt(np.append((x**2).mean(axis=0), rated.square.mean()))
        units = np.where(lengths > 0, lengths, 1.0)
        design = np.column_stack([x, rated.mean]) / units
        products = design[:, :, None] * design[:, None, :]
        products[:, -1, -1] = rated.product / units[-1] ** 2
        parts = (products, design[:, :, None] * scores[:, None, :], scores**2)
        products, targets, squares = (sums_by_cluster(values, codes) for values in parts)
        return cls(products, targets, squares, units)

    def solved(self, at: Sequence[int], scaled: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Regress on a block of the columns: coefficients (k, s), and (G, k, s) the same without each input.

        Scores, and the columns that are ``scaled`` (k,), are standardized anew without each input.
        """
        parts = [self.products[:, at][:, :, at], self.targets[:, at], self.squares]
        whole, rest = [], []
        for part in parts:
            whole.append(part.sum(axis=0, keepdims=True))
            rest.append(whole[-1] - part)
        per_unit = np.where(scaled > 0, 1.0, self.units[at])[:, None]
        return _solved(whole, scaled)[0] / per_unit, _solved(rest, scaled) / per_unit


def _solved(sums: Sequence[FloatArray], scaled: FloatArray) -> FloatArray:
    """Solve m normal equations: (m, k, k), (m, k, s) and (m, s) sums to (m, k, s) coefficients in standard deviations.

    A level of a text may occur in one cluster only. Without that cluster its coefficient is not known, nor that of any
    level that is compared with it; all other coefficients are. NaN also for scores that are constant.
    """
    products, targets, squares = sums
    n, diagonal = products[:, 0, 0, None], np.diagonal(products, axis1=1, axis2=2)
    scale = np.sqrt(np.where(np.abs(diagonal) > SINGULAR * n, np.abs(diagonal), n))  # (m, k)
    unit = products / (scale[:, :, None] * scale[:, None, :])
    singular = np.abs(np.linalg.eigvalsh(unit)).min(axis=1) < SINGULAR
    solutions = np.empty_like(targets)
    solutions[~singular] = np.linalg.solve(products[~singular], targets[~singular])
    inverse = np.linalg.pinv(unit[singular], rcond=SINGULAR, hermitian=True)
    told = np.abs(inverse @ unit[singular] - np.eye(products.shape[1])).max(axis=2) < np.sqrt(SINGULAR)
    shortest = inverse @ (targets[singular] / scale[singular][:, :, None]) / scale[singular][:, :, None]
    solutions[singular] = np.where(told[:, :, None], shortest, np.nan)
    variance_x = diagonal / n - (products[:, 0] / n) ** 2  # (m, k)
    variance_y = squares / n - (targets[:, 0] / n) ** 2  # (m, s)
    spread_y = np.sqrt(np.where(variance_y > SINGULAR, variance_y, np.nan))
    spread_x = np.sqrt(np.where(scaled > 0, np.maximum(variance_x, 0.0), 1.0))
    return np.asarray(solutions * spread_x[:, :, None] / spread_y[:, None, :])


def small_sample(groups: int, n: int, k: int) -> float:
    """Return the factor on a variance over G clusters of n items after k coefficients were fitted."""
    return groups / (groups - 1) * (n - 1) / (n - k)


def _unless_exact(found: Effect) -> Effect:
    """Return an effect without an interval where no score deviates from the ratings, which hides its error."""
    if found.standard_error > ROUNDING or math.isnan(found.standard_error):
        return found
    nan = math.nan
    return replace(found, low=nan, high=nan, standard_error=nan, p_value=nan, reason=EXACT)


def _between(first: Effect, second: Effect) -> Effect:
    """Join the effects at both ends of the range of reliabilities; between them it is monotone."""
    if first.reason:
        return first
    low, high = sorted((first.value, second.value))
    return replace(
        first,
        value=math.nan,
        low=min(first.low, second.low),
        high=max(first.high, second.high),
        standard_error=math.nan,
        p_value=max(first.p_value, second.p_value) if low > ROUNDING or high < -ROUNDING else 1.0,
        bounds=(low, high),
        quality=math.nan,
        reliability=math.nan,
        first_stage_f=math.nan,
        reason=ONE_RATING,
    )


# Weak ratings.

VALUES = np.tan(np.linspace(-1.4711, 1.4711, 401))
"""Values of a coefficient, up to 10 standard deviations, at which the weak-instrument test is made first."""
QUALITIES = np.tan(np.linspace(-1.566, 1.566, 201))
"""Coefficients of quality over which that test is minimized, up to 200 standard deviations."""


def weak_test(
    y: FloatArray, x: FloatArray, column: int, rated: Rated, codes: IntArray, *, null: float = 0.0
) -> tuple[float, float, float]:
    """Compute one column's 95 % interval and two-sided p against ``null``, however little the ratings say.

    This is the test of Anderson and Rubin for a part of the coefficients (Stock and Wright 2000): a value is accepted
    if some coefficient of quality brings both moments near 0, in the metric of their clustered covariance. An end is
    infinite where no value up to 10 for one standard deviation of the column is rejected on its side.
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
        """Return (v,) the squared distance of both moments from 0, the smallest over the coefficient of quality."""
        theta = np.stack(np.broadcast_arrays(1.0, -QUALITIES[:, None], -values))  # (3, b, v)
        u, v = np.einsum("ia,abv->ibv", sums.sum(axis=0), theta)
        (a, c), (_, d) = np.einsum("ijcd,cbv,dbv->ijbv", covariance, theta, theta)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.nanmin((d * u**2 - 2 * c * u * v + a * v**2) / (a * d - c**2), axis=0))

    def edge(outside: float, inside: float) -> float:
        """Return the last accepted of 65 values between a rejected and an accepted one."""
        values = np.linspace(outside, inside, 65)
        return float(values[np.argmax(distance(values) <= limit)])

    limit = float(scipy.stats.t.ppf(0.975, groups - 1)) ** 2
    accepted = np.flatnonzero(distance(VALUES) <= limit)
    first_one, last_one = accepted[[0, -1]] if len(accepted) else (0, len(VALUES) - 1)
    low = -math.inf if first_one == 0 else edge(VALUES[first_one - 1], VALUES[first_one])
    high = math.inf if last_one == len(VALUES) - 1 else edge(VALUES[last_one + 1], VALUES[last_one])
    p_value = float(2 * scipy.stats.t.sf(np.sqrt(distance(np.array([null * unit]))[0]), groups - 1))
    return low / unit, high / unit, p_value


# The effects that have names, and several judges at once.


def effect_at_equal_quality(
    feature: ArrayLike,
    model_scores: ArrayLike,
    ratings: ArrayLike,
    *,
    name: str = "feature",
    standardized: bool = True,
    covariates: Mapping[str, Sequence[object]] | None = None,
    **options: Any,
) -> Effect:
    """Estimate the effect of one feature (n,) at equal quality, with covariates held fixed.

    Args:
        feature: (n,) numbers, such as the log of the length.
        model_scores: (n,) Score_m on any scale.
        ratings: (n, r) single ratings.
        name: Name of the feature in messages.
        standardized: Whether the effect is that of one standard deviation of the feature, or of one unit, as of 0 or 1.
        covariates: Name -> (n,) what else is held fixed: numbers, or texts such as the system.
        **options: See ``EqualQuality``; ``before`` gives the change from another judge's effect.

    Examples:
        >>> ratings = [[1, 1], [2, 3], [3, 2], [4, 4], [5, 4], [2, 2], [3, 4], [5, 5]]
        >>> scores = [1.4, 2.9, 2.6, 4.1, 4.2, 2.5, 3.1, 5.2]
        >>> found = effect_at_equal_quality([-9, -4, -6, -5, -8, -3, -9, -4], scores, ratings)
        >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
        (0.18, -0.24, 0.6)
    """
    held = dict(covariates or {})
    if name in held:
        raise ValueError(f"A covariate is called {name!r}, as another term of the model is: rename it.")
    unscaled = () if standardized else (name,)
    features: dict[str, Any] = {name: feature, **held}
    model = EqualQuality(model_scores, ratings, features, unscaled=unscaled, **options)
    return model.effects(name, held=tuple(held))[name]


def estimate_effect(
    scores: ArrayLike,
    ratings: ArrayLike,
    feature: ArrayLike,
    *held: ArrayLike,
    names: Sequence[str],
    clusters: Sequence[object] | None = None,
    draws: Draws = DRAWS,
    **options: Any,
) -> Effect:
    """Estimate the effect of a feature at equal quality as any other number of a judge's scores.

    Nothing is resampled, and a change (``before``) is tested by its own interval, which is of 95 % only.

    Args:
        scores: (n,) Score_m, or for pairs how strongly the judge prefers the first candidate.
        ratings: (n, r) single ratings.
        feature: (n,) numbers.
        *held: (n,) each: other features that are held fixed.
        names: Name of the feature, and of each that is held fixed.
        clusters: (n,) input of each item.
        draws: Level of the interval.
        **options: See ``EqualQuality``.

    Raises:
        ValueError: Another level than 95 %.
    """
    if draws.confidence != 0.95:
        raise ValueError(f"confidence={draws.confidence}: an effect at equal quality has a 95 % interval only.")
    features: dict[str, Any] = dict(zip(names, (feature, *held), strict=True))
    model = EqualQuality(scores, ratings, features, clusters=clusters, **options)
    found = model.effects(names[0], held=names[1:])[names[0]]
    return replace(found, p_value=math.nan) if math.isnan(found.value) else found  # bounds have no estimate to mark


def likelihood_effect(likelihoods: ArrayLike, model_scores: ArrayLike, ratings: ArrayLike, **options: Any) -> Effect:
    """Estimate the effect of likelihood, LS (n,) in nats; see ``effect_at_equal_quality``."""
    return effect_at_equal_quality(likelihoods, model_scores, ratings, name="likelihood", **options)


def effects_on_judges(
    feature: ArrayLike, scores: FloatArray, ratings: ArrayLike, *, clusters: Sequence[object] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Estimate (s,) effects of a feature (n,) on the scores (n, s) of s judges, from items that all of them scored.

    Also returns (G, s) the jackknife's influence of each of G inputs: ``influence.T @ influence`` is the covariance of
    the effects. Both are NaN for a judge that gives all items the same score.
    """
    x, scores, ratings = checked({"feature": feature, "scores": scores, "ratings": ratings}, clusters)
    kept = ~np.isnan(x) & ~np.isnan(scores).any(axis=1) & ((~np.isnan(ratings)).sum(axis=1) > 1)
    standard = np.column_stack([_standardized(column) for column in scores[kept].T])
    varied, codes = ~np.isnan(standard).any(axis=0), cluster_codes(clusters, kept)
    design = np.column_stack([np.ones(int(kept.sum())), _scaled(x[kept])])
    sums = Sums.over(standard[:, varied], design, pool(ratings[kept]), codes)
    found, left_out = sums.solved([0, 1, 2], np.array([0.0, 1.0, 0.0]))
    effects, influence = np.full(varied.size, np.nan), np.full((len(left_out), varied.size), np.nan)
    effects[varied], rest = found[1], left_out[:, 1]
    influence[:, varied] = (rest.mean(axis=0) - rest) * np.sqrt((len(rest) - 1) / len(rest))
    return effects, influence


def _is_text(values: Sequence[object] | FloatArray) -> bool:
    return any(isinstance(value, str) for value in values)


def _checked(columns: Mapping[str, Any]) -> tuple[list[str], list[FloatArray]]:
    arrays = checked(columns)
    for name, array in zip(columns, arrays, strict=True):
        if array.ndim != 1 and name != "ratings":
            raise ValueError(f"{name} has the shape {array.shape}; give one number per item.")
    return list(columns), arrays


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _standardized(values: FloatArray) -> FloatArray:
    """Bring (n,) values to mean 0 and standard deviation 1; NaN if they are constant up to rounding."""
    values = settled(values)
    if len(values) == 0 or np.ptp(values) == 0:
        return np.full(len(values), np.nan)
    return np.asarray((values - values.mean()) / values.std())


def _scaled(values: FloatArray) -> FloatArray:
    """Do the same; a constant becomes 0, which ``problem`` reports, and NaN stays where a number is undefined."""
    return np.full(len(values), np.nan) if np.isnan(values).any() else np.nan_to_num(_standardized(values))
