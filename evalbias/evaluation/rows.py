"""The search beside its simplest rival: the first and the best instruction, each with and without permutation.

Permutation alone mends much of what the search mends (Zhou et al., table 3), so no result is told without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.data.pairing import by_input, pairs
from evalbias.evaluation.position import PreferenceMeasurement, RankingAgreement, measure_preference, ranking_agreement
from evalbias.lm.types import MeasuringLM
from evalbias.measures import MeanStatistic, PermutationTest, paired_permutation_test
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker


@dataclass(frozen=True)
class Row:
    """One judge on the test documents.

    Attributes:
        preference: What it leans to.
        agreement: Of its rankings with people; None where nobody rated.
        test: Two-sided paired permutation test of its Spearman by document against the initial judge's; None for that
            one itself, and where nobody rated.
    """

    preference: PreferenceMeasurement
    agreement: RankingAgreement | None
    test: PermutationTest | None


def rows(
    initial: PairwiseJudge,
    compiled: PairwiseJudge,
    items: Sequence[dspy.Example],
    *,
    lm: Any = None,
    likelihood_lm: MeasuringLM | None = None,
    search: str = "greedy",
    limit: int | None = None,
    n_resamples: int = 100_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Row]:
    """Four rows: initial, initial + permutation, searched, searched + permutation.

    Args:
        initial: The judge before the search.
        compiled: What the search gave.
        items: Outputs of documents that took no part in the search. Where people rated some of them (``scores``) there
            is an agreement; the others are undefined in it, and counted.
        lm: In place of the judges' own or DSPy's model.
        likelihood_lm: See ``measure_preference``.
        search: Of the ranking.
        limit: Most pairs on which the preference is measured.
        n_resamples: Of the tests.
        seed: Of the pairs, the ranking and the tests.
        progress: Called with the number of judgments done.
    """
    name = initial.criterion.name
    rated = any(name in (e.get("scores") or {}) for e in items)
    documents = list(by_input(with_scores(items, name) if rated else items).values())
    compared = pairs(items, limit=limit, ordered=False, seed=seed)
    found: dict[str, Row] = {}
    first: RankingAgreement | None = None
    for title, judge, debias in (
        ("initial", initial, None),
        ("initial + permutation", initial, "permutation"),
        ("searched", compiled, None),
        ("searched + permutation", compiled, "permutation"),
    ):
        one: PairwiseJudge = judge.deepcopy()
        one.debias = debias
        preference = measure_preference(one, compared, lm=lm, likelihood_lm=likelihood_lm, progress=progress)
        ranker = PairwiseRanker(one, search=search, seed=seed)
        agreement = ranking_agreement(ranker, documents, lm=lm, progress=progress) if rated else None
        found[title] = Row(preference, agreement, _test(agreement, first, n_resamples=n_resamples, seed=seed))
        first = first or agreement
    return found


def with_scores(items: Sequence[dspy.Example], name: str) -> list[dspy.Example]:
    """The items with a score each, NaN where nobody rated."""
    return [e.copy(scores={name: (e.get("scores") or {}).get(name, math.nan)}) for e in items]


def _test(
    agreement: RankingAgreement | None, first: RankingAgreement | None, *, n_resamples: int, seed: int
) -> PermutationTest | None:
    if agreement is None or first is None:
        return None
    ours, initial = agreement.spearman.by_group, first.spearman.by_group
    return paired_permutation_test(MeanStatistic(len(ours)), ours, initial, n_resamples=n_resamples, seed=seed)
