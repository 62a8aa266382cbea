"""Rule by which a pointwise judge has less likelihood bias than the given one, at no loss of performance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from evalbias.evaluation.estimates import N_RESAMPLES, Estimate, clusters_of, estimate_value, estimates_of
from evalbias.evaluation.formatting import p_equals
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.evaluation.likelihood import LikelihoodBias
from evalbias.measures import bootstrap_ci, paired_permutation_test, performance_statistic
from evalbias.measures.arrays import FloatArray
from evalbias.measures.family_wise import nonzero, smaller_in_magnitude
from evalbias.optimizers.likelihood_objective import Objective, objective_of
from evalbias.optimizers.selection import LEVEL

PERFORMANCE = "performance"
LOSS = 0.05
"""Level of the one-sided tests that the performance falls, and that it does not fall by more than the margin."""
MARGIN = 0.1
"""Fall in performance (Spearman's rho) that the held-back items must rule out, where no loss is allowed."""
DRAWS = 5_000
"""Draws of the errors of all judges' biases, from which the adjusted p-values are read."""


class OnHeldBack:
    """Measurements of the rules of choice on the held-back items: likelihood bias and performance.

    Args:
        judge: Function from a judge to its answers on the held-back items.
        held_back: Number of held-back items, the last ones of all answers; None where all items are.
        n_resamples: Swaps of the permutation test of the performance.
        seed: Seed for tests and intervals.
    """

    def __init__(
        self, judge: Callable[[Any], Judged], *, held_back: int | None = None, n_resamples: int, seed: int
    ) -> None:
        self._judge, self._held_back, self.n_resamples, self.seed = judge, held_back, n_resamples, seed
        self.objective: Objective | None = None

    def answers(self, program: Any) -> Judged:
        """Judge the held-back items."""
        judged = self._judge(program)
        self.objective = self.objective or objective_of(judged, seed=self.seed)
        return judged

    def undefined(self, answers: Judged, given: Judged) -> int:
        """Return the number of items that it leaves without a score beyond those of the given judge."""
        return int(np.isnan(answers.answers).sum()) - int(np.isnan(last_items(given, len(answers.ids)).answers).sum())

    def estimates(self, answers: Judged) -> dict[str, Estimate]:
        """Return the likelihood bias, the published BiasScore, and the performance."""
        objective = self.objective_for(answers)
        samples = LikelihoodBias().samples(answers)
        shown = {name: samples[name] for name in ("bias_score", PERFORMANCE)}
        others = estimates_of(shown, seed=self.seed, clusters=clusters_of(answers))
        return {objective.name: objective.estimate(answers), **others}

    def performance(self, answers: Judged) -> Estimate:
        """Return the performance alone, with its interval."""
        sample = LikelihoodBias().samples(answers)[PERFORMANCE]
        return estimates_of({PERFORMANCE: sample}, seed=self.seed, clusters=clusters_of(answers))[PERFORMANCE]

    def size_and_performance(self, answers: Judged) -> tuple[float, float]:
        """Return the magnitude of the bias, and the performance, on the held-back items."""
        compared = self.compared(answers)
        performance = estimate_value(LikelihoodBias().samples(compared)[PERFORMANCE])
        return abs(self.objective_for(answers).value(compared)), performance

    def tested_in_families(
        self, answers: Sequence[Judged], given: Judged, test: Callable[[list[Judged]], FloatArray]
    ) -> FloatArray:
        """Test the judges of the same items together, each family with the given judge's answers to them.

        Args:
            answers: Answers of m judges, each to the last items of those that the given judge answered.
            given: Answers of the given judge.
            test: Function from the given judge's answers and the family's to the family's adjusted p-values.

        Returns:
            (m,) p-values; several families share the level equally, so theirs may be above 1.
        """
        sizes, adjusted = [len(one.ids) for one in answers], np.empty(len(answers))
        for size in set(sizes):
            family = [index for index, own in enumerate(sizes) if own == size]
            adjusted[family] = test([last_items(given, size), *(answers[index] for index in family)])
        return adjusted * len(set(sizes))

    def compared(self, answers: Judged) -> Judged:
        """Return the answers to the held-back items."""
        return answers if self._held_back is None else last_items(answers, self._held_back)

    def objective_for(self, judged: Judged) -> Objective:
        """Return the number for the bias that these items allow."""
        return self.objective or objective_of(judged, seed=self.seed)


class LikelihoodRule(OnHeldBack):
    """A judge is better if its likelihood bias is significantly smaller, and its performance is not lower.

    A bias is significantly smaller if two tests say so. The given judge's bias must differ from 0, two-sided; where it
    does not, nothing is shown to be smaller. Then every judge's magnitude is compared with the given one's, one-sided,
    adjusted for all of them by the step-down max-T procedure (``smaller_in_magnitude``): biases that move together,
    such as those of one calibration at several strengths, cost hardly more than one test. Judges measured on different
    items (cross-fitted ones on all rated training items, others on the held-back ones) are families of their own, which
    share the level equally. The chance that any judge passes whose bias is no smaller is at most ``level``; the
    other half of 5 % is left to ``AgreementRule``.

    Not lower means two things: the performance is not significantly lower, and the items rule out that it is lower by
    more than ``MARGIN`` (non-inferiority), because a few items show no significant loss of anything. If the scores of
    two judges hardly differ, the smallest loss is significant, such as .40 to .39: with ``max_loss``, a user says what
    the smaller bias may cost, and only the second demand counts, with this margin.

    Of several such judges, the one that agrees best with people is taken among those whose bias is within one standard
    error of the smallest (``Rule``): below that, a smaller bias is mostly luck.

    Args:
        judge: See ``OnHeldBack``.
        held_back: See ``OnHeldBack``.
        max_loss: Fall in performance that is allowed, and that the items must rule out to be exceeded; 0 allows no
            significant loss.
        n_resamples: See ``OnHeldBack``.
        seed: See ``OnHeldBack``.
    """

    level = LEVEL / 2

    def __init__(
        self,
        judge: Callable[[Any], Judged],
        *,
        held_back: int | None = None,
        max_loss: float = 0.0,
        n_resamples: int,
        seed: int,
    ) -> None:
        super().__init__(judge, held_back=held_back, n_resamples=n_resamples, seed=seed)
        self._max_loss = max_loss
        cost = f"a loss of performance of at most {max_loss:g}" if max_loss else "no significant loss of performance"
        self.aim = f"less likelihood bias at {cost}"

    def p_values(self, answers: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the magnitude of each bias is no smaller, adjusted for all of them."""
        objective, options = self.objective_for(given), {"draws": DRAWS, "seed": self.seed}
        (bias,), errors = objective.with_errors([given], **options)
        biased = nonzero(bias, errors[:, 0])

        def smaller(judges: list[Judged]) -> FloatArray:
            return smaller_in_magnitude(*objective.with_errors(judges, **options))

        adjusted = self.tested_in_families(answers, given, smaller)
        return [float(p) for p in np.minimum(1.0, np.maximum(adjusted, biased))]  # both keep a NaN

    def loss(self, answers: Judged, given: Judged) -> str:
        """Say whether the performance falls, or may fall by more than the margin."""
        given = last_items(given, len(answers.ids))
        test = paired_permutation_test(
            performance_statistic(given.covariate(HUMAN_SCORES)),
            answers.answers,
            given.answers,
            clusters=clusters_of(given),
            n_resamples=self.n_resamples,
            seed=self.seed,
        )
        digits = 2 if abs(test.difference) >= 0.01 else 3
        fall = f"{test.statistic_b:.{digits}f} -> {test.statistic_a:.{digits}f}"
        lowest, margin = self._lowest_change(answers, given), self._max_loss or MARGIN
        if not self._max_loss and test.difference < 0 and test.p_value / 2 < LOSS:
            lost = f"loses performance ({fall}, {p_equals(test.p_value / 2)}, at worst {lowest:+.2f}"
            return f"{lost}{_allowance(lowest)})"
        if not lowest > -margin:  # NaN is not above
            return f"may lose more than {margin:g} of performance ({fall}, change at worst {lowest:+.2f})"
        return ""

    def _lowest_change(self, answers: Judged, given: Judged) -> float:
        """Return the lower end of the one-sided 95 % interval of the change in performance."""
        statistic = performance_statistic(given.covariate(HUMAN_SCORES))

        def change(before: FloatArray, after: FloatArray, *references: FloatArray) -> FloatArray:
            return np.asarray(statistic.rows(after, *references) - statistic.rows(before, *references))

        arrays = (given.answers, answers.answers, *statistic.references)
        found = bootstrap_ci(
            change,
            *arrays,
            clusters=clusters_of(given),
            method="percentile",
            n_resamples=N_RESAMPLES,
            confidence=1 - 2 * LOSS,
            seed=self.seed,
        )
        return found.low

    def error(self, answers: Judged) -> float:
        """Return the standard error of the bias on the held-back items."""
        return standard_error(self.objective_for(answers).estimate(self.compared(answers)))

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return the magnitude of the bias, and minus the performance, on the held-back items."""
        size, performance = self.size_and_performance(answers)
        return size, -performance


def _allowance(lowest: float) -> str:
    """Name the option that allows a significant loss which is small at worst; empty where it may be large."""
    if not -MARGIN < lowest < 0:  # NaN is not between
        return ""
    allowed = math.floor(1 - 100 * lowest) / 100  # the least of two digits that the loss does not reach
    return f"; max_loss={allowed:g}, --max-loss {allowed:g}, would allow it"


def standard_error(estimate: Estimate) -> float:
    """Return the standard error that the interval of an estimate stands for."""
    return float((estimate.high - estimate.low) / (2 * scipy.stats.norm.ppf(0.975)))


def last_items(judged: Judged, items: int) -> Judged:
    """Return the answers to the last items."""
    return judged if items == len(judged.ids) else judged.take(np.arange(len(judged.ids) - items, len(judged.ids)))
