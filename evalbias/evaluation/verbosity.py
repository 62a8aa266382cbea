"""Verbosity bias: the longer candidate wins."""

from __future__ import annotations

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import LENGTHS, Judged
from evalbias.measures import longer_wins
from evalbias.measures.statistic import ShareStatistic


class VerbosityBias:
    """Win rate of the longer candidate, both orders averaged.

    Estimate: ``longer_rate`` (in [0, 1]; a tie counts half). Pairs of equal lengths are excluded.
    """

    name = "verbosity"
    headlines = ("longer_rate",)
    objective = "longer_rate"

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return judged.pairwise and LENGTHS in judged.covariates

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        lengths = judged.covariate(LENGTHS)
        first, second = lengths[:, 0], lengths[:, 1]
        shares = judged.win_shares
        wins = longer_wins(shares, first, second)
        equal = int((~np.isnan(shares) & (first == second)).sum())
        return {"longer_rate": Sample(wins, ShareStatistic(), "longer", null=0.5, excluded=equal, signed=False)}
