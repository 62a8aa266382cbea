"""The audit: every bias of a judge with its finding, the agreement with people, and conclusions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from evalbias.data.items import CRITERION, contents_of
from evalbias.evaluation.agreement import BOTH, CorrectedEstimates, PeopleAgreement, Validity, headline_number
from evalbias.evaluation.answers import ResolvedAudit, answers_of, resolve_each, tell_left_out
from evalbias.evaluation.bias import Bias, measure
from evalbias.evaluation.biases import BIASES, title_of
from evalbias.evaluation.estimates import LEVEL, ByName, Measurement
from evalbias.evaluation.findings import (
    AGREEMENT,
    ALPHA,
    LINES,
    Finding,
    NextStep,
    confused,
    findings_of,
    is_of_bias,
    lines_of,
    next_step,
    reasons_of,
    shown_findings,
    titles_of,
)
from evalbias.evaluation.judged import LENGTHS, Judged, mean_of_raters, rated_again, ratings_left_out
from evalbias.evaluation.probes import FEATURES, features_of, with_features
from evalbias.evaluation.repeats import Repeats, probe_questions, probed, warnings_of
from evalbias.evaluation.verdicts import DecidesAlone, PassOrFail, alone_sentence, paragraphs_of_rates
from evalbias.evaluation.words import Status, Table, count, coverage_warning, joined, p_equals, percent
from evalbias.lm.cache import CachedLM, progress_bar
from evalbias.measures.arrays import BoolArray, FloatArray, defined
from evalbias.measures.families import holm
from evalbias.measures.missing import missing_by_level, missing_by_size
from evalbias.options import AuditOptions
from evalbias.programs.items import candidates_of, length_feature
from evalbias.programs.jury import AnyJudge
from evalbias.values import first_few, keywords, to_json

UNDECIDED: Mapping[Status, str] = {
    "too few items": "There are too few items to rule out a bias on",
    "no sign": "No bias was found on",
    "bounds only": "Biases are known between bounds, which second ratings narrow, on",
}
"""Status of a finding, most important first -> beginning of a sentence about criteria without a shown bias."""


@dataclass(frozen=True, repr=False)
class AuditReport(ByName[Measurement], parts="measurements"):
    """Every bias of a judge, its agreement with people, and conclusions.

    ``audit["position"]`` is the measurement of a bias, ``audit["agreement"]`` that of the agreement with people.

    Attributes:
        judged: The judge's answers, the items, and their covariates.
        measurements: Name of a bias, or ``"agreement"``, -> measurement.
        findings: One finding per bias.
        answer: Conclusions: whether the judge tells good from bad, how lenient it is, which biases it has.
        basis: Assumptions of the answer, remedies, and what is open or was left out.
        first_screen: The most important conclusions and the next step, in at most twelve lines of a terminal.
        validity: Whether the judge tells good from bad; None if unknown.
        warnings: Reasons why the answers may mean little, such as low coverage or an output that is not read.
        not_measured: Bias -> why it was not measured, and what a measurement needs.
        provenance: Settings that decide the numbers.
        missing: Missing judgments, and what they depend on; None without any.
        groups: Value of the field ``by`` -> agreement with people on its items.
    """

    judged: Judged
    measurements: Mapping[str, Measurement]
    findings: tuple[Finding, ...]
    answer: tuple[str, ...]
    basis: tuple[str, ...]
    first_screen: tuple[str, ...]
    validity: Validity | None
    not_measured: Mapping[str, str]
    provenance: Mapping[str, Any]
    warnings: Sequence[str] = ()
    missing: MissingJudgments | None = None
    groups: Mapping[str, Measurement] = field(default_factory=dict)

    @property
    def judge(self) -> str:
        """Description of the judge."""
        return self.judged.judge

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """All paragraphs: the answer, then its basis."""
        return (*self.answer, *self.basis)

    @property
    def verdict(self) -> str:
        """All paragraphs in a single line."""
        return " ".join(self.paragraphs)

    @cached_property
    def next_step(self) -> NextStep:
        """Most useful next step."""
        if unread_warning(self.judged):
            return NextStep("See what the judge's model writes, and word the question so that it names a label")
        return next_step(self.judged, self.findings, self.validity)

    @cached_property
    def leniency(self) -> str:
        """Sentence on how many more points the judge gives than people; empty if unknown."""
        agreement = self.measurements.get(AGREEMENT)
        return "" if agreement is None else PeopleAgreement().leniency(agreement, self.judged)

    @cached_property
    def discuss(self) -> Mapping[str, Sequence[str]]:
        """Ids of items on which raters differ most (``"raters"``), and the judge most from people (``"judge"``)."""
        repeats = self.measurements.get(Repeats.name)
        return {} if repeats is None else repeats.bias.discuss(repeats)

    def having(self, status: Status) -> list[Finding]:
        """Return the findings with a status."""
        return [finding for finding in self.findings if finding.status == status]

    def __repr__(self) -> str:
        """Return the judge and the first screen; a notebook shows everything, and ``to_dict`` returns it."""
        lines = "\n".join(self.first_screen)
        return f"AuditReport({self.judge} on {self.judged.criterion}, n={len(self.judged.ids)}):\n{lines}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the items as JSON data, in which undefined numbers are None.

        ``biases`` holds headline estimates, for which 0 is no bias; ``agreement`` holds numbers by name; ``further``
        holds other measurements, such as the joint model.
        """
        findings = {finding.bias: finding for finding in self.findings if finding.bias in self.measurements}
        estimates = {name: dict(measurement.estimates) for name, measurement in self.measurements.items()}
        for name, finding in findings.items():
            if finding.hidden and finding.estimate is not None:
                estimates[name][finding.estimate.name] = finding.estimate
        agreement, ends = estimates.pop(AGREEMENT, {}), ("low", "high", "n", "undefined")
        content = {
            "verdict": self.verdict,
            "first_screen": self.first_screen,
            "next_step": asdict(self.next_step),
            "judge": self.judged.judge,
            "criterion": self.judged.criterion,
            "n": len(self.judged.ids),
            "validity": self.validity,
            "leniency": self.leniency,
            "warnings": self.warnings,
            "biases": {name: {**f.to_dict(), "estimates": estimates[name]} for name, f in findings.items()},
            "further": {name: values for name, values in estimates.items() if name not in findings},
            AGREEMENT: {name: e.value for name, e in agreement.items()},
            "agreement_intervals": {name: {end: getattr(e, end) for end in ends} for name, e in agreement.items()},
            "groups": {name: m.estimates for name, m in self.groups.items()},
            "not_measured": self.not_measured,
            "missing_judgments": self.missing,
            "discuss": self.discuss,
            "undefined": dict(self.judged.asked.reasons),
            "provenance": self.provenance,
        }
        return dict(to_json(content))

    def _lacks(self, name: str) -> str:
        why = self.not_measured.get(name)
        return super()._lacks(name) if why is None else f"{name!r} was not measured: {why}"


