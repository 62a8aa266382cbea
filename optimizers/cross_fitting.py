"""Likelihood calibrations that all rated items can test: each item is corrected by what other inputs tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evalbias.evaluation.judged import LIKELIHOODS, Judged
from evalbias.measures.likelihood_calibration import LikelihoodCalibration, fit_likelihood_calibration

FOLDS = 10
"""Parts of the inputs; each is corrected by a calibration that was fitted on the others."""


def fitted(judged: Judged, slope: Callable[[Judged], float], *, reduction: str) -> LikelihoodCalibration | None:
    """Fit a likelihood calibration.

    Args:
        judged: Scores of a judge without a calibration, with LS.
        slope: Function from a judge's answers to the bias in its scores; see ``Objective.slope``.
        reduction: Reduction by which LS was computed.

    Returns:
        The calibration at full strength; None where the bias is undefined.
    """
    bias = slope(judged)
    if np.isnan(bias):
        return None
    return fit_likelihood_calibration(judged.covariate(LIKELIHOODS), judged.answers, bias, reduction=reduction)


def cross_fitted(
    judged: Judged,
    strengths: Sequence[float],
    slope: Callable[[Judged], float],
    *,
    reduction: str,
    scale: tuple[float, float],
    seed: int,
) -> list[Judged]:
    """Calibrate scores by fits on other inputs.

    These are the answers that the calibration would give to new items, so they may be tested on the items it is fitted
    on. The test of their bias holds all the same that the folds' slopes come from the same items: it asks whether the
    judge's bias exceeds half of what is subtracted, which one interval of that bias answers for any subtraction.

    Args:
        judged: Scores of a judge without a calibration, with LS.
        strengths: Parts of the bias to subtract, in [0, 1].
        slope: See ``fitted``.
        reduction: See ``fitted``.
        scale: Lowest and highest score.
        seed: Seed for the folds.

    Returns:
        The corrected answers at every strength; NaN in a fold whose calibration is undefined.
    """
    keys = judged.inputs or judged.ids
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))
    fold_of = {inputs[place]: rank % FOLDS for rank, place in enumerate(order)}
    folds = np.array([fold_of[key] for key in keys])
    scores = np.full((len(strengths), len(keys)), np.nan)
    for fold in range(min(FOLDS, len(inputs))):
        inside = folds == fold
        calibration = fitted(judged.take(np.flatnonzero(~inside)), slope, reduction=reduction)
        if calibration is not None:
            ls = judged.covariate(LIKELIHOODS)[inside]
            for row, strength in zip(scores, strengths, strict=True):
                row[inside] = calibration.at(strength)(judged.answers[inside], ls, scale=scale)
    return [replace(judged, answers=row) for row in scores]
