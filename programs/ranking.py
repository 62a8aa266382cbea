"""Rankings by pairwise comparisons: a merge sort (PairS, greedy; Liu et al., COLM 2024).

The judge decides which head of two sorted lists comes next. The sorts of all sources advance together, so that the
pairs they need form a batch. No prompt is sent twice, and no undefined comparison decides an order.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import dspy
import numpy as np

from evalbias.lm.dspy_seam import UsageTracker
from evalbias.lm.types import MeasuringLM
from evalbias.measures.arrays import mean_of_defined
from evalbias.programs.items import read_pair
from evalbias.programs.judges import check_batch_options, tracks_usage
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.prompts import Inputs
from evalbias.programs.saved import Instrument, Setting, number_within

CALIBRATION_PAIRS = 200  # number of randomly drawn pairs to which a ranking fits a calibration

MOST = 10_000  # largest number of orders: a saved ranker may come from a stranger


def most_comparisons(n: int, orders: int = 1) -> int:
    """Return the largest number of comparisons for rankings from some orders: ``n ceil(log2 n)`` each if defined.

    Candidates with undefined comparisons need more: each is compared with all ranked candidates, no pair twice.
    """
    return min(orders * n * math.ceil(math.log2(n)), n * (n - 1)) if n > 1 else 0


class PairwiseRanker(Instrument):
    """Ranks the candidates of a source by pairwise comparisons (PairS; Liu et al., COLM 2024).

    Args:
        judge: Judge that compares two candidates.
        seed: Seed for the initial orders of the candidates and for the pairs of a fitted calibration.
        orders: Number of random initial orders to sort from (the paper's code: 100); scores are averaged over them.
            At most 10,000. A pair is compared once, and once more if another sort needs it in the other order.
    """

    kind = "ranker"
    seed = Setting[int](number_within(0, whole=True))
    orders = Setting[int](number_within(1, MOST, whole=True))

    def __init__(self, judge: PairwiseJudge, *, seed: int = 0, orders: int = 1) -> None:
        super().__init__()
        self.judge, self.seed, self.orders = judge, seed, orders

    def forward(self, *texts: Any, **fields: Any) -> dspy.Prediction:
        """Rank the ``candidates`` of an item, passed as to the judge; returns a prediction like ``batch``."""
        return self.batch([dspy.Example(self.judge.named(texts, fields))])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[dspy.Prediction]:
        """Rank the candidates of many sources; comparisons of all sources share batches.

        DSPy's traces do not hold the comparisons, so BootstrapFewShot cannot take demonstrations from a ranking.

        Args:
            examples: With the judge's inputs and two or more ``candidates`` (``outputs``); equal ones score the same.
            lm: Model to ask. Defaults to the judge's own model, then to the model that DSPy is configured with.
            progress: Function that is called with the number of judgments just done.
            **options: Options of ``dspy.Module.batch``, accepted and not needed.

        Returns:
            One prediction per example, with these fields:

            * ``order``: indices of the ranked candidates, best first.
            * ``scores``: number of other ranked candidates below each candidate, in the order of ``candidates``; a
              candidate of the same group counts half. Neighbors in the order that the judge does not distinguish share
              a group. Means over the orders from which a candidate is ranked; NaN if it is not ranked.
            * ``scores_by_order``: these scores from each of the ``orders``.
            * ``unranked``: index -> reason for every candidate without a defined comparison with a ranked candidate.
              The others are ranked without it.
            * ``comparisons``: number of pairs compared; of these, ``first`` choose the text shown first, ``ties`` have
              equal probabilities (the head of the left list is placed first), ``undefined`` are undefined, and
              ``contradictions`` a preference that the order reverses, which cycles cause.
            * ``judgments``: number of prompts; a debiased comparison takes several.
        """
        check_batch_options(options)
        fields = self.judge.inputs, self.judge.judged
        examples = [read_pair(example, index, *fields, most=None) for index, example in enumerate(examples)]
        # 1. The distinct candidates of each source are sorted from random orders. Its sorts share the answers.
        rng = np.random.default_rng(self.seed)
        sources = [Compared(self.judge.own(e), list(dict.fromkeys(e["candidates"]))) for e in examples]
        sorted_from = [[Compared(s.inputs, s.candidates, s.answers) for s in sources] for _ in range(self.orders)]
        sorts = [rank(s, rng.permutation(len(s.candidates)).tolist()) for order in sorted_from for s in order]
        judge, usages = self._calibrated(sources, lm), {id(s.answers): UsageTracker() for s in sources}
        # 2. In each round the judge compares all pairs that the sorts need next, each once.
        for needed in together(sorts):
            unique = list({(id(s.answers), pair): (s, pair) for s, pair in needed}.values())
            items = [s.pair(s.candidates[a], s.candidates[b]) for s, (a, b) in unique]
            for (source, pair), comparison in zip(unique, judge.batch(items, lm=lm, progress=progress), strict=True):
                source.answers[pair] = Answer(comparison.win_share, comparison.coverage, len(comparison.positions))
                for model, tokens in (comparison.get_lm_usage() or {}).items():
                    usages[id(source.answers)].add_usage(model, tokens)
        # 3. Scores of all candidates; equal texts share a place.
        sorted_sources = zip(*sorted_from, strict=True)
        done = [_ranking(s, e["candidates"], self.judge) for s, e in zip(sorted_sources, examples, strict=True)]
        for source, ranking in zip(sources, done, strict=True):
            if tracks_usage():
                ranking.set_lm_usage(usages[id(source.answers)].get_total_tokens())
        return done

    def _calibrated(self, sources: Sequence[Compared], lm: Any) -> PairwiseJudge:
        """Return the judge with its calibration fitted once to pairs of all sources, instead of anew in every batch."""
        if self.judge.calibration is None or 2 in self.judge.corrections:
            return self.judge
        judge: PairwiseJudge = self.judge.deepcopy()
        pairs = [s.pair(*pair) for s in sources for pair in itertools.permutations(s.candidates, 2)]
        rng = random.Random(self.seed)
        judge.calibrate(rng.sample(pairs, min(CALIBRATION_PAIRS, len(pairs))), lm=lm)
        return judge


# The sort of one source's candidates, as generators: each round yields the pairs to compare next.

Pair = tuple[int, int]  # two candidates of a source, in the order in which they are shown to the judge
Result = TypeVar("Result")
Needed = TypeVar("Needed")


class Answer(NamedTuple):
    """A judge's comparison of a pair."""

    win_share: float  # probability that the first candidate wins, plus half that of a tie; NaN where undefined
    coverage: float  # total probability of the judge's answers; NaN if the model was not asked
    prompts: int  # number of prompts


@dataclass
class Compared:
    """A source whose candidates are being sorted from one initial order."""

    inputs: Inputs  # the judge's inputs, by its own names
    candidates: list[str]  # distinct candidates
    answers: dict[Pair, Answer] = field(default_factory=dict)  # every compared pair
    shares: dict[Pair, float] = field(default_factory=dict)  # win share of a pair's first candidate in this sort
    order: list[int] = field(default_factory=list)  # best first; without candidates that cannot be ranked

    def pair(self, first: str, second: str) -> dspy.Example:
        return dspy.Example({**self.inputs, "candidates": [first, second]})

    def probability(self, a: int, b: int) -> float | None:
        """Return the probability that a is better than b; None if they were not compared."""
        if (a, b) in self.shares:
            return self.shares[a, b]
        return 1 - self.shares[b, a] if (b, a) in self.shares else None


def together(parts: Sequence[Generator[list[Needed], None, Result]]) -> Generator[list[Needed], None, list[Result]]:
    """Run generators side by side: each round yields what all of them need next; return their results."""
    results: dict[int, Result] = {}
    waiting = dict(enumerate(parts))
    while waiting:
        needed: list[Needed] = []
        for i, part in list(waiting.items()):
            try:
                needed += next(part)
            except StopIteration as end:
                results[i] = end.value
                del waiting[i]
        if needed:
            yield needed
    return [results[i] for i in sorted(results)]


def rank(source: Compared, members: Sequence[int]) -> Generator[list[tuple[Compared, Pair]], None, None]:
    """Sort a source's candidates into ``source.order``, from the order of ``members``; yields pairs to compare.

    A merge relies on the order within its lists, so an undefined comparison must not decide an order.
    """
    if len(source.candidates) == 1:
        source.order = [0]
        return
    while members:
        place = {candidate: number for number, candidate in enumerate(members)}
        # 1. Sort all but the candidates that cover the undefined comparisons; start again when a new one appears.
        undefined: list[Pair] = []
        order = None
        while order is None:
            aside = _cover(undefined, place)
            source.shares = {}
            sort = merge_sort(source, [c for c in members if c not in aside])
            order = yield from _answered(source, sort, undefined)
        # 2. Insert each of those where its comparisons contradict the order least.
        while aside:
            # Pairs are compared in the order of a merge: the candidate that is first in ``members`` comes first.
            pairs = {(late, c): (late, c) if place[late] < place[c] else (c, late) for late in aside for c in order}
            if missing := [pair for pair in pairs.values() if pair not in source.answers]:
                yield [(source, pair) for pair in missing]
            source.shares.update({pair: source.answers[pair].win_share for pair in pairs.values()})
            compared = [late for late in aside if any(not math.isnan(source.shares[pairs[late, c]]) for c in order)]
            if not compared:
                break
            _insert(source, order, compared[0])
            aside.remove(compared[0])
        # 3. Candidates without a defined comparison with a ranked candidate are left out.
        if not aside and len(order) > 1:
            source.order = order
            return
        isolated = aside if len(order) > 1 else order
        members = [c for c in members if c not in isolated]


def _answered(
    source: Compared, sort: Generator[list[Pair], None, list[int]], undefined: list[Pair]
) -> Generator[list[tuple[Compared, Pair]], None, list[int] | None]:
    """Run a sort by the answers; return its order, or None at undefined comparisons, which join ``undefined``."""
    while True:
        try:
            pairs = next(sort)
        except StopIteration as end:
            order: list[int] = end.value
            return order
        if missing := [pair for pair in pairs if pair not in source.answers]:
            yield [(source, pair) for pair in missing]
        shares = {pair: source.answers[pair].win_share for pair in pairs}
        if unknown := [pair for pair, share in shares.items() if math.isnan(share)]:
            undefined += unknown
            return None
        source.shares.update(shares)


def _cover(pairs: Sequence[Pair], place: dict[int, int]) -> list[int]:
    """Return a small set of candidates that covers all pairs, greedily: the candidate in the most pairs first."""
    left, cover = list(pairs), []
    while left:
        counts = Counter(candidate for pair in left for candidate in pair)
        cover.append(max(counts, key=lambda c: (counts[c], place[c])))
        left = [pair for pair in left if cover[-1] not in pair]
    return cover


def _insert(source: Compared, order: list[int], candidate: int) -> None:
    """Insert a candidate where its comparisons contradict the order by the fewest nats; midway between equal places."""
    lead = [log_odds(source.probability(candidate, other)) for other in order]
    nats = [sum(max(0.0, x) for x in lead[:i]) + sum(max(0.0, -x) for x in lead[i:]) for i in range(len(lead) + 1)]
    places = [i for i, cost in enumerate(nats) if cost == min(nats)]
    order.insert(places[len(places) // 2], candidate)


def merge_sort(source: Compared, members: Sequence[int]) -> Generator[list[Pair], None, list[int]]:
    """Merge level by level; yield the pairs that a level needs next, and return the order."""
    lists = [[candidate] for candidate in members]
    while len(lists) > 1:
        odd = lists[len(lists) - len(lists) % 2 :]
        merges = [merge(source, *two) for two in zip(lists[0::2], lists[1::2], strict=False)]
        lists = (yield from together(merges)) + odd
    return lists[0] if lists else []


def merge(source: Compared, left: Sequence[int], right: Sequence[int]) -> Generator[list[Pair], None, list[int]]:
    """Merge two sorted lists of candidates by ``source.shares``; yield the pair to compare next, return the order."""
    lists, merged = (list(left), list(right)), list[int]()
    while all(lists):
        a, b = lists[0][0], lists[1][0]
        if source.probability(a, b) is None:
            yield [(a, b)]
        ahead = lists[0] if log_odds(source.probability(a, b)) >= 0 else lists[1]  # the left one on ties
        merged.append(ahead.pop(0))
    return [*merged, *lists[0], *lists[1]]


def log_odds(p: float | None) -> float:
    """Return log p/(1 - p); 0 where undefined or not compared."""
    if p is None or math.isnan(p):
        return 0.0
    return math.log(p / (1 - p)) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)


def _ranking(sorts: Sequence[Compared], candidates: Sequence[str], judge: PairwiseJudge) -> dspy.Prediction:
    """Return the ranking of a source from its sorts, which share comparisons."""
    first, n = sorts[0], len(candidates)
    shares = {pair: answer.win_share for pair, answer in first.answers.items()}
    distinct = [first.candidates.index(text) for text in candidates]  # index among the distinct candidates
    # 1. Scores and places, averaged over the orders from which a candidate is ranked.
    by_order = [_scores(source, distinct) for source in sorts]
    scores = list(map(mean_of_defined, zip(*by_order, strict=True)))
    places = [{index: float(rank) for rank, index in enumerate(source.order)} for source in sorts]
    around = [mean_of_defined([place.get(index, math.nan) for place in places]) for index in distinct]
    # 2. The highest score comes first; ties go to the better mean place.
    order = sorted((i for i in range(n) if not math.isnan(scores[i])), key=lambda i: (-scores[i], around[i]))
    place = {distinct[i]: rank for rank, i in enumerate(order)}
    return dspy.Prediction(
        order=order,
        scores=scores,
        scores_by_order=by_order,
        unranked={i: _reason(first, index, judge) for i, index in enumerate(distinct) if index not in place},
        comparisons=len(shares),
        judgments=sum(answer.prompts for answer in first.answers.values()),
        first=sum(p > 0.5 for p in shares.values()),
        ties=sum(p == 0.5 for p in shares.values()),
        undefined=sum(math.isnan(p) for p in shares.values()),
        contradictions=sum(
            (p - 0.5) * (place[b] - place[a]) < 0 for (a, b), p in shares.items() if a in place and b in place
        ),
    )


def _scores(source: Compared, distinct: Sequence[int]) -> list[float]:
    """Return the scores of candidates in the order of one sort, from their indices among the distinct candidates."""
    # 1. Neighbors in the order were compared, if they were merged; without a preference they share a group.
    group = dict.fromkeys(source.order[:1], 0)
    for above, below in itertools.pairwise(source.order):
        is_equal = log_odds(source.probability(above, below)) == 0
        group[below] = group[above] if is_equal else group[above] + 1
    # 2. A score is the number of ranked candidates in lower groups, plus half of the others in its own group.
    ranked = [group[index] for index in distinct if index in group]
    scores = {level: sum(other > level for other in ranked) + (ranked.count(level) - 1) / 2 for level in set(ranked)}
    return [scores[group[index]] if index in group else math.nan for index in distinct]


def _reason(source: Compared, index: int, judge: PairwiseJudge) -> str:
    undefined = [answer for pair, answer in source.answers.items() if index in pair and math.isnan(answer.win_share)]
    coverages = [answer.coverage for answer in undefined if not math.isnan(answer.coverage)]
    why = []
    if len(coverages) < len(undefined):
        why.append("the model cannot take the prompts (the log says why)")
    if coverages:
        sums = f"at most {max(coverages):.2g} (min_coverage={judge.min_coverage:g})"
        why.append(f"the answers' probabilities sum to {sums}")
    return f"None of its comparisons with a ranked candidate is defined: {'; '.join(why)}."
