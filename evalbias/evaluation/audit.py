"""The audit: every bias of any judge that the items allow to measure, its agreement with people, and a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import dspy

from evalbias import data as data_sets
from evalbias.evaluation.advice import advice_on
from evalbias.evaluation.audited import (
    Answered,
    JudgeSource,
    answers_of,
    load_any_judge,
    pairs_for,
    recorded_fields,
)
from evalbias.evaluation.audited_criterion import criterion_asked
from evalbias.evaluation.by_name import ByName
from evalbias.evaluation.finding import ALPHA, Finding, findings_of, is_of_bias
from evalbias.evaluation.floors import floors_not_surpassed
from evalbias.evaluation.formatting import notebook_view
from evalbias.evaluation.groups import group_field, measure_groups
from evalbias.evaluation.joint import JointEffects
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.measurement import Bias, Measurement, measure
from evalbias.evaluation.needs import Given, what_is_lacking
from evalbias.evaluation.registry import BIASES
from evalbias.evaluation.sample_size import label_next, labeled
from evalbias.evaluation.verdict import Verdict, verdict_of
from evalbias.programs.criterion import Criterion
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.runs.values import to_json

AGREEMENT = "agreement"
"""Name of the measurement that is not of a bias."""
LABELS = 40
"""Number of items that an audit names for labeling."""


@dataclass(frozen=True, repr=False)
class Audit(ByName[Measurement]):
    """Every bias of one judge, its agreement with people, and what follows.

    ``audit["position"]`` is the measurement of a bias, ``audit["agreement"]`` that of the agreement with people.

    Attributes:
        judge: The judge in words.
        measurements: Name of a bias, or ``"agreement"``, -> measurement.
        verdict: What follows, first in one line.
        judged: The judge's answers, and what is known about the items.
        examples: The items.
        not_measured: Bias -> why it was not measured and what would make it possible.
        provenance: What decides the numbers.
        label_next: Ids of the items that people should label next; empty where they labeled all or none.
        groups: Value of the field ``by`` -> agreement with people on its items; empty without such a field.
    """

    judge: str
    measurements: Mapping[str, Measurement]
    verdict: Verdict
    judged: Judged
    examples: Sequence[dspy.Example]
    not_measured: Mapping[str, str]
    provenance: Mapping[str, Any]
    label_next: Sequence[str] = ()
    groups: Mapping[str, Measurement] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the judge and the verdict; a notebook shows everything, ``to_dict`` returns it."""
        return f"Audit({self.judge} on {self.judged.criterion}, n={len(self.judged.ids)}: {self.verdict.sentence})"

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
            "judge": self.judge,
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


