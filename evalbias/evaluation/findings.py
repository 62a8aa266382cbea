"""Findings: whether a judge has each bias, how certain this is, what would settle it, remedies, and the next step."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from evalbias.evaluation.agreement import PeopleAgreement, Validity
from evalbias.evaluation.bias import ALLOWANCES, Bias, EffectBias, holding
from evalbias.evaluation.biases import Joint, Likelihood, Position, ScaleUse, Verbosity, title_of
from evalbias.evaluation.estimates import Estimate, Measurement, decide, items_needed
from evalbias.evaluation.judged import BY_CONSTRUCTION, Judged
from evalbias.evaluation.words import STATUSES, Status, count, joined
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.measures.families import holm
from evalbias.measures.resample import FEWEST_UNITS
from evalbias.measures.scale_use import SLOPE

ALPHA = 0.05  # chance of calling an unbiased judge biased in any tested bias, after Holm's correction
RATED = (SCORE_SD, SLOPE)  # units of estimates at equal quality, which need ratings
AGREEMENT = PeopleAgreement.name  # name of the measurement that is not of a bias
CROWDING = ScaleUse.name  # bias that is listed before those at equal quality

# --- a single bias: whether the judge has it, how certain this is, what settles it, remedies --------------------------


@dataclass(frozen=True)
class Open:
    """What is told of a bias that is neither shown nor ruled out; texts are empty if there is nothing to say."""

    settled_by: str = ""  # what would settle whether the judge is biased
    items_needed: int | None = None  # to find an effect of the margin with power .8; None if unknown, or none is enough
    rated_twice: bool = False  # whether they need two ratings each, because items with a single rating are left out
    within: str = ""  # effect within these systems' outputs, if the systems are too few to generalize
    held_if: str = ""  # assumption under which bounds hold


@dataclass(frozen=True)
class Finding:
    """Result of an audit for a bias; texts are empty if there is nothing to say.

    Attributes:
        bias: Name of the bias.
        status: ``"biased"``: significant by Holm's correction, in the headline or with the other biases held fixed.
            ``"no sign"``: the interval lies within ``margin`` (for a one-sided bias, on its side), or the judge's
            construction rules it out. The others are ``"bounds only"``, ``"too few items"`` and ``"not measured"``.
        estimate: Headline estimate minus its null, so that 0 is no bias; or ``joint`` if ``hidden``.
        sentence: The finding in words, in units of the judge's scale.
        margin: Smallest effect worth finding, in the estimate's unit.
        margin_in_words: Effects of that size in points, wins or win probability: "an effect of 0.18 points or more".
        p_adjusted: p-value of the headline estimate, adjusted by Holm for the tested biases; NaN if not tested. For
            bounds, the largest p-value under their assumptions.
        open: What would settle whether the judge is biased, and what is known until then.
        remedy: Remedy and its cost; empty if the bias is not shown with the others held fixed.
        joint: The same effect in the joint model, with the other biases held fixed.
        hidden: Whether the bias is shown only with the others held fixed, because their effects cancel it here.
        holds: Least and greatest reliability, the share of the mean rating's variance that is quality, for which the
            interval of a bias at equal quality excludes 0; NaN if it assumes no reliability.
    """

    bias: str
    status: Status
    estimate: Estimate | None
    sentence: str
    margin: float = math.nan
    margin_in_words: str = ""
    p_adjusted: float = math.nan
    open: Open = Open()
    remedy: str = ""
    joint: Estimate | None = None
    hidden: bool = False
    holds: tuple[float, float] = (math.nan, math.nan)

    @property
    def alone(self) -> bool:
        """False if the bias is not shown with the others held fixed, so that another bias may explain it."""
        return self.joint is None or self.joint.low > 0 or self.joint.high < 0  # NaN is neither

    @property
    def is_shown_by_bounds(self) -> bool:
        """True if both bounds are on the same side of 0, so that the judge is biased if the bounds hold."""
        return self.status == "bounds only" and self.p_adjusted < ALPHA

    @property
    def condition(self) -> str:
        """Description of the reliability that a bias at equal quality, or bounds, assume, and of the clusters."""
        e, rests = self.estimate, f"holds {self.open.held_if}" if self.open.held_if else ""
        if e is not None and self.status == "biased" and not math.isnan(least := self.holds[0]):
            taken, most = round(100 * e.reliability), math.floor(100 * self.holds[1])
            fewest = min(math.ceil(100 * least), taken)
            shares = f"{fewest} % or more" if most >= 100 else f"{fewest} to {max(most, taken)} %"
            rests = f"holds if {shares} of the variance of the mean rating is quality, where {taken} % is taken"
        few = e.few_systems if e is not None and self.status in ("biased", "no sign") else 0
        over = "is clustered by input only" if e is not None and e.units < e.n else "is over items only"
        return ", and ".join(filter(None, (rests, f"{over} ({few} systems)" if few else "")))

    @property
    def tolerated(self) -> float:
        """Distance below an unbiased judge that is no bias, if the printed interval excludes 0; else 0."""
        if self.status == "biased" or self.estimate is None or not round(self.estimate.high, 2) < 0:
            return 0.0
        return ALLOWANCES.get(self.estimate.unit, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data: the numbers of the estimate, and the texts."""
        e, names = self.estimate, ("value", "low", "high", "null", "n", "undefined", "name", "unit", "p_value")
        numbers = {name: None if e is None else getattr(e, name) for name in (*names, "reliability")}
        result = ("status", "sentence", "p_adjusted", "margin", "margin_in_words")
        more = ("remedy", "alone", "hidden", "condition", "holds")
        texts = {name: getattr(self, name) for name in (*result, *more)}
        texts |= {name: getattr(self.open, name) for name in ("items_needed", "rated_twice", "settled_by")}
        return {"estimate": numbers.pop("value"), **numbers, **texts}


