"""The biases, one class each, and their registry."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement
from evalbias.evaluation.estimates import Bias, Measurement, Number, measure
from evalbias.evaluation.judged import (
    BETTER,
    EXPECTED,
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    QUALITY,
    RATINGS,
    Judged,
)
from evalbias.measures import (
    decision_shares,
    estimate,
    estimate_bias_score,
    estimate_fairness,
    estimate_first_rate,
    estimate_mean,
    estimate_share,
    estimate_skewness,
    estimate_spearman,
    longer_wins,
    negative_entropies,
    quality_slope,
    win_shares,
)
from evalbias.measures.agreement import counted_spearman
from evalbias.measures.arrays import FloatArray
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.equal_quality import FeatureEffect
from evalbias.measures.loops import differences
from evalbias.measures.pairs import (
    counted_fairness,
    counted_odds,
    estimate_balanced_rate,
    estimate_gap,
    over_orders,
)
from evalbias.measures.resample import Statistic, mean
from evalbias.measures.scale_use import counted_spread, estimate_entropy, estimate_top_two, nearest_levels


def effect_statistic(
    judged: Judged,
    name: str,
    features: Mapping[str, FloatArray],
    *,
    standardized: bool = True,
    reliability: float | None = None,
) -> EffectStatistic:
    """Return the effect of one feature at equal quality as a statistic of ``Judged.strength``.

    Args:
        judged: Answers, with people's ratings.
        name: Feature whose effect is meant; the other features are held fixed.
        features: Name -> (n,) numbers, or (n, 2) for pairs, of which the difference counts.
        standardized: Whether the effect is that of one standard deviation of the feature, or of one unit.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """
    columns = {key: v if v.ndim == 1 else v[:, 0] - v[:, 1] for key, v in features.items()}
    feature, ratings = columns.pop(name), judged.ratings
    return EffectStatistic(
        feature,
        ratings,
        name=name,
        covariates=columns,
        standardized=standardized,
        reliability=reliability,
        differences=judged.pairwise,
        mirrored=judged.pairwise and judged.answers.shape[1] == 2,
    )


def effect_number(judged: Judged, statistic: EffectStatistic, name: str, label: str) -> Number:
    """Return what an effect is computed from, with its name and its column heading in tables."""
    values = np.where(statistic.usable, judged.strength, np.nan)
    return Number(name, label, values, statistic, null=0.0, tested=False)


# Self-preference: a judge overrates what its own system wrote (Panickssery et al. 2024; Wataoka et al. 2024).


OWN = "writer"
OWN_EXCESS, FAILURES = "own_excess", "own_excess_at_failures"


@dataclass(frozen=True)
class SelfPreference:
    """Advantage that a judge gives outputs for their writer, at equal quality.

    Estimates, all in standard deviations of the score (of the log-odds of a win, for pairs): ``own_excess`` (what an
    output of the judge's own system gets more than one of another system's, at equal quality), the same as
    ``own_excess_at_failures`` on the items that people find worse than most (only for single outputs with three or more
    ratings), and for each writer ``excess_of_NAME`` against all others. The failures are the lower half by one rating
    of each item, chosen by the item's id; the others hold the quality fixed, so that the choice of the items is not
    part of what is measured. A judge that overrates its own failures prefers itself; one that overrates good outputs of
    its own may only share their taste (Roytburg et al. 2026).

    Attributes:
        own: Name of the judge's own system among the writers; without it, only the writers are compared.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    own: str | None = None
    reliability: float | None = None
    name: ClassVar[str] = "self_preference"
    headlines: ClassVar[tuple[str, ...]] = (OWN_EXCESS, FAILURES)
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        writers = _names(judged)
        if judged.pairwise and judged.answers.shape[1] == 1 and len(set(judged.writers)) == 1:
            return False  # one system always stands first, which position explains as well
        return judged.rated and len(writers) > 1 and (self.own is None or self.own in writers)

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        numbers = []
        if self.own is not None:
            numbers.append(self._excess(judged, self.own, OWN_EXCESS, "own system"))
            if not judged.pairwise and RATINGS in judged.covariates and judged.covariate(RATINGS).shape[1] > 2:
                numbers.append(self._excess(_failures(judged), self.own, FAILURES, "own system's failures"))
        return [*numbers, *(self._excess(judged, name, f"excess_of_{name}", name) for name in _names(judged))]

    def _excess(self, judged: Judged, writer: str, name: str, label: str) -> Number:
        features = {OWN: written_by(judged, writer)}
        statistic = effect_statistic(judged, OWN, features, standardized=False, reliability=self.reliability)
        return effect_number(judged, statistic, name, label)


