"""Verbosity bias: longer text is preferred, whatever its quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import LENGTHS, Judged
from evalbias.evaluation.quality import effect_sample, effect_statistic, is_rated_by_people, log_lengths, preferred
from evalbias.measures import longer_wins
from evalbias.measures.group_gap import GapStatistic
from evalbias.measures.statistic import ShareStatistic

LENGTH_EFFECT = "length_effect"


@dataclass(frozen=True)
class VerbosityBias:
    """Effect of length on a judge at equal quality, and the win rate of the longer candidate.

    Estimates: ``length_effect`` (change in the score, or in the log-odds of a candidate's win, in standard deviations,
    for an output whose log length is one standard deviation greater, at equal quality; only where people rated the
    items or chose between them, and NaN with one rating or choice of unknown reliability) and, for pairs of different
    lengths, both orders averaged and a tie counting half, ``longer_rate`` (win rate of the longer candidate, in [0, 1])
    and ``accuracy_gap`` (share of the pairs in which the judge chooses what people prefer where that is the longer
    candidate, less that share where it is the shorter one). Where longer text is better text, an unbiased judge prefers
    the longer candidate too and is more often right where people do, because their difference is larger then: only
    ``length_effect`` tells these apart.

    Attributes:
        reliability: Share of a single rating's variance that is quality, for items with one rating.
    """

    reliability: float | None = None
    name: ClassVar[str] = "verbosity"
    headlines: ClassVar[tuple[str, ...]] = (LENGTH_EFFECT, "longer_rate")
    objective: ClassVar[str | None] = "longer_rate"

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return LENGTHS in judged.covariates and (judged.pairwise or is_rated_by_people(judged))

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        lengths = judged.covariate(LENGTHS)
        samples: dict[str, Sample] = {}
        if is_rated_by_people(judged):
            features = {"length": log_lengths(lengths)}
            statistic = effect_statistic(judged, "length", features, reliability=self.reliability)
            samples[LENGTH_EFFECT] = effect_sample(judged, statistic, "effect of length")
        if judged.pairwise:
            first, second = lengths[:, 0], lengths[:, 1]
            shares = judged.win_shares
            wins = longer_wins(shares, first, second)
            equal = int((~np.isnan(shares) & (first == second)).sum())
            samples["longer_rate"] = Sample(
                wins, ShareStatistic(), "longer", null=0.5, excluded=equal, signed=False, confounded=True
            )
            if is_rated_by_people(judged):
                longer_better = np.where(first > second, preferred(judged), 1 - preferred(judged))
                correct = np.where(longer_better == 1, wins, 1 - wins)
                gap = GapStatistic(longer_better)
                samples["accuracy_gap"] = Sample(
                    correct, gap, "accuracy gap", null=0.0, excluded=equal, tested=False, confounded=True
                )
        return samples
