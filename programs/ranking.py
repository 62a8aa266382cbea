"""Rankings by comparisons: merge sort, greedy or with a beam (PairS)."""

from __future__ import annotations

import itertools
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dspy
import numpy as np

from evalbias.lm.types import MeasuringLM
from evalbias.programs.items import read_pair
from evalbias.programs.judges import check_batch_options, saved_criterion
from evalbias.programs.pairwise import FITTED, PairwiseJudge
from evalbias.programs.saved import Program, Setting, load_program, number, one_of

# Merge of two sorted lists by comparisons, the step of PairS's merge sort, with greedy or beam search.
#
# The objective of PairS is the likelihood of an order: the product over all pairs of the probability that the one above
# is better. Of the pairs between two lists, a merge compares only some. All partial merges are scored on the same
# pairs, those compared so far, whichever partial merge needed them. The product over a partial merge's own comparisons
# would favor merges in which one list runs out early, because they have fewer factors.


Pair = tuple[int, int]
"""Two candidates, in the order in which they are shown to the judge."""


class Answer(NamedTuple):
    """A judge's comparison of a pair.

    Attributes:
        win_share: Probability that the first candidate wins, where both share a tie; NaN where undefined.
        coverage: Total probability of the judge's answers; NaN if the model was not asked.
    """

    win_share: float
    coverage: float


@dataclass
class ComparedSource:
    """A source being ranked.

    Attributes:
        source: The text that the candidates were made from.
        candidates: The distinct candidates.
        known: Pair compared in the sort that is under way -> win share of its first candidate, NaN where undefined.
        answers: Pair -> the judge's comparison, for every pair that was asked.
        judgments: Number of prompts asked.
    """

    source: str
    candidates: list[str]
    known: dict[Pair, float] = field(default_factory=dict)
    answers: dict[Pair, Answer] = field(default_factory=dict)
    judgments: int = 0

    def probability(self, a: int, b: int) -> float | None:
        """Probability that a is better than b; None if they were not compared."""
        if (a, b) in self.known:
            return self.known[a, b]
        return 1 - self.known[b, a] if (b, a) in self.known else None


@dataclass(frozen=True)
class PartialMerge:
    """The upper part of a merged list.

    Attributes:
        merged: The merged candidates, best first.
        above: For each merged candidate of the left list, the number of candidates of the right list above it.
        right: Number of merged candidates of the right list.
    """

    merged: tuple[int, ...] = ()
    above: tuple[int, ...] = ()
    right: int = 0

    @property
    def left(self) -> int:
        """Number of merged candidates of the left list."""
        return len(self.above)

    def loss(self, compared: Iterable[tuple[int, int, float]]) -> float:
        """Return the nats by which the order is less likely than the best decision of each compared pair.

        A pair that this partial merge leaves open costs nothing, so that the loss never falls while merging.

        Args:
            compared: Position in the left list, position in the right list, and the log-odds in favor of the left one.
        """
        contradicted = 0.0
        for i, j, log_odds in compared:
            if i < self.left and self.above[i] <= j:  # the left candidate is above the right one
                contradicted += max(0.0, -log_odds)
            elif j < self.right:
                contradicted += max(0.0, log_odds)
        return contradicted


