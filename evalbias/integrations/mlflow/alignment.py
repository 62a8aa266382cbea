"""MLflow's judge alignment by an optimizer of evalbias."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

import dspy
from mlflow.entities.assessment import Assessment
from mlflow.entities.assessment_source import AssessmentSourceType
from mlflow.entities.trace import Trace
from mlflow.genai.judges import AlignmentOptimizer, Judge
from mlflow.genai.utils.trace_utils import extract_inputs_from_trace, extract_outputs_from_trace

from evalbias.integrations.mlflow.judge import FIELDS, MeasuredJudge, input_text, output_text
from evalbias.optimizers.base import JudgeOptimizer
from evalbias.programs.criterion import Criterion
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.runs.visible import get_logger

_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class JudgeAlignment(AlignmentOptimizer):  # type: ignore[misc]
    """Aligns a judge of MLflow with people's feedback by compiling it: ``judge.align(traces, optimizer=...)``.

    The judge's instructions become those of a pointwise judge, which the optimizer compiles on the traces that hold
    human feedback of the judge's name. The aligned judge is a ``MeasuredJudge``, whose ``program.report`` says what was
    chosen, and why; where nothing was significantly better, it is the given judge with measured scores.

    Args:
        optimizer: Optimizer of pointwise judges, such as ``LikelihoodMitigation()`` or ``BiasedDemos(k=8)``.
        lm: Model of the aligned judge; it must report token probabilities. Defaults to the one that DSPy is configured
            with. MLflow's own model string of the judge is not used.
        scale: Lowest and highest score. Needed where the judge's ``feedback_value_type`` does not say it, as bool and
            ``Literal[1, 2, 3, 4, 5]`` do.
    """

    def __init__(self, optimizer: JudgeOptimizer, *, lm: Any = None, scale: tuple[int, int] | None = None) -> None:
        self.optimizer = optimizer
        self.lm = lm
        self.scale = scale

    def align(self, judge: Judge, traces: Sequence[Trace]) -> MeasuredJudge:
        """Return the compiled judge; the given one is left as it is.

        Args:
            judge: Judge with ``inputs`` and ``outputs`` as its only fields.
            traces: Traces; those without human feedback of the judge's name are left out, and their number is logged.
                Several people are told apart by the ``source_id`` of their feedback, so that effects at equal quality
                can be measured.

        Raises:
            ValueError: The judge reads other fields, its scale is not known, no trace has human feedback, a rating is
                not a number on the scale, or the optimizer needs more items.
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
        """Return the judge as a program to compile.

        Raises:
            ValueError: The judge reads other fields than inputs and outputs, or its scale is not known.
        """
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
            definition = _PLACEHOLDER.sub(lambda found: f"(the {found[1]} below)", judge.instructions)
            student = PointwiseJudge(
                Criterion(judge.name, definition, scale, source_label="Inputs", output_label="Outputs")
            )
        if self.lm is not None:
            student.predict.lm = self.lm
        return student


def _scale(judge: Judge) -> tuple[int, int]:
    """Return the scale that the type of a judge's feedback says.

    Raises:
        ValueError: The type says no scale of whole numbers.
    """
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
        example = dspy.Example(
            id=trace.info.trace_id,
            source=input_text(extract_inputs_from_trace(trace)),
            output=output_text(extract_outputs_from_trace(trace)),
            scores={criterion.name: sum(ratings.values()) / len(ratings)},
        )
        if len(people) > 1:
            example["ratings"] = {criterion.name: [ratings.get(person) for person in people]}
        examples.append(example.with_inputs("source", "output"))
    return examples


def _ratings(trace: Trace, criterion: Criterion) -> dict[str, float]:
    """Return each person's rating of a trace, the mean where one rated it several times."""
    given: dict[str, list[float]] = {}
    for assessment in trace.info.assessments or []:
        if (
            assessment.feedback is not None
            and assessment.feedback.value is not None
            and assessment.valid is not False  # another feedback replaced it
            and assessment.source.source_type == AssessmentSourceType.HUMAN
            and assessment.name.strip().lower() == criterion.name.strip().lower()
        ):
            given.setdefault(str(assessment.source.source_id), []).append(_number(assessment, criterion))
    return {person: sum(ratings) / len(ratings) for person, ratings in given.items()}


def _number(assessment: Assessment, criterion: Criterion) -> float:
    """Return a human rating as a number.

    Raises:
        ValueError: The rating is not a number on the scale.
    """
    value, (low, high) = assessment.feedback.value, criterion.scale
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not low <= number <= high:
        raise ValueError(
            f"The human feedback {assessment.name!r} of the trace {assessment.trace_id} is {value!r}: give a number "
            f"from {low} to {high}."
        )
    return number
