"""The search itself: propose, test on the same pairs, keep what is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.lm.contract import measuring
from evalbias.lm.types import FloatArray, MeasuringLM
from evalbias.measures import count_undefined, decision_rates
from evalbias.optimizers.zepo.acceptance import Acceptance, StrictImprovement
from evalbias.optimizers.zepo.objectives import Answers, Fairness, Objective
from evalbias.optimizers.zepo.proposers import Proposer
from evalbias.optimizers.zepo.stopping import Epochs, Stopping
from evalbias.optimizers.zepo.trace import Log, Tried, ZEPOReport
from evalbias.programs.comparison import rotations
from evalbias.programs.pairwise import CONTENT_FREE, PairwiseJudge

SHORTEST = 20
"""Pairs below which successive halving tells nothing."""


class ZEPO(Teleprompter):  # type: ignore[misc]
    """Searches for the instruction under which a pairwise judge is fairest; no labels are used.

    Args:
        proposer: Where new wordings come from.
        population: Wordings in an epoch; the paper's is 5.
        objective: What is maximised.
        acceptance: Which wording takes over; the incumbent competes on the same pairs.
        stopping: When the search ends; by default after the paper's 5 epochs.
        halving: Test an epoch's wordings on a quarter of the pairs first, then half, and let the weaker half leave.
        budget: Most prompts to judge; the search ends before it would ask for more. None has no bound.
        seed: Of the proposals.
        log_dir: Where to log the search; the same search started again goes on from there.
        progress: Called with the number of judgments done.
    """

    def __init__(
        self,
        proposer: Proposer,
        *,
        population: int = 5,
        objective: Objective | None = None,
        acceptance: Acceptance | None = None,
        stopping: Stopping | None = None,
        halving: bool = False,
        budget: int | None = None,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if population < 1:
            raise ValueError(f"population={population}: propose at least one wording in an epoch.")
        self.proposer = proposer
        self.population = population
        self.objective = objective or Fairness()
        self.acceptance = acceptance or StrictImprovement()
        self.stopping = stopping or Epochs()
        self.halving = halving
        self.budget = budget
        self.seed = seed
        self.log_dir = log_dir
        self.progress = progress

    def compile(
        self,
        student: PairwiseJudge,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: None = None,
        lm: Any = None,
    ) -> PairwiseJudge:
        """A copy of the judge with the best instruction found.

        Args:
            student: The judge; it is left as it is. Its debiasing and calibration take no part in the search: decision
                rates are those of the order given, so that there is a preference to mend.
            trainset: Pairs with ``source`` and ``candidates``; ``evalbias.data.pairs`` makes them. No labels.
            teacher: Not used by this method; must be None.
            valset: Not used by this method; must be None.
            lm: The judge's model; by default its own or DSPy's.

        Returns:
            The compiled judge; its ``report`` is a ``ZEPOReport``.

        Raises:
            ValueError: No pairs, pairs of different sizes, a budget that does not cover the first instruction, or a
                judge that answers nothing.
        """
        if teacher is not None or valset is not None:
            raise ValueError("ZEPO learns from unlabelled pairs alone: pass no teacher and no valset.")
        sizes = {len(e.candidates) for e in trainset}
        if len(sizes) != 1:
            raise ValueError(f"{len(trainset)} pairs with {sorted(sizes)} candidates: give pairs of one size.")
        found = _Search(self, student, list(trainset), measuring(lm or student.predict.lm or dspy.settings.lm))
        compiled: PairwiseJudge = student.deepcopy()
        compiled.report = found.run()
        best = compiled.report.tried[compiled.report.best].instruction
        compiled.predict.signature = compiled.predict.signature.with_instructions(best)
        return compiled


@dataclass
class _Wording:
    """An instruction that is being tested."""

    number: int
    epoch: int
    parent: int | None
    text: str
    probabilities: FloatArray
    content_free: FloatArray
    objective: float = math.nan


class _Search:
    """One run of ``ZEPO``."""

    def __init__(self, settings: ZEPO, student: PairwiseJudge, pairs: list[dspy.Example], lm: MeasuringLM) -> None:
        self.settings, self.pairs, self.lm = settings, pairs, lm
        self.judge: PairwiseJudge = student.deepcopy()
        self.judge.debias = self.judge.calibration = None
        self.size = len(pairs[0].candidates)
        self.classes = self.size + int(student.ties)
        told: dict[str, Any] = {
            "pairs": [[e.source, *e.candidates] for e in pairs],
            "criterion": vars(student.criterion),
        }
        told |= {"seed": settings.seed, "population": settings.population, "objective": settings.objective.name}
        self.log = Log(settings.log_dir, {**told, "instruction": student.predict.signature.instructions})
        self.judgments, self.count = 0, 0
        self.tried: list[Tried] = []
        self.rejected: list[tuple[str, str]] = []

    def run(self) -> ZEPOReport:
        incumbent = self._new(0, None, self.judge.predict.signature.instructions)
        if not self._affordable(1, len(self.pairs)):
            raise ValueError(f"budget={self.settings.budget} does not cover the {len(self.pairs)} pairs even once.")
        self._test(incumbent, len(self.pairs))
        self._note(incumbent, accepted=True)
        if math.isnan(incumbent.objective):
            raise ValueError(
                f"Under the first instruction the judge gives no answer to any of the {len(self.pairs)} pairs: its "
                "answers have no probability (see min_coverage), so there is nothing to compare."
            )
        history, epoch = [incumbent.objective], 0
        while not (stopped := self.settings.stopping(history)):
            epoch += 1
            rivals = self._proposed(epoch, incumbent)
            if not rivals:
                stopped = "the proposer has nothing new"
                break
            if not self._affordable(len(rivals), len(self.pairs)):
                stopped = "the budget is spent"
                break
            finalists = self._tournament(rivals)
            chosen = self.settings.acceptance(incumbent.objective, [r.objective for r in finalists])
            for rival in rivals:
                self._note(rival, accepted=chosen is not None and rival is finalists[chosen])
            incumbent = incumbent if chosen is None else finalists[chosen]
            history.append(incumbent.objective)
        return ZEPOReport(
            objective=self.settings.objective.name,
            tried=tuple(sorted(self.tried, key=lambda t: t.number)),
            history=tuple(history),
            judgments=self.judgments,
            rejected=tuple(self.rejected),
            stopped=stopped,
            best=incumbent.number,
        )

    def _new(self, epoch: int, parent: int | None, text: str) -> _Wording:
        self.count += 1
        nothing = np.empty((0, self.classes))
        return _Wording(self.count - 1, epoch, parent, text, nothing, nothing)

    def _proposed(self, epoch: int, incumbent: _Wording) -> list[_Wording]:
        settings, known = self.settings, {t.instruction for t in self.tried}
        seed = settings.seed * 1_000_003 + epoch
        found = self.log.proposal(
            f"{epoch} {incumbent.text}",
            lambda: settings.proposer(
                self.judge.criterion, incumbent.text, settings.population, known=known, seed=seed
            ),
        )
        self.rejected += found.rejected
        return [self._new(epoch, incumbent.number, text) for text in found.instructions]

    def _tournament(self, rivals: list[_Wording]) -> list[_Wording]:
        """Those that were tested on all pairs."""
        left = list(rivals)
        for rung in self._rungs():
            for wording in left:
                self._test(wording, rung)
            if rung < len(self.pairs):
                left = sorted(left, key=lambda w: -w.objective if w.objective == w.objective else math.inf)
                left = left[: max(1, (len(left) + 1) // 2)]
        return left

    def _rungs(self) -> list[int]:
        whole = len(self.pairs)
        early = [whole // 4, whole // 2] if self.settings.halving else []
        return [*(rung for rung in early if rung >= SHORTEST), whole]

    def _test(self, wording: _Wording, upto: int) -> None:
        """Judge the pairs up to that one that were not judged under this wording yet."""
        done = len(wording.probabilities)
        self.judge.predict.signature = self.judge.predict.signature.with_instructions(wording.text)
        found = self._probabilities(self.pairs[done:upto])
        wording.probabilities = np.concatenate([wording.probabilities, found])
        if self.settings.objective.content_free and not len(wording.content_free):
            free = dspy.Example(source=CONTENT_FREE, candidates=[CONTENT_FREE] * self.size)
            wording.content_free = self._probabilities([free])
        wording.objective = self.settings.objective(Answers(wording.probabilities, wording.content_free))

    def _probabilities(self, examples: Sequence[dspy.Example]) -> FloatArray:
        """(n, c) by position."""
        orders = rotations(self.size, every=False)
        found = self.judge.measured(examples, orders, self.lm)
        self.judgments += len(examples)
        if self.settings.progress is not None:
            self.settings.progress(len(examples))
        return self.judge.combined(found, orders, None).positions[:, 0]

    def _affordable(self, wordings: int, pairs: int) -> bool:
        free = int(self.settings.objective.content_free)
        budget = self.settings.budget
        return budget is None or self.judgments + wordings * (pairs + free) <= budget

    def _note(self, wording: _Wording, *, accepted: bool) -> None:
        tried = Tried(
            number=wording.number,
            epoch=wording.epoch,
            parent=wording.parent,
            instruction=wording.text,
            objective=wording.objective,
            decision_rates=tuple(decision_rates(wording.probabilities).tolist()),
            pairs=len(wording.probabilities),
            undefined=count_undefined(wording.probabilities),
            accepted=accepted,
        )
        self.tried.append(tried)
        self.log.tried(tried)
