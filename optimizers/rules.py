"""The rules of a choice: which number must be better than the given program's, and which must not get worse.

The numbers are the agreement with people and biases, with errors that tell judges apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy

from evalbias.evaluation.agreement import choices_of
from evalbias.evaluation.bias import MARGINS
from evalbias.evaluation.biases import BIASES, Likelihood
from evalbias.evaluation.estimates import Estimate, Number
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.words import ends, p_equals, signed
from evalbias.measures import EqualQuality, Interval, estimate_mean, pearson
from evalbias.measures.agreement import counted_kappa, counted_pearson, estimate_pearson, estimate_tied_accuracy
from evalbias.measures.arrays import FloatArray, cluster_codes, complete, defined, mean_of_defined
from evalbias.measures.equal_quality import CHOICES, RELIABILITIES, SCORE_SD, effects_on_judges
from evalbias.measures.families import higher_than_first, nonzero, smaller_in_magnitude
from evalbias.measures.likelihood import counted_bias_score
from evalbias.measures.resample import Draws, Statistic, bootstrapped, estimate_coefficient, influences, left_out, mean
from evalbias.programs.items import length_feature

CHOICE_LEVEL = 0.05  # chance that any candidate passes the test that it is better, where none is (family-wise error)
ERROR_LEVEL = 0.01  # part of it that is left to scores nearer to people's
LOSS = 0.05  # level of the one-sided tests that a number that should stay gets worse
# Level of the further test of a bias, in points of quality. Simulated on 120 items, it lets pass candidates that owe
# likelihood as much as the given judge (.3 points) and have less noise: they were called more biased in 47 %, now in 2.
# Of those that owe it .4 points instead of .1, 62 % are still called so (64 before).
PER_POINT = 0.2
SLIGHT = 0.02  # fall in agreement that two lines, one fitted to each half of the items, may cause between them
# Agreement is Pearson's correlation where a bias should fall: a correction breaks ties, which moves ranks.
LOSS_MARGIN = 0.1  # fall in agreement (Pearson's r) that held-back items must rule out where no loss is allowed
RISE = MARGINS[SCORE_SD]  # rise in the likelihood bias that the items must rule out: what an audit calls worth finding
ERROR_DRAWS = 5_000  # draws of the errors of all judges' numbers, from which the adjusted p-values are read

Errors = tuple[FloatArray, FloatArray]
"""(s,) numbers of judges, NaN where undefined, and (draws, s) joint draws of how far they may err together."""


def undefined(judges: Sequence[Judged]) -> Errors:
    """Return numbers that are not defined."""
    return np.full(len(judges), np.nan), np.full((ERROR_DRAWS, len(judges)), np.nan)


def drawn_errors(influence: FloatArray, seed: int) -> FloatArray:
    """Draw (draws, s) errors of s numbers from the multivariate t of the jackknife's influences (inputs, s)."""
    rng, inputs = np.random.default_rng(seed), len(influence)
    normal = rng.standard_normal((ERROR_DRAWS, inputs)) @ influence
    return np.asarray(normal / np.sqrt(rng.chisquare(inputs - 1, size=(ERROR_DRAWS, 1)) / (inputs - 1)))


def jackknifed(
    statistic: Statistic, judges: Sequence[Judged], columns: Sequence[FloatArray], *shared: FloatArray, seed: int
) -> Errors:
    """Measure a statistic of each judge's column (n,) and what all share, on the items that define all of them.

    The errors are those of the jackknife over inputs; all is NaN for fewer than two inputs.
    """
    kept, codes = complete(*columns, *shared, clusters=judges[0].clusters)
    if len(np.unique(codes)) < 2:
        return undefined(judges)
    counts, shared = np.concatenate([np.ones((1, len(codes))), *left_out(codes)]), tuple(kept[len(columns) :])
    values = np.column_stack([statistic(counts, x, *shared) for x in kept[: len(columns)]])
    return values[0], drawn_errors(influences(values[1:]), seed)


# How a judge agrees with people, as one number: of scores, of verdicts, of comparisons.


