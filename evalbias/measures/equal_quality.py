"""Effects at equal quality, with the raters' noise removed."""

from __future__ import annotations

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
    common_index,
    groups_of,
    missing,
    numbers,
    settled,
    sums_by_cluster,
    vectors,
)
from evalbias.measures.ratings import Rated, curvature, curvature_of_sides, pool, with_reliability, without_levels

# Linear regression on a quality that people rate with noise: instrumental variables and known reliability.
#
# A score y depends on covariates X and on a quality q that is seen only through ratings. Ratings h_1, ..., h_r of an
# item share q and have independent noise. Two-stage least squares with each rating instrumented by each other one,
# stacked over all ordered pairs, solves the normal equations of least squares on the mean rating h, except that h^2 is
# replaced by the mean product of two different ratings, in which the noise does not correlate with itself:
#
#     sum_i X_i (y_i - X_i'a - b h_i) = 0,    sum_i h_i (y_i - X_i'a) - b P_i = 0
#     with P_i = mean over j != k of h_ij h_ik
#
# ``raters`` reduces ratings to h and P, and allows for raters with different levels and scales. With one rating of
# known reliability r, P_i = r h_i^2. Standard errors come from the jackknife over clusters: the whole estimate is
# repeated without each cluster, standardization included.


SCORE_SD = "standard deviations of the score"
"""Unit of an effect: the judge's score divided by its standard deviation over the items."""
SINGULAR = 1e-9
"""Eigenvalue of normal equations of columns of length 1, or variance, up to which it is a rounding error of 0."""


@dataclass(frozen=True)
class Slope:
    """A coefficient: the change in the score for one unit of a regressor, with the others held fixed.

    Attributes:
        value: The estimate.
        low: Lower end of the 95 % interval.
        high: Upper end.
        standard_error: Standard error, from the jackknife over clusters. NaN, as are the interval and p, if the
            coefficient is unknown without one of the clusters.
        p_value: Two-sided p of the test against 0.
    """

    value: float
    low: float
    high: float
    standard_error: float
    p_value: float


@dataclass(frozen=True)
class Fit:
    """Coefficients of the columns of X and, last, of quality.

    Attributes:
        coefficients: (p + 1,) estimates.
        errors: (p + 1,) standard errors, from the jackknife over clusters.
        clusters: Number of clusters; their t distributions have one degree of freedom less.
        first_stage_f: F of the instrument in the first stage, clustered.
        identified: Whether the ratings agree at all once X is held fixed; without that the estimates mean nothing.
    """

    coefficients: FloatArray
    errors: FloatArray
    clusters: int
    first_stage_f: float
    identified: bool

    def slopes(self) -> list[Slope]:
        """Return every coefficient but the constant with its 95 % interval and test."""
        values, errors = self.coefficients[1:], self.errors[1:]
        half = scipy.stats.t.ppf(0.975, self.clusters - 1) * errors
        p_values = [self.p_value(index) for index in range(1, len(self.errors))]
        columns = (values, values - half, values + half, errors, p_values)
        return [Slope(*map(float, row)) for row in np.column_stack(columns)]

    def p_value(self, index: int, *, null: float = 0.0) -> float:
        """Return the two-sided p of a coefficient's t test against a value."""
        distance, error = abs(self.coefficients[index] - null), self.errors[index]
        return float(2 * scipy.stats.t.sf(distance / error, self.clusters - 1)) if error > 0 else np.nan


def fit(scores: FloatArray, x: FloatArray, rated: Rated, clusters: IntArray, *, unit: FloatArray) -> Fit:
    """Regress standardized scores on covariates and quality.

    Args:
        scores: (n, 1) scores of standard deviation 1, or (n, 2) of two judges; then the coefficients are the second's
            minus the first's.
        x: (n, p) covariates of full rank, the constant first.
        rated: The ratings.
        clusters: (n,) number of each item's cluster, from 0.
        unit: (p,) 1 for columns that were standardized, 0 for others; the jackknife standardizes scores and these
            columns anew without each cluster.
    """
    coefficients, left_out = (
        found[..., -1] - (found[..., 0] if scores.shape[1] == 2 else 0.0)
        for found in jackknife(scores, x, rated, clusters, unit=unit)
    )
    groups, n, k = len(left_out), len(x), x.shape[1] + 1
    errors = np.sqrt((groups - 1) * left_out.var(axis=0))
    agreement, spread = _held_fixed(x, rated)
    relevance = agreement.sum() / spread.sum() if spread.sum() > 0 else 0.0
    noise = (sums_by_cluster(agreement - relevance * spread, clusters) ** 2).sum() * small_sample(groups, n, k)
    f = agreement.sum() ** 2 / noise if noise > 0 else np.inf
    return Fit(coefficients, errors, groups, float(f), bool(agreement.sum() > 0))


