"""What a bias asks, needs and means in words: margins, advice and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dspy
import numpy as np
import scipy

from evalbias.data.pairing import rated_criteria
from evalbias.evaluation.estimates import Estimate, Measurement
from evalbias.evaluation.judged import (
    BETTER,
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    RATINGS,
    Judged,
)
from evalbias.evaluation.words import amount, count, decimals, interval_words, joined, number
from evalbias.measures import FeatureEffect, bias_score, unfairness_scores
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.resample import SHARE
from evalbias.measures.scale_use import LEAST, SLOPE

# Advice on each bias in an audit: its effect in words, the data that it takes, and remedies with their costs.


MARGINS = {SCORE_SD: 0.2, SHARE: 0.1, SLOPE: 0.3}
"""Unit of an estimate -> the smallest distance from an unbiased judge that an audit calls an effect worth finding."""
MARGIN = 0.1
"""The same for estimates without a unit, such as correlations and differences of two shares."""
ALLOWANCES = {SLOPE: 1 - LEAST}
"""Unit of an estimate -> the distance from an unbiased judge that its test allows for."""


@dataclass(frozen=True)
class Advice:
    """Words about one bias.

    Attributes:
        favored: What the bias favors, as the subject of "gets ... more" and "wins ... of the pairs".
        for_pairs: What helps a judge that compares, and its cost; empty where evalbias has nothing.
        for_scores: The same for a judge that scores.
        for_others: The same for a judge that evalbias cannot ask, such as recorded answers or a function; empty where
            it is the same.
        for_reversed: What helps where the scores do not rise with the quality at all; empty where it is the same.
        only: ``"pairs"`` or ``"scores"`` where only a judge that compares, or that scores, can have the bias.
        words: The finding as a sentence with ``{value}``, ``{low}``, ``{high}`` and ``{null}``, where it is not about
            what is favored.
    """

    favored: str
    for_pairs: str = ""
    for_scores: str = ""
    for_others: str = ""
    for_reversed: str = ""
    only: str = ""
    words: str = ""


OTHER_JUDGES = (
    "use a judge that wrote none of the outputs, or average several judges, which lessens it and costs as much as all "
    "of them"
)
UNKNOWN = Advice(favored="what the bias favors")

ADVICE: dict[str, Advice] = {
    "likelihood": Advice(
        favored="an output that is one standard deviation likelier",
        for_scores="'evalbias compile likelihood --lm MODEL --data FILE' tries demonstrations and calibrations and "
        "keeps what is shown to help; this takes a few thousand judgments once, and afterwards prompts that are "
        "longer by 2 to 8 examples, or one more likelihood for each output",
        for_others="correct the scores by the outputs' likelihoods, one for each output "
        "(evalbias.measures.corrections), or switch to a judge that has less of it: 'evalbias compile "
        "likelihood --lm MODEL --data FILE' makes one from any model that you can run",
    ),
    "position": Advice(
        favored="the output shown first",
        only="pairs",
        for_pairs="ask in both orders and average, which removes it at twice the prompts (PairwiseJudge with "
        "debias='permutation'); 'evalbias optimize CRITERION --data FILE --lm MODEL' searches for a wording that needs "
        "only one prompt for each pair",
        for_others="ask in both orders and average, which removes it at twice the prompts",
    ),
    "verbosity": Advice(
        favored="an output that is one standard deviation longer",
        for_pairs="'evalbias optimize CRITERION --objective verbosity --data FILE --lm MODEL' searches for a "
        "wording without it; the search takes a few thousand judgments once, and the wording costs nothing",
        for_scores="'evalbias compile likelihood' may lessen it where length and likelihood go together (measure "
        "again afterwards); outputs of equal length avoid it",
        for_others="judge outputs of equal length, or change the judge's wording or examples and audit it again",
    ),
    "self_preference": Advice(
        favored="an output of the judge's own system",
        for_pairs=OTHER_JUDGES,
        for_scores=OTHER_JUDGES,
    ),
    "scale_use": Advice(
        favored="the middle of the scale",
        only="scores",
        for_scores="a map of the scores, or a likelihood calibration, stretches them but ranks no better; "
        "demonstrations from the whole scale ('evalbias compile likelihood') teach it, in prompts that are longer by 2 "
        "to 8 examples",
        for_others="a map from its scores to people's stretches them at no cost, but ranks no better",
        for_reversed="check that a high score is a good one: these scores do not rise with the quality at all",
        words="one point of quality is worth {value:.2f} points of the score instead of {null:g} "
        "(95 % interval {low:.2f} to {high:.2f})",
    ),
    "self": Advice(favored="the output that a loop refined itself"),
    "joint": Advice(favored=""),
    "corrected": Advice(favored=""),
    "agreement": Advice(favored=""),
}
"""Name of a bias -> what is said about it."""


def advice_on(bias: str) -> Advice:
    """Return what is said about a bias; general words for one without an entry."""
    return ADVICE.get(bias, UNKNOWN)


def margin_of(unit: str) -> float:
    """Return the smallest effect worth finding, in an estimate's unit."""
    return MARGINS.get(unit, MARGIN)