class Merge:
    """Merge of two sorted lists of one source's candidates.

    Args:
        source: The source, with the comparisons made so far.
        left: Candidates of one list, best first.
        right: Candidates of the other list, best first.
        beam: Number of partial merges to keep; 1 is the greedy search.
        gap: Difference of the two probabilities below which both outcomes of a comparison are followed.
    """

    def __init__(
        self, source: ComparedSource, left: Sequence[int], right: Sequence[int], beam: int, gap: float
    ) -> None:
        self.source, self.left, self.right = source, left, right
        self._beam, self._gap = beam, gap
        self._states = [PartialMerge()]

    def advance(self) -> list[Pair]:
        """Advance as far as the known comparisons allow; return the pairs to compare next, none once merged."""
        while True:
            heads = [pair for state in self._states if (pair := self._heads(state))]
            if not heads:
                return []
            missing = [pair for pair in dict.fromkeys(heads) if self.source.probability(*pair) is None]
            if missing:
                return missing
            successors = [successor for state in self._states for successor in self._successors(state)]
            self._states = self._best(successors)

    @property
    def merged(self) -> list[int]:
        """The likeliest order found, once ``advance`` returns no pairs."""
        best = self._states[0]
        return [*best.merged, *self.left[best.left :], *self.right[best.right :]]

    def _heads(self, state: PartialMerge) -> Pair | None:
        if state.left == len(self.left) or state.right == len(self.right):
            return None
        return self.left[state.left], self.right[state.right]

    def _successors(self, state: PartialMerge) -> list[PartialMerge]:
        pair = self._heads(state)
        if pair is None:
            return [state]
        p = self.source.probability(*pair)
        assert p is not None
        p = 0.5 if math.isnan(p) else p
        both = [
            PartialMerge((*state.merged, pair[0]), (*state.above, state.right), state.right),
            PartialMerge((*state.merged, pair[1]), state.above, state.right + 1),
        ]
        if self._beam > 1 and abs(2 * p - 1) < self._gap:
            return both
        return both[:1] if p >= 0.5 else both[1:]

    def _best(self, states: list[PartialMerge]) -> list[PartialMerge]:
        if len(states) <= 1:
            return states
        known = (
            (i, j, self.source.probability(a, b)) for i, a in enumerate(self.left) for j, b in enumerate(self.right)
        )
        compared = [(i, j, log_odds(p)) for i, j, p in known if p is not None]
        return sorted(states, key=lambda state: state.loss(compared))[: self._beam]


def log_odds(p: float | None) -> float:
    """Return log p/(1 - p); 0 where undefined or not compared."""
    if p is None or math.isnan(p):
        return 0.0
    return math.log(p / (1 - p)) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)


# Bottom-up merge sort of one source's candidates, by comparisons that are asked for as they are needed.
#
# A merge takes the order within its lists for granted, so an undefined comparison must not decide one. The sort
# therefore sets aside the candidates that undefined comparisons have in common, sorts the others as if they were not
# there, and then inserts each where its defined comparisons contradict the order least. A candidate that has no defined
# comparison with a ranked one, for example because it is too long for the model, stays unranked. Answers are kept, so
# that no pair is asked twice.


