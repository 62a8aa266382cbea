"""A metric's scores on the scale of MQM, by a quantile map (Xu et al. 2024, appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evalbias.measures import QuantileMap
from evalbias.programs.feedback.source import Feedback, FeedbackSource
from evalbias.runs.fingerprint import digest

LOW, HIGH = -25.0, 0.0
NARROWEST = 0.05
"""Smallest part of a metric's range that the scores of a map fill; those of another scale, 0 to 1 of 100, fill less."""


class MappedFeedback:
    """Feedback of another source whose score is mapped onto MQM points; the refiner is shown the source's own text.

    Args:
        source: A metric, such as ``ReferenceFeedback`` or ``LearnedFeedback``.
        quantile_map: Map from the metric's scores to MQM scores, fitted on texts that have both; its ``metric`` is the
            source's name.

    Attributes:
        name: Name in reports.
        low: Worst score, -25.
        high: Best score, 0.
        map_id: Digest of the map; scores under another map are not mixed with these.

    Raises:
        ValueError: The map is of another metric, leads out of [-25, 0], or was fitted to scores on another scale, such
            as chrF from 0 to 1.
    """

    low, high = LOW, HIGH

    def __init__(self, source: FeedbackSource, quantile_map: QuantileMap) -> None:
        quantile_map.check_metric(source.name)
        _check_scale(source, quantile_map)
        worst, best = float(quantile_map.target[0]), float(quantile_map.target[-1])
        if worst < LOW or best > HIGH:
            raise ValueError(
                f"The quantile map leads to scores from {worst:g} to {best:g}, outside the MQM scores from -25 to 0: "
                "fit it on pairs of a metric and MQM scores, the metric's first."
            )
        self.source = source
        self.name = f"{source.name} mapped onto MQM"
        self.map_id = digest([quantile_map.metric, quantile_map.source.tolist(), quantile_map.target.tolist()])
        self._map = quantile_map

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Score an output by the metric and map its score."""
        feedback = self.source(example, output)
        return Feedback(float(self._map([feedback.score])[0]), feedback.text, feedback.errors, feedback.status)


def _check_scale(source: FeedbackSource, quantile_map: QuantileMap) -> None:
    """Refuse a map that was fitted to the metric on another scale.

    Single scores may lie outside of the source's range, because learned metrics are clipped to it.

    Raises:
        ValueError: The middle of the fitted scores is outside the source's range, or they fill little of it.
    """
    fitted = quantile_map.source
    lowest, highest = float(fitted[0]), float(fitted[-1])
    inside = source.low <= float(np.median(fitted)) <= source.high
    if not inside or highest - lowest < NARROWEST * (source.high - source.low):
        raise ValueError(
            f"The quantile map was fitted to scores from {lowest:g} to {highest:g}, and {source.name!r} gives "
            f"{source.low:g} to {source.high:g}: fit it to scores on the scale of {source.name!r}."
        )
