"""The biases, a class each, and their registry: to add a bias, write its class here and list it in ``BIASES``."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from evalbias import measures
from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement, rated_on_its_scale
from evalbias.evaluation.bias import (
    MAPPED,
    Bars,
    Bias,
    EffectBias,
    Intervals,
    Plot,
    Stack,
    measure,
    people_missing,
    share_number,
)
from evalbias.evaluation.estimates import LEVEL, Estimate, Measurement, Number
from evalbias.evaluation.judged import (
    BETTER,
    EXPECTED,
    HUMAN_SCORES,
    LENGTH,
    LENGTHS,
    LIKELIHOODS,
    PER_TOKEN,
    QUALITY,
    RATINGS,
    Judged,
    writers_of,
    written_by,
)
from evalbias.evaluation.repeats import Order, Probes, Repeats
from evalbias.evaluation.verdicts import DecidesAlone, Forecasts, PassOrFail
from evalbias.evaluation.words import count, percent
from evalbias.measures import decision_shares, estimate, estimate_mean, longer_wins, scale_use, win_shares
from evalbias.measures.agreement import counted_spearman, estimate_pearson
from evalbias.measures.arrays import FloatArray
from evalbias.measures.loops import differences
from evalbias.measures.pairs import estimate_balanced_rate, over_orders
from evalbias.programs.items import length_feature


@dataclass(frozen=True)
class Likelihood(EffectBias):
    """A judge overrates text that is likely under a model (Ohi et al., Findings of ACL 2024).

    The effect is that of the whole text's log-probability, ``likelihood_effect_per_token`` that of the mean over its
    tokens, which a longer text does not lower. Further numbers for scores: ``bias_score`` (eq 5, with the published
    normalization, which depends on the extremes and therefore on n), ``bias_score_z`` (from z-scores, which do not),
    ``pearson``, ``performance``. For pairs: ``likelihood_correlation`` (Spearman's rho between the difference in LS and
    the win probability, over the orders that were asked).
    """

    name = title = feature_name = effect_of = "likelihood"
    question = "Does the judge prefer text that a language model finds likely, at equal quality?"
    favored, more, less = "an output that is one standard deviation likelier", "likelier", "less likely"
    effect_name = "likelihood_effect"
    headlines = ("likelihood_effect", "bias_score", "performance", "likelihood_correlation")
    helps: ClassVar[Mapping[str, str]] = {
        "scores": "'evalbias optimize --aim likelihood --criterion CRITERION --data FILE --lm MODEL' tries "
        "demonstrations and calibrations and keeps what is shown to help; this takes a few thousand judgments once, "
        "and afterwards prompts that are longer by 2 to 8 examples, or one more likelihood for each output",
        "others": "'evalbias correct' with this audit's data, field and likelihood model subtracts it from the scores "
        "where that costs no agreement; or switch to a judge that has less of it: 'evalbias optimize --aim likelihood "
        "--criterion CRITERION --data FILE --lm MODEL' makes one from any model that you can run",
    }

    def missing(self, judged: Judged) -> Iterator[str]:
        if LIKELIHOODS not in judged.covariates:
            yield "a model that reports likelihoods, such as a local one (likelihood_lm, --likelihood-lm)"
        if not all(isinstance(e.get("source"), str) for e in judged.examples):
            yield "the input of every item (field source)"
        yield from super().missing(judged)

    def feature(self, judged: Judged) -> FloatArray | None:
        return judged.covariates.get(LIKELIHOODS)

    def numbers(self, judged: Judged) -> list[Number]:
        ls, human = (judged.covariates.get(name) for name in (LIKELIHOODS, HUMAN_SCORES))
        effects = super().numbers(judged)
        if effects and (per_token := judged.covariates.get(PER_TOKEN)) is not None:
            name, label = f"{self.effect_name}_per_token", "effect of likelihood per token"
            says = "Effect of likelihood per token at equal quality"
            effects.append(self.effect(judged, per_token, name=name, label=label, says=says))
        if ls is not None and judged.pairwise:
            rank, label = partial(estimate, partial(over_orders, counted_spearman)), "likelihood correlation"
            says, columns = "Rank correlation of likelihood and winning", (judged.first_less_second(ls),)
            correlation = partial(Number, columns=columns, null=0.0, confounded=True, says=says)
            return [*effects, correlation("likelihood_correlation", label, judged.first_wins, rank)]
        if ls is None or human is None:
            return []
        scores = np.where(np.isnan(ls + human), np.nan, judged.answers)  # all these numbers use the same items

        def score(name: str, label: str, normalization: str) -> Number:
            estimator = partial(measures.estimate_bias_score, normalization=normalization)
            return Number(name, label, scores, estimator, columns=(ls, human), null=0.0, confounded=True)

        says, linear = "Rank correlation with people (performance)", "Linear correlation with people (Pearson)"
        return [
            *effects,
            score("bias_score", "BiasScore", "mean-range"),
            score("bias_score_z", "BiasScore (z)", "z-score"),
            Number("pearson", "Pearson", scores, estimate_pearson, columns=(human,), says=linear, tested=False),
            Number("performance", "performance", scores, measures.estimate_spearman, columns=(human,), says=says),
        ]


class Position(Bias):
    """The order in which candidates are shown decides which wins (Zhou et al., EMNLP 2024).

    Numbers: ``first_rate`` (win rate of the first position; all positions share a tie), ``fairness`` (0 is fair; in
    [-.5, 0] for pairs), ``position_consistency`` (share of pairs with the same winner in both orders) and
    ``confidence`` (mean negative entropy, in [-log c, 0]). In both orders each pair is its own control. In one order
    the better outputs may stand first; ``first_rate_balanced`` then counts pairs whose first candidate people prefer as
    much as the others. It is no measure of position where a system always stands in the same place: a better system
    wins by more where people prefer it than it loses by where they do not.
    """

    name = title = "position"
    question = "Does the order in which two outputs are shown decide which one wins?"
    favored, judges = "the output shown first", "pairs"
    headlines = ("first_rate", "fairness", "position_consistency", "first_rate_balanced")
    helps: ClassVar[Mapping[str, str]] = {
        "pairs": "ask in both orders and average, which removes it at twice the prompts (PairwiseJudge with "
        "debias='permutation'); 'evalbias optimize --aim fairness --criterion CRITERION --data FILE --lm MODEL' "
        "searches for a wording that needs only one prompt for each pair",
        "others": "ask in both orders and average, which removes it at twice the prompts",
    }

    def missing(self, judged: Judged) -> Iterator[str]:
        if not judged.both_orders and BETTER not in judged.covariates:
            yield "choices in both orders (swapped_field, --swapped-field) or people's choices (field better)"
        elif judged.in_fixed_places:
            yield (
                "choices in both orders (swapped_field, --swapped-field) or pairs in which either system stands first: "
                "here every system has its place, so position and system cannot be told apart"
            )

    def numbers(self, judged: Judged) -> list[Number]:
        if not judged.pairwise:
            return []
        orders, both = [judged.answers[:, r] for r in range(judged.answers.shape[1])], judged.both_orders  # (n, c) each
        shares = np.mean([decision_shares(order) for order in orders], axis=0)  # (n, c), NaN without every order
        entropies = np.mean([measures.negative_entropies(order) for order in orders], axis=0)  # (n,)
        wins = win_shares(shares, ties=judged.ties)  # (n, places): judges with and without ties can be compared
        of_first = partial(Number, null=1 / wins.shape[1], signed=False)
        rate, fair = (partial(f, both_orders=both) for f in (measures.estimate_first_rate, measures.estimate_fairness))
        unsure = not both  # in one order, better outputs may come first
        says = "How often the first position wins"
        numbers = [
            of_first("first_rate", "first", wins[:, 0], rate, says=says, confounded=unsure),
            Number("fairness", "fairness", wins, fair, null=0.0, confounded=unsure),
        ]
        if both:
            says = "How often the same output wins in both orders"
            numbers.append(share_number("position_consistency", "consistent", judged.consistent, null=1.0, says=says))
        elif BETTER in judged.covariates and not judged.in_fixed_places:
            says, columns = f"{says}, people's choices balanced", (1 - judged.preferred,)
            balanced = partial(of_first, columns=columns, says=says)
            numbers.append(balanced("first_rate_balanced", "first, balanced", wins[:, 0], estimate_balanced_rate))
        return [*numbers, Number("confidence", "confidence", entropies, estimate_mean)]

    def plot(self, measurement: Measurement) -> Plot | None:
        outcomes = {} if measurement.judged is None else order_outcomes(measurement.judged)
        if not outcomes:
            return super().plot(measurement)
        first = measurement["first_rate"]
        interval = f"95 % interval {percent(first.low)} to {percent(first.high)}"
        title = f"The output shown first wins {percent(first.value)} of the time ({interval})"
        caption = (
            "Every pair was judged twice, with the outputs in both orders. Above: how often the first position wins; "
            "50 % = no bias. Below: whether the same output wins in both orders, as it should."
        )
        words, label = "50 % = no bias", "win rate of the first position"
        rate = Intervals({"": [first]}, null=0.5, null_words=words, x_label=label, percent=True)
        return Plot(title, caption, [rate, Stack(outcomes)])


def order_outcomes(judged: Judged) -> dict[str, float]:
    """Return outcome in the other order -> share of pairs; empty without both orders or a defined pair.

    A decision shared by several classes counts for the position with its larger part, as in the numbers.
    """
    if not judged.both_orders:
        return {}
    first = np.stack([win_shares(decision_shares(judged.answers[:, r]), ties=judged.ties)[:, 0] for r in (0, 1)])
    defined = ~np.isnan(first).any(axis=0)
    side, same = np.sign(first[:, defined] - 0.5), judged.consistent[defined] == 1
    outcomes = {
        "same output both times": same,
        "always the first": ~same & (side == 1).all(axis=0),
        "always the second": ~same & (side == -1).all(axis=0),
    }
    outcomes["a tie in one order"] = ~np.any([*outcomes.values()], axis=0)
    return {name: float(those.mean()) for name, those in outcomes.items()} if defined.any() else {}


@dataclass(frozen=True)
class Verbosity(EffectBias):
    """A judge prefers longer text, whatever its quality.

    Number besides the effect of the log length: ``longer_rate``, the win rate of the longer candidate in pairs of
    different lengths, averaged over both orders, a tie counting half. If longer text is better text, an unbiased judge
    has a high rate too: only ``length_effect`` distinguishes the two.
    """

    name = title = "verbosity"
    question = "Does the judge prefer longer text, at equal quality?"
    favored, more, less = "an output that is one standard deviation longer", "longer", "shorter"
    feature_name = effect_of = "length"
    effect_name = "length_effect"
    headlines = ("length_effect", "longer_rate")
    helps: ClassVar[Mapping[str, str]] = {
        "pairs": "say in the definition that length does not count, and audit the judge again; outputs of equal "
        "length avoid it",
        "scores": "say in the definition that length does not count, and audit the judge again; outputs of equal "
        "length avoid it, and 'evalbias correct' subtracts it from recorded scores",
        "others": "'evalbias correct' with this audit's data and field subtracts it from the scores where that costs "
        "no agreement; or judge outputs of equal length, or change the judge's wording or examples and audit it again",
    }

    def feature(self, judged: Judged) -> FloatArray | None:
        """Return log lengths; NaN for an empty output."""
        lengths = judged.covariates.get(LENGTHS)
        return None if lengths is None else length_feature(lengths)

    def numbers(self, judged: Judged) -> list[Number]:
        lengths, numbers = judged.covariates.get(LENGTHS), super().numbers(judged)
        if lengths is not None and judged.pairwise:
            first, second = lengths.T
            wins = longer_wins(judged.win_shares, first, second)
            equal = int((~np.isnan(judged.win_shares) & (first == second)).sum())
            rate = partial(share_number, null=0.5, confounded=True, says="How often the longer output wins")
            numbers.append(rate("longer_rate", "longer", wins, excluded=equal))
        if judged.provenance.get(LENGTH) == "graphemes":
            unit = " (graphemes)"
            numbers = [replace(n, label=n.label + unit, says=n.says and n.says + unit) for n in numbers]
        return numbers


class SelfBias(Bias):
    """A model overrates its own outputs: own minus expected scores (Xu et al. 2024).

    Numbers: ``bias`` (eq 1, mean difference, in points), ``skewness`` (eq 2, Dskew around 0, in [0, 1]), ``own`` and
    ``expected`` (mean scores of the items that have both), and ``quality`` (mean of this covariate over all items that
    have it).
    """

    name, title = "self", "self-bias"
    question = "Does the model score its own outputs higher than they deserve?"
    favored = "the output that a loop refined itself"
    headlines = ("bias", "skewness")

    def numbers(self, judged: Judged) -> list[Number]:
        if EXPECTED not in judged.covariates:  # only loops have expected scores
            return []
        own, expected = judged.answers, judged.covariates[EXPECTED]
        difference = differences(own, expected)
        undefined = np.isnan(difference)
        bias, skewness = "Own score less expected score", "Lopsidedness of the differences (Dskew)"
        numbers = [
            Number("bias", "Bias", difference, estimate_mean, null=0.0, says=bias),
            Number("skewness", "Dskew", difference, measures.estimate_skewness, null=0.0, signed=False, says=skewness),
            Number("own", "own score", np.where(undefined, np.nan, own), estimate_mean),
            Number("expected", "expected score", np.where(undefined, np.nan, expected), estimate_mean),
        ]
        if QUALITY in judged.covariates:
            numbers.append(Number("quality", "quality", judged.covariate(QUALITY), estimate_mean))
        return numbers


@dataclass(frozen=True)
class SelfPreference(EffectBias):
    """A judge overrates outputs of its own system (Panickssery et al. 2024; Wataoka et al. 2024).

    Numbers: ``own_excess`` (how much more an output of the systems ``own`` gets than another, at equal quality), the
    same ``at_failures``, and ``excess_of_NAME`` for each writer. The failures are the lower half of the items with
    three or more ratings, by a rating chosen by the item's id; the other ratings hold the quality fixed, so that the
    choice of the items is not part of the measurement. A judge that overrates its own failures prefers itself; a judge
    that overrates its own good outputs may only share their taste (Roytburg et al. 2026).
    """

    own: str | None = None  # names or patterns, separated by commas
    name, title = "self_preference", "self-preference"
    question = "Does the judge prefer what it wrote itself over equally good text of others?"
    favored = "an output of the judge's own system"
    feature_name, effect_of, standardized = "own_system", "the own system", False
    effect_name, label, says = "own_excess", "own system", "Bonus for the own system at equal quality"
    headlines = ("own_excess", "own_excess_at_failures")
    helps = dict.fromkeys(
        ("pairs", "scores"),
        "use a judge that wrote none of the outputs, or average several judges, which lessens it and costs as much as "
        "all of them",
    )

    def missing(self, judged: Judged) -> Iterator[str]:
        names, own = judged.writer_names, writers_of(judged, self.own)
        if not names:
            field = "systems, or system_1 and system_2" if judged.pairwise else "system"
            yield f"the writers of the outputs (field {field})"
        elif len(names) == 1:
            yield f"outputs of several writers ({names[0]:.80} wrote all of these)"
        elif judged.one_stands_first:
            turned = "swap the outputs of half of the pairs, and their choices too"
            yield f"pairs in which either system stands first ({turned})"
        elif self.own is not None and len(own) in (0, len(names)):
            whose = "outputs of other writers than" if own else "outputs of"
            yield f"{whose} {self.own!r:.80} (the writers are {', '.join(names):.500})"
        if self.own is None:
            yield "the name of the judge's own system among the writers (own_system, --own-system)"
        yield from people_missing(judged)

    def feature(self, judged: Judged) -> FloatArray | None:
        """Return 1 for outputs of the judge's own system, 0 for others; None if it is not among the writers."""
        own = writers_of(judged, self.own)
        return written_by(judged, own) if 0 < len(own) < len(judged.writer_names) else None

    def numbers(self, judged: Judged) -> list[Number]:
        """Return the excess of the judge's own system, overall and at failures, and of every writer.

        Return no numbers if the same system always comes first: position would explain its wins as well.
        """
        several = len(judged.writer_names) > 1 and not judged.one_stands_first
        own = self.feature(judged)
        if not (judged.rated and several and (self.own is None or own is not None)):
            return []
        numbers = super().numbers(judged)
        if own is not None and judged.systems is not None and judged.ratings.shape[1] > 2:
            says = "The same among outputs that people rate low"
            name, label = "own_excess_at_failures", "own system's failures"
            numbers.append(self.effect(_failures(judged), own, name=name, label=label, says=says))
        for writer in judged.writer_names:
            name, says = f"excess_of_{writer}", f"{writer} against the other writers"
            numbers.append(self.effect(judged, written_by(judged, [writer]), name=name, label=writer, says=says))
        return numbers


