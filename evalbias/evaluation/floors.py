"""Floors: how well an output's likelihood or length alone agrees with people, and whether a judge does better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evalbias.evaluation.estimates import Estimate, Sample, estimate_value
from evalbias.evaluation.formatting import joined
from evalbias.evaluation.judged import HUMAN_SCORES, LENGTHS, LIKELIHOODS, Judged
from evalbias.evaluation.measurement import Measurement
from evalbias.evaluation.quality import agreeing, preferred
from evalbias.measures.arrays import FloatArray
from evalbias.measures.rank_statistic import RankStatistic
from evalbias.measures.significance import paired_permutation_test
from evalbias.measures.statistic import ShareStatistic, Statistic

FLOORS = {
    "likelihood_floor": (LIKELIHOODS, "likelihood alone", "rarity alone"),
    "length_floor": (LENGTHS, "length alone", "brevity alone"),
}
"""Estimate -> the covariate that it ranks by, and its labels where more and where less of it agrees with people."""
PREFERRED = {
    "likelihood alone": "likelier",
    "rarity alone": "less likely",
    "length alone": "longer",
    "brevity alone": "shorter",
}
"""Label of a floor -> the output that it prefers."""
LEVEL = 0.05
"""Level of the one-sided test that a judge agrees with people better than something without a judge."""
SWAPS = 10_000
"""Swaps of that test."""


def floors(judged: Judged) -> dict[str, Sample]:
    """Return what the floors are computed from, each on the side that agrees better with people on these items."""
    found = {}
    for name, (covariate, most, least) in FLOORS.items():
        if covariate in judged.covariates:
            values = judged.covariate(covariate)
            more, less = _floor(judged, values, most), _floor(judged, -values, least)
            found[name] = less if estimate_value(less) > estimate_value(more) else more  # NaN is not above
    return found


def surpasses(
    statistic: Statistic,
    judge: FloatArray,
    floor: FloatArray,
    *,
    clusters: Sequence[object] | None,
    n_resamples: int = SWAPS,
    seed: int,
) -> bool:
    """Return whether a judge agrees with people significantly better than a floor (paired test, one-sided at 5 %).

    Args:
        statistic: Agreement with people.
        judge: (n,) what the statistic takes of the judge.
        floor: (n,) the same of the floor.
        clusters: (n,) input of each item; None where every item has its own.
        n_resamples: Swaps of the test.
        seed: Seed of the test.
    """
    test = paired_permutation_test(statistic, judge, floor, clusters=clusters, n_resamples=n_resamples, seed=seed)
    return bool(test.difference > 0 and test.p_value / 2 < LEVEL)


def floors_not_surpassed(agreement: Measurement, *, seed: int) -> str:
    """Say which floors a judge is not shown to surpass; empty where it surpasses all, or nothing can be compared.

    A judge that compares counts with its mean accuracy over the orders that it saw.

    Args:
        agreement: Agreement with people, as ``PeopleAgreement`` measures it.
        seed: Seed of the tests.
    """
    name = next((name for name in ("spearman", "accuracy") if name in agreement.samples), None)
    if name is None:
        return ""
    own = _own(agreement, name)
    value = estimate_value(own)
    if np.isnan(value):
        return ""
    unsurpassed: list[Estimate] = [
        agreement[floor]
        for floor in FLOORS
        if floor in agreement.samples
        and not np.isnan(agreement[floor].value)
        and not surpasses(
            own.statistic, own.values, agreement.samples[floor].values, clusters=agreement.clusters, seed=seed
        )
    ]
    if not unsurpassed:
        return ""
    outputs = " or the ".join(PREFERRED[one.label] for one in unsurpassed)
    numbers = joined([one.text() for one in unsurpassed])
    return (
        f"The judge is not shown to agree with people better than always preferring the {outputs} output would: "
        f"{own.label} {agreement[name].text(value)} against {numbers}."
    )


def _floor(judged: Judged, values: FloatArray, label: str) -> Sample:
    if not judged.pairwise:
        return Sample(values, RankStatistic(judged.covariate(HUMAN_SCORES)), label, tested=False)
    chosen = (1 + np.sign(values[:, 0] - values[:, 1])) / 2
    return Sample(agreeing(chosen, preferred(judged)), ShareStatistic(), label, signed=False, tested=False)


def _own(agreement: Measurement, name: str) -> Sample:
    sample = agreement.samples[name]
    swapped = agreement.samples.get(f"{name}_swapped")
    if swapped is None:
        return sample
    values = np.asarray((sample.values + swapped.values) / 2)
    return Sample(values, sample.statistic, sample.label, signed=sample.signed)