def shown_distance(unit: str) -> float:
    """Return how far an effect of the size of the margin lies from what the test allows for."""
    return margin_of(unit) - ALLOWANCES.get(unit, 0.0)


# Explain a judge's likelihood effect and BiasScore in sentences.


LIKELIER = "At equal quality, an output that is one standard deviation likelier"
FEW = 100
"""Items below which the range of scores, and with it BiasScore, still depends much on the sample."""
MOVED = 0.05
"""Change of BiasScore without the extreme items that is worth a remark."""


def effect_sentence(effect: FeatureEffect, scale: tuple[float, float] | None) -> str:
    """Say what the effect of a judge that scores means, in points of its scale, and what to do where it is undefined.

    Args:
        effect: FeatureEffect of the judge.
        scale: Lowest and highest score; None for the mean over several scales.
    """
    unit = effect.score_sd
    points = "points" if scale is None else f"points on the scale of {scale[0]:g} to {scale[1]:g}"
    if np.isnan(effect.effect) and not np.isnan(effect.low):
        low, high = (number(end * unit) for end in effect.bounds)
        ends = " to ".join(number(end * unit) for end in (effect.low, effect.high))
        return (
            f"{LIKELIER} gets between {low} and {high} {points}, depending on how reliable an item's one rating is "
            f"(95 % interval for every reliability from .5 to 1: {ends}): {_verdict(effect)}. State the "
            "reliability (reliability=R, --reliability R), or have a second person rate the items."
        )
    if np.isnan(effect.low):
        return f"The likelihood effect cannot be told: {effect.reason}."
    caution = ""
    if effect.weak:
        caution = (
            f" The ratings hold the quality fixed only weakly (F = {effect.first_stage_f:.1f}, below 10), so the "
            "interval is the one that allows for this."
        )
    value, least, most = unit * effect.effect, unit * effect.low, unit * effect.high
    shown = f"{amount(value, least, most)} {points} ({interval_words(value, least, most)})"
    return f"{LIKELIER} gets {shown}: {_verdict(effect)}.{caution}"


def bias_score_caution(judged: Judged) -> str:
    """Say when the published BiasScore of a judge that scores depends on few items; empty where it does not."""
    likelihoods, scores, human = judged.covariate(LIKELIHOODS), judged.answers, judged.covariate(HUMAN_SCORES)
    kept = np.flatnonzero(~np.isnan(likelihoods + scores + human))
    if len(kept) < 3:
        return ""
    remarks = []
    if len(kept) < FEW:
        remarks.append(f"{count(len(kept), 'item')} are few for it")
    values = [column[kept] for column in (likelihoods, scores, human)]
    extreme = {int(np.argmin(v)) for v in values[1:]} | {int(np.argmax(v)) for v in values[1:]}
    whole, rest = (_published(*(np.delete(v, list(out)) for v in values)) for out in (set[int](), extreme))
    if abs(rest - whole) > MOVED:
        amount = f"the {len(extreme)} items with the lowest and highest scores"
        remarks.append(f"without {amount} it is {rest:+.2f} instead of {whole:+.2f}")
    if not remarks:
        return ""
    return f"BiasScore follows the range of the scores: {', and '.join(remarks)}."


def _published(likelihoods: np.ndarray, scores: np.ndarray, human: np.ndarray) -> float:
    return bias_score(likelihoods, unfairness_scores(scores, human))


def _verdict(effect: FeatureEffect) -> str:
    if effect.low > 0:
        return "the judge overrates likely text"
    if effect.high < 0:
        return "the judge underrates likely text"
    return "no effect of likelihood is shown"


# The finding about one bias in words, in units that people understand.