@dataclass(frozen=True)
class FamilyPreference(EffectBias):
    """A judge overrates outputs of its family: systems of its maker, or derived from it (Spiliopoulou et al. 2025).

    Number: ``family_excess``, how much more an output of the systems ``family`` gets than a stranger's, at equal
    quality. The judge's ``own`` system is neither: the joint model separates the effects of own system and family.
    """

    own: str | None = None
    family: str | None = None  # names or patterns, separated by commas
    name, title = "family_preference", "preference for its family"
    question = "Does the judge prefer what systems of its family wrote over equally good text of others?"
    favored = "an output of the judge's family"
    feature_name, effect_of, standardized = "own_family", "the family", False
    effect_name, label, says = "family_excess", "family", "Bonus for the judge's family at equal quality"
    headlines = ("family_excess",)
    helps = dict.fromkeys(("pairs", "scores"), "use a judge of another family than every writer's")

    def suits(self, judged: Judged) -> bool:
        return self.family is not None

    def _relatives(self, judged: Judged) -> list[str]:
        own = writers_of(judged, self.own)
        return [w for w in writers_of(judged, self.family) if w not in own]

    def _strangers(self, judged: Judged) -> int:
        return len({*judged.writer_names} - {*writers_of(judged, self.own), *self._relatives(judged)})

    def missing(self, judged: Judged) -> Iterator[str]:
        writers = f"(the writers are {', '.join(judged.writer_names):.500})"
        if not self._relatives(judged):
            besides = "" if self.own is None else f" besides {self.own!r:.80}"
            yield f"outputs of {self.family!r:.80}{besides} {writers}"
        elif self._strangers(judged) < 2:
            yield f"outputs of two writers outside {self.family!r:.80}, since one may be special {writers}"
        yield from people_missing(judged)

    def feature(self, judged: Judged) -> FloatArray | None:
        """Return 1 for outputs of the judge's relatives, 0 for others; None if unknown."""
        relatives = self._relatives(judged)
        return written_by(judged, relatives) if relatives and self._strangers(judged) > 1 else None

    def numbers(self, judged: Judged) -> list[Number]:
        """Return the numbers without the judge's own outputs: self-preference is not preference for its family."""
        own = written_by(judged, writers_of(judged, self.own)).reshape(len(judged.ids), -1).any(axis=1)
        numbers, left_out = super().numbers(judged), int(own.sum())
        return [replace(n, values=np.where(own, np.nan, n.values), excluded=left_out) for n in numbers]


