"""Preferences of a judge that compares candidates: fairness and its rivals (Zhou et al., EMNLP 2024), and leanings.

Probabilities are (n, c): row i holds the judge's probability of each of c classes (positions, or positions and "tie")
for comparison i. A row with a NaN is undefined and left out; ``count_undefined`` counts them. Nothing needs a label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import FloatArray
from evalbias.measures.checks import common_index, defined, groups_of, numbers, vectors
from evalbias.measures.decision_statistics import FairnessStatistic

SUM_SLACK = 1e-4
"""Largest deviation of a row's sum from 1."""


def decision_shares(probabilities: ArrayLike) -> FloatArray:
    """Return (n, c) each row's decision: 1 for the most probable class, shared equally by ties; NaN where undefined.

    Examples:
        >>> decision_shares([[0.9, 0.1], [0.5, 0.5]]).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    rows = _matrix(probabilities, "probabilities")
    kept = ~np.isnan(rows).any(axis=1)
    winners = _check_sums(rows[kept])
    winners = winners == winners.max(axis=1, keepdims=True)
    shares = np.full(rows.shape, np.nan)
    shares[kept] = winners / winners.sum(axis=1, keepdims=True)
    return shares


def decision_rates(probabilities: ArrayLike, *, groups: Sequence[object] | None = None) -> FloatArray:
    """Return (c,) how often each class is the most probable: ``p_{I,j}`` of the paper.

    Classes that share the largest probability share the decision, so the rates sum to 1. NaN if no row is defined.

    Args:
        probabilities: (n, c).
        groups: (n,) the group (document) of each row, to average the rates over the groups. Defaults to no groups.

    Examples:
        >>> decision_rates([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]).tolist()
        [0.625, 0.375]
    """
    common_index(probabilities, groups)
    shares = decision_shares(probabilities)
    kept = np.asarray(~np.isnan(shares).any(axis=1))
    names = None if groups is None else groups_of(groups, kept, "groups")
    if not kept.any():
        return np.full(shares.shape[1], np.nan)
    if names is None:
        return np.asarray(shares[kept].mean(axis=0))
    members: dict[object, list[int]] = {}
    for index, name in zip(np.flatnonzero(kept), names, strict=True):
        members.setdefault(name, []).append(int(index))
    return np.asarray(np.stack([shares[rows].mean(axis=0) for rows in members.values()]).mean(axis=0))


def fairness(
    probabilities: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: Sequence[object] | None = None,
    ties: bool = False,
) -> float:
    """Compute minus the distance of the decision rates from the prior: ``-sum_j |p_S - p_{I,j}|``.

    Args:
        probabilities: (n, c).
        prior: (c,) rate at which each class should win. Defaults to the uniform distribution.
        groups: See ``decision_rates``.
        ties: Whether the last class is the answer "tie". It has no position, so without a prior the positions share
            equally what it leaves. A prior is over all classes, the tie included.

    Returns:
        In [-2, 0]: 0 is fair. NaN if no row is defined.

    Raises:
        ValueError: A prior of another length, or one that does not sum to 1.
    """
    rates = decision_rates(probabilities, groups=groups)
    if prior is not None:
        given = numbers(prior, "prior")
        if given.shape != rates.shape or abs(given.sum() - 1) > SUM_SLACK or (given < 0).any():
            raise ValueError(f"prior={given.tolist()} is not a distribution over {len(rates)} classes.")
    return float(FairnessStatistic(prior, ties=ties)(rates[None]))


def negative_entropies(probabilities: ArrayLike) -> FloatArray:
    """Return (n,) ``sum_j p_j log p_j`` of each row, in [-log c, 0]; 0 is certain, NaN undefined."""
    rows = _matrix(probabilities, "probabilities")
    _check_sums(rows[~np.isnan(rows).any(axis=1)])
    logs = np.log(np.where(rows > 0, rows, 1.0))
    return np.asarray(np.where(np.isnan(rows), np.nan, rows * logs).sum(axis=1))


def confidence(probabilities: ArrayLike) -> float:
    """Compute the mean of ``sum_j p_j log p_j`` over the rows, in [-log c, 0]; NaN if no row is defined.

    On the probabilities that answer a content-free input, it is the paper's context-free confidence, which is best low.
    """
    values = negative_entropies(probabilities)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def calibration_gap(logprobs: ArrayLike) -> float:
    """Compute the largest gap between the classes' mean log-probabilities; of two, ``|mean(log p_A - log p_B)|``.

    Args:
        logprobs: (n, c), finite where defined.

    Returns:
        Nats, >= 0; NaN if no row is defined.

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


