"""What a judge did on items: answers, covariates and people's ratings on one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import dspy
import numpy as np

from evalbias.data.cells import check_size
from evalbias.data.items import item_name
from evalbias.data.pairing import human_score, input_field, input_key, is_rated, single_ratings
from evalbias.lm.contract import measuring, resolve_lm
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import FloatArray, IntArray, ratio
from evalbias.measures.likelihood import TOTAL
from evalbias.measures.position_calibration import by_candidate, rotations, win_probabilities
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import candidates_of, check_pairs, people_choice, usable_item, usable_pair
from evalbias.programs.judges import PointwiseJudge, likelihood_scores
from evalbias.programs.pairwise import PairwiseJudge

# Facts about items besides a judge's answers: lengths, likelihoods, human scores, writers, inputs.


LIKELIHOODS, LENGTHS, HUMAN_SCORES = "likelihoods", "lengths", "human_scores"
"""Names of covariates: LS in nats, lengths in characters, Score_h; (n,), or (n, candidates) for pairs."""
RATINGS = "ratings"
"""Name of a covariate: (n, r) single ratings of each item in the raters' order, NaN where a rater gave none.

For pairs they are each rater's difference, the first candidate's rating less the second's."""
BETTER = "better"
"""Name of a covariate: (n,) the candidate of each pair that people prefer, 0 or 1; NaN where they prefer none."""

Writers = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ItemFacts:
    """Facts about n items.

    Attributes:
        ids: Identifiers of the items; a pair's is both its outputs', joined.
        inputs: (n,) the input (document) of each item.
        covariates: Name -> (n,) or (n, 2) numbers; see ``Judged``.
        writers: (n,) names of the systems that wrote the outputs, two for a pair; empty where unknown.
    """

    ids: tuple[str, ...]
    inputs: tuple[str, ...]
    covariates: Mapping[str, FloatArray]
    writers: Writers


def item_facts(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    *,
    pairwise: bool,
    scorer: MeasuringLM | None = None,
    reduction: str = "sum",
    better: str = BETTER,
    answered: Sequence[str] = (),
    required: bool = True,
) -> ItemFacts:
    """Gather what is known about items that are scored, or about pairs that are compared.

    Args:
        examples: Items or pairs.
        criterion: Criterion of the human scores and ratings; its task defines LS.
        pairwise: Whether the examples are pairs.
        scorer: Model whose likelihood defines LS; None measures none.
        reduction: Reduction of token log-probabilities to LS.
        better: Field of people's choice between the candidates of a pair. ``"preference"`` is read where ``"better"``
            is not given.
        answered: Fields of the judge's own answers, which are not read as people's.
        required: Whether to refuse an item without a human score where others have one. If False, it is undefined.

    Raises:
        ValueError: An item lacks what is needed (it is named), or people's numbers are too small to tell from 0.
    """
    texts = [candidates_of(e) if pairwise else [e.get("output")] for e in examples]
    covariates: dict[str, FloatArray] = {}
    if all(isinstance(text, str) for row in texts for text in row) and all(texts):
        covariates[LENGTHS] = _shaped([len(text) for row in texts for text in row], pairwise)
    if scorer is not None:
        outputs = _likelihood_items(examples, texts)
        values = likelihood_scores(outputs, criterion, scorer, reduction=reduction)
        covariates[LIKELIHOODS] = _shaped(values, pairwise)
    if pairwise:
        choices = _choices(examples, better, answered)
        if not np.isnan(choices).all():
            covariates[BETTER] = choices
    elif any(is_rated(e, criterion.name) for e in examples):
        covariates[HUMAN_SCORES] = human_scores(examples, criterion, required=required)
        check_size(covariates[HUMAN_SCORES], f"People's scores on {criterion.name!r}")
    if (ratings := human_ratings(examples, criterion)).shape[1]:
        covariates[RATINGS] = ratings
        if not pairwise:  # differences of equal ratings may be rounding errors of 0
            check_size(ratings, f"People's ratings on {criterion.name!r}")
    return ItemFacts(
        ids=tuple(item_name(e, i) for i, e in enumerate(examples)),
        inputs=tuple(_input(e, i) for i, e in enumerate(examples)),
        covariates=covariates,
        writers=_writers_of_pairs(examples) if pairwise else _writers_of_outputs(examples),
    )


def likelihood_provenance(criterion: Criterion, scorer: Any, reduction: str) -> dict[str, Any]:
    """Return what LS is of, where a model measures it: its reduction, and the prompt before the output."""
    prompt = {name: getattr(criterion, name) for name in ("task", "source_label", "output_label")}
    return {} if scorer is None else {"reduction": reduction, **prompt}


