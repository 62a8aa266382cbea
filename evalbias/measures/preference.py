"""Preferences of a judge that compares candidates: fairness and its rivals (Zhou et al., EMNLP 2024), and its leanings.

Probabilities are (n, c): row i holds the judge's probability of each of c classes (positions, or positions and "tie")
for comparison i. A row with a NaN is undefined and left out; ``count_undefined`` counts them. Nothing needs a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from evalbias.measures.agreement import spearman
from evalbias.measures.checks import defined, vectors

FloatArray = NDArray[np.float64]
SUM_SLACK = 1e-4
"""How far a row's probabilities may miss a sum of 1."""


@dataclass(frozen=True)
class LongerPreference:
    """How often the longer candidate wins.

    Attributes:
        rate: In [0, 1]; .5 leans to neither. A tie counts half.
        n: Pairs of different lengths.
        equal: Pairs of equal lengths, left out.
        undefined: Pairs left out because a number is NaN.
    """

    rate: float
    n: int
    equal: int
    undefined: int


@dataclass(frozen=True)
class LikelihoodPreference:
    """How far the judge prefers what is likely.

    Attributes:
        spearman: rho of the difference in LS (first minus second) and the log-odds of the first, in [-1, 1].
        odds_per_nat: Factor on the odds of winning for each nat by which a candidate is likelier, position held fixed;
            1 leans to neither.
        odds_of_first: Odds of the first position between equally likely candidates; 1 leans to neither.
        n: Pairs that count.
        undefined: Pairs left out because a number is NaN.
    """

    spearman: float
    odds_per_nat: float
    odds_of_first: float
    n: int
    undefined: int


def decision_rates(probabilities: ArrayLike, *, groups: Sequence[object] | None = None) -> FloatArray:
    """(c,) how often each class is the likeliest: ``p_{I,j}`` of the paper.

    Classes that share the largest probability share the decision, so the rates sum to 1. NaN if no row is defined.

    Args:
        probabilities: (n, c).
        groups: (n,) the group (document) of each row: the rates are averaged over the groups. By default over the rows.

    Examples:
        >>> decision_rates([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]).tolist()
        [0.625, 0.375]
    """
    rows = defined_rows(probabilities)
    if not len(rows):
        return np.full(rows.shape[1], np.nan)
    winners = rows == rows.max(axis=1, keepdims=True)
    shares = winners / winners.sum(axis=1, keepdims=True)
    if groups is not None:
        undefined = np.isnan(_matrix(probabilities, "probabilities")).any(axis=1)
        if len(groups) != np.size(undefined):
            raise ValueError(
                f"groups has {len(groups)} entries for {np.size(undefined)} rows: give each row its group."
            )
        members: dict[object, list[int]] = {}
        for place, index in enumerate(np.flatnonzero(~undefined)):
            members.setdefault(groups[int(index)], []).append(place)
        shares = np.stack([shares[of].mean(axis=0) for of in members.values()])
    return np.asarray(shares.mean(axis=0), dtype=np.float64)


def fairness(
    probabilities: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: Sequence[object] | None = None,
    ties: bool = False,
) -> float:
    """Minus the distance of the decision rates from the prior: ``-sum_j |p_S - p_{I,j}|``.

    Args:
        probabilities: (n, c).
        prior: (c,) how often each class should win; by default all alike.
        groups: See ``decision_rates``.
        ties: Whether the last class is the answer "tie", which has no position: how often it should win is nobody's
            prior, so the positions share what it leaves. Takes no prior.

    Returns:
        In [-2, 0]: 0 is fair. NaN if no row is defined.

    Raises:
        ValueError: A prior of another length, or one that does not sum to 1.
    """
    rates = decision_rates(probabilities, groups=groups)
    if ties and prior is None:
        share = (1 - rates[-1]) / (len(rates) - 1)
        return -float(np.abs(share - rates[:-1]).sum())
    wanted = np.full(len(rates), 1 / len(rates)) if prior is None else np.asarray(prior, dtype=np.float64)
    if wanted.shape != rates.shape or abs(wanted.sum() - 1) > SUM_SLACK or (wanted < 0).any():
        raise ValueError(f"prior={wanted.tolist()} is no distribution over {len(rates)} classes.")
    return -float(np.abs(wanted - rates).sum())


def confidence(probabilities: ArrayLike) -> float:
    """Mean of ``sum_j p_j log p_j`` over the rows, in [-log c, 0]; 0 is certain. NaN if no row is defined.

    On the probabilities that answer a content-free input it is the paper's context-free confidence, which is best low.
    """
    rows = defined_rows(probabilities)
    if not len(rows):
        return float("nan")
    return float(np.where(rows > 0, rows * np.log(np.where(rows > 0, rows, 1.0)), 0.0).sum(axis=1).mean())


def calibration_gap(logprobs: ArrayLike) -> float:
    """How far the classes' mean log-probabilities lie apart, in nats, >= 0: of two, ``|mean(log p_A - log p_B)|``.

    Args:
        logprobs: (n, c), finite where defined; of more than two classes the gap is from the lowest mean to the highest.

    Raises:
        ValueError: An infinite log-probability.
    """
    rows = _matrix(logprobs, "logprobs")
    if np.isinf(rows).any():
        where = int(np.flatnonzero(np.isinf(rows).any(axis=1))[0])
        raise ValueError(f"logprobs[{where}] is infinite: the gap has no value; leave the row out as NaN.")
    rows = rows[~np.isnan(rows).any(axis=1)]
    if not len(rows):
        return float("nan")
    return float(np.ptp(rows.mean(axis=0)))