def _failures(judged: Judged) -> Judged:
    """Keep the ratings of items in the lower half by a drawn rating, without that rating; drop all others."""
    others = judged.covariate(RATINGS).copy()  # (n, raters)
    marks = np.full(len(others), np.nan)
    # 1 draw a rating of each item that has three, by the item's id, independently of the order of rows
    for index, name in enumerate(judged.ids):
        rated = np.flatnonzero(~np.isnan(others[index]))
        if len(rated) > 2:
            place = rated[zlib.crc32(name.encode(errors="replace")) % len(rated)]
            marks[index], others[index, place] = others[index, place], np.nan
    # 2 the drawn ratings divide the items; the other ratings of the lower half stay
    if not np.isnan(marks).all():
        others[~(marks < np.nanmedian(marks))] = np.nan
    return replace(judged, covariates={**judged.covariates, RATINGS: others})


class ScaleUse(Bias):
    """A judge uses few different scores, or its scores vary too little with quality.

    Numbers, for a stated scale: ``slope`` (points of score per point of quality, if people rate on the same scale,
    twice or more per item; below 1 the judge crowds its scores together, above 1 it may prefer correlates of quality,
    so only slopes below 1 count as this bias), ``spread_ratio`` (standard deviation of the scores divided by that of
    the human scores) and, for up to 20 levels, ``top_two_share`` (share of the two most frequent scores).
    """

    name, title = "scale_use", "scale use"
    question = "Does the judge use the whole scale, as people do?"
    favored, judges = "the middle of the scale", "scores"
    headlines = ("slope", "top_two_share")
    helps: ClassVar[Mapping[str, str]] = {
        "scores": "a map of the scores, or a likelihood calibration, stretches them but ranks no better; "
        "demonstrations from the whole scale ('evalbias optimize --aim likelihood') teach it, in prompts that are "
        "longer by 2 to 8 examples",
        "others": "a map from its scores to people's stretches them at no cost, but ranks no better",
    }

    def missing(self, judged: Judged) -> Iterator[str]:
        if _of_two_values(judged):
            yield "scores of more than two values"
            return
        if judged.rating_counts.max(initial=0) < 2:
            yield f"two or more ratings of each item (columns rating_1, rating_2, ...; {MAPPED})"
        if judged.scale is None:
            yield "the judge's lowest and highest score (scale, --scale)"
        elif HUMAN_SCORES in judged.covariates and np.isnan(judged.answers).all():
            yield "scores by the judge (all are undefined)"
        elif HUMAN_SCORES in judged.covariates and not judged.on_peoples_scale:
            yield f"people's ratings on the judge's scale (scale, --scale){_off_the_scale(judged, *judged.scale)}"
        elif judged.rated_apart:
            yield f"ratings of outputs that are drawn at random (the rated ones score {judged.rated_apart} the others)"

    def numbers(self, judged: Judged) -> list[Number]:
        if judged.pairwise or _of_two_values(judged):
            return []
        numbers, scores = [], judged.answers
        untested = partial(Number, signed=False, tested=False)
        if rated_on_its_scale(judged) and not judged.rated_apart:
            if judged.rating_counts.max(initial=0) > 1:
                says, ratings = "Points of the score for one point of quality", judged.covariate(RATINGS)
                slope = partial(Number, columns=(ratings,), null=1.0, only_below=True, tested=False)
                numbers.append(slope("slope", "slope", scores, measures.quality_slope, says=says))
            human, says = judged.covariate(HUMAN_SCORES), "Spread of the scores, as a multiple of people's"
            spread = partial(estimate, scale_use.counted_spread)
            numbers.append(untested("spread_ratio", "spread", scores, spread, columns=(human,), says=says))
        if (levels := _levels(judged)) is not None:
            places, says = scale_use.nearest_levels(scores, levels), "Share of the two most used scores"
            top = partial(scale_use.estimate_top_two, levels=len(levels))
            numbers.append(untested("top_two_share", "two most used", places, top, says=says))
        return numbers

    def sentence(self, estimate: Estimate, judged: Judged) -> str:
        worth = f"one point of quality is worth {estimate.value:.2f} points of the score instead of 1"
        return f"{worth} (95 % interval {estimate.low:.2f} to {estimate.high:.2f})"

    def margin_words(self, estimate: Estimate, judged: Judged) -> str:
        return f"a rise of {1 - self.margin(estimate):g} points or less for each point of quality"

    def _follows_loosely(self, measurement: Measurement) -> bool:
        """Return whether scores with a small slope may vary as much as people's, and so need not be crowded."""
        slope, spread = (measurement.estimates.get(name) for name in ("slope", "spread_ratio"))
        if slope is None or spread is None or math.isnan(slope.low) or not 0 < slope.low <= 1 - self.margin(slope):
            return False
        return slope.high < 1 and (spread.value >= 1 or (slope.p_value < LEVEL and spread.high >= 1))

    def ruled_out(self, measurement: Measurement) -> tuple[Estimate, str] | None:
        spread, slope = measurement.estimates.get("spread_ratio"), measurement.estimates.get("slope")
        if spread is None or slope is None or not self._follows_loosely(measurement):
            return None
        if not spread.low > 1 - self.margin(slope):
            return None
        return replace(spread.scaled(1, less=1), null=0.0, signed=True), (
            f"its scores do not crowd, spread {spread.value:.2f} times as much as people's (95 % interval "
            f"{spread.interval}); they rise {slope.value:.2f} points for each point of quality because the judge "
            "follows quality loosely"
        )

    def other_cause(self, measurement: Measurement) -> str:
        """Say if noise, or leniency near the end of the scale, may explain a small slope."""
        slope, judged = measurement.estimates.get("slope"), measurement.judged
        if slope is None or judged is None or judged.scale is None:
            return ""
        if math.isnan(slope.low) or slope.high >= 1 or slope.low > 1 - self.margin(slope):
            return ""
        if slope.low <= 0:
            return "its scores are not shown to rise with quality, so nothing follows from how they use the scale"
        spread, significant = measurement["spread_ratio"], slope.p_value < LEVEL
        if self._follows_loosely(measurement):
            spreads = f"its scores are not shown to be spread less than people's (spread ratio {spread.interval})"
            return f"{spreads}, so a slope of {slope.value:.2f} does not show that they crowd"
        lenient = scale_use.slope_of_shifted(judged.answers, judged.covariate(RATINGS), scale=judged.scale)
        if significant and slope.high >= scale_use.LEAST * lenient:
            near = "the judge's mean score lies so near an end of the scale"
            return f"{near} that a person of the same mean would have a slope of {lenient:.2f}"
        return ""

    def plot(self, measurement: Measurement) -> Plot | None:
        columns = {"judge": measurement.columns["scores"], "people": measurement.columns.get(HUMAN_SCORES, np.empty(0))}
        defined = {name: values[~np.isnan(values)] for name, values in columns.items()}
        defined = {name: values for name, values in defined.items() if len(values)}
        return score_bars(defined) if "judge" in defined else super().plot(measurement)


