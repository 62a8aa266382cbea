"""A pointwise judge of evalbias as a judge of MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mlflow.entities import AssessmentSource, Feedback
from mlflow.entities.assessment_source import AssessmentSourceType
from mlflow.entities.trace import Trace
from mlflow.genai.judges import Judge
from mlflow.genai.judges.base import JudgeField
from mlflow.genai.utils.trace_utils import (
    extract_inputs_from_trace,
    extract_outputs_from_trace,
    parse_inputs_to_str,
    parse_outputs_to_str,
)
from pydantic import PrivateAttr

from evalbias.lm.contract import resolve_lm
from evalbias.programs.metrics import score_feedback
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.runs.values import to_json

FIELDS = {"inputs": "What the output was made from.", "outputs": "The output to judge."}
"""Fields of an MLflow trace that a pointwise judge reads."""


class MeasuredJudge(Judge):  # type: ignore[misc]
    """A judge of MLflow that returns expected scores with their probabilities.

    Use it as a scorer, ``mlflow.genai.evaluate(data=..., scorers=[judge])``, or call it with ``inputs=`` and
    ``outputs=``, or with ``trace=``. Its feedback's value is the expected score on the criterion's scale, its rationale
    describes the distribution, and its metadata holds ``distribution`` (JSON), ``coverage`` and ``mode``. A judgment
    that is undefined is feedback with an error.

    MLflow registers no judges of other packages, so keep it with ``judge.program.save("judge.json")``.

    Args:
        program: Judge with its model, or with the one that DSPy is configured with.
        name: Name of the assessments. Defaults to the criterion's.
        yes_no: Whether the value is True or False, the criterion's scale being (0, 1): whether "1" is at least as
            probable as "0".
    """

    _program: PointwiseJudge = PrivateAttr()
    _yes_no: bool = PrivateAttr()

    def __init__(self, program: PointwiseJudge, *, name: str | None = None, yes_no: bool = False) -> None:
        super().__init__(name=name or program.criterion.name, description=program.criterion.definition)
        self._program = program
        self._yes_no = yes_no

    @property
    def program(self) -> PointwiseJudge:
        """The judge as a DSPy program."""
        return self._program

    @property
    def instructions(self) -> str:
        """The judge's instructions, without its demonstrations."""
        return str(self._program.predict.signature.instructions)

    @property
    def feedback_value_type(self) -> Any:
        """Type of the feedback's value."""
        return bool if self._yes_no else float

    def get_input_fields(self) -> list[JudgeField]:
        """Return the fields that the judge reads."""
        return [JudgeField(name=name, description=text) for name, text in FIELDS.items()]

    def __call__(self, *, inputs: Any = None, outputs: Any = None, trace: Trace | None = None) -> Feedback:
        """Judge one output.

        Args:
            inputs: What the output was made from. A dictionary with one text is that text; messages and other values
                are read as MLflow's own judges read them.
            outputs: The output, read in the same way.
            trace: Trace from which inputs and outputs are read where they are not given.
        """
        if trace is not None:
            inputs = extract_inputs_from_trace(trace) if inputs is None else inputs
            outputs = extract_outputs_from_trace(trace) if outputs is None else outputs
        return self._feedback(self._program(source=input_text(inputs), output=output_text(outputs)))

    def _feedback(self, prediction: Any) -> Feedback:
        model = getattr(resolve_lm(None, self._program.predict), "model", None)
        origin = AssessmentSource(source_type=AssessmentSourceType.LLM_JUDGE, source_id=f"evalbias/{model}")
        rationale = score_feedback(self._program, prediction)
        if math.isnan(prediction.score):
            return Feedback(name=self.name, error=ValueError(rationale), source=origin)
        values = {"distribution": prediction.distribution, "coverage": prediction.coverage, "mode": prediction.mode}
        return Feedback(
            name=self.name,
            value=prediction.score >= 0.5 if self._yes_no else float(prediction.score),
            rationale=rationale,
            source=origin,
            metadata={name: json.dumps(to_json(value)) for name, value in values.items()},
        )


def input_text(inputs: Any) -> str:
    """Return the inputs of an application as the text that a judge reads."""
    return _only_text(inputs) or str(parse_inputs_to_str(inputs))


def output_text(outputs: Any) -> str:
    """Return the outputs of an application as the text that a judge reads."""
    return _only_text(outputs) or str(parse_outputs_to_str(outputs))


def _only_text(value: Any) -> str | None:
    """Return the text of a dictionary that holds nothing else, such as ``{"question": ...}``."""
    texts = list(value.values()) if isinstance(value, Mapping) else []
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None