@dataclass(frozen=True, repr=False)
class AuditReports(ByName[AuditReport], parts="audits"):
    """Audits of a judge on several criteria: ``audits["coherence"]`` is the audit of a criterion.

    The p of a finding is adjusted by Holm for the biases of its criterion, and multiplied by the number of criteria
    (Bonferroni), so the chance of calling an unbiased judge biased on any criterion is at most 5 %.

    Attributes:
        audits: Name of a criterion -> audit.
    """

    audits: Mapping[str, AuditReport]

    @property
    def judge(self) -> str:
        """Description of the judge, with ``{criterion}`` in place of a criterion's name."""
        name, audit = next(iter(self.audits.items()))
        beginning, quote, field = audit.judged.judge.partition("'")
        return beginning + quote + field.replace(name, CRITERION)

    @property
    def first_screen(self) -> tuple[str, ...]:
        """Agreement with people on each criterion, and the verdict."""
        agreements = [(name, audit.measurements.get(AGREEMENT), audit.validity) for name, audit in self.audits.items()]
        each = [f"{name} {m[m.headlines[0]].text()} ({valid.status})" for name, m, valid in agreements if m and valid]
        return (f"Agreement with people: {', '.join(each)}.", self.verdict) if each else (self.verdict,)

    @property
    def verdict(self) -> str:
        """Criteria on which the judge is biased, or on which this is open, and assumptions of the findings."""
        sentences: dict[str, list[str]] = {"The judge is biased on": [], "One of several biases is shown on": []}
        sentences |= {"A bias is shown under a condition on": [], "A bias is shown within these systems on": []}
        for name, audit in self.audits.items():
            alone, others, conditional, within = shown_findings(audit.findings)
            either = "" if alone else joined([title_of(f.bias) for f in confused(others, audit.findings)], "or")
            titles = (titles_of([*alone, *others] if alone else []), either, titles_of(conditional), titles_of(within))
            for names, which in zip(sentences.values(), titles, strict=True):
                names.extend([f"{name} ({which})"] if which else [])
        left = [name for name, audit in self.audits.items() if not any(shown_findings(audit.findings))]
        for status, beginning in UNDECIDED.items():
            sentences[beginning] = [name for name in left if self.audits[name].having(status)]
            left = [name for name in left if name not in sentences[beginning]]
        sentences["No bias was measured on"] = left
        sentence = ". ".join(f"{beginning} {joined(names)}" for beginning, names in sentences.items() if names) + "."
        if len(self.audits) == 1:
            return sentence
        return (
            f"{sentence} Findings are adjusted for all {len(self.audits)} criteria together (Holm's correction over "
            "the biases of each, Bonferroni's over the criteria): the chance of calling an unbiased judge biased on "
            f"any of them is {percent(ALPHA)} at most."
        )

    def __repr__(self) -> str:
        return f"AuditReports({self.judge} on {', '.join(self)}: {self.verdict})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data: the verdict, and criterion -> JSON data of its audit."""
        return {"verdict": self.verdict, "criteria": {name: audit.to_dict() for name, audit in self.audits.items()}}


