"""A judge's answers on items, and the items' covariates: the input of every bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, cast

import dspy
import numpy as np

from evalbias.data import items
from evalbias.data.items import TIE, check_size, human_score, is_rated, item_name
from evalbias.evaluation.words import joined, model_title
from evalbias.lm.cache import keeping_likelihoods, measuring, resolve_lm
from evalbias.lm.types import MeasuringLM
from evalbias.measures import consistent_preferences
from evalbias.measures.arrays import BoolArray, FloatArray, IntArray, ratio
from evalbias.measures.equal_quality import CHOICES, RELIABILITIES, told_by_several
from evalbias.measures.likelihood import TOTAL
from evalbias.measures.missing import missing_by_size, selected_columns
from evalbias.measures.pairs import win_shares
from evalbias.measures.position_calibration import by_candidate, rotations
from evalbias.measures.ratings import dependent_columns
from evalbias.options import PROBES
from evalbias.programs.criterion import Criterion
from evalbias.programs.items import candidates_of, check_two_candidates, people_choice, text_length
from evalbias.programs.judges import context_of, likelihoods_and_refusals
from evalbias.programs.jury import AnyJudge, Rubric
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import PointwiseJudge

# Names of covariates. Each has (n,) numbers about the outputs, or (n, 2) for pairs; NaN where undefined.

LIKELIHOODS, LENGTHS, HUMAN_SCORES = "likelihoods", "lengths", "human_scores"  # LS in nats, of the texts, Score_h
PER_TOKEN = "likelihoods_per_token"  # LS divided by the number of tokens, if LS is their sum
RATINGS = "ratings"
"""(n, r) single ratings of each item in the raters' order, NaN if a rater gave none. For pairs, each rater's
difference: the first candidate's rating minus the second's."""
LEVEL_SHARES = "level_shares"  # (n, K) probabilities of the whole numbers on the judge's scale
SAMPLES = "samples"  # (n, s) scores of the same prompt, whose mean is the answer; padded with NaN
BETTER = "better"
"""(n,) candidate of each pair that people prefer, 0 or 1; -1 for neither, NaN if nobody chose."""
EXPECTED, QUALITY = "expected", "quality"
"""Expected scores of a loop's outputs: on the range of its own scores, and in their original points."""
LENGTH, UNSEEN = "length", "unseen"
"""Key of ``provenance``: the unit of lengths, "characters" or "graphemes"; ``UNSEEN`` if the items have no texts but a
field of lengths with this name."""
COPIES = "copied_ratings"
"""Key of ``provenance``: column of ratings that is left out because it follows from others -> those others."""
SELECTED, RATED_AGAIN = "selected_ratings", "rated_again"
"""Keys of ``provenance``: columns of ratings that are left out because they exist depending on the other ratings; and
True if this holds for remaining ratings."""
BY_CONSTRUCTION = "by_construction"
"""Key of ``provenance``: bias -> how the judge's construction settles it, so that its estimates are no finding."""
CHOSEN = 0.01  # p-value below which the rated outputs are not a random sample
MOST_LEVELS = 100  # largest number of levels whose probabilities are kept
MOST_DRAWS = 100  # largest number of drawn answers (a tie is two) whose shares are recognized

Writers = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Asking:
    """What asking a judge showed besides its answers; empty for recorded answers."""

    coverage: FloatArray = field(default_factory=lambda: np.empty(0))
    """(n,) probability that any answer follows; NaN where the model reports only shares."""
    reasons: Mapping[str, str] = field(default_factory=dict)  # id -> why the judge gave no answer, if known
    judgments: int = 0  # prompts that the judge answered
    unmeasurable: Mapping[str, str] = field(default_factory=dict)  # bias -> why it cannot be measured
    compilable: bool = False  # True for a judge of evalbias, which can be compiled; False for a function


