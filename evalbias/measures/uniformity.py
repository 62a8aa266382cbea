"""Uniformity of a judge's scores: our counterpart of fairness for judges that score one output at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import defined, vectors


def score_uniformity(scores: ArrayLike, *, low: float, high: float) -> float:
    """Measure how evenly a judge's scores fill the scale, as minus the distance from the uniform distribution.

    With x the scores mapped onto [0, 1] and F their empirical distribution function, it is
    ``-integral_0^1 |F(t) - t| dt``, minus the Wasserstein-1 distance. A judge that gives every output the same score
    does not distinguish them; a uniform distribution is not a guarantee that it orders them well.

    Args:
        scores: (n,) scores in [low, high]; NaN is left out.
        low: Lower end of the scale.
        high: Upper end of the scale.

    Returns:
        Uniformity in [-.5, 0], in units of the scale's length: 0 is uniform, -.25 has every score at the middle, -.5
        at one end. NaN if no score is defined.

    Raises:
        ValueError: A score lies outside the scale, or ``low`` is not below ``high``.

    Examples:
        >>> score_uniformity([3.0, 3.0, 3.0, 3.0], low=1, high=5)
        -0.25
    """
    (values,) = vectors(scores=scores)
    values = np.sort(values[defined(values)])
    if not low < high or (len(values) and (values[0] < low or values[-1] > high)):
        ends = values[[0, -1]].tolist() if len(values) else []
        raise ValueError(f"The lowest and highest score are {ends}; the scale {low} to {high} must contain them.")
    if not len(values):
        return float("nan")
    x, edges = (values - low) / (high - low), np.linspace(0.0, 1.0, len(values) + 1)
    return -float((_half_square(edges[1:] - x) - _half_square(edges[:-1] - x)).sum())


def _half_square(t: FloatArray) -> FloatArray:
    """Integrate |t| from 0 to each t."""
    return np.asarray(t * np.abs(t) / 2)
