"""Conversion of recorded refine loops into a recording that ``RecordedLM`` can replay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15
from models_of_text import response

from evalbias.lm.dspy_seam import Engine
from evalbias.lm.saved import record
from evalbias.programs.loops import EMPTY, SelfRefine
from evalbias.programs.writing import module_inputs


def write_recording(
    loop: SelfRefine,
    items: Iterable[tuple[Mapping[str, Any], Sequence[tuple[str, str]]]],
    path: str | os.PathLike[str],
) -> None:
    """Write the prompts that a loop would send for recorded outputs, with the recorded texts as answers.

    Args:
        loop: Loop that renders the prompts. Its feedback must be a ``dspy.Module`` that asks a model once and reads
            its text.
        items: Inputs of each item, and its (output, feedback text) pairs from the first output on. A recording repeats
            an output that was not improved, and the loop's refiner then writes the same text again.
        path: JSONL file to write; an existing file is replaced. Empty texts are recorded as a single space.

    Raises:
        ValueError: The loop's feedback does not ask a model.
    """
    if not isinstance(loop.feedback, dspy.Module) or not loop.feedback.predictors():
        raise ValueError(f"The feedback {loop.feedback.name!r} does not ask a model: use a loop with self-feedback.")
    Path(path).unlink(missing_ok=True)
    engine = _FixedAnswer()
    program: SelfRefine = loop.deepcopy()
    program.set_lm(record(dspy.LM("recorded/texts", engine=engine, cache=False), path))
    for inputs, steps in items:
        shown = {name: value for name, value in inputs.items() if name in module_inputs(program.generate)}
        draft: dict[str, str] = {}
        module = program.generate
        for output, feedback in steps:
            engine.text = output
            written = str(module(**shown, **draft)[program.field])
            engine.text = feedback
            comment = program.feedback(inputs, written).text if written.strip() else EMPTY
            draft, module = {"draft": written, "feedback": comment}, program.refine


class _FixedAnswer(Engine):
    """Engine that answers every request with its ``text``."""

    text = ""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer with the text."""
        answer: lm15.Response = response(request, self.text or " ", lm15.Usage())
        return answer
