"""Bottom-up merge sort of one source's candidates, by comparisons that are asked for as they are needed.

A merge takes the order within its lists for granted, so an undefined comparison must not decide one. The sort therefore
sets aside the candidates that undefined comparisons have in common, sorts the others as if they were not there, and
then inserts each where its defined comparisons contradict the order least. A candidate that has no defined comparison
with a ranked one, for example because it is too long for the model, stays unranked. Answers are kept, so that no pair
is asked twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from evalbias.programs.merging import ComparedSource, Merge, Pair, log_odds


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
