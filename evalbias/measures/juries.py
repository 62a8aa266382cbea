"""Several judges of the same items: correlation of their errors at equal quality, and their joint worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.arrays import SLACK, TINY, BoolArray, Clusters, FloatArray, IntArray, cluster_codes, settled
from evalbias.measures.equal_quality import MIN_CLUSTERS, SEVERAL, SINGULAR
from evalbias.measures.ratings import Rated, pool
from evalbias.measures.resample import GROUPS, Interval, influences

# In z(score_j) = v_j quality + e_j, with quality of variance 1, v_j is the judge's correlation with quality, and
#
#     cov(e_j, e_k) = R_jk - v_j v_k      for the correlations R of the scores
#
# Errors relative to a mean rating would include the rating's noise, which all judges share. So v_j comes from products
# of scores and ratings, and the variance of quality from products of two different ratings (``pool``): in neither does
# noise meet itself. What it does not know: errors that an item's raters share count as quality.

LEAST_WEIGHT = 0.02  # part of all weights below which a member is not worth asking
FEWEST_ITEMS = 10  # fewest items that a panel is fitted to, as in a part of the items
NO_QUALITY = "People's ratings of an item agree no more than by chance, so they do not tell quality: rate more items."

Statistic = Callable[[FloatArray, FloatArray], FloatArray]
"""Function of correlations between K judges' scores (g, K, K) and with quality (g, K) in g samples to (g,) numbers."""


