"""The likelihood bias of a pointwise judge as one number, the rules by it, and calibrations that take it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from evalbias.evaluation.bias import MARGINS
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged
from evalbias.evaluation.words import ends, signed
from evalbias.measures import EqualQuality, Interval, pearson
from evalbias.measures.agreement import estimate_pearson
from evalbias.measures.arrays import FloatArray, IntArray, cluster_codes, defined
from evalbias.measures.corrections import ScoreCorrection, Slope
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.likelihood import counted_bias_score
from evalbias.measures.resample import bootstrapped
from evalbias.optimizers import rules
from evalbias.optimizers.rules import CHOICE_LEVEL, PEARSON, Errors, Rule, effect_errors, smaller_rule, undefined
from evalbias.programs.pointwise import LIKELIHOOD

EFFECT, BIAS_SCORE_Z, PERFORMANCE, AGREEMENT = "likelihood_effect", "bias_score_z", "performance", "pearson"
BIAS_LABELS = {EFFECT: "likelihood effect", BIAS_SCORE_Z: "BiasScore (z)"}
REASONS = {
    EFFECT: "the items have several ratings",
    BIAS_SCORE_Z: "the items have one rating each, which cannot tell the likelihood effect",
}
"""Number -> why it says the likelihood bias of these items."""

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
        return bias_value(EFFECT, judged)
    columns = [judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)]
    ls, model, human = (column[defined(*columns)] for column in columns)
    return pearson(model, ls).value - pearson(human, ls).value


def likelihood_errors(judges: Sequence[Judged], *, seed: int) -> Errors:
    """Measure judges' likelihood effects, with draws of their errors."""
    return effect_errors(judges[0].covariate(LIKELIHOODS), judges, reliability=None, seed=seed)


def bias_score_errors(judges: Sequence[Judged], *, seed: int) -> Errors:
    """Measure judges' BiasScores of z-scores, with errors of the bootstrap, widened to t quantiles."""
    first = judges[0]
    ls, human = first.covariate(LIKELIHOODS), first.covariate(HUMAN_SCORES)
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
    resampled = np.concatenate([measured(counts) for counts in bootstrapped(codes, rules.ERROR_DRAWS, rng)])
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


def estimates(name: str, judged: Judged, seed: int) -> dict[str, Estimate]:
    """Return the likelihood bias, the published BiasScore, the agreement (Pearson) and the performance."""
    return {number: bias_estimate(number, judged, seed) for number in (name, "bias_score", AGREEMENT, PERFORMANCE)}


def likelihood_rule(name: str, *, max_loss: float = 0.0, seed: int) -> Rule:
    """Demand less likelihood bias (``bias_number``) at no loss of agreement; half of 5 % is left to ``fair_rule``."""
    return smaller_rule(
        "likelihood bias",
        partial(likelihood_errors if name == EFFECT else bias_score_errors, seed=seed),
        partial(bias_estimate, name, seed=seed),
        max_loss=max_loss,
        seed=seed,
        level=CHOICE_LEVEL / 2,
        estimates=partial(estimates, name, seed=seed),
        costs=lambda judged: (abs(bias_value(name, judged)), -bias_value(AGREEMENT, judged)),
    )


def fair_rule(name: str, *, seed: int) -> Rule:
    """Demand better agreement with people, and a likelihood bias that is not larger, nor may be by ``RISE``.

    A judge may have little bias because its scores say little, and demonstrations may make it useful.
    """
    rule = rules.agreement_rule(PEARSON, biases=("likelihood",), level=CHOICE_LEVEL / 2, rise=RISE, seed=seed)
    rule.estimates = partial(estimates, name, seed=seed)
    rule.costs = lambda judged: (-PEARSON.value(judged), abs(bias_value(name, judged)))
    return rule


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
    full = Slope(float(bias * scores.std() / ls.std()), float(ls.mean()), (float(ls.min()), float(ls.max())))
    return [ScoreCorrection({LIKELIHOOD: full}, reduction=reduction).at(strength) for strength in STRENGTHS]


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
        for row, correction in zip(scores, fit(judged.take(np.flatnonzero(~inside))), strict=False):
            row[inside] = correction(judged.answers[inside], own, scale=scale)
    return [replace(judged, answers=row) for row in scores]