def written_by(judged: Judged, writer: str) -> FloatArray:
    """Return 1 for a writer's outputs and 0 for others, (n,) or (n, 2) for pairs."""
    return np.asarray(np.asarray(judged.writers) == writer, dtype=np.float64)


def _names(judged: Judged) -> list[str]:
    return sorted(set(np.asarray(judged.writers, dtype=str).ravel().tolist()))


def _failures(judged: Judged) -> Judged:
    """Keep the ratings of the items in the lower half by one rating, without that rating; the others get none."""
    ratings = judged.covariate(RATINGS)
    given = [np.flatnonzero(~np.isnan(row)) for row in ratings]
    numbers = [zlib.crc32(name.encode(errors="replace")) for name in judged.ids]  # whatever the order of the rows
    drawn = zip(numbers, given, strict=True)
    chosen = [places[number % len(places)] if len(places) > 2 else -1 for number, places in drawn]
    rest, marks = ratings.copy(), np.full(len(ratings), np.nan)
    for index, place in enumerate(chosen):
        if place >= 0:
            marks[index] = ratings[index, place]
            rest[index, place] = np.nan
    if not np.isnan(marks).all():
        rest[~(marks < np.nanmedian(marks))] = np.nan
    return _with_ratings(judged, rest)


def _with_ratings(judged: Judged, ratings: FloatArray) -> Judged:
    return replace(judged, covariates={**judged.covariates, RATINGS: ratings})


# Joint model of likelihood, length, the own system and position: each bias with the others held fixed.


IN_ONE_MODEL = {"likelihood": "likelihood", "verbosity": "length", "self_preference": "own_system"}
"""Bias -> estimate of the joint model that has the others held fixed."""
LABELS = {"likelihood": "effect of likelihood", "length": "effect of length", OWN: "own system"}


