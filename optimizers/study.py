"""Instructions, demonstrations, debiasing and calibration of a pairwise judge, searched together in an Optuna study."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import Any

import dspy
import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random

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

WORDINGS = "wordings"  # key under which a study's storage keeps the wordings
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
        if self.select and not _preferred(trainset):
            objectives.check_held_back(self.objective)
        super().check(student, trainset, valset)

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the judge as the best trial set it up; ``ValueError`` if no trial has a defined objective."""
        space = _Space(self, problem)
        # 1. Open the study; a process that is not the first finds its wordings and trials there.
        study = self._open(problem, labeled=space.labeled)
        if WORDINGS not in study.user_attrs:
            own = problem.student.predict.signature.instructions
            proposal = self.proposer(problem.student.criterion, own, self.instructions, known={own}, seed=self.seed)
            study.set_user_attr(WORDINGS, [own, *proposal.instructions])
        wordings = list(study.user_attrs[WORDINGS])

        def trials(state: TrialState) -> list[FrozenTrial]:
            return list(study.get_trials(deepcopy=False, states=[state]))

        abandoned = len(trials(TrialState.RUNNING))  # by a process that was killed, or another's that still runs
        while max(len(trials(TrialState.COMPLETE)), len(trials(TrialState.FAIL))) < self.trials:
            # 2. Ask for a set-up; the sampler is seeded by the trials so far, so that a resumed study draws the same.
            seed = self.seed * 1_000_003 + len(study.get_trials(deepcopy=False)) - abandoned
            study.sampler = optuna.samplers.TPESampler(seed=seed)
            trial = study.ask()
            choice = SetUp(
                trial.suggest_categorical("instruction", wordings),
                trial.suggest_categorical("demonstrations", list(range(len(space.demos)))),
                trial.suggest_categorical("debias", DEBIASING) if space.labeled else problem.student.debias,
                trial.suggest_categorical("calibration", space.calibrations),
            )
            # 3. Measure it, and tell its numbers; a trial with an undefined one fails, and is counted.
            measured = space.measure(trial.number, choice)
            trial.set_user_attr("trial", asdict(measured))
            values = [measured.objective, measured.accuracy, measured.prompts][: 3 if space.labeled else 1]
            failed = bool(np.isnan(values).any())
            study.tell(trial, None if failed else values, TrialState.FAIL if failed else TrialState.COMPLETE)
        # 4. Take the best.
        attributes = [one.user_attrs["trial"] for one in trials(TrialState.COMPLETE)]
        finished = [Trial(**{**one, "choice": SetUp(**one["choice"])}) for one in attributes]
        fails = len(trials(TrialState.FAIL))
        if not finished:
            raise ValueError(
                f"All {fails} trials have an undefined value: the judge answers nothing. Try another model."
            )
        best = max(finished, key=lambda t: (t.accuracy, t.objective, -t.prompts) if space.labeled else (t.objective,))
        problem.details = {"trials": tuple(finished), "best": best, "failed": fails, "study_name": study.study_name}
        options = f"debias={best.choice.debias}, calibration={best.choice.calibration}"
        name = f"{in_one_line(best.choice.instruction)} (set {best.choice.demonstrations} of demonstrations, {options})"
        return [Candidate(name, space.fitted(best.choice))]

    @retry(  # processes that begin together trip over each other's tables; the next attempt finds them
        retry=retry_if_exception_type(SQLAlchemyError),
        stop=stop_after_attempt(5),
        wait=wait_random(0.1, 0.5),
        reraise=True,
    )
    def _open(self, problem: Problem, *, labeled: bool) -> optuna.Study:
        content = {
            "student": describe(problem.student),
            "lm": model_identity(problem.lm),
            "objective": describe(self.objective),
            "proposer": describe(self.proposer),
            "pairs": [[e.source, *e.candidates, e.get("preference")] for e in problem.fit],
            "settings": [self.instructions, self.demo_sets, self.k, self.seed, labeled],
            "calibrations": CALIBRATIONS,
            "trials": [one.name for one in fields(Trial)],
        }
        storage: Any = self.storage
        if storage is not None and storage.startswith("sqlite"):  # itself waits 5 seconds for another process
            storage = optuna.storages.RDBStorage(storage, engine_kwargs={"connect_args": {"timeout": LOCKED}})
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # the report holds what a user wants to know
        try:
            return optuna.create_study(
                study_name=f"evalbias-{problem.student.criterion.name}-{digest(to_json(content), 12)}",
                storage=storage,
                load_if_exists=True,
                directions=["maximize", "maximize", "minimize"] if labeled else ["maximize"],
            )
        finally:
            optuna.logging.set_verbosity(verbosity)

    def rules(self, problem: Problem) -> list[Rule]:
        """With labels, a judge is better if its accuracy is; without, if the objective is."""
        return [objectives.ObjectiveRule(Accuracy() if _labeled(problem) else self.objective, seed=self.seed)]

    def tested(self, problem: Problem, judge: PairwiseJudge) -> Judged:
        """Have a judge compare the held-back pairs in the given order; the accuracy is that of the whole judge."""
        if not _labeled(problem):
            return _in_order(judge, problem.held_back, problem.lm)
        pairs = _preferred(problem.held_back)
        judged = _in_order(judge, pairs, problem.lm)
        return replace(judged, covariates={**judged.covariates, RIGHT: _rightness(judge, pairs, problem.lm)})


