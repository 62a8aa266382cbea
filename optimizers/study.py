"""An Optuna study over everything that can be chosen about a pairwise judge: for accuracy and bias together."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dspy
import numpy as np
import optuna
from dspy.teleprompt import Teleprompter
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from evalbias.data.pairing import input_key
from evalbias.lm.contract import measuring
from evalbias.lm.memo import ChoiceMemo
from evalbias.lm.types import MeasuringLM
from evalbias.measures import count_undefined
from evalbias.measures.calibration import rotations
from evalbias.optimizers.zepo.objectives import Answers, Fairness, Objective
from evalbias.optimizers.zepo.proposers import Proposer
from evalbias.optimizers.zepo.targets import instruct
from evalbias.programs.metrics import preference_accuracy
from evalbias.programs.pairwise import CALIBRATIONS, DEBIASING, PairwiseJudge
from evalbias.runs.fingerprint import describe

PROPOSED = "wordings"
FOUND = "found"


@dataclass(frozen=True)
class Choice:
    """One way to set up the judge.

    Attributes:
        instruction: Its wording.
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
    """A choice and what it brought.

    Attributes:
        number: Of the trial in the study.
        choice: What was tried.
        objective: Of the answers by position, calibrated, in the order given: higher is better.
        accuracy: Share of the labeled pairs on which the judge as set up prefers as people do; NaN without labels.
        prompts: A comparison takes so many.
        undefined: Answers and labeled pairs without a defined probability.
    """

    number: int
    choice: Choice
    objective: float
    accuracy: float
    prompts: int
    undefined: int


@dataclass(frozen=True)
class StudyReport:
    """What the study found.

    Attributes:
        trials: Every finished trial.
        front: Those that no other one surpasses in everything.
        best: The one that was taken: without labels the highest objective; with labels the highest accuracy, then
            objective, then the fewest prompts.
        failed: Trials without a defined objective or accuracy.
        study_name: Under which the storage keeps it.
    """

    trials: tuple[Trial, ...]
    front: tuple[Trial, ...]
    best: Trial
    failed: int
    study_name: str