def position_consistency(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> float:
    """Share of comparisons that prefer the same candidate when the candidates stand in the reverse order.

    Args:
        forward: (n, c) probabilities by position.
        swapped: (n, c) by position in the reverse order: position j holds what stood at c - 1 - j.
        ties: Whether the last column is the answer "tie", which has no position.

    Returns:
        In [0, 1]; an undecided comparison is consistent if the same candidates share the other one. NaN if no pair of
        rows is defined.
    """
    a, b = _matrix(forward, "forward"), _matrix(swapped, "swapped")
    if a.shape != b.shape:
        raise ValueError(f"forward has the shape {a.shape}, swapped {b.shape}: give the same comparisons twice.")
    kept = ~(np.isnan(a).any(axis=1) | np.isnan(b).any(axis=1))
    if not kept.any():
        return float("nan")
    places = a.shape[1] - int(ties)
    order = [*reversed(range(places)), *range(places, a.shape[1])]
    a, b = _check_sums(a[kept]), _check_sums(b[kept])[:, order]
    same = (a == a.max(axis=1, keepdims=True)) == (b == b.max(axis=1, keepdims=True))
    return float(same.all(axis=1).mean())


def longer_preference(first: ArrayLike, first_lengths: ArrayLike, second_lengths: ArrayLike) -> LongerPreference:
    """Verbosity: how often the longer candidate wins.

    Args:
        first: (n,) probability that the first candidate is the better one.
        first_lengths: (n,) length of the first candidate, in any unit.
        second_lengths: (n,) length of the second one.
    """
    p, a, b = vectors(first=first, first_lengths=first_lengths, second_lengths=second_lengths)
    kept = defined(p, a, b)
    counted = kept & (a != b)
    longer = np.where(a > b, p, 1 - p)[counted]
    wins = np.where(longer == 0.5, 0.5, longer > 0.5)
    rate = float(wins.mean()) if len(wins) else float("nan")
    return LongerPreference(rate, int(counted.sum()), int((kept & (a == b)).sum()), int((~kept).sum()))


def likelihood_preference(
    first: ArrayLike, first_likelihoods: ArrayLike, second_likelihoods: ArrayLike
) -> LikelihoodPreference:
    """How far the likelier candidate is preferred.

    The odds come from a logistic model of the first candidate's probability on the difference in LS, with the position
    as its intercept.

    Args:
        first: (n,) probability that the first candidate is the better one, in [0, 1].
        first_likelihoods: (n,) LS of the first candidate in nats.
        second_likelihoods: (n,) LS of the second one.

    Returns:
        The odds are NaN where the model has no finite solution: fewer than two distinct differences, or decisions
        that a threshold on the difference separates.
    """
    p, a, b = vectors(first=first, first_likelihoods=first_likelihoods, second_likelihoods=second_likelihoods)
    kept = defined(p, a, b)
    p, difference = p[kept], (a - b)[kept]
    slope, intercept = _logistic(difference, p)
    return LikelihoodPreference(
        spearman(difference, p).value,
        float(np.exp(slope)),
        float(np.exp(intercept)),
        int(kept.sum()),
        int((~kept).sum()),
    )


def count_undefined(probabilities: ArrayLike) -> int:
    """Rows that hold a NaN."""
    return int(np.isnan(_matrix(probabilities, "probabilities")).any(axis=1).sum())


def defined_rows(probabilities: ArrayLike) -> FloatArray:
    """The rows without a NaN, (m, c).

    Raises:
        ValueError: No 2-D array, fewer than two classes, or a row that is no distribution; it is named.
    """
    rows = _matrix(probabilities, "probabilities")
    return _check_sums(rows[~np.isnan(rows).any(axis=1)])


def _matrix(values: ArrayLike, name: str) -> FloatArray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"{name} has the shape {rows.shape}: give one row a comparison and one column a class.")
    return rows


def _check_sums(rows: FloatArray) -> FloatArray:
    wrong = np.flatnonzero((rows < 0).any(axis=1) | (np.abs(rows.sum(axis=1) - 1) > SUM_SLACK))
    if wrong.size:
        row = rows[wrong[0]].tolist()
        raise ValueError(f"The probabilities {row} are no distribution: normalize over the classes first.")
    return rows


def _logistic(x: FloatArray, target: FloatArray) -> tuple[float, float]:
    """Slope and intercept that maximize the likelihood of the targets in [0, 1]; NaN without a finite solution."""
    undecided = float("nan"), float("nan")
    if len(np.unique(x)) < 2:
        return undecided
    scale = x.std()
    design = np.stack([x / scale, np.ones(len(x))])  # (2, n)

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        logits = weights @ design
        value = np.logaddexp(0.0, logits) - target * logits
        return float(value.mean()), np.asarray(design @ (expit(logits) - target)) / len(x)

    found = minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9})
    if np.abs(found.x).max() > 30 or np.abs(found.jac).max() > 1e-6:
        return undecided
    return float(found.x[0] / scale), float(found.x[1])
