"""External feedback by InstructScore, a model trained to list errors against a reference (Xu et al. 2023)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import dspy

from evalbias.lm.contract import written
from evalbias.measures import MQMReading, mqm_score
from evalbias.measures.instructscore import read_instructscore
from evalbias.programs.feedback.source import Feedback, required_field

PROMPT = """A translation ought to say: "{reference}"
A model has translated: "{output}"
List the errors of the model's translation, five at most. For each write three lines:
Error type 1: what is wrong
Major/minor: Major if it changes the meaning, Minor if it is only noticed
Error location 1: the words of the model's translation
Begin with the number of errors, as in: Your Translation contains 2 errors:
"""


class InstructScore:
    """Error report of InstructScore; the refiner is shown the place, kind and severity of errors, not corrections.

    The published weights (``xu1998hz/InstructScore``, 7B) were trained on one wording of the request per language pair,
    the one in their own scorer: give it as ``prompt``. The default is for models that follow instructions.

    Args:
        lm: Any ``dspy.LM``, such as ``evalbias.LocalLM("xu1998hz/InstructScore")``; asked once, decoded greedily.
        prompt: Text with the placeholders ``{reference}`` and ``{output}``.
        max_tokens: Largest length of the report in tokens; a truncated report is unreadable.

    Attributes:
        name: Name in reports.
        low: Worst score, -25 (five major errors).
        high: Best score, 0.

    Raises:
        ValueError: The prompt lacks a placeholder.
    """

    name = "InstructScore"
    low, high = -25.0, 0.0

    def __init__(self, lm: dspy.LM, *, prompt: str = PROMPT, max_tokens: int = 512) -> None:
        for field in ("{reference}", "{output}"):
            if field not in prompt:
                raise ValueError(f"The prompt of InstructScore lacks {field}: add it where the text belongs.")
        self.lm = lm
        self.prompt = prompt
        self.max_tokens = max_tokens

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Report the errors of an output against the example's ``reference``."""
        reference = str(required_field(self.name, example, "reference"))
        texts = {"{reference}": reference, "{output}": output}
        prompt = re.sub(r"\{reference\}|\{output\}", lambda m: texts[m.group()], self.prompt)
        return _feedback(read_instructscore(written(self.lm, [prompt], max_tokens=self.max_tokens)[0]))


def _feedback(reading: MQMReading) -> Feedback:
    if reading.status not in ("errors", "no errors"):
        return Feedback(float("nan"), "no feedback", status=reading.status)
    lines = [f"'{e.span or 'somewhere'}' is a {e.severity} error: {e.category}" for e in reading.errors]
    return Feedback(mqm_score(reading.errors), "\n".join(lines) or "no-error", reading.errors)
