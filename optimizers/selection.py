"""The choice between candidates and the given program on held-back items, and the report of a compilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from evalbias.evaluation.bias import Block, Quote, Report, Section
from evalbias.evaluation.estimates import Comparison, Estimate
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import Table, count, coverage_warning, p_equals, p_text
from evalbias.optimizers.rules import Rule, last_items
from evalbias.programs.judges import LOW_COVERAGE, median_coverage

GIVEN = "given"  # name of the given program among the candidates of a report
INCOMPARABLE = "cannot be compared: what it should improve is undefined for it or for the given program"
FLATTERED = "The best of several looks better on these items than it is: measure it on others (a valset)."
"""Caution about the numbers of a winner: of 20 candidates whose effect is .25, the chosen one shows .12 to .14."""


@dataclass(frozen=True)
class Candidate:
    """A program that may be compiled."""

    name: str  # the choice in words
    program: Any
    details: Mapping[str, Any] = field(default_factory=dict)  # fields of the report if it is compiled
    answers: Judged | None = None  # where the search has them; None runs the program on the held-back items
    items: str = ""  # what these answers are to, in words; empty for the held-back inputs
    price: float = 0.0  # what a judgment costs, in any unit; less of it decides between equals
    kind: str = ""  # what it is, whichever inputs it is made from; empty where the name says so
    search: Any = None  # what the search found, from which the method makes a candidate of more inputs
    fault: str = ""  # why it cannot be chosen, whatever its answers say; empty where nothing is known


def hardly_answers(judged: Judged, before: Judged) -> bool:
    """Return whether the model hardly ever answers with a label, unlike before, so that its answers mean little."""
    unsure, unsure_before = (median_coverage(own.asked.coverage) < LOW_COVERAGE for own in (judged, before))
    return unsure > unsure_before  # NaN is not below


@dataclass(frozen=True)
class Cost:
    """Resources that compiling took."""

    judgments: int = 0  # prompts answered with a choice, measured or sampled, for the search and the comparison
    likelihoods: int = 0  # texts whose likelihood was measured
    calls: int = 0  # requests to generate text, those of samples included
    # What this process spent is no part of results, which a resumed run repeats.
    tokens: float = field(default=0.0, compare=False, repr=False)  # of all models; NaN where one reports none
    seconds: float = field(default=0.0, compare=False, repr=False)

    def to_dict(self) -> dict[str, int]:
        return {"judgments": self.judgments, "likelihoods": self.likelihoods, "calls": self.calls}

    def since(self, before: Cost) -> Cost:
        """Return what was spent after an earlier moment."""
        return Cost(*(getattr(self, name) - getattr(before, name) for name in self.to_dict()))


@dataclass(frozen=True)
class Tried:
    """One program on the held-back items."""

    name: str  # the candidate in words; "given" for the program that was given
    estimates: Mapping[str, Estimate]
    p_value: float  # paired test of "better than given", adjusted for all candidates; NaN for the given, or undefined
    cost: Cost  # of measuring it; answers that were known already cost nothing
    chosen: bool
    reason: str  # why it was chosen or not: the end of a sentence that begins with the name


@dataclass(frozen=True, kw_only=True, repr=False)
class CompileReport(Report):
    """Report of every optimizer; each adds fields of its own.

    Attributes:
        chosen: The choice that was compiled into the program, in words.
        decision: What was chosen on the held-back items and why, in a sentence; empty with ``select=False``.
        candidates: The given program and every candidate on ``tested_on``; empty with ``select=False``.
        tested_on: The inputs that chose, in words.
        front: Names of those that no other one surpasses in everything that the choice looks at.
        left_out: Candidate -> why it could not be made.
        comparison: Bias -> the baseline against the compiled program on the valset; empty without a valset.
        before: The baseline's answers on the valset; None without one.
        after: The compiled program's answers on the valset; None without one.
        cost: Resources that compiling took.
        seed: Seed of the optimizer.
        settings: The optimizer's other settings.
    """

    chosen: str
    decision: str = ""
    candidates: tuple[Tried, ...] = ()
    tested_on: str = "held-back items"
    front: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    comparison: Mapping[str, Comparison] = field(default_factory=dict)
    before: Judged | None = None
    after: Judged | None = None
    cost: Cost = field(default_factory=Cost)
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the kind of report and its decision, so that a program that was kept does not look compiled."""
        return f"<{type(self).__name__}: {self.decision or f'Compiled: {self.chosen}.'}>"

    @property
    def paragraphs(self) -> list[str]:  # type: ignore[override]  # made of the numbers, not kept
        """The decision, the candidates, what changed on the valset, and the cost, for a reader."""
        lines = [self.decision or f"Compiled: {self.chosen}."]
        for candidate in self.candidates:
            numbers = ", ".join(f"{estimate.label} {estimate.text()}" for estimate in candidate.estimates.values())
            lines.append(f"- {candidate.name} {candidate.reason} ({numbers}).")
        for bias, comparison in self.comparison.items():
            changes = ", ".join(f"{change.label} {change.text()}" for change in comparison.changes.values())
            lines.append(f"On the valset, {bias}: {changes}.")
        spent = [count(amount, name.removesuffix("s")) for name, amount in self.cost.to_dict().items() if amount]
        return [*lines, f"Cost: {', '.join(spent) or 'nothing'}."]

    def candidates_table(self) -> Table:
        """Return one row per candidate: its estimates on the held-back items."""
        labels = {name: e.label for tried in self.candidates for name, e in tried.estimates.items()}
        rows = []
        for tried in self.candidates:
            cells = [tried.estimates[name].text() if name in tried.estimates else "" for name in labels]
            rows.append((tried.name + " (chosen)" * tried.chosen, *cells, p_text(tried.p_value), tried.reason))
        caption = f"On {self.tested_on}; p: one-sided, that it is better than the given judge."
        return Table(("candidate", *labels.values(), "p", "result"), rows, caption=caption)

    def sections(self) -> list[Section]:
        blocks: list[Block] = ["The compiled program was made with:", Quote(self.chosen)] if self.chosen else []
        blocks += [self.candidates_table()] if self.candidates else []
        if spent := {name: amount for name, amount in self.cost.to_dict().items() if amount}:
            blocks.append("It took " + ", ".join(f"{amount:,} {name}" for name, amount in spent.items()) + ".")
        return [Section("The choice", blocks, self.decision)]