@dataclass(frozen=True)
class AgreementMeasure:
    """A measure of agreement: a statistic of a judge's answers x and people's y, (n,) each; higher is better."""

    name: str
    label: str
    counted: Statistic  # f(counts (k, n), x, y) -> (k,)
    columns: Callable[[Judged], tuple[FloatArray, FloatArray]]

    def value(self, judged: Judged) -> float:
        """Compute the agreement on the items that define it; NaN without any."""
        (x, y), _ = complete(*self.columns(judged), clusters=judged.clusters)
        return float(self.counted(np.ones((1, len(x))), x, y)[0]) if len(x) > 1 else float("nan")

    def estimate(self, judged: Judged, seed: int) -> Estimate:
        """Estimate it with the jackknife's 95 % interval over inputs."""
        x, y = self.columns(judged)
        draws = Draws(seed=seed, swaps=0)
        interval = estimate_coefficient(self.counted, x, y, clusters=judged.clusters, draws=draws)
        interval = replace(interval, undefined=len(x) - interval.n)
        return Estimate.of(interval, self.name, self.label, signed=self is not ACCURACY)

    def within(self, first: int) -> AgreementMeasure:
        """Measure within the first items and within the others: halves read along two lines differ in their means."""
        return replace(self, columns=lambda judged: _deviations(*self.columns(judged), first))

    def from_chance(self) -> AgreementMeasure:
        """Measure by how much answers agree beyond chance: 0 where they never differ, which has no correlation."""
        return replace(self, counted=lambda *columns: np.nan_to_num(self.counted(*columns)))

    def errors(self, judges: Sequence[Judged], seed: int) -> Errors:
        """Measure judges' agreement on the items that all of them answered, with draws of the errors."""
        columns = [self.columns(judged) for judged in judges]
        return jackknifed(self.counted, judges, [x for x, _ in columns], columns[0][1], seed=seed)


def _deviations(x: FloatArray, y: FloatArray, first: int) -> tuple[FloatArray, FloatArray]:
    answered, half = defined(x, y), np.arange(len(x)) < first
    for side in (answered & half, answered & ~half):
        x, y = (np.where(side, values - mean_of_defined(values[side]), values) for values in (x, y))
    return x, y


def _scores(judged: Judged) -> tuple[FloatArray, FloatArray]:
    return judged.answers, judged.covariate(HUMAN_SCORES)


def _verdicts(judged: Judged) -> tuple[FloatArray, FloatArray]:
    """Return 1 for a pass, 0 for a failure, .5 where the raters are split in halves."""
    passed = np.where(np.isnan(judged.answers), np.nan, judged.answers >= 0.5)
    return passed, (1 + np.sign(judged.covariate(HUMAN_SCORES) - 0.5)) / 2


def _comparisons(judged: Judged) -> tuple[FloatArray, FloatArray]:
    """Return the share of the orders of a pair in which the judge chooses its first candidate, and people's choice."""
    orders = [choices_of(judged, order) for order in range(judged.answers.shape[1])]
    return np.mean(orders, axis=0), judged.preferred if judged.rated else np.full(len(judged.ids), np.nan)  # all ties


PEARSON = AgreementMeasure("pearson", "Pearson", counted_pearson, _scores)
KAPPA = AgreementMeasure("kappa", "kappa", counted_kappa, _verdicts)
ACCURACY = AgreementMeasure(
    "accuracy", "accuracy", lambda counts, x, y: mean(counts, x * y + (1 - x) * (1 - y)), _comparisons
)


def agreement_of(judged: Judged) -> AgreementMeasure:
    """Return the measure for a judge: accuracy of pairs, Cohen's kappa of pass or fail, else Pearson's correlation."""
    if judged.pairwise:
        return ACCURACY
    human = judged.covariate(HUMAN_SCORES)
    return KAPPA if judged.scale == (0, 1) and np.isin(human[~np.isnan(human)], (0, 0.5, 1)).all() else PEARSON


# Biases of several judges on the same items, with draws of their errors.