MAX_LEVELS = 20  # most levels of a scale for counting single levels
WHOLE_POINTS = 12  # largest range of scores with a bar per whole point


def _of_two_values(judged: Judged) -> bool:
    """Return whether the judge only says 0 or 1 (pass or fail): scale use needs more than two values."""
    scores = judged.answers[~np.isnan(judged.answers)]
    return judged.scale in (None, (0, 1)) and len(scores) > 0 and bool(np.isin(scores, (0.0, 1.0)).all())


def _off_the_scale(judged: Judged, low: float, high: float) -> str:
    """Name the human ratings outside the scale; empty without any."""
    rated = judged.ratings  # (n, raters)
    outside = (rated < low) | (rated > high)
    items = np.flatnonzero(outside.any(axis=1))
    if not len(items):
        return ""
    name, value = judged.ids[items[0]], rated[items[0]][outside[items[0]]][0]
    which = f"the ratings of {count(len(items), 'item')}, such as {name!r:.80} with {value:g}"
    return f"; outside {low:g} to {high:g} are {which}"


def _levels(judged: Judged) -> FloatArray | None:
    """Return the whole numbers of the judge's scale; None if it is unknown, or not 3 to ``MAX_LEVELS`` of them."""
    if judged.scale is None or any(end != round(end) for end in judged.scale):
        return None
    low, high = judged.scale
    return np.arange(low, high + 1, dtype=np.float64) if 1 < high - low < MAX_LEVELS else None


