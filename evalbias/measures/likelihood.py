"""Likelihood bias: how far a judge overrates what is likely (Ohi et al., Findings of ACL 2024).

LS is the log-likelihood of an output (eq 1), US the judge's score minus the human one after both are normalized
(eq 2). BiasScore is their rank correlation (eq 5): 1 says that the judge overrates exactly what is likely, 0 that
likelihood tells nothing about its errors, -1 the opposite bias. It does not say how large the errors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.checks import defined, vectors
from evalbias.measures.ranks import spearman_rows

FloatArray = NDArray[np.float64]
TOTAL = "total"
NORMALIZATIONS = ("min-max", "mean-range", "center-max")
DECIMALS = 12
"""US is rounded to so many: two scores that differ only by rounding are tied, not ordered."""


@dataclass(frozen=True)
class LikelihoodBias:
    """Bias and performance of a judge.

    Attributes:
        bias_score: rho(LS, US) in [-1, 1]; NaN where a side is constant.
        performance: rho(Score_m, Score_h) in [-1, 1]; NaN where a side is constant.
        n: Items that count.
        undefined: Items left out because a number of theirs is NaN.
    """

    bias_score: float
    performance: float
    n: int
    undefined: int


def normalize(scores: FloatArray, normalization: str) -> FloatArray:
    """Scores on a common footing; NaN stays NaN, and a constant array becomes NaN.

    ``"min-max"``: onto [0, 1]. ``"mean-range"``: mean 0, range 1. ``"center-max"``: mean 0, largest magnitude 1.

    Raises:
        ValueError: Another name.
    """
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization={normalization!r} is unknown: choose one of {NORMALIZATIONS}.")
    kept = scores[~np.isnan(scores)]
    if kept.size == 0 or kept.min() == kept.max():
        return np.full_like(scores, np.nan)
    if normalization == "min-max":
        return np.asarray((scores - kept.min()) / (kept.max() - kept.min()))
    centered = scores - kept.mean()
    scale = kept.max() - kept.min() if normalization == "mean-range" else np.abs(centered[~np.isnan(centered)]).max()
    return np.asarray(centered / scale)


def unfairness_scores(
    model_scores: ArrayLike, human_scores: ArrayLike, *, normalization: str = "min-max"
) -> FloatArray:
    """(n,) US: how much more the judge gives than people (eq 2).

    Args:
        model_scores: (n,) Score_m on any range.
        human_scores: (n,) Score_h on any range.
        normalization: See ``normalize``. ``"min-max"`` is the paper's code for BiasScore, ``"mean-range"`` its text,
            ``"center-max"`` what its RS uses.

    Returns:
        US in [-1, 1] (``"center-max"``: [-2, 2]); NaN where a score is NaN, and everywhere if a side is constant.
        Items with one score undefined do not enter the other score's normalization.

    Examples:
        >>> unfairness_scores([1, 3, 5], [0, 100, 100]).tolist()
        [0.0, -0.5, 0.0]
    """
    model, human = vectors(model_scores=model_scores, human_scores=human_scores)
    kept = defined(model, human)
    model, human = np.where(kept, model, np.nan), np.where(kept, human, np.nan)
    return np.asarray(np.round(normalize(model, normalization) - normalize(human, normalization), DECIMALS))


def bias_score(likelihoods: ArrayLike, unfairness: ArrayLike) -> float:
    """BiasScore: Spearman's rho of LS and US (eq 5), in [-1, 1]; items with a NaN are left out.

    Examples:
        >>> bias_score([-9, -5, -1], [-0.3, 0.0, 0.2])
        1.0
    """
    return _rho(*vectors(likelihoods=likelihoods, unfairness=unfairness))


def rs_scores(likelihoods: ArrayLike, unfairness: ArrayLike) -> FloatArray:
    """(n,) RS: ``|LS* + US*|`` with each centered and divided by its largest magnitude (eq 6).

    Returns:
        RS in [0, 2], high where a likely text is overrated or an unlikely one underrated; NaN where a number is NaN,
        and everywhere if a side is constant.

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
    normalization: str = "min-max",
) -> LikelihoodBias | dict[str, LikelihoodBias]:
    """BiasScore and performance, of one criterion or by criterion.

    Args:
        likelihoods: (n,) LS.
        model_scores: (n,) Score_m, or criterion -> (n,).
        human_scores: (n,) Score_h, or criterion -> (n,) with the same criteria.
        normalization: See ``unfairness_scores``.

    Returns:
        One result; or one a criterion and ``"total"``: scores are averaged over the criteria first, so it is not the
        mean of the BiasScores, and an item that is undefined on one criterion is undefined in it.

    Raises:
        ValueError: Different lengths or criteria, or a criterion called ``"total"``.
    """
    if not isinstance(model_scores, Mapping) or not isinstance(human_scores, Mapping):
        return _one(likelihoods, model_scores, human_scores, normalization)  # type: ignore[arg-type]
    if model_scores.keys() != human_scores.keys() or not model_scores or TOTAL in model_scores:
        raise ValueError(
            f"Model scores are on {list(model_scores)}, human scores on {list(human_scores)}: "
            f"give the same criteria, at least one, none called {TOTAL!r}."
        )
    found = {c: _one(likelihoods, model_scores[c], human_scores[c], normalization) for c in model_scores}
    model, human = (np.mean(vectors(**s), axis=0) for s in (model_scores, human_scores))
    return {**found, TOTAL: _one(likelihoods, model, human, normalization)}


def _one(likelihoods: ArrayLike, model: ArrayLike, human: ArrayLike, normalization: str) -> LikelihoodBias:
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
