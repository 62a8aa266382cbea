"""A metric's scores on the scale of MQM, by a quantile map (Xu et al. 2024, appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalbias.measures import QuantileMap
from evalbias.programs.feedback.source import Feedback, FeedbackSource
from evalbias.runs.fingerprint import digest

LOW, HIGH = -25.0, 0.0


class MappedFeedback:
    """Feedback of another source whose score is mapped onto MQM points; the refiner is shown the source's own text.

    Args:
        source: A metric, such as ``ReferenceFeedback`` or ``LearnedFeedback``.
        quantile_map: Map from the metric's scores to MQM scores, fitted on texts that have both.

    Attributes:
        name: Name in reports.
        low: Worst score, -25.
        high: Best score, 0.
        map_id: Digest of the map; scores under another map are not mixed with these.

    Raises:
        ValueError: The map leads out of [-25, 0].
    """

    low, high = LOW, HIGH

    def __init__(self, source: FeedbackSource, quantile_map: QuantileMap) -> None:
        worst, best = float(quantile_map.target[0]), float(quantile_map.target[-1])
        if worst < LOW or best > HIGH:
            raise ValueError(
                f"The quantile map leads to scores from {worst:g} to {best:g}, outside the MQM scores from -25 to 0: "
                "fit it on pairs of a metric and MQM scores, the metric's first."
            )
        self.source = source
        self.name = f"{source.name} mapped onto MQM"
        self.map_id = digest([quantile_map.source.tolist(), quantile_map.target.tolist()])
        self._map = quantile_map

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Score an output by the metric and map its score."""
        feedback = self.source(example, output)
        return Feedback(float(self._map([feedback.score])[0]), feedback.text, feedback.errors, feedback.status)