def headline(measurement: Measurement) -> Estimate | None:
    """Return the first headline estimate with a null that quality cannot explain, minus its null; else None."""
    for name in measurement.headlines:
        e = measurement[name]
        if e.null is not None and not e.confounded:
            return e.less_null()
    return None


def is_of_bias(measurement: Measurement) -> bool:
    """Return whether any headline has a null value; agreement, for example, has none."""
    return any(measurement[name].null is not None for name in measurement.headlines)


def findings_of(
    measurements: Mapping[str, Measurement], judged: Judged, not_measured: Mapping[str, str], *, criteria: int = 1
) -> tuple[Finding, ...]:
    """Decide every bias by its headline estimate, with Holm's correction over the tested biases.

    p-values are multiplied by the number of ``criteria`` (Bonferroni), so the error holds over all criteria.
    """
    # 1 a single number decides each bias, unless the judge's construction settles it
    biases = {name: m for name, m in measurements.items() if is_of_bias(m)}
    deciding = {name: headline(m) for name, m in biases.items()}
    settled = judged.provenance.get(BY_CONSTRUCTION, {})
    ruled_out = {name: reason for name, m in biases.items() if (reason := m.bias.ruled_out(m)) is not None}
    causes = {name: m.bias.other_cause(m) for name, m in biases.items() if name not in settled}
    # 2 the tests together; beside them the tests of bounds, whether both are on the same side of 0
    decisive = {name: e for name, e in deciding.items() if e is not None and causes.get(name) == ""}
    tested = {name: e.p_value for name, e in decisive.items() if not math.isnan(e.value + e.p_value)}
    adjusted = dict(zip(tested, holm(list(tested.values()), criteria), strict=True))
    between = {name: e.p_value for name, e in decisive.items() if math.isnan(e.value) and not math.isnan(e.p_value)}
    beside_them = holm([*between.values(), *[1.0] * len(tested)], criteria)
    adjusted |= dict(zip(between, beside_them[: len(between)], strict=True))
    # 3 biases that others hide or explain: the effects in the joint model, tested beside all others
    joint = measurements[Joint.name].estimates if Joint.name in measurements else {}
    features = {name: m.bias.feature_name for name, m in biases.items() if isinstance(m.bias, EffectBias)}
    beside = {name: joint[feature] for name, feature in features.items() if feature in joint}
    hidden = {name: e.p_value for name, e in beside.items() if name in tested and not math.isnan(e.p_value)}
    beside_tested = holm([*hidden.values(), *[1.0] * len(tested)], criteria)
    held_fixed = dict(zip(hidden, beside_tested[: len(hidden)], strict=True))
    # 4 the finding for each bias
    untested = {name: Finding(name, "not measured", deciding[name], cause) for name, cause in causes.items() if cause}
    untested |= {name: Finding(name, "no sign", *estimate_and_words) for name, estimate_and_words in ruled_out.items()}
    untested |= {name: Finding(name, "no sign", deciding[name], settled[name]) for name in biases if name in settled}
    findings = []
    for name, measurement in biases.items():
        if name in untested:
            findings.append(untested[name])
            continue
        tests, p = max(len(tested), 1) * criteria, adjusted.get(name, math.nan)
        finding = _finding(measurement, deciding[name], judged, p, tests)
        if name in beside:
            finding = _in_one_model(finding, measurement.bias, beside[name], judged, held_fixed.get(name, 1.0))
        if finding.status == "biased" and name in features:
            of = measurements[Joint.name] if finding.hidden else measurement
            number = features[name] if finding.hidden else measurement.bias.effect_name
            finding = replace(finding, holds=holding(of.numbers[number], of.clusters))
        findings.append(finding)
    return (*findings, *(Finding(name, "not measured", None, why) for name, why in not_measured.items()))


