"""Merge of two sorted lists by comparisons, the step of PairS's merge sort, with greedy or beam search.

The objective of PairS is the likelihood of an order: the product over all pairs of the probability that the one above
is better. Of the pairs between two lists, a merge compares only some. All partial merges are scored on the same pairs,
those compared so far, whichever partial merge needed them. The product over a partial merge's own comparisons would
favor merges in which one list runs out early, because they have fewer factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
