"""Quadratic fit of agreement against decision rate, whose top lies near one half (Zhou et al. 2024, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import settled
from evalbias.measures.checks import defined, numbers, vectors


@dataclass(frozen=True)
class QuadraticFit:
    """Least-squares parabola ``y = curvature x^2 + slope x + constant``.

    Attributes:
        curvature: Quadratic coefficient; negative where the curve has a maximum.
        slope: Linear coefficient.
        constant: Value at x = 0.
        top: x at which the curve is highest; NaN unless the curvature is negative.
        r_squared: Share of the variance of y that the parabola explains, in [0, 1].
        linear_r_squared: Share that a straight line explains, in [0, 1].
        n: Number of points used.
        undefined: Number of points left out because x or y is NaN.
    """

    curvature: float
    slope: float
    constant: float
    top: float
    r_squared: float
    linear_r_squared: float
    n: int
    undefined: int

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """Evaluate the parabola at x."""
        return np.polyval([self.curvature, self.slope, self.constant], numbers(x, "x"))


def quadratic_fit(x: ArrayLike, y: ArrayLike) -> QuadraticFit:
    """Fit a parabola, and a straight line to compare it with, by least squares.

    Args:
        x: (n,) any quantity, such as the decision rate of each instruction in [0, 1]; points with a NaN are left out.
        y: (n,) any quantity, such as the agreement with people in [-1, 1].

    Returns:
        The fit; its numbers are NaN for fewer than four points, fewer than three distinct x, or a constant y.

    Raises:
        ValueError: The lengths differ, or a number is infinite.

    Examples:
        >>> fit = quadratic_fit([0.0, 0.25, 0.5, 0.75, 1.0], [0.1, 0.4, 0.5, 0.4, 0.1])
        >>> round(fit.top, 6), round(fit.r_squared, 6)
        (0.5, 1.0)
    """
    a, b = vectors(x=x, y=y)
    kept = defined(a, b)
    a, b = settled(a[kept]), settled(b[kept])
    n, undefined = len(a), int((~kept).sum())
    if n < 4 or len(np.unique(a)) < 3 or b.min() == b.max():
        nan = float("nan")
        return QuadraticFit(nan, nan, nan, nan, nan, nan, n, undefined)
    curvature, slope, constant = (float(w) for w in np.polyfit(a, b, 2))
    total = ((b - b.mean()) ** 2).sum()
    r_squared, linear_r_squared = (
        float(1 - ((b - np.polyval(w, a)) ** 2).sum() / total)
        for w in ([curvature, slope, constant], np.polyfit(a, b, 1))
    )
    top = -slope / (2 * curvature) if curvature < 0 else float("nan")
    return QuadraticFit(curvature, slope, constant, top, r_squared, linear_r_squared, n, undefined)