def effect_errors(
    feature: FloatArray, judges: Sequence[Judged], *, reliability: float | None, seed: int, per_point: bool = False
) -> Errors:
    """Measure the effects of a feature (n,) on judges' scores or log-odds, on the items that all of them answered.

    The errors are of the t distribution of the jackknife over inputs. All is NaN if the ratings are too few, or too
    weak, for it. For ``per_point`` see ``effects_on_judges``.
    """
    first, clusters = judges[0], judges[0].inputs or None
    model = EqualQuality(
        first.strength, first.ratings, {"feature": feature}, clusters=clusters, reliability=reliability
    )
    effect = model.effect("feature")
    if effect.weak or effect.reason:
        return undefined(judges)
    scores = np.column_stack([judged.strength for judged in judges])  # (n, s)
    effects, influence = effects_on_judges(
        feature, scores, first.ratings, clusters=clusters, reliability=reliability, per_point=per_point
    )
    return effects, drawn_errors(influence, seed)


EFFECTS = {"likelihood": LIKELIHOODS, "verbosity": LENGTHS}  # bias -> the covariate whose effect it is


def bias_errors(name: str, judges: Sequence[Judged], *, seed: int, per_point: bool = False) -> list[Errors]:
    """Measure "position" or a bias of ``EFFECTS`` of judges; one measurement for each possible reliability.

    One rating an item does not tell its reliability: the effect is then measured at the lowest and the highest.
    ValueError for another name.
    """
    first = judges[0]
    if name == "position":  # wins of the first position beyond half of the pairs, both orders averaged
        wins = [judged.first_wins.mean(axis=1) - 0.5 for judged in judges]
        return [jackknifed(mean, judges, wins, seed=seed)]
    if name not in EFFECTS:
        raise ValueError(f"The bias {name!r} is not compared: choose position, {', '.join(EFFECTS)}.")
    values = first.covariate(EFFECTS[name])
    feature = first.first_less_second(length_feature(values) if name == "verbosity" else values)
    rated = np.isfinite(first.ratings)
    reliabilities: tuple[float | None, ...] = (None,)
    if not (rated.sum(axis=1) > 1).any():
        choices = len(np.unique(first.ratings[rated])) <= 2
        reliabilities = CHOICES if choices else RELIABILITIES
    return [effect_errors(feature, judges, reliability=r, seed=seed, per_point=per_point) for r in reliabilities]


def comparable_biases(judged: Judged) -> tuple[str, ...]:
    """Return the biases that rules compare, of those that the answers can tell."""
    effects = [name for name, covariate in EFFECTS.items() if covariate in judged.covariates]
    return (*(["position"] if judged.both_orders else []), *effects)


def mean_error(judged: Judged) -> Number:
    """Return the mean absolute difference between scores and people's, in points."""
    gaps = np.abs(judged.answers - judged.covariate(HUMAN_SCORES))
    return Number("error", "mean error", gaps, estimate_mean, signed=False)


# The given judge beside others that answered the same items, which are its last ones.


def last_items(judged: Judged, items: int) -> Judged:
    """Return the answers to the last items."""
    return judged if items == len(judged.ids) else judged.take(np.arange(len(judged.ids) - items, len(judged.ids)))


def in_families(
    judged: Sequence[Judged],
    before: Judged,
    errors: Callable[[Sequence[Judged]], Errors],
    test: Callable[[FloatArray, FloatArray], FloatArray],
) -> list[float]:
    """Return the p-values of judges; ``test`` compares the first number, the given judge's, with those of a family.

    Judges measured on different items (cross-fitted ones on all rated items, others on the held-back ones) are families
    that share the level equally.
    """
    sizes, adjusted = [len(answers.ids) for answers in judged], np.empty(len(judged))
    for size in set(sizes):
        family = [index for index, own in enumerate(sizes) if own == size]
        adjusted[family] = test(*errors([last_items(before, size), *(judged[index] for index in family)]))
    return [float(p) for p in np.minimum(1.0, adjusted * len(set(sizes)))]


def standard_error(estimate: Estimate) -> float:
    """Return the standard error that a 95 % interval stands for."""
    return float((estimate.high - estimate.low) / (2 * scipy.special.ndtri(0.975)))


# What a rule demands.

