"""MLflow (``mlflow``): a judge as a scorer, alignment of its judges, and judges and optimizers in its traces.

It takes an extra: ``pip install 'evalbias[mlflow]'``.
"""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import dspy
from pydantic import PrivateAttr

try:
    import mlflow
    from mlflow.entities import AssessmentSource, Feedback
    from mlflow.entities.assessment_source import AssessmentSourceType
    from mlflow.entities.trace import Trace
    from mlflow.genai.judges import AlignmentOptimizer, Judge
    from mlflow.genai.judges.base import JudgeField
    from mlflow.genai.utils.trace_utils import (
        extract_inputs_from_trace,
        extract_outputs_from_trace,
        parse_inputs_to_str,
        parse_outputs_to_str,
    )
except ImportError as error:
    raise ImportError("This module needs MLflow: pip install 'evalbias[mlflow]'.") from error

from evalbias import optimizers
from evalbias.data.items import number
from evalbias.lm.cache import resolve_lm
from evalbias.optimizers.base import JudgeOptimizer
from evalbias.programs.criterion import Criterion
from evalbias.programs.metrics import score_feedback
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.values import get_logger, to_json

__all__ = ["JudgeAlignment", "MeasuredJudge", "autolog"]

FIELDS = {"inputs": "What the output was made from.", "outputs": "The output to judge."}  # of a trace


class MeasuredJudge(Judge):  # type: ignore[misc]
    """A judge of MLflow that returns expected scores with their probabilities.

    Use it as a scorer, ``mlflow.genai.evaluate(data=..., scorers=[judge])``, or call it. Its feedback's value is the
    expected score on the criterion's scale, its rationale describes the distribution, and its metadata holds
    ``distribution`` (JSON), ``coverage`` and ``mode``; an undefined judgment is feedback with an error. MLflow
    registers no judges of other packages: keep it with ``judge.program.save("judge.json")``. ``name`` is that of the
    assessments, the criterion's by default; ``yes_no`` gives True or False on a scale of (0, 1), as "1" is at least as
    probable.
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
        """Judge one output: ``outputs`` made from ``inputs``, both read from ``trace`` by default.

        A dictionary with one text is that text; messages and other values are read as MLflow's own judges read them.
        """
        prediction = self._program(**_texts(inputs, outputs, trace))
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


def _texts(inputs: Any, outputs: Any, trace: Trace | None) -> dict[str, str]:
    """Return source and output as a judge reads them, by default from a trace."""
    if trace is not None:
        inputs = extract_inputs_from_trace(trace) if inputs is None else inputs
        outputs = extract_outputs_from_trace(trace) if outputs is None else outputs
    return {
        "source": _only_text(inputs) or str(parse_inputs_to_str(inputs)),
        "output": _only_text(outputs) or str(parse_outputs_to_str(outputs)),
    }


def _only_text(value: Any) -> str | None:
    """Return the text of a dictionary with a single text as its only value, such as ``{"question": ...}``."""
    texts = list(value.values()) if isinstance(value, Mapping) else []
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None


_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class JudgeAlignment(AlignmentOptimizer):  # type: ignore[misc]
    """Aligns a judge of MLflow with people's feedback by compiling it: ``judge.align(traces, optimizer=...)``.

    The judge's instructions become those of a pointwise judge, which the optimizer (such as ``LikelihoodMitigation()``)
    compiles on the traces with human feedback of the judge's name. The aligned judge is a ``MeasuredJudge``, whose
    ``program.report`` holds the choice and its reason. ``lm`` is its model, which must report token probabilities,
    DSPy's by default; MLflow's own model string is not used. ``scale`` is the lowest and highest score, where the
    judge's ``feedback_value_type`` does not state it, as bool and ``Literal[1, 2, 3, 4, 5]`` do.
    """

    def __init__(self, optimizer: JudgeOptimizer, *, lm: Any = None, scale: tuple[int, int] | None = None) -> None:
        self.optimizer = optimizer
        self.lm = lm
        self.scale = scale

    def align(self, judge: Judge, traces: Sequence[Trace]) -> MeasuredJudge:
        """Return a compiled copy of the judge, which must read only ``inputs`` and ``outputs``.

        Traces without human feedback of the judge's name are left out, and their number is logged. People are
        distinguished by the ``source_id`` of their feedback, so that effects at equal quality can be measured.
        """
        student = self._student(judge)
        rated = _examples(traces, student.criterion)
        if not rated:
            raise ValueError(
                f"None of the {len(traces)} traces has human feedback named {judge.name!r}: log it with "
                f"mlflow.log_feedback(trace_id=..., name={judge.name!r}, value=..., source=AssessmentSource('HUMAN'))."
            )
        get_logger(__name__).info("%d of %d traces have human feedback.", len(rated), len(traces))
        compiled = self.optimizer.compile(student, trainset=rated, lm=self.lm)
        return MeasuredJudge(compiled, name=judge.name, yes_no=judge.feedback_value_type is bool)

    def _student(self, judge: Judge) -> PointwiseJudge:
        """Return the judge as a program to compile; it must read inputs and outputs only."""
        if isinstance(judge, MeasuredJudge):
            student: PointwiseJudge = judge.program.deepcopy()
        else:
            others = sorted({field.name for field in judge.get_input_fields()} - set(FIELDS))
            if others:
                raise ValueError(
                    f"The judge {judge.name!r} reads {', '.join(others)}; a pointwise judge reads inputs and outputs "
                    "only. Write its instructions with {{ inputs }} and {{ outputs }} alone."
                )
            scale = self.scale or _scale(judge)
            definition = _PLACEHOLDER.sub(lambda match: f"(the {match[1]} below)", judge.instructions)
            student = PointwiseJudge(
                Criterion(judge.name, definition, scale, source_label="Inputs", output_label="Outputs")
            )
        if self.lm is not None:
            student.predict.lm = self.lm
        return student


def _scale(judge: Judge) -> tuple[int, int]:
    """Return the scale of whole numbers that the type of a judge's feedback states."""
    kind = judge.feedback_value_type
    if kind is bool:
        return (0, 1)
    values = sorted({int(v) for v in get_args(kind) if re.fullmatch(r"-?\d+", str(v))})
    whole = get_origin(kind) is Literal and len(values) == len(get_args(kind)) > 1
    if whole and values == list(range(values[0], values[-1] + 1)):
        return (values[0], values[-1])
    raise ValueError(
        f"The judge {judge.name!r} gives feedback of type {kind}, which names no lowest and highest whole number: pass "
        "scale=(1, 5), or make the judge with feedback_value_type=Literal[1, 2, 3, 4, 5]."
    )


