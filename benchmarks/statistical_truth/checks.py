"""How often tests reject and intervals cover, over many data sets of one world."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.statistical_truth.worlds import Draw, Judges
from evalbias.measures import paired_permutation_test
from evalbias.measures.resample import aligned, counted_interval, defined_items

LEVEL = 0.05
POPULATION = 200_000
"""Items that stand for a population."""
OWN_EXPECTATION = ("BiasScore",)
"""Statistics that change with n: their intervals are checked against their mean over the data sets."""
BOUNDARY = {("fair", "fairness"): 0.0, ("fair", "fairness, with ties"): 0.0, ("symmetric", "Dskew"): 0.0}
"""Values at the end of their range, which no finite population has exactly."""
SLACK = 1e-9


@dataclass(frozen=True)
class Check:
    """One statistic in one world at one n. Shares are in [0, 1], NaN where not checked.

    Attributes:
        world: Name of the world.
        statistic: Name of the statistic.
        n: Items of a data set.
        outputs: Outputs of a document.
        sets: Data sets.
        truth: Value in the population; for a statistic that changes with n, its mean over the data sets.
        mean: Mean over the data sets.
        rejected: Share of the data sets in which the test of two equal judges rejects at 5 %.
        itemwise: The same for the test that swaps items whatever documents they share, on ``part`` data sets.
        covered: Share of the 95 % intervals that hold the truth.
        part: Data sets of ``itemwise`` and the next two columns.
        percentile: Share of the percentile bootstrap intervals that hold the truth.
        difference: Share of the intervals of the difference of two equal judges that hold 0.
    """

    world: str
    statistic: str
    n: int
    outputs: int
    sets: int
    truth: float
    mean: float
    rejected: float
    itemwise: float
    covered: float
    part: int
    percentile: float
    difference: float


def check(
    world: str,
    draw: Draw,
    *,
    n: int,
    outputs: int = 1,
    sets: int,
    n_resamples: int = 399,
    n_swaps: int = 99,
    seed: int,
) -> list[Check]:
    """Check every statistic of a world.

    Args:
        world: Name of the world.
        draw: Draws the judges' data.
        n: Items of a data set.
        outputs: Outputs of a document, which are resampled and swapped together.
        sets: Data sets. Percentile intervals, differences and item-wise tests are computed for a fifth of them.
        n_resamples: Resamples of an interval.
        n_swaps: Swaps of a test; (n_swaps + 1) / 20 should be whole, so that the level is exactly 5 %.
        seed: Seed of everything.
    """
    clusters = None if outputs == 1 else (np.arange(n) // outputs).tolist()
    codes = np.arange(n) // outputs
    resamples: dict[str, Any] = {"n_resamples": n_resamples}
    part = max(1, sets // 5)
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for index in range(sets):
        resamples["seed"] = index
        for name, judges in draw(np.random.default_rng([seed, index]), n, outputs).items():
            statistic, first, second, seen = judges.statistic, judges.first, judges.second, found[name]
            seen["covered"].append(statistic.interval(first, clusters=clusters, **resamples))
            seen["rejected"].append(_rejects(judges, clusters=clusters, n_resamples=n_swaps, seed=index))
            if index < part:
                resampled = functools.partial(statistic.resampled, first)
                options: dict[str, Any] = {"method": "percentile", "confidence": 0.95, **resamples}
                seen["percentile"].append(counted_interval(resampled, codes, statistic(first), **options))
                seen["difference"].append(statistic.difference(first, second, clusters=clusters, **resamples))
                if clusters is not None:
                    seen["itemwise"].append(_rejects(judges, n_resamples=n_swaps, seed=index))
    population = draw(np.random.default_rng(seed), POPULATION, outputs)
    return [
        _summary(world, name, _value(judges), found[name], n=n, outputs=outputs) for name, judges in population.items()
    ]


def _rejects(judges: Judges, **options: Any) -> bool:
    test = paired_permutation_test(judges.statistic, judges.first, judges.second, **options)
    return bool(test.p_value <= LEVEL)


def _value(judges: Judges) -> float:
    kept = defined_items(*aligned(judges.first, *judges.statistic.references))
    return judges.statistic.keep(kept)(judges.first[kept])


def _summary(world: str, name: str, truth: float, found: dict[str, list[Any]], *, n: int, outputs: int) -> Check:
    mean = float(np.nanmean([one.estimate for one in found["covered"]]))
    truth = mean if name in OWN_EXPECTATION else BOUNDARY.get((world, name), truth)

    def covering(kind: str, value: float) -> float:
        return float(np.mean([one.low - SLACK <= value <= one.high + SLACK for one in found[kind]]))

    return Check(
        world=world,
        statistic=name,
        n=n,
        outputs=outputs,
        sets=len(found["covered"]),
        truth=truth,
        mean=mean,
        rejected=float(np.mean(found["rejected"])),
        itemwise=float(np.mean(found["itemwise"])) if found["itemwise"] else float("nan"),
        covered=covering("covered", truth),
        part=len(found["percentile"]),
        percentile=covering("percentile", truth),
        difference=covering("difference", 0.0),
    )


def shares_found(
    draw: Draw, statistics: Sequence[str], *, n: int, sets: int, n_swaps: int = 199, seed: int
) -> dict[str, float]:
    """Return the share of data sets in which the paired test finds at 5 % that two different judges differ."""
    rejected = dict.fromkeys(statistics, 0)
    for index in range(sets):
        drawn = draw(np.random.default_rng([seed, index]), n, 1)
        for name in statistics:
            rejected[name] += _rejects(drawn[name], n_resamples=n_swaps, seed=index)
    return {name: count / sets for name, count in rejected.items()}