@keywords(AuditOptions)
def audit(options: AuditOptions) -> Any:
    """Measure every bias of a judge that the items allow, and its agreement with people: an ``AuditReport``.

    For ``criterion="all"`` or a list of criteria, return ``AuditReports``. A field of recorded answers then has
    ``{criterion}`` in its name.

    Args:
        options: Each is a keyword; see ``evalbias.options.AuditOptions``. ``data`` are a file, a tool's export
            (``NAME:PATH``), or a list of examples or dicts. The judge is ``judge`` (of evalbias, its JSON file,
            a DSPy module or metric, or a function), or ``lm`` and ``criterion``, ``scores_field`` or ``winner_field``.

    Raises:
        ValueError: Not exactly one judge is named, an item lacks a field, or a judge of
            evalbias is given another criterion, scale, task or label than its own.
    """
    each = resolve_each(replace(options, progress=options.progress if callable(options.progress) else None))
    tell_left_out(each[0].dataset)
    visible = None if options.progress is None else options.progress is True
    with progress_bar(answers_needed(each), visible) as advance:
        audits = audit_each(each, advance)
    return AuditReports(audits) if each[0].requested.several else next(iter(audits.values()))


def answers_needed(each: Sequence[ResolvedAudit]) -> int:
    """Estimate the number of answers of models that are needed: judgments, likelihoods of texts, and probes."""
    needed = 0
    for resolved in each:
        if resolved.lm is not None or resolved.likelihood_lm is not None:
            texts = sum(2 if candidates_of(e) else 1 for e in resolved.questions)
            needed += texts * (2 if isinstance(resolved.judge, AnyJudge) else 1) + probe_questions(resolved)
    return needed


