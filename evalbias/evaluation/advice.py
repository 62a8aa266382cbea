"""Advice on each bias in an audit: its effect in words, the data that it takes, and remedies with their costs."""

from __future__ import annotations

from dataclasses import dataclass

from evalbias.measures.quality_slope import LEAST, SLOPE
from evalbias.measures.statistic import SCORE_SD, SHARE

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
        "(evalbias.measures.likelihood_calibration), or switch to a judge that has less of it: 'evalbias compile "
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
