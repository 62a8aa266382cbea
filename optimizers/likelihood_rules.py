"""The likelihood bias of a pointwise judge as one number, and the two rules by which a candidate judge is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalbias.evaluation.bias import MARGINS
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.words import ends, p_equals, signed
from evalbias.measures import EqualQuality, Interval, pearson
from evalbias.measures.agreement import estimate_pearson, estimate_tied_accuracy
from evalbias.measures.arrays import FloatArray, IntArray, cluster_codes, defined
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.families import nonzero, smaller_in_magnitude
from evalbias.measures.likelihood import counted_bias_score
from evalbias.measures.resample import Draws, bootstrapped
from evalbias.optimizers import agreement
from evalbias.optimizers.selection import CHOICE_LEVEL, Rule, last_items
from evalbias.programs.pointwise import LIKELIHOOD

EFFECT, BIAS_SCORE_Z, PERFORMANCE, AGREEMENT = "likelihood_effect", "bias_score_z", "performance", "pearson"
BIAS_LABELS = {EFFECT: "likelihood effect", BIAS_SCORE_Z: "BiasScore (z)"}
REASONS = {
    EFFECT: "the items have several ratings",
    BIAS_SCORE_Z: "the items have one rating each, which cannot tell the likelihood effect",
}
"""Number -> why it says the likelihood bias of these items."""

# Agreement with people is Pearson's correlation here: a correction breaks the ties of coarse scores, which moves ranks.
LOSS_MARGIN = 0.1  # fall in agreement (Pearson's r) that held-back items must rule out where no loss is allowed
RISE = MARGINS[SCORE_SD]  # rise in the bias that the items must rule out: what an audit calls worth finding
FOLDS = 10  # parts of the inputs; each is corrected by a calibration that was fitted on the others
STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # parts of a bias that corrections subtract

# The number that a mitigation brings to 0.


def bias_number(ratings: FloatArray | None) -> str:
    """Return the name of the number that says the likelihood bias of items with (n, r) single ratings, or None.

    It is the likelihood effect at equal quality where some items have several ratings, else the BiasScore of z-scores,
    which confounds noise in the ratings with bias.
    """
    several = ratings is not None and (np.isfinite(ratings).sum(axis=1) > 1).any()
    return EFFECT if several else BIAS_SCORE_Z


def slope(name: str, judged: Judged) -> float:
    """Return the change in the score for one standard deviation of LS that is bias, in standard deviations."""
    if name == EFFECT:
        return _value(EFFECT, judged)
    columns = [judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)]
    ls, model, human = (column[defined(*columns)] for column in columns)
    return pearson(model, ls).value - pearson(human, ls).value


def bias_score_errors(judges: Sequence[Judged], *, seed: int) -> agreement.Errors:
    """Measure judges' BiasScores of z-scores, with errors of the bootstrap, widened to t quantiles."""
    first = judges[0]
    given, scores = [first.covariate(name) for name in (LIKELIHOODS, HUMAN_SCORES)], [one.answers for one in judges]
    kept = defined(*scores, *given)
    codes = cluster_codes(first.clusters, kept)
    inputs = len(set(codes.tolist()))
    if inputs < 2:
        return agreement.undefined(judges)
    (ls, human), scores = ([column[kept] for column in columns] for columns in (given, scores))

    def measured(counts: FloatArray) -> FloatArray:  # (k, s)
        return np.column_stack([counted_bias_score(counts, x, ls, human, normalization="z-score") for x in scores])

    rng, (values,) = np.random.default_rng(seed), measured(np.ones((1, len(codes))))
    resampled = np.concatenate([measured(counts) for counts in bootstrapped(codes, agreement.ERROR_DRAWS, rng)])
    errors = (resampled - values)[~np.isnan(resampled).any(axis=1)]
    return values, errors * np.sqrt(inputs / rng.chisquare(inputs - 1, size=(len(errors), 1)))


def _value(name: str, judged: Judged) -> float:
    if name != EFFECT:
        return Likelihood().number(name, judged).value()
    known = {LIKELIHOODS: judged.covariate(LIKELIHOODS)}
    model = EqualQuality(judged.answers, judged.covariate(RATINGS), known, clusters=judged.inputs or None)
    return model.effect(LIKELIHOODS).value  # also where ratings are too few to test


def _estimate(name: str, judged: Judged, seed: int) -> Estimate:
    estimate = Likelihood().number(name, judged).estimate(judged.clusters, seed=seed)
    return replace(estimate, value=_value(name, judged), label=BIAS_LABELS.get(name, estimate.label))


