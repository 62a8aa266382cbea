"""The smallest difference between two systems that a judge can show: what shrinks with more inputs, what does not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.arrays import SLACK, Clusters, FloatArray, IntArray, checked, cluster_codes, ratio
from evalbias.measures.equal_quality import MIN_CLUSTERS, EqualQuality
from evalbias.measures.ratings import deviations
from evalbias.measures.resample import Interval

TESTED, SHOWN = 0.975, 0.8
"""Levels of a quantile: beyond that of the first, a two-sided test at 5 % rejects, and by the second more in 80 %."""

FEWEST = 3  # fewest systems that tell how a judge errs
TOLD = 4.0  # F of people's mean ratings over systems from which the slope between systems is used
EVEN = (np.arange(500) + 0.5) / 500  # levels of the quantiles that stand for a distribution

# A judge gives system s on input i the score y_is = a_i + b Q_s + u_s + e_is. More inputs average e_is out, but not the
# judge's error u_s, which is the same on all inputs: at equal quality Q, two systems' means over n inputs differ by
#
#     N(0, d^2 / n + 2 tau^2),   d^2 = var(e_is - e_it) over inputs i,   tau^2 = var(u_s) over systems s.
#
# Covariances between systems of the scores and of each rater's ratings come from products over *different* inputs (and
# different raters), in which the noise of an output or a rating never meets itself:
#
#     U_st(v, w) = mean over i != i' of v_is w_i't,   B(v, w) = mean over s of U_ss - mean over s != t of U_st
#     b = B(y, h) / B(h, h'),   tau^2 = B(y, y) - 2 b B(y, h) + b^2 B(h, h'), for S - 2 degrees of freedom
#
# The slope b is that between systems: a judge may tell systems apart better, or worse, than one's good and bad outputs,
# and what follows quality between systems is no error at equal quality. Errors that raters share count as quality.
#
# Few systems tell tau^2 badly. With the variance R of the means after quality, and the part N of it that is the noise
# of inputs and raters, tau^2 = R - N is distributed as k R / chi^2_k - N for k degrees of freedom, at least 0, and so
# is the difference of two systems: a mixture of normals (Weerahandi 1993), which is Student's t without noise.


@dataclass(frozen=True)
class Resolution:
    """Limits of a judge that compares the mean scores of systems, in points of the judge.

    Attributes:
        inputs: Number of inputs that a system answered, the median over systems.
        spread: Standard deviation over inputs of the difference of two systems' scores on one input.
        error: Standard deviation over systems of the judge's error at equal quality, with a 95 % interval over systems;
            ``units`` are the systems. NaN for fewer than three.
        residual: Variance over systems of their mean scores after quality, of ``df`` degrees of freedom.
        noise: Part of it that inputs and raters explain.
        slope: Points of the judge that one point of quality between systems is worth. NaN where it is not told.
        rises: Whether the scores of single outputs are shown to rise with quality, and those of systems do.
        slope_of: ``"systems"``, or ``"outputs"`` where people's ratings hardly tell the systems apart: then it is the
            slope of single outputs.
        differences: (P,) mean score of a system less that of another, on the inputs of both where there are any.
        rated_differences: (P,) the same of people's mean ratings.
        unpaired: Number of these pairs that share fewer than two inputs, and do not count in ``spread`` unless all are.
    """

    inputs: int
    spread: float
    error: Interval
    residual: float
    noise: float
    df: int
    slope: float
    rises: bool
    slope_of: Literal["systems", "outputs"]
    differences: FloatArray
    rated_differences: FloatArray
    unpaired: int

    def errors(self, levels: ArrayLike) -> FloatArray:
        """Return the standard deviation of the judge's error by system that is exceeded with these probabilities."""
        whole = self.df * self.residual / scipy.stats.chi2.ppf(np.asarray(levels), self.df)
        return np.asarray(np.sqrt(np.maximum(whole - self.noise, 0.0)))

    def difference(self, level: float, inputs: float, *, erring: bool = True) -> float:
        """Return a quantile of the difference of two systems of equal quality over n inputs, in points.

        Infinitely many inputs leave the judge's error by system alone. A judge that is not ``erring`` has none.
        """
        tau = self.errors(EVEN) if erring else np.zeros(1)
        deviations = np.sqrt(self.spread**2 / inputs + 2 * tau**2)
        return float(np.quantile(np.outer(deviations, scipy.special.ndtri(EVEN)), level))

    def smallest(self, inputs: float, *, erring: bool = True) -> float:
        """Return the difference in points that n inputs show in 80 % of cases, by a test at 5 % that allows for both.

        NaN where ``error`` is, unless the judge is not ``erring``.
        """
        if erring and math.isnan(self.error.value):
            return math.nan
        return sum(self.difference(level, inputs, erring=erring) for level in (TESTED, SHOWN))

    def false_alarms(self, inputs: float) -> float:
        """Return the share of pairs of equal quality that a paired test over n inputs, which knows of no error, finds.

        5 % if the judge does not err by system.
        """
        noise = self.spread**2 / inputs
        beyond = scipy.special.ndtri(TESTED) * np.sqrt(noise / (noise + 2 * self.errors(EVEN) ** 2))
        return 2 * float(scipy.special.ndtr(-beyond).mean())