def in_words(bias: str, estimate: Estimate, measurement: Measurement, judged: Judged) -> str:
    """Say an estimate less its null in units that people understand: points, wins of 100 pairs, or win probability."""
    advice, ends = advice_on(bias), (estimate.value, estimate.low, estimate.high)
    favored, null = advice.favored, measurement.estimates[estimate.name].null or 0.0
    if advice.words:
        value, low, high = (null + end for end in ends)
        return advice.words.format(value=value, low=low, high=high, null=null)
    if estimate.unit == SCORE_SD and not judged.pairwise:
        unit = _score_sd(estimate.name, measurement)
        value, low, high = (unit * end for end in ends)
        digits = decimals(value, low, high)
        points, interval = amount(value, low, high, digits), interval_words(value, low, high, digits)
        return f"{favored} gets {points} points at equal quality{_scale(judged)} ({interval})"
    if estimate.unit == SCORE_SD and judged.verdicts:
        value, low, high = (100 * share for share in _even_pair(estimate.name, measurement, judged, ends))
        wins = f"between {low:.0f} and {high:.0f}" if math.isnan(value) else f"{value:.0f}"
        interval = interval_words(value, low, high, digits=0)
        return f"{favored} wins {wins} of 100 pairs of equal quality instead of 50 ({interval})"
    if estimate.unit == SCORE_SD:
        value, low, high = (100 * share for share in _even_pair(estimate.name, measurement, judged, ends))
        probability = f"{low:.0f} to {high:.0f}" if math.isnan(value) else f"{value:.0f}"
        return (
            f"in a pair of equal quality that the judge would otherwise find even, {favored} gets a win probability of "
            f"{probability} % ({interval_words(value, low, high, digits=0)})"
        )
    if estimate.unit == SHARE:
        value, low, high = (100 * (null + end) for end in ends)
        interval = f"95 % interval {low:.3g} to {high:.3g}"
        return f"{favored} wins {value:.3g} of 100 comparisons instead of {100 * null:.3g} ({interval})"
    interval = f"95 % interval {estimate.interval}"
    return f"{estimate.label} differs by {number(ends[0])} from that of an unbiased judge ({interval})"


def margin_in_words(margin: float, estimate: Estimate, measurement: Measurement, judged: Judged) -> str:
    """Say the smallest effect worth finding in the same units, such as "an effect of 0.18 points or more"."""
    if estimate.unit == SCORE_SD and not judged.pairwise:
        points = margin * _score_sd(estimate.name, measurement)
        return f"an effect of {points:.{decimals(points)}f} points or more"
    if estimate.unit == SCORE_SD:
        (share,) = _even_pair(estimate.name, measurement, judged, (margin,))
        if judged.verdicts:
            return f"an effect of {100 * (share - 0.5):.0f} of 100 pairs or more"
        return f"a shift of an even pair from 50 % to {100 * share:.0f} % or more"
    if estimate.unit == SHARE:
        return f"an effect of {100 * margin:g} of 100 comparisons or more"
    if estimate.unit == SLOPE:
        return f"a rise of {1 - margin:g} points or less for each point of quality"
    return f"an effect of {margin:g} {estimate.unit}".rstrip() + " or more"


def _even_pair(name: str, measurement: Measurement, judged: Judged, ends: tuple[float, ...]) -> list[float]:
    """Return the win probability that an effect makes of an even pair; of verdicts, the share of wins.

    Of log-odds it is no share of wins: a confident judge decides few pairs near even, so an effect that moves an even
    pair from 50 to 76 % may turn 11 decisions of 100, or 2.
    """
    shifts = [_score_sd(name, measurement) * end for end in ends]
    if judged.verdicts:  # the effect is linear, and a share has ends
        return [float(np.clip(0.5 + shift / 2, 0, 1)) for shift in shifts]
    return [float(scipy.special.expit(shift)) for shift in shifts]


def _score_sd(name: str, measurement: Measurement) -> float:
    """Return the standard deviation of the values that an estimate was computed from, in points or log-odds."""
    number = measurement.numbers[name]
    assert isinstance(number.estimator, EffectStatistic)  # no other has this unit
    return float(number.estimator.both_ways(number.values[~np.isnan(number.values)]).std())


def _scale(judged: Judged) -> str:
    if judged.scale is not None:
        return f" on the scale of {judged.scale[0]:g} to {judged.scale[1]:g}"
    scores = judged.answers[~np.isnan(judged.answers)]
    return f", where the judge's scores run from {scores.min():g} to {scores.max():g}" if len(scores) else ""


# Requirements of measuring each bias, and those that the items of an audit lack.


@dataclass(frozen=True)
class Given:
    """Inputs of an audit.

    Attributes:
        judged: The judge's answers, and what is known about the items.
        examples: The items; without them, their inputs are taken to be there.
        own: Name of the judge's own system among the writers.
    """

    judged: Judged
    examples: Sequence[dspy.Example] = ()
    own: str | None = None


