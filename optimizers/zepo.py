"""ZEPO: the search for a fair instruction without labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from evalbias.evaluation.bias import Dots, Plot, Section, without_band
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import Table, in_one_line, signed, unsigned
from evalbias.lm.dspy_seam import tokens_of
from evalbias.measures import decision_rates
from evalbias.measures.arrays import SLACK, FloatArray, IntArray
from evalbias.optimizers import objectives
from evalbias.optimizers.base import JudgeOptimizer, Problem, rounds
from evalbias.optimizers.objectives import Objective, answers_under, both_answers, reworded, shares_of
from evalbias.optimizers.proposers import GrammarParaphraser, Proposal, Proposer, check_proposer, fault
from evalbias.optimizers.rules import Rule
from evalbias.optimizers.selection import Candidate, CompileReport, hardly_answers
from evalbias.programs.judges import context_of
from evalbias.programs.pairwise import PairwiseJudge
from evalbias.runs import Journal, check_settings
from evalbias.values import describe

WORDING = "wording"  # kind of the candidate
UNSURE = "after which the model hardly answers with a label"  # why a wording is turned down


@dataclass(frozen=True)
class Wording:
    """One instruction of a search, with its record."""

    number: int  # in the search, from 0
    epoch: int  # in which it was proposed; 0 for the first instruction
    parent: int | None  # number of the instruction it was made from; None for the first
    instruction: str
    objective: float  # NaN where undefined
    decision_rates: tuple[float, ...]  # (c,) rate at which each position, or label, was the most probable answer
    examples: int  # number it was judged on; fewer where racing dropped it
    undefined: int  # examples without a defined answer
    accepted: bool  # whether it became the incumbent
    behind: int | None  # number of the instruction that it was behind when racing dropped it
    judged: Judged = field(compare=False, repr=False)  # no part of what is saved

    def to_dict(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "judged"}


@dataclass(frozen=True, kw_only=True, repr=False)
class ZEPOReport(CompileReport):
    """Report of ``ZEPO``.

    Attributes:
        objective: Name of the objective.
        tried: Every instruction, in the order tested.
        history: The incumbent's objective at the start and after every epoch.
        judgments: Prompts that the search asked.
        saved: Prompts that racing saved by dropping wordings.
        rounds: Number of examples judged by the end of each round of a race; only all of them without racing.
        rejected: (reason, text) of every wording that was turned down.
        stopped: Why the search ended.
        best: Number of the instruction that was taken.
    """

    objective: str
    tried: tuple[Wording, ...]
    history: tuple[float, ...]
    judgments: int
    saved: int
    rounds: tuple[int, ...]
    rejected: tuple[tuple[str, str], ...]
    stopped: str
    best: int

    def sections(self) -> list[Section]:
        (choice,) = super().sections()
        first, best = self.tried[0].objective, self.tried[self.best].objective
        name = f"{self.objective[:1].upper()}{self.objective[1:]}"
        finding = choice.finding or f"{name} went from {signed(first)} to {signed(best)} in the search."
        return [replace(choice, finding=finding), Section("The search", [self._history(), self._table()])]

    def _history(self) -> Plot:
        """Draw the objective of every tried instruction by epoch, and the incumbent's."""
        most = max(tried.examples for tried in self.tried)
        points = {}
        for name, whole in (("instruction", True), ("left early, on fewer pairs", False)):
            group = [tried for tried in self.tried if (tried.examples == most) == whole]
            if group:
                points[name] = (np.array([t.epoch for t in group], float), np.array([t.objective for t in group]))
        steps = np.repeat(np.arange(len(self.history) + 1.0), 2)[1:-1]  # 0, 1, 1, 2, 2, ...
        best = np.repeat(np.array(self.history), 2)
        line = without_band(steps, best)[:-1]
        title = f"{self.objective} of {len(self.tried)} instructions in {self.judgments:,} judgments"
        caption = "Each dot is an instruction that was tried; the line is the best one so far."
        dots = Dots(points, line, "epoch", self.objective)
        return Plot(title[:1].upper() + title[1:], caption, (dots,))

    def _table(self) -> Table:
        """Return one row an instruction that was the best so far when it was tried."""
        rows = []
        for wording in (tried for tried in self.tried if tried.accepted or tried.number in (0, self.best)):
            figures = (signed(wording.objective), unsigned(wording.decision_rates[0]), str(wording.examples))
            rows.append((str(wording.epoch), *figures, in_one_line(wording.instruction)))
        caption = f"{len(self.tried)} instructions were tried; these were the best so far when they were tried."
        if self.rejected:
            reasons = Counter(reason for reason, _ in self.rejected).most_common()
            caption += f" {len(self.rejected)} were turned down: {', '.join(f'{n} {reason}' for reason, n in reasons)}."
        if saved := self.saved_share:
            dropped = f"{sum(wording.behind is not None for wording in self.tried)} instructions behind the best"
            caption += f" {self.judgments:,} judgments{saved}; {dropped} were dropped early."
        return Table(("epoch", self.objective, "first position wins", "pairs", "instruction"), rows, caption=caption)

    @property
    def saved_share(self) -> str:
        """Share of judgments saved by racing, in brackets; empty where every instruction was judged on all pairs."""
        if len(self.rounds) < 2:
            return ""
        share, sizes = self.saved / (self.judgments + self.saved), ", ".join(map(str, self.rounds))
        return f" ({share:.0%} saved by racing in rounds up to {sizes} pairs)"


