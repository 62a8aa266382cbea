"""One bias in an audit: whether the judge has it, how sure that is, and what would settle or mend it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from evalbias.evaluation.advice import ALLOWANCES, advice_on, margin_of, shown_distance
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.finding_words import in_words, margin_in_words
from evalbias.evaluation.joint import IN_ONE_MODEL
from evalbias.evaluation.judged import BY_CONSTRUCTION, RATINGS, Judged
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.needs import Given, what_is_lacking
from evalbias.evaluation.quality import rated_once
from evalbias.evaluation.sample_size import items_needed
from evalbias.measures.family_wise import holm
from evalbias.measures.quality_slope import SLOPE
from evalbias.measures.statistic import SCORE_SD

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


def _finding(
    bias: str, estimate: Estimate | None, measurement: Measurement, judged: Judged, p_adjusted: float, tests: int
) -> Finding:
    lacking = what_is_lacking(bias, Given(judged))
    if estimate is None:
        why = "the quality of the outputs may explain all numbers that could be measured"
        return Finding(bias, "not measured", None, f"{why}; it needs {lacking}" if lacking else why)
    if math.isnan(estimate.low):
        return Finding(bias, "not measured", estimate, estimate.why_undefined)
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
        margin_in_words=margin_in_words(margin, estimate, measurement, judged),
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
