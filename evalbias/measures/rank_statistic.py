"""Rank correlations of a judge's scores, or of their unfairness scores: performance and BiasScore."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.likelihood import DECIMALS, NORMALIZATIONS, normalize, unfairness_rows
from evalbias.measures.mixture import Mixture
from evalbias.measures.ranks import counted_pearson, counted_ranks, rank_rows, spearman_rows
from evalbias.measures.statistic import Statistic, Swapping


class RankStatistic(Statistic):
    """Spearman's rho of the scores, or of their unfairness scores, with a reference.

    Args:
        reference: (n,) values that the scores are correlated with.
        human_scores: (n,) Score_h, from which US is computed; None correlates the scores themselves.
        normalization: Normalization of the scores whose difference is US; see ``unfairness_scores``.

    Raises:
        ValueError: Unknown normalization.
    """

    def __init__(
        self, reference: ArrayLike, human_scores: ArrayLike | None = None, *, normalization: str = "mean-range"
    ) -> None:
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization={normalization!r} is unknown; choose one of {NORMALIZATIONS}.")
        arrays = [reference] if human_scores is None else [reference, human_scores]
        self.references = tuple(np.asarray(array, dtype=np.float64) for array in arrays)
        self._normalization = normalization

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute rho of every row; see ``Statistic``."""
        if len(references) == 2:
            scores = unfairness_rows(scores, references[1], normalization=self._normalization)
        return spearman_rows(scores, references[0])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``; only US whose scale is every resample's own is sorted anew."""
        if len(self.references) == 1:
            return counted_pearson(counted_ranks(scores, counts), counted_ranks(self.references[0], counts), counts)
        model, human = (self._scales(x, counts) for x in (scores, self.references[1]))  # (k,)
        reference, values = counted_ranks(self.references[0], counts), np.full(len(counts), np.nan)
        pairs, inverse = np.unique(np.stack([model, human], axis=1), axis=0, return_inverse=True)
        usable = (model > 0) & (human > 0)
        if len(pairs) > len(counts) / 10:
            rows = np.flatnonzero(usable)
            us = np.round(scores / model[rows, None] - self.references[1] / human[rows, None], DECIMALS)
            values[rows] = counted_pearson(counted_ranks(us, counts[rows]), reference[rows], counts[rows])
            return values
        for index, (of_model, of_human) in enumerate(pairs):
            rows = np.flatnonzero(usable & (inverse.ravel() == index))
            if len(rows):
                us = np.round(scores / of_model - self.references[1] / of_human, DECIMALS)
                values[rows] = counted_pearson(counted_ranks(us, counts[rows]), reference[rows], counts[rows])
        return values

    def _scales(self, x: FloatArray, counts: FloatArray) -> FloatArray:
        """Return the number that each resample's scores are divided by, (k,); a common shift of US moves no rank."""
        held = np.where(counts > 0, x, np.nan)
        if self._normalization == "mean-range":
            return np.asarray(np.fmax.reduce(held, axis=1) - np.fmin.reduce(held, axis=1))
        mean = counts @ x / counts.sum(axis=1)
        centered = held - mean[:, None]
        if self._normalization == "center-max":
            return np.asarray(np.fmax.reduce(np.abs(centered), axis=1))
        constant = np.fmax.reduce(held, axis=1) == np.fmin.reduce(held, axis=1)
        spread = np.where(counts > 0, counts * (x - mean[:, None]) ** 2, 0.0).sum(axis=1) / counts.sum(axis=1)
        return np.asarray(np.where(constant, 0.0, np.sqrt(spread)))

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; ranges and largest magnitudes are those of every row, z-scores those of either judge.

        A row has one of few ranges, and the rows of one range are one mixture. A row's standard deviation is its own,
        so z-scores are swapped instead of scores: then judges that differ in nothing but their scale are exchangeable.
        """
        reference = rank_rows(self.references[0][None])[0]
        if len(self.references) == 2 and self._normalization == "center-max":
            return super().swapping(a, b)
        if len(self.references) == 2 and self._normalization == "z-score":
            a, b = (unfairness_rows(x, self.references[1], normalization="z-score") for x in (a, b))
        if len(self.references) == 1 or self._normalization == "z-score":
            mixed = Mixture(a, b, reference)
            return lambda swap: (mixed(swap), mixed(~swap))
        human = normalize(self.references[1], "mean-range")

        @functools.lru_cache(maxsize=64)
        def mixture(width: float) -> Mixture:
            first, second = (np.round(x / width - human, DECIMALS) for x in (a, b))  # a row's mean moves no rank
            return Mixture(first, second, reference)

        def rho(swap: BoolArray) -> FloatArray:
            values = np.full(len(swap), np.nan)
            widths, inverse = np.unique(np.ptp(np.where(swap, b, a), axis=1), return_inverse=True)
            for index, width in enumerate(widths):
                if width > 0 and not np.isnan(human).any():
                    group = inverse == index
                    values[group] = mixture(width)(swap[group])
            return values

        return lambda swap: (rho(swap), rho(~swap))


def performance_statistic(human_scores: ArrayLike) -> RankStatistic:
    """Evaluation performance, rho(Score_m, Score_h), as a statistic of Score_m (Ohi et al. 2024)."""
    return RankStatistic(human_scores)


def bias_score_statistic(
    likelihoods: ArrayLike, human_scores: ArrayLike, *, normalization: str = "mean-range"
) -> RankStatistic:
    """BiasScore, rho(LS, US), as a statistic of Score_m; US is normalized for every resample (Ohi et al., eq 5)."""
    return RankStatistic(likelihoods, human_scores, normalization=normalization)
