"""A compiled judge beside the baselines: the judge it was compiled from, and permutation debiasing of both.

Permutation alone mends much of what a search mends (Zhou et al., EMNLP 2024, table 3), so no result stands without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from evalbias.data.pairing import by_input, hold_pairs, pairs
from evalbias.data.ratings import human_score, is_rated
from evalbias.evaluation.agreement import NAME, measure_ranking
from evalbias.evaluation.comparison import Comparison, compare
from evalbias.evaluation.judged import judge_examples
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.registry import measure_all
from evalbias.lm.types import MeasuringLM
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker

PROMPTS = {"initial": 1, "initial + permutation": 2, "searched": 1, "searched + permutation": 2}
"""Row -> prompts that a comparison takes."""


@dataclass(frozen=True)
class Row:
    """One judge on the test documents.

    Attributes:
        measurements: Every bias that applies, by name, and ``"agreement"`` with people where any rated.
        comparisons: The same against the initial judge; empty for that one itself.
    """

    measurements: Mapping[str, Measurement]
    comparisons: Mapping[str, Comparison]


def compare_with_baselines(
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
    """Measure four judges: initial, initial + permutation, searched, searched + permutation.

    Args:
        initial: Judge before the search.
        compiled: Judge that the search returned.
        items: Outputs of documents that took no part in the search. Where people rated some of them (``scores``), the
            agreement is measured; unrated ones are undefined in it. Or pairs of outputs, which are not ranked.
        lm: Model to ask. Defaults to the judges' own, else DSPy's.
        likelihood_lm: Model whose likelihood defines LS; None measures none.
        search: Search of the ranking, ``"greedy"`` or ``"beam"``.
        limit: Largest number of pairs on which the biases are measured.
        n_resamples: Swaps of each permutation test.
        seed: Seed for the pairs, the ranking, tests and intervals.
        progress: Called with the number of judgments done.
    """
    name = initial.criterion.name
    rated = not hold_pairs(items) and any(is_rated(e, name) for e in items)
    documents = list(by_input(with_scores(items, name) if rated else items).values())
    compared = pairs(items, limit=limit, ordered=False, seed=seed)
    rows: dict[str, Row] = {}
    for title, judge in zip(PROMPTS, (initial, initial, compiled, compiled), strict=True):
        one: PairwiseJudge = judge.deepcopy()
        one.debias = "permutation" if title.endswith("permutation") else None
        judged = judge_examples(one, compared, lm=lm, likelihood_lm=likelihood_lm, progress=progress)
        measurements = measure_all(judged, seed=seed)
        if rated:
            ranker = PairwiseRanker(one, search=search, seed=seed)
            measurements[NAME] = measure_ranking(ranker, documents, lm=lm, progress=progress, seed=seed)
        first = rows["initial"].measurements if rows else {}
        comparisons = {
            bias: compare(first[bias], m, n_resamples=n_resamples, seed=seed)
            for bias, m in measurements.items()
            if bias in first
        }
        rows[title] = Row(measurements, comparisons)
    return rows


def with_scores(items: Sequence[dspy.Example], name: str) -> list[dspy.Example]:
    """Return the items with one score each, NaN where nobody rated."""
    return [e.copy(scores={name: human_score(e, name, required=False)}) for e in items]
