"""PairS: ranking of a source's candidates by pairwise comparisons in a greedy or beam merge sort.

The merge sort runs bottom-up, and the judge decides which head of two sorted lists comes next. The sorts of all sources
advance together, and the comparisons that they need form one batch. No pair is compared twice. Greedy search follows
each decision. Beam search keeps the most likely partial merges and follows both outcomes of a comparison if their
probabilities are close; ``merging.py`` says how partial merges are scored.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np

from evalbias.lm.types import MeasuringLM
from evalbias.programs.comparison_adapter import check_candidates
from evalbias.programs.merge_sort import MergeSort
from evalbias.programs.merging import Answer, ComparedSource
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.pointwise import check_batch_options
from evalbias.programs.position_calibration import FITTED
from evalbias.programs.saving import load_program
from evalbias.programs.settings import NumberSetting, Program, Setting, saved_criterion

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
    search = Setting(*SEARCHES)
    beam_size = NumberSetting(1, whole=True)
    gap = NumberSetting(0, 1)
    seed = NumberSetting(0, whole=True)

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
            ComparedSource(e.source, check_candidates(e.source, list(dict.fromkeys(e.candidates)))) for e in examples
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
        ranker.judge.check_demos()
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
    return load_program(path, PairwiseRanker)