def jackknife(
    scores: FloatArray, x: FloatArray, rated: Rated, clusters: IntArray, *, unit: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Regress the scores (n, s) of s judges; see ``fit``.

    Returns:
        (p + 1, s) coefficients of the columns of X and, last, of quality; (G, p + 1, s) the same without each cluster.
    """
    design = np.column_stack([x, rated.mean])  # (n, k)
    lengths = np.sqrt(np.append((x**2).mean(axis=0), rated.square.mean()))
    units = np.where(lengths > 0, lengths, 1.0)  # (k,) whatever the columns' own units, what is singular stays so
    design = design / units
    products = design[:, :, None] * design[:, None, :]  # (n, k, k)
    products[:, -1, -1] = rated.product / units[-1] ** 2
    targets = design[:, :, None] * scores[:, None, :]  # (n, k, s)
    parts = [sums_by_cluster(values, clusters) for values in (products, targets, scores**2)]
    whole = [part.sum(axis=0, keepdims=True) for part in parts]
    rest = [total - part for total, part in zip(whole, parts, strict=True)]  # without each cluster
    standardized = np.append(unit, 0.0)
    per_unit = np.where(standardized > 0, 1.0, units)[:, None]
    return _solved(whole, standardized)[0] / per_unit, _solved(rest, standardized) / per_unit


def _solved(sums: Sequence[FloatArray], standardized: FloatArray) -> FloatArray:
    """Solve m normal equations: sums of (k, k), (k, s) and (s,) to (m, k, s) coefficients in standard deviations.

    NaN for scores that are constant, as those of a judge may be without one cluster.
    """
    products, targets, squares = sums
    solutions = _identified(products, targets)
    n = products[:, 0, 0, None]
    variance_x = np.diagonal(products, axis1=1, axis2=2) / n - (products[:, 0] / n) ** 2  # (m, k)
    variance_y = squares / n - (targets[:, 0] / n) ** 2  # (m, s)
    spread_y = np.sqrt(np.where(variance_y > SINGULAR, variance_y, np.nan))
    spread_x = np.sqrt(np.where(standardized > 0, np.maximum(variance_x, 0.0), 1.0))
    return np.asarray(solutions * spread_x[:, :, None] / spread_y[:, None, :])


def _identified(products: FloatArray, targets: FloatArray) -> FloatArray:
    """Solve m systems of (k, k) products and (k, s) targets; NaN for the coefficients that a system does not tell.

    A level of a covariate may occur in one cluster only. Without that cluster its coefficient is not known, nor that of
    any level that is compared with it; all other coefficients are.
    """
    n, diagonal = products[:, 0, 0, None], np.abs(np.diagonal(products, axis1=1, axis2=2))
    scale = np.sqrt(np.where(diagonal > SINGULAR * n, diagonal, n))  # (m, k)
    scaled = products / (scale[:, :, None] * scale[:, None, :])
    singular = np.abs(np.linalg.eigvalsh(scaled)).min(axis=1) < SINGULAR
    solutions = np.empty_like(targets)
    solutions[~singular] = np.linalg.solve(products[~singular], targets[~singular])
    inverse = np.linalg.pinv(scaled[singular], rcond=SINGULAR, hermitian=True)
    told = np.abs(inverse @ scaled[singular] - np.eye(products.shape[1])).max(axis=2) < np.sqrt(SINGULAR)
    shortest = inverse @ (targets[singular] / scale[singular][:, :, None]) / scale[singular][:, :, None]
    solutions[singular] = np.where(told[:, :, None], shortest, np.nan)
    return solutions


def small_sample(groups: int, n: int, k: int) -> float:
    """Return the factor on a variance over G clusters of n items after k coefficients were fitted."""
    return groups / (groups - 1) * (n - 1) / (n - k)


def _held_fixed(x: FloatArray, rated: Rated) -> tuple[FloatArray, FloatArray]:
    """(n,) each: product of two ratings and squared rating, both after regression on x."""
    rest = rated.mean - x @ np.linalg.lstsq(x, rated.mean, rcond=None)[0]
    shift = rest**2 - rated.mean**2
    return rated.product + shift, rated.square + shift


# The items and regressors of an effect's model: complete items, standardized columns, clusters.


QUALITY = "quality"
"""Name of the quality among the terms of the model."""
MIN_CLUSTERS = 5
"""Fewest inputs from which an interval is computed."""


@dataclass(frozen=True)
class JointModel:
    """Scores and regressors of the items that count: m rows, one an item, or two a pair that counts both ways.

    Attributes:
        n: Number of items that count.
        scores: (m, 1) scores in standard deviations, (m, 2) of two judges that are compared, or (m, s) of several; NaN
            where a judge gives all items the same score.
        feature: Name of the feature whose effect is meant; its column is the first.
        columns: Name -> (m,) regressors besides the constant and quality: the feature first, then the covariates.
            Numbers have mean 0 and standard deviation 1; a text covariate gives one 0/1 column ``name=level`` for
            every level but the first.
        ratings: (m, r) ratings of these items.
        unscaled: Names of the columns that keep their units: levels, and a feature that is not standardized.
        clusters: (m,) number of each item's cluster, from 0.
        score_sd: Standard deviation of the scores in points; 1 for a difference.
        several: Whether every item has two or more ratings.
        undefined: Number of items left out.
    """

    n: int
    scores: FloatArray
    feature: str
    columns: Mapping[str, FloatArray]
    ratings: FloatArray
    unscaled: frozenset[str]
    clusters: IntArray
    score_sd: float
    several: bool
    undefined: int

    @property
    def matrix(self) -> FloatArray:
        """(m, p) regressors with the constant first and the feature second."""
        return np.column_stack([np.ones(len(self.scores)), *self.columns.values()])

    @property
    def target(self) -> FloatArray:
        """(m,) scores, or the second judge's minus the first's."""
        return np.asarray(self.scores[:, -1] - (self.scores[:, 0] if self.scores.shape[1] == 2 else 0.0))

    @property
    def unit(self) -> FloatArray:
        """(p,) 1 for the columns of ``matrix`` that are standardized, 0 for those in units of their own."""
        return np.array([0.0, *(name not in self.unscaled for name in self.columns)])

    def problem(self) -> str:
        """Say why the model cannot be fitted; empty if it can."""
        x, groups = self.matrix, len(np.unique(self.clusters))
        if groups < MIN_CLUSTERS or self.n < x.shape[1] + 3:
            return (
                f"too few items have a score, a {self.feature} and ratings ({_count(self.n, 'item')} from "
                f"{_count(groups, 'input')}): at least {_count(x.shape[1] + 3, 'item')} from {MIN_CLUSTERS} inputs are "
                "needed"
            )
        if np.isnan(self.scores).any() or np.ptp(self.target) <= SLACK:
            return "both judges score alike" if self.scores.shape[1] == 2 else "all items have the same score"
        if np.ptp(self.columns[self.feature]) == 0:
            return f"all items have the same {self.feature}"
        if np.ptp(settled(np.nanmean(self.ratings, axis=1))) == 0:
            return "all items have the same rating"
        if np.linalg.matrix_rank(x) < x.shape[1]:
            return f"{', '.join(self.columns)} are constant or determine each other: leave a covariate out"
        return ""


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def joint_model(
    feature: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    *,
    name: str,
    standardized: bool,
    clusters: Sequence[object] | None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    mirrored: bool = False,
) -> JointModel:
    """Gather the complete items: those with the feature, scores, covariates and enough ratings.

    Args:
        feature: (n,) numbers.
        scores: (n, 1) scores of a judge, (n, 2) of two whose difference is modeled, the second minus the first, or
            (n, s) of several.
        ratings: (n, r) ratings, NaN where a rater gave none. Items with one are left out unless no item has two.
        name: Name of the feature in messages.
        standardized: Whether the feature is brought to standard deviation 1.
        clusters: (n,) anything that names the input; None for items on their own.
        covariates: Name -> (n,) numbers or texts.
        mirrored: Whether the items are pairs, all numbers differ in sign with the order of the two candidates, and each
            pair counts both ways, as one item of its cluster. The result is then the same in whatever order the data
            name the candidates, and the constant is 0.

    Raises:
        ValueError: The lengths differ, ratings are not a matrix, a number is infinite, or a covariate has the name of
            the feature or of the quality.
    """
    n, ratings = len(feature), _matrix(ratings)
    groups: Sequence[object] = range(n) if clusters is None else clusters
    given = {label: list(values) for label, values in (covariates or {}).items()}
    if taken := {name, QUALITY} & given.keys():
        raise ValueError(f"A covariate is called {taken.pop()!r}, as another term of the model is: rename it.")
    for label, values in {"ratings": ratings, "clusters": groups, **given}.items():
        if len(values) != n:
            raise ValueError(f"{label} has {len(values)} entries, {name} {n}: give the same items in the same order.")
    counts = (~np.isnan(ratings)).sum(axis=1)
    complete = ~np.isnan(feature) & ~np.isnan(scores).any(axis=1) & (counts > 0)
    for values in given.values():
        complete &= np.array([not missing(value) for value in values], dtype=bool)
    several = bool((counts[complete] > 1).any())
    kept: BoolArray = complete & (counts > 1) if several else complete
    places = np.flatnonzero(kept)
    signs = (1.0, -1.0) if mirrored else (1.0,)

    def rows(values: FloatArray) -> FloatArray:
        return np.concatenate([sign * values[kept] for sign in signs])

    columns = {name: _scaled(rows(feature)) if standardized else settled(rows(feature))}
    levels: dict[str, FloatArray] = {}
    for label, values in given.items():
        present = [values[i] for i in places] * len(signs)
        if any(isinstance(value, str) for value in present):
            levels |= _levels(label, [str(value) for value in present])
        else:
            (column,) = vectors(**{label: np.array(values, dtype=np.float64)})
            columns[label] = _scaled(rows(column))
    names: dict[object, int] = {}
    codes = [names.setdefault(group, len(names)) for group in groups_of(groups, kept, "clusters")]
    return JointModel(
        n=len(places),
        scores=np.column_stack([standardize(rows(column)) for column in scores.T]),
        feature=name,
        columns=columns | levels,
        ratings=rows(ratings),
        unscaled=frozenset(levels) if standardized else frozenset({name, *levels}),
        clusters=np.array(codes * len(signs), dtype=np.int64),
        score_sd=float(rows(scores[:, 0]).std()) if scores.shape[1] == 1 and len(places) else 1.0,
        several=several,
        undefined=n - len(places),
    )


def _matrix(ratings: ArrayLike) -> FloatArray:
    array = numbers(ratings, "ratings")
    if array.ndim != 2:
        raise ValueError(f"ratings has the shape {array.shape}: give one row an item, (n, raters).")
    if np.isinf(array).any():
        raise ValueError("ratings holds an infinite value: give NaN where a rater gave none.")
    return array


def standardize(values: FloatArray) -> FloatArray:
    """Bring (n,) values to mean 0 and standard deviation 1; NaN if they are constant up to rounding."""
    values = settled(values)
    if len(values) == 0 or np.ptp(values) == 0:
        return np.full(len(values), np.nan)
    return np.asarray((values - values.mean()) / values.std())


def _scaled(values: FloatArray) -> FloatArray:
    return np.nan_to_num(standardize(values))  # a constant becomes 0, which ``problem`` reports


def _levels(name: str, values: Sequence[str]) -> dict[str, FloatArray]:
    """``name=level`` -> (m,) 1 where the value is this level; the first level is what the others are compared with."""
    return {f"{name}={level}": np.array([float(v == level) for v in values]) for level in sorted(set(values))[1:]}


# Interval and test of a coefficient that hold however little the ratings say about the quality.


VALUES = np.tan(np.linspace(-1.4711, 1.4711, 401))
"""Values of a coefficient, up to 10 standard deviations, at which the weak-instrument test is made first."""
QUALITIES = np.tan(np.linspace(-1.566, 1.566, 201))
"""Coefficients of quality over which that test is minimized, up to 200 standard deviations."""


def weak_test(
    y: FloatArray, x: FloatArray, column: int, rated: Rated, clusters: IntArray, *, null: float = 0.0
) -> tuple[float, float, float]:
    """Compute one covariate's 95 % interval and a test, which hold however weak the instruments are.

    This is the test of Anderson and Rubin for a part of the coefficients (Stock and Wright 2000): a value is accepted
    if some coefficient of quality brings both moments near 0, in the metric of their clustered covariance. The interval
    holds all accepted values. It is wide, and infinite where the data say nothing.

    Args:
        y: (n,) scores, of unit variance.
        x: (n, p) covariates of full rank.
        column: Column whose coefficient is meant.
        rated: The ratings.
        clusters: (n,) number of each item's cluster, from 0.
        null: Value of the coefficient that is tested.

    Returns:
        Lower end, upper end and two-sided p; an end is infinite where no value up to 10 for one standard deviation of
        the column is rejected on its side.
    """
    unit = float(x[:, column].std())
    test = _WeakTest(y, np.where(np.arange(x.shape[1]) == column, x / unit, x), column, rated, clusters)
    accepted = np.flatnonzero(test.accepts(VALUES))
    first, last = accepted[[0, -1]] if len(accepted) else (0, len(VALUES) - 1)
    low = -np.inf if first == 0 else _edge(test, VALUES[first - 1], VALUES[first])
    high = np.inf if last == len(VALUES) - 1 else _edge(test, VALUES[last + 1], VALUES[last])
    p_value = float(2 * scipy.stats.t.sf(np.sqrt(test.statistic(np.array([null * unit]))[0]), test.df))
    return low / unit, high / unit, p_value


class _WeakTest:
    """Smallest distance of both moments from 0 over all coefficients of quality, for values of another coefficient."""

    def __init__(self, y: FloatArray, x: FloatArray, column: int, rated: Rated, clusters: IntArray) -> None:
        others = np.delete(x, column, axis=1)
        score, effect, mean = (
            v - others @ np.linalg.lstsq(others, v, rcond=None)[0] for v in (y, x[:, column], rated.mean)
        )
        product = mean**2 - rated.mean**2 + rated.product
        unit = mean.std()
        # moments (n, 2, 3): each is linear in (1, -coefficient of quality, -coefficient of the covariate)
        moments = np.stack(
            [
                np.stack([effect * score, effect * mean / unit, effect**2], axis=1),
                np.stack([mean * score / unit, product / unit**2, mean * effect / unit], axis=1),
            ],
            axis=1,
        )
        sums = sums_by_cluster(moments.reshape(len(y), -1), clusters).reshape(-1, 2, 3)
        groups, n, k = len(sums), len(y), x.shape[1] + 1
        centered = sums - sums.mean(axis=0)
        self._total = sums.sum(axis=0)
        self._covariance = np.einsum("gia,gjb->ijab", centered, centered) * small_sample(groups, n, k)
        self.df = groups - 1

    def statistic(self, values: FloatArray) -> FloatArray:
        """(v,) squared distance for each value, the smallest over the coefficient of quality."""
        theta = np.stack(np.broadcast_arrays(1.0, -QUALITIES[:, None], -values))  # (3, b, v)
        first, second = np.einsum("ia,abv->ibv", self._total, theta)
        variance = np.einsum("ijcd,cbv,dbv->ijbv", self._covariance, theta, theta)
        (a, c), (_, d) = variance
        with np.errstate(invalid="ignore", divide="ignore"):
            distance = (d * first**2 - 2 * c * first * second + a * second**2) / (a * d - c**2)
        return np.asarray(np.nanmin(distance, axis=0))

    def accepts(self, values: FloatArray) -> BoolArray:
        """(v,) whether a 5 % test does not reject each value."""
        return np.asarray(self.statistic(values) <= scipy.stats.t.ppf(0.975, self.df) ** 2)


def _edge(test: _WeakTest, outside: float, inside: float) -> float:
    """Find the last accepted of 65 values between a rejected and an accepted one."""
    values = np.linspace(outside, inside, 65)
    return float(values[np.argmax(test.accepts(values))])


# Effect of a feature (likelihood, length, the writer) on a judge's scores at equal quality, and how it is fitted.
#
# Ratings are noisy, and likely or long text is often good text. So where the mean rating is held fixed, an unbiased
# judge seems biased too: part of what it sees of the quality is missing from the rating, and the feature fills the gap.
# This effect holds the quality itself fixed,
#
#     z(Score_m) = a + b quality + c z(feature) + error,
#
# and reads the quality from two or more ratings an item, each of which is an instrument for the others. The effect c is
# 0 for a judge whose mean score depends on the quality alone, whatever the noise of the ratings.


RELIABILITIES = (0.5, 1.0)
"""Reliabilities of a single rating between which bounds are given where it is unknown."""
CHOICES = (1 / np.pi, 1.0)
"""The same where the rating has two values, such as a choice between two candidates: of a normally distributed quality,
the side alone has a reliability of 2/pi, and half of that is the least."""
STRONG = 10.0
"""F of the first stage from which the usual interval holds (Staiger and Stock 1997)."""
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
ROUNDING = 1e-6
"""Standard error, or width of an interval, up to which it is a rounding error of 0."""


@dataclass(frozen=True)
class FeatureEffect:
    """Effect of a feature on a judge's scores at equal quality.

    Attributes:
        effect: c, the change in the score, in its standard deviations, for one standard deviation of the feature, or
            one unit where it is not standardized; NaN where it cannot be told, see ``reason``.
        low: Lower end of the 95 % interval, which allows for ``ends``. Where only the reliability is unknown, the
            interval holds for every reliability from .5 to 1, or from 1/pi where the rating is one of two values.
        high: Upper end.
        standard_error: Standard error of the effect, from the jackknife over inputs; NaN, as are the interval and p,
            where the scores follow the ratings exactly, which tells nothing about it.
        p_value: Two-sided p of the test against 0, or against the nearest value between ``ends``.
        bounds: Smallest and largest effect that the unknown reliability of a single rating allows; both are the effect
            where the reliability is known.
        slopes: The other coefficients of the model: ``"quality"`` for one point of the ratings, the covariates for one
            standard deviation, ``name=level`` against the first level.
        score_sd: Standard deviation of the scores, in points: ``effect * score_sd`` is the effect in points.
        reliability: Share of the mean rating's variance that is quality; NaN if unknown.
        first_stage_f: F of one rating as instrument for another; NaN for a single rating.
        weak: Whether F is below 10; the interval is then the one of Anderson and Rubin, which needs no strong
            instrument.
        n: Items that count.
        clusters: Clusters (inputs) that they belong to.
        undefined: Items left out because a number is missing.
        reason: Why the effect or its interval is undefined; empty where both are defined.
        ends: Smallest and largest effect that an unbiased judge would show because the ends of the scales cut off
            ratings or scores; 0 lies between. Both are 0 for a difference of two judges and for a single rating.
    """

    effect: float
    low: float
    high: float
    standard_error: float
    p_value: float
    bounds: tuple[float, float]
    slopes: Mapping[str, Slope]
    score_sd: float
    reliability: float
    first_stage_f: float
    weak: bool
    n: int
    clusters: int
    undefined: int
    reason: str = ""
    ends: tuple[float, float] = (0.0, 0.0)


def fitted_effect(
    feature: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    *,
    reliability: float | None,
    differences: bool = False,
    **options: Any,
) -> FeatureEffect:
    """Fit the effect on scores (n, 1), or on the second of (n, 2) less the first; see ``effect_at_equal_quality``."""
    if reliability is not None and not 0 < reliability <= 1:
        raise ValueError(f"reliability={reliability} is out of range: it is a share of the variance, in (0, 1].")
    model = joint_model(feature, scores, ratings, **options)
    if model.several and reliability is not None:
        raise ValueError("The items have several ratings, which tell their reliability: leave out reliability.")
    if problem := model.problem():
        return _undefined(model, problem)
    if model.several:
        return _unless_exact(_fitted(model, pool(model.ratings), differences=differences))
    single = np.nansum(model.ratings, axis=1)  # the one rating of each item
    if reliability is not None:
        return _unless_exact(_fitted(model, with_reliability(single, reliability)))
    ends = CHOICES if len(np.unique(single)) == 2 else RELIABILITIES
    return _between(*(_fitted(model, with_reliability(single, r)) for r in ends))


def _fitted(model: JointModel, rated: Rated, *, differences: bool = False) -> FeatureEffect:
    x = model.matrix
    found = fit(model.scores, x, rated, model.clusters, unit=model.unit)
    if not found.identified:
        return _undefined(model, UNRELATED.format(feature=model.feature), rated.reliability)
    effect, *slopes = found.slopes()
    if np.isnan(effect.value):
        return _undefined(model, COLLINEAR.format(feature=model.feature), rated.reliability, found.first_stage_f)
    weak, ends = found.first_stage_f < STRONG, _ends(model, rated, differences)
    unbiased = min(max(effect.value, ends[0]), ends[1])
    if weak:
        low, high, p_value = weak_test(model.target, x, 1, rated, model.clusters, null=unbiased)
        if not np.isfinite([low, high]).all():
            return _undefined(model, TOO_WEAK, rated.reliability, found.first_stage_f)
        effect = replace(effect, low=low, high=high, p_value=p_value)
    else:
        effect = replace(effect, p_value=found.p_value(1, null=unbiased))
    return FeatureEffect(
        effect=effect.value,
        low=effect.low - ends[1],
        high=effect.high - ends[0],
        standard_error=effect.standard_error,
        p_value=effect.p_value,
        bounds=(effect.value, effect.value),
        slopes=dict(zip([*list(model.columns)[1:], QUALITY], slopes, strict=True)),
        score_sd=model.score_sd,
        reliability=rated.reliability,
        first_stage_f=found.first_stage_f,
        weak=weak,
        n=model.n,
        clusters=found.clusters,
        undefined=model.undefined,
        reason=ONE_INPUT if np.isnan(effect.low) else "",
        ends=ends,
    )


def _unless_exact(found: FeatureEffect) -> FeatureEffect:
    """Return an effect without an interval where no score deviates from the ratings, which hides its error."""
    if found.standard_error > ROUNDING or np.isnan(found.standard_error):
        return found
    nan = float("nan")
    return replace(found, low=nan, high=nan, standard_error=nan, p_value=nan, reason=EXACT)


def _ends(model: JointModel, rated: Rated, differences: bool) -> tuple[float, float]:
    """Compute the effects of an unbiased judge between which the ends of the scales put it; see ``FeatureEffect``."""
    if not model.several or model.scores.shape[1] == 2:
        return 0.0, 0.0
    x, ratings = model.matrix, without_levels(model.ratings)[~np.isnan(model.ratings)]
    shared, covariance = float(rated.product.mean()), float((model.target * rated.mean).mean())
    bent = curvature(model.target, ratings, shared=shared, covariance=covariance)
    given = model.ratings[~np.isnan(model.ratings)]
    least = max(curvature_of_sides(given, shared=shared), BENT) if differences else BENT
    design = np.column_stack([x, rated.mean])
    products = design.T @ design / len(x)
    products[-1, -1] = shared
    surplus = np.append(x.T @ rated.mean / len(x) * covariance / shared, 0.0)  # what a curvature of 1 adds
    of_one = float(np.linalg.solve(products, surplus)[1])
    low, high = sorted((of_one * min(bent, 0.0), of_one * max(bent, least)))
    return low, high


def _between(first: FeatureEffect, second: FeatureEffect) -> FeatureEffect:
    """Join the effects at both ends of the range of reliabilities; between them it is monotone."""
    if first.reason:
        return first
    low, high = sorted((first.effect, second.effect))
    return replace(
        first,
        effect=np.nan,
        low=min(first.low, second.low),
        high=max(first.high, second.high),
        standard_error=np.nan,
        p_value=max(first.p_value, second.p_value) if low * high > 0 else 1.0,
        bounds=(low, high),
        slopes={},
        reliability=np.nan,
        first_stage_f=np.nan,
        weak=False,
        reason=ONE_RATING,
    )


def _undefined(
    model: JointModel, reason: str, reliability: float = np.nan, first_stage_f: float = np.nan
) -> FeatureEffect:
    nan = float("nan")
    return FeatureEffect(
        nan,
        nan,
        nan,
        nan,
        nan,
        bounds=(nan, nan),
        slopes={},
        score_sd=model.score_sd,
        reliability=reliability,
        first_stage_f=first_stage_f,
        weak=first_stage_f < STRONG,
        n=model.n,
        clusters=len(np.unique(model.clusters)),
        undefined=model.undefined,
        reason=reason,
    )


# Effects on judges' scores at equal quality: of any feature of the items, and of likelihood; see ``effect``.


def effect_at_equal_quality(
    feature: ArrayLike,
    model_scores: ArrayLike,
    ratings: ArrayLike,
    *,
    name: str = "feature",
    standardized: bool = True,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
    differences: bool = False,
    mirrored: bool = False,
) -> FeatureEffect:
    """Estimate the effect of a feature of the items on a judge's scores, with the quality held fixed.

    The estimator is two-stage least squares on all ordered pairs of an item's ratings, one as regressor and the other
    as its instrument, with items weighted equally. It is consistent if an item's ratings are independent given its
    quality and the mean score is linear in quality and feature. A level that differs between the columns of ``ratings``
    (stricter raters) is removed, and scales that differ (raters who move more points for the same quality) are allowed
    for if the columns are three or more; those of two cannot be told apart and count as equal. The interval is a t
    interval with the standard error of the jackknife over inputs: it holds its level with few inputs and with many
    outputs of each.

    Judges that compare are measured by the same function: give the feature of the first candidate less that of the
    second, the log-odds of the first one's win, and the differences in rating or the single annotators' preferences
    (1, 0, -1), and say so by ``differences``. If the judge saw both orders, say ``mirrored`` too.

    Args:
        feature: (n,) numbers, such as the log of the length.
        model_scores: (n,) Score_m on any scale.
        ratings: (n, r) single ratings on any scale, NaN where a rater gave none. Items with one rating are left out
            unless no item has two.
        name: Name of the feature in messages.
        standardized: Whether the effect is that of one standard deviation of the feature, or of one unit, as for a
            feature that is 0 or 1.
        clusters: (n,) input of each item; by default every item is its own.
        covariates: Name -> (n,) what else is held fixed: numbers, or texts such as the system, of which each gets its
            own level.
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only where no item has two
            ratings.
        differences: Whether feature, scores and ratings are differences between the candidates of pairs. The interval
            then allows for ratings near the end of their scale, which hides differences between them.
        mirrored: Whether each pair counts both ways, with all signs turned, so that it does not matter which candidate
            the data name first. Not for scores of one order of showing: there the model's constant holds the judge's
            lean towards a position.

    Returns:
        The effect, in standard deviations of the scores. Without two ratings and without ``reliability`` it is NaN and
        has bounds for reliabilities from .5 to 1, from 1/pi if the ratings have two values.

    Raises:
        ValueError: The lengths or pandas indexes differ, a number is infinite, a cluster is missing, or
            ``reliability`` is out of range or contradicts several ratings.

    Examples:
        >>> ratings = [[1, 1], [2, 3], [3, 2], [4, 4], [5, 4], [2, 2], [3, 4], [5, 5]]
        >>> scores = [1.4, 2.9, 2.6, 4.1, 4.2, 2.5, 3.1, 5.2]
        >>> found = effect_at_equal_quality([-9, -4, -6, -5, -8, -3, -9, -4], scores, ratings)
        >>> round(found.effect, 2), round(found.low, 2), round(found.high, 2)
        (0.18, -0.24, 0.6)
    """
    common_index(feature, model_scores, ratings, clusters, *(covariates or {}).values())
    x, scores = vectors(**{name: feature, "model_scores": model_scores})
    options: dict[str, Any] = {"name": name, "standardized": standardized, "differences": differences}
    options["mirrored"] = mirrored
    return fitted_effect(
        x, scores[:, None], ratings, reliability=reliability, clusters=clusters, covariates=covariates, **options
    )


def effect_change(
    feature: ArrayLike,
    before: ArrayLike,
    after: ArrayLike,
    ratings: ArrayLike,
    *,
    name: str = "feature",
    standardized: bool = True,
    clusters: Sequence[object] | None = None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    reliability: float | None = None,
    mirrored: bool = False,
) -> FeatureEffect:
    """Estimate how the effect differs between two judges on the same items: the second's minus the first's.

    The effect is linear in the standardized scores, so the difference is the effect on their difference, and its
    interval and test are paired. Only items that both judges scored count. A change needs no allowance for the ends of
    the rating scale, so it has no ``differences``.

    Args:
        feature: As for ``effect_at_equal_quality``, as are all arguments that are not listed here.
        before: (n,) Score_m of the first judge.
        after: (n,) Score_m of the second judge.
        ratings: (n, r) single ratings.
        name: Name of the feature in messages.
        standardized: Whether the effect is that of one standard deviation.
        clusters: (n,) input of each item.
        covariates: What else is held fixed.
        reliability: Reliability of a single rating.
        mirrored: As for ``effect_at_equal_quality``.

    Returns:
        The result for the difference; ``score_sd`` is 1.

    Raises:
        ValueError: See ``effect_at_equal_quality``.
    """
    common_index(feature, before, after, ratings, clusters, *(covariates or {}).values())
    x, first, second = vectors(**{name: feature, "before": before, "after": after})
    scores = np.column_stack([first, second])
    options: dict[str, Any] = {"name": name, "standardized": standardized, "mirrored": mirrored}
    return fitted_effect(
        x, scores, ratings, reliability=reliability, clusters=clusters, covariates=covariates, **options
    )


def likelihood_effect(
    likelihoods: ArrayLike, model_scores: ArrayLike, ratings: ArrayLike, **options: Any
) -> FeatureEffect:
    """Estimate the effect of likelihood at equal quality: ``effect_at_equal_quality`` of LS (n,), in nats."""
    return effect_at_equal_quality(likelihoods, model_scores, ratings, name="likelihood", **options)


def likelihood_effect_change(
    likelihoods: ArrayLike, before: ArrayLike, after: ArrayLike, ratings: ArrayLike, **options: Any
) -> FeatureEffect:
    """Estimate how the effect of likelihood differs between two judges; see ``effect_change``."""
    return effect_change(likelihoods, before, after, ratings, name="likelihood", **options)


def likelihood_effects(
    likelihoods: ArrayLike, scores: FloatArray, ratings: ArrayLike, *, clusters: Sequence[object] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Estimate the effect of likelihood on each of several judges, and how far the estimates err together.

    Args:
        likelihoods: (n,) LS in nats.
        scores: (n, s) Score_m of s judges; only items that all of them scored count.
        ratings: (n, r) two or more ratings an item.
        clusters: (n,) input of each item.

    Returns:
        (s,) effects; (G, s) the jackknife's influence of each of G inputs: the covariance of the effects is
        ``influence.T @ influence``. Both are NaN for a judge that gives all items the same score.
    """
    (x,) = vectors(likelihoods=likelihoods)
    model = joint_model(x, scores, ratings, name="likelihood", standardized=True, clusters=clusters)
    rated = pool(model.ratings)
    varied = ~np.isnan(model.scores).any(axis=0)
    coefficients, left_out = jackknife(model.scores[:, varied], model.matrix, rated, model.clusters, unit=model.unit)
    effects, influence = np.full(varied.size, np.nan), np.full((left_out.shape[0], varied.size), np.nan)
    effects[varied], rest = coefficients[1], left_out[:, 1]
    influence[:, varied] = (rest.mean(axis=0) - rest) * np.sqrt((rest.shape[0] - 1) / rest.shape[0])
    return effects, influence