# The choice: a candidate replaces the given program only where a paired test says that it is better.


@dataclass(frozen=True)
class Selection:
    """Result of a choice."""

    chosen: Candidate
    answers: Judged | None = None  # of the chosen program to the held-back items; None where nothing was kept back
    decision: str = ""  # this and the next two as in the report
    candidates: tuple[Tried, ...] = ()
    front: tuple[str, ...] = ()
    rule: int = 0  # place of the rule that chose among the rules


def choose(
    student: Candidate,
    candidates: Sequence[Candidate],
    rules: Sequence[Rule],
    *,
    test: Callable[[Any], Judged],
    spent: Callable[[], Cost],
    inputs: int,
    noun: str = "program",
) -> Selection:
    """Choose between candidates and the given program on the held-back items.

    Considered are the candidates that are significantly better than the given program, make nothing worse, leave no
    more items undefined, and have the model answer with a label as before (``hardly_answers``). Of those whose first
    cost (``Rule.costs``) is within one standard error of the lowest, the one is chosen whose next cost, and then price,
    is lowest. Without any, the next rule says what is better; after the last rule, the given program is kept, with what
    the first rule says that could test anything. All rules measure the same answers, and their levels add up to the
    chance of a false choice.
    """
    programs = [student, *candidates]
    answers, costs = [], []
    for candidate in programs:
        before = spent()
        answers.append(test(candidate.program) if candidate.answers is None else candidate.answers)
        costs.append(spent().since(before))
    aim = ", or ".join(rule.aim for rule in rules)
    selections = []
    for place, rule in enumerate(rules):
        selection = _choose_by(rule, programs, answers, costs, aim=aim, inputs=inputs, noun=noun)
        selections.append(replace(selection, rule=place))
        if selections[-1].chosen is not student:
            return selections[-1]
    tested = [s for s in selections if not all(math.isnan(tried.p_value) for tried in s.candidates)]
    return (tested or selections)[0]