class Panel:
    """Scores of K judges and people's ratings of the same items, reduced to correlations free of the raters' noise.

    Args:
        scores: (n, K) scores on any scales; an item that a judge left out is left out.
        ratings: (n, r) on any scale, NaN where a rater gave none. Items need two, or one with a ``reliability``.
        names: (K,) names of the judges; by default their numbers.
        clusters: (n,) input of each item. By default every item is its own.
        systems: (n,) system that wrote each item. Of five or more, intervals also allow for errors that a system's
            outputs share: two-way clusters (Cameron, Gelbach and Miller 2011).
        reliability: Share of a single rating's variance that is quality, in (0, 1]; only if an item has just one.
        mirrored: Whether the numbers are differences within pairs, which count both ways.

    Attributes:
        correlations: (K, K) correlations of the scores.
        validities: (K,) correlations of each judge's scores with quality.
        noise: Share of the mean rating's variance that is noise.
        n: Items that count; ``undefined`` are left out.

    Raises:
        ValueError: Too few items, a judge that gives all the same score, or ratings that do not tell quality.

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
        # 1 items with scores from all judges and ratings
        table, people = arrays.checked({"scores": scores, "ratings": ratings}, clusters, axes=(2,))
        counts = (~np.isnan(people)).sum(axis=1)
        scored = ~np.isnan(table).any(axis=1)
        if reliability is not None and scored.any() and (counts[scored] > 1).all():
            raise ValueError(SEVERAL)
        kept, k = scored & (counts >= (2 if reliability is None else 1)), table.shape[1]
        self.n, self.undefined, self.names = int(kept.sum()), int((~kept).sum()), tuple(names or map(str, range(k)))
        if k < 2:
            raise ValueError(f"The scores are of {k} judges: give two or more.")
        if self.n < FEWEST_ITEMS:
            n_scored = (~np.isnan(table)).sum(axis=0)
            least = f" ({self.names[n_scored.argmin()]!r} scored {n_scored.min()})"
            least = least if scored.sum() < FEWEST_ITEMS else ""
            raise ValueError(
                f"{self.n} items have a score of each of {k} judges{least} and "
                f"{'two ratings' if reliability is None else 'a rating'}: give at least {FEWEST_ITEMS}, or state the "
                "`reliability` of one rating (1 for objective labels)."
            )
        signs = (1.0, -1.0) if mirrored else (1.0,)
        table, people = (np.concatenate([sign * values[kept] for sign in signs]) for values in (table, people))
        table = settled(table.T).T
        # 2 their moments, also without each input, each system, and each combination of both
        rated = pool(people, reliability)
        codes = np.tile(cluster_codes(clusters, kept), len(signs))
        ways, self.units, self.systems = [codes], int(codes.max()) + 1, 0
        if systems is not None and len(set(written := cluster_codes(systems, kept).tolist())) >= MIN_CLUSTERS:
            by = np.tile(written, len(signs))
            ways += [by, np.unique(np.stack([codes, by]), axis=1, return_inverse=True)[1].ravel()]
            self.systems = len(set(written))
        if self.units < 2:
            raise ValueError("The items are of one input: give items of several.")
        spreads = np.maximum(table.std(axis=0), TINY)
        self._ways = [_correlations((table - table.mean(axis=0)) / spreads, rated, way) for way in ways]
        self.correlations, self.validities = (part[0] for part in self._ways[0])
        for place, spreads in enumerate(np.diagonal(self._ways[0][0], axis1=1, axis2=2).T):
            if np.isnan(spreads).any():
                of = f"The judge {self.names[place]!r}"
                raise ValueError(f"{of} gives all the same score, but for one input at most: leave it out.")
        if np.isnan(self.validities).any():
            raise ValueError(NO_QUALITY)
        self.noise = 1 - rated.reliability

    def estimate(self, statistic: Statistic, *, most: float = 1.0) -> Interval:
        """Estimate a number with its 95 % interval and its p against 0, from the jackknife over inputs and systems.

        Few or noisy ratings may tell too little of quality, and give correlations beyond 1. A number beyond the largest
        true value (``most``), or an end of its interval, is clipped; the error and p are those of the unclipped number.
        """
        every = [statistic(*way) for way in self._ways]
        value, errors = float(every[0][0]), [float((influences(estimates[1:]) ** 2).sum()) for estimates in every]
        error, df = math.sqrt(errors[0]), min(self.units, GROUPS) - 1
        if self.systems:  # combinations of input and system count once
            both = math.sqrt(max(errors[0] + errors[1] - errors[2], 0.0))
            wider = scipy.special.stdtrit(self.systems - 1, 0.975) * both > scipy.special.stdtrit(df, 0.975) * error
            error, df = (both, self.systems - 1) if wider else (error, df)
        half = float(scipy.special.stdtrit(df, 0.975)) * error
        p_value = float(2 * scipy.special.stdtr(df, -abs(value) / error)) if error > 0 else math.nan
        value, low, high = np.clip([value, value - half, value + half], -most, most).tolist()
        return Interval(value, low, high, self.n, self.undefined, df + 1, p_value=p_value)

    def votes(self) -> Interval:
        """Estimate the number of judges with independent errors that would average out as much error as these do.

        Where S is the covariance of the errors, the mean of K standardized scores has the error variance 1'S1 / K^2; of
        n judges with independent errors of the mean variance tr(S) / K, it is tr(S) / (K n). So

            n = K tr(S) / 1'S1,     K / (1 + (K - 1) rho) if all variances, and all correlations rho, are equal.

        The interval is that of 1 / n, turned over; its upper end is infinite where that may be 0. More than K votes
        have errors that go against each other.
        """
        error = replace(self.estimate(error_left, most=math.inf), p_value=math.nan)
        low, high = (math.inf if end <= 0 else 1 / end for end in (error.high, error.low))
        if error.value > 0:
            return replace(error, value=1 / error.value, low=low, high=high)
        return replace(error, value=math.nan, low=low, high=high, reason="their mean shows no error on these items")


def _correlations(z: FloatArray, rated: Rated, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return (1 + G, K, K) correlations of scores and (1 + G, K) with quality: for all items, and without each cluster.

    With more than ``GROUPS`` clusters, groups of them are left out. NaN if ratings do not reveal quality.
    """
    unit, sums = max(float(rated.mean.std()), TINY), []
    columns = np.column_stack([np.ones(len(z)), z, rated.mean / unit])
    for rows in arrays.members_of(codes % GROUPS):
        products = columns[rows].T @ columns[rows]
        products[-1, -1] = rated.product[rows].sum() / unit**2  # products of different ratings only
        sums.append(products)
    whole = np.sum(sums, axis=0)
    moments = np.concatenate([whole[None], whole - np.array(sums)])
    moments /= moments[:, :1, :1].copy()
    covariances = moments[:, 1:, 1:] - moments[:, 1:, :1] * moments[:, :1, 1:]
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spreads = np.sqrt(np.where(variances > SINGULAR, variances, np.nan))  # those that vary have about 1
    correlations = covariances / (spreads[:, :, None] * spreads[:, None, :])
    return correlations[:, :-1, :-1], correlations[:, :-1, -1]


