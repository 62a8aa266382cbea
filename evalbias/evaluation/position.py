"""What a pairwise judge leans to, on unlabeled pairs; and how its rankings agree with people, where people rated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from evalbias.lm.contract import measuring
from evalbias.lm.types import FloatArray, MeasuringLM
from evalbias.measures import (
    Agreement,
    LikelihoodPreference,
    LongerPreference,
    confidence,
    count_undefined,
    decision_rates,
    fairness,
    kendall,
    likelihood_preference,
    longer_preference,
    pairwise_accuracy,
    position_consistency,
    spearman,
)
from evalbias.measures.calibration import by_candidate, rotations
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.prompt import likelihood_messages
from evalbias.programs.ranking import PairwiseRanker


@dataclass(frozen=True)
class PreferenceMeasurement:
    """A pairwise judge on n pairs, each in both orders.

    A judge with ``debias="permutation"`` gives both orders the same answer, so it is fair and consistent by
    construction; what it leans to in one order is measured without the debiasing.

    Attributes:
        decision_rates: How often each position wins, over both orders.
        fairness: Minus their distance from the uniform, in [-2, 0].
        confidence: Mean negative entropy of a comparison, in [-log c, 0].
        position_consistency: Share of pairs that prefer the same candidate in both orders.
        longer: Whether the longer candidate wins, the orders averaged; length in characters.
        likelihood: Whether the likelier candidate wins, over both orders with the position held fixed; None where it
            was not asked for.
        n: Pairs.
        undefined: Comparisons, two a pair, without a defined answer.
        coverage: Median probability that any of the answers follows; NaN where only shares are told.
    """

    decision_rates: tuple[float, ...]
    fairness: float
    confidence: float
    position_consistency: float
    longer: LongerPreference
    likelihood: LikelihoodPreference | None
    n: int
    undefined: int
    coverage: float


def measure_preference(
    judge: PairwiseJudge,
    pairs: Sequence[dspy.Example],
    *,
    lm: Any = None,
    likelihood_lm: MeasuringLM | None = None,
    progress: Callable[[int], None] | None = None,
) -> PreferenceMeasurement:
    """Compare pairs in both orders.

    Args:
        judge: As it answers, with its debiasing and calibration.
        pairs: With ``source`` and two ``candidates``.
        lm: In place of the judge's own or DSPy's model.
        likelihood_lm: Whose likelihood of the candidates is set beside the preference; None leaves it out.
        progress: Called with the number of judgments done.

    Raises:
        ValueError: No pairs, or one that has not two candidates.
    """
    if not pairs or any(len(e.candidates) != 2 for e in pairs):
        raise ValueError(
            f"{len(pairs)} examples: give pairs, each with two candidates; evalbias.data.pairing makes them."
        )
    both: PairwiseJudge = judge.deepcopy()
    both.debias = "permutation"
    found = both.batch(pairs, lm=lm or judge.predict.lm, progress=progress)
    positions = np.array([p.positions for p in found])  # (n, 2, c)
    if judge.debias == "permutation":
        averaged = by_candidate(positions, rotations(2, every=True)).mean(axis=1)  # (n, c)
        positions = by_candidate(np.stack([averaged, averaged], axis=1), rotations(2, every=True))  # back by position
    first = np.array([p.probability + p.tie / 2 for p in found])
    orders = np.concatenate([positions[:, 0], positions[:, 1]])
    lengths = np.array([[len(text) for text in e.candidates] for e in pairs], dtype=np.float64)
    likelihood = None
    if likelihood_lm is not None:
        likelihoods = _likelihoods(judge, pairs, measuring(likelihood_lm))
        by_position = np.concatenate(
            [positions[:, r, 0] + (positions[:, r, 2] / 2 if judge.ties else 0) for r in (0, 1)]
        )
        likelihood = likelihood_preference(by_position, likelihoods.T.ravel(), likelihoods[:, ::-1].T.ravel())
    return PreferenceMeasurement(
        decision_rates=tuple(decision_rates(orders).tolist()),
        fairness=fairness(orders, ties=judge.ties),
        confidence=confidence(orders),
        position_consistency=position_consistency(positions[:, 0], positions[:, 1], ties=judge.ties),
        longer=longer_preference(first, lengths[:, 0], lengths[:, 1]),
        likelihood=likelihood,
        n=len(pairs),
        undefined=count_undefined(orders),
        coverage=float(np.median([p.coverage for p in found])),
    )


def _likelihoods(judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: MeasuringLM) -> FloatArray:
    """(n, 2) LS of the candidates; each text is asked once."""
    texts = list(dict.fromkeys((e.source, text) for e in pairs for text in e.candidates))
    told = lm.loglikelihood([(likelihood_messages(judge.criterion, source), text) for source, text in texts])
    known = {key: found.total for key, found in zip(texts, told, strict=True)}
    return np.array([[known[e.source, text] for text in e.candidates] for e in pairs], dtype=np.float64)


@dataclass(frozen=True)
class RankingAgreement:
    """Rankings beside human scores, document by document.

    Attributes:
        spearman: Mean over the documents.
        kendall: Mean over the documents.
        pairwise_accuracy: Mean over the documents.
        comparisons: Pairs compared.
        judgments: Prompts that took.
        ties: Pairs on which the judge was undecided.
        undefined: Pairs without a defined answer.
    """

    spearman: Agreement
    kendall: Agreement
    pairwise_accuracy: Agreement
    comparisons: int
    judgments: int
    ties: int
    undefined: int


def ranking_agreement(
    ranker: PairwiseRanker,
    documents: Sequence[Sequence[dspy.Example]],
    *,
    lm: Any = None,
    progress: Callable[[int], None] | None = None,
) -> RankingAgreement:
    """Rank the outputs of every document and correlate with the human scores.

    Args:
        ranker: Who ranks, on its judge's criterion.
        documents: The rated outputs of each; ``evalbias.data.by_input`` groups them. Those without two different
            outputs are left out.
        lm: In place of the judge's own or DSPy's model.
        progress: Called with the number of judgments done.

    Raises:
        ValueError: An item was not rated on the criterion.
    """
    name = ranker.judge.criterion.name
    for example in (e for document in documents for e in document):
        if name not in (example.get("scores") or {}):
            raise ValueError(f"The item {example.get('id')!r} has no score on {name!r}: rate it, or leave it out.")
    usable = [d for d in documents if len({e.output for e in d}) > 1]
    asked = [dspy.Example(source=d[0].source, candidates=[e.output for e in d]) for d in usable]
    found = ranker.batch(asked, lm=lm, progress=progress)
    told: dict[str, Any] = dict(agreement_of(found, usable, name))
    told |= {f: sum(getattr(r, f) for r in found) for f in ("comparisons", "judgments", "ties", "undefined")}
    return RankingAgreement(**told)


def agreement_of(
    rankings: Sequence[dspy.Prediction], documents: Sequence[Sequence[dspy.Example]], criterion: str
) -> dict[str, Agreement]:
    """Spearman, Kendall and pairwise accuracy of finished rankings, mean over the documents.

    Args:
        rankings: One a document.
        documents: The outputs that were ranked, in their order; one that nobody rated is undefined.
        criterion: Its name in their scores.
    """
    scores = [score for ranking in rankings for score in ranking.scores]
    human = [float((e.get("scores") or {}).get(criterion, math.nan)) for d in documents for e in d]
    groups = [index for index, d in enumerate(documents) for _ in d]
    measures = {"spearman": spearman, "kendall": kendall, "pairwise_accuracy": pairwise_accuracy}
    return {name: measure(scores, human, groups=groups) for name, measure in measures.items()}