def _finding(
    measurement: Measurement, estimate: Estimate | None, judged: Judged, p_adjusted: float, tests: int
) -> Finding:
    bias = measurement.bias
    if estimate is None:
        lacking = bias.lacks(judged)
        why = "the quality of the outputs may explain all numbers that could be measured"
        return Finding(bias.name, "not measured", None, f"{why}; it needs {lacking}" if lacking else why)
    if math.isnan(estimate.low):
        return Finding(bias.name, "not measured", estimate, estimate.why_undefined)
    margin = bias.margin(estimate)
    wanted = margin - ALLOWANCES.get(estimate.unit, 0.0)
    status = decide(estimate, margin, p_adjusted)
    needed, settled_by, held_if, within = items_needed(estimate, wanted, tests=tests), "", "", ""
    rated_twice = estimate.unit in RATED and judged.rated_once > 0
    if math.isnan(estimate.value):
        status, settled_by, held_if = "bounds only", second_ratings(judged)[1], judged.held_if
    elif status == "too few items" and estimate.allowance >= wanted:
        status, settled_by = "bounds only", ENDS
    elif status == "too few items":
        if needed is not None and needed <= estimate.n:
            needed = None  # enough items already: the effect is near the margin, no number can be promised
        settled_by = estimate.reason if needed is None else _enough(needed, estimate, rated_twice)
        within = bias.within(measurement, judged, tests) if isinstance(bias, EffectBias) and estimate.systems else ""
    measured = measurement[estimate.name]
    sentence, in_words = bias.sentence(measured, judged), bias.margin_words(measured, judged)
    if within:
        sentence += f"; within these {estimate.systems} systems, {within}"
    told = Open(settled_by, needed, rated_twice, within, held_if)
    finding = Finding(bias.name, status, estimate, sentence, margin, in_words, p_adjusted, told)
    conditional = finding.is_shown_by_bounds and judged.asked.compilable  # `correct` takes no bounds
    if status == "biased" or within or conditional:
        finding = replace(finding, remedy=bias.remedy(measured, judged))
    if not finding.tolerated:
        return finding
    least = (measured.null or 0.0) - finding.tolerated
    return replace(finding, sentence=f"{finding.sentence}, where {least:g} and more is unbiased")


def _in_one_model(finding: Finding, bias: Bias, joint: Estimate, judged: Judged, p_adjusted: float) -> Finding:
    """Add the effect with the other biases held fixed: it may reveal a bias, or argue against a remedy."""
    alone, finding = finding.estimate, replace(finding, joint=joint)
    if finding.status == "biased" and not finding.alone and not math.isnan(joint.low):
        return replace(finding, remedy="")  # the judge may like something else than the remedy acts on
    if finding.status not in ("too few items", "no sign") or not p_adjusted < ALPHA or alone is None:
        return finding
    return replace(
        finding,
        status="biased",
        estimate=replace(joint, name=f"{alone.name}_held_fixed"),
        hidden=True,
        sentence=f"with the other biases held fixed, {bias.sentence(joint, judged)}, which they hide otherwise "
        f"({alone.text()} {alone.unit}, 95 % interval {alone.interval})",
        p_adjusted=p_adjusted,
        open=replace(finding.open, settled_by="", within=""),
        remedy=bias.remedy(joint, judged),
    )


