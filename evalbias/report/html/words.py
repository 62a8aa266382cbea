"""Explanations of each bias for a reader who knows no paper."""

from __future__ import annotations

from collections.abc import Mapping

from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.finding import Status
from evalbias.evaluation.floors import FLOORS
from evalbias.evaluation.formatting import title
from evalbias.evaluation.judged import BY_CONSTRUCTION
from evalbias.evaluation.measurement import Measurement

QUESTIONS: Mapping[str, str] = {
    "likelihood": "Does the judge prefer text that a language model finds likely, at equal quality?",
    "position": "Does the order in which two outputs are shown decide which one wins?",
    "verbosity": "Does the judge prefer longer text, at equal quality?",
    "self": "Does the model score its own outputs higher than they deserve?",
    "self_preference": "Does the judge prefer what it wrote itself over equally good text of others?",
    "scale_use": "Does the judge use the whole scale, as people do?",
    "joint": "Which of the biases remains when the others are held fixed? Likely text is often short.",
    "agreement": "Does the judge agree with people?",
    "corrected": "What would people say of all items?",
    "aspect": "What else did the loop change?",
}
"""Name of a bias, or of what else is measured -> the question that measuring it answers."""

STATUSES: Mapping[Status, str] = {
    "biased": "the bias is significant, after a correction for testing several biases",
    "too few items": "no bias was found, but one may have been missed",
    "no sign": "no bias was found, and every effect worth finding is ruled out",
    "not measured": "the data do not allow it",
}
"""Conclusion of an audit about a bias -> what it means, in the order in which a reader wants them."""


ESTIMATES: Mapping[str, str] = {
    "likelihood_effect": "Effect of likelihood at equal quality",
    "length_effect": "Effect of length at equal quality",
    "own_excess": "Bonus for the own system at equal quality",
    "own_excess_at_failures": "The same among outputs that people rate low",
    "likelihood": "Effect of likelihood",
    "length": "Effect of length",
    "own_system": "Effect of the own system",
    "position": "Advantage of the first position",
    "slope": "Points of the score for one point of quality",
    "spread_ratio": "Spread of the scores, as a multiple of people's",
    "top_two_share": "Share of the two most used scores",
    "entropy": "Evenness of the scores, from 0 to 1 (entropy)",
    "ends_share": "Share of the lowest and the highest score",
    "performance": "Rank correlation with people (performance)",
    "likelihood_correlation": "Rank correlation of likelihood and winning",
    "first_rate": "How often the first position wins",
    "first_rate_balanced": "How often the first position wins, people's choices balanced",
    "position_consistency": "How often the same output wins in both orders",
    "longer_rate": "How often the longer output wins",
    "bias": "Own score less expected score",
    "skewness": "Lopsidedness of the differences (Dskew)",
    "spearman": "Rank correlation with people (Spearman)",
    "kendall": "Rank correlation with people (Kendall)",
    "pearson": "Linear correlation with people (Pearson)",
    "alpha_interval": "Agreement in points (Krippendorff's alpha)",
    "alpha_ordinal": "Agreement in ranks (Krippendorff's alpha)",
    "accuracy": "Same choice as people",
    "accuracy_swapped": "Same choice as people, other order",
    "consistency": "Same choice in both orders",
    "kappa": "Agreement beyond chance (Cohen's kappa)",
    "brier": "Squared error of the probabilities (Brier)",
    "calibration_error": "Calibration error of the probabilities (ECE)",
    "judge_mean": "The judge's mean",
    "people_mean": "Mean of what people labeled",
    "corrected_mean": "Mean that people would give all items",
    "human_ceiling": "For comparison: one person with the others",
}
"""Name of an estimate -> what it is, as the beginning of a sentence and the name of a row."""
WRITER = "excess_of_"
"""Beginning of the names of estimates about one writer, whose label is the writer's name."""
WINS = " wins, "
"""Part of labels that begin with a writer's name, which stays as it is."""


def name_of(estimate: Estimate) -> str:
    """Return what an estimate is in words, as the beginning of a sentence; its label where there are none."""
    if estimate.name.startswith(WRITER):
        return f"{estimate.label} against the other writers"
    if WINS in estimate.label:
        return estimate.label
    if estimate.name in FLOORS:
        return f"For comparison: {estimate.label.removesuffix(' alone')} in place of a judge"
    return ESTIMATES.get(estimate.name, estimate.label[:1].upper() + estimate.label[1:])


def title_of(bias: str) -> str:
    """Return the heading of a bias."""
    return title(bias).capitalize()


def question_of(bias: str) -> str:
    """Return the question that measuring a bias answers."""
    return QUESTIONS.get(bias) or f"How strong is the bias {bias.replace('_', ' ')!r}?"


def by_construction(measurement: Measurement) -> str:
    """Say what the judge's making settles, so that its number is no finding; empty where nothing is."""
    reason = measurement.provenance.get(BY_CONSTRUCTION, {}).get(measurement.bias)
    return f"True by construction, not found: {reason}." if reason else ""
