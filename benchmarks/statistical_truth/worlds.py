"""Worlds: two exchangeable judges on n items, with tied Likert scores, and the statistics that are measured on them.

Outputs of one document share a part of their quality, their likelihood and of each judge's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from evalbias.measures import (
    FairnessStatistic,
    MeanStatistic,
    ShareStatistic,
    SkewnessStatistic,
    bias_score_statistic,
    performance_statistic,
    spearman_rows,
)
from evalbias.measures.arrays import FloatArray
from evalbias.measures.resample import MeanCorrelationStatistic, Statistic

SHARED = 0.4
"""Part of a variance that the outputs of one document share."""
RANKED = 5
"""Outputs that a ranker orders in each document."""
Draw = Callable[[np.random.Generator, int, int], dict[str, "Judges"]]


@dataclass(frozen=True)
class Judges:
    """What a statistic needs of two judges.

    Attributes:
        statistic: The statistic, with its references.
        first: (n,) or (n, d) of the first judge.
        second: The same of the second.
    """

    statistic: Statistic
    first: FloatArray
    second: FloatArray


def normal(rng: np.random.Generator, n: int, outputs: int, *shape: int) -> FloatArray:
    """Draw standard normal numbers (..., n), of which the outputs of a document share a part."""
    own = rng.normal(size=(*shape, n))
    if outputs == 1:
        return own
    shared = rng.normal(size=(*shape, -(-n // outputs))).repeat(outputs, axis=-1)[..., :n]
    return np.asarray(np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own)


def likert(x: FloatArray) -> FloatArray:
    """Round to the scale from 1 to 5."""
    return np.clip(np.round(x), 1, 5)


def scoring(effect: float, other: float | None = None) -> Draw:
    """Judges that score: ``effect`` standard deviations for one of LS, with quality held fixed; LS is correlated .5.

    Args:
        effect: Likelihood effect of the first judge before its scores are rounded.
        other: That of the second; the first's by default.
    """
    effects = (effect, effect if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        quality = normal(rng, n, outputs)
        ls = 0.5 * quality + np.sqrt(0.75) * normal(rng, n, outputs)
        human = likert(3 + quality + 0.7 * rng.normal(size=(3, n))).mean(axis=0)
        noise = normal(rng, n, outputs, 2)
        first, second = (
            likert(3 + 1.1 * (0.6 * quality + e * ls + np.sqrt(1 - 0.36 - e**2 - 0.6 * e) * own))
            for e, own in zip(effects, noise, strict=True)
        )
        statistics = {
            "BiasScore": bias_score_statistic(ls, human),
            "BiasScore (z)": bias_score_statistic(ls, human, normalization="z-score"),
            "performance": performance_statistic(human),
        }
        judges = {name: Judges(statistic, first, second) for name, statistic in statistics.items()}
        lenient = Judges(statistics["performance"], first, (5 + second) / 2)  # the upper half of the scale
        return {**judges, "performance, second lenient": lenient}

    return draw


def comparing(lean: float, other: float | None = None) -> Draw:
    """Judges that compare in both orders.

    Args:
        lean: Pull of the first position on the first judge, in standard deviations of quality.
        other: That on the second; the first's by default.
    """
    leans = (lean, lean if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        better = normal(rng, n, outputs)
        sides = []
        for lean in leans:
            noise = 0.8 * normal(rng, n, outputs, 2)
            pull = np.stack([lean + better, lean - better]) + noise  # (2, n) of the first position, by order
            ties = np.abs(pull) < 0.4
            first = pull > 0
            decided = [np.stack([first, ~first], axis=-1), np.stack([first & ~ties, ~first & ~ties, ties], axis=-1)]
            shares = [one.astype(np.float64).mean(axis=0) for one in decided]  # (n, 2) and (n, 3)
            sides.append([*shares, shares[0][:, 0], (first[0] != first[1]).astype(np.float64)])
        statistics = {
            "fairness": FairnessStatistic(),
            "fairness, with ties": FairnessStatistic(ties=True),
            "first rate": ShareStatistic(),
            "position consistency": ShareStatistic(),
        }
        return {name: Judges(s, a, b) for (name, s), a, b in zip(statistics.items(), *sides, strict=True)}

    return draw


def self_scoring(shift: float, other: float | None = None) -> Draw:
    """Own minus expected scores in whole points: symmetric with heavy tails around a shift.

    Args:
        shift: Points of the first judge.
        other: Points of the second; the first's by default.
    """
    shifts = np.array([[shift], [shift if other is None else other]])

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        scale = np.where(rng.random((2, n)) < 0.2, 3, 2)
        first, second = np.round(shifts + scale * normal(rng, n, outputs, 2))
        return {"Bias": Judges(MeanStatistic(), first, second), "Dskew": Judges(SkewnessStatistic(), first, second)}

    return draw


def consistent(share: float, other: float | None = None) -> Draw:
    """Judges that prefer the same candidate in both orders in these shares of the pairs; equal ones by default."""
    shares = (share, share if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        first, second = (ndtr(normal(rng, n, outputs)) < share for share in shares)
        return {"position consistency": Judges(ShareStatistic(), first.astype(np.float64), second.astype(np.float64))}

    return draw


def ranking(noise: float, other: float | None = None) -> Draw:
    """Rankers of five outputs a document: Spearman's rho with the mean rating, document by document.

    Args:
        noise: Standard deviation of the first ranker's errors, where quality has 1.
        other: That of the second's; the first's by default.
    """
    noises = (noise, noise if other is None else other)

    def draw(rng: np.random.Generator, n: int, outputs: int) -> dict[str, Judges]:
        quality = rng.normal(size=(n, RANKED))
        human = likert(3 + quality[..., None] + 0.7 * rng.normal(size=(n, RANKED, 3))).mean(axis=2)
        sides = [spearman_rows(quality + one * rng.normal(size=(n, RANKED)), human) for one in noises]
        return {"ranking agreement": Judges(MeanCorrelationStatistic(), *sides)}

    return draw


WORLDS: Mapping[str, Draw] = {
    "unbiased": scoring(0.0),
    "biased, effect .3": scoring(0.3),
    "fair": comparing(0.0),
    "first position favored": comparing(0.5),
    "consistent in 95 %": consistent(0.95),
    "symmetric": self_scoring(0.0),
    "flattering by 1 point": self_scoring(1.0),
    "rankers": ranking(1.0),
}
"""Name -> world."""
