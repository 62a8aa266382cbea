"""Files that evalbias saved: one ``load`` reads them all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from evalbias.measures.corrections import ScoreCorrection
from evalbias.measures.juries import JuryRule
from evalbias.programs.criterion import Criterion
from evalbias.programs.judges import Judge
from evalbias.programs.jury import Jury, Rubric, rule_of
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge, correction_of
from evalbias.programs.ranking import PairwiseRanker
from evalbias.programs.saved import MALFORMED, Program
from evalbias.runs import write_json
from evalbias.values import read_json

RULE, CORRECTION = "jury's rule", "correction"
CONTENTS: Mapping[type, str] = {
    **{program: program.kind for program in (PointwiseJudge, PairwiseJudge, PairwiseRanker, Jury, Rubric)},
    JuryRule: RULE,
    ScoreCorrection: CORRECTION,
}
"""Class -> name of its files in messages."""


def save(learned: ScoreCorrection | JuryRule, path: str | os.PathLike[str]) -> None:
    """Write a correction or a jury's rule as JSON, for ``load``; programs have a ``save`` of their own."""
    write_json(Path(path), learned)


def load(path: str | os.PathLike[str], *kinds: type) -> Any:
    """Load what evalbias saved to a JSON file; the class of the result says what the file holds.

    Programs come from their ``save``: ``PointwiseJudge``, ``PairwiseJudge``, ``PairwiseRanker``, ``Jury`` and
    ``Rubric``. A ``ScoreCorrection`` is the correction.json of 'evalbias correct', and a ``JuryRule`` the jury.json of
    'evalbias jury'. A loop, and a program of yours that contains a judge, hold modules that a file cannot make: make
    the program, and call its own ``load``.

    Args:
        path: The file.
        *kinds: Classes to accept. Defaults to all classes above.

    Raises:
        ValueError: The file is damaged, or holds something else; the message names the file and what it holds.
    """
    content = read_json(path, "give a file that evalbias saved")
    kind, wanted = _kind_of(content), [CONTENTS[cls] for cls in kinds or CONTENTS]
    if kind not in wanted:
        description = "nothing that evalbias.load reads" if kind is None else f"a {kind:.40}"
        raise ValueError(
            f"{path} holds {description}: give the file of a {' or a '.join(wanted)}. Loops and programs that contain "
            "a judge are loaded by their own load."
        )
    try:
        if kind == RULE:
            return rule_of(content)
        return correction_of(content) if kind == CORRECTION else _program(content)
    except MALFORMED as error:
        raise ValueError(
            f"{path} holds a damaged {kind} ({type(error).__name__}: {error}): save or learn it again."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _kind_of(content: Mapping[str, Any]) -> str | None:
    """Name the kind of object in a file; None if evalbias does not save files of this form."""
    settings = content.get("settings")
    kind = settings.get("kind") if isinstance(settings, Mapping) else None
    if isinstance(kind, str):
        return kind
    return RULE if "weights" in content else CORRECTION if "slopes" in content else None


def _program(state: Mapping[str, Any]) -> Program:
    """Make the program of a saved state; a demonstration that cannot be put into the prompt is an error at once."""
    settings = state["settings"]
    program: Program
    if settings["kind"] == PairwiseRanker.kind:
        program = PairwiseRanker(_judge(state["judge.settings"]))
    elif settings["kind"] in (Jury.kind, Rubric.kind):
        members = takewhile(state.__contains__, (f"judges[{place}].settings" for place in count()))
        program = (Jury if settings["kind"] == Jury.kind else Rubric)([_judge(state[name]) for name in members])
    else:
        program = _judge(settings)
    program.load_state(state)
    for _, judge in program.named_sub_modules(Judge):
        judge.labeled(judge.predict.demos)
    return program


def _judge(settings: Mapping[str, Any]) -> Any:
    make = {judge.kind: judge for judge in (PointwiseJudge, PairwiseJudge)}[settings["kind"]]
    inputs, judged = settings.get("inputs") or None, settings.get("judged") or None
    return make(Criterion(**settings["criterion"]), inputs=inputs, judged=judged)