ENDS = (
    "more items cannot help: the ends of the scales, or scores that bend with quality, alone may make an unbiased "
    "judge seem to have an effect worth finding; let people rate on a scale with more levels"
)


def second_ratings(judged: Judged) -> tuple[str, str, str]:
    """Return the second ratings that turn bounds into estimates; all ways to do so; options that choose items."""
    n, rating = min(SECOND_RATINGS, int(judged.labeled.sum())), judged.one_rating
    second = f"{count(n, 'pair')} compared" if judged.pairwise else f"{count(n, 'item')} rated"
    ways = (
        f"to turn bounds into estimates, have {second} by a second person ('evalbias doctor FILE --label-next {n}' "
        f"chooses them), which tells how reliable one {rating} is; or state that (reliability=R, --reliability R; 1 "
        "for an objective label)"
    )
    return f"{second} by a second person", ways, f"--label-next {n}"


def _enough(needed: int, estimate: Estimate, rated_twice: bool) -> str:
    """Say how many items are needed, and, if items share inputs, how many inputs or systems."""
    items = count(needed, "item") + (" with two ratings each" if rated_twice else "")
    if 1 < estimate.units < estimate.n:
        unit = "system" if estimate.systems else "input"
        items = f"{count(math.ceil(needed * estimate.units / estimate.n), unit)} ({items})"
    return f"about {items} would be enough"


# --- conclusions from all findings ------------------------------------------------------------------------------------


def shown_findings(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding], list[Finding], list[Finding]]:
    """Return biases that are shown, may be another bias, are shown if bounds hold, or within systems."""
    biased, bounded, open_, *_ = by_status(findings)
    alone, others = [f for f in biased if f.alone], [f for f in biased if not f.alone]
    return alone, others, [f for f in bounded if f.is_shown_by_bounds], [f for f in open_ if f.open.within]


