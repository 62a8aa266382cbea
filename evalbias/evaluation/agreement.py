"""Agreement of a judge's rankings with people, document by document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dspy
import numpy as np

from evalbias.data.pairing import input_key
from evalbias.data.ratings import human_score
from evalbias.evaluation.estimates import N_RESAMPLES, Sample
from evalbias.evaluation.measurement import Measurement, measured
from evalbias.measures import Agreement, kendall, pairwise_accuracy, spearman
from evalbias.measures.correlation_statistic import MeanCorrelationStatistic
from evalbias.measures.statistic import ShareStatistic
from evalbias.programs.ranking import PairwiseRanker

NAME = "agreement"
MEASURES = {
    "spearman": (spearman, "Spearman"),
    "kendall": (kendall, "Kendall"),
    "pairwise_accuracy": (pairwise_accuracy, "accuracy"),
}
COUNTS = ("comparisons", "judgments", "ties", "undefined", "contradictions")


def measure_ranking(
    ranker: PairwiseRanker,
    documents: Sequence[Sequence[dspy.Example]],
    *,
    lm: Any = None,
    progress: Callable[[int], None] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Measurement:
    """Rank the outputs of every document and correlate the rankings with the human scores.

    Args:
        ranker: Ranker to measure, on its judge's criterion.
        documents: Rated outputs of each document (``evalbias.data.by_input`` groups them), with NaN where nobody rated.
            Documents without two different outputs are left out.
        lm: Model to ask. Defaults to the judge's own, else DSPy's.
        progress: Called with the number of judgments done.
        n_resamples: Bootstrap resamples of documents.
        seed: Seed for the bootstrap.

    Returns:
        Estimates ``spearman``, ``kendall`` and ``pairwise_accuracy``, means over the documents; its items are the
        documents. ``notes`` counts comparisons, ties, undefined comparisons, contradictions and unranked outputs.

    Raises:
        ValueError: An item lacks a score on the criterion.
    """
    name = ranker.judge.criterion.name
    for example in (e for document in documents for e in document):
        human_score(example, name)
    usable = [document for document in documents if len({e.output for e in document}) > 1]
    examples = [dspy.Example(source=d[0].source, candidates=[e.output for e in d]) for d in usable]
    rankings = ranker.batch(examples, lm=lm, progress=progress)
    return ranking_agreement(rankings, usable, name, n_resamples=n_resamples, seed=seed)


def ranking_agreement(
    rankings: Sequence[dspy.Prediction],
    documents: Sequence[Sequence[dspy.Example]],
    criterion: str,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Measurement:
    """Correlate finished rankings with the human scores; see ``measure_ranking``.

    Args:
        rankings: One ranking a document.
        documents: The outputs that were ranked, in their order; unrated ones are undefined.
        criterion: Name of the criterion in the outputs' scores.
        n_resamples: Bootstrap resamples of documents.
        seed: Seed for the bootstrap.
    """
    scores = [score for ranking in rankings for score in ranking.scores]
    human = [human_score(e, criterion, required=False) for document in documents for e in document]
    groups = [index for index, document in enumerate(documents) for _ in document]
    values = {name: _by_document(measure(scores, human, groups=groups)) for name, (measure, _) in MEASURES.items()}
    notes = {name: sum(ranking[name] for ranking in rankings) for name in COUNTS}
    notes["unranked"] = sum(len(ranking.unranked) for ranking in rankings)
    share, mean = ShareStatistic(), MeanCorrelationStatistic()
    kinds = {"pairwise_accuracy": share, "spearman": mean, "kendall": mean}
    return measured(
        {n: Sample(v, kinds[n], MEASURES[n][1], signed=kinds[n] is not share) for n, v in values.items()},
        seed=seed,
        n_resamples=n_resamples,
        bias=NAME,
        headlines=("spearman",),
        criterion=criterion,
        ids=tuple(input_key(document[0]) for document in documents),
        columns=values,
        cost={"judgments": notes.pop("judgments")},
        notes=notes,
    )


def _by_document(agreement: Agreement) -> np.ndarray:
    return np.array(agreement.by_group, dtype=np.float64)
