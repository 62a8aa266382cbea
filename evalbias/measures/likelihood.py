"""Likelihood bias of Ohi et al. (2024): LS, US, BiasScore and RS, with BiasScore's interval and test."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evalbias.measures.agreement import counted_ranks, spearman
from evalbias.measures.arrays import BoolArray, FloatArray, defined, ratio, settled, vectors
from evalbias.measures.resample import Interval, Swapped, counted_swaps, estimate_coefficient

# Likelihood bias: a judge overrates likely text (Ohi et al., Findings of ACL 2024). LS, the likelihood score, is the
# log-likelihood of an output (eq 1). US, the unfairness score, is the judge's score less the human score after both are
# normalized (eq 2). BiasScore is the rank correlation of LS and US (eq 5), in [-1, 1]: above 0, the judge overrates
# likely outputs and underrates unlikely ones. It does not say how large the errors are.

TOTAL = "total"  # name of the mean over several criteria, whose scores are averaged before the formulas apply (table 1)
NORMALIZATIONS = ("mean-range", "center-max", "z-score")
DECIMALS = 12  # decimal places to which US is rounded, so that values that differ only by floating-point error are tied


def normalize(scores: FloatArray, normalization: str) -> FloatArray:
    """Rescale scores (n,) to a common range; NaN stays NaN, and scores that are constant up to rounding become NaN.

    All have mean 0; ``"mean-range"`` range 1, ``"center-max"`` largest magnitude 1, ``"z-score"`` standard deviation 1.

    Examples:
        >>> normalize(np.array([0.0, 30.0, 60.0, 90.0]), "mean-range").round(2).tolist()
        [-0.5, -0.17, 0.17, 0.5]
    """
    _check(normalization)
    scores = settled(scores)
    values = scores[~np.isnan(scores)]
    if not len(values) or np.ptp(values) == 0:
        return np.full(len(scores), np.nan)
    centered = scores - values.mean()
    if normalization == "mean-range":
        return np.asarray(centered / np.ptp(values))
    return np.asarray(centered / (np.nanmax(np.abs(centered)) if normalization == "center-max" else values.std()))


def _check(normalization: str) -> None:
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization={normalization!r} is unknown; choose one of {NORMALIZATIONS}.")


def unfairness_scores(
    model_scores: ArrayLike, human_scores: ArrayLike, *, normalization: str = "mean-range"
) -> FloatArray:
    """Compute US, the normalized model score minus the normalized human score, (n,) each (Ohi et al. 2024, eq 2).

    US (n,) has mean 0, lies in [-2, 2] except for ``"z-score"``, and is positive where the judge overrates. It is NaN
    where a score is, and everywhere if either set of scores is constant. ValueError for an unknown normalization.

    ``"mean-range"`` (``normalize``) is eq 2. The paper's code subtracts scores on [0, 1] for BiasScore, which leaves
    ranks and RS as they are, and uses ``"center-max"`` for RS. Both depend on the extremes of the sample: for a
    likelihood effect of .3, the mean of BiasScore is .09 at n = 30 and -.16 at 3000. ``"z-score"`` is ours and stays at
    .16 or .17 (``benchmarks/statistical_truth``). All are negative for an unbiased judge, because ratings are noisy.

    Examples:
        >>> unfairness_scores([1, 3, 5], [0, 100, 100]).round(2).tolist()
        [0.17, -0.33, 0.17]
    """
    model, human = vectors(model_scores=model_scores, human_scores=human_scores)
    undefined = ~defined(model, human)
    model, human = (normalize(np.where(undefined, np.nan, x), normalization) for x in (model, human))
    return np.asarray(np.round(model - human, DECIMALS))


def bias_score(likelihoods: ArrayLike, unfairness: ArrayLike) -> float:
    """Compute BiasScore, Spearman's rho of LS (n,) in nats and US (n,) (Ohi et al. 2024, eq 5).

    Items with a NaN are left out; NaN if LS or US is constant.

    Examples:
        >>> bias_score([-9, -5, -1], [-0.3, 0.0, 0.2])
        1.0
    """
    return spearman(likelihoods, unfairness).value


def rs_scores(likelihoods: ArrayLike, unfairness: ArrayLike) -> FloatArray:
    """Compute RS, ``|LS* + US*|``, each centered and divided by its largest magnitude (Ohi et al. 2024, eq 6).

    Of LS (n,) in nats and US (n,), RS (n,) is in [0, 2], high where a likely output is overrated or an unlikely one
    underrated. NaN where LS or US is NaN, and everywhere if either is constant.

    Examples:
        >>> rs_scores([-2, 0, 2], [-1, 0, 1]).tolist()
        [2.0, 0.0, 2.0]
    """
    ls, us = vectors(likelihoods=likelihoods, unfairness=unfairness)
    kept = defined(ls, us)
    ls, us = np.where(kept, ls, np.nan), np.where(kept, us, np.nan)
    return np.asarray(np.abs(normalize(ls, "center-max") + normalize(us, "center-max")))


# BiasScore as a statistic of a judge's scores, with its interval and its test.


def counted_bias_score(
    counts: FloatArray,
    scores: FloatArray,
    likelihoods: FloatArray,
    human: FloatArray,
    *,
    normalization: str = "mean-range",
) -> FloatArray:
    """Compute BiasScore, rho(LS, US), in resamples (k, n) of items (n,); US is normalized in every resample (eq 5)."""
    # 1 items with equal scores have equal US, so they are counted together
    pairs, codes = np.unique(np.stack([scores, human], axis=1), axis=0, return_inverse=True)  # (g, 2)
    order = np.argsort(codes.ravel(), kind="stable")
    starts = np.flatnonzero(np.diff(codes.ravel()[order], prepend=np.nan))  # (g,)
    middle = (counts.sum(axis=1, keepdims=True) + 1) / 2  # mean rank
    reference = counted_ranks(counts, likelihoods) - middle  # (k, n)
    held, sums = (np.add.reduceat(part[:, order], starts, axis=1) for part in (counts, counts * reference))  # (k, g)
    spread = (counts * reference**2).sum(axis=1)
    # 2 US of every resample: a common shift moves no rank, and a small US rounds less
    pairs = pairs - pairs.mean(axis=0)
    model, people = (_scales(held, x, normalization) for x in pairs.T)  # (k, 1)
    us = np.round(pairs[:, 0] / model - pairs[:, 1] / people, DECIMALS)  # (k, g), NaN where a side is constant
    # 3 equal US of a resample share their mean rank; ranks are counted through all resamples, one after the other
    ascending = np.argsort(us, axis=1)
    us, held, sums = (np.take_along_axis(part, ascending, axis=1) for part in (us, held, sums))
    starts = np.flatnonzero(np.diff(us, axis=1, prepend=-np.inf).ravel() != 0)
    rows = starts // us.shape[1]
    held, sums = (np.add.reduceat(part.ravel(), starts) for part in (held, sums))
    before = counts.sum(axis=1).cumsum() - counts.sum(axis=1)  # of earlier resamples
    ranks = held.cumsum() - (held - 1) / 2 - (before + middle[:, 0])[rows]
    covariance, square = (np.bincount(rows, x * ranks).astype(np.float64) for x in (sums, held * ranks))
    correlations = np.clip(ratio(covariance, np.sqrt(square * spread)), -1.0, 1.0)
    return np.where(np.isnan(us[:, -1]), np.nan, correlations)


def _scales(counts: FloatArray, x: FloatArray, normalization: str) -> FloatArray:
    """Return the (k, 1) divisor of each resample's scores; NaN if they are constant."""
    held = np.where(counts > 0, x, np.nan)
    low, high = np.fmin.reduce(held, axis=1), np.fmax.reduce(held, axis=1)
    scale = high - low
    if normalization != "mean-range":
        mean = counts @ x / counts.sum(axis=1)
        scale = np.maximum(high - mean, mean - low)
        if normalization == "z-score":
            scale = np.sqrt((counts * (x - mean[:, None]) ** 2).sum(axis=1) / counts.sum(axis=1))
    return np.where(high > low, scale, np.nan)[:, None]  # whatever the rounding of the mean