def audit_each(each: Sequence[ResolvedAudit], progress: Callable[[int], None] | None = None) -> dict[str, AuditReport]:
    """Audit a judge on each criterion; answers of models are cached, and ``progress`` is called with their number."""
    wraps = len(each) > 1 or progress is not None
    models = {name: getattr(each[0], name) for name in ("lm", "likelihood_lm")} if wraps else {}
    cached: dict[str, Any] = {name: CachedLM(lm, progress=progress) for name, lm in models.items() if lm is not None}
    names = ("own_system", "own_family", "reliability", "pass_mark", "by", "only", "seed")
    audits = dict[str, AuditReport]()
    for resolved in (replace(resolved, **cached) for resolved in each):
        judged = probed(answers_of(resolved).counted_in(resolved.length), resolved)
        judged = with_features(judged, resolved.features) if resolved.features else judged
        settings = {name: getattr(resolved, name) for name in names}
        settings |= {} if resolved.outcome is None else {"reliability": 1.0}
        audits[resolved.criterion.name] = audit_answers(judged, criteria=len(each), **settings)
    return audits


def unread_warning(judged: Judged) -> str:
    """Return a warning if most answers of a model that was asked cannot be read; else ""."""
    lost = judged.unanswered
    if not judged.asked.judgments or 2 * lost <= len(judged.ids):
        return ""
    fault = f"{lost} of {count(len(judged.ids), 'pair' if judged.pairwise else 'item')} got no answer that can be read"
    return f"Do not rely on this judge: {fault}."


def audit_answers(
    judged: Judged,
    *,
    own_system: str | None = None,
    own_family: str | None = None,
    reliability: float | None = None,
    pass_mark: float | None = None,
    by: str | None = None,
    only: str | None = None,
    seed: int = 0,
    criteria: int = 1,
) -> AuditReport:
    """Audit a judge's answers on one of ``criteria`` criteria; ``only`` names the only bias to test."""
    # 1 every bias, with its settings
    settings = {"own": own_system, "family": own_family, "reliability": reliability, "pass_mark": pass_mark}
    own = [bias.configured(**settings) for bias in features_of(judged)] if FEATURES in judged.provenance else []
    columns = {feature: judged.covariates[feature.name] for feature in own}
    varying = tuple(feature for feature, values in columns.items() if len(np.unique(values[~np.isnan(values)])) > 1)
    settled = {**settings, "features": varying, "scale": judged.scale}
    biases = [*(bias.configured(**settled) for bias in BIASES.values()), *own]
    left_out = {} if only is None else _left_out(only, biases, judged)
    biases = [bias for bias in biases if bias.name not in left_out]
    measurements = {bias.name: measure(bias, judged, seed=seed) for bias in biases if bias.applies(judged)}
    # 2 the findings, and biases that could not be measured
    not_measured = {**_lacking(biases, measurements, judged), **judged.asked.unmeasurable}
    missing = {name: why for name, why in not_measured.items() if name not in (AGREEMENT, *left_out)}
    findings = findings_of(measurements, judged, missing, criteria=criteria)
    not_measured |= {f.bias: f.sentence for f in findings if f.status == "not measured"} | left_out
    lost = missing_judgments(judged, seed=seed)
    # 3 the answer: the rates of pass and fail, the agreement with people, and the biases
    validity, leniency, verdicts = None, "", measurements.get(PassOrFail.name)
    rates = () if verdicts is None else paragraphs_of_rates(verdicts)
    decides = alone_sentence(measurements[DecidesAlone.name]) if DecidesAlone.name in measurements else ""
    if (agreement := measurements.get(AGREEMENT)) is not None:
        validity = PeopleAgreement().validity(agreement, judged, seed=seed)
        leniency = PeopleAgreement().leniency(agreement, judged)
    corrected = measurements.get(CorrectedEstimates.name)
    of_all = "" if corrected is None else CorrectedEstimates().sentence_of_all(corrected, judged)
    doubts = (doubt(judged) for doubt in (rated_again, rated_by_score, rated_in_part))
    unsure = coverage_warning({"": judged.asked.coverage}) or unread_warning(judged)
    warnings = tuple(filter(None, (unsure, *doubts, *warnings_of(judged, measurements))))
    agrees = "" if validity is None else validity.sentence
    begins = [*filter(None, (*warnings, *rates[:1], agrees, "" if rates else of_all or leniency))]
    besides = (of_all, decides, leniency) if rates else (decides, leniency if of_all else "")
    besides = besides if agreement is None else (*besides, PeopleAgreement().beyond_chance(agreement))
    answer = lines_of(findings, [*filter(None, (*warnings, *rates, agrees, decides, leniency, of_all))])
    # 4 the basis: assumptions and further results
    cautions = [*ratings_left_out(judged), repeated_items(judged), "" if lost is None else lost.sentence()]
    conclusions = [m.bias.conclusion(m) for m in measurements.values()]
    alone = f"Only {title_of(str(only))} was asked for: no other bias was tested." if left_out else ""
    reasons = reasons_of(findings, exact=reliability == 1)
    used = {**settings, "only": only, "criteria": criteria if criteria > 1 else None}
    used = {name: value for name, value in used.items() if value is not None}
    return AuditReport(
        judged=judged,
        measurements=measurements,
        findings=findings,
        answer=answer,
        basis=tuple(filter(None, (*cautions, *reasons, *conclusions, alone))),
        first_screen=lines_of(findings, begins, cautions=[*filter(None, cautions)], besides=besides, most=LINES),
        validity=validity,
        warnings=warnings,
        not_measured=not_measured,
        provenance={**judged.provenance, **used, "seed": seed, "family_wise_error": ALPHA},
        missing=lost,
        groups={} if by is None else _by_group(judged, by, seed=seed),
    )