Keep = Callable[[Judged, Judged], str]
"""(candidate's answers, the given judge's to the same items) -> what it makes worse, in words; empty if nothing."""


@dataclass(kw_only=True)
class Rule:
    """Rule by which a candidate is better than the given program: one number must improve, others must stay.

    It measures answers, and runs nothing. Every candidate answers the held-back items, or more items of which those are
    the last; the given program answers all the items of any candidate, so its last answers are to the same items.
    """

    aim: str  # what is improved, in words
    # p of the paired test that each candidate is no better than the given one, adjusted for all; NaN where undefined
    p_values: Callable[[Sequence[Judged], Judged], list[float]]
    estimates: Callable[[Judged], dict[str, Estimate]]  # what a report shows
    costs: Callable[[Judged], tuple[float, ...]]  # lower is better; the first decides between those that pass
    error: Callable[[Judged], float] = lambda judged: 0.0  # standard error of the first: by what it must differ
    keeps: Sequence[Keep] = ()  # numbers that must not get worse
    level: float = CHOICE_LEVEL  # chance that any candidate passes the test, where none is better

    def loss(self, judged: Judged, before: Judged) -> str:
        """Say what a candidate makes significantly worse, such as "loses agreement"; empty if nothing."""
        before = last_items(before, len(judged.ids))
        return next(filter(None, (keep(judged, before) for keep in self.keeps)), "")


# Better agreement with people, at no larger bias.

CHANCE = (
    "agreement with people above chance (your judge answers all items alike, so its own agreement and biases are "
    "undefined and are not compared)"
)


def higher_than_chance(values: FloatArray, errors: FloatArray) -> FloatArray:
    """Test coefficients as ``higher_than_first`` does, but against 0, which is what chance agrees."""
    return higher_than_first(np.append(0.0, values[1:]), np.insert(errors[:, 1:], 0, 0.0, axis=1))


def agreement_rule(
    measure: AgreementMeasure,
    *,
    biases: Sequence[str] = (),
    level: float = CHOICE_LEVEL,
    rise: float = np.inf,
    from_chance: bool = False,
    seed: int = 0,
) -> Rule:
    """Demand that a judge agrees with people significantly better, and that no bias of it is significantly larger.

    Better is a one-sided test of the agreement (``agreement_of``), adjusted for all judges. No bias may be larger in
    magnitude, at any reliability of the ratings that these leave open, and the items must rule out that it is larger by
    more than ``rise``. A bias that is undefined has no veto. And the interval of the agreement must lie above 0: a
    change from -.05 to -.01 makes no useless judge useful. Where the given judge's answers never differ, its agreement
    and its biases are undefined, and better is better than chance (``from_chance``).
    """

    def agrees(judged: Judged, before: Judged) -> str:
        own, floor = measure.estimate(judged, seed), 0.5 if measure is ACCURACY else 0.0
        evidence = f"{own.label} {own.text()}, {ends(*map(own.text, (own.low, own.high)))}"
        return "" if own.low > floor else f"is not shown to agree with people ({evidence})"

    less = f"no larger {biases[0]} bias" if len(biases) == 1 else "no larger bias"
    return Rule(
        aim=CHANCE if from_chance else f"better agreement with people{f' at {less}' if biases else ''}",
        p_values=partial(
            in_families,
            errors=partial(measure.errors, seed=seed),
            test=higher_than_chance if from_chance else higher_than_first,
        ),
        estimates=partial(_agreement, measure=measure, seed=seed),
        costs=lambda judged: (-measure.value(judged),),
        error=lambda judged: standard_error(measure.estimate(judged, seed)),
        keeps=(partial(_larger_bias, biases=biases, rise=rise, seed=seed), agrees),
        level=level,
    )