def estimate_bias_score(
    scores: ArrayLike, likelihoods: ArrayLike, human: ArrayLike, *, normalization: str = "mean-range", **options: Any
) -> Interval:
    """Estimate BiasScore of a judge's scores (n,), of LS (n,) in nats and human scores (n,).

    US of tied scores jumps, so its variance is the bootstrap's: leaving an item out shows nothing. Swaps exchange
    z-scores of the judges' scores, or their US where that is of z-scores: scores themselves are exchangeable only
    between judges that use the scale alike. Options as those of ``estimate``.
    """
    _check(normalization)
    statistic = partial(counted_bias_score, normalization=normalization)
    exchanged = partial(_exchanged_us, normalization=normalization)
    columns = scores, likelihoods, human
    return estimate_coefficient(statistic, *columns, method="bootstrap", exchanged=exchanged, **options)


def _exchanged_us(
    a: FloatArray, b: FloatArray, likelihoods: FloatArray, human: FloatArray, *, normalization: str
) -> Swapped:
    reference, h = scipy.stats.rankdata(likelihoods), normalize(human, normalization)
    a, b = normalize(a, "z-score"), normalize(b, "z-score")
    if normalization == "center-max":
        return counted_swaps(partial(counted_bias_score, normalization=normalization))(a, b, likelihoods, human)
    if normalization == "z-score":
        return _ranked_mixtures(a - h, b - h, reference)
    of_width = lru_cache(maxsize=64)(lambda width: _ranked_mixtures(a / width - h, b / width - h, reference))

    def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:  # rows of equal width form a mixture
        rho = np.full((2, len(swap)), np.nan)
        for side, mixed in enumerate((np.where(swap, b, a), np.where(swap, a, b))):
            widths, groups = np.unique(np.ptp(mixed, axis=1), return_inverse=True)
            for index in np.flatnonzero(widths > 0):
                rows = groups == index
                rho[side, rows] = of_width(float(widths[index]))(swap[rows])[side]
        return rho[0], rho[1]

    return swapped


