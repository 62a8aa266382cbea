"""Interval and test of a coefficient that hold however little the ratings say about the quality."""

from __future__ import annotations

import numpy as np
import scipy

from evalbias.measures.arrays import BoolArray, FloatArray, IntArray
from evalbias.measures.instrumented import small_sample
from evalbias.measures.raters import Rated
from evalbias.measures.resampling import sums_by_cluster

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