def human_scores(examples: Sequence[dspy.Example], criterion: Criterion, *, required: bool = True) -> FloatArray:
    """Return (n,) the examples' human scores on a criterion, as rated; NaN where undefined.

    Raises:
        ValueError: An item was not rated on the criterion and ``required``; see ``evalbias.data.human_score``.
    """
    return np.array([human_score(e, criterion.name, required=required) for e in examples], dtype=np.float64)


def human_ratings(examples: Sequence[dspy.Example], criterion: Criterion) -> FloatArray:
    """Return (n, r) the examples' single ratings on a criterion in the raters' order; NaN where a rater gave none."""
    rows = [single_ratings(e, criterion.name) for e in examples]
    padded = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _input(example: dspy.Example, index: int) -> str:
    """Identify the input; an item that names none has its own."""
    return f"item {index}" if input_field(example) is None else input_key(example)


def _shaped(values: Any, pairwise: bool) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 2) if pairwise else array


def _likelihood_items(examples: Sequence[dspy.Example], texts: Sequence[Sequence[Any]]) -> list[dspy.Example]:
    for index, (example, row) in enumerate(zip(examples, texts, strict=True)):
        if not row or not all(isinstance(text, str) for text in [example.get("source"), *row]):
            raise ValueError(
                f"The item {item_name(example, index)!r:.80} lacks the texts that a likelihood needs, its source and "
                "what was written to it: add them (source, output or outputs), or name no likelihood model."
            )
    pairs = zip(examples, texts, strict=True)
    return [dspy.Example(source=e.source, output=text) for e, row in pairs for text in row]


def _choices(examples: Sequence[dspy.Example], better: str, answered: Sequence[str]) -> FloatArray:
    """Return (n,) the candidate of each pair that people prefer; NaN for a tie too, where they prefer none."""
    fields = [name for name in ((better, "preference") if better == BETTER else (better,)) if name not in answered]
    choices = np.array([people_choice(e, fields, index=i) for i, e in enumerate(examples)])
    return np.where((choices == 0) | (choices == 1), choices, np.nan)


def _writers_of_pairs(examples: Sequence[dspy.Example]) -> Writers:
    """Return both writers of every pair where all pairs name them, else nothing."""
    named: list[Any] = [e.get("systems") or () for e in examples]
    complete = all(isinstance(n, Sequence) and not isinstance(n, str) and len(n) == 2 for n in named)
    return [(str(a), str(b)) for a, b in named] if complete else ()


def _writers_of_outputs(examples: Sequence[dspy.Example]) -> Writers:
    """Return the writer of every output where all items name theirs, else nothing."""
    named = [e.get("system") for e in examples]
    return () if any(one is None or one == "" for one in named) else [str(one) for one in named]


# A judge's answers on items, with what is known about the items. Every bias is measured on this.


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


# Gather the scores and ratings from which effects at equal quality are estimated.


MOST_DRAWS = 100
"""Largest number of drawn answers, of which a tie counts as two, whose shares are told from a model's probabilities."""


def is_rated_by_people(judged: Judged) -> bool:
    """Return whether people's view of the items is known."""
    return not {RATINGS, HUMAN_SCORES, BETTER}.isdisjoint(judged.covariates)


def people_ratings(judged: Judged) -> FloatArray:
    """Return (n, r) what people say of each item's quality; of a pair, its first candidate's less its second's.

    Single ratings come first, because several of them tell how noisy one is. Without them, the human score is the one
    rating, or people's choice between the candidates of a pair: 1 for the first, -1 for the second.

    Raises:
        ValueError: Nobody rated the items.
    """
    ratings = judged.covariates.get(RATINGS)
    if ratings is not None:
        return ratings
    if judged.pairwise and BETTER in judged.covariates:
        return np.asarray(1.0 - 2.0 * judged.covariate(BETTER))[:, None]
    scores = judged.covariate(HUMAN_SCORES)
    return (scores if scores.ndim == 1 else scores[:, 0] - scores[:, 1])[:, None]


def rated_once(judged: Judged) -> int:
    """Return the number of items with one rating where others have several: effects at equal quality leave them out."""
    counts = (~np.isnan(judged.covariates.get(RATINGS, np.empty((0, 0))))).sum(axis=1)
    return int((counts == 1).sum()) if (counts > 1).any() else 0


