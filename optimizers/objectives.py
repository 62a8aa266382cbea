"""Searches without labels: a judge's answers in the given order, objectives on them, and the rule of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import dspy
import numpy as np

from evalbias.data.items import input_key
from evalbias.data.probes import BAR, EDIT, ORIGINAL, PLACEBO, edited_place, named_kinds, with_edits
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Asking, Judged
from evalbias.evaluation.repeats import counted_deviation
from evalbias.lm.types import MeasuringLM, unanswered
from evalbias.measures.arrays import SLACK, BoolArray, FloatArray, cluster_codes, defined, ratio
from evalbias.measures.families import holm
from evalbias.measures.pairs import counted_fairness, decision_shares, win_shares
from evalbias.measures.position_calibration import calibrate_comparisons, rotations
from evalbias.measures.resample import Draws, Statistic, interval, mean
from evalbias.optimizers.rules import Keep, Rule
from evalbias.programs.judges import answer_items
from evalbias.programs.pairwise import PairwiseJudge

SWAPS = 2_000  # swaps of the permutation test of an objective, and resamples of its interval

# Answers of a judge under one or many instructions, in the given order, without debiasing and calibration.


def reworded(judge: PairwiseJudge, instruction: str) -> PairwiseJudge:
    """Return a copy of the judge with another instruction, without what was fitted under the old one."""
    copy: PairwiseJudge = judge.deepcopy()
    copy.corrections = {}
    copy.predict.signature = copy.predict.signature.with_instructions(instruction)
    return copy


def searchable(objective: Objective, pairs: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return what a judge is asked about; refuse pairs of different sizes."""
    examples = objective.searched(pairs)
    sizes = {len(e.candidates) for e in examples}
    if len(sizes) != 1:
        raise ValueError(f"{len(examples)} pairs with {sorted(sizes)} candidates: give pairs of one size.")
    return examples


def answers_under(
    judge: PairwiseJudge, wordings: Sequence[str], examples: Sequence[dspy.Example], lm: MeasuringLM
) -> list[Judged]:
    """Return the judge's answers to n examples of one size under each of w wordings.

    They are NaN where the answer is undefined, for example because the model cannot take a prompt that long.
    """
    judges, labels = [reworded(judge, wording) for wording in wordings], judge.labels(examples[0])
    # 1. All wordings are asked in one call, example by example, so that the wordings of one example share a prefix.
    questions = [variant.question(example) for example in examples for variant in judges]
    items = [example for example in examples for _ in judges]
    answers, _ = answer_items(judge.measuring(lm), questions, items)
    logprobs = np.stack([answers.get(i, unanswered(labels)).logprobs[0] for i in range(len(questions))])
    rows = logprobs.reshape(len(examples), len(judges), 1, len(labels)).swapaxes(0, 1)  # (w, n, 1, c)
    order = rotations(len(examples[0].candidates), every=False)
    # 2. Log-probabilities become shares; a comparison that the labels hardly cover is undefined.
    comparisons = calibrate_comparisons(
        rows.reshape(-1, *rows.shape[2:]), order, correction=None, min_coverage=judge.min_coverage
    )
    shares = comparisons.probabilities.reshape(len(judges), len(examples), 1, len(labels))
    coverages = comparisons.coverage.reshape(len(judges), len(examples))
    ids, inputs = tuple(str(e.get("id", i)) for i, e in enumerate(examples)), [input_key(e) for e in examples]
    return [
        Judged(ids, judge.criterion.name, own, inputs=inputs, ties=judge.ties, asked=Asking(coverage))
        for own, coverage in zip(shares, coverages, strict=True)
    ]


def shares_of(judged: Judged) -> FloatArray:
    """Return (n, c) probabilities of answers in the given order."""
    return judged.answers[:, 0]


def both_answers(first: Judged, second: Judged) -> Judged:
    """Return the first judge's answers and then the second's, as answers to twice as many items."""
    columns = {name: np.concatenate([values, second.covariates[name]]) for name, values in first.covariates.items()}
    return replace(
        first,
        ids=(*first.ids, *second.ids),
        answers=np.concatenate([first.answers, second.answers]),
        covariates=columns,
        inputs=[*first.inputs, *second.inputs],
        asked=replace(first.asked, coverage=np.concatenate([first.asked.coverage, second.asked.coverage])),
    )


