"""Self-bias of refine loops: Bias, distance skewness, and quantile maps between metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures import arrays
from evalbias.measures.arrays import Before, Clusters, FloatArray, IntArray, checked, defined, settled, vectors
from evalbias.measures.resample import DRAWS, Draws, Interval, chunks, estimate, unless_alike

# Self-bias: how far a model's scores of its own outputs exceed their true quality (Xu et al. 2024, section 3). Bias is
# the mean difference of own and expected scores (eq 1); expected ones are on the scale of the own ones: human scores, a
# reference-based metric mapped with ``QuantileMap``, or a predefined criterion.

ROUNDING = 1e-9  # relative rounding error up to which a resample is as skewed as the data


def differences(own: FloatArray, expected: FloatArray) -> FloatArray:
    """Subtract expected from own scores; 0 where all of the differences are rounding errors of the scores."""
    moved = own - expected
    sizes = [np.abs(x[~np.isnan(moved)]).max(initial=0.0) for x in (moved, own, expected)]
    return np.where(np.isnan(moved), np.nan, 0.0) if sizes[0] <= arrays.NO_SPREAD * max(sizes[1:]) else moved


def counted_skewness(counts: FloatArray, x: FloatArray) -> FloatArray:
    """Compute the distance skewness around 0, in [0, 1], of resamples (k, n) of values (n,) (Xu et al. 2024, eq 2).

    ``dSkew = 1 - sum_ij |x_i - x_j| / sum_ij |x_i + x_j|`` over all ordered pairs with i = j included is 0 if and only
    if the sample is symmetric around 0, 1 if all values are equal, and NaN if all are 0 (the published code: 0).
    With ``min(|a|, |b|) = integral_0^inf 1[|a| > t] 1[|b| > t] dt``, the sums of ``|a - b|`` and ``|a + b|`` over all
    pairs are integrals of squares: of the signed and of the plain number of values beyond t.
    """
    order, starts, sizes = _by_magnitude(x)  # (n,), (m,), (m,)
    shares = counts / counts.sum(axis=1, keepdims=True)
    signed, plain = (np.add.reduceat(w[:, order], starts, axis=1) for w in (shares * np.sign(x), shares))  # (k, m)
    differences, lower = (_beyond(w) ** 2 @ np.diff(sizes, prepend=0.0) for w in (signed, plain))  # +-min(|a|, |b|)
    sums = 2 * (plain @ sizes) - lower + differences  # |a + b| = max(|a|, |b|) +- min(|a|, |b|)
    values = np.divide(2 * differences, sums, out=np.full(len(plain), np.nan), where=sums > 0)
    return np.asarray(np.clip(values, 0.0, 1.0))


def symmetry_p(x: FloatArray, codes: IntArray, *, draws: Draws) -> float:
    """Test symmetry around 0, under which every cluster is as likely as with all signs changed.

    p is the share of sign changes, including none, that leave the values at least as skewed as the data.
    """
    order, starts, sizes = _by_magnitude(x)
    signs, steps, codes = np.sign(x[order]), np.diff(sizes, prepend=0.0), codes[order]

    def differences(signs: FloatArray) -> FloatArray:  # the other sums of the skewness have no signs
        return np.asarray(_beyond(np.add.reduceat(signs, starts, axis=1)) ** 2 @ steps)

    rng, observed, extreme = np.random.default_rng(draws.seed), differences(signs[None]).item(), 0
    for k in map(len, chunks(draws.resamples, len(x))):
        flips = rng.choice(np.array([-1.0, 1.0]), size=(k, int(codes.max()) + 1))
        extreme += int((differences(signs * flips[:, codes]) >= observed * (1 - ROUNDING)).sum())
    return (1 + extreme) / (1 + draws.resamples)


def _by_magnitude(x: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the order of the values by magnitude, where each magnitude starts in it, and the magnitudes (m,)."""
    order, sizes = np.argsort(np.abs(x)), np.sort(np.abs(x))
    starts = np.flatnonzero(np.diff(sizes, prepend=np.nan))
    return order, starts, sizes[starts]


