"""When a candidate judge is better: less likelihood bias, or better agreement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import scipy

from evalbias.evaluation.bias import MARGINS
from evalbias.evaluation.biases import LikelihoodBias
from evalbias.evaluation.estimates import N_RESAMPLES, Estimate, Sample, estimate_value, estimates_of
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.words import p_equals
from evalbias.measures import (
    FeatureEffect,
    bias_score_statistic,
    bootstrap_ci,
    likelihood_effect,
    paired_permutation_test,
    performance_statistic,
)
from evalbias.measures.agreement import pearson_rows
from evalbias.measures.arrays import FloatArray, defined
from evalbias.measures.corrections import LikelihoodCalibration, fit_likelihood_calibration
from evalbias.measures.equal_quality import TOO_WEAK, likelihood_effects
from evalbias.measures.families import higher_than_first, nonzero, smaller_in_magnitude
from evalbias.measures.resample import SCORE_SD, cluster_codes, drawn
from evalbias.optimizers.selection import LEVEL

# Numbers for the likelihood bias of a pointwise judge that a mitigation brings to 0.


EFFECT, BIAS_SCORE_Z = "likelihood_effect", "bias_score_z"


class Objective(Protocol):
    """A number for the likelihood bias of a judge, 0 for none.

    Attributes:
        name: Key of its estimate.
        label: Its name in words.
        because: Why it is the objective, as the end of a sentence.
    """

    name: str
    label: str
    because: str

    def value(self, judged: Judged) -> float:
        """Measure it."""
        ...

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it, with its interval."""
        ...

    def slope(self, judged: Judged) -> float:
        """Return the change in the score for one standard deviation of LS that is bias, in standard deviations."""
        ...

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure s judges on the items that all of them scored, and draw how far the numbers may err together.

        Returns:
            (s,) numbers, NaN where undefined; (draws, s) joint draws of their errors, at most so many.
        """
        ...


class Effect:
    """The likelihood effect: the slope of the score on LS at equal quality, instrumented by the single ratings."""

    name, label = EFFECT, "likelihood effect"
    because = "the items have several ratings"

    def value(self, judged: Judged) -> float:
        """Measure it; see ``Objective``."""
        return self._found(judged).effect

    def slope(self, judged: Judged) -> float:
        """Return the effect itself; see ``Objective``."""
        return self.value(judged)

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it; see ``Objective``."""
        found = self._found(judged)
        return Estimate(
            name=self.name,
            label=self.label,
            value=found.effect,
            low=found.low,
            high=found.high,
            null=0.0,
            n=found.n,
            undefined=found.undefined,
            reason=found.reason or TOO_WEAK * found.weak,
        )

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure several judges; see ``Objective``.

        The errors have the t distribution of the jackknife over inputs, as the interval of one effect. Where the
        ratings are too few or too unreliable for that (see ``FeatureEffect.weak``), the numbers are undefined.
        """
        first = self._found(judges[0])
        if first.weak or first.reason:
            return np.full(len(judges), np.nan), np.full((draws, len(judges)), np.nan)
        ls, _, ratings = self._columns(judges[0])
        scores = np.column_stack([one.answers for one in judges])
        effects, influence = likelihood_effects(ls, scores, ratings, clusters=judges[0].inputs or None)
        rng, inputs = np.random.default_rng(seed), len(influence)
        normal = rng.standard_normal((draws, inputs)) @ influence
        return effects, normal / np.sqrt(rng.chisquare(inputs - 1, size=(draws, 1)) / (inputs - 1))

    def _found(self, judged: Judged) -> FeatureEffect:
        return likelihood_effect(*self._columns(judged), clusters=judged.inputs or None)

    @staticmethod
    def _columns(judged: Judged) -> tuple[FloatArray, FloatArray, FloatArray]:
        return judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(RATINGS)


class StandardizedBiasScore:
    """BiasScore of z-scores, for items with a single rating: it confounds noise in the ratings with bias."""

    name, label = BIAS_SCORE_Z, "BiasScore (z)"
    because = "the items have one rating each, which cannot tell the likelihood effect"

    def __init__(self, *, seed: int) -> None:
        self._seed = seed

    def value(self, judged: Judged) -> float:
        """Measure it; see ``Objective``."""
        return estimate_value(self._sample(judged))

    def slope(self, judged: Judged) -> float:
        """Return by how much the score is correlated with LS more than the human score is; see ``Objective``."""
        columns = [judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)]
        ls, model, human = (column[defined(*columns)][None] for column in columns)
        return float((pearson_rows(model, ls) - pearson_rows(human, ls))[0])

    def estimate(self, judged: Judged) -> Estimate:
        """Measure it; see ``Objective``."""
        samples = {self.name: self._sample(judged)}
        return estimates_of(samples, seed=self._seed, clusters=judged.clusters)[self.name]

    def with_errors(self, judges: Sequence[Judged], *, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Measure several judges; see ``Objective``. The errors are those of the bootstrap over inputs."""
        statistic = self._sample(judges[0]).statistic
        scores = [one.answers for one in judges]
        kept = defined(*scores, *statistic.references)
        codes = cluster_codes(judges[0].clusters, kept)
        inputs = len(set(codes.tolist()))
        if inputs < 2:
            return np.full(len(judges), np.nan), np.full((draws, len(judges)), np.nan)
        part, rng = statistic.keep(kept), np.random.default_rng(seed)
        values = np.array([part(x[kept]) for x in scores])
        counts = list(drawn(codes, draws, rng))
        resampled = np.column_stack([np.concatenate([part.resampled(x[kept], c) for c in counts]) for x in scores])
        errors = (resampled - values)[~np.isnan(resampled).any(axis=1)]
        widened = np.sqrt(inputs / rng.chisquare(inputs - 1, size=(len(errors), 1)))  # to the t of ``quantiles``
        return values, errors * widened

    def _sample(self, judged: Judged) -> Sample:
        human = judged.covariate(HUMAN_SCORES)
        statistic = bias_score_statistic(judged.covariate(LIKELIHOODS), human, normalization="z-score")
        return Sample(judged.answers, statistic, self.label, null=0.0)


