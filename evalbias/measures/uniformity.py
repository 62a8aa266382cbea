"""Whether a judge makes use of its scale: ours, the counterpart of fairness for a judge that scores one output."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.checks import defined, vectors

FloatArray = NDArray[np.float64]


def score_uniformity(scores: ArrayLike, *, low: float, high: float) -> float:
    """Minus the distance of the scores' distribution from the uniform one over the scale.

    The distance is the area between the two distribution functions in units of the scale (Wasserstein-1). A judge that
    gives everything the same score cannot tell anything apart; one whose scores fill the scale evenly can.

    Args:
        scores: (n,) in [low, high]; NaN where undefined, left out.
        low: The scale's lower end.
        high: Its upper end.

    Returns:
        In [-.5, 0]: 0 is uniform, -.25 all in the middle, -.5 all at one end. NaN if no score is defined.

    Raises:
        ValueError: A score off the scale, or a scale without length.

    Examples:
        >>> score_uniformity([3.0, 3.0, 3.0, 3.0], low=1, high=5)
        -0.25
    """
    (values,) = vectors(scores=scores)
    values = np.sort(values[defined(values)])
    if not low < high or (len(values) and (values[0] < low or values[-1] > high)):
        found = values[[0, -1]].tolist() if len(values) else []
        raise ValueError(f"The lowest and highest score are {found}: the scale {low} to {high} must hold them.")
    if not len(values):
        return float("nan")
    x, edges = (values - low) / (high - low), np.linspace(0.0, 1.0, len(values) + 1)
    return -float((_half_square(edges[1:] - x) - _half_square(edges[:-1] - x)).sum())


def _half_square(t: FloatArray) -> FloatArray:
    """The integral of |t|."""
    return np.asarray(t * np.abs(t) / 2)
