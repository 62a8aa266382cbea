"""The items and regressors of an effect's model: complete items, standardized columns, clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalbias.measures.arrays import SLACK, BoolArray, FloatArray, IntArray, settled
from evalbias.measures.checks import groups_of, missing, numbers, vector

QUALITY = "quality"
"""Name of the quality among the terms of the model."""
MIN_CLUSTERS = 5
"""Fewest inputs from which an interval is computed."""


@dataclass(frozen=True)
class JointModel:
    """Scores and regressors of the items that count: m rows, one an item, or two a pair that counts both ways.

    Attributes:
        n: Number of items that count.
        scores: (m, 1) scores in standard deviations, (m, 2) of two judges that are compared, or (m, s) of several; NaN
            where a judge gives all items the same score.
        feature: Name of the feature whose effect is meant; its column is the first.
        columns: Name -> (m,) regressors besides the constant and quality: the feature first, then the covariates.
            Numbers have mean 0 and standard deviation 1; a text covariate gives one 0/1 column ``name=level`` for
            every level but the first.
        ratings: (m, r) ratings of these items.
        unscaled: Names of the columns that keep their units: levels, and a feature that is not standardized.
        clusters: (m,) number of each item's cluster, from 0.
        score_sd: Standard deviation of the scores in points; 1 for a difference.
        several: Whether every item has two or more ratings.
        undefined: Number of items left out.
    """

    n: int
    scores: FloatArray
    feature: str
    columns: Mapping[str, FloatArray]
    ratings: FloatArray
    unscaled: frozenset[str]
    clusters: IntArray
    score_sd: float
    several: bool
    undefined: int

    @property
    def matrix(self) -> FloatArray:
        """(m, p) regressors with the constant first and the feature second."""
        return np.column_stack([np.ones(len(self.scores)), *self.columns.values()])

    @property
    def target(self) -> FloatArray:
        """(m,) scores, or the second judge's minus the first's."""
        return np.asarray(self.scores[:, -1] - (self.scores[:, 0] if self.scores.shape[1] == 2 else 0.0))

    @property
    def unit(self) -> FloatArray:
        """(p,) 1 for the columns of ``matrix`` that are standardized, 0 for those in units of their own."""
        return np.array([0.0, *(name not in self.unscaled for name in self.columns)])

    def problem(self) -> str:
        """Say why the model cannot be fitted; empty if it can."""
        x, groups = self.matrix, len(np.unique(self.clusters))
        if groups < MIN_CLUSTERS or self.n < x.shape[1] + 3:
            return (
                f"too few items have a score, a {self.feature} and ratings ({_count(self.n, 'item')} from "
                f"{_count(groups, 'input')}): at least {_count(x.shape[1] + 3, 'item')} from {MIN_CLUSTERS} inputs are "
                "needed"
            )
        if np.isnan(self.scores).any() or np.ptp(self.target) <= SLACK:
            return "both judges score alike" if self.scores.shape[1] == 2 else "all items have the same score"
        if np.ptp(self.columns[self.feature]) == 0:
            return f"all items have the same {self.feature}"
        if np.ptp(settled(np.nanmean(self.ratings, axis=1))) == 0:
            return "all items have the same rating"
        if np.linalg.matrix_rank(x) < x.shape[1]:
            return f"{', '.join(self.columns)} are constant or determine each other: leave a covariate out"
        return ""


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def joint_model(
    feature: FloatArray,
    scores: FloatArray,
    ratings: ArrayLike,
    *,
    name: str,
    standardized: bool,
    clusters: Sequence[object] | None,
    covariates: Mapping[str, Sequence[object]] | None = None,
    mirrored: bool = False,
) -> JointModel:
    """Gather the complete items: those with the feature, scores, covariates and enough ratings.

    Args:
        feature: (n,) numbers.
        scores: (n, 1) scores of a judge, (n, 2) of two whose difference is modeled, the second minus the first, or
            (n, s) of several.
        ratings: (n, r) ratings, NaN where a rater gave none. Items with one are left out unless no item has two.
        name: Name of the feature in messages.
        standardized: Whether the feature is brought to standard deviation 1.
        clusters: (n,) anything that names the input; None for items on their own.
        covariates: Name -> (n,) numbers or texts.
        mirrored: Whether the items are pairs, all numbers differ in sign with the order of the two candidates, and each
            pair counts both ways, as one item of its cluster. The result is then the same in whatever order the data
            name the candidates, and the constant is 0.

    Raises:
        ValueError: The lengths differ, ratings are not a matrix, a number is infinite, or a covariate has the name of
            the feature or of the quality.
    """
    n, ratings = len(feature), _matrix(ratings)
    groups: Sequence[object] = range(n) if clusters is None else clusters
    given = {label: list(values) for label, values in (covariates or {}).items()}
    if taken := {name, QUALITY} & given.keys():
        raise ValueError(f"A covariate is called {taken.pop()!r}, as another term of the model is: rename it.")
    for label, values in {"ratings": ratings, "clusters": groups, **given}.items():
        if len(values) != n:
            raise ValueError(f"{label} has {len(values)} entries, {name} {n}: give the same items in the same order.")
    counts = (~np.isnan(ratings)).sum(axis=1)
    complete = ~np.isnan(feature) & ~np.isnan(scores).any(axis=1) & (counts > 0)
    for values in given.values():
        complete &= np.array([not missing(value) for value in values], dtype=bool)
    several = bool((counts[complete] > 1).any())
    kept: BoolArray = complete & (counts > 1) if several else complete
    places = np.flatnonzero(kept)
    signs = (1.0, -1.0) if mirrored else (1.0,)

    def rows(values: FloatArray) -> FloatArray:
        return np.concatenate([sign * values[kept] for sign in signs])

    columns = {name: _scaled(rows(feature)) if standardized else settled(rows(feature))}
    levels: dict[str, FloatArray] = {}
    for label, values in given.items():
        present = [values[i] for i in places] * len(signs)
        if any(isinstance(value, str) for value in present):
            levels |= _levels(label, [str(value) for value in present])
        else:
            columns[label] = _scaled(rows(vector(np.array(values, dtype=np.float64), label)))
    names: dict[object, int] = {}
    codes = [names.setdefault(group, len(names)) for group in groups_of(groups, kept, "clusters")]
    return JointModel(
        n=len(places),
        scores=np.column_stack([standardize(rows(column)) for column in scores.T]),
        feature=name,
        columns=columns | levels,
        ratings=rows(ratings),
        unscaled=frozenset(levels) if standardized else frozenset({name, *levels}),
        clusters=np.array(codes * len(signs), dtype=np.int64),
        score_sd=float(rows(scores[:, 0]).std()) if scores.shape[1] == 1 and len(places) else 1.0,
        several=several,
        undefined=n - len(places),
    )


def _matrix(ratings: ArrayLike) -> FloatArray:
    array = numbers(ratings, "ratings")
    if array.ndim != 2:
        raise ValueError(f"ratings has the shape {array.shape}: give one row an item, (n, raters).")
    if np.isinf(array).any():
        raise ValueError("ratings holds an infinite value: give NaN where a rater gave none.")
    return array


def standardize(values: FloatArray) -> FloatArray:
    """Bring (n,) values to mean 0 and standard deviation 1; NaN if they are constant up to rounding."""
    values = settled(values)
    if len(values) == 0 or np.ptp(values) == 0:
        return np.full(len(values), np.nan)
    return np.asarray((values - values.mean()) / values.std())


def _scaled(values: FloatArray) -> FloatArray:
    return np.nan_to_num(standardize(values))  # a constant becomes 0, which ``problem`` reports


def _levels(name: str, values: Sequence[str]) -> dict[str, FloatArray]:
    """``name=level`` -> (m,) 1 where the value is this level; the first level is what the others are compared with."""
    return {f"{name}={level}": np.array([float(v == level) for v in values]) for level in sorted(set(values))[1:]}