def objective_of(judged: Judged, *, seed: int) -> Objective:
    """Return the likelihood effect where some items have several ratings, else the standardized BiasScore."""
    ratings = judged.covariates.get(RATINGS)
    several = ratings is not None and (np.isfinite(ratings).sum(axis=1) > 1).any()
    return Effect() if several else StandardizedBiasScore(seed=seed)


# Rule by which a pointwise judge has less likelihood bias than the given one, at no loss of performance.


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
        others = estimates_of(shown, seed=self.seed, clusters=answers.clusters)
        return {objective.name: objective.estimate(answers), **others}

    def performance(self, answers: Judged) -> Estimate:
        """Return the performance alone, with its interval."""
        sample = LikelihoodBias().samples(answers)[PERFORMANCE]
        return estimates_of({PERFORMANCE: sample}, seed=self.seed, clusters=answers.clusters)[PERFORMANCE]

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
            clusters=given.clusters,
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
            clusters=given.clusters,
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


# Rule by which a pointwise judge agrees with people better than the given one, at no larger likelihood bias.


RISE = MARGINS[SCORE_SD]
"""Rise in the magnitude of the bias that the items must rule out: what an audit calls an effect worth finding."""


class AgreementRule(OnHeldBack):
    """A judge is better if it agrees with people significantly better, and its likelihood bias is not larger.

    This is the second rule of the optimizers against likelihood bias, for given judges whose bias no candidate is shown
    to lessen. Such a judge may have little bias because its scores say little, and demonstrations of the same search
    may make it useful.

    The performances are compared by one-sided permutation tests, adjusted for all judges (``higher_than_first``), in
    families as in ``LikelihoodRule``. Not larger means two things, as for the performance there: the magnitude of the
    bias is not significantly larger, and the items rule out that it is larger by more than ``RISE``. And the judge must
    agree with people at all: the interval of its performance lies above 0, because a calibration can raise -.05 to -.01
    significantly, which makes no useless judge useful. Of several such judges, the one with the smallest bias is taken
    among those whose performance is within one standard error of the best.
    """

    level = LEVEL / 2
    aim = "better agreement with people at no larger likelihood bias"

    def p_values(self, answers: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the performance of each is no higher, adjusted for all of them."""

        def higher(judges: list[Judged]) -> FloatArray:
            return higher_than_first(
                performance_statistic(judges[0].covariate(HUMAN_SCORES)),
                [one.answers for one in judges],
                clusters=judges[0].clusters,
                n_resamples=self.n_resamples,
                seed=self.seed,
            )

        return [float(p) for p in np.minimum(1.0, self.tested_in_families(answers, given, higher))]

    def loss(self, answers: Judged, given: Judged) -> str:
        """Say whether the bias is larger, or may be larger by more than ``RISE``, or no agreement is shown."""
        objective, judges = self.objective_for(given), [last_items(given, len(answers.ids)), answers]
        values, errors = objective.with_errors(judges, draws=DRAWS, seed=self.seed)
        if np.isnan(values).any():
            return f"may be more biased: the {objective.label} is undefined"
        before, after = np.abs(values)
        least, most = np.quantile(np.diff(np.abs(values + errors), axis=1), [LOSS, 1 - LOSS])
        rise = f"{objective.label} {before:.2f} -> {after:.2f} in magnitude"
        if least > 0:
            return f"is more biased ({rise})"
        if most > RISE:
            return f"may be more biased ({rise}, change at worst {most:+.2f})"
        performance = self.performance(answers)
        shown = f"performance {performance.text()}, {performance.interval}"
        return "" if performance.low > 0 else f"is not shown to agree with people ({shown})"

    def error(self, answers: Judged) -> float:
        """Return the standard error of the performance on the held-back items."""
        return standard_error(self.performance(self.compared(answers)))

    def costs(self, answers: Judged) -> tuple[float, ...]:
        """Return minus the performance, and the magnitude of the bias, on the held-back items."""
        size, performance = self.size_and_performance(answers)
        return -performance, size


# Likelihood calibrations that all rated items can test: each item is corrected by what other inputs tell.


FOLDS = 10
"""Parts of the inputs; each is corrected by a calibration that was fitted on the others."""


def fitted(judged: Judged, slope: Callable[[Judged], float], *, reduction: str) -> LikelihoodCalibration | None:
    """Fit a likelihood calibration.

    Args:
        judged: Scores of a judge without a calibration, with LS.
        slope: Function from a judge's answers to the bias in its scores; see ``Objective.slope``.
        reduction: Reduction by which LS was computed.

    Returns:
        The calibration at full strength; None where the bias is undefined.
    """
    bias = slope(judged)
    if np.isnan(bias):
        return None
    return fit_likelihood_calibration(judged.covariate(LIKELIHOODS), judged.answers, bias, reduction=reduction)


def cross_fitted(
    judged: Judged,
    strengths: Sequence[float],
    slope: Callable[[Judged], float],
    *,
    reduction: str,
    scale: tuple[float, float],
    seed: int,
) -> list[Judged]:
    """Calibrate scores by fits on other inputs.

    These are the answers that the calibration would give to new items, so they may be tested on the items it is fitted
    on. The test of their bias holds all the same that the folds' slopes come from the same items: it asks whether the
    judge's bias exceeds half of what is subtracted, which one interval of that bias answers for any subtraction.

    Args:
        judged: Scores of a judge without a calibration, with LS.
        strengths: Parts of the bias to subtract, in [0, 1].
        slope: See ``fitted``.
        reduction: See ``fitted``.
        scale: Lowest and highest score.
        seed: Seed for the folds.

    Returns:
        The corrected answers at every strength; NaN in a fold whose calibration is undefined.
    """
    keys = judged.inputs or judged.ids
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))
    fold_of = {inputs[place]: rank % FOLDS for rank, place in enumerate(order)}
    folds = np.array([fold_of[key] for key in keys])
    scores = np.full((len(strengths), len(keys)), np.nan)
    for fold in range(min(FOLDS, len(inputs))):
        inside = folds == fold
        calibration = fitted(judged.take(np.flatnonzero(~inside)), slope, reduction=reduction)
        if calibration is not None:
            ls = judged.covariate(LIKELIHOODS)[inside]
            for row, strength in zip(scores, strengths, strict=True):
                row[inside] = calibration.at(strength)(judged.answers[inside], ls, scale=scale)
    return [replace(judged, answers=row) for row in scores]
