"""The audit: one finding for each bias, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.agreement import floors_not_surpassed
from evalbias.evaluation.answers import answers_of, prepared
from evalbias.evaluation.bias import (
    ALLOWANCES,
    Given,
    advice_on,
    in_words,
    margin_in_words,
    margin_of,
    shown_distance,
    what_is_lacking,
)
from evalbias.evaluation.biases import BIASES, IN_ONE_MODEL, JointEffects
from evalbias.evaluation.estimates import (
    Bias,
    ByName,
    Estimate,
    Measurement,
    items_needed,
    label_next,
    measure,
)
from evalbias.evaluation.judged import BY_CONSTRUCTION, RATINGS, Judged
from evalbias.evaluation.words import Status, count, coverage_warning, joined, notebook_view, title
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.families import holm
from evalbias.measures.scale_use import SLOPE
from evalbias.options import AuditOptions, keywords
from evalbias.values import to_json

# One bias in an audit: whether the judge has it, how sure that is, and what would settle or mend it.


ALPHA = 0.05
"""Chance of calling an unbiased judge biased for any of the biases tested, after Holm's correction."""

RATED = (SCORE_SD, SLOPE)
"""Units of estimates at equal quality, which need ratings."""


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
    joint: Measurement | None = None,
) -> tuple[Finding, ...]:
    """Judge every bias by its headline estimate, with Holm's correction over the biases that are tested.

    Args:
        measurements: Bias -> measurement, of biases only.
        judged: What was measured.
        not_measured: Bias -> why it was not measured.
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
        replace(f, remedy=_remedy(f, judged), alone=_is_alone(f.bias, joint)) if f.status == "biased" else f
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
        rated_twice=estimate.unit in RATED and judged.rated_once > 0,
    )
    least = (measurement.estimates[estimate.name].null or 0.0) - finding.tolerated
    return replace(finding, sentence=f"{words}, where {least:g} and more is unbiased") if finding.tolerated else finding


def _is_alone(bias: str, joint: Measurement | None) -> bool:
    """Return whether a bias is shown with the others held fixed; True where that was not measured."""
    estimate = None if joint is None else joint.estimates.get(IN_ONE_MODEL.get(bias, ""))
    return estimate is None or not estimate.low <= 0 <= estimate.high


def _remedy(finding: Finding, judged: Judged) -> str:
    advice, estimate = advice_on(finding.bias), finding.estimate
    if advice.for_reversed and estimate is not None and estimate.unit == SLOPE and estimate.high <= -1:
        return advice.for_reversed
    ours = advice.for_pairs if judged.pairwise else advice.for_scores
    return ours if judged.compilable else advice.for_others or ours


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


# A judge on groups of the items, such as the sets of a benchmark or the kinds of bias that its pairs provoke.


def measure_groups(bias: Bias, judged: Judged, field: str, *, seed: int) -> dict[str, Measurement]:
    """Measure a bias, or the agreement with people, on the items of each value of a field.

    Args:
        bias: See ``BIASES``.
        judged: Answers on all items, with the items.
        field: Field whose values name the groups; items without a value belong to none.
        seed: Seed for the intervals.

    Returns:
        Group -> measurement, in order of first appearance; groups to which the bias does not apply are left out.

    Raises:
        ValueError: No item has the field.
    """
    values = [None if e.get(field) is None else str(e[field]) for e in judged.examples]
    names = [name for name in dict.fromkeys(values) if name is not None]
    if not names:
        raise ValueError(f"No item has a field {field!r} to group by: name one that the data have.")
    parts = {name: judged.take(np.flatnonzero([value == name for value in values])) for name in names}
    return {name: measure(bias, part, seed=seed) for name, part in parts.items() if bias.applies(part)}


# The verdict of an audit: whether the judge is biased, how much, and what helps.


@dataclass(frozen=True)
class Verdict:
    """Conclusion of an audit.

    Attributes:
        paragraphs: Whether the judge is biased and by how much, after a warning if its model hardly ever answers with a
            label; then, each by itself, which of these biases may be another, what the agreement with people is not
            shown to surpass, what helps and what it costs, and the biases that are ruled out, undecided, and not
            measured.
        findings: One finding per bias.
        caution: What the agreement with people is not shown to surpass, as in the paragraphs; empty where there is
            nothing to say.
    """

    paragraphs: tuple[str, ...]
    findings: tuple[Finding, ...]
    caution: str = ""

    @property
    def sentence(self) -> str:
        """All paragraphs in one line."""
        return " ".join(self.paragraphs)

    def having(self, status: Status) -> tuple[Finding, ...]:
        """Return the findings with a status."""
        return tuple(finding for finding in self.findings if finding.status == status)


def verdict_of(findings: Sequence[Finding], *, coverage: ArrayLike = (), caution: str = "") -> Verdict:
    """Conclude from the findings.

    Args:
        findings: One finding per bias.
        coverage: (n,) probabilities that the judge's model answers with a label; empty where unknown.
        caution: See ``Verdict``.
    """
    verdict = Verdict((), tuple(findings))
    biased = sorted(verdict.having("biased"), key=lambda finding: finding.p_adjusted)
    clear, open_ = verdict.having("no sign"), verdict.having("too few items")
    missing = verdict.having("not measured")
    said, warning = _first(biased, clear, open_, missing), coverage_warning({"": coverage})
    parts = [f"{warning} {said}" if warning else said]
    parts += _confused([f for f in biased if not f.alone])
    parts += [caution] if caution else []
    parts += [f"What helps against {title(f.bias)}: {f.remedy}." for f in biased if f.remedy]
    if clear:
        parts.append(f"No sign of bias: {', '.join(map(_excluded, clear))}.")
    if open_:
        parts.append(f"Too few items to decide: {', '.join(map(_open, open_))}.")
    if missing:
        parts.append(f"Not measured: {', '.join(map(_missing, missing))}.")
    return Verdict(tuple(parts), verdict.findings, caution)


def _first(
    biased: Sequence[Finding], clear: Sequence[Finding], open_: Sequence[Finding], missing: Sequence[Finding]
) -> str:
    if biased:
        names, sentences = joined([title(f.bias) for f in biased]), "; ".join(f.sentence for f in biased)
        return f"The judge is biased ({names}): {sentences}."
    if open_:
        return "No bias was found, but there are too few items to rule one out."
    if clear and missing:
        return "No bias was found among those measured, and there are enough items to say so."
    if clear:
        return "No bias was found, and there are enough items to say so."
    return "No bias could be measured."


def _confused(findings: Sequence[Finding]) -> list[str]:
    """Say which biases may be others that go with them."""
    if not findings:
        return []
    names, verb = joined([title(f.bias) for f in findings]), "is" if len(findings) == 1 else "are"
    return [
        f"With the other biases held fixed, {names} {verb} not shown (see 'Biases in one model'): in these outputs, "
        "one bias may look like another."
    ]


def _excluded(finding: Finding) -> str:
    if not finding.margin_in_words:
        return f"{title(finding.bias)} ({finding.sentence})"
    return f"{title(finding.bias)} ({finding.margin_in_words} is ruled out)"


def _missing(finding: Finding) -> str:
    """Name a bias, and why its number is undefined where the items seemed to allow it."""
    return title(finding.bias) if finding.estimate is None else f"{title(finding.bias)} ({finding.sentence})"


def _open(finding: Finding) -> str:
    if finding.items_needed is not None:
        rated = " with two ratings each" if finding.rated_twice else ""
        return f"{title(finding.bias)} (about {count(finding.items_needed, 'item')}{rated} would be enough)"
    reason = "" if finding.estimate is None else finding.estimate.reason
    return f"{title(finding.bias)} ({reason})" if reason else title(finding.bias)


# The audit: every bias of any judge that the items allow to measure, its agreement with people, and a verdict.


AGREEMENT = "agreement"
"""Name of the measurement that is not of a bias."""
LABELS = 40
"""Number of items that an audit names for labeling."""


@dataclass(frozen=True, repr=False)
class Audit(ByName[Measurement]):
    """Every bias of one judge, its agreement with people, and what follows.

    ``audit["position"]`` is the measurement of a bias, ``audit["agreement"]`` that of the agreement with people.

    Attributes:
        measurements: Name of a bias, or ``"agreement"``, -> measurement.
        verdict: What follows, first in one line.
        judged: The judge's answers, the items, and what is known about them.
        not_measured: Bias -> why it was not measured and what would make it possible.
        provenance: What decides the numbers.
        label_next: Ids of the items that people should label next; empty where they labeled all or none.
        groups: Value of the field ``by`` -> agreement with people on its items; empty without such a field.
    """

    measurements: Mapping[str, Measurement]
    verdict: Verdict
    judged: Judged
    not_measured: Mapping[str, str]
    provenance: Mapping[str, Any]
    label_next: Sequence[str] = ()
    groups: Mapping[str, Measurement] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the judge and the verdict; a notebook shows everything, ``to_dict`` returns it."""
        return (
            f"Audit({self.judged.judge} on {self.judged.criterion}, n={len(self.judged.ids)}: {self.verdict.sentence})"
        )

    def _repr_html_(self) -> str:
        """Return verdict, plots and tables for a notebook, as in the report."""
        return notebook_view(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the items as JSON data, in which undefined numbers are None.

        ``biases`` holds headline estimates, of which 0 is no bias; ``agreement`` numbers by name; ``further`` what is
        measured besides, such as the joint model.
        """
        findings = {f.bias: f for f in self.verdict.findings}
        agreement = self.measurements.get(AGREEMENT)
        estimates = {} if agreement is None else agreement.estimates
        content = {
            "verdict": self.verdict.sentence,
            "judge": self.judged.judge,
            "criterion": self.judged.criterion,
            "n": len(self.judged.ids),
            "biases": {
                bias: {**_flat(findings[bias]), "estimates": measurement.estimates}
                for bias, measurement in self.measurements.items()
                if bias in findings
            },
            "further": {
                name: measurement.estimates
                for name, measurement in self.measurements.items()
                if name not in findings and name != AGREEMENT
            },
            AGREEMENT: {name: estimate.value for name, estimate in estimates.items()},
            "agreement_intervals": {
                name: {field: getattr(e, field) for field in ("low", "high", "n", "undefined")}
                for name, e in estimates.items()
            },
            "groups": {name: m.estimates for name, m in self.groups.items()},
            "not_measured": self.not_measured,
            "label_next": self.label_next,
            "undefined": dict(self.judged.reasons),
            "provenance": self.provenance,
        }
        return dict(to_json(content))

    def _parts(self) -> Mapping[str, Measurement]:
        return self.measurements

    def _lacks(self, name: str) -> str:
        why = self.not_measured.get(name)
        return super()._lacks(name) if why is None else f"{name!r} was not measured: {why}"


@keywords(AuditOptions)
def audit(asked: AuditOptions) -> Audit:
    """Measure every bias of a judge that the items allow, and its agreement with people.

    Name the judge in one of three ways: ``judge`` (or ``lm`` and ``criterion``), ``scores_field`` or ``winner_field``.

    Args:
        asked: The options, each as a keyword; see ``evalbias.options.AuditOptions``. ``data`` are a file, ``NAME:PATH``
            of a known data set, or a list of examples or dicts, as for ``data.read``; ``judge`` is a judge of evalbias,
            the JSON file of one, a DSPy module or metric, or a function, as for ``function_scores``; ``lm`` defaults to
            the judge's own model, else DSPy's.

    Returns:
        The audit. An item without an answer, or without a number that a bias needs, is left out there and counted.

    Raises:
        ValueError: Not exactly one judge is named, the items lack what is asked for (an item is named), or a judge of
            evalbias is given another criterion, scale, task or label than its own.
    """
    asked = prepared(asked)
    return audit_answers(
        answers_of(asked), own_system=asked.own_system, reliability=asked.reliability, by=asked.by, seed=asked.seed
    )


def audit_answers(
    judged: Judged,
    *,
    own_system: str | None = None,
    reliability: float | None = None,
    by: str | None = None,
    seed: int = 0,
) -> Audit:
    """Audit a judge that has answered; see ``audit``."""
    settings = {"own": own_system, "reliability": reliability}
    given = Given(judged, judged.examples, own_system)
    configured = {name: _configured(bias, settings) for name, bias in BIASES.items()}
    measurements = {name: measure(bias, judged, seed=seed) for name, bias in configured.items() if bias.applies(judged)}
    biases = {name: m for name, m in measurements.items() if is_of_bias(m)}
    not_measured = {**_not_measured(given, measurements), **judged.unmeasurable}
    missing = {name: why for name, why in not_measured.items() if name != AGREEMENT}
    joint = measurements.get(JointEffects.name)
    findings = findings_of(biases, judged, missing, joint=joint)
    not_measured |= {f.bias: f.sentence for f in findings if f.status == "not measured"}
    used = {name: value for name, value in settings.items() if value is not None}
    provenance = {**judged.provenance, **used, "seed": seed, "family_wise_error": ALPHA}
    caution = floors_not_surpassed(measurements[AGREEMENT], seed=seed) if AGREEMENT in measurements else ""
    verdict = verdict_of(findings, coverage=judged.coverage, caution=caution)
    known = judged.labeled
    unlabeled = label_next(judged, LABELS, seed) if known.any() and not known.all() else []
    return Audit(
        measurements=measurements,
        verdict=verdict,
        judged=judged,
        not_measured=not_measured,
        provenance=provenance,
        label_next=unlabeled,
        groups={} if by is None else measure_groups(BIASES[AGREEMENT], judged, by, seed=seed),
    )


def _not_measured(given: Given, measurements: Mapping[str, Measurement]) -> dict[str, str]:
    """Return why a bias, or the agreement, was not measured or tested; nothing for one that such a judge cannot have.

    What is measured of a bias may have no value that an unbiased judge would have, and then there is no test of it.
    """
    kind = "pairs" if given.judged.pairwise else "scores"
    untested = {name: "a test" for name, m in measurements.items() if name != AGREEMENT and not is_of_bias(m)}
    unmeasured = {n: "it" for n in BIASES if n not in measurements and advice_on(n).only in ("", kind)}
    needing = unmeasured | untested
    lacking = {name: what_is_lacking(name, given) for name in needing}
    return {name: f"{needing[name]} needs {words}" for name, words in lacking.items() if words}


def _configured(bias: Bias, settings: Mapping[str, Any]) -> Bias:
    """Return the bias with those settings that are fields of its class and given."""
    if not is_dataclass(bias) or isinstance(bias, type):
        return bias
    names = {field.name for field in fields(bias)}
    return replace(bias, **{n: v for n, v in settings.items() if n in names and v is not None})


def _flat(finding: Finding) -> dict[str, Any]:
    """Return a finding for JSON, the numbers of its estimate beside its words."""
    estimate = finding.estimate
    numbers = ("low", "high", "null", "n", "undefined", "name", "unit", "p_value")
    return {
        "estimate": None if estimate is None else estimate.value,
        **{name: None if estimate is None else getattr(estimate, name) for name in numbers},
        "status": finding.status,
        "sentence": finding.sentence,
        "p_adjusted": finding.p_adjusted,
        "margin": finding.margin,
        "margin_in_words": finding.margin_in_words,
        "items_needed": finding.items_needed,
        "rated_twice": finding.rated_twice,
        "remedy": finding.remedy,
        "alone": finding.alone,
    }
