"""A judge's answers on items, with what is known about the items. Every bias is measured on this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import dspy
import numpy as np

from evalbias.evaluation.item_facts import (
    BETTER,
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    RATINGS,
    Writers,
    item_facts,
    likelihood_provenance,
)
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray, IntArray
from evalbias.measures.calibration import by_candidate, rotations, win_probabilities
from evalbias.measures.likelihood import TOTAL
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge
from evalbias.programs.usable import check_pairs, usable_item, usable_pair

__all__ = [
    "BETTER",
    "HUMAN_SCORES",
    "LENGTHS",
    "LIKELIHOODS",
    "RATINGS",
    "Judged",
    "judge_examples",
    "total",
]

REMEDIES = {
    LIKELIHOODS: "name the model whose likelihood is measured (likelihood_lm)",
    HUMAN_SCORES: "give items with human scores on the criterion",
}

BY_CONSTRUCTION = "by_construction"
"""Key of ``provenance``: bias -> what in the judge's making settles it, so that its estimates are no finding."""


@dataclass(frozen=True)
class Judged:
    """A judge's answers on n items.

    Attributes:
        ids: Identifiers of the items; a pair's is both its outputs', joined.
        criterion: Name of the judged criterion.
        answers: (n,) scores of a judge that scores; (n, r, c) probabilities by position of one that compares, in r
            orders. NaN where undefined.
        covariates: Name -> (n,) or (n, candidates) numbers about the items; NaN where undefined.
        inputs: (n,) the input (document) of each item.
        coverage: (n,) probability that any answer follows; NaN where the model reports only shares.
        ties: Whether the last of c classes is the answer "tie".
        content_free: (1, c) answer to a content-free input; None where it was not asked for.
        writers: (n,) names of the systems that wrote the outputs, two for a pair; empty where unknown.
        scale: Lowest and highest score of a judge that scores; None where unknown.
        reasons: Id -> why the judge gave no answer, where that is known.
        judgments: Prompts that the judge answered.
        provenance: What decides the numbers: models, reduction.
    """

    ids: tuple[str, ...]
    criterion: str
    answers: FloatArray
    covariates: Mapping[str, FloatArray] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    coverage: FloatArray = field(default_factory=lambda: np.empty(0))
    ties: bool = False
    content_free: FloatArray | None = None
    writers: Writers = ()
    scale: tuple[float, float] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    judgments: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return how many items were judged on what, and not hundreds of lines of numbers."""
        undefined = np.isnan(self.answers).any(axis=tuple(range(1, self.answers.ndim))).sum()
        return f"Judged({self.criterion!r}, n={len(self.ids)}, undefined={undefined})"

    @property
    def pairwise(self) -> bool:
        """True if the judge compared candidates, False if it scored outputs."""
        return self.answers.ndim == 3

    def covariate(self, name: str) -> FloatArray:
        """Return a covariate.

        Raises:
            ValueError: It was not measured or given.
        """
        if name not in self.covariates:
            remedy = REMEDIES.get(name, "give it when the Judged is made")
            raise ValueError(
                f"The judged items on {self.criterion} lack the covariate {name!r}, they have "
                f"{sorted(self.covariates)}: {remedy}."
            )
        return self.covariates[name]

    def take(self, picks: IntArray) -> Judged:
        """Return the answers to some of the items, (m,) places from 0, as often and in the order as they are picked."""
        rows = [int(pick) for pick in picks]
        ids = tuple(self.ids[row] for row in rows)
        present = set(ids)
        return replace(
            self,
            ids=ids,
            answers=self.answers[rows],
            covariates={name: column[rows] for name, column in self.covariates.items()},
            inputs=tuple(self.inputs[row] for row in rows) if len(self.inputs) else (),
            coverage=self.coverage[rows] if len(self.coverage) else self.coverage,
            writers=cast(Writers, [self.writers[row] for row in rows]) if len(self.writers) else (),
            reasons={name: why for name, why in self.reasons.items() if name in present},
        )

    @property
    def win_shares(self) -> FloatArray:
        """(n,) win probability of each pair's first candidate, averaged over the orders; a tie counts half."""
        orders = rotations(2, every=self.answers.shape[1] == 2)
        return win_probabilities(by_candidate(self.answers, orders).mean(axis=1), ties=self.ties)[:, 0]