MAPPED = "name yours in mapping, or by --map rating_1=COLUMN,rating_2=COLUMN"
Need = Callable[[Given], str]
"""Says what is lacking, as the end of "it needs ..."; empty where nothing is."""


def what_is_lacking(bias: str, given: Given) -> str:
    """Return what measuring a bias takes and the items lack, as the end of "it needs ..."; empty where nothing is."""
    return joined([words for need in NEEDS.get(bias, ()) if (words := need(given))])


def _model(given: Given) -> str:
    there = LIKELIHOODS in given.judged.covariates
    return "" if there else "a model that reports likelihoods, such as a local one (likelihood_lm, --likelihood-lm)"


def _inputs(given: Given) -> str:
    there = all(isinstance(e.get("source"), str) for e in given.examples)
    return "" if there else "the input of every item (field source)"


def _texts(given: Given) -> str:
    field = "outputs, or output_1 and output_2" if given.judged.pairwise else "output"
    return "" if LENGTHS in given.judged.covariates else f"the texts that were judged (field {field})"


def _people(given: Given) -> str:
    if given.judged.rated:
        return ""
    if given.judged.pairwise:
        return "people's choices between the outputs (field better, or name another: better_field, --better-field)"
    if others := rated_criteria(given.examples):
        names = joined([repr(name) for name in others])
        return f"people's ratings on {given.judged.criterion!r:.80} (the items are rated on {names:.500})"
    return f"people's ratings (columns rating_1, rating_2, ...; {MAPPED}) or scores (column score)"


def _both_orders(given: Given) -> str:
    there = given.judged.answers.shape[1] > 1 or BETTER in given.judged.covariates
    needed = (
        "choices in both orders (swapped_field, --swapped-field) or people's choices (better_field, --better-field)"
    )
    return "" if there else needed


def _writers(given: Given) -> str:
    names = sorted(set(np.asarray(given.judged.writers, dtype=str).ravel().tolist()))
    if not names:
        field = "systems, or system_1 and system_2" if given.judged.pairwise else "system"
        return f"the writers of the outputs (field {field})"
    if len(names) == 1:
        return f"outputs of several writers ({names[0]:.80} wrote all of these)"
    if len(set(given.judged.writers)) == 1 and given.judged.answers.shape[1] == 1:
        return (
            "pairs in which either system stands first (swap the outputs of half of the pairs, and their choices too)"
        )
    missing = given.own is not None and given.own not in names
    return f"outputs of {given.own!r:.80} (the writers are {', '.join(names):.500})" if missing else ""


def _own_system(given: Given) -> str:
    needed = "the name of the judge's own system among the writers (own_system, --own-system)"
    return "" if given.own is not None else needed


def _two_ratings(given: Given) -> str:
    ratings = given.judged.covariates.get(RATINGS)
    there = ratings is not None and bool(((~np.isnan(ratings)).sum(axis=1) > 1).any())
    return "" if there else f"two or more ratings of each item (columns rating_1, rating_2, ...; {MAPPED})"


def _same_scale(given: Given) -> str:
    if given.judged.scale is None:
        return "the judge's lowest and highest score (scale, --scale)"
    if HUMAN_SCORES not in given.judged.covariates or given.judged.on_peoples_scale:
        return ""
    if np.isnan(given.judged.answers).all():
        return "scores by the judge (all are undefined)"
    return "people's ratings on the judge's scale (scale, --scale)" + _off_scale(given.judged)


def _off_scale(judged: Judged) -> str:
    """Name the first item that people rated off the judge's scale, as the end of a sentence; empty if there is none."""
    low, high = judged.scale or (-np.inf, np.inf)
    rated = judged.covariates.get(RATINGS, judged.covariate(HUMAN_SCORES))
    rated = rated.reshape(len(judged.ids), -1)  # (n, raters)
    items = np.flatnonzero(((rated < low) | (rated > high)).any(axis=1))
    if not len(items):
        return ""
    row = rated[items[0]]
    value = row[(row < low) | (row > high)][0]
    return (
        f"; outside {low:g} to {high:g} are the ratings of {count(len(items), 'item')}, such as "
        f"{judged.ids[items[0]]!r:.80} with {value:g}"
    )


NEEDS: Mapping[str, Sequence[Need]] = {
    "likelihood": (_model, _inputs, _texts, _people),
    "position": (_both_orders,),
    "verbosity": (_texts, _people),
    "self_preference": (_writers, _own_system, _people),
    "scale_use": (_two_ratings, _same_scale),
    "agreement": (_people,),
}
"""Name of a bias, or ``"agreement"``, -> what measuring it takes."""