def error_rule(measure: AgreementMeasure, *, biases: Sequence[str], seed: int) -> Rule:
    """Demand that scores are nearer to people's, and that a judge agrees with people no less.

    Nearer is a one-sided test of the mean absolute difference, adjusted for all judges. No less: the agreement is not
    significantly lower by more than ``SLIGHT``, and no bias significantly larger.
    """

    def nearness(judges: Sequence[Judged]) -> Errors:
        gaps = [-np.abs(judge.answers - judge.covariate(HUMAN_SCORES)) for judge in judges]
        return jackknifed(mean, judges, gaps, seed=seed)

    def agrees_less(judged: Judged, before: Judged) -> str:
        values, errors = measure.errors([before, judged], seed)
        lower = not np.isnan(values).any() and np.quantile(np.diff(values + errors, axis=1), 1 - LOSS) < -SLIGHT
        return f"loses agreement ({values[0]:.2f} -> {values[1]:.2f})" if lower else ""

    return Rule(
        aim="scores nearer to people's at no loss of agreement",
        p_values=partial(in_families, errors=nearness, test=higher_than_first),
        estimates=partial(_agreement, measure=measure, seed=seed),
        costs=lambda judged: (mean_error(judged).value(),),
        error=lambda judged: standard_error(mean_error(judged).estimate(judged.clusters, seed=seed)),
        keeps=(agrees_less, partial(_larger_bias, biases=biases, rise=np.inf, seed=seed)),
        level=ERROR_LEVEL,
    )


def _agreement(judged: Judged, *, measure: AgreementMeasure, seed: int) -> dict[str, Estimate]:
    """Return the agreement, and of scores how far they are from people's."""
    estimates = {measure.name: measure.estimate(judged, seed)}
    if measure.name == PEARSON.name and judged.on_peoples_scale:
        estimates["error"] = mean_error(judged).estimate(judged.clusters, seed=seed)
    return estimates


def _larger_bias(judged: Judged, before: Judged, *, biases: Sequence[str], rise: float, seed: int) -> str:
    """Say which bias is larger, or may be larger by more than ``rise``; it must be so whatever the reliability is.

    Larger: in standard deviations of the score, and probably (``PER_POINT``) in points of quality as well. Scores with
    less noise have smaller deviations, in which an effect that stays as it is looks larger. Where the given judge's
    score does not rise with quality, they decide alone.
    """
    for bias in biases:
        faults = []
        measured = (bias_errors(bias, [before, judged], seed=seed, per_point=unit) for unit in (False, True))
        for (values, errors), per_point in zip(*measured, strict=True):
            rise_of, rise_per_point = (np.diff(np.abs(x + e), axis=1) for x, e in ((values, errors), per_point))
            least, most = np.quantile(rise_of, [LOSS, 1 - LOSS])  # NaN if undefined
            least = np.fmin(least, np.quantile(rise_per_point, PER_POINT))
            change = f"{BIASES[bias].title} bias {abs(values[0]):.2f} -> {abs(values[1]):.2f} in magnitude"
            if least > 0:
                faults.append(f"is more biased ({change})")
            else:
                faults.append(f"may be more biased ({change}, change at worst {most:+.2f})" if most > rise else "")
        if all(faults):
            return faults[0]
    return ""


# Less bias, at no significant loss of agreement.


def smaller_rule(
    bias: str,
    errors: Callable[[Sequence[Judged]], Errors],
    estimate: Callable[[Judged], Estimate],
    *,
    max_loss: float,
    seed: int,
    level: float,
    estimates: Callable[[Judged], dict[str, Estimate]],
    costs: Callable[[Judged], tuple[float, ...]],
) -> Rule:
    """Demand that a bias is significantly smaller, and that the agreement with people is not lower.

    Smaller: the given judge's bias differs from 0, two-sided, and the judge's magnitude is smaller, one-sided, adjusted
    for all judges by the step-down max-T procedure, so that biases which move together, such as those of one
    calibration at several strengths, cost hardly more than one test. Not lower: neither Pearson's correlation with
    people nor the pairwise accuracy with calibrated ties is significantly lower, and the items rule out that the
    correlation is lower by more than ``LOSS_MARGIN``, because few items show no significant loss of anything. With
    ``max_loss``, a user says what a smaller bias may cost, and only the last demand counts, with this margin.
    """

    def p_values(judged: Sequence[Judged], before: Judged) -> list[float]:
        (own,), own_errors = errors([before])
        biased = nonzero(own, own_errors[:, 0])
        smaller = in_families(judged, before, errors, smaller_in_magnitude)
        return [float(np.maximum(p, biased)) for p in smaller]  # or NaN

    cost = f"a loss of agreement of at most {max_loss:g}" if max_loss else "no significant loss of agreement"
    return Rule(
        aim=f"less {bias} at {cost}",
        p_values=p_values,
        error=lambda judged: standard_error(estimate(judged)),
        keeps=(partial(lost_agreement, max_loss=max_loss, seed=seed),),
        level=level,
        estimates=estimates,
        costs=costs,
    )