def _ranked_mixtures(a: FloatArray, b: FloatArray, reference: FloatArray) -> Swapped:
    """Correlate ranks of mixed values (n,) with reference ranks, exactly and for all swaps at once.

    Both judges' values are sorted once. A rank in a mixture counts the values up to it in the mixture, and the other
    side holds the remaining values. All numbers are multiples of a quarter.
    """
    n, values = len(a), np.round(np.concatenate([a, b]), DECIMALS)
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], values[order], side) for side in ("left", "right"))  # (2n,) of equals
    items, of_b, weights = order % n, order >= n, (reference - reference.mean())[order % n]
    ties = np.unique(np.stack([first, last])[:, last - first > 1], axis=1)  # (2, g) values that items share
    most, square, untied = weights * (first + last), (weights**2).sum() / 2, (n**3 - n) / 12

    def rho(covariance: FloatArray, held: FloatArray) -> FloatArray:
        spread = untied - ((held**3 - held) / 12).sum(axis=1)
        return np.clip(ratio(covariance / 2, np.sqrt(spread * square)), -1.0, 1.0)

    def swapped(swap: BoolArray) -> tuple[FloatArray, FloatArray]:
        chosen, upto = swap[:, items] == of_b, np.zeros((len(swap), 2 * n + 1), dtype=np.int32)
        np.cumsum(chosen, axis=1, out=upto[:, 1:])  # what the first side holds up to each value
        ranked = weights * (upto[:, first] + upto[:, last])  # twice the rank, less 1, which the weights cancel
        own = np.einsum("kn,kn->k", chosen, ranked)
        other = most.sum() - np.einsum("kn,n->k", chosen, most) - ranked.sum(axis=1) + own
        held = (upto[:, ties[1]] - upto[:, ties[0]]).astype(np.float64)
        return rho(own, held), rho(other, ties[1] - ties[0] - held)

    return swapped
