"""An Optuna study of everything that can be chosen about a pairwise judge, for accuracy and bias together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dspy
import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.data.pairing import input_key
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.inside import state_without_model
from evalbias.optimizers.selection import Candidate, Rule
from evalbias.optimizers.splits import halves
from evalbias.optimizers.study_report import Choice, StudyReport, Trial
from evalbias.optimizers.study_rule import Accuracy, SetUpRule, check_labels, preferred
from evalbias.optimizers.study_trials import Trials
from evalbias.optimizers.zepo.objectives import Fairness, Objective
from evalbias.optimizers.zepo.proposers import Proposer, checked_proposer
from evalbias.optimizers.zepo.rule import check_held_back
from evalbias.programs.pair_labels import preference_label
from evalbias.programs.pairwise import DEBIASING, PairwiseJudge
from evalbias.programs.position_calibration import CALIBRATIONS
from evalbias.programs.prompt import comparison_labels
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.values import to_json

PROPOSALS = "wordings"
RESULT = "result"
"""Keys under which a study's storage keeps the wordings, and a trial's numbers."""


LOCKED = 300.0
"""Longest time in seconds to wait while another process, perhaps a paused one, writes to the same SQLite file."""


class JudgeStudy(JudgeOptimizer):
    """Chooses instruction, demonstrations, debiasing and calibration of a pairwise judge by TPE (Optuna).

    The trainset holds pairs (``evalbias.data.pairs``); labeled ones (``preference`` or ``better``) may become
    demonstrations. If any has a label, the study maximizes objective and accuracy and minimizes the prompts of a
    comparison, over all four choices: the accuracy is measured on the labeled pairs of half of the inputs,
    demonstrations and calibrations come from the others. Ties and pairs without a label are left out of the accuracy,
    and their number is logged. Without labels, the study maximizes the objective over instructions and calibrations.
    Permutation debiasing is fair by construction, so only labels can tell what it is worth. On the held-back pairs the
    accuracy decides between the best trial and the given judge; without labels the objective does.

    Args:
        proposer: Source of the wordings. Defaults to ``GrammarParaphraser()``; see ``ZEPO``.
        instructions: Number of wordings to choose from, besides the student's own.
        trials: Number of finished trials with which the study ends, whichever process ran them.
        demo_sets: Number of sets of demonstrations to choose from, besides the student's own.
        k: Demonstrations in a set.
        objective: Objective to maximize. Defaults to fairness.
        storage: Optuna's URL, such as ``sqlite:///study.db``: processes that name the same one share the study, and a
            stopped one continues from its finished trials. Where the proposer is not deterministic, start the second
            process after the first has proposed. None keeps the study in memory.
        select: See ``JudgeOptimizer``.
        seed: Seed for wordings, demonstrations and the sampler.
        progress: Called with the number of judgments done.
    """

    report_type = StudyReport
    compiles = (PairwiseJudge,)

    def __init__(
        self,
        proposer: Proposer | None = None,
        *,
        instructions: int = 8,
        trials: int = 40,
        demo_sets: int = 4,
        k: int = 4,
        objective: Objective | None = None,
        storage: str | None = None,
        select: bool = True,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(select=select, seed=seed, progress=progress)
        if min(instructions, trials, k) < 1 or demo_sets < 0:
            raise ValueError(
                f"instructions={instructions}, trials={trials}, k={k}, demo_sets={demo_sets}: the first three must be "
                "at least 1, the last at least 0."
            )
        self.proposer = checked_proposer(proposer)
        self.instructions = instructions
        self.trials = trials
        self.demo_sets = demo_sets
        self.k = k
        self.objective = objective
        self.storage = storage

    def usable(self, student: PairwiseJudge, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """See ``JudgeOptimizer``; every label becomes the judge's answer, ``preference``."""
        pairs = super().usable(student, examples)
        return [e if (label := preference_label(e)) is None else e.copy(preference=label) for e in pairs]

    def check(self, student: PairwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """See ``JudgeOptimizer``; also refuses pairs of different sizes."""
        sizes = {len(e.candidates) for e in trainset}
        if len(sizes) != 1:
            raise ValueError(f"{len(trainset)} pairs with {sorted(sizes)} candidates: give pairs of one size.")
        if self.select and not preferred(trainset):
            check_held_back(self.objective)
        super().check(student, trainset, valset)

    def search(self, problem: Problem) -> Outcome:
        """See ``JudgeOptimizer``.

        Raises:
            ValueError: No trial has a defined objective, or too few pairs have a label.
        """
        student, labeled = problem.student, _labeled(problem)
        pairs, scored = halves(problem.trainset, input_key, seed=self.seed) if labeled else (problem.trainset, [])
        if labeled:
            check_labels({"to measure trials on": scored} | ({"kept back": problem.held_back} if self.select else {}))
            scored = preferred(scored)
        demos = self._demonstrations(student, pairs)
        objective = self.objective or Fairness()
        trials = Trials(problem, demos, pairs, scored, objective=objective, progress=self.progress)
        study = self._study(problem, labeled=labeled)
        wordings = self._wordings(study, student)
        abandoned = _count(study, TrialState.RUNNING)  # by a process that was killed, or another's that still runs
        while _count(study, TrialState.COMPLETE) < self.trials and _count(study, TrialState.FAIL) < self.trials:
            self._step(study, wordings, trials, abandoned, labeled=labeled)
        if not _count(study, TrialState.COMPLETE):
            raise ValueError(
                f"All {_count(study, TrialState.FAIL)} trials have an undefined value: the judge answers nothing. Try "
                "another model."
            )
        details = _details(study, labeled=labeled)
        best = Candidate(details.pop("chosen"), trials.judge(details["best"].choice))
        given = Candidate("given", student, {"chosen": "the given judge"})
        return Outcome([best], given, student, details)

    def rules(self, problem: Problem) -> list[Rule]:
        """With labels, a judge is better if its accuracy is; without, if the objective is."""
        if _labeled(problem):
            return [SetUpRule(Accuracy(), preferred(problem.held_back), problem.lm, seed=self.seed)]
        return [SetUpRule(self.objective or Fairness(), problem.held_back, problem.lm, seed=self.seed)]

    def _study(self, problem: Problem, *, labeled: bool) -> optuna.Study:
        student, lm, pairs = problem.student, problem.lm, problem.trainset
        content = {
            "student": state_without_model(student),
            "lm": lm.provenance() if hasattr(lm, "provenance") else str(getattr(lm, "model", type(lm).__name__)),
            "objective": describe(self.objective) if self.objective else None,
            "proposer": describe(self.proposer),
            "pairs": [[e.source, *e.candidates, e.get("preference")] for e in pairs],
            "settings": [self.instructions, self.demo_sets, self.k, self.seed, labeled],
            "calibrations": CALIBRATIONS,
        }
        # processes that begin together trip over each other's tables; the next attempt finds them made
        retry = Retrying(
            retry=retry_if_exception_type(SQLAlchemyError),
            stop=stop_after_attempt(5),
            wait=wait_random(0.1, 0.5),
            reraise=True,
        )

        def opened() -> optuna.Study:
            return optuna.create_study(
                study_name=f"evalbias-{student.criterion.name}-{digest(to_json(content), 12)}",
                storage=_storage(self.storage),
                load_if_exists=True,
                directions=["maximize", "maximize", "minimize"] if labeled else ["maximize"],
            )

        with _quiet():
            return retry(opened)

    def _wordings(self, study: optuna.Study, student: PairwiseJudge) -> list[str]:
        """Return the student's own and the proposed wordings, or those that another process proposed already."""
        if PROPOSALS not in study.user_attrs:
            own = student.predict.signature.instructions
            proposal = self.proposer(student.criterion, own, self.instructions, known={own}, seed=self.seed)
            study.set_user_attr(PROPOSALS, [own, *proposal.instructions])
        return list(study.user_attrs[PROPOSALS])

    def _demonstrations(self, student: PairwiseJudge, trainset: Sequence[dspy.Example]) -> list[list[dspy.Example]]:
        answers = comparison_labels(len(trainset[0].candidates), ties=student.ties)
        labeled, rng = [e for e in trainset if e.get("preference") in answers], random.Random(self.seed)
        sets = self.demo_sets if len(labeled) >= self.k else 0
        return [list(student.predict.demos), *(rng.sample(labeled, self.k) for _ in range(sets))]

    def _step(self, study: optuna.Study, wordings: list[str], trials: Trials, abandoned: int, *, labeled: bool) -> None:
        """Run one trial; the sampler is seeded by the trials so far, so that a resumed study draws the same."""
        seed = self.seed * 1_000_003 + len(study.get_trials(deepcopy=False)) - abandoned
        with _quiet():
            study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = study.ask()
        choice = Choice(
            trial.suggest_categorical("instruction", wordings),
            trial.suggest_categorical("demonstrations", list(range(len(trials.demos)))),
            trial.suggest_categorical("debias", DEBIASING) if labeled else trials.student.debias,
            trial.suggest_categorical("calibration", trials.calibrations),
        )
        result = trials.measure(choice)
        trial.set_user_attr(RESULT, result)
        values = [result["objective"], result["accuracy"], result["prompts"]] if labeled else [result["objective"]]
        if any(math.isnan(value) for value in values):
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, values)