@dataclass(eq=False, repr=False)
class ZEPO(JudgeOptimizer):
    """Searches for the instruction under which a judge is fairest; no labels are used (Zhou et al., EMNLP 2024).

    The search is greedy and begins with the judge's own instruction: every epoch proposes rewordings of the incumbent,
    and the fairest of these takes its place if it is fairer; with ``select``, not one after which the model hardly
    answers with a label, unlike before.

    The trainset holds pairs with ``source`` and ``candidates`` (``evalbias.data.pairs`` makes them). The judge's
    debiasing and calibration take no part in the search: decision rates are those of the given order, so that there is
    a bias to remove.

    It also takes the options of every optimizer; see ``JudgeOptimizer``.

    Args:
        proposer: What rewords the incumbent. Defaults to ``GrammarParaphraser()``, which needs no model.
        population: Wordings in an epoch (the paper: 5).
        epochs: Number of epochs, at least 1; the search ends earlier where nothing new is proposed.
        objective: Objective to maximize. Defaults to fairness. It decides on the held-back examples too, so these need
            no labels.
        racing: Whether to judge an epoch's wordings in rounds, on more and more random examples, and to drop one once
            the interval of its difference to the best excludes 0 (``drop``). The winner is judged on all examples, and
            fewer than 40 are judged in one round. Defaults to ``select``: the paper's own method holds no races.
        log_dir: Folder to log the search in; the same search started again continues from there.
    """

    report_type = ZEPOReport
    compiles = (PairwiseJudge,)

    proposer: Proposer = field(default_factory=GrammarParaphraser)
    _: KW_ONLY
    population: int = 5
    epochs: int = 5
    objective: Objective = field(default_factory=objectives.Fairness)
    racing: bool | None = None
    log_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.population < 1 or self.epochs < 1:
            raise ValueError(f"population={self.population}, epochs={self.epochs}: give at least one of each.")
        self.racing = self.select if self.racing is None else self.racing
        check_proposer(self.proposer)
        if not isinstance(self.objective, Objective):
            raise TypeError(f"objective={self.objective!r} is none: give an Objective, such as Fairness().")

    def check(self, student: PairwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Also refuse an instruction that the grammar cannot reword."""
        if isinstance(self.proposer, GrammarParaphraser):
            self.proposer.check(student.criterion, student.predict.signature.instructions)
        super().check(student, trainset, valset)

    def prepare(self, problem: Problem) -> None:
        objectives.searchable(self.objective, problem.fit)  # or refused
        judge, own = problem.student, problem.student.predict.signature.instructions
        if wrong := fault(own, judge.criterion, ()):
            raise ValueError(
                f"The search cannot begin with the instruction {own!r}: it is {wrong}, which every wording must hold."
            )
        problem.given = replace(problem.given, name=in_one_line(own), details={"best": 0})

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge with the best wording; ``ValueError`` for what cannot be searched, or another's log."""
        judge, search = problem.student, _Search(problem, self)
        # 1. The judge's own wording is the first incumbent, judged on all examples.
        (incumbent,) = search.race([judge.predict.signature.instructions], 0, None)
        if math.isnan(incumbent.objective):
            raise ValueError(
                f"Under the first instruction, the judge answers none of the {len(search.examples)} examples: its "
                "answers have no probability (see min_coverage), so there is nothing to compare. Try another model, or "
                "another instruction_place."
            )
        accepted, history, stopped = {incumbent.number}, [incumbent.objective], f"{self.epochs} epochs"
        for epoch in range(1, self.epochs + 1):
            # 2. Reword the incumbent.
            wordings = search.propose(epoch, incumbent)
            if not wordings:
                common = Counter(reason for reason, _ in search.rejected).most_common(1)
                most = f" ({len(search.rejected)} wordings turned down, most of them {common[0][0]})" if common else ""
                stopped = f"the proposer has nothing new{most}"
                break
            # 3. Judge them on the same examples, in rounds; a race drops those that cannot win on all of them.
            rivals = search.race(wordings, epoch, incumbent)
            # 4. The best of those that are left takes the incumbent's place if it is better.
            finalists = [wording for wording in rivals if wording.behind is None]
            incumbent = max([incumbent, *finalists], key=lambda wording: np.nan_to_num(wording.objective, nan=-np.inf))
            accepted.add(incumbent.number)
            history.append(incumbent.objective)
        problem.details = {
            "objective": search.objective.name,
            "tried": tuple(replace(wording, accepted=wording.number in accepted) for wording in search.tried),
            "history": tuple(history),
            "judgments": search.judgments,
            "saved": search.saved,
            "rounds": tuple(search.rounds),
            "rejected": tuple(search.rejected),
            "stopped": stopped,
            "best": incumbent.number,
        }
        name, program = in_one_line(incumbent.instruction), reworded(judge, incumbent.instruction)
        return [Candidate(name, program, problem.details, kind=WORDING)]

    def made_from_all(
        self, problem: Problem, halves: Sequence[Problem], made: Sequence[Mapping[str, Candidate]]
    ) -> dict[str, Candidate]:
        """Return the wording of a half that is better on all examples; the two halves try different wordings."""
        everything = problem.on((), problem.fit)
        rivals = [candidates[WORDING] for candidates in made]
        values = [self.objective(self.tested(everything, rival.program)) for rival in rivals]
        best = rivals[int(np.argmax(np.nan_to_num(values, nan=-np.inf)))]
        problem.details = dict(best.details)
        return {WORDING: best}

    def rules(self, problem: Problem) -> list[Rule]:
        """A wording is better if the objective is, in a permutation test over the held-back inputs."""
        return [objectives.objective_rule(self.objective, seed=self.seed)]

    def tested(self, problem: Problem, judge: PairwiseJudge) -> Judged:
        """Have a judge answer the held-back examples in the given order."""
        examples = objectives.searchable(self.objective, problem.held_back)
        (judged,) = answers_under(judge, [judge.predict.signature.instructions], examples, problem.lm)
        return judged


class _Search:
    """The wordings of one search; a stopped search finds its proposals in the log."""

    def __init__(self, problem: Problem, zepo: ZEPO) -> None:
        judge, examples = problem.student, zepo.objective.searched(problem.fit)
        self.problem, self.zepo, self.judge = problem, zepo, judge
        self.objective = zepo.objective
        # 1. The log is of one search; proposals in it are used again.
        self.proposals: dict[str, Proposal] = {}
        if (log_dir := zepo.log_dir) is not None:
            log_dir = log_dir / "other-half" if problem.other else log_dir
            log_dir.mkdir(exist_ok=True)
            settings = {
                "examples": [[context_of(e), e.candidates, None] for e in examples],
                "judge": describe(judge),
                "proposer": describe(zepo.proposer),
                "objective": describe(self.objective),
                "population": zepo.population,
                "racing": zepo.racing,
                "seed": zepo.seed,
            }
            check_settings(log_dir / "search.json", settings)
            self.log = Journal(log_dir / "proposals.jsonl")
            for entry in self.log.read("key", "instructions", "rejected", "calls"):
                rejected = tuple((reason, text) for reason, text in entry["rejected"])
                self.proposals[entry["key"]] = Proposal(tuple(entry["instructions"]), rejected, entry["calls"])
        # 2. The intervals of a race hold for a random part of the examples.
        self.rounds = rounds(len(examples), FEWEST) if zepo.racing else [len(examples)]
        shuffled = np.random.default_rng(zepo.seed).permutation(len(examples))
        self.examples = [examples[i] for i in shuffled] if len(self.rounds) > 1 else examples
        self.judgments = 0
        self.tried: list[Wording] = []
        self.elsewhere = problem.other.details["tried"] if problem.other else ()
        self.rejected: list[tuple[str, str]] = []

    def propose(self, epoch: int, incumbent: Wording) -> Sequence[str]:
        """Return rewordings of the incumbent, the logged ones where there are some."""
        zepo, key = self.zepo, f"{epoch} {incumbent.instruction}"
        if key not in self.proposals:
            avoided = {wording.instruction for wording in (*self.tried, *self.elsewhere)}
            seed = zepo.seed * 1_000_003 + epoch
            with dspy.track_usage() as tracker:
                proposal = zepo.proposer(
                    self.judge.criterion, incumbent.instruction, zepo.population, known=avoided, seed=seed
                )
            self.problem.tokens += tokens_of(chain(*tracker.usage_data.values()))
            self.proposals[key] = proposal
            if zepo.log_dir is not None:
                self.log.append([{"key": key, **asdict(proposal)}])
        proposal = self.proposals[key]
        self.rejected += proposal.rejected
        self.problem.calls += proposal.calls
        return proposal.instructions

    def race(self, wordings: Sequence[str], epoch: int, incumbent: Wording | None) -> list[Wording]:
        """Judge wordings round by round, and drop those that are behind; the others are judged on all examples."""
        texts = dict(enumerate(wordings, start=len(self.tried)))
        judged: dict[int, Judged] = {}
        behind: dict[int, int] = {}
        start = 0
        for upto in self.rounds if incumbent else [len(self.examples)]:
            left = {number: text for number, text in texts.items() if number not in behind}
            if not left:
                break
            for number, answers in self.ask(left, self.examples[start:upto]).items():
                judged[number] = both_answers(judged[number], answers) if start else answers
            if incumbent and self.zepo.select:
                unsure = [number for number in left if hardly_answers(judged[number], incumbent.judged)]
                self.rejected += [(UNSURE, texts[number]) for number in unsure]
                behind |= dict.fromkeys(unsure, incumbent.number)
            rivals = {number: judged[number] for number in left if number not in behind}
            if incumbent and rivals and upto < len(self.examples):
                behind |= drop(
                    rivals,
                    incumbent.number,
                    incumbent.judged,
                    self.objective,
                    looks=len(self.rounds) - 1,
                    rng=np.random.default_rng([self.zepo.seed, epoch, upto]),
                )
            start = upto
        raced = [
            Wording(
                number=number,
                epoch=epoch,
                parent=incumbent.number if incumbent else None,
                instruction=text,
                objective=self.objective(judged[number]),
                decision_rates=tuple(decision_rates(shares_of(judged[number])).tolist()),
                examples=len(judged[number].ids),
                undefined=judged[number].unanswered,
                accepted=False,
                behind=behind.get(number),
                judged=judged[number],
            )
            for number, text in texts.items()
        ]
        self.tried += raced
        return raced

    def ask(self, wordings: Mapping[int, str], examples: Sequence[dspy.Example]) -> dict[int, Judged]:
        """Return the judge's answers under each wording."""
        answers = answers_under(self.judge, list(wordings.values()), examples, self.problem.lm)
        prompts = len(wordings) * len(examples)
        self.judgments += prompts
        if self.zepo.progress is not None:
            self.zepo.progress(prompts)
        return dict(zip(wordings, answers, strict=True))

    @property
    def saved(self) -> int:
        """Number of prompts that racing saved, of those that ask every wording about every example."""
        return len(self.tried) * len(self.examples) - self.judgments


# Racing: an instruction is dropped once its answers so far show that it cannot win on all examples.
#
# Each of an epoch's rounds has twice as many random examples as the one before (successive halving, Jamieson and
# Talwalkar 2016). After a round, an instruction is dropped if the interval of the difference of its objective and the
# leader's on *all* examples excludes 0; one that is not judges all, so that what wins has the same numbers as without.
#
# The interval. Examples that are left to judge are imagined with Polya's urn (Ghosh and Meeden 1997): an answered one,
# with both instructions' answers, is drawn and put back with a copy. No uncertainty is left when all are judged, any
# objective will do, and the comparison stays paired. The incumbent has answered every example, so one is drawn from
# those on which it answered much the same (post-stratification). The urn also holds the answered examples with both
# answers exchanged, at a total weight of ``EXCHANGED`` examples: else two better ones of twenty would leave no doubt.
#
# The error. Every round is another look at the same data, so its test has the level ``DROP_LEVEL`` divided by the
# number of looks (Bonferroni). ``benchmarks/racing.py`` measures how often an epoch's best instruction is dropped.

FEWEST = 20  # fewest examples on which an instruction is dropped
DROP_LEVEL = 0.01  # probability with which an epoch's best instruction may be dropped
IMAGINED = 2_000  # imagined sets of all examples in each comparison
GROUP = 6  # answered examples in a group of those on which the incumbent answered much the same
EXCHANGED = 2.0  # weight in the urn of the examples with exchanged answers, in examples


def drop(
    rivals: Mapping[int, Judged],
    incumbent: int,
    on_all: Judged,
    objective: Objective,
    *,
    looks: int,
    rng: np.random.Generator,
) -> dict[int, int]:
    """Return the number of each instruction that is dropped after a round -> that of the leader that it is behind.

    ``rivals`` are the answers of those still in the race, all to the same first examples; ``on_all`` are the
    incumbent's to all examples. ``looks`` is the number of rounds after which instructions may be dropped.
    """
    answers = {incumbent: on_all, **rivals}
    values = {number: objective(judged) for number, judged in answers.items()}
    leader = max(values, key=lambda number: np.nan_to_num(values[number], nan=-np.inf))
    answered = len(next(iter(rivals.values())).ids)
    counts = imagined(alike(on_all, answered // GROUP), answered, rng)  # (IMAGINED, 2 answered)
    dropped = {}
    for number, judged in rivals.items():
        if number == leader:
            continue
        own = _values(objective, judged, answers[leader], counts)
        # The incumbent's objective is known: it is judged on all examples.
        best = values[leader] if leader == incumbent else _values(objective, answers[leader], judged, counts)
        if math.isnan(values[number]) or np.mean(~(own < best - SLACK)) < DROP_LEVEL / looks:  # no tie or NaN is behind
            dropped[number] = leader
    return dropped


def imagined(groups: IntArray, answered: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often imagined sets of all n examples hold each of the first k, which are answered.

    Returns (IMAGINED, 2 k) counts with the sum n: of the answered ones as they are, each at least once, and of the same
    with exchanged answers. The others are drawn from the answered ones of their group (n,), or from all if it has none.
    """
    counts = np.concatenate([np.ones((IMAGINED, answered)), np.zeros((IMAGINED, answered))], axis=1)
    for group in np.unique(groups[answered:]):
        members = np.flatnonzero(groups[:answered] == group)
        members = members if len(members) else np.arange(answered)
        urn = np.concatenate([np.ones(len(members)), np.full(len(members), EXCHANGED / answered)])
        shares = rng.dirichlet(urn, size=IMAGINED)  # the shares of many draws from Polya's urn
        drawn = rng.multinomial(int((groups[answered:] == group).sum()), shares)
        counts[:, np.concatenate([members, answered + members])] += drawn
    return counts


def alike(incumbent: Judged, groups: int) -> IntArray:
    """Group the examples, (n,), by quantiles of the incumbent's first probability."""
    first = incumbent.answers[:, 0, 0]
    quantiles = np.searchsorted(np.nanquantile(first, np.arange(1, groups) / groups), first)
    return np.where(np.isnan(first), groups, quantiles)


def _values(objective: Objective, own: Judged, other: Judged, counts: FloatArray) -> FloatArray:
    """Return the objective of one instruction on imagined sets of all examples, (IMAGINED,)."""
    items = np.arange(counts.shape[1] // 2)
    return objective.resampled(both_answers(own.take(items), other.take(items)), counts)