def _left_out(only: str, biases: Sequence[Bias], judged: Judged) -> dict[str, str]:
    """Return bias -> why it is not tested, for all biases of this kind of judge except ``only``.

    Raises:
        ValueError: This kind of judge cannot have the bias ``only``.
    """
    biases = [bias for bias in biases if bias.kind == "bias" and bias.suits(judged)]
    reasons = judged.asked.unmeasurable  # bias -> why it cannot be measured
    names = [b.name for b in biases if b.applies(judged) or b.lacks(judged) or b.name in reasons]  # not loops'
    if only not in names:
        kind = "compares" if judged.pairwise else "scores"
        raise ValueError(f"only={only!r} is no bias of a judge that {kind}: name one of {', '.join(names)}.")
    return {name: f"only {title_of(only)} was asked for" for name in names if name != only}


def _lacking(biases: Sequence[Bias], measurements: Mapping[str, Measurement], judged: Judged) -> dict[str, str]:
    """Return bias, or agreement -> why it was not measured or tested; without biases that the judge cannot have.

    A bias is untested if none of its measured numbers has a null value.
    """
    unmeasured = [("it", bias) for bias in biases if bias.name not in measurements and bias.suits(judged)]
    untested = [("a test", m.bias) for m in measurements.values() if m.bias.kind == "bias" and not is_of_bias(m)]
    lacking = {bias.name: (what, bias.lacks(judged)) for what, bias in (*unmeasured, *untested)}
    return {name: f"{what} needs {words}" for name, (what, words) in lacking.items() if words}


def _by_group(judged: Judged, by: str, *, seed: int) -> dict[str, Measurement]:
    """Measure agreement with people for each value of a field, in order of first appearance, over all orders.

    Items without a value belong to no group (ValueError if all lack it); unrated groups are left out.
    """
    values = [None if e.get(by) is None else str(e[by]) for e in judged.examples]
    names = [name for name in dict.fromkeys(values) if name is not None]
    if not names:
        raise ValueError(f"No item has a field {by!r} to group by: name one that the data have.")
    parts = {name: judged.take(np.flatnonzero([value == name for value in values])) for name in names}
    agreement, groups = BIASES[PassOrFail.name if judged.pass_or_fail else AGREEMENT], dict[str, Measurement]()
    for name, part in parts.items():
        if agreement.applies(part):
            measurement = groups[name] = measure(agreement, part, seed=seed)
            if judged.both_orders:  # as in the verdict
                number = replace(headline_number(measurement.numbers), name=BOTH, label="accuracy, both orders")
                both = {BOTH: number.estimate(measurement.clusters, seed=seed)}
                groups[name] = replace(measurement, estimates={**measurement.estimates, **both})
    return groups


