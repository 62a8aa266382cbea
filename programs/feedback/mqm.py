"""Self-feedback for translation: the model lists its errors, which are weighted (MQM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from evalbias.measures import mqm_score, read_mqm
from evalbias.programs.feedback.source import Feedback, required_field
from evalbias.programs.plain_text import PlainPredict
from evalbias.programs.settings import NumberSetting, Program


class FindErrors(dspy.Signature):  # type: ignore[misc]
    """Find the errors of the translation, measured against the source.

    Write one line for each: 'the words' is a SEVERITY CATEGORY/SUBCATEGORY error. The severity is critical, major or
    minor. Categories are accuracy (addition, mistranslation, omission, untranslated text), fluency (grammar,
    inconsistency, punctuation, register, spelling), locale convention, style (awkward), terminology and
    non-translation. Where there is nothing to find, write no-error.
    """

    source: str = dspy.InputField()
    translation: str = dspy.InputField()
    errors: str = dspy.OutputField()


class MQMFeedback(Program):
    """Error list that the model writes about its own translation (Xu et al. 2024, section 4.1).

    Args:
        critical: Weight of a critical error; see ``evalbias.measures.mqm_score``.
        demos: Demonstrations with ``source``, ``translation`` and ``errors``.
        **config: Settings of the requests.

    Attributes:
        name: Name in reports.
        low: Worst score, -25.
        high: Best score, 0.
    """

    name = "own MQM"
    low, high = -25.0, 0.0
    kind = "MQM feedback"
    critical = NumberSetting(high=0)

    def __init__(self, *, critical: float = -5.0, demos: Sequence[dspy.Example] = (), **config: Any) -> None:
        super().__init__(critical=critical)
        self.find = PlainPredict(FindErrors, **{"temperature": 0.0, "max_tokens": 400, **config})
        self.find.predict.demos = list(demos)

    def forward(self, example: Mapping[str, Any], output: str) -> Feedback:
        """List the errors in a translation of the example's ``source``."""
        errors = self.find(source=required_field(self.name, example, "source"), translation=output).errors
        return read_feedback(errors, critical=self.critical)


def read_feedback(text: str, *, critical: float = -5.0) -> Feedback:
    """Turn a written list of errors into feedback; its score is NaN if the list is unreadable."""
    reading = read_mqm(text)
    if reading.status not in ("errors", "no errors"):
        return Feedback(float("nan"), text, status=reading.status)
    return Feedback(mqm_score(reading.errors, critical=critical), text, reading.errors)
