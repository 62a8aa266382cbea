"""Explanations of each bias for a reader who knows no paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evalbias.evaluation.estimates import Estimate, Measurement
from evalbias.evaluation.judged import BY_CONSTRUCTION


class Named(NamedTuple):
    """Heading and question of a bias."""

    title: str
    question: str


BIASES: Mapping[str, Named] = {
    "likelihood": Named(
        "Likelihood", "Does the judge prefer text that a language model finds likely, at equal quality?"
    ),
    "position": Named("Position", "Does the place at which a reply stands decide whether it wins?"),
    "verbosity": Named("Length", "Does the judge prefer longer text?"),
    "self": Named("Self-bias", "Does the model score its own outputs higher than they deserve?"),
    "self_preference": Named(
        "Self-preference", "Does the judge prefer what it wrote itself over equally good text of others?"
    ),
    "scale_use": Named("Use of the scale", "Does the judge use the whole scale, as people do?"),
    "joint": Named(
        "All together", "Which of the biases remains when the others are held fixed? Likely text is often long, too."
    ),
    "agreement": Named("Agreement with people", "Does the judge agree with people?"),
    "corrected": Named("Corrected by people's labels", "What would people say of all items?"),
    "aspect": Named("Other qualities", "What else did the loop change?"),
}


ESTIMATES: Mapping[str, str] = {
    "likelihood_effect": "Effect of likelihood at equal quality",
    "length_effect": "Effect of length at equal quality",
    "performance": "Rank correlation with people (performance)",
    "likelihood_correlation": "Rank correlation of likelihood and winning",
    "first_rate": "How often the first place wins",
    "position_consistency": "How often the same reply wins in both orders",
    "longer_rate": "How often the longer reply wins",
    "bias": "Own score less expected score",
    "skewness": "Lopsidedness of the differences (Dskew)",
    "spearman": "Rank correlation with people (Spearman)",
}


def name_of(estimate: Estimate) -> str:
    """Return what an estimate is in words, as the beginning of a sentence; its label where there are none."""
    return ESTIMATES.get(estimate.name, estimate.label[:1].upper() + estimate.label[1:])


def title_of(bias: str) -> str:
    """Return the heading of a bias; one without words is called by its name."""
    return BIASES[bias].title if bias in BIASES else bias.replace("_", " ").capitalize()


def question_of(bias: str) -> str:
    """Return the question that measuring a bias answers."""
    return BIASES[bias].question if bias in BIASES else f"How strong is the bias {bias.replace('_', ' ')!r}?"


def by_construction(measurement: Measurement) -> str:
    """Say what the judge's making settles, so that its number is no finding; empty where nothing is."""
    reason = measurement.provenance.get(BY_CONSTRUCTION, {}).get(measurement.bias)
    return f"True by construction, not found: {reason}." if reason else ""