def proxy_worth(judged: Judged, feature: str, name: str) -> str:
    """Say how well a feature, a covariate and its name, agrees with people by itself: what removing it costs."""
    values, human = judged.covariate(feature), judged.covariate(HUMAN_SCORES)
    r = estimate_pearson(values, human, clusters=judged.clusters)
    if not (r.low > 0 or r.high < 0):
        return f"The {name} alone is not shown to agree with people ({_shown(r)}): removing its effect need not cost."
    return (
        f"The {name} alone agrees with people ({_shown(r)}), so a judge that no longer follows it loses "
        "agreement, unless its scores say the same by themselves."
    )


def _shown(r: Interval) -> str:
    return f"Pearson {signed(r.value)}, {ends(signed(r.low), signed(r.high))}"


def estimates(name: str, judged: Judged, seed: int) -> dict[str, Estimate]:
    """Return the likelihood bias, the published BiasScore, the agreement (Pearson) and the performance."""
    return {one: _estimate(one, judged, seed) for one in (name, "bias_score", AGREEMENT, PERFORMANCE)}


class LikelihoodRule(Rule):
    """A judge is better if its likelihood bias is significantly smaller, and its agreement with people is not lower.

    Smaller: the given judge's bias differs from 0, two-sided, and the judge's magnitude is smaller, one-sided, adjusted
    for all judges. The chance that any judge passes whose bias is no smaller is at most ``level``; the other half of
    5 % is left to ``FairAgreementRule``. Not lower: neither Pearson's correlation with people nor the pairwise accuracy
    with calibrated ties is significantly lower, and the items rule out that the correlation is lower by more than
    ``LOSS_MARGIN``, because few items show no significant loss of anything. With ``max_loss``, a user says what a
    smaller bias may cost, and only the last demand counts, with this margin.
    """

    level = CHOICE_LEVEL / 2

    def __init__(self, name: str, *, max_loss: float = 0.0, seed: int) -> None:
        self.name, self.max_loss, self.seed = name, max_loss, seed
        cost = f"a loss of agreement of at most {max_loss:g}" if max_loss else "no significant loss of agreement"
        self.aim = f"less likelihood bias at {cost}"

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        """Return the likelihood bias, the published BiasScore, the agreement (Pearson) and the performance."""
        return estimates(self.name, judged, self.seed)

    def errors(self, judges: Sequence[Judged]) -> agreement.Errors:
        """Return the biases of judges, with draws of their errors."""
        if self.name == EFFECT:
            likelihoods = judges[0].covariate(LIKELIHOODS)
            return agreement.effect_errors(likelihoods, judges, reliability=None, seed=self.seed)
        return bias_score_errors(judges, seed=self.seed)

    def bias(self, judged: Judged) -> Estimate:
        """Return the bias with its interval."""
        return _estimate(self.name, judged, self.seed)

    def p_values(self, judged: Sequence[Judged], given: Judged) -> list[float]:
        """Return the p that the magnitude of each bias is no smaller, adjusted for all of them.

        The step-down max-T procedure makes biases that move together, such as those of one calibration at several
        strengths, cost hardly more than one test.
        """
        (bias,), errors = self.errors([given])
        biased = nonzero(bias, errors[:, 0])

        def smaller(judges: list[Judged]) -> FloatArray:
            return smaller_in_magnitude(*self.errors(judges))

        adjusted = agreement.in_families(judged, given, smaller)
        return [float(p) for p in np.minimum(1.0, np.maximum(adjusted, biased))]  # keep NaN

    def loss(self, judged: Judged, given: Judged) -> str:
        """Say whether the agreement falls, or may fall by more than the margin."""
        given = last_items(given, len(judged.ids))
        test, order = (self._change(one, judged, given) for one in (estimate_pearson, estimate_tied_accuracy))
        human = given.covariate(HUMAN_SCORES)
        common = defined(judged.answers, given.answers, human)
        before, after = (pearson(one.answers[common], human[common]).value for one in (given, judged))
        digits = 2 if abs(test.value) >= 0.01 else 3
        fall = f"{before:.{digits}f} -> {after:.{digits}f}"
        lowest, margin = test.low, self.max_loss or LOSS_MARGIN
        if not self.max_loss and _falls(test):
            lost = f"loses agreement ({fall}, {p_equals(test.p_value / 2)}, at worst {lowest:+.2f}"
            if not -LOSS_MARGIN < lowest < 0:  # it may be large, or NaN
                return f"{lost})"
            allowed = allowance(lowest)
            return f"{lost}; max_loss={allowed:g}, --max-loss {allowed:g}, would allow it)"
        if not self.max_loss and _falls(order):
            return f"orders fewer pairs as people do ({100 * order.value:+.1f} of 100, {p_equals(order.p_value / 2)})"
        if not lowest > -margin:  # NaN is not above
            return f"may lose more than {margin:g} of agreement ({fall}, change at worst {lowest:+.2f})"
        return ""

    def lowest_change(self, judged: Judged, given: Judged) -> float:
        """Return the lower end of the one-sided 95 % interval of the change in agreement."""
        return self._change(estimate_pearson, judged, given).low

    def _change(self, measure: Callable[..., Interval], judged: Judged, given: Judged) -> Interval:
        how: dict[str, Any] = {"before": given.answers, "clusters": given.clusters}
        draws = Draws(seed=self.seed, confidence=1 - 2 * agreement.LOSS)
        return measure(judged.answers, given.covariate(HUMAN_SCORES), draws=draws, **how)

    def error(self, judged: Judged) -> float:
        return agreement.standard_error(self.bias(judged))

    def costs(self, judged: Judged) -> tuple[float, ...]:
        return abs(_value(self.name, judged)), -_value(AGREEMENT, judged)


