"""Instructions and demonstrations searched together, in an Optuna study."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.data.pairing import input_key
from evalbias.evaluation.judged import Judged
from evalbias.lm.cache import CachedLM, model_identity
from evalbias.lm.types import MeasuringLM
from evalbias.measures import count_undefined
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.position_calibration import rotations
from evalbias.optimizers.base import JudgeOptimizer, Outcome, Problem, halves, state_without_model
from evalbias.optimizers.objectives import (
    Fairness,
    Objective,
    ObjectiveRule,
    check_held_back,
    instruct,
    judged_in_order,
)
from evalbias.optimizers.proposers import Proposer, checked_proposer
from evalbias.optimizers.selection import Candidate, CompileReport, Rule
from evalbias.programs.items import preference_label
from evalbias.programs.metrics import preference_accuracy
from evalbias.programs.pairwise import CALIBRATIONS, DEBIASING, FITTED, CalibrationError, PairwiseJudge, calibrations_of
from evalbias.programs.prompts import TIE, comparison_labels
from evalbias.values import describe, digest, get_logger, to_json

# Report of a study: its trials, and the one that was taken.


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


# The choice between a judge that a study set up and the given one, on held-back pairs.


logger = get_logger(__name__)

RIGHT = "right"
"""Covariate of judged pairs: (n,) 1 where the judge prefers as people do, 0 where not, NaN where undefined."""


def preferred(pairs: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return the pairs of which people prefer one candidate: those that have a label and are no ties."""
    return [e for e in pairs if preference_label(e) not in (None, TIE)]


def check_labels(parts: Mapping[str, Sequence[dspy.Example]]) -> None:
    """Log how many pairs the accuracy leaves out in each part of the trainset.

    Raises:
        ValueError: It leaves out all of one part.
    """
    for use, pairs in parts.items():
        left_out = len(pairs) - len(preferred(pairs))
        if left_out == len(pairs):
            raise ValueError(
                f"None of the {left_out} pairs {use} says which candidate people prefer, but other pairs do: label "
                "more, or remove the labels (preference, better) to choose by the objective alone."
            )
        if left_out:
            logger.warning(
                "%d of the %d pairs %s have no label or are ties: the accuracy leaves them out.",
                left_out,
                len(pairs),
                use,
            )


def rightness(pairs: Sequence[dspy.Example], predictions: Sequence[Any]) -> FloatArray:
    """Return (n,) 1 where a judge prefers as people do, a half for a tie, NaN where its comparison is undefined."""
    compared = zip(pairs, predictions, strict=True)
    return np.array([preference_accuracy(e, p, undefined=math.nan) for e, p in compared], dtype=np.float64)


class Accuracy:
    """Share of labeled pairs on which the judge prefers as people do, in [0, 1]."""

    name = "accuracy"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        return mean_of_defined(judged.covariate(RIGHT))


class SetUpRule(ObjectiveRule):
    """An ``ObjectiveRule`` for judges as they are set up: the accuracy is that of the whole judge, with its debiasing.

    Another objective is measured in the given order, where there is a bias to see.
    """

    def answers(self, program: PairwiseJudge) -> Judged:
        """Return the judge's answers to the pairs."""
        plain: PairwiseJudge = program.deepcopy()
        plain.debias = None
        answers = plain.batch(self.examples, lm=self.lm)
        probabilities = np.array([p.positions[0] for p in answers])
        judged = judged_in_order(plain, probabilities, self.examples, probabilities[:0])
        if not isinstance(self.objective, Accuracy):
            return judged
        whole = program.batch(self.examples, lm=self.lm)
        return replace(judged, covariates={**judged.covariates, RIGHT: rightness(self.examples, whole)})


# The choices of a study as judges, and their numbers.


class Trials:
    """Choices as judges; each is measured once.

    Args:
        problem: What the study searches on.
        demos: The sets of demonstrations to choose from.
        pairs: Pairs on which calibrations are fitted and the objective is measured.
        labeled: Other pairs, on which the accuracy is measured; empty without labels.
        objective: The objective.
        progress: Called with the number of judgments done.
    """

    def __init__(
        self,
        problem: Problem,
        demos: Sequence[Sequence[dspy.Example]],
        pairs: Sequence[dspy.Example],
        labeled: Sequence[dspy.Example],
        *,
        objective: Objective,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.student: PairwiseJudge = problem.student
        self.demos, self.pairs, self.labeled = demos, pairs, labeled
        self.objective, self.progress = objective, progress
        self.lm: MeasuringLM = CachedLM(problem.lm)
        self.size = len(pairs[0].candidates)
        sampled = self.student.sampling or getattr(problem.lm, "sampling", None)
        self.calibrations = (None,) if sampled else calibrations_of(self.size)  # which need measured probabilities
        self._results: dict[Choice, dict[str, Any]] = {}

    def judge(self, choice: Choice) -> PairwiseJudge:
        """Return the student set up as chosen."""
        return self._fitted(choice)[0]

    def measure(self, choice: Choice) -> dict[str, Any]:
        """Return the fields of a ``Trial``; NaN where the calibration cannot be fitted."""
        if choice not in self._results:
            try:
                self._results[choice] = self._measured(choice)
            except CalibrationError:  # the trial fails and is counted; the study goes on
                self._results[choice] = {"objective": math.nan, "accuracy": math.nan, "prompts": math.nan}
        return self._results[choice]

    def _fitted(self, choice: Choice) -> tuple[PairwiseJudge, int]:
        """Return the student set up as chosen, and the prompts that fitting its calibration takes."""
        one: PairwiseJudge = self.student.deepcopy()
        instruct(one, choice.instruction)
        one.predict.demos = list(self.demos[choice.demonstrations])
        one.debias, one.calibration = choice.debias, choice.calibration
        if choice.calibration in FITTED:  # not to the pairs that the accuracy is measured on
            return one, one.calibrate(self.pairs, lm=self.lm)
        return one, int(choice.calibration == "contextual")

    def _measured(self, choice: Choice) -> dict[str, Any]:
        plain = self.judge(replace(choice, debias=None))
        whole, fit_prompts = self._fitted(choice)
        answers = plain.batch(self.pairs, lm=self.lm, progress=self.progress)
        probabilities = np.array([p.positions[0] for p in answers])
        free = np.empty((0, probabilities.shape[1]))
        if self.objective.content_free:
            orders = rotations(self.size, every=False)
            logprobs = plain.answer_logprobs([plain.content_free(self.size)], orders, self.lm)
            free = plain.aggregate(logprobs, orders, None).positions[:, 0]
        predictions = whole.batch(self.labeled, lm=self.lm, progress=self.progress)
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


# An Optuna study of everything that can be chosen about a pairwise judge, for accuracy and bias together.


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
            "lm": model_identity(lm),
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