class _Space:
    """The set-ups that a study chooses from, and their numbers."""

    def __init__(self, study: JudgeStudy, problem: Problem) -> None:
        self.study, self.student, self.lm = study, problem.student, problem.lm
        # 1. With labels, half of the inputs tell the accuracy, and the others give demonstrations and calibrations.
        self.labeled = _labeled(problem)
        self.pairs, self.scored = problem.fit, list[dspy.Example]()
        if self.labeled:
            self.pairs, scored = halves(problem.fit, seed=study.seed)
            self.scored = _preferred(scored, "to measure trials on")
            if study.select:
                _preferred(problem.held_back, "kept back")
        # 2. Sets of labeled pairs are the demonstrations; the first set is the student's own.
        self.size = len(self.pairs[0].candidates)
        answers, rng = comparison_labels(self.size, ties=self.student.ties), random.Random(study.seed)
        shown = [e for e in self.pairs if e.get("preference") in answers]
        sets = study.demo_sets if len(shown) >= study.k else 0
        self.demos = [list(self.student.predict.demos), *(rng.sample(shown, study.k) for _ in range(sets))]
        # 3. Calibrations need measured probabilities.
        self.calibrations = [None] if self.student.sampling or problem.lm.sampling else list(CALIBRATIONS)

    def fitted(self, choice: SetUp) -> PairwiseJudge:
        """Return the student set up as chosen."""
        judge = objectives.reworded(self.student, choice.instruction)
        judge.predict.demos = list(self.demos[choice.demonstrations])
        judge.debias, judge.calibration = choice.debias, choice.calibration
        if choice.calibration in FITTED:  # not to the pairs that the accuracy is measured on
            judge.calibrate(self.pairs, lm=self.lm)
        return judge

    def measure(self, number: int, choice: SetUp) -> Trial:
        """Return the trial of a set-up; its numbers are NaN where the calibration cannot be fitted."""
        prompts = self.size if choice.debias == "permutation" else 1
        try:
            plain, whole = self.fitted(replace(choice, debias=None)), self.fitted(choice)
            judged = _in_order(plain, self.pairs, self.lm, progress=self.study.progress)
            right = _rightness(whole, self.scored, self.lm, progress=self.study.progress)
        except CalibrationError:
            return Trial(number, choice, math.nan, math.nan, prompts, len(self.pairs) + len(self.scored))
        if self.study.objective.content_free:
            nothing = [plain.content_free(self.size)]
            (free,) = objectives.probabilities(plain, [choice.instruction], nothing, self.lm)  # (1, c + t)
            judged = replace(judged, content_free=free)
        undefined = count_unanswered(judged) + int(np.isnan(right).sum())
        return Trial(number, choice, self.study.objective(judged), mean_of_defined(right), prompts, undefined)


class Accuracy(Objective):
    """Share of labeled pairs on which the judge prefers as people do, in [0, 1]."""

    name = "accuracy"

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        return objectives.over_defined(mean, counts, judged.covariate(RIGHT))


def _in_order(judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: Any, *, progress: Any = None) -> Judged:
    """Have a judge compare pairs in the given order only, with its calibration."""
    plain: PairwiseJudge = judge.deepcopy()
    plain.debias = None
    answers = plain.batch(pairs, lm=lm, progress=progress)
    return objectives.judged_in_order(plain, np.array([p.positions[0] for p in answers]), pairs)


def _rightness(judge: PairwiseJudge, pairs: Sequence[dspy.Example], lm: Any, *, progress: Any = None) -> FloatArray:
    """Return (n,) 1 where a judge prefers as people do, a half for a tie, NaN where its comparison is undefined."""
    compared = zip(pairs, judge.batch(pairs, lm=lm, progress=progress), strict=True)
    return np.array([preference_accuracy(e, p, undefined=math.nan) for e, p in compared], dtype=np.float64)


def _labeled(problem: Problem) -> bool:
    """Return whether the study weighs the accuracy: in the search and in the choice, or in neither."""
    return bool(_preferred(problem.fit) or _preferred(problem.held_back))


def _preferred(pairs: Sequence[dspy.Example], use: str = "") -> list[dspy.Example]:
    """Return the pairs of which people prefer one candidate: those that have a label and are no ties.

    With a ``use``, log how many pairs the accuracy leaves out; ``ValueError`` if it leaves out all of them.
    """
    preferred = [e for e in pairs if preference_label(e) not in (None, TIE)]
    left_out = len(pairs) - len(preferred)
    if use and not preferred:
        raise ValueError(
            f"None of the {left_out} pairs {use} says which candidate people prefer, but other pairs do: label more, "
            "or remove the labels (preference, better) to choose by the objective alone."
        )
    if use and left_out:
        text = "%d of the %d pairs %s have no label or are ties: the accuracy leaves them out."
        get_logger(__name__).warning(text, left_out, len(pairs), use)
    return preferred