@dataclass(frozen=True)
class JointEffects:
    """Effects of likelihood, length and the judge's own system in one model, each with the others and quality fixed.

    Likely text is often short, and a system's own outputs are likely under it, so that one bias looks like another
    (Wataoka et al. 2024; Dubois et al. 2026). Estimates, of at least two features that are known: ``likelihood``,
    ``length`` (for one standard deviation each) and ``own_system`` (for an output of the judge's own system instead of
    another one), in standard deviations of the score; for pairs judged in both orders ``position`` too, the mean
    advantage of the first position in log-odds, or in shares of verdicts. The features of a pair change sign with its
    order, so ``position`` is the same with and without them.

    It has no headline: it explains what the single biases find, and is not one more of them.

    Attributes:
        own: Name of the judge's own system among the writers; None leaves it out of the model.
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    own: str | None = None
    reliability: float | None = None
    name: ClassVar[str] = "joint"
    headlines: ClassVar[tuple[str, ...]] = ()
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return judged.rated and len(self._features(judged)) > 1

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        features = self._features(judged)
        numbers = []
        for name in features:
            statistic = effect_statistic(judged, name, features, standardized=name != OWN, reliability=self.reliability)
            numbers.append(effect_number(judged, statistic, "own_system" if name == OWN else name, LABELS[name]))
        if judged.pairwise and judged.answers.shape[1] == 2:
            values = judged.position_strength
            numbers.append(Number("position", "first position", values, estimate_mean, null=0.0))
        return numbers

    def _features(self, judged: Judged) -> dict[str, FloatArray]:
        features = {}
        if LIKELIHOODS in judged.covariates:
            features["likelihood"] = judged.covariate(LIKELIHOODS)
        if LENGTHS in judged.covariates:
            features["length"] = log_lengths(judged.covariate(LENGTHS))
        if self.own is not None and self.own in np.asarray(judged.writers):
            features[OWN] = written_by(judged, self.own)
        return features


# Likelihood bias: a judge overrates what is likely under a model (Ohi et al., Findings of ACL 2024).


EFFECT = "likelihood_effect"


@dataclass(frozen=True)
class LikelihoodBias:
    """Effect of likelihood on a judge at equal quality, and the paper's BiasScore.

    Estimates of a judge that scores: ``likelihood_effect`` (change in the score, in standard deviations, for an output
    that is one standard deviation likelier, at equal quality; NaN with one rating of unknown reliability),
    ``bias_score`` (eq 5, with the published normalization, which depends on the extremes and thereby on n),
    ``bias_score_z`` (the same of z-scores, which does not) and ``performance``. Of one that compares:
    ``likelihood_effect`` (the same for the log-odds of a candidate's win; only where people rated or compared the
    candidates), ``likelihood_correlation`` (Spearman's rho of the difference in LS and the win probability),
    ``odds_per_nat`` (factor on the odds of winning for each nat by which a candidate is likelier, position held fixed)
    and ``odds_of_first`` (odds of the first position between equally likely candidates).

    Attributes:
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    reliability: float | None = None
    name: ClassVar[str] = "likelihood"
    headlines: ClassVar[tuple[str, ...]] = (EFFECT, "bias_score", "performance", "likelihood_correlation")
    objective: ClassVar[str | None] = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        needed = {LIKELIHOODS} if judged.pairwise else {LIKELIHOODS, HUMAN_SCORES}
        return needed <= judged.covariates.keys()

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        ls, numbers = judged.covariate(LIKELIHOODS), []
        if judged.rated:
            numbers.append(effect_number(judged, self.statistic(judged), EFFECT, "effect of likelihood"))
        if judged.pairwise:
            return [*numbers, *_of_pairs(judged, ls[:, 0] - ls[:, 1])]
        human = judged.covariate(HUMAN_SCORES)
        scores = np.where(np.isnan(ls + human), np.nan, judged.answers)  # these numbers on the same items

        def score(name: str, label: str, normalization: str) -> Number:
            estimator = partial(estimate_bias_score, normalization=normalization)
            return Number(name, label, scores, estimator, given=(ls, human), null=0.0, confounded=True)

        return [
            *numbers,
            score("bias_score", "BiasScore", "mean-range"),
            score("bias_score_z", "BiasScore (z)", "z-score"),
            Number("performance", "performance", scores, estimate_spearman, given=(human,)),
        ]

    def effect(self, judged: Judged) -> FeatureEffect:
        """Measure the likelihood effect with its slopes, its F and why it may be undefined.

        Raises:
            ValueError: A covariate is missing, or a reliability is given for items with several ratings.
        """
        return self.statistic(judged).measure(judged.strength, clusters=judged.clusters)

    def statistic(self, judged: Judged) -> EffectStatistic:
        """Return the likelihood effect as a statistic of ``Judged.strength``."""
        features = {"likelihood": judged.covariate(LIKELIHOODS)}
        return effect_statistic(judged, "likelihood", features, reliability=self.reliability)


def _of_pairs(judged: Judged, difference: FloatArray) -> list[Number]:
    """Return what a difference (n,) in LS has to do with winning, over the orders that were asked."""

    def number(name: str, label: str, statistic: Statistic, **kind: Any) -> Number:
        estimator = partial(estimate, partial(over_orders, statistic))
        return Number(name, label, judged.first_wins, estimator, given=(difference,), **kind)

    odds: dict[str, Any] = {"null": 1.0, "signed": False, "tested": False}
    return [
        number("likelihood_correlation", "likelihood correlation", counted_spearman, null=0.0, confounded=True),
        number("odds_per_nat", "odds per nat", counted_odds, **odds, confounded=True),
        number("odds_of_first", "odds of first", partial(counted_odds, at_zero=True), **odds),
    ]


# Position bias: how a comparison is ordered decides which candidate wins (Zhou et al., EMNLP 2024).


class PositionBias:
    """Win rate of the first position, fairness, consistency between both orders, and confidence.

    Estimates: ``first_rate`` (win rate of the first position, in [0, 1]; all positions share a tie),
    ``fairness`` (in [-2, 0], 0 is fair), ``position_consistency`` (share of pairs with the same winner in both orders;
    only where both were asked) and ``confidence`` (mean negative entropy, in [-log c, 0]). Where both orders were
    asked, each pair is its own control, so a pair that lacks an answer in either is undefined. Where only one order was
    asked, the better outputs may stand first; ``first_rate_balanced`` is then the win rate of the first position, pairs
    whose first candidate people prefer counting as much as those whose second they prefer.
    """

    name = "position"
    headlines = ("first_rate", "fairness", "position_consistency", "first_rate_balanced")
    objective = "fairness"

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return judged.pairwise

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        if not judged.pairwise:
            raise ValueError(f"The judge on {judged.criterion} scores: only one that compares can prefer a position.")
        answers = judged.answers  # (n, r, c)
        orders = range(answers.shape[1])
        shares = np.mean([decision_shares(answers[:, r]) for r in orders], axis=0)  # (n, c), NaN without every order
        entropies = np.mean([negative_entropies(answers[:, r]) for r in orders], axis=0)  # (n,)
        both = len(orders) == 2
        wins = win_shares(shares, ties=judged.ties)  # (n, places): judges with and without ties can be compared
        fair = 1 / wins.shape[1]
        numbers = [
            Number(
                "first_rate",
                "first",
                wins[:, 0],
                partial(estimate_first_rate, both_orders=both),
                null=fair,
                signed=False,
                confounded=not both,  # the better outputs may stand first
            ),
            Number(
                "fairness",
                "fairness",
                wins,
                partial(estimate_fairness, both_orders=both),
                counted=counted_fairness,
                null=0.0,
                confounded=not both,
            ),
        ]
        if both:
            numbers.append(_share("position_consistency", "consistent", judged.consistent, null=1.0))
        elif BETTER in judged.covariates:
            kind: dict[str, Any] = {"given": (1 - judged.preferred,), "null": fair, "signed": False}
            numbers.append(Number("first_rate_balanced", "first, balanced", wins[:, 0], estimate_balanced_rate, **kind))
        return [*numbers, Number("confidence", "confidence", entropies, estimate_mean)]


def _share(name: str, label: str, values: FloatArray, **kind: Any) -> Number:
    return Number(name, label, values, estimate_share, counted=mean, signed=False, **kind)


# Use of the scale: a judge that gives few different scores, or moves too little with the quality.


MAX_LEVELS = 20
"""Most levels of a scale whose single levels are counted."""


class ScaleUse:
    """Use of the scale by a judge that scores, whose lowest and highest score are stated.

    Estimates: ``slope`` (points by which the score rises for one point of quality, with people's ratings on the same
    scale; below 1 the judge crowds its scores together, above 1 it may prefer what goes with quality, so only slopes
    below 1 are of this bias; needs two ratings an item), ``spread_ratio`` (standard deviation of the scores by that of
    the human scores, noise included) and, where the scale has at most 20 levels, of the levels nearest to
    the scores ``top_two_share`` (share of the two most frequent ones), ``entropy`` (their entropy by that of uniform
    scores, in [0, 1]) and ``ends_share`` (share of the lowest and the highest).
    """

    name = "scale_use"
    headlines = ("slope", "top_two_share")
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return not judged.pairwise and (_levels(judged) is not None or _rated_on_it(judged))

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        numbers, scores = [], judged.answers
        if _rated_on_it(judged):
            if RATINGS in judged.covariates:
                ratings = judged.covariate(RATINGS)
                kind: dict[str, Any] = {"null": 1.0, "tested": False, "only_below": True}
                numbers.append(Number("slope", "slope", scores, quality_slope, given=(ratings,), **kind))
            numbers.append(
                Number(
                    "spread_ratio",
                    "spread",
                    scores,
                    partial(estimate, counted_spread),
                    given=(judged.covariate(HUMAN_SCORES),),
                    signed=False,
                    tested=False,
                )
            )
        levels = _levels(judged)
        if levels is not None:
            places, n = nearest_levels(scores, levels), len(levels)
            ends = np.where(np.isnan(places), np.nan, (places == 0) | (places == n - 1))
            shown: dict[str, Any] = {"signed": False, "tested": False}
            numbers += [
                Number("top_two_share", "two most used", places, partial(estimate_top_two, levels=n), **shown),
                Number("entropy", "entropy", places, partial(estimate_entropy, levels=n), **shown),
                _share("ends_share", "at the ends", ends),
            ]
        return numbers


def _rated_on_it(judged: Judged) -> bool:
    """Return whether people rate on the judge's scale, which must be stated: pass and fail are not a crowded 1 to 5."""
    return judged.scale is not None and judged.on_peoples_scale


def _levels(judged: Judged) -> FloatArray | None:
    """Return the whole numbers of the judge's scale; None where it is unknown, too fine or not of whole numbers."""
    if judged.scale is None or any(end != round(end) for end in judged.scale):
        return None
    low, high = judged.scale
    return np.arange(low, high + 1, dtype=np.float64) if high - low < MAX_LEVELS else None


# Self-bias: a model overrates what it wrote itself (Xu et al. 2024).


class SelfBias:
    """Bias (eq 1) and distance skewness (eq 2) of own minus expected scores.

    Estimates: ``bias`` (mean difference, in points of the scores), ``skewness`` (Dskew around 0, in [0, 1]), ``own``
    and ``expected`` (mean scores of the items that have both), and ``quality`` (mean of the covariate of that name,
    over all items that have it).
    """

    name = "self"
    headlines = ("bias", "skewness")
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return not judged.pairwise and EXPECTED in judged.covariates

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        own, expected = judged.answers, judged.covariate(EXPECTED)
        difference = differences(own, expected)
        undefined = np.isnan(difference)

        def average(name: str, label: str, values: FloatArray, null: float | None = None) -> Number:
            return Number(name, label, values, estimate_mean, null=null)

        numbers = [
            average("bias", "Bias", difference, null=0.0),
            Number("skewness", "Dskew", difference, estimate_skewness, null=0.0, signed=False),
            average("own", "own score", np.where(undefined, np.nan, own)),
            average("expected", "expected score", np.where(undefined, np.nan, expected)),
        ]
        if QUALITY in judged.covariates:
            numbers.append(average("quality", "quality", judged.covariate(QUALITY)))
        return numbers


# Verbosity bias: longer text is preferred, whatever its quality.


LENGTH_EFFECT = "length_effect"


def log_lengths(lengths: FloatArray) -> FloatArray:
    """Return log lengths; an empty output's is undefined."""
    return np.log(np.where(lengths > 0, lengths, np.nan))


@dataclass(frozen=True)
class VerbosityBias:
    """Effect of length on a judge at equal quality, and the win rate of the longer candidate.

    Estimates: ``length_effect`` (change in the score, or in the log-odds of a candidate's win, in standard deviations,
    for an output whose log length is one standard deviation greater, at equal quality; only where people rated the
    items or chose between them, and NaN with one rating or choice of unknown reliability) and, for pairs of different
    lengths, both orders averaged and a tie counting half, ``longer_rate`` (win rate of the longer candidate, in [0, 1])
    and ``accuracy_gap`` (share of the pairs in which the judge chooses what people prefer where that is the longer
    candidate, less that share where it is the shorter one). Where longer text is better text, an unbiased judge prefers
    the longer candidate too and is more often right where people do, because their difference is larger then: only
    ``length_effect`` tells these apart.

    Attributes:
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    reliability: float | None = None
    name: ClassVar[str] = "verbosity"
    headlines: ClassVar[tuple[str, ...]] = (LENGTH_EFFECT, "longer_rate")
    objective: ClassVar[str | None] = "longer_rate"

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return LENGTHS in judged.covariates and (judged.pairwise or judged.rated)

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        lengths, numbers = judged.covariate(LENGTHS), []
        if judged.rated:
            features = {"length": log_lengths(lengths)}
            statistic = effect_statistic(judged, "length", features, reliability=self.reliability)
            numbers.append(effect_number(judged, statistic, LENGTH_EFFECT, "effect of length"))
        if judged.pairwise:
            first, second = lengths[:, 0], lengths[:, 1]
            shares = judged.win_shares
            wins = longer_wins(shares, first, second)
            equal = int((~np.isnan(shares) & (first == second)).sum())
            numbers.append(_share("longer_rate", "longer", wins, null=0.5, excluded=equal, confounded=True))
            if judged.rated:
                longer_better = np.where(first > second, judged.preferred, 1 - judged.preferred)
                numbers.append(
                    Number(
                        "accuracy_gap",
                        "accuracy gap",
                        np.where(longer_better == 1, wins, 1 - wins),
                        estimate_gap,
                        given=(longer_better,),
                        null=0.0,
                        excluded=equal,
                        tested=False,
                        confounded=True,
                    )
                )
        return numbers


# The biases that commands, reports and searches know. A new bias is a file beside this one and a line here.


BIASES: dict[str, Bias] = {
    bias.name: bias
    for bias in (
        LikelihoodBias(),
        PositionBias(),
        VerbosityBias(),
        SelfBias(),
        SelfPreference(),
        ScaleUse(),
        JointEffects(),
        PeopleAgreement(),
        CorrectedEstimates(),
    )
}
"""Every bias that can be measured, by name."""


def measure_all(judged: Judged, *, seed: int) -> dict[str, Measurement]:
    """Measure every bias that applies to a judge's answers; name of the bias -> measurement."""
    return {bias.name: measure(bias, judged, seed=seed) for bias in BIASES.values() if bias.applies(judged)}
