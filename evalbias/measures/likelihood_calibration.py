"""Likelihood calibration: take the effect of likelihood out of a judge's expected scores.

A judge's score follows quality and, with some slope, likelihood. The slope is fitted on items that people rated
(``likelihood_effect``), and the part of the score that it explains is subtracted. Scores of equally likely outputs keep
their order and their distances. Nothing is known of the slope beyond the likelihoods it was fitted on, so an output
rarer or likelier than all of them gets the correction of the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, settled
from evalbias.measures.checks import defined, vectors


@dataclass(frozen=True)
class LikelihoodCalibration:
    """Correction of a judge's scores for the likelihood of what it judged.

    Attributes:
        slope: Points of the score for each nat of LS, the effect that was fitted.
        center: LS in nats at which a score stays as it is, the mean of the items it was fitted on.
        strength: Part of the effect that is subtracted, in [0, 1].
        reduction: Reduction of token log-probabilities to LS, ``"sum"`` or ``"mean"``.
        bounds: Lowest and highest LS in nats that the slope was fitted on; None if the slope holds everywhere.

    Raises:
        ValueError: Slope, center or a bound is not finite, the bounds are in the wrong order, or the strength is out
            of range.
    """

    slope: float
    center: float
    strength: float = 1.0
    reduction: str = "sum"
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.center) and 0 <= self.strength <= 1):
            raise ValueError(
                f"slope={self.slope}, center={self.center}, strength={self.strength}: give finite numbers, and a "
                "strength between 0 and 1."
            )
        if self.bounds is not None and not -np.inf < self.bounds[0] <= self.bounds[1] < np.inf:
            raise ValueError(f"bounds={self.bounds}: give the lowest and the highest LS, both finite, or None.")

    def at(self, strength: float) -> LikelihoodCalibration:
        """Return the same correction at another strength."""
        return replace(self, strength=strength)

    def __call__(self, scores: ArrayLike, likelihoods: ArrayLike, *, scale: tuple[float, float]) -> FloatArray:
        """Correct scores: ``score - strength * slope * (LS - center)``, with LS kept within the bounds.

        The corrected scores are clipped to the scale.

        Args:
            scores: (n,) Score_m.
            likelihoods: (n,) LS in nats, by the same reduction as those it was fitted on.
            scale: Lowest and highest score.

        Returns:
            (n,) corrected scores; NaN where the score or LS is NaN.

        Raises:
            ValueError: The lengths differ, or a number is infinite.

        Examples:
            >>> calibration = LikelihoodCalibration(slope=0.5, center=-10.0)
            >>> calibration([3.0, 3.0, 1.5], [-12.0, -8.0, -8.0], scale=(1, 5)).tolist()
            [4.0, 2.0, 1.0]
        """
        model, ls = vectors(scores=scores, likelihoods=likelihoods)
        if self.bounds is not None:
            ls = np.clip(ls, *self.bounds)
        return np.asarray(np.clip(model - self.strength * self.slope * (ls - self.center), *scale))


def fit_likelihood_calibration(
    likelihoods: ArrayLike, model_scores: ArrayLike, effect: float, *, reduction: str = "sum"
) -> LikelihoodCalibration:
    """Return the correction that takes out a standardized likelihood effect.

    Before clipping, the effect left over on the same items is ``(1 - strength) * effect``, in standard deviations of
    the uncorrected scores.

    Args:
        likelihoods: (n,) LS in nats.
        model_scores: (n,) Score_m; items with a NaN are left out.
        effect: Standard deviations of Score_m for each standard deviation of LS at equal quality.
        reduction: Reduction by which the LS were computed.

    Raises:
        ValueError: The effect is NaN, LS is constant, or the lengths differ.

    Examples:
        >>> fitted = fit_likelihood_calibration([-30, -20, -10], [1, 3, 5], effect=0.5)
        >>> round(fitted.slope, 3), fitted.center, fitted.bounds
        (0.1, -20.0, (-30.0, -10.0))
    """
    ls, model = vectors(likelihoods=likelihoods, model_scores=model_scores)
    kept = defined(ls, model)
    ls, model = settled(ls[kept]), settled(model[kept])
    if np.isnan(effect) or len(ls) < 2 or ls.min() == ls.max():
        raise ValueError(
            f"effect={effect} over {len(ls)} items with {len(np.unique(ls))} different likelihoods: a calibration "
            "needs a defined effect and likelihoods that differ."
        )
    slope = float(effect * model.std() / ls.std())
    bounds = float(ls.min()), float(ls.max())
    return LikelihoodCalibration(slope, float(ls.mean()), reduction=reduction, bounds=bounds)
