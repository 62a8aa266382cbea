"""The first screen of an audit: what a practitioner acts on, in at most twelve lines of a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evalbias.evaluation.agreement import Validity
from evalbias.evaluation.biases import BIASES, Likelihood, Verbosity, title_of
from evalbias.evaluation.findings import Finding, by_status, confused, shown_findings, titles_of
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import count, joined

LINES, WIDTH = 12, 80  # of a terminal
NEXT = 2  # lines that are kept for the next step
SUBTRACTED = (Likelihood.name, Verbosity.name)  # biases that ``evalbias correct`` takes off recorded scores
SECOND_RATINGS = 60  # items whose second ratings tell how reliable one rating is


def lines_of(findings: Sequence[Finding], before: Sequence[str], *, most: float = math.inf) -> tuple[str, ...]:
    """Return what follows from an audit: what comes ``before`` the biases, those that are shown, and what is open.

    ``before`` holds warnings, whether the judge tells good from bad, and how lenient it is. Where a terminal would need
    more than ``most`` lines, with those for the next step, the last biases are named only.
    """
    _, bounded, open_, clear, missing = by_status(findings)
    statements, shown, named = [*_statements(findings)], list[str](), list[Finding]()
    found = "" if statements else "No bias was found." if open_ or clear else "" if bounded else "No bias was measured."
    for reasons in (True, False):  # what would tell more, where the lines suffice
        told = [
            found,
            _listed("No sign of", clear),
            _listed("Too few items to tell", [f for f in open_ if not f.within], reasons=reasons),
            _listed("Known between bounds only", [f for f in bounded if not f.is_shown_by_bounds]),
            _listed("Not measured", missing),
        ]
        after = " ".join(filter(None, told))
        room = most - NEXT - sum(map(_height, [*before, after]))
        if room >= sum(_height(statement) for _, statement in statements):
            break
    else:
        room -= 1  # which names the others
    for finding, statement in statements:
        if named or _height(statement) > room:
            named.append(finding)
        else:
            shown.append(statement)
            room -= _height(statement)
    also = f"{'Also shown' if shown else 'Biases shown'}, by --full: {titles_of(named)}." if named else ""
    return tuple(filter(None, (*before, *shown, also, after)))


def _statements(findings: Sequence[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yield each bias that is shown, with what is shown: those that are no other first."""
    alone, others, conditional, within = shown_findings(findings)
    fixed = [f for f in alone if f.joint is not None]
    for f in alone:
        yield f, f"Biased, {title_of(f.bias)}: {f.sentence}."
    for f in others:
        rivals = titles_of(fixed or [one for one in confused(others, findings) if one is not f])
        yield f, f"Biased, {title_of(f.bias)} or {rivals}, which these data cannot tell apart: {f.sentence}."
    for f in within:
        systems = count(f.estimate.systems if f.estimate else 0, "system")
        yield f, f"Within these {systems}, {f.within}; {systems} do not show whether that holds for others."
    for f in conditional:
        yield f, f"Biased under a condition, {title_of(f.bias)}: {f.sentence}."


def _listed(what: str, findings: Sequence[Finding], *, reasons: bool = False) -> str:
    names = [title_of(f.bias) + (f" ({f.settled_by})" if reasons and f.settled_by else "") for f in findings]
    return f"{what}: {joined(names)}." if names else ""


def _height(text: str) -> int:
    return len(textwrap.wrap(text, WIDTH))


# --- what to do next --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NextStep:
    """What to do next: why, or all that is to be done, and the command that does it, if one does.

    ``more`` are words of the command that the options of the audit do not tell.
    """

    why: str
    command: str = ""
    more: str = ""


def next_step(judged: Judged, findings: Sequence[Finding], validity: Validity | None) -> NextStep:
    """Return the most useful step after an audit."""
    if not judged.rated:
        command, more = ("probe run", "") if judged.compilable else ("probe emit", "--out rows.jsonl")
        return NextStep("Nobody rated these items; what moves the judge can be told without ratings", command, more)
    if validity is not None and validity.status not in ("valid", "undefined"):
        if validity.status == "not shown":
            return NextStep("Have more items rated, and audit again")
        return NextStep(
            "See whether a judge made with these ratings agrees better",
            "align",
            "" if judged.compilable else "--criterion 'NAME: DEFINITION' --lm MODEL",
        )
    for finding in (f for some in shown_findings(findings) for f in some):
        if not judged.compilable and not judged.pairwise and finding.bias in SUBTRACTED:
            return NextStep(f"Take {title_of(finding.bias)} off these scores, where that costs no agreement", "correct")
        if judged.compilable and _searched(finding, judged):
            return NextStep(f"Search for a judge without {title_of(finding.bias)}", "optimize", f"--aim {finding.bias}")
        if finding.remedy:
            return NextStep(f"{finding.remedy[:1].upper()}{finding.remedy[1:]}")
    _, bounded, open_, *_ = by_status(findings)
    if judged.compilable:
        return NextStep("See whether these ratings make the judge agree better", "align")
    if any(f.estimate is not None and math.isnan(f.estimate.value) for f in bounded):
        twice = min(SECOND_RATINGS, len(judged.ids))
        return NextStep(f"Have {count(twice, 'item')} rated by a second person, which tells how reliable one rating is")
    if open_:
        return NextStep("Have more items rated, and audit again")
    return NextStep("When the judge or its model changes, ask what that moved", "drift", "--before RUN --after FILE")


def _searched(finding: Finding, judged: Judged) -> bool:
    if judged.pairwise:
        return finding.bias in BIASES and BIASES[finding.bias].objective is not None
    return finding.bias == Likelihood.name