def consistent_preferences(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> FloatArray:
    """Return (n,) 1 where both orders of a comparison prefer the same candidate, else 0; NaN where undefined.

    Args:
        forward: (n, c) probabilities by position.
        swapped: (n, c) by position in the reverse order: position j holds what stood at c - 1 - j.
        ties: Whether the last column is the answer "tie", which has no position.

    An undecided comparison is consistent if the same candidates share the other one.
    """
    common_index(forward, swapped)
    a, b = _matrix(forward, "forward"), _matrix(swapped, "swapped")
    if a.shape != b.shape:
        raise ValueError(f"forward has the shape {a.shape}, swapped {b.shape}: give the same comparisons twice.")
    kept = ~np.isnan(a + b).any(axis=1)
    places = a.shape[1] - int(ties)
    order = [*reversed(range(places)), *range(places, a.shape[1])]
    values = np.full(len(a), np.nan)
    a, b = _check_sums(a[kept]), _check_sums(b[kept])[:, order]
    same = (a == a.max(axis=1, keepdims=True)) == (b == b.max(axis=1, keepdims=True))
    values[kept] = same.all(axis=1)
    return values


def position_consistency(forward: ArrayLike, swapped: ArrayLike, *, ties: bool = False) -> float:
    """Compute the share of comparisons that prefer the same candidate in the reverse order, in [0, 1].

    Arguments as ``consistent_preferences``. NaN if no comparison is defined in both orders.
    """
    values = consistent_preferences(forward, swapped, ties=ties)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def longer_wins(first: ArrayLike, first_lengths: ArrayLike, second_lengths: ArrayLike) -> FloatArray:
    """Return (n,) 1 where the longer candidate wins, 0 where it loses, .5 for a tie; its mean measures verbosity bias.

    Args:
        first: (n,) win probability of the first candidate.
        first_lengths: (n,) length of the first candidate, in any unit.
        second_lengths: (n,) length of the second candidate.

    Returns:
        NaN where a number is undefined and where both are equally long.

    Examples:
        >>> longer_wins([0.9, 0.2, 0.5], [9, 9, 9], [1, 1, 1]).tolist()
        [1.0, 0.0, 0.5]
    """
    p, a, b = vectors(first=first, first_lengths=first_lengths, second_lengths=second_lengths)
    longer = np.where(a > b, p, 1 - p)
    wins = np.where(longer == 0.5, 0.5, longer > 0.5)
    return np.asarray(np.where(defined(p, a, b) & (a != b), wins, np.nan))


def count_undefined(probabilities: ArrayLike) -> int:
    """Count the rows that hold a NaN."""
    return int(np.isnan(_matrix(probabilities, "probabilities")).any(axis=1).sum())


def _matrix(values: ArrayLike, name: str) -> FloatArray:
    rows = numbers(values, name)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ValueError(f"{name} has the shape {rows.shape}: give one row a comparison and one column a class.")
    return rows


def _check_sums(rows: FloatArray) -> FloatArray:
    wrong = np.flatnonzero((rows < 0).any(axis=1) | (np.abs(rows.sum(axis=1) - 1) > SUM_SLACK))
    if wrong.size:
        row = rows[wrong[0]].tolist()
        raise ValueError(f"The probabilities {row} are not a distribution: normalize over the classes first.")
    return rows