def allowance(lowest: float) -> float:
    """Return the least loss of two digits that a change, ``lowest`` at worst, does not reach; NaN for NaN."""
    return lowest if math.isnan(lowest) else math.floor(1 - 100 * lowest) / 100


def _falls(test: Interval) -> bool:
    return bool(test.value < 0 and test.p_value / 2 < agreement.LOSS)


class FairAgreementRule(agreement.AgreementRule):
    """A judge is better if it agrees with people significantly better, and its likelihood bias is not larger.

    A judge may have little bias because its scores say little, and demonstrations may make it useful. Not larger also
    means that the items rule out a rise by more than ``RISE``, where the effect is defined.
    """

    level = CHOICE_LEVEL / 2

    def __init__(self, name: str, *, seed: int) -> None:
        super().__init__(agreement.PEARSON, biases=("likelihood",), level=self.level, rise=RISE, seed=seed)
        self.name = name

    def estimates(self, judged: Judged) -> dict[str, Estimate]:
        """Return the same numbers as ``LikelihoodRule``."""
        return estimates(self.name, judged, self.seed)

    def costs(self, judged: Judged) -> tuple[float, ...]:
        return (*super().costs(judged), abs(_value(self.name, judged)))


# Likelihood calibrations that all rated items can test: each item is corrected by what other inputs tell.


def fitted(judged: Judged, name: str, *, reduction: str) -> list[ScoreCorrection]:
    """Fit a likelihood calibration at every strength to scores of a judge without one; none if the bias is undefined.

    ``name`` is the number that says the bias (``bias_number``), ``reduction`` that by which LS was computed.
    """
    bias = slope(name, judged)
    if np.isnan(bias):
        return []
    kept = defined(judged.covariate(LIKELIHOODS), judged.answers)
    ls, scores = judged.covariate(LIKELIHOODS)[kept], judged.answers[kept]
    one = Slope(float(bias * scores.std() / ls.std()), float(ls.mean()), (float(ls.min()), float(ls.max())))
    return [ScoreCorrection({LIKELIHOOD: one}, reduction=reduction).at(strength) for strength in STRENGTHS]


def folds_of(judged: Judged, seed: int) -> IntArray:
    """Draw (n,) the fold of each item, of ten; the items of one input share it."""
    keys = judged.inputs or judged.ids
    inputs = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(inputs))
    fold_of = {inputs[place]: rank % FOLDS for rank, place in enumerate(order)}
    return np.array([fold_of[key] for key in keys])


def cross_fitted(
    judged: Judged,
    features: Mapping[str, FloatArray],
    fit: Callable[[Judged], Sequence[Callable[..., FloatArray]]],
    *,
    scale: tuple[float, float] = (-math.inf, math.inf),
    seed: int,
) -> list[Judged]:
    """Return the answers at every strength, corrected by fits on other inputs (ten folds); NaN in a fold without a fit.

    These are the answers that the corrections would give to new items, so they may be tested on the items they are
    fitted to: whether the bias exceeds half of what is subtracted, one interval of the bias answers for any
    subtraction. ``fit`` returns at most one correction for each of ``STRENGTHS``, and ``features`` (n,) are what these
    correct for; those that no fold has are NaN throughout.
    """
    folds = folds_of(judged, seed)
    scores = np.full((len(STRENGTHS), len(folds)), np.nan)
    for fold in np.unique(folds):
        inside = folds == fold
        own = {name: values[inside] for name, values in features.items()}
        for row, one in zip(scores, fit(judged.take(np.flatnonzero(~inside))), strict=False):
            row[inside] = one(judged.answers[inside], own, scale=scale)
    return [replace(judged, answers=row) for row in scores]
