"""Objectives of an instruction search, without labels. Higher is better for every one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.estimates import estimate_value
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.measurement import Bias
from evalbias.measures import calibration_gap, confidence, fairness, score_uniformity
from evalbias.measures.arrays import FloatArray
from evalbias.measures.decision_statistics import FairnessStatistic
from evalbias.measures.preference import decision_shares, negative_entropies
from evalbias.measures.resampling import aligned, defined_items
from evalbias.measures.statistic import MeanStatistic, Statistic

DISTRIBUTIONS = "distributions"
"""Covariate of a pointwise judge's answers: (n, c) probabilities of the labels, ascending."""


class Objective(Protocol):
    """A number for the answers under one instruction: higher is better, NaN if undefined, and then never accepted.

    An objective may also have a method ``resampled(judged, counts)``, which returns its value in each of k resamples,
    (k,), given how often each holds each item, (k, n). Racing is then faster.

    Attributes:
        name: Name in reports.
        content_free: Whether it needs the answer to a content-free input.
    """

    name: str
    content_free: bool

    def __call__(self, judged: Judged) -> float:
        """Return the objective of the answers."""
        ...


class Fairness:
    """Minus the distance of the decision rates from a prior, in [-2, 0] (the paper's objective).

    Args:
        prior: (c,) rate at which each class should win. Defaults to the uniform distribution over the positions.
        by_document: Average the decision rates over the documents, as the published code does, instead of all pairs.
    """

    content_free = False

    def __init__(self, prior: ArrayLike | None = None, *, by_document: bool = False) -> None:
        self.prior = prior
        self.by_document = by_document
        self.name = "fairness by document" if by_document else "fairness"

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        groups = judged.inputs if self.by_document else None
        return fairness(_probabilities(judged), prior=self.prior, groups=groups, ties=judged.ties)

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        if self.by_document:
            return one_by_one(self, judged, counts)
        statistic = FairnessStatistic(self.prior, ties=judged.ties)
        return _resampled(statistic, decision_shares(_probabilities(judged)), counts)


class Confidence:
    """Mean negative entropy of the answers, in [-log c, 0]."""

    name = "confidence"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        return confidence(_probabilities(judged))

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        return _resampled(MeanStatistic(), negative_entropies(_probabilities(judged)), counts)


class ContextFreeConfidence:
    """Entropy of the answer to a content-free input, in [0, log c]: unsure where there is nothing to judge."""

    name = "context-free confidence"
    content_free = True

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``.

        Raises:
            ValueError: The content-free input was not asked.
        """
        if judged.content_free is None:
            raise ValueError("The context-free confidence needs the answer to a content-free input.")
        return -confidence(judged.content_free)


class CalibrationGap:
    """Minus the gap between the positions' mean log-probabilities, at most 0."""

    name = "calibration"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``; an answer that is certain has no finite gap and is left out."""
        with np.errstate(divide="ignore"):
            logprobs = np.log(_probabilities(judged))
        logprobs[np.isinf(logprobs).any(axis=1)] = np.nan
        return -calibration_gap(logprobs)


class ScoreUniformity:
    """Evenness with which a pointwise judge's expected scores fill its scale, in [-.5, 0]: ours, not the paper's."""

    name = "score uniformity"
    content_free = False

    def __call__(self, judged: Judged) -> float:
        """See ``Objective`` and ``evalbias.measures.score_uniformity``."""
        distributions = judged.covariate(DISTRIBUTIONS)
        levels = np.linspace(0.0, 1.0, distributions.shape[1])
        return score_uniformity(np.clip(distributions @ levels, 0.0, 1.0), low=0.0, high=1.0)


class BiasObjective:
    """Minus the distance of a registered bias from the value of an unbiased judge.

    Args:
        bias: A bias of ``evalbias.evaluation.BIASES`` with an objective, such as ``BIASES["verbosity"]``.

    Raises:
        ValueError: The bias has no objective.
    """

    content_free = False

    def __init__(self, bias: Bias) -> None:
        if bias.objective is None:
            raise ValueError(f"The bias {bias.name!r} has no objective: choose another.")
        self.bias = bias
        self.name = bias.name

    def __call__(self, judged: Judged) -> float:
        """See ``Objective``."""
        sample = self.bias.samples(judged)[str(self.bias.objective)]
        return -abs(estimate_value(sample) - float(sample.null or 0.0))

    def resampled(self, judged: Judged, counts: FloatArray) -> FloatArray:
        """See ``Objective``."""
        sample = self.bias.samples(judged)[str(self.bias.objective)]
        return -np.abs(_resampled(sample.statistic, sample.values, counts) - float(sample.null or 0.0))


def one_by_one(objective: Objective, judged: Judged, counts: FloatArray) -> FloatArray:
    """Return any objective's values in resamples, (k,), one resample after the other; see ``Objective``."""
    items = np.arange(counts.shape[1])
    return np.array([objective(judged.take(np.repeat(items, row))) for row in counts.astype(np.int64)])


def _resampled(statistic: Statistic, values: FloatArray, counts: FloatArray) -> FloatArray:
    """Return a statistic's values in resamples, (k,), over the items that define it; NaN without any."""
    kept = defined_items(*aligned(values, *statistic.references))
    found = np.full(len(counts), np.nan)
    some = counts[:, kept].any(axis=1)
    if some.any():
        found[some] = statistic.keep(kept).resampled(values[kept], counts[np.ix_(some, kept)])
    return found


def _probabilities(judged: Judged) -> FloatArray:
    """Return (n, c) probabilities in the order given."""
    return judged.answers[:, 0] if judged.pairwise else judged.covariate(DISTRIBUTIONS)
