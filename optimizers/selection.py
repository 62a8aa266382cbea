"""The choice among candidates on held-back items, and the report of a compilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from evalbias.evaluation.estimates import Comparison, Estimate
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import count, p_equals

# Report of every optimizer: what was tried, what was chosen and why, and what it cost.


@dataclass(frozen=True)
class Cost:
    """Resources that compiling took.

    Attributes:
        judgments: Prompts that the model answered with measured choices, for the search and the comparison.
        likelihoods: Texts whose likelihood was measured.
        calls: Requests to generate text.
        seconds: Wall-clock time; not part of results, which a resumed run repeats exactly.
    """

    judgments: int = 0
    likelihoods: int = 0
    calls: int = 0
    seconds: float = field(default=0.0, compare=False, repr=False)

    def to_dict(self) -> dict[str, int]:
        """Return the reproducible amounts."""
        return {"judgments": self.judgments, "likelihoods": self.likelihoods, "calls": self.calls}

    def since(self, before: Cost) -> Cost:
        """Return what was spent after an earlier moment."""
        return Cost(*(getattr(self, name) - getattr(before, name) for name in ("judgments", "likelihoods", "calls")))


@dataclass(frozen=True)
class Tried:
    """One program on the held-back items.

    Attributes:
        name: The candidate in words; ``"given"`` for the program that was given.
        estimates: Name -> estimate on the held-back items, with its interval.
        p_value: p of the paired test that it is better than the given program, adjusted for all candidates; NaN for the
            given program itself, and where the test is undefined.
        cost: Resources that measuring it took; answers that were known already cost nothing.
        chosen: Whether it was compiled.
        reason: Why it was chosen or not, as the end of a sentence that begins with the name.
    """

    name: str
    estimates: Mapping[str, Estimate]
    p_value: float
    cost: Cost
    chosen: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class CompileReport:
    """Report of every optimizer; each adds fields of its own.

    Attributes:
        chosen: The choice that was compiled into the program, in words.
        decision: What was chosen on the held-back items and why, in a sentence; empty with ``select=False``.
        candidates: The given program and every candidate on the held-back items; empty with ``select=False``.
        front: Names of those that no other one surpasses in everything that the choice looks at.
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
    front: tuple[str, ...] = ()
    comparison: Mapping[str, Comparison] = field(default_factory=dict)
    before: Judged | None = None
    after: Judged | None = None
    cost: Cost = field(default_factory=Cost)
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the decision, the candidates, what changed on the valset, and the cost, for a reader."""
        lines = [self.decision or f"Compiled: {self.chosen}."]
        for one in self.candidates:
            numbers = ", ".join(f"{estimate.label} {estimate.text()}" for estimate in one.estimates.values())
            lines.append(f"- {one.name} {one.reason} ({numbers}).")
        for bias, comparison in self.comparison.items():
            changes = ", ".join(f"{change.label} {change.text()}" for change in comparison.changes.values())
            lines.append(f"On the valset, {bias}: {changes}.")
        spent = [count(amount, name.removesuffix("s")) for name, amount in self.cost.to_dict().items() if amount]
        return "\n".join([*lines, f"Cost: {', '.join(spent) or 'nothing'}."])


# Choosing on held-back items: a candidate replaces the given program only where a paired test says it is better.


INCOMPARABLE = "cannot be compared: what it should improve is undefined for it or for the given program"
LEVEL = 0.05
"""Chance that any candidate passes the test that it is better, where none is (family-wise error)."""
GIVEN = "given"
FLATTERED = "The best of several looks better on these items than it is: measure it on others (a valset)."
"""Caution about the numbers of a winner: of 20 candidates whose effect is .25, the chosen one shows .12 to .14."""


@dataclass(frozen=True)
class Candidate:
    """A program that may be compiled.

    Attributes:
        name: The choice in words.
        program: The program.
        details: Fields of the optimizer's report that hold if this program is compiled.
        answers: Its answers, where the search has them; None runs the program on the held-back items.
        items: What these answers are to, in words; empty for the held-back inputs.
    """

    name: str
    program: Any
    details: Mapping[str, Any] = field(default_factory=dict)
    answers: Any = None
    items: str = ""


class Rule(Protocol):
    """Measurements on the held-back items, and the test that a candidate is better than the given program.

    Attributes:
        aim: What "better" means, in words.
        level: Chance that any candidate passes the test that it is better, where none is.
    """

    aim: str
    level: float

    def answers(self, program: Any) -> Any:
        """Run a program on the held-back items."""
        ...

    def undefined(self, answers: Any, given: Any) -> int:
        """Return the number of items that a candidate leaves undefined beyond those of the given program."""
        ...

    def estimates(self, answers: Any) -> dict[str, Estimate]:
        """Return what a report shows of the answers."""
        ...

    def p_values(self, answers: Sequence[Any], given: Any) -> list[float]:
        """Return the p of the paired test that each candidate is no better, adjusted for all; NaN if undefined."""
        ...

    def loss(self, answers: Any, given: Any) -> str:
        """Say what a candidate makes significantly worse, such as "the performance falls"; empty if nothing."""
        ...

    def costs(self, answers: Any) -> tuple[float, ...]:
        """Return numbers that should be small; the first one decides between candidates that are all better."""
        ...

    def error(self, answers: Any) -> float:
        """Return the standard error of the first of ``costs``: what it must differ by to decide; 0 for any amount."""
        ...


@dataclass(frozen=True)
class Selection:
    """Result of a choice.

    Attributes:
        chosen: The given program or a candidate.
        answers: Its answers on the held-back items.
        fields: Fields of the report: ``decision``, ``candidates`` and ``front``.
    """

    chosen: Candidate
    answers: Any
    fields: Mapping[str, Any]


def choose(
    given: Candidate, candidates: Sequence[Candidate], rules: Sequence[Rule], *, spent: Callable[[], Cost], inputs: int
) -> Selection:
    """Choose between candidates and the given program on the held-back items.

    Considered are the candidates that are significantly better than the given program, make nothing worse, and leave no
    more items undefined. Of those whose first cost (``Rule.costs``) is within one standard error of the lowest, the one
    is chosen whose next cost is lowest. Without any, the next rule says what is better; after the last rule, the given
    program is kept.

    Args:
        given: The program that was given.
        candidates: Others.
        rules: What is better, in the order in which it is sought. All rules measure the same answers, and their levels
            add up to the chance of a false choice.
        spent: Returns what was spent so far.
        inputs: Number of held-back inputs, for the report.
    """
    programs = [given, *candidates]
    answers, costs = [], []
    for one in programs:
        before = spent()
        answers.append(rules[0].answers(one.program) if one.answers is None else one.answers)
        costs.append(spent().since(before))
    aim = ", or ".join(rule.aim for rule in rules)
    selections = []
    for rule in rules:
        selections.append(_by(rule, programs, answers, costs, aim, inputs))
        if selections[-1].chosen is not given:
            return selections[-1]
    return selections[0]


def _by(
    rule: Rule, programs: Sequence[Candidate], answers: Sequence[Any], costs: Sequence[Cost], aim: str, inputs: int
) -> Selection:
    """Choose by one rule; the given program comes first, and ``aim`` is that of all rules."""
    first = answers[0]
    more = [rule.undefined(a, first) for a in answers]
    tested = [i for i in range(1, len(programs)) if more[i] <= 0]
    p_values = [float("nan")] * len(programs)
    for i, p_value in zip(tested, rule.p_values([answers[i] for i in tested], first) if tested else (), strict=True):
        p_values[i] = p_value
    faults = ["", *(_fault(answers[i], first, p_values[i], more[i], rule) for i in range(1, len(programs)))]
    ranks = [rule.costs(a) for a in answers]
    good = [i for i in range(1, len(programs)) if not faults[i]]
    best = _best(good, ranks, lambda i: rule.error(answers[i])) if good else 0
    reasons = [fault or "is better, but not the best" for fault in faults]
    reasons[0] = "is what the others are compared with"
    reasons[best] = f"is chosen: {rule.aim}" if best else "is kept: nothing is better"
    tried = tuple(
        Tried(GIVEN if i == 0 else one.name, rule.estimates(answers[i]), p_values[i], costs[i], i == best, reasons[i])
        for i, one in enumerate(programs)
    )
    front = tuple(t.name for t, rank in zip(tried, ranks, strict=True) if not any(_surpasses(r, rank) for r in ranks))
    where = programs[best].items or count(inputs, "held-back input")
    decision = _decision(tried, best, p_values, rule.aim if best else aim, where)
    return Selection(programs[best], answers[best], {"decision": decision, "candidates": tried, "front": front})


def _fault(answers: Any, given: Any, p_value: float, more: int, rule: Rule) -> str:
    """Say why a candidate cannot be chosen; empty if it can."""
    if more > 0:
        return f"leaves {more} more undefined"
    if math.isnan(p_value):
        return INCOMPARABLE
    if not p_value < rule.level:
        return f"is not significantly better (adjusted {p_equals(p_value)}, level {rule.level:g})"
    return rule.loss(answers, given)


def _best(good: Sequence[int], ranks: Sequence[tuple[float, ...]], error: Callable[[int], float]) -> int:
    """Return the one whose later costs are lowest among those within a standard error of the lowest first cost."""
    lowest = min(good, key=lambda i: ranks[i])
    limit = ranks[lowest][0] + np.nan_to_num(error(lowest), nan=0.0)
    return min((i for i in good if ranks[i][0] <= limit), key=lambda i: (*ranks[i][1:], ranks[i][0]))


def _surpasses(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Return whether the first costs are nowhere higher and somewhere lower; undefined ones (NaN) are the highest."""
    a, b = (np.nan_to_num(np.array(costs), nan=np.inf) for costs in (first, second))
    return bool((a <= b).all() and (a < b).any())


