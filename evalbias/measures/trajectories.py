"""Self-bias over the iterations of a refine loop, with intervals, and whether two of them differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalbias.measures.bias_and_skewness import SelfBias, distance_skewness, measure_self_bias
from evalbias.measures.significance import (
    ConfidenceInterval,
    MeanStatistic,
    PermutationTest,
    bootstrap_ci,
    paired_permutation_test,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Iteration:
    """One iteration of a loop over n items.

    Attributes:
        number: From 0, the first output.
        found: Bias and distance skewness.
        bias_interval: 95 % bootstrap interval over items.
        skewness_interval: The same of the distance skewness, reflected at the estimate: resamples are more skewed than
            their sample, and the plain interval would lie above it.
    """

    number: int
    found: SelfBias
    bias_interval: ConfidenceInterval
    skewness_interval: ConfidenceInterval


def trajectory(
    own: ArrayLike, expected: ArrayLike, *, numbers: Sequence[int] | None = None, n_resamples: int = 2_000, seed: int
) -> list[Iteration]:
    """Bias and Dskew of every iteration (Xu et al. 2024, figures 3 to 5).

    Args:
        own: (t, n) the loop's own scores of its outputs: row k is iteration k.
        expected: (t, n) what the outputs are worth.
        numbers: (t,) of the iterations; by default from 0.
        n_resamples: Of the intervals.
        seed: Of the intervals.

    Raises:
        ValueError: Different shapes.
    """
    mine, worth = (np.asarray(values, dtype=np.float64) for values in (own, expected))
    if mine.ndim != 2 or mine.shape != worth.shape:
        raise ValueError(f"own has the shape {mine.shape}, expected {worth.shape}: give (iterations, items) twice.")
    names = range(len(mine)) if numbers is None else numbers
    found = []
    for number, a, b in zip(names, mine, worth, strict=True):
        bias, skewness = (
            bootstrap_ci(statistic, a - b, n_resamples=n_resamples, seed=seed) for statistic in (_means, _skewnesses)
        )
        found.append(Iteration(number, measure_self_bias(a, b), bias, _reflected(skewness)))
    return found


class SkewnessStatistic:
    """The distance skewness of n differences, for ``paired_permutation_test``."""

    def __init__(self, n: int) -> None:
        self.complete: BoolArray = np.ones(n, dtype=bool)

    def keep(self, kept: BoolArray) -> SkewnessStatistic:
        """See ``Statistic``."""
        return SkewnessStatistic(int(kept.sum()))

    def __call__(self, scores: ArrayLike) -> float:
        """See ``Statistic``."""
        return distance_skewness(scores)

    def swapping(self, a: FloatArray, b: FloatArray) -> Callable[[BoolArray], tuple[FloatArray, FloatArray]]:
        """See ``Statistic``."""
        return lambda swap: (_skewnesses(np.where(swap, b, a)), _skewnesses(np.where(swap, a, b)))


def compare_self_bias(
    first: ArrayLike, second: ArrayLike, *, n_resamples: int = 10_000, seed: int
) -> tuple[PermutationTest, PermutationTest]:
    """Whether bias and distance skewness differ between two iterations, or two sources of feedback.

    Args:
        first: (n,) own minus expected score of every item.
        second: (n,) the same items.
        n_resamples: Of the paired permutation tests.
        seed: Of the tests.

    Returns:
        (test of the bias, test of the distance skewness).
    """
    n = np.size(first)
    options = {"n_resamples": n_resamples, "seed": seed}
    return (
        paired_permutation_test(MeanStatistic(n), first, second, **options),
        paired_permutation_test(SkewnessStatistic(n), first, second, **options),
    )


def _reflected(found: ConfidenceInterval) -> ConfidenceInterval:
    """The basic bootstrap interval, within [0, 1]."""
    low, high = (float(np.clip(2 * found.estimate - end, 0.0, 1.0)) for end in (found.high, found.low))
    return replace(found, low=low, high=high)


def _means(rows: FloatArray) -> FloatArray:
    return np.asarray(rows.mean(axis=1))


def _skewnesses(rows: FloatArray) -> FloatArray:
    return np.array([distance_skewness(row) for row in rows])