def preferred(judged: Judged) -> FloatArray:
    """Return (n,) 1 where people prefer the first candidate of a pair, 0 the second, NaN where neither.

    It is their choice where one is given, else the side of their mean rating.
    """
    if BETTER in judged.covariates:
        return np.asarray(1.0 - judged.covariate(BETTER))
    return side(mean_of_raters(people_ratings(judged)))


def side(difference: FloatArray) -> FloatArray:
    """Return 1 for positive numbers, 0 for negative ones, NaN for 0."""
    return np.where(difference == 0, np.nan, (1 + np.sign(difference)) / 2)


def agreeing(choice: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) 1 for equal choices, 0 for different ones, .5 where one is a tie; NaN where undefined."""
    return np.asarray(choice * other + (1 - choice) * (1 - other))


def mean_of_raters(ratings: FloatArray) -> FloatArray:
    """Return (n,) means of the ratings (n, r) that are defined; NaN without any."""
    present = ~np.isnan(ratings)
    return ratio(np.where(present, ratings, 0.0).sum(axis=1), present.sum(axis=1).astype(np.float64))


def judge_scores(judged: Judged) -> FloatArray:
    """Return (n,) scores, or for pairs how strongly the judge prefers the first candidate.

    The preference is the mean over the orders of the log-odds of the candidate's win, NaN where one is certain. A judge
    that gives verdicts without probabilities has the mean verdict instead: 1 first, -1 second, 0 tie or disagreement of
    the orders. So has one whose probabilities are shares of a few drawn answers, of which 0 and 1 are no certainty:
    without them, only pairs that it was unsure of would count.
    """
    if not judged.pairwise:
        return judged.answers
    odds = _advantages(judged)
    return np.asarray((odds * np.array([1.0, -1.0])[: odds.shape[1]]).mean(axis=1))


def position_scores(judged: Judged) -> FloatArray:
    """Return (n,) how strongly the judge prefers the first position, averaged over both orders; as ``judge_scores``."""
    return np.asarray(_advantages(judged).mean(axis=1))


def are_verdicts(scores: FloatArray) -> bool:
    """Return whether ``judge_scores`` (n,) of pairs are mean verdicts, and not log-odds."""
    return bool((np.abs(scores[~np.isnan(scores)]) <= 1).all()) and _are_shares(scores, 2 * MOST_DRAWS)


def _advantages(judged: Judged) -> FloatArray:
    """Return (n, r) log-odds of the first position in each order, or verdicts from -1 to 1 if there are only those."""
    wins = first_position(judged)
    if np.isin(wins, (0.0, 1.0)).any() and _are_shares(wins, MOST_DRAWS):
        return np.asarray(2 * wins - 1)
    with np.errstate(divide="ignore"):
        odds = np.log(wins) - np.log1p(-wins)
    return np.where(np.isfinite(odds), odds, np.nan)


def _are_shares(values: FloatArray, most: int) -> bool:
    """Return whether all numbers between -1 and 1 are multiples of 1/m for an m up to ``most``."""
    distinct = np.unique(values[~np.isnan(values)])
    return any(np.abs(distinct * m - np.round(distinct * m)).max(initial=0) < 1e-9 for m in range(1, most + 1))


def first_position(judged: Judged) -> FloatArray:
    """Return (n, r) win probability of the first position in each order of a pair; a tie counts half."""
    return np.asarray(judged.answers[:, :, 0] + (judged.answers[:, :, 2] / 2 if judged.ties else 0))


def log_lengths(lengths: FloatArray) -> FloatArray:
    """Return log lengths; an empty output's is undefined."""
    return np.log(np.where(lengths > 0, lengths, np.nan))


def on_one_scale(judged: Judged) -> bool:
    """Return whether people rate on the judge's scale: their ratings lie on it and reach over half of it.

    Ratings from 1 to 5 lie within a scale from 0 to 100 and are not on it. Where the scale is unknown, the range of
    scores and ratings together stands for it, and the scores must reach over a quarter: a judge may crowd its scores.
    """
    if HUMAN_SCORES not in judged.covariates or judged.pairwise:
        return False
    rated = judged.covariates.get(RATINGS, judged.covariate(HUMAN_SCORES))
    scores, human = (values[~np.isnan(values)] for values in (judged.answers, rated))
    if not len(scores) or not len(human):
        return False
    if judged.scale is not None:
        low, high = judged.scale
        return bool(low <= human.min() and human.max() <= high and 2 * np.ptp(human) >= high - low)
    whole = np.ptp(np.concatenate([scores, human]))
    meet = scores.min() < human.max() and human.min() < scores.max()
    return bool(meet and 2 * np.ptp(human) >= whole and 4 * np.ptp(scores) >= whole)
