"""Lines that a judge's instruction may gain: a library of general edits, which needs no model, and guidelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalbias.programs import prompts
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.values import read_json

_EDITS = read_json(Path(__file__).with_name("edits.json"), "install evalbias again")


def edits(judge: PointwiseJudge | PairwiseJudge) -> dict[str, str]:
    """Return the edits that fit a judge, name -> line, in its criterion's words; empty for a language without edits.

    The edits are chosen from a list and never generated, so a judge's owner can read all of them beforehand.
    """
    library = _EDITS.get(judge.language, {"scores": {}, "pairs": {}, "levels": {}, "above": ""})
    criterion, labels = judge.criterion, judge.criterion.labels
    meanings = () if criterion.levels or criterion.answers else library["levels"].get(str(len(labels)), ())
    levels = "; ".join(f"{label}: {meaning}" for label, meaning in zip(labels, meanings, strict=False))
    words = {"low": labels[0], "high": labels[-1], "levels": levels}
    if "\n" in criterion.definition:  # a whole rubric is not said twice
        words["definition"] = library["above"]
    lines = library["pairs"] if isinstance(judge, PairwiseJudge) else library["scores"]
    fitting = {name: line for name, line in lines.items() if meanings or "{levels}" not in line}
    return {name: prompts.filled(line, criterion, **words) for name, line in fitting.items()}


def with_lines(judge: Any, lines: Sequence[str]) -> Any:
    """Return a copy of a judge whose instruction has these lines before the line that names the answers.

    Corrections and calibrations are discarded, because they were fitted to the old prompt.
    """
    edited = judge.deepcopy()
    instructions = judge.predict.signature.instructions
    if isinstance(judge, PointwiseJudge):
        edited.correction = None
        ending = f"\n{judge.answer_format}"
    else:
        edited.corrections = {}
        ending = f"\n{prompts.LANGUAGES[judge.language].answers}"
    question = instructions.removesuffix(ending)
    kept = ending if question != instructions else ""
    edited.predict.signature = edited.predict.signature.with_instructions("\n".join([question, *lines]) + kept)
    return edited


def guidelines(judge: PointwiseJudge | PairwiseJudge, principles: Sequence[str]) -> list[str]:
    """Return principles as lines of a prompt in the judge's language, or in English if that language has no wording."""
    heading = _EDITS.get(judge.language, _EDITS[prompts.ENGLISH])["guidelines"]
    return [heading, *(f"- {principle}" for principle in principles)]
