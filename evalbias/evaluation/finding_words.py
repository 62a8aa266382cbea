"""The finding about one bias in words, in units that people understand."""

from __future__ import annotations

import math

import numpy as np
import scipy

from evalbias.evaluation.advice import advice_on
from evalbias.evaluation.amounts import more, span
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.formatting import decimals, number
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.quality import are_verdicts
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.quality_slope import SLOPE
from evalbias.measures.resampling import defined_items
from evalbias.measures.statistic import SCORE_SD, SHARE


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
        points, interval = more(value, low, high, digits), span(value, low, high, digits)
        return f"{favored} gets {points} points at equal quality{_scale(judged)} ({interval})"
    if estimate.unit == SCORE_SD and are_verdicts(measurement.samples[estimate.name].values):
        value, low, high = (100 * share for share in _even_pair(estimate.name, measurement, ends))
        wins = f"between {low:.0f} and {high:.0f}" if math.isnan(value) else f"{value:.0f}"
        interval = span(value, low, high, digits=0)
        return f"{favored} wins {wins} of 100 pairs of equal quality instead of 50 ({interval})"
    if estimate.unit == SCORE_SD:
        value, low, high = (100 * share for share in _even_pair(estimate.name, measurement, ends))
        probability = f"{low:.0f} to {high:.0f}" if math.isnan(value) else f"{value:.0f}"
        return (
            f"in a pair of equal quality that the judge would otherwise find even, {favored} gets a win probability of "
            f"{probability} % ({span(value, low, high, digits=0)})"
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
        (share,) = _even_pair(estimate.name, measurement, (margin,))
        if are_verdicts(measurement.samples[estimate.name].values):
            return f"an effect of {100 * (share - 0.5):.0f} of 100 pairs or more"
        return f"a shift of an even pair from 50 % to {100 * share:.0f} % or more"
    if estimate.unit == SHARE:
        return f"an effect of {100 * margin:g} of 100 comparisons or more"
    if estimate.unit == SLOPE:
        return f"a rise of {1 - margin:g} points or less for each point of quality"
    return f"an effect of {margin:g} {estimate.unit}".rstrip() + " or more"


def _even_pair(name: str, measurement: Measurement, ends: tuple[float, ...]) -> list[float]:
    """Return the win probability that an effect makes of an even pair; of verdicts, the share of wins.

    Of log-odds it is no share of wins: a confident judge decides few pairs near even, so an effect that moves an even
    pair from 50 to 76 % may turn 11 decisions of 100, or 2.
    """
    values = measurement.samples[name].values
    shifts = [_score_sd(name, measurement) * end for end in ends]
    if are_verdicts(values):  # the effect is linear, and a share has ends
        return [float(np.clip(0.5 + shift / 2, 0, 1)) for shift in shifts]
    return [float(scipy.special.expit(shift)) for shift in shifts]


def _score_sd(name: str, measurement: Measurement) -> float:
    """Return the standard deviation of the values that an estimate was computed from, in points or log-odds."""
    sample = measurement.samples[name]
    assert isinstance(sample.statistic, EffectStatistic)  # no other has this unit
    return float(sample.statistic.both_ways(sample.values[defined_items(sample.values)]).std())


def _scale(judged: Judged) -> str:
    if judged.scale is not None:
        return f" on the scale of {judged.scale[0]:g} to {judged.scale[1]:g}"
    scores = judged.answers[~np.isnan(judged.answers)]
    return f", where the judge's scores run from {scores.min():g} to {scores.max():g}" if len(scores) else ""