class JudgeStudy(Teleprompter):  # type: ignore[misc]
    """Chooses instruction, demonstrations, debiasing and calibration of a pairwise judge by TPE.

    Without labels it maximizes the objective over instructions and calibrations. With labels it maximizes objective
    and accuracy and minimizes the prompts of a comparison, over all four. Debiasing by permutation is fair by
    construction, so only labels can tell what it brings.

    Args:
        proposer: Where wordings come from; see ``ZEPO``.
        instructions: Wordings to choose from, beside the student's own.
        trials: The study ends when it holds so many finished ones, whichever process ran them.
        demo_sets: Sets of demonstrations to choose from, beside the student's own.
        k: Demonstrations in a set.
        objective: By default fairness, of the positions alone where the judge may answer "tie".
        storage: Optuna's URL, such as ``sqlite:///study.db``: processes that name the same one share the study, and a
            stopped one goes on from its finished trials. Where the proposer does not say the same twice, start the
            second process after the first has proposed. None keeps the study in memory.
        seed: Of wordings, demonstrations and the sampler.
        progress: Called with the number of judgments done.
    """

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
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
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
        self.seed = seed
        self.progress = progress

    def compile(
        self,
        student: PairwiseJudge,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: Sequence[dspy.Example] | None = None,
        lm: Any = None,
    ) -> PairwiseJudge:
        """A copy of the judge set up as the best trial was.

        Args:
            student: The judge; it is left as it is.
            trainset: Pairs (``evalbias.data.pairing``). Labeled ones (``preference``) may become demonstrations.
            teacher: Not used by this method; must be None.
            valset: Labeled pairs of other inputs, for the accuracy; None searches without labels.
            lm: The judge's model; by default its own or DSPy's.

        Returns:
            The compiled judge; its ``report`` is a ``StudyReport``.

        Raises:
            ValueError: No pairs, unlabeled pairs in the valset, an input on both sides, or no trial with a defined
                objective.
        """
        if teacher is not None:
            raise ValueError("JudgeStudy learns from pairs: pass no teacher.")
        _check(trainset, valset)
        model = measuring(lm or student.predict.lm or dspy.settings.lm)
        demos = self._demonstrations(student, trainset)
        objective = self.objective or Fairness(ties=student.ties)
        measured = _Measured(self, objective, student, demos, list(trainset), list(valset or []), model)
        study = self._study(student, trainset, valset, model)
        wordings = self._wordings(study, student)
        while _finished(study) < self.trials and _failed(study) < self.trials:
            self._step(study, wordings, len(demos), measured, labeled=valset is not None)
        if not _finished(study):
            raise ValueError(
                f"{_failed(study)} trials had no defined value, and none had one: the judge answers nothing."
            )
        report = _report(study, labeled=valset is not None)
        compiled = measured.judge(report.best.choice)
        compiled.report = report
        return compiled

    def _study(
        self, student: PairwiseJudge, trainset: Sequence[dspy.Example], valset: Any, lm: MeasuringLM
    ) -> optuna.Study:
        told = {
            "student": student.dump_state(),
            "lm": lm.provenance() if hasattr(lm, "provenance") else str(getattr(lm, "model", type(lm).__name__)),
            "objective": describe(self.objective) if self.objective else None,
            "proposer": describe(self.proposer),
            "pairs": [[e.source, *e.candidates, e.get("preference")] for e in (*trainset, *(valset or []))],
            "settings": [self.instructions, self.demo_sets, self.k, self.seed, valset is not None],
        }
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
        directions = ["maximize"] if valset is None else ["maximize", "maximize", "minimize"]
        # processes that begin together trip over each other's tables; the next try finds them made
        patient = Retrying(
            retry=retry_if_exception_type(SQLAlchemyError),
            stop=stop_after_attempt(5),
            wait=wait_random(0.1, 0.5),
            reraise=True,
        )
        with _quietly():
            return patient(
                optuna.create_study,
                study_name=f"evalbias-{student.criterion.name}-{digest}",
                storage=self.storage,
                load_if_exists=True,
                directions=directions,
            )

    def _wordings(self, study: optuna.Study, student: PairwiseJudge) -> list[str]:
        """The student's own and the proposed ones; those of the study where another process proposed already."""
        if PROPOSED not in study.user_attrs:
            own = student.predict.signature.instructions
            found = self.proposer(student.criterion, own, self.instructions, known={own}, seed=self.seed)
            study.set_user_attr(PROPOSED, [own, *found.instructions])
        return list(study.user_attrs[PROPOSED])

    def _demonstrations(self, student: PairwiseJudge, trainset: Sequence[dspy.Example]) -> list[list[dspy.Example]]:
        labeled, rng = [e for e in trainset if e.get("preference") is not None], random.Random(self.seed)
        sets = self.demo_sets if len(labeled) >= self.k else 0
        return [list(student.predict.demos), *(rng.sample(labeled, self.k) for _ in range(sets))]

    def _step(
        self, study: optuna.Study, wordings: list[str], demo_sets: int, measured: _Measured, *, labeled: bool
    ) -> None:
        """One trial. The sampler is drawn anew from the seed and the trials so far, so that nothing lives outside."""
        seed = self.seed * 1_000_003 + len(study.get_trials(deepcopy=False))
        with _quietly():
            study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = study.ask()
        choice = Choice(
            trial.suggest_categorical("instruction", wordings),
            trial.suggest_categorical("demonstrations", list(range(demo_sets))),
            trial.suggest_categorical("debias", DEBIASING) if labeled else measured.student.debias,
            trial.suggest_categorical("calibration", CALIBRATIONS),
        )
        found = measured(choice)
        trial.set_user_attr(FOUND, found)
        values = [found["objective"], found["accuracy"], found["prompts"]] if labeled else [found["objective"]]
        if any(math.isnan(v) for v in values):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, values)


