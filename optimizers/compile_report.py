"""Report of every optimizer: what was tried, what was chosen and why, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalbias.evaluation.comparison import Comparison
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.formatting import count
from evalbias.evaluation.judged import Judged


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