def _examples(traces: Sequence[Trace], criterion: Criterion) -> list[dspy.Example]:
    """Return the traces that people rated as examples, with every person's ratings in a column of their own."""
    rated = [(trace, ratings) for trace in traces if (ratings := _ratings(trace, criterion))]
    people = sorted({person for _, ratings in rated for person in ratings})
    examples = []
    for trace, ratings in rated:
        mean = sum(ratings.values()) / len(ratings)
        example = dspy.Example(id=trace.info.trace_id, **_texts(None, None, trace), scores={criterion.name: mean})
        if len(people) > 1:
            example["ratings"] = {criterion.name: [ratings.get(person) for person in people]}
        examples.append(example.with_inputs("source", "output"))
    return examples


def _ratings(trace: Trace, criterion: Criterion) -> dict[str, float]:
    """Return each person's rating of a trace: the mean if a person rated it several times."""
    by_person: dict[str, list[float]] = {}
    for assessment in trace.info.assessments or []:
        if (
            assessment.feedback is not None
            and assessment.feedback.value is not None
            and assessment.valid is not False  # another feedback replaced it
            and assessment.source.source_type == AssessmentSourceType.HUMAN
            and assessment.name.strip().lower() == criterion.name.strip().lower()
        ):
            value, (low, high) = assessment.feedback.value, criterion.scale
            value = int(value) if isinstance(value, bool) else value
            written = f"The human feedback {assessment.name!r} of the trace {assessment.trace_id}"
            rating = number(value, written, low=low, high=high, texts=True, required=True)
            by_person.setdefault(str(assessment.source.source_id), []).append(rating)
    return {person: sum(ratings) / len(ratings) for person, ratings in by_person.items()}


def autolog(**options: Any) -> None:
    """Trace judges, loops and optimizers in MLflow: ``mlflow.dspy.autolog(**options)`` for programs of evalbias.

    A judgment is a span with its source and output, score, distribution and coverage; a batch makes one trace for each
    item. With ``log_compiles=True``, an optimizer's ``compile`` is a run with the compiled program and the trainset as
    artifacts. MLflow traces the ``compile`` of optimizers that are imported when tracing starts, so this function
    imports those of evalbias first; otherwise every judgment of a search would be a trace.
    """
    for module in pkgutil.walk_packages(optimizers.__path__, f"{optimizers.__name__}."):
        importlib.import_module(module.name)
    mlflow.dspy.autolog(**options)