def judge_examples(
    judge: PointwiseJudge | PairwiseJudge,
    examples: Sequence[dspy.Example],
    *,
    lm: Any = None,
    likelihood_lm: MeasuringLM | Literal["own"] | None = None,
    reduction: str = "sum",
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """Have a judge answer items, and gather the covariates that biases are measured with.

    Args:
        judge: Judge to measure, with its debiasing and calibration. Pairs are compared in both orders; with
            ``debias="permutation"`` both orders get the average, so the judge is fair and consistent by construction.
        examples: Items with ``source``, ``output`` and, where people rated them, ``scores`` (criterion -> number) or
            ``score``; or pairs with ``source`` and two ``candidates``.
        lm: Model to ask. Defaults to the judge's own, else DSPy's.
        likelihood_lm: Model whose likelihood defines LS; ``"own"`` for the judge's model, None to measure no LS.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (Ohi et al. 2024, eq 1) or ``"mean"``.
        progress: Called with the number of judgments done.

    Raises:
        ValueError: No examples, one that lacks a text, a pair without two candidates, or an item that lacks the
            criterion's score.
    """
    if not examples:
        raise ValueError("There are no examples to judge: give at least one.")
    pairwise = isinstance(judge, PairwiseJudge)
    usable = usable_pair if pairwise else usable_item
    examples = [usable(example, index) for index, example in enumerate(examples)]
    model = resolve_lm(lm, judge.predict)
    scorer = None if likelihood_lm is None else measuring(model if likelihood_lm == "own" else likelihood_lm)
    if pairwise:
        check_pairs(examples)
    facts = item_facts(examples, judge.criterion, pairwise=pairwise, scorer=scorer, reduction=reduction)
    if isinstance(judge, PairwiseJudge):
        answers, predictions = _compare(judge, examples, model, progress)
    else:
        predictions = judge.batch(examples, lm=model, progress=progress)
        answers = np.array([p.score for p in predictions], dtype=np.float64)
    refused = zip(facts.ids, predictions, strict=True)
    provenance = likelihood_provenance(judge.criterion, scorer, reduction)
    if isinstance(judge, PairwiseJudge) and judge.debias == "permutation":
        provenance[BY_CONSTRUCTION] = {"position": "the judge averages both orders, so none can be preferred"}
    return Judged(
        ids=facts.ids,
        criterion=judge.criterion.name,
        answers=answers,
        covariates=facts.covariates,
        inputs=facts.inputs,
        coverage=np.array([p.coverage for p in predictions], dtype=np.float64),
        ties=isinstance(judge, PairwiseJudge) and judge.ties,
        writers=facts.writers,
        scale=None if pairwise else judge.criterion.scale,
        reasons={name: str(p.undefined) for name, p in refused if p.get("undefined")},
        judgments=(2 if pairwise else 1) * len(examples),
        provenance=provenance,
    )


def total(judged: Sequence[Judged]) -> Judged:
    """Average several criteria's scores and human scores over the same items (Ohi et al. 2024: "total").

    Raises:
        ValueError: Different items or likelihoods.
    """
    first = judged[0]
    for other in judged[1:]:
        ours, theirs = (j.covariates.get(LIKELIHOODS, np.empty(0)) for j in (first, other))
        if other.ids != first.ids or not np.array_equal(ours, theirs, equal_nan=True):
            raise ValueError(
                f"{other.criterion} and {first.criterion} were judged on different items: a total needs the same ones."
            )
    covariates = dict(first.covariates)
    if HUMAN_SCORES in covariates:
        covariates[HUMAN_SCORES] = np.mean([j.covariate(HUMAN_SCORES) for j in judged], axis=0)
    ratings = [j.covariates.get(RATINGS, np.empty((0, 0))) for j in judged]
    covariates.pop(RATINGS, None)
    if ratings[0].size and len({r.shape for r in ratings}) == 1:  # the same raters on every criterion
        covariates[RATINGS] = np.mean(ratings, axis=0)
    return replace(
        first,
        criterion=TOTAL,
        answers=np.mean([j.answers for j in judged], axis=0),
        covariates=covariates,
        coverage=np.mean([j.coverage for j in judged], axis=0),
        judgments=sum(j.judgments for j in judged),
    )


def _compare(
    judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: Any, progress: Callable[[int], None] | None
) -> tuple[FloatArray, list[dspy.Prediction]]:
    """Return (n, 2, c) probabilities by position in both orders, and the predictions."""
    both: PairwiseJudge = judge.deepcopy()
    both.debias = "permutation"
    predictions = both.batch(pairs, lm=lm, progress=progress)
    positions = np.array([p.positions for p in predictions])  # (n, 2, c)
    if judge.debias == "permutation":
        orders = rotations(2, every=True)
        averaged = by_candidate(positions, orders).mean(axis=1)  # (n, c)
        positions = by_candidate(np.stack([averaged, averaged], axis=1), orders)  # by position again
    return positions, predictions