def _beyond(weights: FloatArray) -> FloatArray:
    """Sum each magnitude's weight and those after it."""
    return np.asarray(np.cumsum(weights[:, ::-1], axis=1)[:, ::-1])


def estimate_skewness(
    x: ArrayLike, *, before: Before = None, clusters: Clusters = None, draws: Draws = DRAWS
) -> Interval:
    """Estimate the distance skewness around 0 of (n,) values, own minus expected scores (Xu et al. 2024, eq 2).

    Resamples of symmetric scores are skewed, so the lower end is 0 if changes of sign do not reject symmetry, else that
    of the BCa interval. The upper end is the larger one of the BCa and percentile intervals, because near 0 BCa
    corrects too much.
    """
    skewness = estimate(counted_skewness, x, before=before, clusters=clusters, draws=draws)
    if before is not None or math.isnan(skewness.low):
        return skewness
    plain = estimate(counted_skewness, x, clusters=clusters, method="percentile", draws=draws)
    (kept,), codes = arrays.complete(*checked({"x": x}), clusters=clusters)
    p = symmetry_p(kept, codes, draws=draws)
    low, high = 0.0 if p > 1 - draws.confidence else skewness.low, max(skewness.high, plain.high)
    return unless_alike(replace(skewness, low=low, high=high, p_value=p))


# Quantile mapping: put the scores of one metric on the scale of another (Xu et al. 2024, appendix B).


@dataclass(frozen=True)
class QuantileMap:
    """Monotone map from a named metric's scores to the target scores at the same quantiles.

    It is linear between the fitted scores (m,), both ascending. A score outside the fitted range is sent to the nearer
    end of the target range; ``outside`` counts such scores.

    Examples:
        >>> to_mqm = QuantileMap.fit([0.0, 0.5, 1.0], [-25, -10, 0], metric="comet wmt22-comet-da")
        >>> to_mqm([0.5, 0.75, 2.0]).tolist()
        [-10.0, -5.0, 0.0]
    """

    metric: str
    source: FloatArray
    target: FloatArray

    @classmethod
    def fit(cls, source: ArrayLike, target: ArrayLike, *, metric: str) -> QuantileMap:
        """Fit the map to a sample of each metric, (n,) and (k,) scores that may differ in items; NaN is left out.

        Equal source scores share their mean rank, and so a target score. The metric is the one to map; for
        feedback sources their ``name``. ValueError for a metric without a name, an infinite score, fewer than two
        different source scores or two target scores.
        """
        if not metric.strip():
            raise ValueError("metric is empty: name the metric of the source scores, such as 'chrf'.")
        (a,), (b,) = vectors(source=source), vectors(target=target)
        a, b = np.sort(settled(a[defined(a)])), np.sort(b[defined(b)])
        values, counts = np.unique(a, return_counts=True)
        if len(values) < 2 or len(b) < 2:
            fault = f"{len(values)} different source scores and {len(b)} target scores were given"
            raise ValueError(f"{fault}; fit needs at least two of each.")
        ranks = (np.cumsum(counts) - (counts + 1) / 2) / (len(a) - 1)
        ranks[0], ranks[-1] = 0.0, 1.0  # the ends of the source map onto the ends of the target
        return cls(metric, values, np.quantile(b, ranks))

    def __call__(self, values: ArrayLike) -> FloatArray:
        """Map (n,) scores to the target scale; NaN stays NaN."""
        (x,) = vectors(values=values)
        return np.interp(x, self.source, self.target)

    def outside(self, values: ArrayLike) -> int:
        """Count the scores outside the fitted range."""
        (x,) = vectors(values=values)
        return int(((x < self.source[0]) | (x > self.source[-1])).sum())

    def check_metric(self, metric: str) -> None:
        """Refuse, by a ValueError, scores of another metric than the map's; upper and lower case do not matter."""
        if metric.casefold() != self.metric.casefold():
            fault = f"The quantile map was fitted to scores of {self.metric!r}, but these are scores of {metric!r}"
            remedy = f"fit a map to scores of {metric!r} and give it that name, or score with {self.metric!r}"
            raise ValueError(f"{fault}: {remedy}.")