def score_bars(sides: Mapping[str, FloatArray]) -> Plot:
    """Return a histogram of one or two sides, name -> defined scores, the judge's first."""
    edges = _edges(np.unique(np.concatenate([*sides.values()])))
    shares = {name: np.histogram(values, bins=edges)[0] / len(values) for name, values in sides.items()}
    first = next(iter(shares.values()))
    most = int(np.argmax(first))
    title = f"{percent(first[most])} of the judge's scores lie between {edges[most]:.4g} and {edges[most + 1]:.4g}"
    caption = "A judge that puts most outputs into one or two bars can hardly tell them apart."
    return Plot(title, caption, [Bars(shares, edges, "score", "share of the items", percent=True)])


def _edges(distinct: FloatArray) -> FloatArray:
    """Return edges of bars around whole points if the range of scores is small, else of ten equal parts."""
    low, high = float(distinct[0]), float(distinct[-1])
    whole = bool((distinct == np.round(distinct)).all())
    if high - low <= WHOLE_POINTS and (whole or high - low > 2):
        return np.arange(np.floor(low + 0.5) - 0.5, np.floor(high + 0.5) + 1.0)
    if low == high:
        return np.array([low - 0.5, low + 0.5])
    return np.round(np.linspace(low, high, 11), 12)


@dataclass(frozen=True)
class Joint(Bias):
    """All known effects of properties of the text in a single model, with the others and quality held fixed.

    Likely text is often short, and a system's own outputs are likely under it, so biases may look like each other
    (Wataoka et al. 2024; Dubois et al. 2026). Numbers, for two or more known properties: ``likelihood``, ``length``,
    ``own_system``, ``own_family`` and the user's; for pairs judged in both orders also ``position``, the mean advantage
    of the first position in log-odds, or in shares of verdicts, which is the same without the properties, because a
    pair's change sign with its order. There is no headline: it explains the single biases, and is not a further one.
    """

    own: str | None = None
    family: str | None = None
    reliability: float | None = None
    features: tuple[EffectBias, ...] = ()  # the user's features that vary between outputs
    name, title, kind = "joint", "biases in one model", "explanation"
    question = "Which of the biases remains when the others are held fixed? Likely text is often short."

    def numbers(self, judged: Judged) -> list[Number]:
        features, numbers = self._features(judged), []
        if not judged.rated or len(features) < 2:
            return []
        for bias, feature in features:
            others = {other.feature_name: values for other, values in features if other is not bias}
            says = f"Effect of {bias.effect_of}"
            numbers.append(bias.effect(judged, feature, others, name=bias.feature_name, says=says))
        if judged.both_orders:
            says, values = "Advantage of the first position", judged.position_strength
            numbers.append(Number("position", "first position", values, estimate_mean, null=0.0, says=says))
        return numbers

    def _features(self, judged: Judged) -> list[tuple[EffectBias, FloatArray]]:
        settings = {"own": self.own, "family": self.family, "reliability": self.reliability}
        effects = [bias.configured(**settings) for bias in BIASES.values() if isinstance(bias, EffectBias)]
        features = ((bias, bias.feature(judged)) for bias in (*effects, *self.features))
        return [(bias, feature) for bias, feature in features if feature is not None]


BIASES: dict[str, Bias] = {
    bias.name: bias
    for bias in (
        PassOrFail(),
        DecidesAlone(),
        PeopleAgreement(),
        Forecasts(),
        ScaleUse(),
        Likelihood(),
        Position(),
        Order(),
        Verbosity(),
        SelfBias(),
        SelfPreference(),
        FamilyPreference(),
        Joint(),
        CorrectedEstimates(),
        Repeats(),
        Probes(),
    )
}
"""Name -> bias or other measurement, in the order of an audit."""


def title_of(name: str) -> str:
    """Return the title of a bias or other measurement, by its name."""
    return BIASES[name].title if name in BIASES else name.replace("_", " ")


def measure_all(judged: Judged, *, seed: int) -> dict[str, Measurement]:
    """Measure every bias that applies to a judge's answers; name of the bias -> measurement."""
    return {bias.name: measure(bias, judged, seed=seed) for bias in BIASES.values() if bias.applies(judged)}
