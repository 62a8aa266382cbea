"""Likelihood bias: BiasScore, US, RS, and their rank statistics."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.agreement import counted_pearson, counted_ranks, rank_rows, spearman_rows
from evalbias.measures.arrays import (
    SLACK,
    BoolArray,
    FloatArray,
    IntArray,
    common_index,
    defined,
    ratio,
    settled,
    vectors,
)
from evalbias.measures.mixture import Mixture
from evalbias.measures.resample import CorrelationStatistic, Swapping, aligned, drawn

# Likelihood bias: the tendency of a judge to overrate likely text (Ohi et al., Findings of ACL 2024).
#
# LS, the likelihood score, is the log-likelihood of an output (eq 1). US, the unfairness score, is the judge's score
# minus the human score after both are normalized (eq 2). BiasScore is the rank correlation of LS and US (eq 5): 1 means
# that the judge overrates likely outputs and underrates unlikely ones, 0 that its errors are unrelated to likelihood,
# -1 the opposite bias. BiasScore does not say how large the errors are.


TOTAL = "total"
NORMALIZATIONS = ("mean-range", "center-max", "z-score")
DECIMALS = 12
"""Decimal places to which US is rounded, so that values that differ only by floating-point error are tied."""


@dataclass(frozen=True)
class LikelihoodBias:
    """Likelihood bias and evaluation performance of a judge on one criterion.

    Attributes:
        bias_score: Spearman's rho of LS and US, in [-1, 1]; NaN if either is constant.
        performance: Spearman's rho of model and human scores, in [-1, 1]; NaN if either is constant.
        n: Number of items used.
        undefined: Number of items left out because their likelihood or a score is NaN.
    """

    bias_score: float
    performance: float
    n: int
    undefined: int


def normalize(scores: FloatArray, normalization: str) -> FloatArray:
    """Rescale scores to a common range; NaN stays NaN, and scores that are constant up to rounding become NaN.

    Args:
        scores: (n,) scores on any scale, or (k, n) rows that are rescaled one by one.
        normalization: ``"mean-range"`` (mean 0, range 1), ``"center-max"`` (mean 0, largest magnitude 1) or
            ``"z-score"`` (mean 0, standard deviation 1).

    Returns:
        Rescaled scores of the same shape.

    Raises:
        ValueError: Unknown normalization.

    Examples:
        >>> normalize(np.array([0.0, 30.0, 60.0, 90.0]), "mean-range").round(2).tolist()
        [-0.5, -0.17, 0.17, 0.5]
        >>> normalize(np.array([-1.0, 1.0, -1.0, 1.0]) * 7, "z-score").tolist()
        [-1.0, 1.0, -1.0, 1.0]
    """
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization={normalization!r} is unknown; choose one of {NORMALIZATIONS}.")
    scores, known = settled(scores), ~np.isnan(scores)
    count = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    lowest = np.fmin.reduce(scores, axis=-1, keepdims=True, initial=np.nan)  # fmin leaves NaN out
    highest = np.fmax.reduce(scores, axis=-1, keepdims=True, initial=np.nan)
    mean = np.where(known, scores, 0.0).sum(axis=-1, keepdims=True) / count
    centered = scores - mean
    if normalization == "mean-range":
        scale = highest - lowest
    elif normalization == "center-max":
        scale = np.maximum(highest - mean, mean - lowest)
    else:
        scale = np.sqrt(np.where(known, centered**2, 0.0).sum(axis=-1, keepdims=True) / count)
    return np.asarray(np.divide(centered, scale, out=np.full(scores.shape, np.nan), where=highest > lowest))


def unfairness_scores(
    model_scores: ArrayLike, human_scores: ArrayLike, *, normalization: str = "mean-range"
) -> FloatArray:
    """Compute US, the normalized model score minus the normalized human score (Ohi et al. 2024, eq 2).

    An item with one undefined score is left out of both normalizations. The range depends on the extremes of the
    sample and grows with n, so US of the same item, and BiasScore, differ between small and large samples of one judge:
    the mean BiasScore of a simulated judge whose likelihood effect is .3 is .09 at n = 30, .00 at 120, -.09 at 568 and
    -.16 at 3000. The standard deviation does not grow: with ``"z-score"`` it is .16 or .17. Both are negative (-.19 to
    -.33, and -.15 to -.16) for a judge without an effect, because the ratings that stand for quality are noisy
    (``benchmarks/statistical_truth``).

    Args:
        model_scores: (n,) Score_m on any scale.
        human_scores: (n,) Score_h on any scale.
        normalization: See ``normalize``. ``"mean-range"`` is eq 2: both scores get the same mean and range. The paper's
            code subtracts scores on [0, 1] for BiasScore, which shifts every US by the same number and leaves ranks and
            RS as they are, and uses ``"center-max"`` for RS, which changes them. ``"z-score"`` is not in the paper.

    Returns:
        (n,) US with mean 0, in [-2, 2] except for ``"z-score"``, positive where the judge overrates. NaN where a score
        is NaN, and everywhere if either set of scores is constant.

    Raises:
        ValueError: The lengths differ, a score is infinite, or the normalization is unknown.

    Examples:
        >>> unfairness_scores([1, 3, 5], [0, 100, 100]).round(2).tolist()
        [0.17, -0.33, 0.17]
    """
    model, human = vectors(model_scores=model_scores, human_scores=human_scores)
    return unfairness_rows(model, human, normalization=normalization)


def unfairness_rows(model: FloatArray, human: FloatArray, *, normalization: str) -> FloatArray:
    """Compute US of k systems or resamples at once; see ``unfairness_scores``.

    Args:
        model: (k, n) or (n,) Score_m.
        human: Score_h, of the same shape or (1, n).
        normalization: See ``normalize``.
    """
    undefined = np.isnan(model) | np.isnan(human)
    model, human = np.where(undefined, np.nan, model), np.where(undefined, np.nan, human)
    return np.asarray(np.round(normalize(model, normalization) - normalize(human, normalization), DECIMALS))


def bias_score(likelihoods: ArrayLike, unfairness: ArrayLike) -> float:
    """Compute BiasScore, Spearman's rho of LS and US (Ohi et al. 2024, eq 5).

    Args:
        likelihoods: (n,) LS in nats; items with a NaN are left out.
        unfairness: (n,) US from ``unfairness_scores``.

    Returns:
        BiasScore in [-1, 1]; NaN if LS or US is constant or fewer than two items are defined.

    Raises:
        ValueError: The lengths differ, or a number is infinite.

    Examples:
        >>> bias_score([-9, -5, -1], [-0.3, 0.0, 0.2])
        1.0
    """
    return _rho(*vectors(likelihoods=likelihoods, unfairness=unfairness))


def rs_scores(likelihoods: ArrayLike, unfairness: ArrayLike) -> FloatArray:
    """Compute RS, ``|LS* + US*|``, each centered and divided by its largest magnitude (Ohi et al. 2024, eq 6).

    Args:
        likelihoods: (n,) LS in nats.
        unfairness: (n,) US from ``unfairness_scores``.

    Returns:
        (n,) RS in [0, 2], high where a likely output is overrated or an unlikely one underrated. NaN where LS or US is
        NaN, and everywhere if either is constant.

    Raises:
        ValueError: The lengths differ, or a number is infinite.

    Examples:
        >>> rs_scores([-2, 0, 2], [-1, 0, 1]).tolist()
        [2.0, 0.0, 2.0]
    """
    ls, us = vectors(likelihoods=likelihoods, unfairness=unfairness)
    kept = defined(ls, us)
    ls, us = np.where(kept, ls, np.nan), np.where(kept, us, np.nan)
    return np.asarray(np.abs(normalize(ls, "center-max") + normalize(us, "center-max")))


@overload
def likelihood_bias(
    likelihoods: ArrayLike, model_scores: ArrayLike, human_scores: ArrayLike, *, normalization: str = ...
) -> LikelihoodBias: ...


@overload
def likelihood_bias(
    likelihoods: ArrayLike,
    model_scores: Mapping[str, ArrayLike],
    human_scores: Mapping[str, ArrayLike],
    *,
    normalization: str = ...,
) -> dict[str, LikelihoodBias]: ...


def likelihood_bias(
    likelihoods: ArrayLike,
    model_scores: ArrayLike | Mapping[str, ArrayLike],
    human_scores: ArrayLike | Mapping[str, ArrayLike],
    *,
    normalization: str = "mean-range",
) -> LikelihoodBias | dict[str, LikelihoodBias]:
    """Compute BiasScore and evaluation performance, for one criterion or for each of several.

    Args:
        likelihoods: (n,) LS in nats.
        model_scores: (n,) Score_m on any scale, or criterion -> (n,).
        human_scores: (n,) Score_h on any scale, or criterion -> (n,) for the same criteria.
        normalization: Normalization of the scores whose difference is US; see ``unfairness_scores``.

    Returns:
        The result for one criterion, or criterion -> result with ``"total"`` added. The total averages the scores over
        the criteria and then applies the formulas (Ohi et al. 2024, table 1), so it is not the mean of the
        BiasScores. An item that is undefined on one criterion is undefined in the total.

    Raises:
        ValueError: The lengths or criteria differ, a number is infinite, a criterion is called ``"total"``, or only one
            side's scores are by criterion.

    Examples:
        >>> likelihood_bias([-9, -5, -1], [2, 3, 5], [50, 60, 70])
        LikelihoodBias(bias_score=0.0, performance=1.0, n=3, undefined=0)
    """
    if not isinstance(model_scores, Mapping) and not isinstance(human_scores, Mapping):
        return _measure(likelihoods, model_scores, human_scores, normalization)
    if not (isinstance(model_scores, Mapping) and isinstance(human_scores, Mapping)):
        raise ValueError("Scores of one side are by criterion, those of the other are not: give both in the same form.")
    if model_scores.keys() != human_scores.keys() or not model_scores or TOTAL in model_scores:
        raise ValueError(
            f"The model scores have the criteria {list(model_scores)}, the human scores {list(human_scores)}; "
            f"give the same criteria, at least one, and none called {TOTAL!r}."
        )
    by_criterion = {c: _measure(likelihoods, model_scores[c], human_scores[c], normalization) for c in model_scores}
    model, human = (np.mean(vectors(**s), axis=0) for s in (model_scores, human_scores))
    return {**by_criterion, TOTAL: _measure(likelihoods, model, human, normalization)}


def _measure(likelihoods: ArrayLike, model: ArrayLike, human: ArrayLike, normalization: str) -> LikelihoodBias:
    ls, m, h = vectors(likelihoods=likelihoods, model_scores=model, human_scores=human)
    kept = defined(ls, m, h)
    ls, m, h = ls[kept], m[kept], h[kept]
    unfairness = unfairness_scores(m, h, normalization=normalization)
    return LikelihoodBias(_rho(ls, unfairness), _rho(m, h), int(kept.sum()), int((~kept).sum()))


def _rho(x: FloatArray, y: FloatArray) -> float:
    kept = defined(x, y)
    if kept.sum() < 2:
        return float("nan")
    return float(spearman_rows(x[kept][None], y[kept][None])[0])


# Rank correlations of a judge's scores, or of their unfairness scores: performance and BiasScore.


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
            return _rho_of_ranks(first.sum(axis=0) + moved, len(a)), _rho_of_ranks(second.sum(axis=0) - moved, len(a))

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


def _rho_of_ranks(sums: FloatArray, n: int) -> FloatArray:
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
