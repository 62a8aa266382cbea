"""How often tests reject and intervals cover, over many data sets of one world."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.statistical_truth.worlds import Draw, Judges
from evalbias.measures import bootstrap_ci, paired_permutation_test
from evalbias.measures.resampling import aligned, defined_items

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
        itemwise: The same for the test that swaps items whatever documents they share.
        covered: Share of the 95 % intervals that hold the truth.
        part: Data sets of the next two columns.
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
    n_swaps: int = 199,
    seed: int,
) -> list[Check]:
    """Check every statistic of a world.

    Args:
        world: Name of the world.
        draw: Draws the judges' data.
        n: Items of a data set.
        outputs: Outputs of a document, which are resampled and swapped together.
        sets: Data sets. The percentile intervals and the differences are computed for a fifth of them.
        n_resamples: Resamples of an interval.
        n_swaps: Swaps of a test; (n_swaps + 1) / 20 should be whole, so that the level is exactly 5 %.
        seed: Seed of everything.
    """
    clusters = None if outputs == 1 else (np.arange(n) // outputs).tolist()
    options: dict[str, Any] = {"clusters": clusters, "n_resamples": n_resamples}
    part = max(1, sets // 5)
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for index in range(sets):
        for name, judges in draw(np.random.default_rng([seed, index]), n, outputs).items():
            statistic, first, second, seen = judges.statistic, judges.first, judges.second, found[name]
            seen["covered"].append(statistic.interval(first, seed=index, **options))
            for kind, units in (("rejected", clusters), ("itemwise", None)):
                if kind == "rejected" or clusters is not None:
                    test = paired_permutation_test(
                        statistic, first, second, clusters=units, n_resamples=n_swaps, seed=index
                    )
                    seen[kind].append(test.p_value <= LEVEL)
            if index < part:
                arrays = (first, *statistic.references)
                seen["percentile"].append(
                    bootstrap_ci(statistic.rows, *arrays, method="percentile", seed=index, **options)
                )
                seen["difference"].append(statistic.difference(first, second, seed=index, **options))
    population = draw(np.random.default_rng(seed), POPULATION, outputs)
    return [
        _summary(world, name, _value(judges), found[name], n=n, outputs=outputs) for name, judges in population.items()
    ]


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


def share_found(draw: Draw, statistic: str, *, n: int, sets: int, n_swaps: int = 199, seed: int) -> float:
    """Return the share of data sets in which the paired test finds that two different judges differ, at 5 %."""
    rejected = 0
    for index in range(sets):
        judges = draw(np.random.default_rng([seed, index]), n, 1)[statistic]
        test = paired_permutation_test(judges.statistic, judges.first, judges.second, n_resamples=n_swaps, seed=index)
        rejected += test.p_value <= LEVEL
    return rejected / sets
