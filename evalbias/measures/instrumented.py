"""Linear regression on a quality that people rate with noise: instrumental variables and known reliability.

A score y depends on covariates X and on a quality q that is seen only through ratings. Ratings h_1, ..., h_r of an item
share q and have independent noise. Two-stage least squares with each rating instrumented by each other one, stacked
over all ordered pairs, solves the normal equations of least squares on the mean rating h, except that h^2 is replaced
by the mean product of two different ratings, in which the noise does not correlate with itself:

    sum_i X_i (y_i - X_i'a - b h_i) = 0,    sum_i h_i (y_i - X_i'a) - b P_i = 0,    P_i = mean over j != k of h_ij h_ik

``raters`` reduces ratings to h and P, and allows for raters with different levels and scales. With one rating of known
reliability r, P_i = r h_i^2. Standard errors come from the jackknife over clusters: the whole estimate is repeated
without each cluster, standardization included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.measures.raters import Rated
from evalbias.measures.resampling import sums_by_cluster

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
