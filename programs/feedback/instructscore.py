"""InstructScore as external feedback: a model that was trained to list errors by a reference (Xu et al. 2023)."""

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
    """External feedback that sees the reference and tells the refiner place, kind and severity, no right words.

    The published weights (``xu1998hz/InstructScore``, 7B) learned one wording of the request: the one of their own
    scorer for your language pair. Give that as ``prompt``; the default is for models that follow instructions.

    Args:
        lm: Any ``dspy.LM``, such as ``evalbias.LocalLM("xu1998hz/InstructScore")``. It is asked once, greedily.
        prompt: With ``{reference}`` and ``{output}``.
        max_tokens: Of the report; one that breaks off is unreadable.

    Attributes:
        name: For reports.
        low: -25: five major errors.
        high: 0.

    Raises:
        ValueError: A prompt without one of the two fields.
    """

    name = "InstructScore"
    low, high = -25.0, 0.0

    def __init__(self, lm: dspy.LM, *, prompt: str = PROMPT, max_tokens: int = 512) -> None:
        for field in ("{reference}", "{output}"):
            if field not in prompt:
                raise ValueError(f"The prompt of InstructScore lacks {field}: it holds the text that is compared.")
        self.lm = lm
        self.prompt = prompt
        self.max_tokens = max_tokens

    def __call__(self, example: Mapping[str, Any], output: str) -> Feedback:
        """Feedback on an output for an example with a ``reference``."""
        reference = str(required_field(self.name, example, "reference"))
        told = {"{reference}": reference, "{output}": output}
        prompt = re.sub(r"\{reference\}|\{output\}", lambda m: told[m.group()], self.prompt)
        return _feedback(read_instructscore(written(self.lm, [prompt], max_tokens=self.max_tokens)[0]))


def _feedback(found: MQMReading) -> Feedback:
    if found.status not in ("errors", "no errors"):
        return Feedback(float("nan"), "no feedback", status=found.status)
    lines = [f"'{e.span or 'somewhere'}' is a {e.severity} error: {e.category}" for e in found.errors]
    return Feedback(mqm_score(found.errors), "\n".join(lines) or "no-error", found.errors)
