"""Recorded loops as a recording that ``RecordedLM`` replays: real outputs and feedback through any loop of ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from evalbias.lm.recorded import record
from evalbias.programs.refine import SelfRefine
from evalbias.programs.refine_step import EMPTY


def write_recording(
    loop: SelfRefine,
    items: Iterable[tuple[Mapping[str, Any], Sequence[tuple[str, str]]]],
    path: str | os.PathLike[str],
) -> None:
    """Write what the models of a loop would have been asked on the way of recorded loops, and what they answered.

    Args:
        loop: Whose prompts are written: its generator, its refiner, and its feedback (a ``dspy.Module`` that asks once
            and is answered in words).
        items: (inputs, [(output, feedback text), ...] from the first output on) of each; where nothing better was
            found, a recording repeats the output, and the loop's refiner writes the same text again.
        path: The JSONL file, written anew. An item's texts that are nothing are written as nothing.

    Raises:
        ValueError: The loop's feedback asks no model.
    """
    if not isinstance(loop.feedback, dspy.Module) or not loop.feedback.predictors():
        raise ValueError(f"The feedback {loop.feedback.name!r} asks no model: there is nothing to replay.")
    Path(path).unlink(missing_ok=True)
    answers = _Answers()
    program: SelfRefine = loop.deepcopy()
    program.set_lm(record(dspy.LM("recorded/texts", engine=answers, cache=False), path))
    for inputs, steps in items:
        shown = {name: value for name, value in inputs.items() if name in program.inputs}
        draft: dict[str, str] = {}
        module = program.generate
        for output, feedback in steps:
            answers.text = output
            written = str(module(**shown, **draft)[program.field])
            answers.text = feedback
            said = program.feedback(inputs, written).text if written.strip() else EMPTY
            draft, module = {"draft": written, "feedback": said}, program.refine


class _Answers:
    """An engine that answers the text it was given."""

    text = ""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """The text."""
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(self.text or " "),
            finish_reason="stop",
            usage=lm15.Usage(),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> _Answers:
        return self

    def close(self) -> None:
        """Nothing is open."""
