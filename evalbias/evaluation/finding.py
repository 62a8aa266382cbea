"""One bias in an audit: whether the judge has it, by how much in words, and what would settle or mend it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy

from evalbias.evaluation.advice import ALLOWANCES, advice_on, margin_of, shown_distance
from evalbias.evaluation.amounts import more, span
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.formatting import decimals, number
from evalbias.evaluation.joint import IN_ONE_MODEL
from evalbias.evaluation.judged import BY_CONSTRUCTION, RATINGS, Judged
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.needs import Given, what_is_lacking
from evalbias.evaluation.quality import are_verdicts, rated_once
from evalbias.evaluation.sample_size import items_needed
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.quality_slope import SLOPE
from evalbias.measures.resampling import defined_items
from evalbias.measures.statistic import SCORE_SD, SHARE

ALPHA = 0.05
"""Chance of calling an unbiased judge biased for any of the biases tested, after Holm's correction."""

RATED = (SCORE_SD, SLOPE)
"""Units of estimates at equal quality, which need ratings."""

Status = Literal["biased", "no sign", "too few items", "not measured"]


@dataclass(frozen=True)
class Finding:
    """Result of an audit for one bias.

    Attributes:
        bias: Name of the bias.
        status: ``"biased"``: the headline estimate differs from that of an unbiased judge after Holm's correction.
            ``"no sign"``: it does not, and its 95 % interval lies within ``margin`` (on the side of the bias, where it
            has one), or the judge's making rules the bias out. ``"too few items"``: neither.
            ``"not measured"``: the items or the judge do not allow it, or allow bounds only, on both sides of 0.
        estimate: Headline estimate less its null, so that 0 is no bias; None where there is none.
        sentence: The finding in words, in units of the judge's scale.
        margin: Smallest effect worth finding, in the estimate's unit.
        margin_in_words: Effects of that size in points, wins or win probability: "an effect of 0.18 points or more".
        p_adjusted: p of the headline estimate, adjusted by Holm for the biases tested; NaN where not tested.
        items_needed: Items with which an effect of the size of ``margin`` is found with power .8 after Holm's
            correction; None where unknown, or where as many could not tell.
        rated_twice: Whether these items must have two ratings each, because items with one are left out.
        remedy: What helps and what it costs; empty where nothing is needed or evalbias has nothing.
        alone: Whether a bias is also shown in one model with the others, which are held fixed there; False where one of
            them may be what looks like it.
    """

    bias: str
    status: Status
    estimate: Estimate | None
    sentence: str
    margin: float = math.nan
    margin_in_words: str = ""
    p_adjusted: float = math.nan
    items_needed: int | None = None
    rated_twice: bool = False
    remedy: str = ""
    alone: bool = True

    @property
    def tolerated(self) -> float:
        """Distance below an unbiased judge that is no bias, where the interval as shown excludes 0; else 0."""
        if self.status == "biased" or self.estimate is None or not round(self.estimate.high, 2) < 0:
            return 0.0
        return ALLOWANCES.get(self.estimate.unit, 0.0)


def findings_of(
    measurements: Mapping[str, Measurement],
    judged: Judged,
    not_measured: Mapping[str, str],
    *,
    askable: bool = True,
    joint: Measurement | None = None,
) -> tuple[Finding, ...]:
    """Judge every bias by its headline estimate, with Holm's correction over the biases that are tested.

    Args:
        measurements: Bias -> measurement, of biases only.
        judged: What was measured.
        not_measured: Bias -> why it was not measured.
        askable: Whether evalbias can ask the judge and so compile it; what helps depends on it.
        joint: The biases in one model, if it could be measured.
    """
    headlines = {bias: headline(measurement) for bias, measurement in measurements.items()}
    settled = judged.provenance.get(BY_CONSTRUCTION, {})
    tested = {bias: e.p_value for bias, e in headlines.items() if e is not None and bias not in settled}
    tested = {bias: p_value for bias, p_value in tested.items() if not math.isnan(p_value)}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    findings = [
        Finding(bias, "no sign", headlines[bias], settled[bias])
        if bias in settled
        else _finding(bias, headlines[bias], measurement, judged, adjusted.get(bias, math.nan), max(len(tested), 1))
        for bias, measurement in measurements.items()
    ]
    findings = [
        replace(f, remedy=_remedy(f, judged, askable), alone=_is_alone(f.bias, joint)) if f.status == "biased" else f
        for f in findings
    ]
    return (*findings, *(Finding(bias, "not measured", None, why) for bias, why in not_measured.items()))