class Objective:
    """A number for the answers under one instruction: higher is better, NaN if undefined, and then never accepted.

    A subclass writes ``__call__``, or ``resampled``, which is faster where it computes all resamples at once.
    """

    name: str  # in reports
    aim = ""  # what makes a judge better, in words; by default more of the objective

    def searched(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return what a judge is asked about, of the given examples."""
        return list(examples)

    def __call__(self, judged: Judged) -> float:
        return float(self.resampled(judged, np.ones((1, len(judged.ids))))[0])

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """Return the objective in k resamples, (k,), given how often each holds each item, (k, n)."""
        items = np.arange(counts.shape[1])
        return np.array([self(judged.take(np.repeat(items, row))) for row in counts.astype(np.int64)])


class Fairness(Objective):
    """Minus the mean distance of the positions' win rates from even, at most 0 (the paper's objective)."""

    name = "fairness"

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        wins = win_shares(decision_shares(shares_of(judged)), ties=judged.ties)
        return over_defined(counted_fairness, counts, wins)


class ProbeObjective(Objective):
    """Minus what edits that leave the quality as it is do to a judge, less their placebos, at most 0.

    That is the size of the change of a win rate, or of a mean score in standard deviations of the scores, averaged over
    the kinds of edits.

    Args:
        kinds: Kinds of edits, such as ``"authority"``; see ``evalbias.data.probes``.
        seed: Seed of the edits.
    """

    name, aim = "probe", "less effect of edits"

    def __init__(self, *kinds: str, seed: int = 0) -> None:
        self.kinds, self.seed = [*named_kinds(kinds)], seed

    def searched(
        self, examples: Sequence[dspy.Example], scale: tuple[float, float] | None = None
    ) -> list[dspy.Example]:
        """Return the items with each edit and placebo, behind each item as it is; of pairs the edited ones alone."""
        rows = with_edits(examples, self.kinds, seed=self.seed, scale=scale)
        return [row for row in rows if "output" in row or row.id.rsplit(BAR, 2)[1] != ORIGINAL]

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        if plain := [name for name in judged.ids if name.count(BAR) < 2]:
            raise ValueError(
                f"The item {plain[0]!r:.80} has no edit, which ZEPO and BiasedDemos make: use one of them."
            )
        items, kinds, parts = map(np.array, zip(*(name.rsplit(BAR, 2) for name in judged.ids), strict=True))
        values = judged.answers
        if judged.pairwise:
            places = [edited_place(item, 2, self.seed) for item in items]
            values = win_shares(shares_of(judged), ties=judged.ties)[np.arange(len(places)), places]

        # an edit counts with its placebo alone: other items would differ by their quality
        either = np.char.add(np.char.add(items, BAR), kinds)
        values = np.where(np.isin(either, either[np.isnan(values)]), np.nan, values)

        def over(rows: BoolArray, statistic: Statistic = mean) -> FloatArray:
            return over_defined(statistic, counts[:, rows], values[rows])

        edits = {*kinds} - {ORIGINAL}
        pairs = [[over((kinds == kind) & (parts == part)) for part in (EDIT, PLACEBO)] for kind in edits]
        effect = np.abs(np.diff(pairs, axis=1)).mean(axis=(0, 1))
        return np.asarray(-effect) if judged.pairwise else ratio(-effect, over(kinds == ORIGINAL, counted_deviation))


def over_defined(statistic: Statistic, counts: FloatArray, *columns: FloatArray) -> FloatArray:
    """Return a statistic's values in resamples, (k,), over the items that define it; NaN without any."""
    kept = defined(*columns)
    values = np.full(len(counts), np.nan)
    nonempty = counts[:, kept].any(axis=1)
    if nonempty.any():
        values[nonempty] = statistic(counts[np.ix_(nonempty, kept)], *(column[kept] for column in columns))
    return values


def objective_rule(objective: Objective, *, seed: int, keeps: Sequence[Keep] = (), at: str = "") -> Rule:
    """Demand that an objective is higher.

    The test swaps both judges' answers input by input, which is right whatever the objective: under the null hypothesis
    it does not matter which of them answered. The p-values are adjusted by Holm.
    """

    def estimated(judged: Judged) -> dict[str, Estimate]:
        resampled = partial(objective.resampled, judged)
        bounds = interval(resampled, _inputs(judged), method="percentile", draws=Draws(seed, SWAPS))
        undefined = judged.unanswered
        bounds = replace(bounds, n=len(judged.ids) - undefined, undefined=undefined)
        return {objective.name: Estimate.of(bounds, objective.name)}

    def p_value(judged: Judged, before: Judged) -> float:
        observed = objective(judged) - objective(before)
        if np.isnan(observed):
            return float("nan")
        codes = _inputs(before)
        swapped = np.random.default_rng(seed).random((SWAPS, codes.max() + 1))[:, codes] < 0.5  # (SWAPS, n)
        both = both_answers(judged, before)
        own = np.concatenate([~swapped, swapped], axis=1).astype(np.float64)  # (SWAPS, 2 n)
        differences = objective.resampled(both, own) - objective.resampled(both, 1 - own)
        extreme = ~(differences < observed - SLACK)  # a tie counts, and NaN, which is not below
        return float((1 + extreme.sum()) / (1 + SWAPS))

    return Rule(
        aim=f"{objective.aim or f'a higher {objective.name}'}{at}",
        p_values=lambda judged, before: holm([p_value(candidate, before) for candidate in judged]),
        estimates=estimated,
        costs=lambda judged: (-objective(judged),),
        keeps=keeps,
    )


def _inputs(judged: Judged) -> np.ndarray:
    """Return (n,) number of each item's input."""
    return cluster_codes(judged.inputs, np.ones(len(judged.ids), dtype=bool))
