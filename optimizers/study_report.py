"""Report of a study: its trials, and the one that was taken."""

from __future__ import annotations

from dataclasses import dataclass

from evalbias.optimizers.compile_report import CompileReport


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