def audit(
    data: Any,
    *,
    judge: JudgeSource | None = None,
    scores_field: str | None = None,
    winner_field: str | None = None,
    swapped_field: str | None = None,
    better_field: str = "better",
    labels: Sequence[object] = (),
    mapping: Mapping[str, str] | None = None,
    lm: Any = None,
    likelihood_lm: Any = None,
    criterion: str | Criterion | None = None,
    task: str | None = None,
    source_label: str | None = None,
    output_label: str | None = None,
    scale: tuple[float, float] | None = None,
    own_system: str | None = None,
    reliability: float | None = None,
    by: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    num_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Measure every bias of a judge that the items allow, and its agreement with people.

    Name the judge in one of three ways: ``judge``, ``scores_field`` or ``winner_field``.

    Args:
        data: Items: a file, ``NAME:PATH`` of a known data set, or a list of examples or dicts; see ``data.read``.
        judge: A judge of evalbias, the JSON file of one, a DSPy module or metric, or a function; see
            ``function_scores``.
        scores_field: Field of a judge's recorded scores; see ``recorded_scores``.
        winner_field: Field of a judge's recorded choices between two outputs; see ``recorded_verdicts``.
        swapped_field: Field of the choices in the swapped order.
        better_field: Field of people's choices.
        labels: Codes in these three fields of the first output, the second and a tie, such as ``(1, 2, "tie")``.
            Without them, 0 or ``"A"`` is the first, 1 or ``"B"`` the second, -1 or ``"tie"`` a tie.
        mapping: Our name of a field -> its name in the data.
        lm: Model of a judge of evalbias. Defaults to the judge's own, else DSPy's.
        likelihood_lm: Model whose likelihood defines LS. Defaults to the model of a judge of evalbias; for any other
            judge, LS is measured only if a model is named.
        criterion: Criterion of the human scores. Defaults to the only one that the items have. A judge of evalbias has
            its own; a different one is refused.
        task: Task that the outputs were written for, such as "Summarize the article.": LS is the likelihood of an
            output after this task and its source. Defaults to the data set's own, else to a general one, with which LS
            tells less. A judge of evalbias has its own task and labels.
        source_label: Word before the source in that prompt, such as "Article". Defaults to "Source".
        output_label: Word before the output. Defaults to "Output".
        scale: Lowest and highest score of the judge, if known. Use of the scale is measured on it. A judge of evalbias
            has its own; a different one is refused.
        own_system: Name, among the writers of the outputs, of the judge's own system.
        reliability: Share of a single rating's variance that is quality, for items with one rating each.
        by: Field whose values name groups of items on which the agreement is measured too, such as the set of a
            benchmark. Defaults to the kinds of bias for EvalBiasBench.
        limit: Largest number of pairs drawn, where a judge that compares is given single outputs.
        seed: Seed for intervals and draws.
        num_threads: Calls of a function at the same time.
        progress: Called with the number of judgments done.

    Returns:
        The audit. An item without an answer, or without a number that a bias needs, is left out there and counted.

    Raises:
        ValueError: Not exactly one judge is named, the items lack what is asked for (an item is named), or a judge of
            evalbias is given another criterion, scale, task or label than its own.
    """
    recorded = recorded_fields(scores_field, winner_field, swapped_field, better_field, labels)
    items = data_sets.read(data, mapping=mapping, **recorded)
    examples: list[dspy.Example] = list(items)
    if not examples:
        raise ValueError("There are no items: give at least one.")
    program = load_any_judge(judge) if isinstance(judge, str | os.PathLike) else judge
    written = {"task": task, "source_label": source_label, "output_label": output_label}
    judged_on = criterion_asked(program, data, examples, criterion, scale, **written)
    if isinstance(program, PairwiseJudge):
        examples = pairs_for(program, examples, limit, seed, better=better_field)
    answered = answers_of(
        examples,
        judge=program,
        scores_field=scores_field,
        winner_field=winner_field,
        swapped_field=swapped_field,
        better_field=better_field,
        lm=lm,
        likelihood_lm=likelihood_lm,
        criterion=judged_on,
        scale=scale,
        num_threads=num_threads,
        progress=progress,
    )
    return audit_answers(
        answered,
        own_system=own_system,
        reliability=reliability,
        by=group_field(data if isinstance(data, data_sets.Dataset) else items, by),
        seed=seed,
    )


def audit_answers(
    answered: Answered,
    *,
    own_system: str | None = None,
    reliability: float | None = None,
    by: str | None = None,
    seed: int = 0,
) -> Audit:
    """Audit a judge that has answered; see ``audit``."""
    judged = answered.judged
    settings = {"own": own_system, "reliability": reliability}
    given = Given(judged, answered.examples, own_system)
    configured = {name: _configured(bias, settings) for name, bias in BIASES.items()}
    measurements = {name: measure(bias, judged, seed=seed) for name, bias in configured.items() if bias.applies(judged)}
    biases = {name: m for name, m in measurements.items() if is_of_bias(m)}
    not_measured = {**_not_measured(given, measurements), **answered.not_measured}
    missing = {name: why for name, why in not_measured.items() if name != AGREEMENT}
    joint = measurements.get(JointEffects.name)
    findings = findings_of(biases, judged, missing, askable=answered.askable, joint=joint)
    not_measured |= {f.bias: f.sentence for f in findings if f.status == "not measured"}
    used = {name: value for name, value in settings.items() if value is not None}
    provenance = {**judged.provenance, **used, "seed": seed, "family_wise_error": ALPHA}
    caution = floors_not_surpassed(measurements[AGREEMENT], seed=seed) if AGREEMENT in measurements else ""
    verdict = verdict_of(findings, coverage=judged.coverage, caution=caution)
    known = labeled(judged)
    unlabeled = label_next(judged, LABELS, seed) if known.any() and not known.all() else []
    return Audit(
        judge=answered.judge,
        measurements=measurements,
        verdict=verdict,
        judged=judged,
        examples=answered.examples,
        not_measured=not_measured,
        provenance=provenance,
        label_next=unlabeled,
        groups={} if by is None else measure_groups(BIASES[AGREEMENT], judged, answered.examples, by, seed=seed),
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