def _choose_by(
    rule: Rule,
    programs: Sequence[Candidate],
    answers: Sequence[Judged],
    costs: Sequence[Cost],
    *,
    aim: str,
    inputs: int,
    noun: str,
) -> Selection:
    """Choose by one rule; the given program comes first, and ``aim`` is that of all rules."""
    before, others = answers[0], range(1, len(programs))
    # 1. A candidate that leaves more items undefined is out. The others are tested together.
    more = [own.unanswered - last_items(before, len(own.ids)).unanswered for own in answers]
    tested = [i for i in others if more[i] <= 0]
    p_values = [float("nan")] * len(programs)
    if tested:
        for i, p_value in zip(tested, rule.p_values([answers[i] for i in tested], before), strict=True):
            p_values[i] = p_value
    # 2. Of those without a fault, the lowest first cost sets the mark, and within its error the next cost decides; on
    #    the items that all of them answered.
    faults = ["", *(programs[i].fault or _fault(rule, answers[i], before, p_values[i], more[i]) for i in others)]
    common = [last_items(judged, min(len(each.ids) for each in answers)) for judged in answers]
    ranks = [[math.inf if math.isnan(cost) else cost for cost in rule.costs(judged)] for judged in common]
    good = [i for i in others if not faults[i]]
    best = 0
    if good:
        lowest = min(good, key=lambda i: ranks[i])
        limit = ranks[lowest][0] + np.nan_to_num(rule.error(common[lowest]), nan=0.0)
        best = min(
            (i for i in good if ranks[i][0] <= limit), key=lambda i: (*ranks[i][1:], programs[i].price, ranks[i][0])
        )
    # 3. The report says of each why it was chosen or not, and which no other one surpasses.
    reasons = [fault or "is better, but not the best" for fault in faults]
    reasons[0] = "is what the others are compared with"
    reasons[best] = f"is chosen: {rule.aim}" if best else "is kept: nothing is better"
    tried = tuple(
        Tried(program.name if i else GIVEN, rule.estimates(answers[i]), p_values[i], costs[i], i == best, reasons[i])
        for i, program in enumerate(programs)
    )
    heights: Any = np.array(ranks)  # (programs, costs)
    lower = (heights <= heights[:, None]).all(axis=2) & (heights < heights[:, None]).any(axis=2)  # by another program
    front = tuple(entry.name for entry, surpassed in zip(tried, lower.any(axis=1), strict=True) if not surpassed)
    # 4. The decision in words, about the chosen program or else the one nearest to it.
    nearest = best or min(others, key=lambda i: np.nan_to_num(p_values[i], nan=np.inf))
    where, units = count(inputs, "held-back input"), 2 * inputs  # half of the inputs are held back
    if programs[nearest].items:
        where, units = programs[nearest].items, len(set(answers[nearest].inputs))
    enough = None if best else inputs_to_decide(p_values[nearest], rule.level, units)
    decision = _decision(tried, best, nearest, rule.aim if best else aim, where, noun=noun, enough=enough)
    decision = f"{coverage_warning({'': answers[best].asked.coverage})} {decision}".lstrip()
    return Selection(programs[best], answers[best], decision, tried, front)


def _fault(rule: Rule, judged: Judged, before: Judged, p_value: float, more: int) -> str:
    """Say why a candidate cannot be chosen; empty if it can."""
    if more > 0:
        return f"leaves {more} more undefined"
    if hardly_answers(judged, before):
        return "has the model hardly ever answer with a label"
    if math.isnan(p_value):
        return INCOMPARABLE
    if not p_value < rule.level:
        return f"is not significantly better (adjusted {p_equals(p_value)}, level {rule.level:g})"
    return rule.loss(judged, before)


MOST_INPUTS, POWER = 100_000, 0.8  # most inputs that are promised to decide, and the probability that they do


def inputs_to_decide(p_value: float, level: float, inputs: int) -> int | None:
    """Compute how many inputs show with 80 % probability that a candidate is better, if it is as much as it seems here.

    The one-sided p is ``z`` standard errors away from no difference: n' = n ((z_level + z_power) / z)^2. None where it
    does not seem better, is shown already, or more inputs than 100,000 would be needed.
    """
    z, wanted = (-float(scipy.special.ndtri(p)) for p in (p_value, level))
    if not level <= p_value < 0.5 or not inputs:  # NaN is not
        return None
    enough = math.ceil(inputs * ((wanted + scipy.special.ndtri(POWER)) / z) ** 2)
    return enough if enough <= MOST_INPUTS else None


def _decision(
    tried: Sequence[Tried], best: int, nearest: int, aim: str, where: str, *, noun: str, enough: int | None
) -> str:
    """Say what was chosen and what it changes, or that the given program is kept, why, and what would decide."""
    kept, *others = tried
    candidate = tried[nearest]
    if best:
        among, caution = ("", "") if len(others) == 1 else (f" out of {len(others)} candidates", f" {FLATTERED}")
        changes = changed(kept.estimates, candidate.estimates)
        return f'"{candidate.name}" was chosen{among} on {where}, for {aim}: {changes}.{caution}'
    if all(other.reason == INCOMPARABLE for other in others):
        reasons = (e.reason for e in kept.estimates.values() if e.reason)
        return f"Kept your {noun}: {aim} cannot be tested on {where}: {next(reasons, 'it is undefined')}."
    among = "Best candidate" if len(others) == 1 else f"Best of {len(others)} candidates"
    why = f"Not chosen because it {candidate.reason}, on {where}."
    needed = "" if enough is None else f" About {count(enough, 'input')} would decide."
    return f'Kept your {noun}. {among} for {aim}: "{candidate.name}". {why}{needed}'


def changed(before: Mapping[str, Estimate], after: Mapping[str, Estimate]) -> str:
    """Return both values of the estimates that two programs have, in words."""
    both = [(before[name], estimate) for name, estimate in after.items() if name in before]
    return "; ".join(f"{new.label} {old.text()} -> {new.text()}" for old, new in both)