class _Measured:
    """Choices as judges, each measured once."""

    def __init__(
        self,
        settings: JudgeStudy,
        objective: Objective,
        student: PairwiseJudge,
        demos: list[list[dspy.Example]],
        pairs: list[dspy.Example],
        labeled: list[dspy.Example],
        lm: MeasuringLM,
    ) -> None:
        self.settings, self.objective, self.student, self.demos = settings, objective, student, demos
        self.pairs, self.labeled, self.lm = pairs, labeled, ChoiceMemo(lm)
        self.size = len(pairs[0].candidates)
        self._known: dict[Choice, dict[str, Any]] = {}

    def judge(self, choice: Choice) -> PairwiseJudge:
        """The student set up so."""
        one: PairwiseJudge = self.student.deepcopy()
        instruct(one, choice.instruction)
        one.predict.demos = list(self.demos[choice.demonstrations])
        one.debias, one.calibration = choice.debias, choice.calibration
        if choice.calibration == "batch":  # on the trainset alone: the valset must not see itself
            one.calibrate(self.pairs, lm=self.lm)
        return one

    def __call__(self, choice: Choice) -> dict[str, Any]:
        if choice not in self._known:
            self._known[choice] = self._measure(choice)
        return self._known[choice]

    def _measure(self, choice: Choice) -> dict[str, Any]:
        plain, whole = self.judge(replace(choice, debias=None)), self.judge(choice)
        answers = plain.batch(self.pairs, lm=self.lm, progress=self.settings.progress)
        probabilities = np.array([p.positions[0] for p in answers])
        documents = [input_key(e) for e in self.pairs]
        free = np.empty((0, probabilities.shape[1]))
        if self.objective.content_free:
            orders = rotations(self.size, every=False)
            found = plain.answer_logprobs([plain.content_free(self.size)], orders, self.lm)
            free = plain.aggregate(found, orders, None).positions[:, 0]
        judged = whole.batch(self.labeled, lm=self.lm, progress=self.settings.progress)
        right = np.array([preference_accuracy(e, p) for e, p in zip(self.labeled, judged, strict=True)])
        known = right[~np.isnan(right)]
        return {
            "choice": vars(choice),
            "objective": self.objective(Answers(probabilities, free, documents)),
            "accuracy": float(known.mean()) if len(known) else math.nan,
            "prompts": self.size if choice.debias == "permutation" else 1,
            "undefined": count_undefined(probabilities) + int(np.isnan(right).sum()),
        }


def _check(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example] | None) -> None:
    sizes = {len(e.candidates) for e in trainset}
    if len(sizes) != 1:
        raise ValueError(f"{len(trainset)} pairs with {sorted(sizes)} candidates: give pairs of one size.")
    if valset is None:
        return
    if not valset or any(e.get("preference") is None for e in valset):
        raise ValueError("The valset must hold labeled pairs: evalbias.data.pairing(..., criterion=NAME) makes them.")
    keys = {input_key(e) for e in trainset} & {input_key(e) for e in valset}
    both = keys | ({e.source for e in trainset} & {e.source for e in valset})
    if both:
        raise ValueError(f"{len(both)} inputs are in trainset and valset, among them {min(both)[:60]!r}: split them.")


def _finished(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))


def _failed(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.FAIL]))


def _report(study: optuna.Study, *, labeled: bool) -> StudyReport:
    done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    trials = tuple(_trial(t) for t in done)
    front = {t.number for t in study.best_trials}

    def rank(t: Trial) -> tuple[float, ...]:
        return (t.accuracy, t.objective, -t.prompts) if labeled else (t.objective,)

    best = max(trials, key=rank)
    return StudyReport(trials, tuple(t for t in trials if t.number in front), best, _failed(study), study.study_name)


def _trial(trial: optuna.trial.FrozenTrial) -> Trial:
    found = dict(trial.user_attrs[FOUND])
    return Trial(number=trial.number, choice=Choice(**found.pop("choice")), **found)


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna tells of every study on stderr; what a user wants to know is in the report."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