def rated_by_score(judged: Judged) -> str:
    """Warn if the rated outputs seem to be chosen by the judge's scores; empty otherwise."""
    if not judged.rated_apart:
        return ""
    fault = f"The rated outputs score {judged.rated_apart} the others"
    if judged.pass_or_fail:
        return f"{fault}. Rates are wrong if they were chosen by the judge's verdict, and not by what they deserve."
    return f"{fault}: what these say of all outputs may be wrong. Rate outputs that are drawn at random."


def rated_in_part(judged: Judged) -> str:
    """Warn of systems that nobody rated, though there are ratings of others; empty without any."""
    if not (unrated := judged.unrated_systems):
        return ""
    fault = f"Nobody rated outputs of {first_few(unrated, 3)}, only of other systems"
    return f"{fault}: what the ratings say of all outputs is wrong if the judge favors some. Rate a few of each."


def repeats_of(judged: Judged) -> dict[int, int]:
    """Return place of an item -> place of an earlier item with equal fields except ids, if the texts are long."""
    contents = contents_of(judged.examples, every=True)
    first = {content: place for place, content in reversed([*enumerate(contents)])}
    return {place: first[content] for place, content in enumerate(contents) if content and first[content] < place}


def repeated_items(judged: Judged) -> str:
    """Name items that repeat another in all fields but ids; empty without any. Short answers may be equal by chance."""
    if not (repeats := repeats_of(judged)):
        return ""
    named = first_few([f"{judged.ids[place]} repeats {judged.ids[first]}" for place, first in repeats.items()], 3)
    fault = f"{len(repeats)} of {count(len(judged.ids), 'item')} repeat another in every field ({named})"
    return f"{fault}: intervals take them for one input, and other numbers for one more item: leave repeats out."


# --- missing judgments: how many, of which systems, and what they depend on -------------------------------------------

SIDES = {"quality": ("better", "worse"), "length": ("longer", "shorter")}
"""Property of outputs -> words for outputs with more and with less of it."""
SYSTEM, INPUT = "system", "input"
MOST_SYSTEMS = 10  # systems that a table lists


@dataclass(frozen=True)
class Dependence:
    """Dependence of missing judgments on a single property of the items."""

    # Mean of the property where judgments are missing minus the mean where they exist, in its standard deviations; NaN
    # for systems and inputs.
    difference: float
    p_value: float  # two-sided
    p_adjusted: float  # by Holm, for all properties
    words: str


@dataclass(frozen=True)
class MissingJudgments:
    """Missing judgments; a pair counts if either order is missing."""

    n: int  # number of all items
    missing: int  # items without a judgment
    by_system: Mapping[str, tuple[int, int]]  # system -> its items without a judgment, and all of its items
    dependence: Mapping[str, Dependence]  # quality, length, input or system, if known -> the dependence on it

    def sentence(self) -> str:
        """Say how many judgments are missing, and what this depends on."""
        words = [d.words for d in self.dependence.values() if d.p_adjusted < LEVEL]
        depends = f" They are missing {joined(words)}." if words else ""
        if self.dependence and not words:
            depends = f" No dependence on {joined([*self.dependence])} is shown."
        return f"{self.missing} of {self.n} judgments are missing ({_share(self.missing, self.n)}).{depends}"

    def table(self) -> Table:
        """Return a row for all items, and a row for each system, by descending share of missing judgments."""
        systems = sorted(self.by_system.items(), key=lambda row: -row[1][0] / row[1][1])
        counts = [("all", (self.missing, self.n)), *systems[:MOST_SYSTEMS]]
        rows = [(name, f"{n:,}", f"{missing:,}", _share(missing, n)) for name, (missing, n) in counts]
        caption = "" if len(systems) <= MOST_SYSTEMS else f"the {MOST_SYSTEMS} of {len(systems)} systems that lack most"
        return Table(("", "items", "missing", "share"), rows, "Missing judgments", caption)


