"""The items and regressors of the likelihood effect's model: complete items, standardized columns, clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.instrumented import Codes

LIKELIHOOD = "likelihood"
MIN_CLUSTERS = 5
"""Fewest inputs from which an interval is computed."""


@dataclass(frozen=True)
class JointModel:
    """Scores and regressors of the m items that count.

    Attributes:
        scores: (m, 1) scores in standard deviations, or (m, 2) of two judges that are compared.
        columns: Name -> (m,) regressors besides the constant and quality: likelihood first, then the covariates.
            Numbers have mean 0 and standard deviation 1; a text covariate gives one 0/1 column ``name=level`` for
            every level but the first.
        ratings: (m, r) ratings of these items.
        levels: Names of the columns that are levels.
        clusters: (m,) number of each item's cluster, from 0.
        score_sd: Standard deviation of the scores in points; 1 for a difference.
        several: Whether every item has two or more ratings.
        undefined: Number of items left out.
    """

    scores: FloatArray
    columns: Mapping[str, FloatArray]
    ratings: FloatArray
    levels: frozenset[str]
    clusters: Codes
    score_sd: float
    several: bool
    undefined: int

    @property
    def matrix(self) -> FloatArray:
        """(m, p) regressors with the constant first and likelihood second."""
        return np.column_stack([np.ones(len(self.scores)), *self.columns.values()])

    @property
    def target(self) -> FloatArray:
        """(m,) scores, or the second judge's minus the first's."""
        return np.asarray(self.scores[:, -1] - (self.scores[:, 0] if self.scores.shape[1] == 2 else 0.0))

    @property
    def unit(self) -> FloatArray:
        """(p,) 1 for the columns of ``matrix`` that are standardized, 0 for the constant and the levels of texts."""
        return np.array([0.0, *(name not in self.levels for name in self.columns)])

    def problem(self) -> str:
        """Say why the model cannot be fitted; empty if it can."""
        x, groups = self.matrix, len(np.unique(self.clusters))
        if groups < MIN_CLUSTERS or len(x) < x.shape[1] + 3:
            return (
                f"only {len(x)} items of {groups} inputs have a score, a likelihood and ratings: "
                f"{MIN_CLUSTERS} inputs are the least"
            )
        if np.isnan(self.scores).any() or np.ptp(self.target) == 0:
            return "all items have the same score, or both judges score alike"
        if np.isnan(self.columns[LIKELIHOOD]).any():
            return "all items have the same likelihood"
        if np.ptp(np.nanmean(self.ratings, axis=1)) == 0:
            return "all items have the same rating"
        if np.linalg.matrix_rank(x) < x.shape[1]:
            return f"{', '.join(self.columns)} are constant or determine each other: leave a covariate out"
        return ""


def joint_model(
    likelihoods: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    clusters: Sequence[object] | None,
    covariates: Mapping[str, Sequence[object]] | None,
) -> JointModel:
    """Gather the complete items: those with a likelihood, scores, covariates and enough ratings.

    Args:
        likelihoods: (n,) LS.
        scores: (n, 1) scores of a judge, or (n, 2) of two whose difference is modeled, the second minus the first.
        ratings: (n, r) ratings, NaN where a rater gave none. Items with one are left out unless no item has two.
        clusters: (n,) anything that names the input; None for items on their own.
        covariates: Name -> (n,) numbers or texts.

    Raises:
        ValueError: The lengths differ, or ratings are not a matrix or hold an infinite value.
    """
    n, ratings = len(likelihoods), _matrix(ratings)
    groups = list(range(n)) if clusters is None else list(clusters)
    given = {name: list(values) for name, values in (covariates or {}).items()}
    for name, values in {"ratings": ratings, "clusters": groups, **given}.items():
        if len(values) != n:
            raise ValueError(
                f"{name} has {len(values)} entries, likelihoods {n}: give the same items in the same order."
            )
    counts = (~np.isnan(ratings)).sum(axis=1)
    complete = ~np.isnan(likelihoods) & ~np.isnan(scores).any(axis=1) & (counts > 0)
    for values in given.values():
        complete &= np.array([not _missing(value) for value in values], dtype=bool)
    several = bool((counts[complete] > 1).any())
    kept: BoolArray = complete & (counts > 1) if several else complete
    places = np.flatnonzero(kept)
    columns, levels = {LIKELIHOOD: standardize(likelihoods[kept])}, dict[str, FloatArray]()
    for name, values in given.items():
        present = [values[i] for i in places]
        if any(isinstance(value, str) for value in present):
            levels |= _levels(name, [str(value) for value in present])
        else:
            numbers = np.array(present, dtype=np.float64)
            columns[name] = np.nan_to_num(standardize(numbers))  # a constant becomes 0, which ``problem`` reports
    names: dict[object, int] = {}
    return JointModel(
        scores=np.column_stack([standardize(column) for column in scores[kept].T]),
        columns=columns | levels,
        ratings=ratings[kept],
        levels=frozenset(levels),
        clusters=np.array([names.setdefault(groups[i], len(names)) for i in places], dtype=np.int64),
        score_sd=float(scores[kept, 0].std()) if scores.shape[1] == 1 and len(places) else 1.0,
        several=several,
        undefined=n - len(places),
    )


def _matrix(ratings: ArrayLike) -> FloatArray:
    array = np.asarray(ratings, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"ratings has the shape {array.shape}: give one row an item, (n, raters).")
    if np.isinf(array).any():
        raise ValueError("ratings holds an infinite value: give NaN where a rater gave none.")
    return array


def standardize(values: FloatArray) -> FloatArray:
    """Bring (n,) values to mean 0 and standard deviation 1; NaN if they are constant."""
    if len(values) == 0 or np.ptp(values) == 0:
        return np.full(len(values), np.nan)
    return np.asarray((values - values.mean()) / values.std())


def _levels(name: str, values: Sequence[str]) -> dict[str, FloatArray]:
    """``name=level`` -> (m,) 1 where the value is this level; the first level is what the others are compared with."""
    return {f"{name}={level}": np.array([float(v == level) for v in values]) for level in sorted(set(values))[1:]}


def _missing(value: object) -> bool:
    return value is None or value != value  # NaN is not equal to itself