def confused(others: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return biases that cannot be told apart: ``others`` if several, else it and all that may explain it."""
    if not others:
        return []
    return others if len(others) > 1 else [*others, *(f for f in findings if f.joint is not None and f not in others)]


def reasons_of(findings: Sequence[Finding], *, exact: bool = False) -> tuple[str, ...]:
    """Describe assumptions and remedies, and biases with bounds, ruled out, undecided or not measured.

    ``exact``: ratings have no error, such as a measured outcome.
    """
    biased, bounded, open_, clear, missing = by_status(findings)
    tested = [(f, e) for f in clear if (e := f.estimate) is not None and f.margin_in_words and not e.only_below]
    small = [f for f, e in tested if not e.low <= 0 <= e.high]  # the interval excludes 0, but the test tolerates more
    why = {f.bias: f"{f.margin_in_words} is ruled out" if f.margin_in_words else f.sentence for f in clear}
    beside = {f.bias: f"{f.sentence}, not significant beside the other tests; {why[f.bias]}" for f in small}
    sentences = [
        _assumption(findings, exact=exact),
        *(f"What helps against {title_of(f.bias)}: {f.remedy}." for f in (*biased, *open_, *bounded) if f.remedy),
        " ".join(f"{by[:1].upper()}{by[1:]}." for by in dict.fromkeys(f.open.settled_by for f in bounded)),
        _listed("Too small to matter, if there", small, lambda f: beside[f.bias]),
        _listed("No sign of bias", [f for f in clear if f not in small], lambda f: why[f.bias]),
        # reasons for undefined numbers that the items seemed to allow
        _listed("Not measured", missing, lambda f: "" if f.estimate is None else f.sentence),
    ]
    return tuple(filter(None, sentences))


def by_status(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings grouped by ``STATUSES``; among biases, crowding comes first, then the most certain."""
    biased, *others = ([f for f in findings if f.status == status] for status in STATUSES)
    return [sorted(biased, key=lambda finding: (finding.bias != CROWDING, finding.p_adjusted)), *others]


def titles_of(findings: Sequence[Finding]) -> str:
    """Return the titles of biases, joined."""
    return joined([title_of(f.bias) for f in findings])


def _assumption(findings: Sequence[Finding], *, exact: bool) -> str:
    """Describe the assumptions of conclusions at equal quality, and when they hold; empty without any."""
    biased, clear = ([f for f in findings if f.status == status] for status in ("biased", "no sign"))
    estimates = [f.estimate for f in findings if f in (*biased, *clear) or f.open.within]
    if not any(e is not None and e.unit in RATED for e in estimates):
        return ""
    holding = [f"the finding of {title_of(f.bias)} {f.condition}" for f in biased if f.condition]
    for condition in dict.fromkeys(f.condition for f in clear if f.condition):
        alike = [f for f in clear if f.condition == condition]
        holding.append(f"the interval of {titles_of(alike)} {condition}")
    holds = "; ".join(holding)
    taken = "the errors of raters to be independent: what raters share or copy counts as quality"
    if exact:
        taken = "the rating to be quality without error (reliability 1), as an outcome is"
    conclusions = f"Conclusions at equal quality take {taken}."
    return f"{conclusions} {holds[:1].upper()}{holds[1:]}." if holds else conclusions


def _listed(what: str, findings: Sequence[Finding], why: Callable[[Finding], str] | None = None) -> str:
    """List biases, each with its reason in brackets, if any; empty without biases."""
    names = [title_of(f.bias) + (f" ({why(f)})" if why and why(f) else "") for f in findings]
    return f"{what}: {joined(names)}." if names else ""


# --- first screen: at most twelve lines of a terminal, the next step last ---------------------------------------------

Reasons = tuple[Callable[[Finding], str] | None, Callable[[Finding], str] | None]
LINES, WIDTH = 12, 80  # lines and columns of a terminal
NEXT = 2  # lines that are kept for the next step
SUBTRACTED = (Likelihood.name, Verbosity.name)  # biases that ``evalbias correct`` subtracts from recorded scores
SECOND_RATINGS = 60  # items with second ratings that are enough to estimate reliability


def lines_of(
    findings: Sequence[Finding],
    before: Sequence[str],
    *,
    cautions: Sequence[str] = (),
    besides: Sequence[str] = (),
    most: float = math.inf,
) -> tuple[str, ...]:
    """Return the conclusions of an audit: ``before``, then the shown biases, then what is open.

    ``before`` holds warnings, whether the judge tells good from bad, and how lenient it is; ``cautions`` come last. If
    a terminal would need more than ``most`` lines, including the next step, the last biases are only named, and
    cautions counted; sentences in ``besides`` follow ``before`` as far as there is room.
    """
    _, bounded, open_, clear, missing = by_status(findings)
    statements, shown_lines, named = [*_statements(findings)], list[str](), list[Finding]()
    untold = [f for f in bounded if not f.is_shown_by_bounds]
    nothing = "No bias was found." if open_ or clear else "" if bounded else "No bias was measured."
    reasons: tuple[Reasons, ...] = ((attrgetter("open.settled_by"), attrgetter("sentence")), (None, None))
    for settled_by, bounds in reasons:  # reasons are given if there are enough lines
        sentences = [
            "" if statements else nothing,
            _listed("No sign of", clear),
            _listed("Too few items to tell", [f for f in open_ if not f.open.within], settled_by),
            _listed("Known between bounds only", untold, bounds),
            _listed("Not measured", missing),
        ]
        after = " ".join(filter(None, sentences))
        room = most - NEXT - sum(map(height, [*before, after])) - (1 if cautions else 0)
        if room >= sum(height(statement) for _, statement in statements):
            break
    else:
        room -= 1  # a line for the names of the others
    for finding, statement in statements:
        if named or height(statement) > room:
            named.append(finding)
        else:
            shown_lines.append(statement)
            room -= height(statement)
    also = f"{'Also shown' if shown_lines else 'Biases shown'}, by --full: {titles_of(named)}." if named else ""
    if sum(map(height, cautions)) > room + 1:
        cautions = [f"Read {count(len(cautions), 'caution')} by --full, too."]
    lines = [*filter(None, (*shown_lines, also, after, *cautions))]
    for text in besides:
        if sum(map(height, [*before, text, *lines])) <= most - NEXT:
            before = [*before, text]
    return tuple(filter(None, (*before, *lines)))


def _statements(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yield each shown bias with a sentence; first those that no other bias may explain."""
    alone, others, conditional, within = shown_findings(findings)
    fixed = [f for f in alone if f.joint is not None]
    for f in alone:
        yield f, f"Biased, {title_of(f.bias)}: {f.sentence}."
    for f in others:
        rivals = titles_of(fixed or [other for other in confused(others, findings) if other is not f])
        yield f, f"Biased, {title_of(f.bias)} or {rivals}, which these data cannot tell apart: {f.sentence}."
    for f in within:
        systems = count(f.estimate.systems if f.estimate else 0, "system")
        yield f, f"Within these {systems}, {f.open.within}; {systems} do not show whether that holds for others."
    for f in conditional:
        yield f, f"Biased under a condition, {title_of(f.bias)}: {f.sentence}."


def height(text: str) -> int:
    """Return the number of lines that a text takes in a terminal."""
    return len(textwrap.wrap(text, WIDTH))


# --- the next step ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NextStep:
    """The next step: reason or instructions, and the command that does it, if any.

    ``more``: words of the command beyond the audit's options. ``besides``: a step that can be taken meanwhile.
    """

    why: str
    command: str = ""
    more: str = ""
    besides: NextStep | None = None


def next_step(judged: Judged, findings: Sequence[Finding], validity: Validity | None) -> NextStep:
    """Return the most useful step after an audit: probes if nobody rated the items, or beside ratings."""
    probes = ("probe run", "") if judged.asked.compilable else ("probe emit", "--out rows.jsonl")
    if not judged.rated:
        return NextStep("Nobody rated these items; what moves the judge can be told without ratings", *probes)
    has_bounds = any(f.estimate is not None and math.isnan(f.estimate.value) for f in by_status(findings)[1])
    besides = NextStep("without more ratings, ask what moves the judge", *probes) if has_bounds else None
    return replace(_first_step(judged, findings, validity, has_bounds=has_bounds), besides=besides)


def _first_step(
    judged: Judged, findings: Sequence[Finding], validity: Validity | None, *, has_bounds: bool
) -> NextStep:
    compilable = judged.asked.compilable
    if validity is not None and validity.status not in ("valid", "undefined"):
        if validity.status == "not shown":
            return _more_ratings(judged)
        more = "" if compilable else "--criterion 'NAME: DEFINITION' --lm MODEL"
        return NextStep("See whether a judge made with these ratings agrees better", "align", more)
    searched, aim = (Position.name, "fairness") if judged.pairwise else (Likelihood.name, Likelihood.name)
    for finding in (f for some in shown_findings(findings) for f in some):
        if not (compilable or judged.pairwise or finding.is_shown_by_bounds) and finding.bias in SUBTRACTED:
            return NextStep(f"Take {title_of(finding.bias)} off these scores, where that costs no agreement", "correct")
        if compilable and finding.bias == searched:
            return NextStep("Search for a judge without this bias", "optimize", f"--aim {aim}")
        if finding.remedy:
            return NextStep(f"{finding.remedy[:1].upper()}{finding.remedy[1:]}")
    if compilable:
        return NextStep("See whether these ratings make the judge agree better", "align")
    if has_bounds:
        second, _, more = second_ratings(judged)
        return NextStep(f"Have {second}, to turn bounds into estimates", "doctor", more)
    if validity is None or validity.status == "undefined" or any(f.status == "too few items" for f in findings):
        return _more_ratings(judged)
    return NextStep("When the judge or its model changes, ask what that moved", "drift", "--before RUN --after FILE")


def _more_ratings(judged: Judged) -> NextStep:
    few = judged.clusters is not None and len(set(judged.clusters)) < FEWEST_UNITS
    return NextStep(f"Have {'outputs of more inputs' if few else 'more items'} rated, and audit again")
