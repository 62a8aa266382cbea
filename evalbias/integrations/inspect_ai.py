"""Inspect (``inspect_ai``): a scorer that asks a compiled judge.

It takes an extra: ``pip install 'evalbias[inspect]'``.
"""

from __future__ import annotations

import math
import os
from typing import Any

try:
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState
except ImportError as error:
    raise ImportError("This module needs Inspect: pip install 'evalbias[inspect]'.") from error

from evalbias.lm.types import PromptRefused
from evalbias.programs.files import load
from evalbias.programs.metrics import score_feedback
from evalbias.programs.pointwise import PointwiseJudge


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator, unused-ignore]
def judge_scorer(
    judge: str | os.PathLike[str] | PointwiseJudge, *, lm: Any = None, source: str | None = None
) -> Scorer:
    """Score a sample's output with a judge: its expected score, on the criterion's scale.

    A score's explanation describes the judge's distribution, and its metadata holds ``distribution``, ``coverage`` and
    ``mode``. An empty or refused output is unscored with the reason, so it counts in no metric.

    Args:
        judge: Judge, or the file that ``judge.save`` wrote, so that ``inspect score`` can make the scorer again.
        lm: Model of the judge. Defaults to the judge's own, which its file names, then to DSPy's.
        source: Key of the metadata with the text that the output was made from, which every sample then must have.
            Defaults to the input.
    """
    program = judge if isinstance(judge, PointwiseJudge) else load(judge, PointwiseJudge)
    program = program.deepcopy()
    if lm is not None:
        program.predict.lm = lm

    async def score(state: TaskState, target: Target) -> Score:
        output = state.output.completion
        if source is not None and source not in state.metadata:
            raise ValueError(
                f"The sample {state.sample_id!r:.80} has no {source!r} in its metadata, only {sorted(state.metadata)}: "
                "add it, or name another key as the judge's source."
            )
        source_text = state.input_text if source is None else str(state.metadata[source])
        if not output.strip():
            return Score.unscored(reason="no_response", answer=output, explanation="The output is empty.")
        try:
            prediction = await program.acall(source=source_text, output=output)
        except PromptRefused as refusal:
            return Score.unscored(reason="grader_failed", answer=output, explanation=str(refusal))
        explanation = score_feedback(program, prediction)
        if math.isnan(prediction.score):
            return Score.unscored(reason="grader_failed", answer=output, explanation=explanation)
        values = {"distribution": prediction.distribution, "coverage": prediction.coverage, "mode": prediction.mode}
        return Score(value=float(prediction.score), answer=output, explanation=explanation, metadata=values)

    return score