def _share(missing: int, n: int) -> str:
    return "< 1 %" if 0 < missing / n < 0.005 else percent(missing / n)


def missing_judgments(judged: Judged, *, seed: int) -> MissingJudgments | None:
    """Describe the missing judgments; None if none or all are missing."""
    absent: BoolArray = ~defined(judged.answers)
    if not absent.any() or absent.all():
        return None
    tests = {name: missing_by_size(absent, x, clusters=judged.clusters) for name, x in _properties(judged).items()}
    writers = np.asarray(judged.writers, dtype=str)  # (n,), or (n, 2) for pairs
    systems = [" and ".join(sorted(set(np.ravel(names)))) for names in writers]
    repeats = repeats_of(judged)  # a repeat lacks the judgment that its original lacks
    once = [place for place in range(len(judged.inputs)) if place not in repeats]
    inputs = [judged.inputs[place] for place in once]
    for name, lost, keys, clusters in ((INPUT, absent[once], inputs, None), (SYSTEM, absent, systems, judged.clusters)):
        if 1 < len(set(keys)) < len(keys):
            tests[name] = math.nan, missing_by_level(lost, keys, clusters=clusters, seed=seed)
    tests = {name: test for name, test in tests.items() if not math.isnan(test[1])}
    adjusted = holm([p_value for _, p_value in tests.values()])
    rows = {name: (np.transpose(writers) == name).reshape(-1, len(absent)).any(axis=0) for name in judged.writer_names}
    return MissingJudgments(
        n=len(absent),
        missing=int(absent.sum()),
        by_system={name: (int(absent[own].sum()), int(own.sum())) for name, own in rows.items()},
        dependence={
            name: Dependence(difference, p_value, p, _words(name, difference, p, absent, systems, judged.pairwise))
            for (name, (difference, p_value)), p in zip(tests.items(), adjusted, strict=True)
        },
    )


def _properties(judged: Judged) -> dict[str, FloatArray]:
    """Return (n,) known properties of items: for pairs, the absolute difference in quality and the total length."""
    columns: dict[str, FloatArray] = {}
    if judged.rated:
        quality = mean_of_raters(judged.ratings)
        columns["quality"] = np.abs(quality) if judged.pairwise else quality
    if LENGTHS in judged.covariates:
        lengths = length_feature(judged.covariates[LENGTHS])
        columns["length"] = lengths.reshape(len(lengths), -1).sum(axis=1)
    return columns


def _words(name: str, difference: float, p: float, absent: BoolArray, systems: Sequence[str], pairwise: bool) -> str:
    if name == INPUT:
        return f"unevenly by input ({p_equals(p)})"
    if name == SYSTEM:
        rates = {system: float(absent[np.array(systems) == system].mean()) for system in sorted(set(systems))}
        most, least = (choose(rates, key=rates.__getitem__) for choose in (max, min))
        shares = f"in {percent(rates[most])} of {most:.80} and in {percent(rates[least])} of {least:.80}"
        return f"unevenly by system ({shares}, {p_equals(p)})"
    with_more, with_less = SIDES[name]
    which = f"{with_more if difference > 0 else with_less} outputs"
    if pairwise and name == "quality":
        which = f"pairs that differ {'more' if difference > 0 else 'less'} in quality"
    elif pairwise:
        which = f"pairs of {which}"
    return f"more often for {which} ({abs(difference):.2f} standard deviations apart on average, {p_equals(p)})"
