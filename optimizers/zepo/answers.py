"""Mixtures of two judges' answers to the same examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from evalbias.evaluation.judged import Judged
from evalbias.measures.arrays import BoolArray


def mixed(first: Judged, second: Judged, swap: BoolArray) -> Judged:
    """Return the first judge's answers, with the second's on the swapped items."""

    def pick(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(swap.reshape(-1, *(1,) * (a.ndim - 1)), b, a)

    return _combined(first, second, pick)


def stacked(first: Judged, second: Judged) -> Judged:
    """Return the first judge's answers and then the second's, as answers to twice as many items."""
    both = _combined(first, second, lambda a, b: np.concatenate([a, b]))
    return replace(both, ids=(*first.ids, *second.ids), inputs=[*first.inputs, *second.inputs])


def _combined(first: Judged, second: Judged, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Judged:
    return replace(
        first,
        answers=combine(first.answers, second.answers),
        covariates={name: combine(column, second.covariates[name]) for name, column in first.covariates.items()},
    )
