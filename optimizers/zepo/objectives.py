"""What makes one instruction better than another, without labels. Higher is better for every objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from evalbias.lm.types import FloatArray
from evalbias.measures import calibration_gap, confidence, fairness, score_uniformity


@dataclass(frozen=True)
class Answers:
    """What a judge answered under one instruction.

    Attributes:
        probabilities: (n, c) by position, of a pointwise judge by label, ascending; NaN where undefined.
        content_free: (1, c) the same for a content-free input; (0, c) where the objective does not ask for it.
        documents: (n,) which input each answer is about.
    """

    probabilities: FloatArray
    content_free: FloatArray
    documents: Sequence[str]


class Objective(Protocol):
    """A number for an instruction. Higher is better; NaN if nothing is defined, and never accepted then.

    Attributes:
        name: For reports.
        content_free: Whether it needs the answer to a content-free input.
    """

    name: str
    content_free: bool

    def __call__(self, answers: Answers) -> float:
        """The number."""
        ...


class Fairness:
    """The paper's: minus the distance of the decision rates from a prior, in [-2, 0].

    Args:
        prior: (c,) how often each class should win; by default all alike.
        ties: Whether the last class is the answer "tie"; see ``evalbias.measures.fairness``.
        by_document: Average the decision rates over the documents, as the published code does, in place of all pairs.
    """

    content_free = False

    def __init__(self, prior: ArrayLike | None = None, *, ties: bool = False, by_document: bool = False) -> None:
        self.prior = prior
        self.ties = ties
        self.by_document = by_document
        self.name = "fairness by document" if by_document else "fairness"

    def __call__(self, answers: Answers) -> float:
        """Of the answers to the pairs."""
        groups = answers.documents if self.by_document else None
        return fairness(answers.probabilities, prior=self.prior, groups=groups, ties=self.ties)


class Confidence:
    """How sure the judge is: mean negative entropy, in [-log c, 0]."""

    name = "confidence"
    content_free = False

    def __call__(self, answers: Answers) -> float:
        """Of the answers to the pairs."""
        return confidence(answers.probabilities)


class ContextFreeConfidence:
    """How unsure the judge is where there is nothing to judge: the entropy on a content-free input, in [0, log c]."""

    name = "context-free confidence"
    content_free = True

    def __call__(self, answers: Answers) -> float:
        """Of the content-free answer."""
        return -confidence(answers.content_free)


class CalibrationGap:
    """How close the positions' mean log-probabilities lie: minus the gap, at most 0."""

    name = "calibration"
    content_free = False

    def __call__(self, answers: Answers) -> float:
        """Of the answers to the pairs; one that is certain has no finite gap and is left out."""
        with np.errstate(divide="ignore"):
            logprobs = np.log(answers.probabilities)
        logprobs[np.isinf(logprobs).any(axis=1)] = np.nan
        return -calibration_gap(logprobs)


class ScoreUniformity:
    """How evenly a pointwise judge's expected scores fill its scale, in [-.5, 0]: ours, not the paper's."""

    name = "score uniformity"
    content_free = False

    def __call__(self, answers: Answers) -> float:
        """Of the scores of the items; see ``evalbias.measures.score_uniformity``."""
        levels = np.linspace(0.0, 1.0, answers.probabilities.shape[1])
        return score_uniformity(np.clip(answers.probabilities @ levels, 0.0, 1.0), low=0.0, high=1.0)