def lost_agreement(judged: Judged, before: Judged, *, max_loss: float, seed: int) -> str:
    """Say whether the agreement falls, or may fall by more than the margin."""
    test, order = (_change(estimator, judged, before, seed) for estimator in (estimate_pearson, estimate_tied_accuracy))
    human = before.covariate(HUMAN_SCORES)
    common = defined(judged.answers, before.answers, human)
    old, new = (pearson(judge.answers[common], human[common]).value for judge in (before, judged))
    digits = 2 if abs(test.value) >= 0.01 else 3
    fall = f"{old:.{digits}f} -> {new:.{digits}f}"
    lowest, margin = test.low, max_loss or LOSS_MARGIN
    if not max_loss and _falls(test):
        lost = f"loses agreement ({fall}, {p_equals(test.p_value / 2)}, at worst {lowest:+.2f}"
        if not -LOSS_MARGIN < lowest < 0:  # it may be large, or NaN
            return f"{lost})"
        allowed = allowance(lowest)
        return f"{lost}; max_loss={allowed:g}, --max-loss {allowed:g}, would allow it)"
    if not max_loss and _falls(order):
        return f"orders fewer pairs as people do ({100 * order.value:+.1f} of 100, {p_equals(order.p_value / 2)})"
    if not lowest > -margin:  # NaN is not above
        return f"may lose more than {margin:g} of agreement ({fall}, change at worst {lowest:+.2f})"
    return ""


def lowest_change(judged: Judged, before: Judged, seed: int) -> float:
    """Return the lower end of the one-sided 95 % interval of the change in agreement."""
    return _change(estimate_pearson, judged, before, seed).low


def _change(measure: Callable[..., Interval], judged: Judged, before: Judged, seed: int) -> Interval:
    draws = Draws(seed=seed, confidence=1 - 2 * LOSS)
    human = before.covariate(HUMAN_SCORES)
    return measure(judged.answers, human, draws=draws, before=before.answers, clusters=before.clusters)


def allowance(lowest: float) -> float:
    """Return the least loss of two digits that a change, ``lowest`` at worst, does not reach; NaN for NaN."""
    return lowest if math.isnan(lowest) else math.floor(1 - 100 * lowest) / 100


def _falls(test: Interval) -> bool:
    return bool(test.value < 0 and test.p_value / 2 < LOSS)


# Less likelihood bias of a judge that scores, as one number.

EFFECT, BIAS_SCORE_Z = "likelihood_effect", "bias_score_z"
BIAS_LABELS = {EFFECT: "likelihood effect", BIAS_SCORE_Z: "BiasScore (z)"}
REASONS = {
    EFFECT: "the items have several ratings",
    BIAS_SCORE_Z: "the items have one rating each, which cannot tell the likelihood effect",
}
"""Number -> why it says the likelihood bias of these items."""


def bias_number(ratings: FloatArray | None) -> str:
    """Return the name of the number that says the likelihood bias of items with (n, r) single ratings, or None.

    It is the likelihood effect at equal quality where some items have several ratings, else the BiasScore of z-scores,
    which confounds noise in the ratings with bias.
    """
    several = ratings is not None and (np.isfinite(ratings).sum(axis=1) > 1).any()
    return EFFECT if several else BIAS_SCORE_Z


