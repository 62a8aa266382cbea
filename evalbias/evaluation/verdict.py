"""The verdict of an audit: whether the judge is biased, how much, and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from evalbias.evaluation.coverage import coverage_warning
from evalbias.evaluation.finding import Finding, Status
from evalbias.evaluation.formatting import count, joined, title


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
