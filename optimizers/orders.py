"""Repairs of a judge whose scores depend on the order of the levels: compiled where nothing else is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.agreement import agreement_of_scores
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import Judged, judge_examples
from evalbias.evaluation.repeats import Order, counted_deviation
from evalbias.lm.orders import Repair, ReversedOptions
from evalbias.measures.arrays import FloatArray, complete, ratio, sums_by_cluster
from evalbias.measures.families import smaller_in_magnitude
from evalbias.measures.position_calibration import batch_offsets
from evalbias.measures.resample import Draws, estimate
from evalbias.optimizers.base import JudgeOptimizer, Problem
from evalbias.optimizers.likelihood_rules import AGREEMENT, LOSS, Errors, LikelihoodRule, _drawn_errors
from evalbias.optimizers.selection import CHOICE_LEVEL, Candidate, Rule
from evalbias.options import ORDER
from evalbias.programs.pairwise import CONTENT_FREE
from evalbias.programs.pointwise import PointwiseJudge

KEPT = 0.5
"""Share of the spread of the scores that a repair must be shown to keep: a judge that answers alike has no order."""


class OrderRule(LikelihoodRule):
    """A judge is better if the order of its levels moves the score less, and it tells outputs apart as before.

    Less: the given judge's shift (the mean score with the levels reversed, less as declared) is shown to be more than
    is tolerated, and the judge's is smaller in magnitude, adjusted for all judges. As before: the agreement with people
    is shown and not lower, as ``LikelihoodRule`` says, and the items rule out that less than ``KEPT`` of the standard
    deviation of the scores is left.
    """

    level = CHOICE_LEVEL

    def __init__(self, *, seed: int) -> None:
        super().__init__("shift", seed=seed)
        self.aim = "less bias by the order of levels at no significant loss of agreement or spread"

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        """Return the shift, the spread, and the agreement with people (Pearson)."""
        numbers = {one.name: one for one in [*Order(judged.scale).numbers(judged), *agreement_of_scores(judged)]}
        shown = ("shift", "spread", AGREEMENT)
        return {name: numbers[name].estimate(judged.clusters, seed=self.seed) for name in shown}

    def bias(self, judged: Judged) -> Estimate:
        """Return the shift with its interval."""
        return self.estimates(judged)["shift"]

    def errors(self, judges: Sequence[Judged]) -> Errors:
        """Return the shifts of judges, with draws of their errors, on the items that all of them scored."""
        shifts = [one.covariate(ORDER) - one.answers for one in judges]
        kept, codes = complete(*shifts, clusters=judges[0].clusters)
        x, groups = np.column_stack(kept), int(codes.max(initial=-1)) + 1
        if groups < 2:
            return np.full(len(judges), np.nan), np.full((1, len(judges)), np.nan)
        influence = sums_by_cluster(x - x.mean(axis=0), codes) / len(x) * np.sqrt(groups / (groups - 1))
        return x.mean(axis=0), _drawn_errors(influence, self.seed)

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the magnitude of each shift is no smaller, adjusted for all of them."""
        smaller = smaller_in_magnitude(*self.errors([given, *judged]))
        return [float(p) for p in np.maximum(smaller, self.bias(given).p_value)]

    def loss(self, judged: Judged, given: Judged) -> str:
        """Say whether the scores may spread too little, or agree less with people."""
        draws = Draws(seed=self.seed, confidence=1 - 2 * LOSS, swaps=0)
        how: dict[str, Any] = {"clusters": given.clusters, "method": "percentile", "draws": draws}
        left = estimate(_counted_ratio, judged.answers, given.answers, **how)
        if not left.low >= KEPT:
            before, after = (self.estimates(one)["spread"].text() for one in (given, judged))
            return (
                f"answers alike: the spread of its scores falls from {before} to {after} (at worst to {left.low:.0%})"
            )
        agreement = self.estimates(judged)[AGREEMENT]
        if not agreement.low > 0:
            return f"is not shown to agree with people (Pearson {agreement.text()}, {agreement.interval})"
        return super().loss(judged, given)

    def costs(self, judged: Judged) -> tuple[float, ...]:
        """Return the magnitude of the shift, and minus the agreement."""
        found = self.estimates(judged)
        return abs(found["shift"].value), -found[AGREEMENT].value


def _counted_ratio(counts: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    return ratio(counted_deviation(counts, x), counted_deviation(counts, y))


class OrderRepair(JudgeOptimizer):
    """Compiles the repair of a judge's order bias that costs neither agreement nor spread, or keeps the judge.

    Of a judge that is asked closed questions about a score, candidates are the mean of both orders of the levels
    (twice the questions), the prior of the places in the answer to a content-free text (contextual calibration) or in
    the mean log-probability over the training items in both orders (batch calibration), and the mean of both orders
    less the contextual prior, which is the form of AnyJev (arXiv 2610.00831). ``OrderRule`` says what is better, on
    held-back inputs. The repair is saved with the judge (``judge.repair``).

    Args:
        **options: Options of every optimizer; ``select=False`` returns the mean of both orders.
    """

    compiles = (PointwiseJudge,)
    biases = (ORDER,)
    counts_distinct = True

    def check(self, student: PointwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Refuse a question of yes or no, whose answers are named."""
        if student.criterion.scale == (0, 1):
            raise ValueError("A question of yes or no has no options in an order: there is nothing to repair.")
        super().check(student, trainset, valset)

    def rules(self, problem: Problem) -> list[Rule]:
        """Return the rule of less order bias."""
        return [OrderRule(seed=self.seed)]

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge with every repair that can be made."""
        bare = self.repaired(problem.student)
        free = self.by_place(bare, problem.lm, [dspy.Example(source=CONTENT_FREE, output=CONTENT_FREE)])
        contextual = tuple(batch_offsets(free[:, :1]).tolist())
        repairs = {
            "both orders averaged": Repair(True),
            "contextual prior": Repair(False, contextual),
            "batch prior": Repair(False, tuple(batch_offsets(self.by_place(bare, problem.lm, problem.fit)).tolist())),
            "both orders and contextual prior": Repair(True, contextual),
        }
        return [
            Candidate(name, self.repaired(bare, repair))
            for name, repair in repairs.items()
            if not np.isnan(repair.offsets).any()  # a level without probability has no prior
        ]

    def repaired(self, judge: PointwiseJudge, repair: Repair | None = None) -> PointwiseJudge:
        """Return the judge with a repair, or none."""
        judge = judge.deepcopy()
        judge.repair = repair
        return judge

    def by_place(self, judge: PointwiseJudge, lm: Any, examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (n, 2, c) log-probabilities by the place of a level, as declared and reversed; NaN if undefined."""
        sides = [judge.batch(examples, lm=model) for model in (lm, ReversedOptions(lm))]
        p = np.array([[list(one.distribution.values()) for one in side] for side in sides])  # (2, n, c) by level
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.stack([p[0], p[1][:, ::-1]], axis=1)))

    def answers(self, problem: Problem, program: PointwiseJudge, examples: Sequence[dspy.Example]) -> Judged:
        """Have a judge score examples, also with the levels reversed, repaired as it is."""
        judged = judge_examples(program, examples, lm=problem.lm, progress=self.progress)
        turned = ReversedOptions(program.measuring(problem.lm))
        again = [p.score for p in self.repaired(program).batch(examples, lm=turned, progress=self.progress)]
        return replace(judged, covariates={**judged.covariates, ORDER: np.array(again, dtype=np.float64)})
