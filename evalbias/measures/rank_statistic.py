"""Rank correlations of a judge's scores, or of their unfairness scores: performance and BiasScore."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import SLACK, BoolArray, FloatArray, IntArray, ratio
from evalbias.measures.checks import common_index
from evalbias.measures.correlation_statistic import CorrelationStatistic
from evalbias.measures.likelihood import DECIMALS, NORMALIZATIONS, normalize, unfairness_rows
from evalbias.measures.mixture import Mixture
from evalbias.measures.ranks import counted_pearson, counted_ranks, rank_rows, spearman_rows
from evalbias.measures.resampling import aligned, drawn
from evalbias.measures.statistic import Swapping


class RankStatistic(CorrelationStatistic):
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
        self.references, self.index = tuple(aligned(*arrays)), common_index(*arrays)
        self._normalization = normalization

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """Compute rho of every row; see ``Statistic``."""
        if len(references) == 2:
            scores = unfairness_rows(scores, references[1], normalization=self._normalization)
        return spearman_rows(scores, references[0])

    def resampled(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """See ``Statistic``; items with equal scores are counted together, and US is sorted where its scale differs."""
        pairs, order, starts = _equal_pairs(scores, self.references[-1])
        held = np.add.reduceat(counts[:, order], starts, axis=1)  # (k, g) items of each resample with this pair
        if len(self.references) == 1:
            return counted_pearson(counted_ranks(pairs[:, 0], held), counted_ranks(pairs[:, 1], held), held)
        middle = (counts.sum(axis=1, keepdims=True) + 1) / 2  # mean rank
        reference = counted_ranks(self.references[0], counts) - middle  # (k, n)
        sums = np.add.reduceat((counts * reference)[:, order], starts, axis=1)  # (k, g)
        spread = (counts * reference**2).sum(axis=1)
        scales = np.stack([self._scales(x, held) for x in pairs.T], axis=1)  # (k, 2)
        values, usable = np.full(len(counts), np.nan), (scales > 0).all(axis=1)

        def correlate(us: FloatArray, rows: IntArray) -> None:
            ranks = counted_ranks(np.round(us, DECIMALS), held[rows]) - middle[rows]
            total = (held[rows] * ranks**2).sum(axis=1) * spread[rows]
            with np.errstate(invalid="ignore", divide="ignore"):
                rho = np.where(total > 0, (sums[rows] * ranks).sum(axis=1) / np.sqrt(total), np.nan)
            values[rows] = np.clip(rho, -1.0, 1.0)

        few, inverse = np.unique(scales, axis=0, return_inverse=True)
        if len(few) > len(counts) / 10:
            rows = np.flatnonzero(usable)
            correlate(pairs[:, 0] / scales[rows, :1] - pairs[:, 1] / scales[rows, 1:], rows)
            return values
        for index, (model, human) in enumerate(few):
            rows = np.flatnonzero(usable & (inverse.ravel() == index))
            if len(rows):
                correlate(pairs[:, 0] / model - pairs[:, 1] / human, rows)
        return values

    def _variance(self, scores: FloatArray, codes: IntArray, *, n_resamples: int, seed: int) -> float:
        """See ``CorrelationStatistic``; US of tied scores jumps, so leaving one item out tells nothing of it."""
        if len(self.references) == 1:
            return super()._variance(scores, codes, n_resamples=n_resamples, seed=seed)
        counts, units = drawn(codes, n_resamples, np.random.default_rng(seed)), int(codes.max()) + 1
        found = np.concatenate([self.resampled(scores, some) for some in counts])
        return float(np.nanvar(found)) * units / (units - 1)  # resamples vary that much too little

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
        spread = (counts * (x - mean[:, None]) ** 2).sum(axis=1) / counts.sum(axis=1)
        return np.asarray(np.where(constant, 0.0, np.sqrt(spread)))

    def swapping(self, a: FloatArray, b: FloatArray) -> Swapping:
        """See ``Statistic``; what is swapped are z-scores, of each judge's ranks, its scores or its US.

        Scores themselves are exchangeable only between judges that use the scale alike. Where one scores a standard
        deviation higher throughout, a mixture of both has a lower rho than either, and a test at 5 % rejects 0 to 2 %
        of equal judges.
        """
        if len(self.references) == 1:
            return self._swapping_ranks(a, b)
        if self._normalization == "z-score":
            first, second = (unfairness_rows(x, self.references[1], normalization="z-score") for x in (a, b))
            mixed = Mixture(first, second, self._reference_ranks())
            return lambda swap: (mixed(swap), mixed(~swap))
        a, b = normalize(a, "z-score"), normalize(b, "z-score")
        return self._swapping_ranges(a, b) if self._normalization == "mean-range" else super().swapping(a, b)

    def _swapping_ranks(self, a: FloatArray, b: FloatArray) -> Swapping:
        """Swap ranks; a mixture is not ranked again, which would order equal scores by the judge who gave them."""
        reference = _z_ranks(self.references[0])
        own = [_z_ranks(scores) for scores in (a, b)]
        first, second = (np.column_stack([z, z**2, z * reference]) for z in own)

        def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
            moved = swap @ (second - first)  # (k, 3)
            return _rho(first.sum(axis=0) + moved, len(a)), _rho(second.sum(axis=0) - moved, len(a))

        return swapped

    def _swapping_ranges(self, a: FloatArray, b: FloatArray) -> Swapping:
        """Swap scores of which each row has a range of its own; the rows of one range are one mixture."""
        human, reference = normalize(self.references[1], "mean-range"), self._reference_ranks()

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

    def _reference_ranks(self) -> FloatArray:
        return np.asarray(rank_rows(self.references[0][None])[0])


def _z_ranks(x: FloatArray) -> FloatArray:
    """Return the z-scores of the ranks of (n,) values; NaN where all are equal."""
    return normalize(rank_rows(x[None])[0], "z-score")


def _rho(sums: FloatArray, n: int) -> FloatArray:
    """Return the correlations of rows of n z-scores with others, from (k, 3) sums of values, squares and products.

    NaN for a row that is constant but for rounding errors.
    """
    total, squares, products = sums.T
    spread = n * squares - total**2
    return ratio(products, np.sqrt(np.where(spread > SLACK * (1 + n * squares), spread, 0.0)))


def _equal_pairs(x: FloatArray, y: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the different pairs (g, 2), the items sorted by their pair (n,), and where each pair starts (g,)."""
    pairs, codes = np.unique(np.stack([x, y], axis=1), axis=0, return_inverse=True)
    order = np.argsort(codes.ravel(), kind="stable")
    return pairs, order, np.flatnonzero(np.diff(codes.ravel()[order], prepend=np.nan))


def performance_statistic(human_scores: ArrayLike) -> RankStatistic:
    """Evaluation performance, rho(Score_m, Score_h), as a statistic of Score_m (Ohi et al. 2024)."""
    return RankStatistic(human_scores)


def bias_score_statistic(
    likelihoods: ArrayLike, human_scores: ArrayLike, *, normalization: str = "mean-range"
) -> RankStatistic:
    """BiasScore, rho(LS, US), as a statistic of Score_m; US is normalized for every resample (Ohi et al., eq 5)."""
    return RankStatistic(likelihoods, human_scores, normalization=normalization)