class MergeSort:
    """Sort of one source's candidates.

    Args:
        source: The source; its comparisons are answered in ``source.answers``.
        start: Indices of the candidates in the order in which they are merged.
        beam: Number of partial merges to keep; 1 is the greedy search.
        gap: Difference of the two probabilities below which both outcomes of a comparison are followed.

    Attributes:
        order: The ranked candidates, best first, once ``advance`` returns no pairs.
        unranked: Candidates that have no defined comparison with a ranked one.
    """

    def __init__(self, source: ComparedSource, start: Sequence[int], beam: int, gap: float) -> None:
        self.source = source
        self.unranked: list[int] = []
        self._beam, self._gap = beam, gap
        self._begin(start)

    def advance(self) -> list[Pair]:
        """Advance as far as the answers allow; return the pairs to compare next, none once sorted."""
        while True:
            pairs = self._merging() or self._inserting()
            if not pairs:
                return []
            missing = [pair for pair in pairs if pair not in self.source.answers]
            if missing:
                return missing
            self._take(pairs)

    def _begin(self, members: Sequence[int]) -> None:
        """Sort these candidates; what happened to others must not matter."""
        self._members = list(members)
        self._place = {candidate: place for place, candidate in enumerate(members)}
        self._undefined: list[Pair] = []
        self._sort()

    def _sort(self) -> None:
        """Start to merge the candidates that no undefined comparison of a merge is about."""
        self._aside = self._cover()
        self._lists = [[c] for c in self._members if c not in self._aside]
        self._merges: list[Merge] = []
        self.order: list[int] = []
        self.source.known = {}

    def _cover(self) -> list[int]:
        """Return few candidates that take part in all undefined comparisons, those with the most of them first."""
        left, cover = list(self._undefined), []
        while left:
            counts = Counter(candidate for pair in left for candidate in pair)
            cover.append(max(counts, key=lambda c: (counts[c], self._place[c])))
            left = [pair for pair in left if cover[-1] not in pair]
        return cover

    def _take(self, pairs: Sequence[Pair]) -> None:
        """Take the answers into the sort; while merging, an undefined one starts it anew."""
        shares = {pair: self.source.answers[pair].win_share for pair in pairs}
        undefined = [pair for pair, share in shares.items() if math.isnan(share)]
        if undefined and not self.order:
            self._undefined += undefined
            self._sort()
        else:
            self.source.known.update(shares)

    def _merging(self) -> list[Pair]:
        """Merge level by level; return the pairs that a level needs next, none once one list is left."""
        while len(self._lists) > 1:
            if not self._merges:
                pairs = zip(self._lists[0::2], self._lists[1::2], strict=False)
                self._merges = [Merge(self.source, *two, self._beam, self._gap) for two in pairs]
            if needed := [pair for merge in self._merges for pair in merge.advance()]:
                return needed
            odd = self._lists[len(self._lists) - len(self._lists) % 2 :]
            self._lists, self._merges = [merge.merged for merge in self._merges] + odd, []
        return []

    def _inserting(self) -> list[Pair]:
        """Insert the candidates that were set aside; return the pairs needed, none once all are ranked or cannot be."""
        while self._members:
            self.order = self.order or list(self._lists[0])
            pairs = [self._pair(one, other) for one in self._aside for other in self.order]
            if needed := [pair for pair in pairs if pair not in self.source.known]:
                return needed
            candidate = next((c for c in self._aside if self._is_compared(c)), None)
            if candidate is not None:
                self._insert(candidate)
            elif self._aside or len(self.order) == 1:
                isolated = self._aside if len(self.order) > 1 else self.order
                self.unranked += isolated
                self._begin([c for c in self._members if c not in isolated])
                return self._merging() or self._inserting()
            else:
                return []
        return []

    def _pair(self, a: int, b: int) -> Pair:
        """Return two candidates as a merge would compare them: the one that comes first at the start is shown first."""
        return (a, b) if self._place[a] < self._place[b] else (b, a)

    def _is_compared(self, candidate: int) -> bool:
        return any(not math.isnan(self.source.known[self._pair(candidate, other)]) for other in self.order)

    def _insert(self, candidate: int) -> None:
        """Insert a candidate where its comparisons contradict the order by the fewest nats; of equal places, midway."""
        lead = [log_odds(self.source.probability(candidate, other)) for other in self.order]
        nats = [
            sum(max(0.0, one) for one in lead[:i]) + sum(max(0.0, -one) for one in lead[i:])
            for i in range(len(lead) + 1)
        ]
        places = [i for i, one in enumerate(nats) if one == min(nats)]
        self.order.insert(places[len(places) // 2], candidate)
        self._aside.remove(candidate)


# PairS: ranking of a source's candidates by pairwise comparisons in a greedy or beam merge sort.
#
# The merge sort runs bottom-up, and the judge decides which head of two sorted lists comes next. The sorts of all
# sources advance together, and the comparisons that they need form one batch. No pair is compared twice. Greedy search
# follows each decision. Beam search keeps the most likely partial merges and follows both outcomes of a comparison if
# their probabilities are close; ``PartialMerge`` says how partial merges are scored.


SEARCHES = ("greedy", "beam")
CALIBRATION_PAIRS = 200
"""Number of randomly drawn pairs to which a ranking fits a calibration."""


@dataclass(frozen=True)
class Ranking:
    """The order of one source's candidates.

    Attributes:
        order: Indices of the ranked candidates, best first.
        scores: Number of other ranked candidates below each candidate, in the given order of the candidates. A
            candidate in the same group counts half; neighbors in the order that the judge does not distinguish share a
            group. NaN for a candidate that is not ranked.
        unranked: Index -> reason for every candidate that has no defined comparison with a ranked one. The others are
            ranked as if it were not there.
        comparisons: Number of pairs compared.
        judgments: Number of prompts asked; a debiased comparison takes several.
        ties: Number of pairs with equal probabilities; the head of the left list is placed first.
        undefined: Number of pairs without a defined probability; they do not decide the order.
        contradictions: Number of compared pairs whose preference the order reverses; cyclic preferences cause them.
    """

    order: list[int]
    scores: list[float]
    unranked: dict[int, str]
    comparisons: int
    judgments: int
    ties: int
    undefined: int
    contradictions: int


def most_comparisons(n: int) -> int:
    """Return the largest number of comparisons in a greedy ranking of n candidates, ``n ceil(log2 n)``.

    Candidates with undefined comparisons take more: each is compared with all ranked ones.
    """
    return n * math.ceil(math.log2(n)) if n > 1 else 0


class PairwiseRanker(Program):
    """Ranks the candidates of a source by pairwise comparisons (PairS; Liu et al., COLM 2024).

    Args:
        judge: Judge that compares two candidates.
        search: ``"greedy"`` takes at most ``n ceil(log2 n)`` comparisons of n candidates; ``"beam"`` takes more.
        beam_size: Number of partial merges that beam search keeps; the likeliest of them is the result.
        gap: Difference of the two probabilities, in [0, 1], below which beam search follows both outcomes.
        seed: Seed for the initial order of the candidates and for the pairs of a fitted calibration.

    Raises:
        ValueError: An option is unknown or outside its range.
    """

    kind = "ranker"
    search = Setting[str](one_of(*SEARCHES))
    beam_size = Setting[int](number(1, whole=True))
    gap = Setting[float](number(0, 1))
    seed = Setting[int](number(0, whole=True))

    def __init__(
        self, judge: PairwiseJudge, *, search: str = "greedy", beam_size: int = 10, gap: float = 0.2, seed: int = 0
    ) -> None:
        super().__init__(search=search, beam_size=beam_size, gap=gap, seed=seed)
        self.judge = judge

    def forward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """Rank the candidates of one source; see ``batch``."""
        return self.batch([dspy.Example(source=source, candidates=list(candidates))])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Rank the candidates of many sources; comparisons of all sources share batches.

        Args:
            examples: Examples with ``source`` and ``candidates``; equal candidates get the same score.
            lm: Model to ask. Defaults to the judge's own model, then to the one that DSPy is configured with.
            progress: Function that is called with the number of judgments just done.
            **options: Arguments of ``dspy.Module.batch``, as in ``PairwiseJudge.batch``.

        Returns:
            One prediction per example with the fields of ``Ranking``.
        """
        check_batch_options(options)
        rng = np.random.default_rng(self.seed)
        sources = [
            ComparedSource(e.source, list(dict.fromkeys(read_pair(e, i, most=None).candidates)))
            for i, e in enumerate(examples)
        ]
        beam = self.beam_size if self.search == "beam" else 1
        sorts = [MergeSort(s, rng.permutation(len(s.candidates)).tolist(), beam, self.gap) for s in sources]
        judge = self._calibrated(sources, lm)
        while pending := [(sort.source, pair) for sort in sorts for pair in sort.advance()]:
            items = [
                dspy.Example(source=s.source, candidates=[s.candidates[a], s.candidates[b]]) for s, (a, b) in pending
            ]
            predictions = judge.batch(items, lm=lm, progress=progress)
            for (source, pair), prediction in zip(pending, predictions, strict=True):
                source.answers[pair] = Answer(prediction.win_share, prediction.coverage)
                source.judgments += len(prediction.positions)
        return [
            dspy.Prediction(**vars(_ranking(sort, list(e.candidates), self.judge)))
            for sort, e in zip(sorts, examples, strict=True)
        ]

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PairwiseRanker:
        """Construct the ranker whose ``dump_state`` is given."""
        ranker = cls(PairwiseJudge(saved_criterion(state, "judge.settings")))
        ranker.load_state(state)
        ranker.judge.shown(ranker.judge.predict.demos)
        return ranker

    def _calibrated(self, sources: Sequence[ComparedSource], lm: Any) -> PairwiseJudge:
        """The judge, with its calibration fitted once to pairs of all sources instead of anew in every batch."""
        if self.judge.calibration not in FITTED or 2 in self.judge.corrections:
            return self.judge
        judge: PairwiseJudge = self.judge.deepcopy()
        pairs = [
            dspy.Example(source=s.source, candidates=list(pair))
            for s in sources
            for pair in itertools.permutations(s.candidates, 2)
        ]
        rng = random.Random(self.seed)
        judge.calibrate(rng.sample(pairs, min(CALIBRATION_PAIRS, len(pairs))), lm=lm)
        return judge


def _ranking(sort: MergeSort, candidates: Sequence[str], judge: PairwiseJudge) -> Ranking:
    """Ranking of all given candidates from the sort of the distinct ones."""
    source, order = sort.source, sort.order
    groups = _groups(source, order)
    distinct = [source.candidates.index(text) for text in candidates]  # index among the distinct candidates
    shares = {pair: answer.win_share for pair, answer in source.answers.items()}
    place = {index: rank for rank, index in enumerate(order)}
    ranked = [i for i, index in enumerate(distinct) if index in place]
    reversed_pairs = [
        (a, b) for (a, b), p in shares.items() if a in place and b in place and (p - 0.5) * (place[b] - place[a]) < 0
    ]
    return Ranking(
        order=sorted(ranked, key=lambda i: place[distinct[i]]),
        scores=[_score(groups, distinct, i) if i in ranked else math.nan for i in range(len(distinct))],
        unranked={i: _reason(source, index, judge) for i, index in enumerate(distinct) if index not in place},
        comparisons=len(shares),
        judgments=source.judgments,
        ties=sum(1 for p in shares.values() if p == 0.5),
        undefined=sum(1 for p in shares.values() if math.isnan(p)),
        contradictions=len(reversed_pairs),
    )


def _reason(source: ComparedSource, index: int, judge: PairwiseJudge) -> str:
    """Say why a candidate has no place in the order."""
    undefined = [answer for pair, answer in source.answers.items() if index in pair and math.isnan(answer.win_share)]
    coverages = [answer.coverage for answer in undefined]
    known = [coverage for coverage in coverages if not math.isnan(coverage)]
    why = []
    if len(known) < len(coverages):
        why.append("the model cannot take the prompts (the log says why)")
    if known:
        why.append(f"the answers' probabilities sum to at most {max(known):.2g} (min_coverage={judge.min_coverage:g})")
    return f"None of its comparisons with a ranked candidate is defined: {'; '.join(why)}."


def _groups(source: ComparedSource, order: list[int]) -> dict[int, int]:
    """Number the groups of candidates that the judge distinguishes, best first, by candidate.

    Neighbors in a merge sort were compared with each other; they share a group if neither was preferred.
    """
    groups, group = dict.fromkeys(order[:1], 0), 0
    for above, below in itertools.pairwise(order):
        p = source.probability(above, below)
        group += int(p is not None and not math.isnan(p) and p != 0.5)
        groups[below] = group
    return groups


def _score(groups: dict[int, int], distinct: list[int], position: int) -> float:
    """Number of other ranked candidates in lower groups, plus half of those in the same group."""
    others = [groups[index] for i, index in enumerate(distinct) if i != position and index in groups]
    own = groups[distinct[position]]
    return sum(1.0 for other in others if other > own) + sum(0.5 for other in others if other == own)


def load_ranker(path: str | os.PathLike[str]) -> PairwiseRanker:
    """Load a ranker from the JSON file that ``ranker.save(path)`` wrote.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file does not hold a ranker.
    """
    return load_program(path, PairwiseRanker.kind, PairwiseRanker.from_state)
