"""Decision rate against agreement for many instructions: the analysis that shows whether fairness is worth seeking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
import numpy as np

from evalbias.data.pairing import by_input, pairs
from evalbias.evaluation.agreement import measure_ranking
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.measures import decision_rates
from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import by_candidate, rotations
from evalbias.optimizers.zepo.objectives import Objective
from evalbias.optimizers.zepo.targets import PairwiseTarget, instruct
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker


@dataclass(frozen=True)
class CurvePoint:
    """One instruction on rated documents.

    Attributes:
        instruction: The wording.
        decision_rate: Win rate of the first position, in [0, 1].
        agreement: Mean Spearman of the rankings with people.
        objectives: Name -> value of the other objectives.
    """

    instruction: str
    decision_rate: float
    agreement: float
    objectives: Mapping[str, float] = field(default_factory=dict)


def sensitivity_curve(
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
    """Measure decision rate and agreement under every instruction (Zhou et al. 2024, figures 2 and 4).

    Args:
        judge: Judge to measure. With ``debias="permutation"``, decision rates and rankings are of the probabilities
            averaged over both orders (the figure after debiasing). Decision rates are without its calibration, as in
            the search.
        instructions: Wordings.
        items: Rated outputs (``scores``) of documents.
        objectives: Further objectives to compute on the same pairs.
        lm: Model to ask. Defaults to the judge's own, else DSPy's.
        limit: Largest number of pairs from which the decision rate is computed. They are ordered pairs; for a debiased
            judge, for which both orders of a pair say the same, each pair counts once, in an order drawn at random.
        seed: Seed for the pairs and the ranking.
        progress: Called with the number of judgments done.
    """
    one: PairwiseJudge = judge.deepcopy()
    orders = rotations(2, every=judge.debias == "permutation")
    compared = pairs(items, limit=limit, ordered=len(orders) == 1, seed=seed)
    documents = list(by_input(items).values())
    target = PairwiseTarget(one, compared, measuring(resolve_lm(lm, one.predict)))

    def averaged(text: str, examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (n, c) probabilities of the first and second candidate, averaged over the orders."""
        ordered = [e.copy(candidates=[e.candidates[i] for i in order]) for e in examples for order in orders]
        positions = target.probabilities([text], ordered)[0].reshape(len(examples), len(orders), target.classes)
        return np.asarray(by_candidate(positions, orders).mean(axis=1))

    points = []
    for text in instructions:
        probabilities = averaged(text, compared)
        free = averaged(text, [target.content_free()])
        if progress is not None:
            progress(len(orders) * (len(compared) + 1))
        judged = target.judged(probabilities, compared, free)
        instruct(one, text)
        agreement = measure_ranking(PairwiseRanker(one, seed=seed), documents, lm=lm, progress=progress)
        values = {objective.name: objective(judged) for objective in objectives}
        rate = float(decision_rates(probabilities)[0])
        points.append(CurvePoint(text, rate, agreement["spearman"].value, values))
    return points