def is_of_bias(measurement: Measurement) -> bool:
    """Return whether any headline has a value that an unbiased judge would have; agreement, for one, has none."""
    headlines = (measurement.estimates.get(name) for name in measurement.headlines)
    return any(estimate is not None and estimate.null is not None for estimate in headlines)


def headline(measurement: Measurement) -> Estimate | None:
    """Return the estimate that decides whether the judge is biased, less its null; None where there is none.

    It is the first headline that has a null and that the outputs' quality cannot explain.
    """
    for name in measurement.headlines:
        estimate = measurement.estimates.get(name)
        if estimate is not None and estimate.null is not None and not estimate.confounded:
            shift = estimate.null
            return replace(
                estimate, value=estimate.value - shift, low=estimate.low - shift, high=estimate.high - shift, null=0.0
            )
    return None


def holm(p_values: list[float]) -> list[float]:
    """Adjust p-values so that rejecting those below alpha has a family-wise error of alpha (Holm 1979).

    An undefined p (NaN) stays undefined and does not count as a test.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    defined = [index for index, p_value in enumerate(p_values) if not math.isnan(p_value)]
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(sorted(defined, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(defined) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _finding(
    bias: str, estimate: Estimate | None, measurement: Measurement, judged: Judged, p_adjusted: float, tests: int
) -> Finding:
    lacking = what_is_lacking(bias, Given(judged))
    if estimate is None:
        why = "the quality of the outputs may explain all numbers that could be measured"
        return Finding(bias, "not measured", None, f"{why}; it needs {lacking}" if lacking else why)
    if math.isnan(estimate.low):
        return Finding(bias, "not measured", estimate, estimate.reason or "no item has all that it needs")
    margin = margin_of(estimate.unit)
    status: Status = "too few items"
    if p_adjusted < ALPHA:
        status = "biased"
    elif -margin < estimate.low and (estimate.high < margin or estimate.only_below):
        status = "no sign"
    elif math.isnan(estimate.value):
        return Finding(bias, "not measured", estimate, _open_within_bounds(judged), margin=margin)
    words = in_words(bias, estimate, measurement, judged)
    needed = items_needed(estimate, shown_distance(estimate.unit), tests=tests)
    if needed is not None and status == "too few items" and needed <= estimate.n:
        needed = None  # as many are there: the effect lies near the margin, and no count of items can be promised
    finding = Finding(
        bias,
        status,
        estimate,
        words,
        margin=margin,
        margin_in_words=_margin_in_words(margin, estimate, measurement, judged),
        p_adjusted=p_adjusted,
        items_needed=needed,
        rated_twice=estimate.unit in RATED and rated_once(judged) > 0,
    )
    least = (measurement.estimates[estimate.name].null or 0.0) - finding.tolerated
    return replace(finding, sentence=f"{words}, where {least:g} and more is unbiased") if finding.tolerated else finding


def _is_alone(bias: str, joint: Measurement | None) -> bool:
    """Return whether a bias is shown with the others held fixed; True where that was not measured."""
    estimate = None if joint is None else joint.estimates.get(IN_ONE_MODEL.get(bias, ""))
    return estimate is None or not estimate.low <= 0 <= estimate.high


def _remedy(finding: Finding, judged: Judged, askable: bool) -> str:
    advice, estimate = advice_on(finding.bias), finding.estimate
    if advice.for_reversed and estimate is not None and estimate.unit == SLOPE and estimate.high <= -1:
        return advice.for_reversed
    ours = advice.for_pairs if judged.pairwise else advice.for_scores
    return ours if askable else advice.for_others or ours


def _open_within_bounds(judged: Judged) -> str:
    """Say why bounds cannot tell, however many items there are, and what can."""
    if judged.pairwise and RATINGS not in judged.covariates:
        one, second = "choice", "let a second person compare the pairs"
    else:
        one, second = "rating", "let a second person rate the items"
    return (
        f"with one {one} for each {'pair' if judged.pairwise else 'item'}, only bounds are known, and 0 lies between "
        f"them: state how reliable a {one} is (reliability=R, --reliability R), or {second}"
    )


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


def _margin_in_words(margin: float, estimate: Estimate, measurement: Measurement, judged: Judged) -> str:
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
