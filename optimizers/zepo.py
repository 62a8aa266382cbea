"""ZEPO: the search for a fair instruction, without labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import dspy
import numpy as np

from evalbias.data.pairing import by_input, pairs
from evalbias.evaluation.rankings import measure_ranking
from evalbias.lm.cache import measuring
from evalbias.lm.contract import resolve_lm
from evalbias.measures import count_undefined, decision_rates
from evalbias.measures.arrays import FloatArray
from evalbias.measures.position_calibration import by_candidate, rotations
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.objectives import (
    BiasObjective,
    CalibrationGap,
    Confidence,
    ContextFreeConfidence,
    Fairness,
    Judge,
    Objective,
    ObjectiveRule,
    PairwiseTarget,
    ScoreUniformity,
    Target,
    check_held_back,
    instruct,
    target_of,
)
from evalbias.optimizers.proposers import GrammarParaphraser, LMParaphraser, Proposal, Proposer, checked_proposer, fault
from evalbias.optimizers.racing import Candidate, drop, rounds, worst_last
from evalbias.optimizers.selection import Candidate as Choice
from evalbias.optimizers.selection import CompileReport, Rule
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.programs.ranking import PairwiseRanker
from evalbias.runs import Journal, check_settings, lock_folder
from evalbias.values import describe

# Rules that decide whether a candidate instruction replaces the incumbent.


class Acceptance(Protocol):
    """Decides between a candidate and the incumbent; both answered the same examples."""

    def should_accept(self, candidate: Candidate, incumbent: Candidate) -> bool:
        """Return whether the candidate replaces the incumbent.

        An epoch's candidates that were judged on all examples are offered from the best objective to the worst; the
        first accepted one is taken. Both hold their objective and, in ``judged``, every answer, so that a rule may test
        the difference.
        """
        ...


class StrictImprovement:
    """Accepts a larger objective; an undefined one (NaN) never replaces another."""

    def should_accept(self, candidate: Candidate, incumbent: Candidate) -> bool:
        """See ``Acceptance``."""
        if math.isnan(candidate.objective):
            return False
        return math.isnan(incumbent.objective) or candidate.objective > incumbent.objective


# Judge the wordings of a search on its examples, and count the judgments against the budget.


class Judging:
    """Judges candidates on a search's examples.

    Args:
        target: The judge, with the instruction to fill in.
        objective: Objective to compute from the answers.
        examples: Examples in the order in which they are judged.
        budget: Largest number of judgments; None sets no limit.
        progress: Called with the number of judgments done.

    Attributes:
        judgments: Number of judgments so far.
    """

    def __init__(
        self,
        target: Target,
        objective: Objective,
        examples: Sequence[dspy.Example],
        *,
        budget: int | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.target, self.objective, self.examples = target, objective, examples
        self.budget, self.progress = budget, progress
        self.judgments = 0

    def cost(self, wordings: int) -> int:
        """Return the number of judgments that so many wordings take at most."""
        return wordings * (len(self.examples) + int(self.objective.content_free))

    def affordable(self, wordings: int) -> bool:
        """Return whether the budget covers so many more wordings."""
        return self.budget is None or self.judgments + self.cost(wordings) <= self.budget

    def test(self, candidates: Sequence[Candidate], upto: int) -> None:
        """Judge the examples up to ``upto`` that the candidates, which all had equally many, have not answered yet."""
        part = self.examples[len(candidates[0].answers) : upto]
        for candidate, rows in zip(candidates, self._probabilities(candidates, part), strict=True):
            candidate.answers = np.concatenate([candidate.answers, rows])
        if self.objective.content_free and not len(candidates[0].content_free):
            free = self._probabilities(candidates, [self.target.content_free()])
            for candidate, rows in zip(candidates, free, strict=True):
                candidate.content_free = rows
        for candidate in candidates:
            examples = self.examples[:upto]
            candidate.judged = self.target.judged(candidate.answers, examples, candidate.content_free)
            candidate.objective = self.objective(candidate.judged)

    def _probabilities(self, candidates: Sequence[Candidate], examples: Sequence[dspy.Example]) -> FloatArray:
        probabilities = self.target.probabilities([candidate.instruction for candidate in candidates], examples)
        self.judgments += len(candidates) * len(examples)
        if self.progress is not None:
            self.progress(len(candidates) * len(examples))
        return probabilities


# Rules that end a search; a budget ends it as well.


class Stopping(Protocol):
    """Rule that is applied before every epoch."""

    def __call__(self, history: Sequence[float]) -> str | None:
        """Return the reason to stop, or None to continue.

        Args:
            history: Objective of the incumbent at the start and after every epoch so far.
        """
        ...


class Epochs:
    """Ends the search after a number of epochs.

    Args:
        count: Number of epochs, at least 1 (the paper: 5).
    """

    def __init__(self, count: int = 5) -> None:
        if count < 1:
            raise ValueError(f"epochs={count}: search for at least one.")
        self.count = count

    def __call__(self, history: Sequence[float]) -> str | None:
        """See ``Stopping``."""
        return f"{self.count} epochs" if len(history) > self.count else None


class Patience:
    """Ends the search when several epochs in a row brought nothing better.

    Args:
        patience: Number of epochs without a better incumbent, at least 1.
        epochs: Largest number of epochs.
    """

    def __init__(self, patience: int = 2, epochs: int = 20) -> None:
        if patience < 1:
            raise ValueError(f"patience={patience}: wait for at least one epoch.")
        self.patience, self._epochs = patience, Epochs(epochs)

    def __call__(self, history: Sequence[float]) -> str | None:
        """See ``Stopping``."""
        recent = history[-self.patience - 1 :]
        if len(recent) > self.patience and max(recent[1:]) <= recent[0]:
            return f"nothing better in {self.patience} epochs"
        return self._epochs(history)


# The record of a search: every instruction with its numbers and descent, in memory and in a log folder.
#
# The log grows during the search: ``proposals.jsonl``, so that a resumed search does not ask the proposer again, and
# ``instructions.jsonl``. Judgments are logged by the model's journal (``evalbias.lm.cache``).


@dataclass(frozen=True)
class Tried:
    """One tested instruction.

    Attributes:
        number: Number in the search, from 0.
        epoch: Epoch in which it was proposed; 0 for the first instruction.
        parent: Number of the instruction it was made from; None for the first.
        instruction: The wording.
        objective: Value of the objective; NaN where undefined.
        decision_rates: (c,) rate at which each position, or label, was the most probable answer.
        examples: Number of examples it was judged on; fewer where racing dropped it.
        undefined: Examples without a defined answer.
        accepted: Whether it became the incumbent.
        behind: Number of the instruction that it was behind when racing dropped it; None if it was not dropped.
    """

    number: int
    epoch: int
    parent: int | None
    instruction: str
    objective: float
    decision_rates: tuple[float, ...]
    examples: int
    undefined: int
    accepted: bool
    behind: int | None = None


@dataclass(frozen=True, kw_only=True)
class ZEPOReport(CompileReport):
    """Report of ``ZEPO``.

    Attributes:
        objective: Name of the objective.
        tried: Every instruction, in the order tested.
        history: The incumbent's objective at the start and after every epoch.
        judgments: Prompts that the search judged.
        saved: Prompts that it need not judge because racing dropped wordings.
        rounds: Number of examples judged by the end of each round of a race; only all of them without racing.
        rejected: (reason, text) of every wording that was turned down.
        stopped: Reason for which the search ended.
        best: Number of the instruction that was taken.
    """

    objective: str
    tried: tuple[Tried, ...]
    history: tuple[float, ...]
    judgments: int
    saved: int
    rounds: tuple[int, ...]
    rejected: tuple[tuple[str, str], ...]
    stopped: str
    best: int


class SearchLog:
    """The log folder of a search.

    Args:
        folder: Folder; made if missing. None keeps no log.
        settings: Everything that decides the proposals; another search's folder is refused.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self._proposals: dict[str, Proposal] = {}
        self._journals: dict[str, Journal] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Lock the folder and read what an earlier search of the same settings proposed.

        Raises:
            FolderInUse: Another process works in the folder.
            ValueError: The folder holds another search, or files of no search.
        """
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(self._folder):
            check_settings(self._folder / "search.json", self._settings)
            self._journals = {n: Journal(self._folder / f"{n}.jsonl") for n in ("proposals", "instructions")}
            for record in self._journals["proposals"].read("key", "instructions", "rejected"):
                rejected = tuple((reason, text) for reason, text in record["rejected"])
                calls = record.get("calls", 0)
                self._proposals[record["key"]] = Proposal(tuple(record["instructions"]), rejected, calls)
            self._journals["instructions"].path.unlink(missing_ok=True)  # written anew from what was judged
            yield

    def proposal(self, key: str, propose: Callable[[], Proposal]) -> Proposal:
        """Return the logged proposal under a key, or propose and log it."""
        if key not in self._proposals:
            self._proposals[key] = propose()
            self._write("proposals", {"key": key, **asdict(self._proposals[key])})
        return self._proposals[key]

    def tried(self, record: Tried) -> None:
        """Log an instruction and its numbers."""
        self._write("instructions", asdict(record))

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if self._folder is not None:
            self._journals[name].append([record])


# The search: propose wordings, test them on the same examples, and keep what is better.


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
            the interval of its difference to the best excludes 0 (``evalbias.optimizers.racing``). The winner is
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


# ZEPO: zero-shot search for a fairer instruction (Zhou et al., EMNLP 2024), one file for each decision.


__all__ = [
    "ZEPO",
    "Acceptance",
    "BiasObjective",
    "CalibrationGap",
    "Candidate",
    "Confidence",
    "ContextFreeConfidence",
    "Epochs",
    "Fairness",
    "GrammarParaphraser",
    "LMParaphraser",
    "Objective",
    "Patience",
    "Proposal",
    "Proposer",
    "ScoreUniformity",
    "Stopping",
    "StrictImprovement",
    "Tried",
    "ZEPOReport",
]


# Decision rate against agreement for many instructions: the analysis that shows whether fairness is worth seeking.


@dataclass(frozen=True)
class CurvePoint:
    """One instruction on rated documents.

    Attributes:
        instruction: The wording.
        decision_rate: Win rate of the first position, in [0, 1].
        agreement: Mean Spearman of the rankings with people.
        objectives: Name -> value of the other objectives.
    """

    instruction: str
    decision_rate: float
    agreement: float
    objectives: Mapping[str, float] = field(default_factory=dict)


def sensitivity_curve(
    judge: PairwiseJudge,
    instructions: Sequence[str],
    items: Sequence[dspy.Example],
    *,
    objectives: Sequence[Objective] = (),
    lm: Any = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[CurvePoint]:
    """Measure decision rate and agreement under every instruction (Zhou et al. 2024, figures 2 and 4).

    Args:
        judge: Judge to measure. With ``debias="permutation"``, decision rates and rankings are of the probabilities
            averaged over both orders (the figure after debiasing). Decision rates are without its calibration, as in
            the search.
        instructions: Wordings.
        items: Rated outputs (``scores``) of documents.
        objectives: Further objectives to compute on the same pairs.
        lm: Model to ask. Defaults to the judge's own, else DSPy's.
        limit: Largest number of pairs from which the decision rate is computed. They are ordered pairs; for a debiased
            judge, for which both orders of a pair say the same, each pair counts once, in an order drawn at random.
        seed: Seed for the pairs and the ranking.
        progress: Called with the number of judgments done.
    """
    one: PairwiseJudge = judge.deepcopy()
    orders = rotations(2, every=judge.debias == "permutation")
    compared = pairs(items, limit=limit, ordered=len(orders) == 1, seed=seed)
    documents = list(by_input(items).values())
    target = PairwiseTarget(one, compared, measuring(resolve_lm(lm, one.predict)))

    def averaged(text: str, examples: Sequence[dspy.Example]) -> FloatArray:
        """Return (n, c) probabilities of the first and second candidate, averaged over the orders."""
        ordered = [e.copy(candidates=[e.candidates[i] for i in order]) for e in examples for order in orders]
        positions = target.probabilities([text], ordered)[0].reshape(len(examples), len(orders), target.classes)
        return np.asarray(by_candidate(positions, orders).mean(axis=1))

    points = []
    for text in instructions:
        probabilities = averaged(text, compared)
        free = averaged(text, [target.content_free()])
        if progress is not None:
            progress(len(orders) * (len(compared) + 1))
        judged = target.judged(probabilities, compared, free)
        instruct(one, text)
        agreement = measure_ranking(PairwiseRanker(one, seed=seed), documents, lm=lm, progress=progress)
        values = {objective.name: objective(judged) for objective in objectives}
        rate = float(decision_rates(probabilities)[0])
        points.append(CurvePoint(text, rate, agreement["spearman"].value, values))
    return points
