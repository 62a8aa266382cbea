"""Explain a judge's likelihood effect and BiasScore in sentences."""

from __future__ import annotations

import numpy as np

from evalbias.evaluation.amounts import more, span
from evalbias.evaluation.formatting import count, number
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.measures import FeatureEffect, bias_score, unfairness_scores

LIKELIER = "At equal quality, an output that is one standard deviation likelier"
FEW = 100
"""Items below which the range of scores, and with it BiasScore, still depends much on the sample."""
MOVED = 0.05
"""Change of BiasScore without the extreme items that is worth a remark."""


def effect_sentence(effect: FeatureEffect, scale: tuple[float, float]) -> str:
    """Say what the effect of a judge that scores means, in points of its scale, and what to do where it is undefined.

    Args:
        effect: FeatureEffect of the judge.
        scale: Lowest and highest score.
    """
    unit = effect.score_sd
    points = f"points on the scale of {scale[0]:g} to {scale[1]:g}"
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
    amount = f"{more(value, least, most)} {points} ({span(value, least, most)})"
    return f"{LIKELIER} gets {amount}: {_verdict(effect)}.{caution}"


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
