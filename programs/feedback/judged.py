"""Any pointwise judge of ours as a source of feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.pointwise import PointwiseJudge


class JudgeFeedback(dspy.Module):  # type: ignore[misc]
    """A judge's expected score; the refiner is told it in words.

    Args:
        judge: Who judges; of the model that writes it is self-feedback.
        source: Field of the example that the output answers to; a list is shown with commas.

    Attributes:
        name: For reports.
        low: The scale's lower end.
        high: Its upper end.
    """

    def __init__(self, judge: PointwiseJudge, *, source: str = "source") -> None:
        super().__init__()
        self.judge = judge
        self.source = source
        self.name = f"judge of {judge.criterion.title}"
        self.low, self.high = (float(end) for end in judge.criterion.scale)

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on an output for an example."""
        asked = required_field(self.name, example, self.source)
        found = self.judge(source=asked if isinstance(asked, str) else ", ".join(map(str, asked)), output=output)
        told = f"{self.judge.criterion.title}: {found.score:.1f} on a scale of {self.low:g} to {self.high:g}"
        return Feedback(found.score, told, status="" if found.score == found.score else "no answer")
