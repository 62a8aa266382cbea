"""PairS: the order of a source's candidates from comparisons (greedy or beam merge sort).

Bottom-up merge sort: the judge decides which head of two sorted lists comes next. All merges of one level, of all
sources, go forward together, and the comparisons they wait for are one batch. A pair that was compared is not compared
again. Greedy follows each decision; beam keeps the likeliest partial merges and follows both outcomes of a comparison
whose probabilities lie close together.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
import numpy as np

from evalbias.lm.types import MeasuringLM
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import PairwiseJudge, check_candidates
from evalbias.programs.saving import read_state

STATE_KEY = "evalbias_ranker"
SEARCHES = ("greedy", "beam")
CALIBRATION_PAIRS = 200
"""Pairs, drawn with the seed, on which a ranking fixes batch calibration."""


@dataclass(frozen=True)
class Ranking:
    """The order of one source's candidates.

    Attributes:
        order: Indices of the candidates, best first.
        scores: One a candidate, in the candidates' order: how many others it is above; those that the judge could not
            tell apart, neighbor by neighbor, count half. NaN where no comparison was defined.
        comparisons: Pairs compared.
        judgments: Prompts that took (a debiased comparison takes several).
        ties: Pairs on which the judge was undecided; the list that stood first went first.
        undefined: Pairs without a defined probability; treated as ties.
        contradictions: Compared pairs that the order turns round: a judge whose preferences go in circles has some.
    """

    order: list[int]
    scores: list[float]
    comparisons: int
    judgments: int
    ties: int
    undefined: int
    contradictions: int


@dataclass
class _Source:
    """One source on its way: the probability that the first of a pair is better, once it is known."""

    source: str
    candidates: list[str]
    known: dict[tuple[int, int], float] = field(default_factory=dict)
    judgments: int = 0

    def probability(self, a: int, b: int) -> float | None:
        """That a is better than b; None if they were not compared."""
        if (a, b) in self.known:
            return self.known[a, b]
        return 1 - self.known[b, a] if (b, a) in self.known else None


@dataclass(frozen=True)
class _State:
    """A partial merge: what is merged, where each list stands, and how likely its decisions are together."""

    merged: tuple[int, ...] = ()
    left: int = 0
    right: int = 0
    loglikelihood: float = 0.0


class _Merge:
    """Two sorted lists becoming one."""

    def __init__(self, source: _Source, left: Sequence[int], right: Sequence[int], beam: int, gap: float) -> None:
        self.source, self.left, self.right = source, left, right
        self._beam, self._gap = beam, gap
        self._states = [_State()]

    def advance(self) -> list[tuple[int, int]]:
        """Go on as far as the known comparisons lead; the pairs that are asked next, none when merged."""
        while True:
            wanted = [pair for state in self._states if (pair := self._heads(state))]
            if not wanted:
                return []
            missing = [pair for pair in dict.fromkeys(wanted) if self.source.probability(*pair) is None]
            if missing:
                return missing
            self._states = self._kept([follower for state in self._states for follower in self._followers(state)])

    @property
    def merged(self) -> list[int]:
        """The likeliest order, once ``advance`` asks for nothing."""
        best = self._states[0]
        return [*best.merged, *self.left[best.left :], *self.right[best.right :]]

    def _heads(self, state: _State) -> tuple[int, int] | None:
        if state.left == len(self.left) or state.right == len(self.right):
            return None
        return self.left[state.left], self.right[state.right]

    def _followers(self, state: _State) -> list[_State]:
        pair = self._heads(state)
        if pair is None:
            return [state]
        p = self.source.probability(*pair)
        assert p is not None
        p = 0.5 if math.isnan(p) else p
        both = [
            _State((*state.merged, pair[0]), state.left + 1, state.right, state.loglikelihood + _log(p)),
            _State((*state.merged, pair[1]), state.left, state.right + 1, state.loglikelihood + _log(1 - p)),
        ]
        if self._beam > 1 and abs(2 * p - 1) < self._gap:
            return both
        return both[:1] if p >= 0.5 else both[1:]

    def _kept(self, states: list[_State]) -> list[_State]:
        return sorted(states, key=lambda s: -s.loglikelihood)[: self._beam]


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -math.inf


def most_comparisons(n: int) -> int:
    """Of a greedy ranking of n candidates: ``n ceil(log2 n)``."""
    return n * math.ceil(math.log2(n)) if n > 1 else 0


class PairwiseRanker(dspy.Module):  # type: ignore[misc]
    """Ranks the candidates of a source by comparisons.

    Args:
        judge: Who compares.
        search: ``"greedy"`` takes at most ``n ceil(log2 n)`` comparisons; ``"beam"`` more.
        beam_size: Partial merges that are kept.
        gap: Beam follows both outcomes where the probabilities lie closer together than this, in [0, 1].
        seed: Of the order in which the candidates enter, which the caller's order then does not decide.
    """

    def __init__(
        self, judge: PairwiseJudge, *, search: str = "greedy", beam_size: int = 10, gap: float = 0.2, seed: int = 0
    ) -> None:
        super().__init__()
        if search not in SEARCHES:
            raise ValueError(f"search={search!r} is unknown: choose one of {SEARCHES}.")
        if beam_size < 1 or not 0 <= gap <= 1:
            raise ValueError(f"beam_size={beam_size}, gap={gap}: keep at least one, and give a gap in [0, 1].")
        self.judge = judge
        self.search = search
        self.beam_size = beam_size
        self.gap = gap
        self.seed = seed

    def forward(self, source: str, candidates: Sequence[str]) -> dspy.Prediction:
        """Rank the candidates of one source; see ``batch``."""
        return self.batch([dspy.Example(source=source, candidates=list(candidates))])[0]

    def batch(
        self,
        examples: Sequence[dspy.Example],
        *,
        lm: MeasuringLM | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[dspy.Prediction]:
        """Rank the candidates of many sources; their comparisons are asked together.

        Args:
            examples: With ``source`` and ``candidates``; equal candidates share a place and a score.
            lm: In place of the judge's own or DSPy's configured model.
            progress: Called with the number of judgments done.

        Returns:
            One prediction an example: the fields of ``Ranking``.
        """
        rng = np.random.default_rng(self.seed)
        sources = [_Source(e.source, check_candidates(e.source, list(dict.fromkeys(e.candidates)))) for e in examples]
        runs = [[[int(i)] for i in rng.permutation(len(s.candidates))] for s in sources]
        judge = self._calibrated(sources, lm)
        while any(len(lists) > 1 for lists in runs):
            merges = [
                [self._merge(source, lists[i], lists[i + 1]) for i in range(0, len(lists) - 1, 2)]
                for source, lists in zip(sources, runs, strict=True)
            ]
            self._level([m for part in merges for m in part], judge, lm, progress)
            runs = [
                [m.merged for m in part] + lists[len(lists) - len(lists) % 2 :]
                for part, lists in zip(merges, runs, strict=True)
            ]
        return [
            dspy.Prediction(**vars(_ranking(source, lists[0], list(e.candidates))))
            for source, lists, e in zip(sources, runs, examples, strict=True)
        ]

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The judge's state and how it is asked; no model and no key."""
        own = {name: getattr(self, name) for name in ("search", "beam_size", "gap", "seed")}
        return {"judge": self.judge.dump_state(json_mode), STATE_KEY: own}

    def load_state(self, state: dict[str, Any], **kwargs: Any) -> None:
        """Take over a saved ranker: its judge, search and seed."""
        self.judge.load_state(state["judge"], **kwargs)
        for name, value in state[STATE_KEY].items():
            setattr(self, name, value)

    def _merge(self, source: _Source, left: list[int], right: list[int]) -> _Merge:
        return _Merge(source, left, right, self.beam_size if self.search == "beam" else 1, self.gap)

    def _calibrated(self, sources: Sequence[_Source], lm: Any) -> PairwiseJudge:
        """The judge; batch calibration is fixed on pairs of all sources, or every merge would have its own."""
        if self.judge.calibration != "batch" or 2 in self.judge.offsets:
            return self.judge
        judge: PairwiseJudge = self.judge.deepcopy()
        found = [
            dspy.Example(source=s.source, candidates=list(two))
            for s in sources
            for two in itertools.permutations(s.candidates, 2)
        ]
        rng = random.Random(self.seed)
        judge.calibrate(rng.sample(found, min(CALIBRATION_PAIRS, len(found))), lm=lm)
        return judge

    def _level(
        self, merges: Sequence[_Merge], judge: PairwiseJudge, lm: Any, progress: Callable[[int], None] | None
    ) -> None:
        """Bring all merges of a level to their end, one batch of comparisons after the other."""
        while True:
            asked = [(merge.source, pair) for merge in merges for pair in merge.advance()]
            if not asked:
                return
            items = [
                dspy.Example(source=s.source, candidates=[s.candidates[a], s.candidates[b]]) for s, (a, b) in asked
            ]
            found = judge.batch(items, lm=lm, progress=progress)
            for (source, pair), prediction in zip(asked, found, strict=True):
                source.known[pair] = prediction.win_share
                source.judgments += len(prediction.positions)


