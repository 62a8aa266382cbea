"""Sections of an audit: every bias with what is concluded, the agreement with people, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evalbias.evaluation.audit import AGREEMENT, Audit
from evalbias.evaluation.finding import Finding
from evalbias.evaluation.formatting import joined, title
from evalbias.evaluation.measurement import Measurement
from evalbias.report.html.blocks import Facts, Section, Table, Words
from evalbias.report.html.sections.base import Context, measurement_section, sections
from evalbias.report.html.words import STATUSES, title_of

NAMED = 20
"""Largest number of items without an answer that are named."""


@sections.register
def _of_audit(result: Audit, context: Context) -> Iterator[Section]:
    findings = sorted(result.verdict.findings, key=lambda finding: [*STATUSES].index(finding.status))
    for finding in findings:
        if finding.bias in result.measurements:
            yield _audited(finding, result.measurements[finding.bias])
    judged = {finding.bias for finding in findings}
    for name, measurement in result.measurements.items():
        if name not in judged:
            section = measurement_section(measurement, title_of(name))
            yield _with_remark(section, result.verdict.caution) if name == AGREEMENT else section
    missing = {bias: why for bias, why in result.not_measured.items() if bias not in result.measurements}
    if missing:
        rows = [(title_of(bias), why) for bias, why in missing.items()]
        table = Table(("", "why, and what would make it possible"), rows)
        yield Section("Not measured", [table], _sentence(joined([title(bias) for bias in missing])))
    if reasons := result.judged.reasons:
        first = dict(list(reasons.items())[:NAMED])
        yield Section(f"Items without an answer ({len(reasons):,})", [Facts(first)])


def _audited(finding: Finding, measurement: Measurement) -> Section:
    """Return the section of a measurement with what an audit concludes from it."""
    section = measurement_section(measurement, title_of(finding.bias))
    remark = ""
    if finding.remedy:
        caution = "" if finding.alone else "With the other biases held fixed, this one is not shown. "
        remark = f"{caution}What helps: {finding.remedy}."
    elif finding.status == "no sign" and finding.margin_in_words:
        remark = _sentence(f"{finding.margin_in_words} is ruled out")
    elif finding.status == "too few items" and finding.items_needed is not None:
        remark = f"About {finding.items_needed:,} items would show an effect worth finding, if there is one."
    section = replace(section, finding=_sentence(finding.sentence), status=finding.status)
    return _with_remark(section, remark)


def _with_remark(section: Section, remark: str) -> Section:
    """Return a section that ends with a remark; the same section if there is none."""
    return replace(section, blocks=[*section.blocks, Words(remark)], remark=remark) if remark else section


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))