def _storage(url: str | None) -> optuna.storages.BaseStorage | str | None:
    """Return what Optuna takes as a study's storage; SQLite itself waits for 5 seconds for another process."""
    if url is None or not url.startswith("sqlite"):
        return url
    return optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": LOCKED}})


def _labeled(problem: Problem) -> bool:
    """Return whether the study weighs the accuracy: in the search and in the choice, or in neither."""
    return bool(preferred(problem.trainset) or preferred(problem.held_back))


def _count(study: optuna.Study, state: TrialState) -> int:
    return len(study.get_trials(deepcopy=False, states=[state]))


def _details(study: optuna.Study, *, labeled: bool) -> dict[str, Any]:
    """Return the fields of the report."""
    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    trials = tuple(_trial(t) for t in complete)
    front = {t.number for t in study.best_trials}

    def rank(t: Trial) -> tuple[float, ...]:
        return (t.accuracy, t.objective, -t.prompts) if labeled else (t.objective,)

    best = max(trials, key=rank)
    options = f"debias={best.choice.debias}, calibration={best.choice.calibration}"
    return {
        "chosen": f"{best.choice.instruction} (set {best.choice.demonstrations} of demonstrations, {options})",
        "trials": trials,
        "best_trials": tuple(t for t in trials if t.number in front),
        "best": best,
        "failed": _count(study, TrialState.FAIL),
        "study_name": study.study_name,
    }


def _trial(trial: FrozenTrial) -> Trial:
    result = dict(trial.user_attrs[RESULT])
    return Trial(number=trial.number, choice=Choice(**result.pop("choice")), **result)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's own log on stderr; the report holds what a user wants to know."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
