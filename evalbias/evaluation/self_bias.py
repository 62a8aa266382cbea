"""Self-bias: a model overrates what it wrote itself (Xu et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.estimates import N_RESAMPLES, Sample
from evalbias.evaluation.judged import Judged
from evalbias.evaluation.measurement import Measurement, measure
from evalbias.measures.bias_and_skewness import differences
from evalbias.measures.statistic import MeanStatistic, SkewnessStatistic

EXPECTED, QUALITY = "expected", "quality"
"""Names of covariates: the expected score on the range of the own score, and the same in its own points."""


class SelfBias:
    """Bias (eq 1) and distance skewness (eq 2) of own minus expected scores.

    Estimates: ``bias`` (mean difference, in points of the scores), ``skewness`` (Dskew around 0, in [0, 1]), ``own``
    and ``expected`` (mean scores of the items that have both), and ``quality`` (mean of the covariate of that name,
    over all items that have it).
    """

    name = "self"
    headlines = ("bias", "skewness")
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return not judged.pairwise and EXPECTED in judged.covariates

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        own, expected = judged.answers, judged.covariate(EXPECTED)
        difference = differences(own, expected)
        undefined = np.isnan(difference)
        samples = {
            "bias": Sample(difference, MeanStatistic(), "Bias", null=0.0),
            "skewness": Sample(difference, SkewnessStatistic(), "Dskew", null=0.0, signed=False),
            "own": Sample(np.where(undefined, np.nan, own), MeanStatistic(), "own score"),
            "expected": Sample(np.where(undefined, np.nan, expected), MeanStatistic(), "expected score"),
        }
        if QUALITY in judged.covariates:
            samples["quality"] = Sample(judged.covariate(QUALITY), MeanStatistic(), "quality")
        return samples


def measure_rounds(
    own: ArrayLike,
    expected: ArrayLike,
    *,
    quality: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int,
) -> list[Measurement]:
    """Measure self-bias in every round of a loop (Xu et al. 2024, figures 3 to 5).

    Args:
        own: (t, n) the loop's own scores of its outputs, one row a round.
        expected: (t, n) expected scores of the outputs, on the same range.
        quality: (t, n) expected scores in points of their own, if they are to be reported too.
        ids: (n,) identifiers of the items. Defaults to their numbers.
        n_resamples: Bootstrap resamples of each interval.
        seed: Seed for the bootstrap.

    Raises:
        ValueError: Different shapes.
    """
    rows = [np.asarray(v, dtype=np.float64) for v in (own, expected, *([] if quality is None else [quality]))]
    if rows[0].ndim != 2 or len({row.shape for row in rows}) > 1:
        shapes = ", ".join(str(row.shape) for row in rows)
        raise ValueError(f"The scores have the shapes {shapes}: give (rounds, items) each time.")
    names = tuple(map(str, range(rows[0].shape[1]))) if ids is None else tuple(ids)
    covariates = dict(zip((EXPECTED, QUALITY), rows[1:], strict=False))
    judged = [
        Judged(names, "own score", rows[0][k], {name: values[k] for name, values in covariates.items()})
        for k in range(len(rows[0]))
    ]
    return [measure(SelfBias(), one, seed=seed, n_resamples=n_resamples) for one in judged]
