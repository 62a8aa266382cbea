"""Decision rate against agreement for many instructions: the analysis that says whether fairness is worth seeking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from evalbias.data.pairing import by_input, input_key, pairs
from evalbias.evaluation.position import ranking_agreement
from evalbias.lm.contract import measuring
from evalbias.measures import decision_rates
from evalbias.optimizers.zepo.objectives import Answers, Objective
from evalbias.optimizers.zepo.targets import PairwiseTarget, instruct
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker


@dataclass(frozen=True)
class CurvePoint:
    """One instruction on rated documents.

    Attributes:
        instruction: Its wording.
        decision_rate: How often the first position wins, in [0, 1].
        agreement: Mean Spearman of the rankings with people.
        objectives: Name -> value of what else was asked for.
    """

    instruction: str
    decision_rate: float
    agreement: float
    objectives: Mapping[str, float] = field(default_factory=dict)


def curve(
    judge: PairwiseJudge,
    instructions: Sequence[str],
    items: Sequence[dspy.Example],
    *,
    objectives: Sequence[Objective] = (),
    lm: Any = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[CurvePoint]:
    """A point for every instruction.

    Args:
        judge: Its debiasing and calibration are set aside for the decision rate, as in the search; its debiasing for
            the rankings too.
        instructions: Wordings.
        items: Rated outputs (``scores``) of documents.
        objectives: Also told of every instruction, on the same pairs.
        lm: In place of the judge's own or DSPy's model.
        limit: Most pairs from which the decision rate is taken.
        seed: Of the pairs and the ranking.
        progress: Called with the number of judgments done.
    """
    one: PairwiseJudge = judge.deepcopy()
    one.debias = None
    compared, documents = pairs(items, limit=limit, seed=seed), list(by_input(items).values())
    subject = PairwiseTarget(one, compared, measuring(lm or one.predict.lm or dspy.settings.lm))
    keys = [input_key(e) for e in compared]
    found = []
    for text in instructions:
        probabilities = subject.probabilities([text], compared)[0]
        free = subject.probabilities([text], [subject.content_free()])[0]
        if progress is not None:
            progress(len(compared) + 1)
        answers = Answers(probabilities, free, keys)
        instruct(one, text)
        agreed = ranking_agreement(PairwiseRanker(one, seed=seed), documents, lm=lm, progress=progress)
        told = {objective.name: objective(answers) for objective in objectives}
        found.append(CurvePoint(text, float(decision_rates(probabilities)[0]), agreed.spearman.value, told))
    return found
