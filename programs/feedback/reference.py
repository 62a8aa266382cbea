"""External feedback by comparison with a reference: sacrebleu's metrics, and any other scoring function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from evalbias.programs.feedback.source import Feedback, required_field

METRICS = ("chrf", "bleu")


class ReferenceFeedback:
    """Similarity of an output to the example's reference, in [0, 100]; the refiner is shown the score only.

    Args:
        metric: ``"chrf"`` or ``"bleu"``, sacrebleu's sentence-level metrics.

    Attributes:
        name: Name in reports, and of the metric in a ``QuantileMap``: ``"chrf"`` or ``"bleu"``.
        signature: Settings of the metric as sacrebleu writes them, with its version.
        low: Worst score, 0.
        high: Best score, 100.

    Raises:
        ValueError: The metric is unknown.
        ImportError: sacrebleu is not installed.
    """

    low, high = 0.0, 100.0

    def __init__(self, metric: str = "chrf") -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is unknown: choose one of {METRICS}.")
        try:
            from sacrebleu.metrics import BLEU, CHRF
        except ImportError as error:
            raise ImportError("Reference metrics need sacrebleu: pip install 'evalbias[reference]'.") from error
        self.name = metric
        self._metric = CHRF() if metric == "chrf" else BLEU(effective_order=True)
        self._metric.sentence_score("a", ["a"])  # the signature holds the number of references
        self.signature = f"sacrebleu {metric}|{self._metric.get_signature()}"

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Score an output against the example's ``reference``."""
        reference = required_field(self.name, example, "reference")
        score = min(100.0, self._metric.sentence_score(output, [reference]).score)
        return Feedback(score, f"similarity to a reference: {score:.0f} of 100")


class ScorerFeedback:
    """Score of any function; for COMET and BLEURT in another environment, see ``LearnedFeedback``.

    Args:
        name: Name in reports, also shown to the refiner.
        score: Function ``(source, output, reference) -> number``; higher is better.
        low: Worst score.
        high: Best score.

    Raises:
        ValueError: ``low`` is not below ``high``.

    Examples:
        >>> source = ScorerFeedback("length", lambda source, output, reference: len(output), low=0, high=100)
        >>> source({"source": "chien", "reference": "dog"}, "dog").score
        3.0
    """

    def __init__(self, name: str, score: Callable[[str, str, str], float], *, low: float, high: float) -> None:
        if not low < high:
            raise ValueError(f"low={low} is not below high={high}: give the range of the scores of {name!r}.")
        self.name = name
        self.score = score
        self.low, self.high = low, high

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Score an output for an example with ``source`` and ``reference``."""
        source, reference = (str(required_field(self.name, example, field)) for field in ("source", "reference"))
        score = float(self.score(source, output, reference))
        if math.isnan(score):
            return Feedback(score, "no score", status="no score")
        return Feedback(score, f"{self.name}: {score:.2f} on a scale of {self.low:g} to {self.high:g}")