def system_resolution(scores: ArrayLike, ratings: ArrayLike, systems: Clusters, *, inputs: Clusters) -> Resolution:
    """Estimate what limits the comparison of systems by a judge's mean scores.

    Args:
        scores: (n,) scores on any scale.
        ratings: (n, r) on any scale, NaN where a rater gave none. Items without a score or any rating are left out.
        systems: (n,) system that wrote each output.
        inputs: (n,) input that it was written to; several outputs of a system to one input count as their mean.

    Raises:
        ValueError: Fewer than two systems, or than two inputs of each.
    """
    y, rated = checked({"scores": scores, "ratings": ratings})
    kept = ~np.isnan(y) & ~np.isnan(rated).all(axis=1)
    who, where = cluster_codes(systems, kept, "systems"), cluster_codes(inputs, kept, "inputs")
    few = sorted({str(np.asarray(systems)[kept][who == s][0]) for s in set(who) if len(set(where[who == s])) < 2})
    if few or len(set(who)) < 2:
        which = f"{', '.join(few):.200} answered one" if few else f"{len(set(who))} has such"
        raise ValueError(f"Two systems or more need two rated inputs each, and {which}: add items, or leave some out.")
    # 1 the mean of each system on each input: (G, S, 1 + r) of the score and of each rater
    level, rounding = y[kept].mean(), SLACK * np.abs(y[kept]).max()
    y, rated = np.where(np.abs(y[kept] - level) <= rounding, 0.0, y[kept] - level), rated[kept]
    columns = np.column_stack([y, deviations(rated)])
    shape = (where.max() + 1, who.max() + 1, columns.shape[1])
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (where, who), np.nan_to_num(columns))
    np.add.at(counts, (where, who), ~np.isnan(columns))
    present = (counts > 0).astype(np.float64)
    cells, many = sums / np.maximum(counts, 1), shape[1]
    # 2 the spread of a difference over inputs, pooled over pairs of systems
    pairs = np.triu_indices(many, 1)
    differences, variances, shared = _differences(cells[..., 0], present[..., 0])
    n, apart = shared[pairs], shared[pairs] < 2
    if apart.all():
        within = [cells[present[:, s, 0] > 0, s, 0] for s in range(many)]
        spread = math.sqrt(2 * sum(((x - x.mean()) ** 2).sum() for x in within) / sum(len(x) - 1 for x in within))
    else:
        spread = math.sqrt(np.average(variances[pairs][~apart], weights=n[~apart] - 1))
    given = np.asarray(present[..., 1:].any(axis=2), dtype=np.float64)
    mean_rating = cells[..., 1:].sum(axis=2) / np.maximum(present[..., 1:].sum(axis=2), 1)
    people = _differences(mean_rating, given)[0]
    # 3 covariances between systems, and what people's ratings say of them
    of_score, both, of_raters = np.zeros((3, shape[2], shape[2]))  # the products of columns that count
    of_score[0, 0], both[0, 1:] = 1.0, 1.0
    of_raters[1:, 1:] = 1 - np.eye(shape[2] - 1) * (shape[2] > 2)
    yy, yh, hh = (_between(cells, present, which) for which in (of_score, both, of_raters))
    means = [x.sum(axis=0) / m.sum(axis=0) for x, m in ((cells[..., 0], present[..., 0]), (mean_rating, given))]
    seen = float(np.var(means[1], ddof=1))
    by_systems = many >= MIN_CLUSTERS and hh > 0 and seen >= TOLD * (seen - hh)
    outputs, several = _slope_of_outputs(y, rated, where)
    slope = yh / hh if by_systems else outputs if several else math.nan
    # 4 the judge's error at equal quality: its variance less the noise of the means, which follows a chi-square
    df = many - 2 if by_systems else many - 1
    whole = float(np.var(means[0] - slope * means[1], ddof=1))
    noise = whole - (yy - 2 * slope * yh + slope**2 * hh)
    reason = "people's ratings tell too little of quality" if math.isnan(slope) else ""
    reason = f"three systems are needed ({many} here)" if many < FEWEST else reason
    resolution = Resolution(
        inputs=int(np.median(present[..., 0].sum(axis=0))),
        spread=spread,
        error=Interval(math.nan, n=len(y), undefined=int((~kept).sum()), units=many, reason=reason),
        residual=whole * (many - 1) / max(df, 1),
        noise=noise,
        df=df,
        slope=slope if outputs > 0 and slope > 0 else math.nan,
        rises=bool(outputs > 0 and not slope <= 0),
        slope_of="systems" if by_systems else "outputs",
        differences=differences[pairs],
        rated_differences=people[pairs],
        unpaired=int(apart.sum()),
    )
    if reason:
        return resolution
    low, high = resolution.errors([0.975, 0.025])
    value = math.sqrt(max(resolution.residual - noise, 0.0))
    return replace(resolution, error=replace(resolution.error, value=value, low=float(low), high=float(high)))


