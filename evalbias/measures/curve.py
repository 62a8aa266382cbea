"""Agreement against the decision rate: near quadratic, with its top near one half (Zhou et al. 2024, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.checks import defined, vectors


@dataclass(frozen=True)
class QuadraticFit:
    """``y = curvature x^2 + slope x + constant`` by least squares.

    Attributes:
        curvature: Negative where the curve has a top.
        slope: At x = 0.
        constant: At x = 0.
        top: Where the curve is highest; NaN unless the curvature is negative.
        r_squared: Share of the variance that the curve explains, in [0, 1].
        linear_r_squared: The same of a straight line.
        n: Points that count.
        undefined: Points left out because a number is NaN.
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
        """The curve at x."""
        return np.polyval([self.curvature, self.slope, self.constant], np.asarray(x, dtype=np.float64))


def quadratic_fit(x: ArrayLike, y: ArrayLike) -> QuadraticFit:
    """Fit a parabola.

    Args:
        x: (n,) decision rates, say.
        y: (n,) agreements.

    Returns:
        All NaN with fewer than four points, fewer than three different x, or a constant y.
    """
    a, b = vectors(x=x, y=y)
    kept = defined(a, b)
    a, b = a[kept], b[kept]
    n, undefined = len(a), int((~kept).sum())
    if n < 4 or len(np.unique(a)) < 3 or b.min() == b.max():
        nan = float("nan")
        return QuadraticFit(nan, nan, nan, nan, nan, nan, n, undefined)
    curvature, slope, constant = (float(w) for w in np.polyfit(a, b, 2))
    total = ((b - b.mean()) ** 2).sum()
    whole, straight = (
        float(1 - ((b - np.polyval(w, a)) ** 2).sum() / total)
        for w in ([curvature, slope, constant], np.polyfit(a, b, 1))
    )
    top = -slope / (2 * curvature) if curvature < 0 else float("nan")
    return QuadraticFit(curvature, slope, constant, top, whole, straight, n, undefined)