# Numbers of a panel, each of correlations of the scores (g, K, K) and with quality (g, K).


def error_covariances(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute covariances (g, K, K) of the errors of standardized scores at equal quality."""
    return np.asarray(correlations - validities[:, :, None] * validities[:, None, :])


def error_correlations(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute correlations (g, K, K) of the errors at equal quality; NaN for a judge without error."""
    covariances = error_covariances(correlations, validities)
    with np.errstate(invalid="ignore", divide="ignore"):
        spreads = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        return np.asarray(covariances / (spreads[:, :, None] * spreads[:, None, :]))


def error_correlation(
    correlations: FloatArray, validities: FloatArray, *, weights: FloatArray | None = None
) -> FloatArray:
    """Compute the mean correlation (g,) of the errors of two judges, or its sum with ``weights`` of the pairs."""
    first, second = np.triu_indices(validities.shape[1], 1)
    pairwise = error_correlations(correlations, validities)[:, first, second]
    return np.asarray(pairwise.mean(axis=1) if weights is None else pairwise @ weights)


def error_left(correlations: FloatArray, validities: FloatArray) -> FloatArray:
    """Compute the share (g,) of the judges' mean error variance that remains in their mean: 1 / ``Panel.votes``."""
    covariances = error_covariances(correlations, validities)
    whole = validities.shape[1] * np.trace(covariances, axis1=1, axis2=2)
    return np.asarray(covariances.sum(axis=(1, 2)) / np.where(whole > SINGULAR, whole, np.nan))


def validity(correlations: FloatArray, validities: FloatArray, *, weights: FloatArray) -> FloatArray:
    """Compute the correlation with quality (g, ...) of sums of standardized scores with weights (..., K).

    NaN for a constant sum, for example of two judges who contradict each other on all items.
    """
    variances = np.einsum("...j,gjk,...k->g...", weights, correlations, weights)
    spreads = np.sqrt(np.where(variances > SINGULAR, variances, np.nan))
    return np.asarray(np.einsum("...j,gj->g...", weights, validities) / spreads)


# Rules that combine the members' scores into the jury's, learned from rated items.


Kind = Literal["mean", "verdict"]
LARGEST = 1e30  # largest size of a score, and so of a rule's numbers: products of a few of them must stay finite


@dataclass(frozen=True)
class JuryRule:
    """Rule that combines the scores of K members, and names the members to ask first.

    With z = (score - center) / spread of each member, the jury's score is M + D a: ``"mean"`` has a = sum_j w_j z_j,
    the weights adding up to 1, and ``"verdict"`` the sign of offset + sum_j w_j z_j, where z is 1 or -1, or 0 for
    a tie. M and D are the weighted means of the centers and of the spreads.

    Examples:
        >>> JuryRule.plain(3)([[1.0, 2.0, 6.0], [1.0, np.nan, 2.0]]).tolist()
        [3.0, nan]
    """

    kind: Kind
    weights: tuple[float, ...]  # weights of the members, 0 or more; members with 0 need not be asked
    centers: tuple[float, ...]
    spreads: tuple[float, ...]  # above 0
    offset: float = 0.0
    first: tuple[int, ...] = ()  # places of the members that are asked first; empty for all at once
    tolerance: float = 0.0  # largest difference of their z that leaves the others unasked

    def __post_init__(self) -> None:
        of_members = self.weights, self.centers, self.spreads
        k, numbers = len(self.weights), [*sum(of_members, ()), self.offset, self.tolerance]
        if self.kind not in get_args(Kind) or {*map(len, of_members)} != {k} or not np.isfinite(numbers).all():
            raise ValueError(f"kind={self.kind!r:.20}: give one of {get_args(Kind)}, and finite numbers by member.")
        if not (sum(self.weights) > TINY and min(self.weights) >= 0 and min(self.spreads) > TINY):
            raise ValueError(f"Give weights of 0 or more, one above 0, and spreads above 0 (and above {TINY:g}).")
        if max(map(abs, numbers)) > LARGEST:
            raise ValueError(f"Give numbers of at most {LARGEST:g}, as scores are.")
        places = [place for place in set(self.first) if type(place) is int and 0 <= place < k]
        if len(places) < len(self.first) or len(places) == 1 or self.tolerance < 0:
            raise ValueError(f"first={self.first}: give places of two members or more, and a tolerance of 0 or more.")

    @classmethod
    def plain(cls, members: int) -> JuryRule:
        """Return the rule for the plain mean of the scores."""
        return cls("mean", (1 / members,) * members, (0.0,) * members, (1.0,) * members)

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of all members with a weight, who are asked if the first do not settle an item."""
        return tuple(np.flatnonzero(np.array(self.weights) > 0).tolist())

    def __call__(self, scores: ArrayLike) -> FloatArray:
        """Compute the jury's scores (n,) from the members' (n, K); NaN if a needed score is."""
        z, weights = self._standardized(scores), np.array(self.weights)
        joint = z[:, self.members] @ weights[list(self.members)] + self.offset
        if self.kind == "verdict":
            joint = np.sign(np.where(np.abs(joint) <= SLACK, 0.0, joint))
        middle, unit = (weights @ np.array(values) / weights.sum() for values in (self.centers, self.spreads))
        if self.first:
            early = z[:, self.first].mean(axis=1)
            joint = np.where(self.settled(scores), np.sign(early) if self.kind == "verdict" else early, joint)
        return np.asarray(middle + unit * joint)

    def settled(self, scores: ArrayLike) -> BoolArray:
        """Mark the items (n,) on which the first members agree, so that the others need not be asked."""
        z = self._standardized(scores)[:, self.first]
        return np.asarray(np.ptp(z, axis=1) <= self.tolerance + SLACK if self.first else np.zeros(len(z), dtype=bool))

    def cost(self, scores: ArrayLike, costs: ArrayLike) -> float:
        """Compute the mean cost of an item (n, K), from the (K,) costs of an answer of each member."""
        prices, late = arrays.numbers(costs, "costs"), [member for member in self.members if member not in self.first]
        return float(prices[list(self.first)].sum() + (1 - self.settled(scores).mean()) * prices[late].sum())

    def _standardized(self, scores: ArrayLike) -> FloatArray:
        table = arrays.numbers(scores, "scores")
        if table.ndim != 2 or table.shape[1] != len(self.weights):
            raise ValueError(f"scores has the shape {table.shape}: give one row an item, (n, {len(self.weights)}).")
        return np.asarray((table - np.array(self.centers)) / np.array(self.spreads))


def fit_rules(panel: Panel, scores: FloatArray, verdicts: tuple[float, float] | None = None) -> dict[str, JuryRule]:
    """Fit every kind of rule for K members to their ``panel`` of rated items and their scores (n, K), name -> rule.

    Scores are combined by the mean, equal or with inverse error covariance weights, shrunk and not negative; verdicts
    by the majority, equal or weighted. ``verdicts`` are their two values, the worse first.
    """
    k, rows = scores.shape[1], scores[~np.isnan(scores).any(axis=1)]
    kind: Kind = "mean" if verdicts is None else "verdict"
    centers, spreads = rows.mean(axis=0), rows.std(axis=0)
    if verdicts is not None:
        centers, spreads = np.full(k, np.mean(verdicts)), np.full(k, np.ptp(verdicts) / 2)
    scale = tuple(centers.tolist()), tuple(spreads.tolist())
    weights = {"equal": np.full(k, 1 / k), "weighted": inverse_error_weights(panel)}
    what = "mean" if verdicts is None else "majority"
    return {f"{name} {what}": JuryRule(kind, tuple(w.tolist()), *scale) for name, w in weights.items()}


def inverse_error_weights(panel: Panel) -> FloatArray:
    """Compute weights (K,) of standardized scores that follow quality best: not negative, adding up to 1.

    Correlations, and validities, are shrunk towards their mean, which gives equal weights, by the share of their spread
    that is error over inputs (Schaefer and Strimmer 2005). The same weights are the inverse of the error covariance
    times the validities, up to a factor.
    """

    def shrunk(parts: FloatArray) -> FloatArray:
        (whole, *_), target = parts, parts[0].mean()
        error, spread = float((influences(parts[1:]) ** 2).sum()), float(((whole - target) ** 2).sum())
        return np.asarray(whole + min(1.0, error / max(spread, TINY)) * (target - whole))

    k, (matrices, vectors) = len(panel.names), panel._ways[0]
    upper, matrix = np.triu_indices(k, 1), np.eye(k)
    matrix[upper] = shrunk(matrices[:, upper[0], upper[1]])
    matrix = matrix + np.triu(matrix, 1).T
    values, axes = np.linalg.eigh(matrix)
    root = axes * np.sqrt(np.maximum(values, SINGULAR))  # root root' is the matrix
    weights, _ = scipy.optimize.nnls(root.T, np.linalg.solve(root, shrunk(vectors)))
    weights = np.where(weights < LEAST_WEIGHT * weights.sum(), 0.0, weights)
    return np.asarray(weights / weights.sum() if weights.sum() > 0 else np.full(k, 1 / k))


PENALTIES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # of weights' distance from equal ones, in mean variances of a score
FOLDS = 5
FEWEST_LABELS = 10  # fewest inputs for learning weights


def label_weights(scores: ArrayLike, labels: ArrayLike, *, clusters: Clusters = None) -> FloatArray:
    """Learn weights (K,) of scores (n, K) that predict labels (n,): not negative, adding up to 1, shrunk to equal.

    They are the non-negative least squares of the centered labels, with a penalty on the distance of each slope from
    the slope of the scores' mean. It is the largest penalty whose error over held-out inputs (``clusters``, 5 folds) is
    within a standard error of the least. Rows with NaN are left out; the order of the others does not matter.

    Raises:
        ValueError: Fewer than 10 inputs have all scores and a label, or all labels are equal.
    """
    table, target = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    kept: BoolArray = np.asarray(~np.isnan(np.column_stack([table, target])).any(axis=1))
    y, codes = target[kept], cluster_codes(clusters, kept)
    count = len(np.unique(codes))
    if count < FEWEST_LABELS or np.ptp(y) == 0:
        alike = ", all equal" if count >= FEWEST_LABELS else ""
        fault = f"{count} inputs have a score on every criterion and a label{alike}"
        raise ValueError(f"{fault}: weights are learned from {FEWEST_LABELS} or more with different labels.")
    # Inputs are numbered by what their rows hold, so that folds, and even sums, do not depend on the order.
    rows = np.column_stack([table[kept], y])
    inputs = sorted(sorted(rows[codes == code].tolist()) for code in np.unique(codes))
    rows, codes = np.concatenate(inputs), np.repeat(np.arange(count), list(map(len, inputs)))
    x, y = rows[:, :-1], rows[:, -1]
    folds, errors = codes % FOLDS, np.empty((len(PENALTIES), len(y)))
    for fold in range(FOLDS):
        fitted, out = folds != fold, folds == fold
        for place, penalty in enumerate(PENALTIES):
            slopes = _slopes(x[fitted], y[fitted], penalty)
            errors[place, out] = (y[out] - y[fitted].mean() - (x[out] - x[fitted].mean(axis=0)) @ slopes) ** 2
    sums = np.array([np.bincount(codes, row) for row in errors])  # (penalties, inputs)
    more = sums - sums[int(np.argmin(sums.sum(axis=1)))]
    within = more.mean(axis=1) <= more.std(axis=1, ddof=1) / math.sqrt(count)
    slopes = _slopes(x, y, PENALTIES[int(np.flatnonzero(within)[-1])])
    return slopes / slopes.sum() if slopes.sum() > 0 else np.full(len(slopes), 1 / len(slopes))


def _slopes(x: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
    """Minimize |y - x b|^2 + r |b - c|^2 over b >= 0, with x and y centered and c the slope of the scores' sum."""
    x, y, k = x - x.mean(axis=0), y - y.mean(), x.shape[1]
    total = x.sum(axis=1)
    c = max(0.0, float(total @ y) / max(float(total @ total), TINY))
    root = math.sqrt(penalty * float((x**2).sum()) / k)
    rows, goal = np.vstack([x, root * np.eye(k)]), np.concatenate([y, np.full(k, root * c)])
    return np.asarray(scipy.optimize.nnls(rows, goal)[0])