def _differences(cells: FloatArray, present: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (S, S) differences of systems' means on common inputs, their variances over inputs, and common inputs.

    Of systems without common inputs, it is the difference of their means over all inputs.
    """
    x, shared = cells * present, present.T @ present
    means = x.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    total = x.T @ present - present.T @ x  # sums over common inputs of the first less the second
    squares = (x**2).T @ present + present.T @ x**2 - 2 * x.T @ x
    average = ratio(total, shared)
    variances = ratio(np.maximum(squares - total * np.nan_to_num(average), 0.0), shared - 1)
    return np.where(shared > 0, average, means[:, None] - means), variances, shared


def _between(cells: FloatArray, present: FloatArray, which: FloatArray) -> float:
    """Return B of the cells (G, S, c): of the products of columns (c, c) that are marked in ``which``."""

    def over_inputs(x: FloatArray) -> FloatArray:  # (S, S) sums of products over different inputs
        totals = np.einsum("sj,tk,jk->st", x.sum(axis=0), x.sum(axis=0), which)
        return np.asarray(totals - np.einsum("isj,itk,jk->st", x, x, which, optimize=True))

    products = ratio(over_inputs(cells * present), over_inputs(present))
    many, same = len(products), float(np.trace(products))
    return same / many - (float(products.sum()) - same) / (many * (many - 1))


def _slope_of_outputs(scores: FloatArray, ratings: FloatArray, where: IntArray) -> tuple[float, bool]:
    """Return points of the score for a point of quality among single outputs, and whether several ratings tell it.

    With one rating, what it says of quality is taken for all of it. NaN where the slope is not shown to be above 0.
    """
    model = EqualQuality(scores, ratings, {}, clusters=where.tolist())
    if model.groups < MIN_CLUSTERS or np.isnan(model.scores).any():
        return math.nan, model.several
    slope, left_out = (slopes[..., -1] for slopes in model.slopes())
    error = math.sqrt((model.groups - 1) * float(np.var(left_out)))
    above = slope > float(scipy.stats.t.ppf(0.975, model.groups - 1)) * error
    return float(slope) if above else math.nan, model.several