@dataclass(frozen=True)
class Judged:
    """A judge's answers on n items.

    Attributes:
        ids: Identifiers of the items; a pair's joins the ids of its outputs.
        criterion: Name of the judged criterion.
        answers: (n,) scores, or for pairs (n, r, c) probabilities by position in r orders; NaN where undefined.
        covariates: Name -> (n,) or (n, candidates) numbers about the items; NaN where undefined.
        inputs: (n,) the input (document) of each item.
        ties: Whether the last of c classes is the answer "tie".
        writers: (n,) names of the systems that wrote the outputs, two for a pair; empty if unknown.
        scale: Lowest and highest score of a judge that scores; None if unknown.
        provenance: Settings that decide the numbers, such as models and reduction.
        judge: Description of the judge; empty if unknown.
        examples: The items, in the order of the answers; empty where unknown.
        asked: What asking the judge showed besides.
    """

    ids: tuple[str, ...]
    criterion: str
    answers: FloatArray
    covariates: Mapping[str, FloatArray] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    ties: bool = False
    writers: Writers = ()
    scale: tuple[float, float] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    judge: str = ""
    examples: Sequence[dspy.Example] = field(default=(), compare=False)
    asked: Asking = Asking()

    def __repr__(self) -> str:
        """Return the criterion and the number of items, instead of hundreds of lines of numbers."""
        return f"Judged({self.criterion!r}, n={len(self.ids)}, undefined={self.unanswered})"

    @property
    def unanswered(self) -> int:
        """Number of items without a defined answer."""
        return int(np.isnan(self.answers).any(axis=tuple(range(1, self.answers.ndim))).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but the items and those that only an audit uses."""
        kept = {**vars(self.asked), **{f.name: getattr(self, f.name) for f in fields(self)}}
        left_out = ("judge", "examples", "asked", "unmeasurable", "compilable")
        return {name: value for name, value in kept.items() if name not in left_out}

    def take(self, picks: IntArray) -> Judged:
        """Return the answers to the items at (m,) places from 0, in their order and with repetitions."""
        rows = [int(pick) for pick in picks]
        ids = tuple(self.ids[row] for row in rows)
        coverage = self.asked.coverage[rows] if len(self.asked.coverage) else self.asked.coverage
        reasons = {name: self.asked.reasons[name] for name in ids if name in self.asked.reasons}
        return replace(
            self,
            ids=ids,
            answers=self.answers[rows],
            covariates={name: column[rows] for name, column in self.covariates.items()},
            inputs=tuple(self.inputs[row] for row in rows) if len(self.inputs) else (),
            writers=cast(Writers, [self.writers[row] for row in rows]) if len(self.writers) else (),
            examples=[self.examples[row] for row in rows] if len(self.examples) else (),
            asked=replace(self.asked, coverage=coverage, reasons=reasons),
        )

    def counted_in(self, unit: str) -> Judged:
        """Return the same answers with text lengths in "characters" or "graphemes"."""
        if LENGTHS not in self.covariates or self.provenance.get(LENGTH) in (unit, UNSEEN):
            return self
        new = _lengths(_texts(self.examples, pairwise=self.pairwise), unit, self.covariates[LENGTHS].shape)
        return replace(self, covariates={**self.covariates, LENGTHS: new}, provenance={**self.provenance, LENGTH: unit})

    # --- what kind of judge and items ---

    @property
    def pairwise(self) -> bool:
        """True if the judge compared candidates, False if it scored outputs."""
        return self.answers.ndim == 3

    @property
    def both_orders(self) -> bool:
        """True if the judge compared the candidates in both orders."""
        return self.pairwise and self.answers.shape[1] == 2

    @property
    def columns(self) -> dict[str, FloatArray]:
        """Name -> numbers by item: the answers in each order separately, and covariates other than further answers."""
        left_out = (SAMPLES, LEVEL_SHARES, *PROBES)
        covariates = {name: column for name, column in self.covariates.items() if name not in left_out}
        if not self.pairwise:
            return {"scores": self.answers, **covariates}
        orders = np.moveaxis(self.answers, 1, 0)  # (r, n, c)
        return {**dict(zip(("answers", "answers_swapped"), orders, strict=False)), **covariates}

    @cached_property
    def clusters(self) -> Sequence[str] | None:
        """(n,) input of each item if some items share an input, else None.

        If all items share one input, they are resampled singly: the interval is about other outputs of this input.
        """
        return shared_inputs(self.inputs)

    @property
    def systems(self) -> Sequence[str] | None:
        """(n,) system that wrote each scored output; None if unknown, and for pairs."""
        return None if self.pairwise or not len(self.writers) else cast(Sequence[str], self.writers)

    @cached_property
    def writer_names(self) -> list[str]:
        """Names of the systems that wrote the outputs, in alphabetical order."""
        return sorted(set(np.asarray(self.writers, dtype=str).ravel().tolist()))

    @property
    def one_stands_first(self) -> bool:
        """True if pairs were shown in one order, and the same system comes first in every pair."""
        return self.pairwise and self.answers.shape[1] == 1 and len(set(self.writers)) == 1

    @property
    def in_fixed_places(self) -> bool:
        """True if pairs were shown in one order, and no system comes first in some pairs and second in others."""
        if not self.pairwise or self.both_orders or not len(self.writers):
            return False
        first, second = np.asarray(self.writers, dtype=str).T
        return set(first).isdisjoint(second)

    def covariate(self, name: str) -> FloatArray:
        """Return a covariate; ValueError if it is missing."""
        if name not in self.covariates:
            remedies = {LIKELIHOODS: "name the model whose likelihood is measured (likelihood_lm)"}
            remedies |= {HUMAN_SCORES: "give items with human scores on the criterion"}
            remedy = remedies.get(name, "give it when the Judged is made")
            fault = f"The judged items on {self.criterion} lack the covariate {name!r}"
            raise ValueError(f"{fault}, they have {sorted(self.covariates)}: {remedy}.")
        return self.covariates[name]

    def first_less_second(self, values: FloatArray) -> FloatArray:
        """Return (n,) numbers about outputs unchanged, and (n, 2) numbers about pairs as differences."""
        return values if values.ndim == 1 else np.asarray(values[:, 0] - values[:, 1])

    # --- what people say ---

    @property
    def rated(self) -> bool:
        """True if the items have human ratings, scores or choices."""
        return not {RATINGS, HUMAN_SCORES, BETTER}.isdisjoint(self.covariates)

    @cached_property
    def ratings(self) -> FloatArray:
        """(n, r) human ratings of each item's quality; for a pair, the first candidate's minus the second's.

        Single ratings come first, because several show how noisy they are. Otherwise r is 1: the human score, or the
        choice in a pair, 1 for the first, -1 for the second, NaN for neither. ValueError if nobody rated.
        """
        if RATINGS in self.covariates:
            return self.covariates[RATINGS]
        if self.pairwise and BETTER in self.covariates:
            return np.asarray(2 * self.preferred - 1)[:, None]
        return self.first_less_second(self.covariate(HUMAN_SCORES))[:, None]

    @property
    def held_if(self) -> str:
        """Condition, in words, under which bounds of an effect hold: the least reliability of a rating."""
        ratings = self.ratings[~np.isnan(self.ratings)]
        values = np.unique(np.concatenate([ratings, -ratings]) if self.both_orders else ratings)
        least = f"{(CHOICES if len(values) == 2 else RELIABILITIES)[0]:.2g}".lstrip("0")
        return f"if the reliability of one {self.one_rating} is {least} or more"

    @property
    def one_rating(self) -> str:
        """Word for a person's judgment of an item: "rating", or "choice" between the outputs of a pair."""
        return "choice" if self.pairwise and RATINGS not in self.covariates else "rating"

    @property
    def rating_counts(self) -> IntArray:
        """(n,) number of ratings of each item; 0 if unrated."""
        return np.asarray((~np.isnan(self.ratings)).sum(axis=1)) if self.rated else np.zeros(len(self.ids), np.int64)

    @property
    def rated_once(self) -> int:
        """Number of items with a single rating if enough have several: effects at equal quality leave them out."""
        counts = self.rating_counts
        return int((counts == 1).sum()) if told_by_several((counts > 0).sum(), (counts > 1).sum()) else 0

    @cached_property
    def chosen(self) -> FloatArray:
        """(n,) people's choice in a pair, else their higher rating: 1 first, 0 second, .5 neither; NaN if unrated."""
        if BETTER in self.covariates:
            better = self.covariates[BETTER]
            return np.where(better == TIE, 0.5, 1.0 - better)
        return np.asarray((1 + np.sign(mean_of_raters(self.ratings))) / 2)

    @property
    def preferred(self) -> FloatArray:
        """(n,) ``chosen``, but NaN if people prefer neither."""
        return np.where(self.chosen == 0.5, np.nan, self.chosen)

    @property
    def labeled(self) -> BoolArray:
        """(n,) True if people rated or compared an item; a tie counts as compared."""
        labeled = np.zeros(len(self.ids), dtype=bool)
        for name in (RATINGS, HUMAN_SCORES, BETTER):
            if name in self.covariates:
                labeled |= ~np.isnan(self.covariates[name].reshape(len(labeled), -1)).all(axis=1)
        return labeled

    @cached_property
    def rated_apart(self) -> str:
        """Scores of rated outputs relative to others, as "0.5 standard deviations lower than"; empty if random."""
        if self.pairwise or not self.rated or self.labeled.all():
            return ""
        apart, p_value = missing_by_size(~self.labeled, -self.answers, clusters=self.clusters)
        how = f"{abs(apart):.1f} standard deviations {'higher' if apart > 0 else 'lower'} than"
        return how if p_value < CHOSEN else ""  # NaN is not below

    @cached_property
    def unrated_systems(self) -> tuple[str, ...]:
        """Systems that people rated no output of, though many were to be rated; empty if this may be by chance."""
        if not len(self.writers) or not self.labeled.any():
            return ()
        written, share = np.asarray(self.writers, dtype=str).reshape(len(self.ids), -1), self.labeled.mean()
        rated = {*written[self.labeled].ravel().tolist()}
        outputs = {name: (written == name).any(axis=1).sum() for name in self.writer_names if name not in rated}
        return tuple(name for name, number in outputs.items() if (1 - share) ** number < CHOSEN)

    @cached_property
    def on_peoples_scale(self) -> bool:
        """True if human ratings lie on the judge's scale and span at least half of it: 1 to 5 is not 0 to 100.

        If the scale is unknown, it is the range of scores and ratings, of which scores must span a quarter.
        """
        scores, human = self._points
        if not len(scores) or not len(human):
            return False
        if self.scale is not None:
            low, high = self.scale
            return bool(low <= human.min() and human.max() <= high and 2 * np.ptp(human) >= high - low)
        whole = np.ptp(np.concatenate([scores, human]))
        meet = scores.min() < human.max() and human.min() < scores.max()
        return bool(meet and 2 * np.ptp(human) >= whole and 4 * np.ptp(scores) >= whole)

    @cached_property
    def pass_or_fail(self) -> bool:
        """True if a judge that scores, and all raters, only say 1 or 0: pass or fail."""
        return all(len(points) > 0 and np.isin(points, (0.0, 1.0)).all() for points in self._points)

    @cached_property
    def _points(self) -> tuple[FloatArray, FloatArray]:
        """Defined scores and human ratings for a judge that scores; empty if there are no human scores."""
        if self.pairwise or HUMAN_SCORES not in self.covariates:
            return np.empty(0), np.empty(0)
        return self.answers[~np.isnan(self.answers)], self.ratings[~np.isnan(self.ratings)]

    @property
    def width(self) -> float:
        """Points from lowest to highest score; for verdicts on pairs 1 in both orders, else 2; infinite if unknown."""
        if self.pairwise:
            return np.inf if not self.verdicts else 1.0 if self.both_orders else 2.0
        low, high = (0.0, 1.0) if self.pass_or_fail else self.scale or (0.0, np.inf)
        return high - low

    @cached_property
    def probabilities(self) -> bool:
        """True if a judge that scores gives its scores probabilities, or scores by the probability of a pass."""
        scores = self.answers[~np.isnan(self.answers)]
        forecasts = not self.pairwise and self.scale == (0, 1) and len(scores) > 0
        return LEVEL_SHARES in self.covariates or (forecasts and not np.isin(scores, (0.0, 1.0)).all())

    # --- what the judge says of pairs ---

    @property
    def first_wins(self) -> FloatArray:
        """(n, r) win probability of the first position in each order of a pair; a tie counts half."""
        return np.asarray(self.answers[:, :, 0] + (self.answers[:, :, 2] / 2 if self.ties else 0))

    @cached_property
    def win_shares(self) -> FloatArray:
        """(n,) win probability of each pair's first candidate, averaged over the orders; a tie counts half."""
        orders = rotations(2, every=self.both_orders)
        return win_shares(by_candidate(self.answers, orders).mean(axis=1), ties=self.ties)[:, 0]

    @property
    def consistent(self) -> FloatArray:
        """(n,) 1 where both orders of a pair prefer the same candidate, else 0; NaN where undefined."""
        return consistent_preferences(self.answers[:, 0], self.answers[:, 1], ties=self.ties)

    @cached_property
    def verdicts(self) -> bool:
        """True if the judge compares without probabilities, or with shares of a few drawn answers.

        Such shares of 0 and 1 do not mean certainty: without them, only uncertain pairs would count.
        """
        if not self.pairwise:
            return False
        shares = np.unique(self.first_wins[~np.isnan(self.first_wins)])
        drawn = (np.abs(shares * m - np.round(shares * m)).max(initial=0) < 1e-9 for m in range(1, MOST_DRAWS + 1))
        return bool(np.isin(shares, (0.0, 1.0)).any()) and any(drawn)  # all are multiples of 1/m, for some m

    @cached_property
    def strength(self) -> FloatArray:
        """(n,) scores; for pairs, mean log-odds over the orders that the first candidate wins, NaN if any is certain.

        For verdicts, their mean: 1 first, -1 second, 0 tie or disagreement between the orders.
        """
        if not self.pairwise:
            return self.answers
        return np.asarray((self._advantages * np.array([1.0, -1.0])[: self.answers.shape[1]]).mean(axis=1))

    @property
    def position_strength(self) -> FloatArray:
        """(n,) preference for the first position, averaged over the orders, in the units of ``strength``."""
        return np.asarray(self._advantages.mean(axis=1))

    @cached_property
    def _advantages(self) -> FloatArray:
        """(n, r) log-odds of the first position in each order, or verdicts from -1 to 1 without probabilities."""
        wins = self.first_wins
        if self.verdicts:
            return np.asarray(2 * wins - 1)
        with np.errstate(divide="ignore"):
            odds = np.log(wins) - np.log1p(-wins)
        return np.where(np.isfinite(odds), odds, np.nan)


def writers_of(judged: Judged, names: str | None) -> list[str]:
    """Return the writers that match names, separated by commas, or patterns such as ``gpt-4*``."""
    patterns = [] if names is None else [names] if names in judged.writer_names else names.split(",")
    return [w for w in judged.writer_names if any(w == p.strip() or fnmatchcase(w, p.strip()) for p in patterns)]


def written_by(judged: Judged, writers: Sequence[str]) -> FloatArray:
    """Return 1 for outputs of these writers and 0 for others, (n,) or (n, 2) for pairs."""
    return np.isin(np.asarray(judged.writers, dtype=str), list(writers)).astype(np.float64)


def mean_of_raters(ratings: FloatArray) -> FloatArray:
    """Return (n,) means of the defined ratings among (n, r); NaN without any."""
    present = ~np.isnan(ratings)
    return ratio(np.where(present, ratings, 0.0).sum(axis=1), present.sum(axis=1).astype(np.float64))


# --- answers of evalbias's judges -------------------------------------------------------------------------------------


def judge_examples(
    judge: AnyJudge,
    examples: Sequence[dspy.Example],
    *,
    lm: Any = None,
    likelihood_lm: MeasuringLM | Literal["own"] | None = None,
    reduction: str = "sum",
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """Ask a judge about items, and gather the covariates that biases need.

    Args:
        judge: Judge to measure, with its debiasing and calibration. Pairs are compared in both orders; with
            ``debias="permutation"`` both orders get the average, so the judge is fair and consistent by construction.
        examples: Items with ``source``, ``output`` and, if people rated them, ``scores`` (criterion -> number) or
            ``score``; or pairs with ``source`` and two ``candidates``. ValueError names an item that lacks a field.
        lm: Model to ask. Defaults to the judge's own, else DSPy's.
        likelihood_lm: Model whose likelihood defines LS; ``"own"`` for the judge's model, None to measure no LS.
        reduction: Reduction of token log-probabilities to LS: ``"sum"`` (Ohi et al. 2024, eq 1) or ``"mean"``.
        progress: Function that is called with the number of judgments just done.
    """
    if not examples:
        raise ValueError("There are no examples to judge: give at least one.")
    # 1 the covariates: before the judge is asked, so that an incomplete item costs nothing
    pairwise = isinstance(judge, PairwiseJudge)
    usable = [judge.read(example, index) for index, example in enumerate(examples)]
    model = resolve_lm(lm, judge.predict)
    scorer = None if likelihood_lm is None else measuring(model if likelihood_lm == "own" else likelihood_lm)
    if pairwise:
        check_two_candidates(usable)
    gathered = gather(usable, judge.criterion, pairwise=pairwise, scorer=scorer, reduction=reduction)
    # 2 the answers
    provenance = dict(gathered.provenance)
    if isinstance(judge, PairwiseJudge):
        answers, predictions = _compare(judge, usable, model, progress)
        if judge.debias == "permutation":
            provenance[BY_CONSTRUCTION] = {"position": "the judge averages both orders, so none can be preferred"}
    else:
        predictions = judge.batch(usable, lm=model, progress=progress)
        answers = np.array([p.score for p in predictions], dtype=np.float64)
        more: dict[str, FloatArray] = {}
        if (drawn := max(p.get("samples") or 0 for p in predictions)) > 1:
            more = {SAMPLES: _drawn(predictions, judge.criterion.values)}
        elif not drawn and (shares := _shares(predictions, judge)) is not None:  # a single answer tells no shares
            more = {LEVEL_SHARES: shares}
        gathered = replace(gathered, covariates={**gathered.covariates, **more})
    return replace(
        gathered,
        answers=answers,
        ties=isinstance(judge, PairwiseJudge) and judge.ties,
        scale=None if pairwise else judge.criterion.scale,
        provenance=provenance,
        judge=f"{judge.kind} on {model_title(getattr(model, 'model', 'its model'))}",
        examples=usable,
        asked=Asking(
            coverage=np.array([p.coverage for p in predictions], dtype=np.float64),
            reasons={n: str(p.undefined) for n, p in zip(gathered.ids, predictions, strict=True) if p.get("undefined")},
            judgments=(2 if pairwise else 1) * len(usable),
            compilable=True,
        ),
    )


def _shares(predictions: Sequence[dspy.Prediction], judge: PointwiseJudge | Rubric) -> FloatArray | None:
    """Return (n, K) probabilities of the levels; None if the judge corrects its scores or has too many levels."""
    if judge.correction is not None or len(judge.criterion.values) > MOST_LEVELS or "scores" in predictions[0]:
        return None
    return np.array([list(p.distribution.values()) for p in predictions], dtype=np.float64)


def _drawn(predictions: Sequence[dspy.Prediction], values: Sequence[float]) -> FloatArray:
    """Return (n, s) scores of the readable answers behind each estimated distribution, padded with NaN."""
    rows = []
    for p in predictions:
        shares = np.nan_to_num(list(p.distribution.values()))
        counts = np.round(shares * (p.get("samples") or 0) * np.nan_to_num(p.coverage)).astype(int)
        rows.append(np.repeat(values, counts))
    return padded(rows)


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


def total(judged: Sequence[Judged]) -> Judged:
    """Average several criteria's scores and human scores over the same items (Ohi et al. 2024: "total").

    ValueError if the items or likelihoods differ.
    """
    first = judged[0]
    for other in judged[1:]:
        ours, theirs = (j.covariates.get(LIKELIHOODS, np.empty(0)) for j in (first, other))
        if other.ids != first.ids or not np.array_equal(ours, theirs, equal_nan=True):
            fault = f"{other.criterion} and {first.criterion} were judged on different items"
            raise ValueError(f"{fault}: a total needs the same ones.")
    covariates = dict(first.covariates)
    if HUMAN_SCORES in covariates:
        covariates[HUMAN_SCORES] = np.mean([j.covariate(HUMAN_SCORES) for j in judged], axis=0)
    ratings = [j.covariates.get(RATINGS, np.empty((0, 0))) for j in judged]
    for name in (RATINGS, SAMPLES, *PROBES):  # of a single criterion
        covariates.pop(name, None)
    if ratings[0].size and len({r.shape for r in ratings}) == 1:  # the same raters on every criterion
        covariates[RATINGS] = np.mean(ratings, axis=0)
    asked = [j.asked for j in judged]
    coverage = np.mean([part.coverage for part in asked], axis=0)
    return replace(
        first,
        criterion=TOTAL,
        scale=first.scale if len({j.scale for j in judged}) == 1 else None,  # else the mean has no common scale
        answers=np.mean([j.answers for j in judged], axis=0),
        covariates=covariates,
        asked=replace(asked[0], coverage=coverage, judgments=sum(part.judgments for part in asked)),
    )


# --- covariates of items, independent of the judge --------------------------------------------------------------------


def gather(
    examples: Sequence[dspy.Example],
    criterion: Criterion,
    *,
    pairwise: bool,
    scorer: MeasuringLM | None = None,
    reduction: str = "sum",
    answered: Sequence[str] = (),
    required: bool = True,
) -> Judged:
    """Gather the covariates of items to score, or pairs to compare; their answers are undefined.

    The criterion's task defines LS. People's choice is in the field ``better``, else in ``preference``, except in
    fields of the judge's own answers (``answered``). If only some items have human scores, an item without a score is
    refused by name if ``required``, else undefined.
    """
    n, covariates, provenance = len(examples), dict[str, FloatArray](), dict[str, Any]()
    shape = (n, 2) if pairwise else (n,)
    # 1 the texts: lengths, and likelihoods after the task
    texts = _texts(examples, pairwise=pairwise)
    if all(row and all(isinstance(text, str) for text in row) for row in texts):
        covariates[LENGTHS] = _lengths(texts, "characters", shape)
        provenance[LENGTH] = "characters"
    elif not pairwise and any(LENGTH in e for e in examples):
        named = ((e, f"{LENGTH!r} of the item {item_name(e, i)!r:.80}") for i, e in enumerate(examples))
        covariates[LENGTHS] = np.array([items.number(e.get(LENGTH), place, low=0, texts=True) for e, place in named])
        provenance[LENGTH] = UNSEEN
    if scorer is not None:
        scorer = keeping_likelihoods(scorer)
        outputs = _likelihood_items(examples, texts)
        reductions = {LIKELIHOODS: reduction, PER_TOKEN: "mean"}
        values = likelihoods_and_refusals(outputs, criterion, scorer, *reductions.values(), refused="undefined")[0]
        covariates |= {name: column.reshape(shape) for name, column in zip(reductions, values.T, strict=True)}
        if reduction == "mean":  # it equals LS
            del covariates[PER_TOKEN]
        prompt = {name: getattr(criterion, name) for name in ("task", "source_label", "output_label")}
        provenance |= {"reduction": reduction, **prompt}
    # 2 human scores, ratings and choices
    if pairwise:
        columns = [name for name in (BETTER, "preference") if name not in answered]
        choices = np.array([people_choice(e, columns, index=i) for i, e in enumerate(examples)], dtype=np.float64)
        choices = np.where(np.isin(choices, (0, 1, TIE)), choices, np.nan)  # NaN where nobody chose
        if np.isin(choices, (0, 1)).any():
            covariates[BETTER] = choices
    elif any(is_rated(e, criterion.name) for e in examples):
        covariates[HUMAN_SCORES] = human_scores(examples, criterion, required=required)
        check_size(covariates[HUMAN_SCORES], f"People's scores on {criterion.name!r}")
    ratings, inputs = human_ratings(examples, criterion), tuple(items.input_keys(examples))
    names = np.array([f"rating_{column + 1}" for column in range(ratings.shape[1])])
    if copies := dependent_columns(ratings):
        provenance[COPIES] = {str(names[column]): joined(names[copies[column]].tolist()) for column in sorted(copies)}
        ratings, names = np.delete(ratings, [*copies], axis=1), np.delete(names, [*copies])
    left_out, again = selected_columns(ratings, clusters=shared_inputs(inputs))
    if left_out:
        provenance[SELECTED] = names[left_out].tolist()
        ratings = np.delete(ratings, left_out, axis=1)
    if again:
        provenance[RATED_AGAIN] = True
    if ratings.shape[1]:
        covariates[RATINGS] = ratings
        if not pairwise:  # differences of equal ratings may be rounding errors of 0
            check_size(ratings, f"People's ratings on {criterion.name!r}")
    # 3 writers and inputs of the outputs
    ids, unknown = tuple(item_name(e, i) for i, e in enumerate(examples)), np.full((n, 1, 2) if pairwise else n, np.nan)
    gathered = Judged(ids, criterion.name, unknown, covariates, inputs, provenance=provenance, examples=examples)
    return replace(gathered, writers=_writers(examples, pairwise))


def shared_inputs(inputs: Sequence[str]) -> Sequence[str] | None:
    """Return the (n,) input of each item if some items share an input, else None."""
    return inputs if 1 < len(set(inputs)) < len(inputs) else None


def _texts(examples: Sequence[dspy.Example], *, pairwise: bool) -> list[Sequence[Any]]:
    """Return the judged texts of each item: one, or two for a pair; None if missing."""
    return [candidates_of(e) if pairwise else (e.get("output"),) for e in examples]


def _lengths(texts: Sequence[Sequence[Any]], unit: str, shape: tuple[int, ...]) -> FloatArray:
    return np.array([text_length(text, unit) for row in texts for text in row], dtype=np.float64).reshape(shape)


def human_scores(examples: Sequence[dspy.Example], criterion: Criterion, *, required: bool = True) -> FloatArray:
    """Return (n,) human scores on a criterion, as rated; NaN for an unrated item, or an error if ``required``."""
    return np.array([human_score(e, criterion.name, required=required) for e in examples], dtype=np.float64)


def human_ratings(examples: Sequence[dspy.Example], criterion: Criterion) -> FloatArray:
    """Return (n, r) single ratings on a criterion in the raters' order; NaN if a rater gave none."""
    return padded([items.single_ratings(e, criterion.name) for e in examples])


def padded(rows: Sequence[Sequence[float] | FloatArray]) -> FloatArray:
    """Return rows of different lengths as an array; shorter rows are padded with NaN."""
    table = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def _likelihood_items(examples: Sequence[dspy.Example], texts: Sequence[Sequence[Any]]) -> list[dspy.Example]:
    """Return an item for each output, with the source that it was written for."""
    outputs = []
    for index, (example, row) in enumerate(zip(examples, texts, strict=True)):
        if not row or not all(isinstance(text, str) for text in [context_of(example), *row]):
            fault = f"The item {item_name(example, index)!r:.80} lacks the texts that a likelihood needs"
            remedy = "add them (source, output or outputs), or name no likelihood model"
            raise ValueError(f"{fault}, its source and what was written to it: {remedy}.")
        outputs += [dspy.Example(source=context_of(example), output=text) for text in row]
    return outputs


def _writers(examples: Sequence[dspy.Example], pairwise: bool) -> Writers:
    """Return the writer of every output, two for a pair; empty unless all items name their writers."""
    if not pairwise:
        named = [e.get("system") for e in examples]
        return () if any(writer in (None, "") for writer in named) else [str(writer) for writer in named]
    pairs: list[Any] = [e.get("systems") or () for e in examples]
    complete = all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in pairs)
    return [(str(a), str(b)) for a, b in pairs] if complete else ()


def ratings_left_out(judged: Judged) -> list[str]:
    """Name the columns of ratings that are left out, with the reasons."""
    copies, selected, sentences = judged.provenance.get(COPIES, {}), judged.provenance.get(SELECTED, []), list[str]()
    if copies:
        follow = "; ".join(f"{column} follows from {others}" for column, others in copies.items())
        fault = f"Ratings were left out ({follow}): copies, means and sums are no second opinion"
        remedy = "Where another person agrees perfectly and one rating remains, state --reliability 1"
        sentences.append(f"{fault}. {remedy}.")
    if selected:
        sentences.append(
            f"Ratings were left out ({joined(selected)}): whether an item has them depends on what its other ratings "
            "say, as where a third person decides between two who differ. Counted, they would misstate how well people "
            "agree."
        )
    return sentences


def rated_again(judged: Judged) -> str:
    """Warn if the number of an item's ratings depends on their values; empty if this is not shown."""
    if not judged.provenance.get(RATED_AGAIN):
        return ""
    return (
        "How often an item was rated depends on what its ratings say, as where low or disputed ones are checked. So "
        "how well people agree, and effects at equal quality, may be wrong, whatever their intervals say: have a "
        "second person rate items that are drawn at random."
    )