def likelihood_errors(name: str, judges: Sequence[Judged], *, seed: int) -> Errors:
    """Measure judges' likelihood biases; those of BiasScores are errors of the bootstrap, widened to t quantiles."""
    first = judges[0]
    ls, human = first.covariate(LIKELIHOODS), first.covariate(HUMAN_SCORES)
    if name == EFFECT:
        return effect_errors(ls, judges, reliability=None, seed=seed)
    scores = [judged.answers for judged in judges]
    kept = defined(*scores, ls, human)
    codes = cluster_codes(first.clusters, kept)
    inputs = len(set(codes.tolist()))
    if inputs < 2:
        return undefined(judges)
    ls, human, *scores = (column[kept] for column in (ls, human, *scores))

    def measured(counts: FloatArray) -> FloatArray:  # (k, s)
        return np.column_stack([counted_bias_score(counts, x, ls, human, normalization="z-score") for x in scores])

    rng, (values,) = np.random.default_rng(seed), measured(np.ones((1, len(codes))))
    resampled = np.concatenate([measured(counts) for counts in bootstrapped(codes, ERROR_DRAWS, rng)])
    errors = (resampled - values)[~np.isnan(resampled).any(axis=1)]
    return values, errors * np.sqrt(inputs / rng.chisquare(inputs - 1, size=(len(errors), 1)))


def bias_value(name: str, judged: Judged) -> float:
    """Compute a number of a judge."""
    if name != EFFECT:
        return Likelihood().number(name, judged).value()
    feature = {LIKELIHOODS: judged.covariate(LIKELIHOODS)}
    model = EqualQuality(judged.answers, judged.covariate(RATINGS), feature, clusters=judged.inputs or None)
    return model.effect(LIKELIHOODS).value  # also where ratings are too few to test


def bias_estimate(name: str, judged: Judged, seed: int) -> Estimate:
    """Estimate it with its interval."""
    estimate = Likelihood().number(name, judged).estimate(judged.clusters, seed=seed)
    return replace(estimate, value=bias_value(name, judged), label=BIAS_LABELS.get(name, estimate.label))


def likelihood_estimates(name: str, judged: Judged, seed: int) -> dict[str, Estimate]:
    """Return the likelihood bias, the published BiasScore, the agreement (Pearson) and the performance."""
    return {number: bias_estimate(number, judged, seed) for number in (name, "bias_score", "pearson", "performance")}


def likelihood_rule(name: str, *, max_loss: float = 0.0, seed: int) -> Rule:
    """Demand less likelihood bias (``bias_number``) at no loss of agreement; half of 5 % is left to ``fair_rule``."""
    return smaller_rule(
        "likelihood bias",
        partial(likelihood_errors, name, seed=seed),
        partial(bias_estimate, name, seed=seed),
        max_loss=max_loss,
        seed=seed,
        level=CHOICE_LEVEL / 2,
        estimates=partial(likelihood_estimates, name, seed=seed),
        costs=lambda judged: (abs(bias_value(name, judged)), -bias_value("pearson", judged)),
    )


def fair_rule(name: str, *, seed: int) -> Rule:
    """Demand better agreement with people, and a likelihood bias that is not larger, nor may be by ``RISE``.

    A judge may have little bias because its scores say little, and demonstrations may make it useful.
    """
    return replace(
        agreement_rule(PEARSON, biases=("likelihood",), level=CHOICE_LEVEL / 2, rise=RISE, seed=seed),
        estimates=partial(likelihood_estimates, name, seed=seed),
        costs=lambda judged: (-PEARSON.value(judged), abs(bias_value(name, judged))),
    )


def proxy_worth(judged: Judged, feature: str, name: str) -> str:
    """Say how well a feature, a covariate and its name, agrees with people by itself: what removing it costs."""
    values, human = judged.covariate(feature), judged.covariate(HUMAN_SCORES)
    r = estimate_pearson(values, human, clusters=judged.clusters)
    if not (r.low > 0 or r.high < 0):
        return f"The {name} alone is not shown to agree with people ({_pearson(r)}): removing its effect need not cost."
    return (
        f"The {name} alone agrees with people ({_pearson(r)}), so a judge that no longer follows it loses "
        "agreement, unless its scores say the same by themselves."
    )


def _pearson(r: Interval) -> str:
    return f"Pearson {signed(r.value)}, {ends(signed(r.low), signed(r.high))}"
