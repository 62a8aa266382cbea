"""Decision rate against agreement for many instructions: the analysis that says whether fairness is worth seeking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.data.pairs import by_input, pairs
from evalbias.measures import decision_rates
from evalbias.optimizers.zepo.subjects import instruct
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.preference import ranking_agreement
from evalbias.programs.ranking import PairwiseRanker


@dataclass(frozen=True)
class CurvePoint:
    """One instruction on rated documents.

    Attributes:
        instruction: Its wording.
        decision_rate: How often the first position wins, in [0, 1].
        agreement: Mean Spearman of the rankings with people.
    """

    instruction: str
    decision_rate: float
    agreement: float


def curve(
    judge: PairwiseJudge,
    instructions: Sequence[str],
    items: Sequence[dspy.Example],
    *,
    lm: Any = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[CurvePoint]:
    """A point for every instruction.

    Args:
        judge: Its debiasing is set aside, as in the search.
        instructions: Wordings.
        items: Rated outputs (``scores``) of documents.
        lm: In place of the judge's own or DSPy's model.
        limit: Most pairs from which the decision rate is taken.
        seed: Of the pairs and the ranking.
        progress: Called with the number of judgments done.
    """
    one: PairwiseJudge = judge.deepcopy()
    one.debias = None
    compared, documents = pairs(items, limit=limit, seed=seed), list(by_input(items).values())
    found = []
    for text in instructions:
        instruct(one, text)
        rates = decision_rates([p.positions[0] for p in one.batch(compared, lm=lm, progress=progress)])
        agreed = ranking_agreement(PairwiseRanker(one, seed=seed), documents, lm=lm, progress=progress)
        found.append(CurvePoint(text, float(rates[0]), agreed.spearman.value))
    return found
