"""Estimate people's mean score of all items from a judge's scores of all of them and people's scores of a few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import HUMAN_SCORES, Judged
from evalbias.evaluation.quality import is_rated_by_people, preferred
from evalbias.measures import corrected_mean, corrected_rate
from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.corrected import MIN_LABELS
from evalbias.measures.intervals import ConfidenceInterval
from evalbias.measures.resampling import aligned
from evalbias.measures.statistic import MeanStatistic, ShareStatistic, Statistic


class CorrectedEstimates:
    """Mean score, or one system's win rate over another, corrected by the items that people labeled.

    Estimates of a judge that scores: ``judge_mean`` (its mean score), ``people_mean`` (mean human score of the labeled
    items) and ``corrected_mean`` (mean human score of all items, see ``measures.corrected_mean``). Of a judge that
    compares outputs of two systems: the win rate of the system that comes first in the alphabet, ``judge_rate``,
    ``people_rate`` and ``corrected_mean``, and ``corrected_rate`` where the judge gives verdicts without ties
    (``measures.corrected_rate``). They are right if the labeled items are a random sample, as those of ``label_next``.

    Its headline has no null: it is not of a bias.
    """

    name = "corrected"
    headlines = ("corrected_mean",)
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        if not is_rated_by_people(judged) or (judged.pairwise and len(_systems(judged)) != 2):
            return False
        if not judged.pairwise and HUMAN_SCORES not in judged.covariates:
            return False
        known = int((~np.isnan(_people(judged))).sum())
        return MIN_LABELS <= known < len(judged.ids)

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        people, scores = _people(judged), _judge(judged)
        if not judged.pairwise:
            return {
                "judge_mean": Sample(scores, MeanStatistic(), "judge's mean", signed=False),
                "people_mean": Sample(people, MeanStatistic(), "people's mean", signed=False),
                "corrected_mean": Sample(scores, CorrectedStatistic(people), "corrected", signed=False, tested=False),
            }
        name = _systems(judged)[0]
        samples = {
            "judge_rate": Sample(scores, ShareStatistic(), f"{name} wins, judge", signed=False),
            "people_rate": Sample(people, ShareStatistic(), f"{name} wins, people", signed=False),
            "corrected_mean": Sample(
                scores, CorrectedStatistic(people), f"{name} wins, corrected", signed=False, tested=False
            ),
        }
        if np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all():
            rate = CorrectedStatistic(people, verdicts=True)
            label = f"{name} wins, by sensitivity and specificity"
            samples["corrected_rate"] = Sample(scores, rate, label, signed=False, tested=False)
        return samples


class CorrectedStatistic(Statistic):
    """Corrected mean, or rate, of what people say (n,), NaN where they said nothing; its interval is its own.

    Args:
        people: (n,) human scores or verdicts.
        verdicts: Whether to use sensitivity and specificity (``corrected_rate``).
    """

    def __init__(self, people: FloatArray, *, verdicts: bool = False) -> None:
        labeled = ~np.isnan(people)
        self.references = (np.where(labeled, people, 0.0), labeled.astype(np.float64))
        self._verdicts = verdicts

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        people, labeled = (np.broadcast_to(reference, scores.shape) for reference in references)
        rows = zip(scores, people, labeled == 1, strict=True)
        return np.array([self._corrected(*row).estimate for row in rows])

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the interval of ``corrected_mean`` or ``corrected_rate``."""
        column, people, labeled = aligned(scores, *self.references)
        return self._corrected(column, people, labeled == 1, clusters, confidence)

    def _corrected(
        self,
        scores: FloatArray,
        people: FloatArray,
        labeled: BoolArray,
        clusters: Sequence[object] | None = None,
        confidence: float = 0.95,
    ) -> ConfidenceInterval:
        arrays = scores[labeled], people[labeled], scores[~labeled]
        corrected = corrected_rate if self._verdicts else corrected_mean
        if clusters is None:
            return corrected(*arrays, confidence=confidence)
        first, second = ([clusters[int(i)] for i in np.flatnonzero(mask)] for mask in (labeled, ~labeled))
        return corrected(*arrays, labeled_clusters=first, unlabeled_clusters=second, confidence=confidence)


def _systems(judged: Judged) -> list[str]:
    """Return the two systems whose outputs are compared in every pair; empty where there are other pairs."""
    pairs = {tuple(sorted(pair)) for pair in np.asarray(judged.writers, dtype=str).reshape(-1, 2).tolist()}
    names = sorted(pairs.pop()) if len(pairs) == 1 else []
    return names if len(set(names)) == 2 else []


def _judge(judged: Judged) -> FloatArray:
    return _of_system(judged, judged.win_shares) if judged.pairwise else judged.answers


def _people(judged: Judged) -> FloatArray:
    return _of_system(judged, preferred(judged)) if judged.pairwise else judged.covariate(HUMAN_SCORES)


def _of_system(judged: Judged, first: FloatArray) -> FloatArray:
    """Turn (n,) numbers about the first candidate of each pair into those about one system's."""
    ours = np.asarray(judged.writers, dtype=str)[:, 0] == _systems(judged)[0]
    return np.where(ours, first, 1 - first)
