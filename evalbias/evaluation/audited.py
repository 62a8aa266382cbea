"""The answers of any judge that an audit is given: a program, a file, a function, or recorded columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from evalbias import data as data_sets
from evalbias.data.items import check_field
from evalbias.data.pairing import input_key
from evalbias.data.ratings import human_score
from evalbias.evaluation.formatting import model_title
from evalbias.evaluation.function_judge import FunctionJudge, function_scores
from evalbias.evaluation.item_facts import BETTER
from evalbias.evaluation.judge_call import name_of
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.recorded_judge import check_fields, recorded_scores, recorded_verdicts
from evalbias.lm.contract import resolve_lm
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import PairwiseJudge, load_pairwise_judge
from evalbias.programs.pointwise import PointwiseJudge, load_judge
from evalbias.programs.usable import candidates_of
from evalbias.runs.values import read_json

JudgeSource = PointwiseJudge | PairwiseJudge | str | os.PathLike[str] | FunctionJudge


@dataclass(frozen=True)
class Answered:
    """A judge's answers, ready to be audited.

    Attributes:
        judge: The judge in words.
        judged: Its answers, and what is known about the items.
        examples: The items, in the order of the answers.
        not_measured: Bias -> why it cannot be measured, where that was found out on the way.
        askable: Whether it is a judge of evalbias, which can be compiled; not so recorded answers and functions.
    """

    judge: str
    judged: Judged
    examples: Sequence[dspy.Example]
    not_measured: Mapping[str, str] = field(default_factory=dict)
    askable: bool = False


def recorded_fields(
    scores: str | None, winner: str | None, swapped: str | None, better: str, labels: Sequence[object] = ()
) -> dict[str, Any]:
    """Return what ``data.read`` must know about an audit's fields to name file and line of a malformed answer.

    Raises:
        ValueError: One field is named for two kinds of choices.
    """
    if winner is not None:
        check_fields(winner, swapped, better)
    choices = {name: labels for name in (winner, swapped, better) if name is not None}
    return {"numbers": [] if scores is None else [scores], "choices": choices}


def answers_of(
    examples: Sequence[dspy.Example],
    *,
    judge: PointwiseJudge | PairwiseJudge | FunctionJudge | None,
    scores_field: str | None,
    winner_field: str | None,
    swapped_field: str | None,
    better_field: str,
    lm: Any,
    likelihood_lm: Any,
    criterion: Criterion,
    scale: tuple[float, float] | None,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Answered:
    """Gather a judge's answers on items; see ``audit``.

    Raises:
        ValueError: Not exactly one judge is named, or the items lack what is asked for.
    """
    if sum(given is not None for given in (judge, scores_field, winner_field)) != 1:
        raise ValueError(
            "Name one judge: a judge of yours (judge, --judge), the field of its recorded scores (scores_field, "
            "--scores-field), or the field of its recorded choices (winner_field, --winner-field)."
        )
    if isinstance(judge, PointwiseJudge | PairwiseJudge):
        return _asked(judge, examples, lm, likelihood_lm, progress)
    if callable(judge):
        judged = function_scores(
            examples,
            judge,
            criterion=criterion,
            scale=scale,
            better=better_field,
            likelihood_lm=likelihood_lm,
            num_threads=num_threads,
            progress=progress,
        )
        return Answered(f"the judge {name_of(judge)}", judged, examples)
    if scores_field is not None:
        judged = recorded_scores(examples, scores_field, criterion=criterion, scale=scale, likelihood_lm=likelihood_lm)
        return Answered(f"recorded scores {scores_field!r}", judged, examples)
    judged = recorded_verdicts(
        examples,
        str(winner_field),
        swapped=swapped_field,
        better=better_field,
        criterion=criterion,
        likelihood_lm=likelihood_lm,
    )
    return Answered(f"recorded choices {winner_field!r}", judged, examples)


def load_any_judge(path: str | os.PathLike[str]) -> PointwiseJudge | PairwiseJudge:
    """Load a judge that scores or compares from the JSON file that its ``save`` wrote.

    Raises:
        ValueError: The file does not hold a judge.
    """
    try:
        kind = read_json(path)["settings"]["kind"]
    except (ValueError, TypeError, KeyError):
        kind = None
    return load_pairwise_judge(path) if kind == PairwiseJudge.kind else load_judge(path)


def _asked(
    judge: PointwiseJudge | PairwiseJudge,
    examples: Sequence[dspy.Example],
    lm: Any,
    likelihood_lm: Any,
    progress: Callable[[int], None] | None,
) -> Answered:
    """Have a judge of ours answer; its own model defines LS if it tells likelihoods and no other is named."""
    for field_name in ("source", "candidates" if isinstance(judge, PairwiseJudge) else "output"):
        check_field(examples, field_name, "the data")
    words = f"{judge.kind} on {model_title(getattr(resolve_lm(lm, judge.predict), 'model', 'its model'))}"
    try:
        own: Any = "own" if likelihood_lm is None else likelihood_lm
        judged = judge_examples(judge, examples, lm=lm, likelihood_lm=own, progress=progress)
        return Answered(words, judged, examples, askable=True)
    except NotImplementedError as error:
        if likelihood_lm is not None:
            raise
        judged = judge_examples(judge, examples, lm=lm, progress=progress)
        return Answered(words, judged, examples, {"likelihood": str(error)}, askable=True)


def pairs_for(
    judge: PairwiseJudge, examples: Sequence[dspy.Example], limit: int | None, seed: int, *, better: str = "better"
) -> list[dspy.Example]:
    """Return pairs for a judge that compares, with ``candidates`` and, where known, what people prefer in ``better``.

    Args:
        judge: Judge; its criterion names the human scores of single outputs.
        examples: Pairs, or single outputs of which pairs are drawn, input by input.
        limit: Largest number of pairs to draw; None for all.
        seed: Seed for the draw.
        better: Field of people's choice between the outputs of pairs.
    """
    if any(candidates_of(e) for e in examples):
        read = examples if better == BETTER else [e.without("preference") for e in examples]
        return [e.copy(candidates=list(candidates_of(e)), better=e.get(better)) for e in read]
    name = judge.criterion.name
    scores = {(input_key(e), e.output): human_score(e, name, required=False) for e in reversed(examples)}
    drawn = data_sets.pairs(examples, limit=limit, ordered=False, seed=seed)
    return [pair.copy(better=_better(*(scores[pair.input_id, text] for text in pair.candidates))) for pair in drawn]


def _better(first: float, second: float) -> int | None:
    """Return the index of the higher score; None where they are equal or one is undefined."""
    return 0 if first > second else 1 if second > first else None
