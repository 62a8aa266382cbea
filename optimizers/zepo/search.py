"""The search: propose wordings, test them on the same examples, and keep what is better."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.measures import count_undefined, decision_rates
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.selection import Candidate as Choice
from evalbias.optimizers.selection import Rule
from evalbias.optimizers.zepo.acceptance import Acceptance, StrictImprovement
from evalbias.optimizers.zepo.candidate import Candidate, worst_last
from evalbias.optimizers.zepo.judging import Judging
from evalbias.optimizers.zepo.objectives import BiasObjective, Fairness, Objective, ScoreUniformity
from evalbias.optimizers.zepo.proposers import Proposer, checked_proposer, fault
from evalbias.optimizers.zepo.racing import drop, rounds
from evalbias.optimizers.zepo.rule import ObjectiveRule, check_held_back
from evalbias.optimizers.zepo.stopping import Epochs, Stopping
from evalbias.optimizers.zepo.targets import Judge, Target, instruct, target_of
from evalbias.optimizers.zepo.trace import SearchLog, Tried, ZEPOReport
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.runs.fingerprint import describe


class ZEPO(JudgeOptimizer):
    """Searches for the instruction under which a judge is fairest; no labels are used (Zhou et al., EMNLP 2024).

    The search is greedy and begins with the judge's own instruction: every epoch proposes rewordings of the incumbent,
    and the fairest of these takes its place if it is fairer.

    The trainset holds pairs with ``source`` and ``candidates`` for a pairwise judge (``evalbias.data.pairs`` makes
    them), or items with ``source`` and ``output`` for a pointwise one. A pairwise judge's debiasing and calibration
    take no part in the search: decision rates are those of the given order, so that there is a bias to remove.

    Args:
        proposer: What rewords the incumbent. Defaults to ``GrammarParaphraser()``, which needs no model.
        population: Wordings in an epoch (the paper: 5).
        objective: Objective to maximize. Defaults to the fairness of a pairwise judge (the paper's), and to the score
            uniformity of a pointwise one (ours).
        acceptance: Rule by which a wording replaces the incumbent, which competes on the same examples. Racing offers
            it only the wordings that it did not drop.
        stopping: Rule that ends the search. Defaults to the paper's 5 epochs.
        select: See ``JudgeOptimizer``; the choice is by the objective, so that it needs no labels either.
        racing: Whether to judge an epoch's wordings in rounds, on more and more random examples, and to drop one once
            the interval of its difference to the best excludes 0 (``evalbias.optimizers.zepo.racing``). The winner is
            judged on all examples, and is almost always the same as without racing. False judges every wording on every
            example. Fewer than 40 examples are judged in one round.
        budget: Largest number of prompts to judge; the search ends before it would need more. None sets no limit.
        seed: Seed for the proposals and the tests.
        log_dir: Folder to log the search in; the same search started again continues from there.
        progress: Called with the number of judgments done.
    """

    report_type = ZEPOReport

    def __init__(
        self,
        proposer: Proposer | None = None,
        *,
        population: int = 5,
        objective: Objective | None = None,
        acceptance: Acceptance | None = None,
        stopping: Stopping | None = None,
        racing: bool = True,
        select: bool = True,
        budget: int | None = None,
        seed: int = 0,
        log_dir: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(select=select, budget=budget, seed=seed, log_dir=log_dir, progress=progress)
        if population < 1:
            raise ValueError(f"population={population}: propose at least one wording in an epoch.")
        self.proposer = checked_proposer(proposer)
        self.population = population
        self.objective = objective
        self.acceptance = acceptance or StrictImprovement()
        self.stopping = stopping or Epochs()
        self.racing = racing

    def check(self, student: Judge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; also refuses an objective that cannot be chosen by."""
        if self.select:
            check_held_back(self.objective)
        super().check(student, trainset, valset)

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: Pairs of different sizes, a first instruction that does not name the criterion, a budget that
                does not cover it, or a judge that answers nothing.
        """
        student, examples = problem.student, problem.trainset
        target = target_of(student, examples, problem.lm)
        if wrong := fault(target.first, target.criterion, ()):
            raise ValueError(
                f"The search cannot begin with the instruction {target.first!r}: it is {wrong}, which every wording "
                "must hold."
            )
        _check_objective(self.objective, target, examples[:1])
        search = Search(self, target, self.objective or _default(student), examples)
        with search.log.open():
            details = search.run()
        problem.calls = search.calls
        compiled: Judge = student.deepcopy()
        instruct(compiled, target.instruction(details["chosen"]))
        found = Choice(details["chosen"], compiled)
        given = Choice("given", student, {"chosen": target.first, "best": 0})
        return Outcome([found], given, student, details)

    def rules(self, problem: Problem) -> list[Rule]:
        """A wording is better if the objective is, in a permutation test over the held-back inputs."""
        objective = self.objective or _default(problem.student)
        return [ObjectiveRule(objective, problem.held_back, problem.lm, seed=self.seed)]


def _default(student: Judge) -> Objective:
    return Fairness() if isinstance(student, PairwiseJudge) else ScoreUniformity()


def _check_objective(objective: Objective | None, target: Target, example: list[dspy.Example]) -> None:
    """Refuse a bias that cannot be measured on what the search knows, before anything is judged."""
    if not isinstance(objective, BiasObjective):
        return
    answers = np.full((1, target.classes), 1 / target.classes)
    if not objective.bias.applies(target.judged(answers, example, answers[:0])):
        raise ValueError(f"The bias {objective.name!r} cannot be measured on this judge's answers: choose another.")


class Search:
    """One run of ``ZEPO``."""

    def __init__(self, settings: ZEPO, target: Target, objective: Objective, examples: list[dspy.Example]) -> None:
        self.settings, self.target, self.objective = settings, target, objective
        content = {
            "examples": [[e.get(name) for name in ("source", "candidates", "output")] for e in examples],
            "criterion": vars(target.criterion),
            "seed": settings.seed,
            "population": settings.population,
            "racing": settings.racing,
            "objective": describe(objective),
            "proposer": describe(settings.proposer),
            "judge": target.state,
            "instruction": target.first,
        }
        self.log = SearchLog(settings.log_dir, content)
        race = settings.racing and not objective.content_free  # of which no example decides
        self.rounds = rounds(len(examples)) if race else [len(examples)]
        if len(self.rounds) > 1:  # an interval holds for a random part of the examples
            examples = [examples[i] for i in np.random.default_rng(settings.seed).permutation(len(examples))]
        self.judging = Judging(target, objective, examples, budget=settings.budget, progress=settings.progress)
        self.calls = self.count = 0
        self.tried: list[Tried] = []
        self.rejected: list[tuple[str, str]] = []

    def run(self) -> dict[str, Any]:
        """Search, and return the fields of the report."""
        incumbent, judging = self._new(0, None, self.target.first), self.judging
        n = len(judging.examples)
        if not judging.affordable(1):
            raise ValueError(f"budget={judging.budget} does not cover the {n} examples even once.")
        judging.test([incumbent], n)
        self._note(incumbent, accepted=True)
        if math.isnan(incumbent.objective):
            raise ValueError(
                f"Under the first instruction, the judge answers none of the {n} examples: its "
                "answers have no probability (see min_coverage), so there is nothing to compare. Try another model."
            )
        history, epoch = [incumbent.objective], 0
        while not (stopped := self.settings.stopping(history)):
            epoch += 1
            rivals = self._propose(epoch, incumbent)
            if not rivals:
                stopped = "the proposer has nothing new" + self._most_common_reason()
                break
            if not judging.affordable(len(rivals)):
                stopped = (
                    f"the budget is spent: the next epoch may take {judging.cost(len(rivals))} judgments, "
                    f"{(judging.budget or 0) - judging.judgments} are left"
                )
                break
            finalists = self._race(rivals, incumbent, epoch)
            accepted = self._accepted(finalists, incumbent)
            for rival in rivals:
                self._note(rival, accepted=rival is accepted)
            incumbent = accepted or incumbent
            history.append(incumbent.objective)
        return {
            "chosen": incumbent.instruction,
            "objective": self.objective.name,
            "tried": tuple(sorted(self.tried, key=lambda t: t.number)),
            "history": tuple(history),
            "judgments": judging.judgments,
            "saved": len(self.tried) * judging.cost(1) - judging.judgments,
            "rounds": tuple(self.rounds),
            "rejected": tuple(self.rejected),
            "stopped": stopped,
            "best": incumbent.number,
        }

    def _accepted(self, finalists: Sequence[Candidate], incumbent: Candidate) -> Candidate | None:
        """Return the first finalist, from the best objective down, that the rule accepts; the first of equals."""
        for candidate in sorted(finalists, key=worst_last):
            if self.settings.acceptance.should_accept(candidate, incumbent):
                return candidate
        return None

    def _new(self, epoch: int, parent: int | None, text: str) -> Candidate:
        self.count += 1
        return Candidate.new(self.count - 1, epoch, parent, text, self.target.classes)

    def _propose(self, epoch: int, incumbent: Candidate) -> list[Candidate]:
        settings, known = self.settings, {t.instruction for t in self.tried}
        seed = settings.seed * 1_000_003 + epoch
        proposal = self.log.proposal(
            f"{epoch} {incumbent.instruction}",
            lambda: settings.proposer(
                self.target.criterion, incumbent.instruction, settings.population, known=known, seed=seed
            ),
        )
        self.rejected += proposal.rejected
        self.calls += proposal.calls
        return [self._new(epoch, incumbent.number, text) for text in proposal.instructions]

    def _most_common_reason(self) -> str:
        if not self.rejected:
            return ""
        ((reason, _),) = Counter(reason for reason, _ in self.rejected).most_common(1)
        return f" ({len(self.rejected)} wordings turned down, most of them {reason})"

    def _race(self, rivals: list[Candidate], incumbent: Candidate, epoch: int) -> list[Candidate]:
        """Return the candidates that were judged on all examples."""
        left, *earlier, whole = rivals, *self.rounds
        for examples in earlier:
            self.judging.test(left, examples)
            rng = np.random.default_rng([self.settings.seed, epoch, examples])
            dropped = drop(left, incumbent, self.objective, looks=len(earlier), rng=rng)
            for candidate in left:
                candidate.behind = dropped.get(candidate.number)
            left = [candidate for candidate in left if candidate.behind is None]
            if not left:
                return []
        self.judging.test(left, whole)
        return left

    def _note(self, candidate: Candidate, *, accepted: bool) -> None:
        tried = Tried(
            number=candidate.number,
            epoch=candidate.epoch,
            parent=candidate.parent,
            instruction=candidate.instruction,
            objective=candidate.objective,
            decision_rates=tuple(decision_rates(candidate.answers).tolist()),
            examples=len(candidate.answers),
            undefined=count_undefined(candidate.answers),
            accepted=accepted,
            behind=candidate.behind,
        )
        self.tried.append(tried)
        self.log.tried(tried)
