"""Use of the scale: a judge that gives few different scores, or moves too little with the quality."""

from __future__ import annotations

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS, Judged
from evalbias.evaluation.quality import on_one_scale
from evalbias.measures.arrays import FloatArray
from evalbias.measures.quality_slope import QualitySlopeStatistic
from evalbias.measures.scale_use import EntropyStatistic, SpreadStatistic, TopTwoStatistic, nearest_levels
from evalbias.measures.statistic import ShareStatistic

MAX_LEVELS = 20
"""Most levels of a scale whose single levels are counted."""


class ScaleUse:
    """Use of the scale by a judge that scores, whose lowest and highest score are stated.

    Estimates: ``slope`` (points by which the score rises for one point of quality, with people's ratings on the same
    scale; below 1 the judge crowds its scores together, above 1 it may prefer what goes with quality, so only slopes
    below 1 are of this bias; needs two ratings an item), ``spread_ratio`` (standard deviation of the scores by that of
    the human scores, noise included) and, where the scale has at most 20 levels, of the levels nearest to
    the scores ``top_two_share`` (share of the two most frequent ones), ``entropy`` (their entropy by that of uniform
    scores, in [0, 1]) and ``ends_share`` (share of the lowest and the highest).
    """

    name = "scale_use"
    headlines = ("slope", "top_two_share")
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return not judged.pairwise and (_levels(judged) is not None or _rated_on_it(judged))

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        samples: dict[str, Sample] = {}
        if _rated_on_it(judged):
            if RATINGS in judged.covariates:
                slope = QualitySlopeStatistic(judged.covariate(RATINGS))
                values = np.where(slope.usable, judged.answers, np.nan)
                samples["slope"] = Sample(values, slope, "slope", null=1.0, tested=False, only_below=True)
            spread = SpreadStatistic(judged.covariate(HUMAN_SCORES))
            samples["spread_ratio"] = Sample(judged.answers, spread, "spread", signed=False, tested=False)
        levels = _levels(judged)
        if levels is not None:
            places, n = nearest_levels(judged.answers, levels), len(levels)
            ends = np.where(np.isnan(places), np.nan, (places == 0) | (places == n - 1))
            samples["top_two_share"] = Sample(places, TopTwoStatistic(n), "two most used", signed=False, tested=False)
            samples["entropy"] = Sample(places, EntropyStatistic(n), "entropy", signed=False, tested=False)
            samples["ends_share"] = Sample(ends, ShareStatistic(), "at the ends", signed=False)
        return samples


def _rated_on_it(judged: Judged) -> bool:
    """Return whether people rate on the judge's scale, which must be stated: pass and fail are not a crowded 1 to 5."""
    return judged.scale is not None and on_one_scale(judged)


def _levels(judged: Judged) -> FloatArray | None:
    """Return the whole numbers of the judge's scale; None where it is unknown, too fine or not of whole numbers."""
    if judged.scale is None or any(end != round(end) for end in judged.scale):
        return None
    low, high = judged.scale
    return np.arange(low, high + 1, dtype=np.float64) if high - low < MAX_LEVELS else None
