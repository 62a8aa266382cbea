"""Likelihood bias: the tendency of a judge to overrate likely text (Ohi et al., Findings of ACL 2024).

LS, the likelihood score, is the log-likelihood of an output (eq 1). US, the unfairness score, is the judge's score
minus the human score after both are normalized (eq 2). BiasScore is the rank correlation of LS and US (eq 5): 1 means
that the judge overrates likely outputs and underrates unlikely ones, 0 that its errors are unrelated to likelihood, -1
the opposite bias. BiasScore does not say how large the errors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray, settled
from evalbias.measures.checks import defined, vectors
from evalbias.measures.ranks import spearman_rows

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
