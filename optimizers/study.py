"""An Optuna study of everything that can be chosen about a pairwise judge, for accuracy and bias together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np
import optuna
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.data.pairing import input_key
from evalbias.lm.memo import ChoiceMemo
from evalbias.lm.types import MeasuringLM
from evalbias.measures import count_undefined
from evalbias.measures.calibration import rotations
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem
from evalbias.optimizers.compile_report import CompileReport
from evalbias.optimizers.inside import state_without_model
from evalbias.optimizers.selection import Candidate, Rule
from evalbias.optimizers.splits import halves
from evalbias.optimizers.study_rule import Accuracy, SetUpRule, check_labels, preferred, rightness
from evalbias.optimizers.zepo.objectives import Fairness, Objective
from evalbias.optimizers.zepo.proposers import Proposer
from evalbias.optimizers.zepo.rule import check_held_back
from evalbias.optimizers.zepo.targets import instruct, judged_in_order
from evalbias.programs.pair_labels import preference_label
from evalbias.programs.pairwise import DEBIASING, PairwiseJudge
from evalbias.programs.position_calibration import CALIBRATIONS, FITTED, CalibrationError, calibrations_of
from evalbias.programs.prompt import comparison_labels
from evalbias.runs.fingerprint import describe, digest
from evalbias.runs.values import to_json

PROPOSALS = "wordings"
RESULT = "result"
"""Keys under which a study's storage keeps the wordings, and a trial's numbers."""


@dataclass(frozen=True)
class Choice:
    """One way to set up the judge.

    Attributes:
        instruction: The wording.
        demonstrations: Number of the set of demonstrations; 0 is the student's own.
        debias: See ``PairwiseJudge``.
        calibration: See ``PairwiseJudge``.
    """

    instruction: str
    demonstrations: int
    debias: str | None
    calibration: str | None


@dataclass(frozen=True)
class Trial:
    """A choice and its numbers.

    Attributes:
        number: Number of the trial in the study.
        choice: The choice.
        objective: Objective of the calibrated answers in the given order; higher is better.
        accuracy: Share of the labeled pairs on which the judge prefers as people do; NaN without labels.
        prompts: Prompts that a comparison takes.
        fit_prompts: Prompts that fitting the calibration takes, once.
        undefined: Answers and labeled pairs without a defined probability.
    """

    number: int
    choice: Choice
    objective: float
    accuracy: float
    prompts: int
    fit_prompts: int
    undefined: int


@dataclass(frozen=True, kw_only=True)
class StudyReport(CompileReport):
    """Report of ``JudgeStudy``.

    Attributes:
        trials: Every finished trial.
        best_trials: Trials that no other one surpasses in everything.
        best: The trial that was taken: without labels the highest objective; with labels the highest accuracy, then
            objective, then the fewest prompts.
        failed: Trials without a defined objective or accuracy.
        study_name: Name of the study in the storage.
    """

    trials: tuple[Trial, ...]
    best_trials: tuple[Trial, ...]
    best: Trial
    failed: int
    study_name: str


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
        proposer: Source of the wordings; see ``ZEPO``.
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
        proposer: Proposer,
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
        self.proposer = proposer
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
        trials = _Trials(self, self.objective or Fairness(), problem, demos, pairs, scored)
        study = self._study(problem, labeled=labeled)
        wordings = self._wordings(study, student)
        abandoned = _running(study)  # by a process that was killed, or another's that still runs
        while _finished(study) < self.trials and _failed(study) < self.trials:
            self._step(study, wordings, len(demos), trials, abandoned, labeled=labeled)
        if not _finished(study):
            raise ValueError(
                f"All {_failed(study)} trials have an undefined value: the judge answers nothing. Try another model."
            )
        details = _details(study, labeled=labeled)
        best = Candidate(details.pop("chosen"), trials.judge(details["best"].choice))
        given = Candidate("given", student, {"chosen": "the given judge"})
        return Outcome([best], given, student, details)

    def rule(self, problem: Problem) -> Rule:
        """With labels, a judge is better if its accuracy is; without, if the objective is."""
        if _labeled(problem):
            return SetUpRule(Accuracy(), preferred(problem.held_back), problem.lm, seed=self.seed)
        return SetUpRule(self.objective or Fairness(), problem.held_back, problem.lm, seed=self.seed)

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
        with _quiet():
            return retry(
                optuna.create_study,
                study_name=f"evalbias-{student.criterion.name}-{digest(to_json(content), 12)}",
                storage=self.storage,
                load_if_exists=True,
                directions=["maximize", "maximize", "minimize"] if labeled else ["maximize"],
            )

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

    def _step(
        self,
        study: optuna.Study,
        wordings: list[str],
        demo_sets: int,
        trials: _Trials,
        abandoned: int,
        *,
        labeled: bool,
    ) -> None:
        """Run one trial; the sampler is seeded by the trials so far, so that a resumed study draws the same."""
        seed = self.seed * 1_000_003 + len(study.get_trials(deepcopy=False)) - abandoned
        with _quiet():
            study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = study.ask()
        choice = Choice(
            trial.suggest_categorical("instruction", wordings),
            trial.suggest_categorical("demonstrations", list(range(demo_sets))),
            trial.suggest_categorical("debias", DEBIASING) if labeled else trials.student.debias,
            trial.suggest_categorical("calibration", trials.calibrations),
        )
        result = trials(choice)
        trial.set_user_attr(RESULT, result)
        values = [result["objective"], result["accuracy"], result["prompts"]] if labeled else [result["objective"]]
        if any(math.isnan(value) for value in values):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, values)


class _Trials:
    """Choices as judges; each is measured once."""

    def __init__(
        self,
        settings: JudgeStudy,
        objective: Objective,
        problem: Problem,
        demos: list[list[dspy.Example]],
        pairs: list[dspy.Example],
        scored: list[dspy.Example],
    ) -> None:
        self.settings, self.objective, self.demos = settings, objective, demos
        self.student: PairwiseJudge = problem.student
        self.pairs, self.labeled = pairs, scored
        self.lm: MeasuringLM = ChoiceMemo(problem.lm)
        sampled = self.student.sampling or getattr(problem.lm, "sampling", None)
        self.size = len(self.pairs[0].candidates)
        self.calibrations = (None,) if sampled else calibrations_of(self.size)  # which need measured probabilities
        self._results: dict[Choice, dict[str, Any]] = {}

    def judge(self, choice: Choice) -> PairwiseJudge:
        """Return the student set up as chosen."""
        return self._fitted(choice)[0]

    def _fitted(self, choice: Choice) -> tuple[PairwiseJudge, int]:
        """Return the student set up as chosen, and the prompts that fitting its calibration takes."""
        one: PairwiseJudge = self.student.deepcopy()
        instruct(one, choice.instruction)
        one.predict.demos = list(self.demos[choice.demonstrations])
        one.debias, one.calibration = choice.debias, choice.calibration
        if choice.calibration in FITTED:  # not to the pairs that the accuracy is measured on
            return one, one.calibrate(self.pairs, lm=self.lm)
        return one, int(choice.calibration == "contextual")

    def __call__(self, choice: Choice) -> dict[str, Any]:
        if choice not in self._results:
            try:
                self._results[choice] = self._measure(choice)
            except CalibrationError:  # the trial fails and is counted; the study goes on
                self._results[choice] = {"objective": math.nan, "accuracy": math.nan, "prompts": math.nan}
        return self._results[choice]

    def _measure(self, choice: Choice) -> dict[str, Any]:
        plain = self.judge(replace(choice, debias=None))
        whole, fit_prompts = self._fitted(choice)
        answers = plain.batch(self.pairs, lm=self.lm, progress=self.settings.progress)
        probabilities = np.array([p.positions[0] for p in answers])
        free = np.empty((0, probabilities.shape[1]))
        if self.objective.content_free:
            orders = rotations(self.size, every=False)
            logprobs = plain.answer_logprobs([plain.content_free(self.size)], orders, self.lm)
            free = plain.aggregate(logprobs, orders, None).positions[:, 0]
        predictions = whole.batch(self.labeled, lm=self.lm, progress=self.settings.progress)
        right = rightness(self.labeled, predictions)
        defined = right[~np.isnan(right)]
        return {
            "choice": vars(choice),
            "objective": self.objective(judged_in_order(plain, probabilities, self.pairs, free)),
            "accuracy": float(defined.mean()) if len(defined) else math.nan,
            "prompts": self.size if choice.debias == "permutation" else 1,
            "fit_prompts": fit_prompts,
            "undefined": count_undefined(probabilities) + int(np.isnan(right).sum()),
        }


def _labeled(problem: Problem) -> bool:
    """Return whether the study weighs the accuracy: in the search and in the choice, or in neither."""
    return bool(preferred(problem.trainset) or preferred(problem.held_back))


def _finished(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))


def _running(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]))


def _failed(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.FAIL]))


def _details(study: optuna.Study, *, labeled: bool) -> dict[str, Any]:
    """Return the fields of the report."""
    complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
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
        "failed": _failed(study),
        "study_name": study.study_name,
    }


def _trial(trial: optuna.trial.FrozenTrial) -> Trial:
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