def _decision(tried: Sequence[Tried], best: int, p_values: Sequence[float], aim: str, where: str) -> str:
    others = "the only candidate" if len(tried) == 2 else f"{len(tried) - 1} candidates"
    if best:
        changes = "; ".join(
            f"{e.label} {tried[0].estimates[name].text()} -> {e.text()}"
            for name, e in tried[best].estimates.items()
            if name in tried[0].estimates
        )
        among, caution = ("", "") if len(tried) == 2 else (f" out of {others}", f" {FLATTERED}")
        return f'"{tried[best].name}" was chosen{among} on {where}, for {aim}: {changes}.{caution}'
    if len(tried) == 2:
        tested = f"{others} for {aim}, {tried[1].reason}"
        return f'The given program was kept: "{tried[1].name}", {tested}, on {where}.'
    if all(one.reason == INCOMPARABLE for one in tried[1:]):
        reasons = (e.reason for e in tried[0].estimates.values() if e.reason)
        return f"The given program was kept: {aim} cannot be tested on {where}: {next(reasons, 'it is undefined')}."
    nearest = min(range(1, len(tried)), key=lambda i: np.nan_to_num(p_values[i], nan=np.inf))
    return (
        f"The given program was kept: none of {others} showed {aim} on {where}. The nearest, "
        f'"{tried[nearest].name}", {tried[nearest].reason}.'
    )
