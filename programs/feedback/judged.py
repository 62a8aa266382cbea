"""Feedback by a pointwise judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import dspy

from evalbias.programs.adapter import text_problem
from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.pointwise import PointwiseJudge


class JudgeFeedback(dspy.Module):  # type: ignore[misc]
    """Expected score of a judge, shown to the refiner as text.

    Args:
        judge: Pointwise judge; with the model that writes the outputs, its score is self-feedback.
        source: Field of the example that the output answers to; a list is joined with commas.
    """

    def __init__(self, judge: PointwiseJudge, *, source: str = "source") -> None:
        super().__init__()
        self.judge = judge
        self.source = source

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"judge of {self.judge.criterion.title}"

    @property
    def low(self) -> float:
        """Lower end of the judge's scale."""
        return float(self.judge.criterion.scale[0])

    @property
    def high(self) -> float:
        """Upper end of the judge's scale."""
        return float(self.judge.criterion.scale[1])

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Judge an output for an example; an output that is no text for a judge is undefined.

        Raises:
            PromptRefused: The model refuses the prompt; a loop takes the feedback as undefined.
        """
        if problem := text_problem(output):
            return Feedback(float("nan"), f"The output cannot be judged: it {problem}.", status=f"the output {problem}")
        source = required_field(self.name, example, self.source)
        score = self.judge(
            source=source if isinstance(source, str) else ", ".join(map(str, source)), output=output
        ).score
        text = f"{self.judge.criterion.title}: {score:.1f} on a scale of {self.low:g} to {self.high:g}"
        return Feedback(score, text, status="no answer" if math.isnan(score) else "")
