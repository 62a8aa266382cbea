"""Agreement of rankings with people, and comparison with simple baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dspy
import numpy as np

from evalbias.data.items import by_input, hold_pairs, human_score, input_key, is_rated, pairs
from evalbias.evaluation.agreement import PeopleAgreement
from evalbias.evaluation.biases import measure_all
from evalbias.evaluation.estimates import Comparison, Measurement, Number, compare_judges, measured
from evalbias.evaluation.judged import judge_examples
from evalbias.evaluation.words import conclude, count
from evalbias.measures import kendall, pairwise_accuracy, spearman
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.resample import estimate_mean_coefficient, estimate_share
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker

MEASURES = {
    "spearman": (spearman, estimate_mean_coefficient, "Spearman"),
    "kendall": (kendall, estimate_mean_coefficient, "Kendall"),
    "pairwise_accuracy": (pairwise_accuracy, estimate_share, "accuracy"),
}
PUBLISHED_ORDERS, ORDER_SD = 100, "spearman_sd_over_orders"
"""Random initial orders in Zhou et al.'s code; name of the note with the mean Spearman's deviation over orders."""
COUNTS = ("comparisons", "judgments", "first", "ties", "undefined", "contradictions")


def measure_ranking(
    ranker: PairwiseRanker, documents: Sequence[Sequence[dspy.Example]], *, lm: Any = None, seed: int = 0
) -> Measurement:
    """Rank the outputs of every document and correlate the rankings with the human scores.

    ``documents`` are the rated outputs of each document (``evalbias.data.by_input`` groups them), NaN if unrated;
    documents without two different outputs are left out. ``lm`` defaults to the judge's own, else DSPy's. ValueError if
    an item lacks a score on the criterion.

    Returns:
        Estimates ``spearman``, ``kendall`` and ``pairwise_accuracy``, means over the documents, which are its items, of
        the mean over the initial orders, as the paper's code averages. ``notes`` counts comparisons, ties, undefined
        comparisons, contradictions and unranked outputs; for several orders also their number and Spearman's deviation.
    """
    name = ranker.judge.criterion.name
    for example in (e for document in documents for e in document):
        human_score(example, name)
    usable = [document for document in documents if len({e.output for e in document}) > 1]
    examples = [d[0].copy(candidates=[e.output for e in d]) for d in usable]
    return ranking_agreement(ranker.batch(examples, lm=lm), usable, name, seed=seed)


def ranking_agreement(
    rankings: Sequence[dspy.Prediction], documents: Sequence[Sequence[dspy.Example]], criterion: str, *, seed: int = 0
) -> Measurement:
    """Correlate finished rankings, one per document, with the human scores, as ``measure_ranking`` does.

    ``documents`` are the ranked outputs, in their original order; unrated outputs are undefined.
    """
    orders = zip(*(ranking.scores_by_order for ranking in rankings), strict=True)
    scores = [[score for document in order for score in document] for order in orders]  # (orders, outputs)
    human = [human_score(e, criterion, required=False) for document in documents for e in document]
    groups = [index for index, document in enumerate(documents) for _ in document]
    numbers, by_order = [], dict[str, list[FloatArray]]()
    for name, (measure, estimator, label) in MEASURES.items():
        by_order[name] = [np.array(measure(x, human, groups=groups).by_group, dtype=np.float64) for x in scores]
        by_document = np.array(list(map(mean_of_defined, zip(*by_order[name], strict=True))))
        numbers.append(Number(name, label, by_document, estimator, signed=estimator is not estimate_share))
    notes: dict[str, float] = {name: sum(ranking[name] for ranking in rankings) for name in COUNTS}
    notes["unranked"] = sum(len(ranking.unranked) for ranking in rankings)
    if len(scores) > 1:
        deviation = np.std(list(map(mean_of_defined, by_order["spearman"])), ddof=1)
        notes |= {"orders": len(scores), ORDER_SD: float(deviation)}
    return measured(
        numbers,
        seed=seed,
        bias=PeopleAgreement(),
        criterion=criterion,
        ids=tuple(input_key(document[0]) for document in documents),
        columns={number.name: number.values for number in numbers},
        cost={"judgments": notes.pop("judgments")},
        notes=notes,
    )


def order_spread(agreements: Sequence[Measurement]) -> list[str]:
    """Say how the mean Spearman of rankings varies over the initial orders; empty for a single order."""
    notes = [agreement.notes for agreement in agreements if ORDER_SD in agreement.notes]
    deviations = ", ".join(f"{note[ORDER_SD]:.2f}" for note in notes)
    return [f"mean of {notes[0]['orders']} initial orders, standard deviation over them {deviations}"] if notes else []


def conclude_ranking(agreement: Measurement | None, documents: int) -> str:
    """Say whether rankings agree with people."""
    if agreement is None:
        unknown = f"Nobody rated the outputs, so it is unknown whether these {count(documents, 'ranking')} are right"
        return f"{unknown}; 'evalbias audit' tells whether the judge prefers a position or longer outputs."
    rho = agreement["spearman"]
    figures = f"Spearman {rho.text()} (95 % interval {rho.interval}, {count(rho.n, 'document')})"
    return conclude(
        rho,
        above=f"The rankings agree with people better than chance does: {figures}.",
        below=f"The rankings contradict people: {figures}. Do not use this judge.",
        neither=f"The rankings are not shown to agree with people better than chance does: {figures}. Rate more "
        "documents.",
        undefined=f"Whether the rankings agree with people is undefined in {count(documents, 'document')}: give more.",
    )


# A compiled judge compared with the initial judge, and permutation debiasing of both: debiasing alone achieves much of
# what a search does (Zhou et al., EMNLP 2024, table 3), so every result is reported with it.

PROMPTS = {"initial": 1, "initial + permutation": 2, "searched": 1, "searched + permutation": 2}
"""Row -> number of prompts per comparison."""


@dataclass(frozen=True)
class Row:
    """A judge measured on the test documents."""

    measurements: Mapping[str, Measurement]  # name of a bias, or "agreement" with people if any rated
    comparisons: Mapping[str, Comparison]  # the same compared with the initial judge; empty for the initial judge


def compare_with_baselines(
    initial: PairwiseJudge,
    compiled: PairwiseJudge,
    items: Sequence[dspy.Example],
    *,
    lm: Any = None,
    limit: int | None = None,
    n_resamples: int = 100_000,
    seed: int = 0,
    orders: int = 1,
) -> dict[str, Row]:
    """Measure four judges: initial, initial + permutation, searched, searched + permutation.

    ``items`` are outputs of documents that took no part in the search, or pairs, which are not ranked. If people rated
    some (``scores``), the agreement is measured. The biases are measured on at most ``limit`` pairs, and documents are
    ranked from ``orders`` random initial orders.
    """
    name = initial.criterion.name
    rated = not hold_pairs(items) and any(is_rated(e, name) for e in items)
    scored = [e.copy(scores={name: human_score(e, name, required=False)}) for e in items] if rated else items
    documents = list(by_input(scored).values())
    compared = pairs(items, limit=limit, ordered=False, seed=seed)
    rows: dict[str, Row] = {}
    for title, judge in zip(PROMPTS, (initial, initial, compiled, compiled), strict=True):
        debiased: PairwiseJudge = judge.deepcopy()
        debiased.debias = "permutation" if title.endswith("permutation") else None
        measurements = measure_all(judge_examples(debiased, compared, lm=lm), seed=seed)
        if rated:
            ranker = PairwiseRanker(debiased, seed=seed, orders=orders)
            measurements[PeopleAgreement.name] = measure_ranking(ranker, documents, lm=lm, seed=seed)
        first, compare = rows["initial"].measurements if rows else {}, partial(compare_judges, n_resamples=n_resamples)
        comparisons = {n: compare(first[n], m, seed=seed) for n, m in measurements.items() if n in first}
        rows[title] = Row(measurements, comparisons)
    return rows
