"""Likelihood calibration of a judge: its place among the saved settings, and what it does to predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dspy
import numpy as np

from evalbias.lm.contract import measuring
from evalbias.measures.likelihood_calibration import LikelihoodCalibration
from evalbias.programs.criterion import Criterion
from evalbias.programs.likelihoods import likelihoods_and_refusals
from evalbias.programs.refused import Refused
from evalbias.programs.settings import Setting


class LikelihoodCalibrationSetting(Setting[LikelihoodCalibration | None]):
    """The likelihood calibration of a judge, which is fitted; None if there is none."""

    since_later = True

    def dump(self, value: LikelihoodCalibration | None) -> Any:
        """Return the fields."""
        return None if value is None else asdict(value)

    def load(self, saved: Any, current: LikelihoodCalibration | None) -> LikelihoodCalibration | None:
        """Return the calibration with these fields."""
        if saved is None:
            return None
        bounds = saved.get("bounds")  # a list in JSON; missing in older files
        return LikelihoodCalibration(**{**saved, "bounds": None if bounds is None else tuple(bounds)})

    def reset(self, value: LikelihoodCalibration | None) -> LikelihoodCalibration | None:
        """Return no calibration."""
        return None


def calibrated_fields(
    fields: Sequence[Mapping[str, Any]],
    examples: Sequence[dspy.Example],
    calibration: LikelihoodCalibration,
    *,
    criterion: Criterion,
    lm: Any,
    refused: Refused = "undefined",
) -> list[dict[str, Any]]:
    """Correct the scores of predictions for the likelihood of what was judged.

    Args:
        fields: Fields of one prediction per example.
        examples: Examples with ``source`` and ``output``.
        calibration: Correction.
        criterion: The judge's criterion.
        lm: The judge's model, which also measures the likelihoods.
        refused: See ``PointwiseJudge.batch``.

    Returns:
        The fields with the corrected ``score``, and with ``raw_score`` and ``likelihood`` (LS in nats) besides. Where
        the likelihood is refused, ``score`` is NaN and ``undefined`` says why.

    Raises:
        NotImplementedError: The model reports no likelihoods.
    """
    try:
        likelihoods, reasons = likelihoods_and_refusals(
            examples, criterion, measuring(lm), reduction=calibration.reduction, refused=refused
        )
    except NotImplementedError as error:
        raise NotImplementedError(
            f"The judge of {criterion.name} corrects its scores for likelihood, which this model does not report. "
            f"{error} Or set judge.likelihood_calibration = None for uncorrected scores."
        ) from error
    raw = np.array([row["score"] for row in fields], dtype=np.float64)
    scores = calibration(raw, likelihoods, scale=criterion.scale)
    return [
        {
            **({"undefined": reasons[i]} if i in reasons else {}),
            **row,  # a judgment that was refused itself keeps its own reason
            "score": float(score),
            "raw_score": row["score"],
            "likelihood": float(likelihood),
        }
        for i, (row, score, likelihood) in enumerate(zip(fields, scores, likelihoods, strict=True))
    ]