def _ranking(source: _Source, order: list[int], candidates: Sequence[str]) -> Ranking:
    """The outcome for the caller's candidates, of which equal ones were ranked once."""
    group = _groups(source, order)
    of = [source.candidates.index(text) for text in candidates]
    values = list(source.known.values())
    undefined = sum(1 for p in values if math.isnan(p))
    place = {index: rank for rank, index in enumerate(order)}
    return Ranking(
        order=sorted(range(len(of)), key=lambda i: place[of[i]]),
        scores=[math.nan if undefined == len(values) else _score(group, of, i) for i in range(len(of))],
        comparisons=len(values),
        judgments=source.judgments,
        ties=sum(1 for p in values if p == 0.5),
        undefined=undefined,
        contradictions=sum(1 for (a, b), p in source.known.items() if (p - 0.5) * (place[b] - place[a]) < 0),
    )


def _groups(source: _Source, order: list[int]) -> dict[int, int]:
    """Candidate -> its place among the groups that the judge told apart, best first.

    Neighbors in a merge sort were compared with each other: where that gave no preference they share a group.
    """
    found, group = {order[0]: 0}, 0
    for above, below in itertools.pairwise(order):
        p = source.probability(above, below)
        group += int(p is not None and not math.isnan(p) and p != 0.5)
        found[below] = group
    return found


def _score(group: dict[int, int], of: list[int], mine: int) -> float:
    """How many others stand in a lower group; those of the same one count half."""
    others = [group[index] for i, index in enumerate(of) if i != mine]
    own = group[of[mine]]
    return sum(1.0 for other in others if other > own) + sum(0.5 for other in others if other == own)


def load_ranker(path: str | os.PathLike[str]) -> PairwiseRanker:
    """Read a ranker that ``ranker.save(path)`` wrote (JSON).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no saved ranker.
    """
    ranker = PairwiseRanker(PairwiseJudge(Criterion("placeholder", "replaced by the state")))
    ranker.load_state(read_state(path, STATE_KEY, "ranker"))
    return ranker
