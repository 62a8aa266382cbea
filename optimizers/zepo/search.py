"""The search itself: propose, test on the same examples, keep what is better."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter

from evalbias.data.pairing import input_key
from evalbias.lm.contract import measuring
from evalbias.lm.types import FloatArray
from evalbias.measures import count_undefined, decision_rates
from evalbias.optimizers.zepo.acceptance import Acceptance, StrictImprovement
from evalbias.optimizers.zepo.objectives import Answers, Fairness, Objective, ScoreUniformity
from evalbias.optimizers.zepo.proposers import Proposer
from evalbias.optimizers.zepo.stopping import Epochs, Stopping
from evalbias.optimizers.zepo.targets import Judge, Target, instruct, target_of
from evalbias.optimizers.zepo.trace import Log, Tried, ZEPOReport
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.runs.fingerprint import describe

SHORTEST = 20
"""Examples below which successive halving tells nothing."""


class ZEPO(Teleprompter):  # type: ignore[misc]
    """Searches for the instruction under which a judge is fairest; no labels are used.

    Args:
        proposer: Where new wordings come from.
        population: Wordings in an epoch; the paper's is 5.
        objective: What is maximized; by default the fairness of a pairwise judge (the paper's), the score uniformity of
            a pointwise one (ours).
        acceptance: Which wording takes over; the incumbent competes on the same examples.
        stopping: When the search ends; by default after the paper's 5 epochs.
        halving: Test an epoch's wordings on a quarter of the examples first, then half, and let the weaker half leave.
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
        self.objective = objective
        self.acceptance = acceptance or StrictImprovement()
        self.stopping = stopping or Epochs()
        self.halving = halving
        self.budget = budget
        self.seed = seed
        self.log_dir = log_dir
        self.progress = progress

    def compile(
        self,
        student: Judge,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: None = None,
        lm: Any = None,
    ) -> Judge:
        """A copy of the judge with the best instruction found.

        Args:
            student: The judge; it is left as it is. Debiasing and calibration of a pairwise one take no part in the
                search: decision rates are those of the order given, so that there is a preference to mend.
            trainset: For a pairwise judge pairs with ``source`` and ``candidates`` (``evalbias.data.pairing`` makes
                them), for a pointwise one items with ``source`` and ``output``. No labels.
            teacher: Not used by this method; must be None.
            valset: Not used by this method; must be None.
            lm: The judge's model; by default its own or DSPy's.

        Returns:
            The compiled judge; its ``report`` is a ``ZEPOReport``.

        Raises:
            ValueError: No examples, pairs of different sizes, a budget that does not cover the first instruction, or a
                judge that answers nothing.
        """
        if teacher is not None or valset is not None:
            raise ValueError("ZEPO learns without labels: pass no teacher and no valset.")
        subject = target_of(student, trainset, measuring(lm or student.predict.lm or dspy.settings.lm))
        objective = self.objective or _default(student)
        if self.halving and len(trainset) < 2 * SHORTEST:
            raise ValueError(f"{len(trainset)} examples are too few for halving: give {2 * SHORTEST} or more.")
        compiled: Judge = student.deepcopy()
        compiled.report = _Search(self, subject, objective, list(trainset)).run()
        instruct(compiled, subject.instruction(compiled.report.tried[compiled.report.best].instruction))
        return compiled


def _default(student: Judge) -> Objective:
    return Fairness(ties=student.ties) if isinstance(student, PairwiseJudge) else ScoreUniformity()


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

    def __init__(self, settings: ZEPO, subject: Target, objective: Objective, examples: list[dspy.Example]) -> None:
        self.settings, self.subject, self.objective, self.examples = settings, subject, objective, examples
        self.documents = [input_key(e) for e in examples]
        told: dict[str, Any] = {
            "examples": [[e.get(name) for name in ("source", "candidates", "output")] for e in examples],
            "criterion": vars(subject.criterion),
        }
        told |= {"seed": settings.seed, "population": settings.population, "halving": settings.halving}
        told |= {"objective": describe(objective), "proposer": describe(settings.proposer)}
        told["judge"] = subject.state
        self.log = Log(settings.log_dir, {**told, "instruction": subject.first})
        self.judgments, self.count = 0, 0
        self.tried: list[Tried] = []
        self.rejected: list[tuple[str, str]] = []

    def run(self) -> ZEPOReport:
        incumbent = self._new(0, None, self.subject.first)
        if not self._affordable(1):
            raise ValueError(
                f"budget={self.settings.budget} does not cover the {len(self.examples)} examples even once."
            )
        self._test([incumbent], len(self.examples))
        self._note(incumbent, accepted=True)
        if math.isnan(incumbent.objective):
            raise ValueError(
                f"Under the first instruction the judge gives no answer to any of the {len(self.examples)} examples: "
                "its answers have no probability (see min_coverage), so there is nothing to compare."
            )
        history, epoch = [incumbent.objective], 0
        while not (stopped := self.settings.stopping(history)):
            epoch += 1
            rivals = self._proposed(epoch, incumbent)
            if not rivals:
                stopped = "the proposer has nothing new" + self._turned_down()
                break
            if not self._affordable(len(rivals)):
                stopped = (
                    f"the budget is spent: the next epoch takes {self._cost(len(rivals))} judgments, "
                    f"{(self.settings.budget or 0) - self.judgments} are left"
                )
                break
            finalists = self._tournament(rivals)
            chosen = self.settings.acceptance(incumbent.objective, [r.objective for r in finalists])
            for rival in rivals:
                self._note(rival, accepted=chosen is not None and rival is finalists[chosen])
            incumbent = incumbent if chosen is None else finalists[chosen]
            history.append(incumbent.objective)
        return ZEPOReport(
            objective=self.objective.name,
            tried=tuple(sorted(self.tried, key=lambda t: t.number)),
            history=tuple(history),
            judgments=self.judgments,
            rejected=tuple(self.rejected),
            stopped=stopped,
            best=incumbent.number,
        )

    def _new(self, epoch: int, parent: int | None, text: str) -> _Wording:
        self.count += 1
        nothing = np.empty((0, self.subject.classes))
        return _Wording(self.count - 1, epoch, parent, text, nothing, nothing)

    def _proposed(self, epoch: int, incumbent: _Wording) -> list[_Wording]:
        settings, known = self.settings, {t.instruction for t in self.tried}
        seed = settings.seed * 1_000_003 + epoch
        found = self.log.proposal(
            f"{epoch} {incumbent.text}",
            lambda: settings.proposer(
                self.subject.criterion, incumbent.text, settings.population, known=known, seed=seed
            ),
        )
        self.rejected += found.rejected
        return [self._new(epoch, incumbent.number, text) for text in found.instructions]

    def _turned_down(self) -> str:
        if not self.rejected:
            return ""
        ((reason, _),) = Counter(why for why, _ in self.rejected).most_common(1)
        return f" ({len(self.rejected)} wordings turned down, most of them {reason})"

    def _tournament(self, rivals: list[_Wording]) -> list[_Wording]:
        """Those that were tested on all examples."""
        left = list(rivals)
        for rung, survivors in self._rungs(len(rivals)):
            self._test(left, rung)
            left = sorted(left, key=lambda w: -w.objective if w.objective == w.objective else math.inf)[:survivors]
        return left

    def _rungs(self, wordings: int) -> list[tuple[int, int]]:
        """(examples judged by then, wordings that stay) of each round; the last is all examples."""
        whole, left, found = len(self.examples), wordings, []
        for rung in [whole // 4, whole // 2] if self.settings.halving else []:
            if rung >= SHORTEST:
                left = max(1, (left + 1) // 2)
                found.append((rung, left))
        return [*found, (whole, left)]

    def _cost(self, wordings: int) -> int:
        """Judgments that so many wordings take."""
        cost, before, left = wordings * int(self.objective.content_free), 0, wordings
        for rung, survivors in self._rungs(wordings):
            cost += left * (rung - before)
            before, left = rung, survivors
        return cost

    def _test(self, wordings: Sequence[_Wording], upto: int) -> None:
        """Judge the examples up to that one that were not judged under these wordings yet; all had equally many."""
        part = self.examples[len(wordings[0].probabilities) : upto]
        found = self._probabilities(wordings, part)
        for wording, rows in zip(wordings, found, strict=True):
            wording.probabilities = np.concatenate([wording.probabilities, rows])
        if self.objective.content_free and not len(wordings[0].content_free):
            free = self._probabilities(wordings, [self.subject.content_free()])
            for wording, rows in zip(wordings, free, strict=True):
                wording.content_free = rows
        documents = self.documents[:upto]
        for wording in wordings:
            wording.objective = self.objective(Answers(wording.probabilities, wording.content_free, documents))

    def _probabilities(self, wordings: Sequence[_Wording], examples: Sequence[dspy.Example]) -> FloatArray:
        found = self.subject.probabilities([wording.text for wording in wordings], examples)
        self.judgments += len(wordings) * len(examples)
        if self.settings.progress is not None:
            self.settings.progress(len(wordings) * len(examples))
        return found

    def _affordable(self, wordings: int) -> bool:
        budget = self.settings.budget
        cost = self._cost(wordings) if self.tried else len(self.examples) + int(self.objective.content_free)
        return budget is None or self.judgments + cost <= budget

    def _note(self, wording: _Wording, *, accepted: bool) -> None:
        tried = Tried(
            number=wording.number,
            epoch=wording.epoch,
            parent=wording.parent,
            instruction=wording.text,
            objective=wording.objective,
            decision_rates=tuple(decision_rates(wording.probabilities).tolist()),
            examples=len(wording.probabilities),
            undefined=count_undefined(wording.probabilities),
            accepted=accepted,
        )
        self.tried.append(tried)
        self.log.tried(tried)
