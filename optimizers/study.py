"""Instructions, demonstrations, debiasing and calibration of a pairwise judge, searched together in an Optuna study."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import dspy
import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.evaluation.judged import Judged
from evalbias.evaluation.words import in_one_line
from evalbias.lm.cache import model_identity
from evalbias.measures.arrays import FloatArray, mean_of_defined
from evalbias.measures.resample import mean
from evalbias.optimizers import objectives
from evalbias.optimizers.base import JudgeOptimizer, Problem, halves
from evalbias.optimizers.objectives import Objective
from evalbias.optimizers.proposers import GrammarParaphraser, Proposer, check_proposer
from evalbias.optimizers.selection import Candidate, CompileReport, Rule, count_unanswered
from evalbias.programs.items import preference_label
from evalbias.programs.metrics import preference_accuracy
from evalbias.programs.pairwise import CALIBRATIONS, DEBIASING, FITTED, CalibrationError, PairwiseJudge
from evalbias.programs.prompts import TIE, comparison_labels
from evalbias.values import describe, digest, get_logger, to_json

WORDINGS, NUMBERS = "wordings", "numbers"  # keys under which a study's storage keeps the wordings, and a trial's

LOCKED = 300.0  # longest wait in seconds while another process, perhaps a paused one, writes to the same SQLite file

RIGHT = "right"  # covariate of judged pairs: (n,) 1 where the judge prefers as people do, 0 where not, else NaN


@dataclass(frozen=True)
class SetUp:
    """One way to set up the judge."""

    instruction: str
    demonstrations: int  # number of the set; 0 is the student's own
    debias: str | None  # this and the calibration as in PairwiseJudge
    calibration: str | None


@dataclass(frozen=True)
class Trial:
    """A set-up and its numbers."""

    number: int  # in the study
    choice: SetUp
    objective: float  # of the calibrated answers in the given order; higher is better
    accuracy: float  # share of the labeled pairs on which the judge prefers as people do; NaN without labels
    prompts: int  # that a comparison takes
    undefined: int  # answers and labeled pairs without a defined probability


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyReport(CompileReport):
    """Report of ``JudgeStudy``."""

    trials: tuple[Trial, ...]  # every finished trial
    best: Trial  # with the highest objective, or with labels the highest accuracy, then objective, then fewest prompts
    failed: int  # number of trials without a defined objective or accuracy
    study_name: str  # name of the study in the storage


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's own log on stderr; the report holds what a user wants to know."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


@dataclass(eq=False, repr=False)
class JudgeStudy(JudgeOptimizer):
    """Chooses instruction, demonstrations, debiasing and calibration of a pairwise judge by TPE (Optuna).

    The trainset holds pairs (``evalbias.data.pairs``). If any has a label (``preference`` or ``better``), the study
    maximizes objective and accuracy and minimizes the prompts of a comparison, over all four choices: the accuracy is
    measured on the labeled pairs of half of the inputs, without ties; demonstrations and calibrations come from the
    others. Without labels, it maximizes the objective over instructions and calibrations: only labels can tell what
    permutation debiasing, which is fair by construction, is worth. On the held-back pairs the accuracy decides between
    the best trial and the given judge; without labels the objective does. It also takes the options of every optimizer;
    see ``JudgeOptimizer``.

    Args:
        proposer: Source of the wordings. Defaults to ``GrammarParaphraser()``; see ``ZEPO``.
        instructions: Number of wordings to choose from, besides the student's own.
        trials: Number of finished trials with which the study ends, whichever process ran them.
        demo_sets: Number of sets of demonstrations to choose from, besides the student's own.
        k: Demonstrations in a set.
        objective: Objective to maximize. Defaults to fairness.
        storage: Optuna's URL, such as ``sqlite:///study.db``: processes that name the same one share the study, and a
            stopped one continues from its finished trials. None keeps the study in memory.
    """

    report_type = StudyReport
    compiles = (PairwiseJudge,)
    counts_distinct = True

    proposer: Proposer = field(default_factory=GrammarParaphraser)
    _: KW_ONLY
    instructions: int = 8
    trials: int = 40
    demo_sets: int = 4
    k: int = 4
    objective: Objective = field(default_factory=objectives.Fairness)
    storage: str | None = None

    def __post_init__(self) -> None:
        if min(self.instructions, self.trials, self.k) < 1 or self.demo_sets < 0:
            raise ValueError(
                f"instructions={self.instructions}, trials={self.trials}, k={self.k}, demo_sets={self.demo_sets}: the "
                "first three must be at least 1, the last at least 0."
            )
        check_proposer(self.proposer)
        objectives.check_objective(self.objective)

    def read(self, student: PairwiseJudge, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Return the pairs; every label becomes the judge's answer, ``preference``."""
        pairs = super().read(student, examples)
        return [e if (label := preference_label(e)) is None else e.copy(preference=label) for e in pairs]

    def check(self, student: PairwiseJudge, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
        """Also refuse pairs of different sizes, and an objective that cannot be chosen by."""
        objectives.check_searchable(trainset)
        if self.objective.debiased:
            raise ValueError(
                f"A study weighs debiasing itself, so its objective is of one order, not the {self.objective.name}: "
                "give Fairness(), or search with ZEPO."
            )
        if self.select and not with_preference(trainset):
            objectives.check_held_back(self.objective)
        super().check(student, trainset, valset)

    @_quiet()
    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge as the best trial set it up; ``ValueError`` if no trial has a defined objective."""
        trials = _Trials(problem, self)
        # 1. Open the study; a process that is not the first finds its wordings and trials there.
        study = self._open(problem, labeled=trials.labels)
        if WORDINGS not in study.user_attrs:
            own = problem.student.predict.signature.instructions
            proposal = self.proposer(problem.student.criterion, own, self.instructions, known={own}, seed=self.seed)
            study.set_user_attr(WORDINGS, [own, *proposal.instructions])
        wordings = list(study.user_attrs[WORDINGS])
        abandoned = _count(study, TrialState.RUNNING)  # by a process that was killed, or another's that still runs
        while _count(study, TrialState.COMPLETE) < self.trials and _count(study, TrialState.FAIL) < self.trials:
            # 2. Ask for a set-up; the sampler is seeded by the trials so far, so that a resumed study draws the same.
            seed = self.seed * 1_000_003 + len(study.get_trials(deepcopy=False)) - abandoned
            study.sampler = optuna.samplers.TPESampler(seed=seed)
            trial = study.ask()
            choice = SetUp(
                trial.suggest_categorical("instruction", wordings),
                trial.suggest_categorical("demonstrations", list(range(len(trials.demos)))),
                trial.suggest_categorical("debias", DEBIASING) if trials.labels else problem.student.debias,
                trial.suggest_categorical("calibration", trials.calibrations),
            )
            # 3. Measure it, and tell its numbers; one that is undefined fails and is counted.
            try:
                result = trials.measure(choice)
            except CalibrationError:
                result = dict.fromkeys(("objective", "accuracy", "prompts"), math.nan)
            trial.set_user_attr(NUMBERS, {"choice": vars(choice), **result})
            names = ("objective", "accuracy", "prompts") if trials.labels else ("objective",)
            values = [result[name] for name in names]
            if any(math.isnan(value) for value in values):
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, values)
        # 4. Take the best.
        finished = [_trial(one) for one in study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])]
        if not finished:
            raise ValueError(
                f"All {_count(study, TrialState.FAIL)} trials have an undefined value: the judge answers nothing. Try "
                "another model."
            )
        best = max(finished, key=lambda t: (t.accuracy, t.objective, -t.prompts) if trials.labels else (t.objective,))
        problem.details = {
            "trials": tuple(finished),
            "best": best,
            "failed": _count(study, TrialState.FAIL),
            "study_name": study.study_name,
        }
        options = f"debias={best.choice.debias}, calibration={best.choice.calibration}"
        name = f"{in_one_line(best.choice.instruction)} (set {best.choice.demonstrations} of demonstrations, {options})"
        return [Candidate(name, trials.fitted(best.choice))]

    def rules(self, problem: Problem) -> list[Rule]:
        """With labels, a judge is better if its accuracy is; without, if the objective is."""
        objective = Accuracy() if has_labels(problem) else self.objective
        return [objectives.ObjectiveRule(objective, seed=self.seed)]

    def tested(self, problem: Problem, judge: PairwiseJudge) -> Judged:
        """Have a judge compare the held-back pairs in the given order; the accuracy is that of the whole judge."""
        if not has_labels(problem):
            return _in_order(judge, problem.held_back, problem.lm)
        pairs = with_preference(problem.held_back)
        judged = _in_order(judge, pairs, problem.lm)
        right = rightness(pairs, judge.batch(pairs, lm=problem.lm))
        return replace(judged, covariates={**judged.covariates, RIGHT: right})

    def _open(self, problem: Problem, *, labeled: bool) -> optuna.Study:
        content = {
            "student": describe(problem.student),
            "lm": model_identity(problem.lm),
            "objective": describe(self.objective),
            "proposer": describe(self.proposer),
            "pairs": [[e.source, *e.candidates, e.get("preference")] for e in problem.fit],
            "settings": [self.instructions, self.demo_sets, self.k, self.seed, labeled],
            "calibrations": CALIBRATIONS,
            "trials": NUMBERS,
        }

        def opened() -> optuna.Study:
            storage: Any = self.storage
            if storage is not None and storage.startswith("sqlite"):  # itself waits 5 seconds for another process
                storage = optuna.storages.RDBStorage(storage, engine_kwargs={"connect_args": {"timeout": LOCKED}})
            return optuna.create_study(
                study_name=f"evalbias-{problem.student.criterion.name}-{digest(to_json(content), 12)}",
                storage=storage,
                load_if_exists=True,
                directions=["maximize", "maximize", "minimize"] if labeled else ["maximize"],
            )

        retry = Retrying(  # processes that begin together trip over each other's tables; the next attempt finds them
            retry=retry_if_exception_type(SQLAlchemyError),
            stop=stop_after_attempt(5),
            wait=wait_random(0.1, 0.5),
            reraise=True,
        )
        return retry(opened)


def _count(study: optuna.Study, state: TrialState) -> int:
    return len(study.get_trials(deepcopy=False, states=[state]))


def _trial(trial: FrozenTrial) -> Trial:
    result = dict(trial.user_attrs[NUMBERS])
    return Trial(number=trial.number, choice=SetUp(**result.pop("choice")), **result)


class _Trials:
    """The set-ups that a study chooses from, and their numbers."""

    def __init__(self, problem: Problem, study: JudgeStudy) -> None:
        self.student: PairwiseJudge = problem.student
        self.lm, self.progress, self.objective = problem.lm, study.progress, study.objective
        # 1. With labels, half of the inputs tell the accuracy, and the others give demonstrations and calibrations.
        self.labels = has_labels(problem)
        self.pairs, self.scored = problem.fit, list[dspy.Example]()
        if self.labels:
            self.pairs, scored = halves(problem.fit, seed=study.seed)
            count_unlabeled("to measure trials on", scored)
            if study.select:
                count_unlabeled("kept back", problem.held_back)
            self.scored = with_preference(scored)
        # 2. Sets of labeled pairs are the demonstrations; the first set is the student's own.
        self.size = len(self.pairs[0].candidates)
        answers, rng = comparison_labels(self.size, ties=self.student.ties), random.Random(study.seed)
        labeled = [e for e in self.pairs if e.get("preference") in answers]
        sets = study.demo_sets if len(labeled) >= study.k else 0
        self.demos = [list(self.student.predict.demos), *(rng.sample(labeled, study.k) for _ in range(sets))]
        # 3. Calibrations need measured probabilities.
        self.calibrations = [None] if self.student.sampling or problem.lm.sampling else list(CALIBRATIONS)

    def fitted(self, choice: SetUp) -> PairwiseJudge:
        """Return the student set up as chosen."""
        one = objectives.reworded(self.student, choice.instruction)
        one.predict.demos = list(self.demos[choice.demonstrations])
        one.debias, one.calibration = choice.debias, choice.calibration
        if choice.calibration in FITTED:  # not to the pairs that the accuracy is measured on
            one.calibrate(self.pairs, lm=self.lm)
        return one

    def measure(self, choice: SetUp) -> dict[str, Any]:
        """Return the numbers of a ``Trial``; ``CalibrationError`` where the calibration cannot be fitted."""
        plain, whole = self.fitted(replace(choice, debias=None)), self.fitted(choice)
        judged = _in_order(plain, self.pairs, self.lm, progress=self.progress)
        if self.objective.content_free:
            nothing = [plain.content_free(self.size)]
            (free,) = objectives.probabilities(plain, [choice.instruction], nothing, self.lm)  # (1, c + t)
            judged = replace(judged, content_free=free)
        right = rightness(self.scored, whole.batch(self.scored, lm=self.lm, progress=self.progress))
        return {
            "objective": self.objective(judged),
            "accuracy": mean_of_defined(right),
            "prompts": self.size if choice.debias == "permutation" else 1,
            "undefined": count_unanswered(judged) + int(np.isnan(right).sum()),
        }


def _in_order(judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: Any, *, progress: Any = None) -> Judged:
    """Have a judge compare pairs in the given order only, with its calibration."""
    plain: PairwiseJudge = judge.deepcopy()
    plain.debias = None
    answers = plain.batch(pairs, lm=lm, progress=progress)
    return objectives.judged_in_order(plain, np.array([p.positions[0] for p in answers]), pairs)


class Accuracy(Objective):
    """Share of labeled pairs on which the judge prefers as people do, in [0, 1]."""

    name = "accuracy"

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        return objectives.over_defined(mean, counts, judged.covariate(RIGHT))


def with_preference(pairs: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Return the pairs of which people prefer one candidate: those that have a label and are no ties."""
    return [e for e in pairs if preference_label(e) not in (None, TIE)]


def has_labels(problem: Problem) -> bool:
    """Return whether the study weighs the accuracy: in the search and in the choice, or in neither."""
    return bool(with_preference(problem.fit) or with_preference(problem.held_back))


def count_unlabeled(use: str, pairs: Sequence[dspy.Example]) -> None:
    """Log how many pairs of a part of the trainset the accuracy leaves out; all of them are refused."""
    left_out = len(pairs) - len(with_preference(pairs))
    if left_out == len(pairs):
        raise ValueError(
            f"None of the {left_out} pairs {use} says which candidate people prefer, but other pairs do: label more, "
            "or remove the labels (preference, better) to choose by the objective alone."
        )
    if left_out:
        text = "%d of the %d pairs %s have no label or are ties: the accuracy leaves them out."
        get_logger(__name__).warning(text, left_out, len(pairs), use)


def rightness(pairs: Sequence[dspy.Example], predictions: Sequence[Any]) -> FloatArray:
    """Return (n,) 1 where a judge prefers as people do, a half for a tie, NaN where its comparison is undefined."""
    compared = zip(pairs, predictions, strict=True)
    return np.array([preference_accuracy(e, p, undefined=math.nan) for e, p in compared], dtype=np.float64)
