"""Position bias: how a comparison is ordered decides which candidate wins (Zhou et al., EMNLP 2024)."""

from __future__ import annotations

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.judged import BETTER, Judged
from evalbias.measures import consistent_preferences, decision_shares, negative_entropies
from evalbias.measures.balanced_rate import BalancedRate
from evalbias.measures.both_orders import BothOrdersStatistic
from evalbias.measures.calibration import win_probabilities
from evalbias.measures.decision_statistics import FairnessStatistic
from evalbias.measures.statistic import MeanStatistic, ShareStatistic


class PositionBias:
    """Win rate of the first position, fairness, consistency between both orders, and confidence.

    Estimates: ``first_rate`` (win rate of the first position, in [0, 1]; all positions share a tie),
    ``fairness`` (in [-2, 0], 0 is fair), ``position_consistency`` (share of pairs with the same winner in both orders;
    only where both were asked) and ``confidence`` (mean negative entropy, in [-log c, 0]). Where both orders were
    asked, each pair is its own control, so a pair that lacks an answer in either is undefined. Where only one order was
    asked, the better outputs may stand first; ``first_rate_balanced`` is then the win rate of the first position, pairs
    whose first candidate people prefer counting as much as those whose second they prefer.
    """

    name = "position"
    headlines = ("first_rate", "fairness", "position_consistency", "first_rate_balanced")
    objective = "fairness"

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return judged.pairwise

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        if not judged.pairwise:
            raise ValueError(f"The judge on {judged.criterion} scores: only one that compares can prefer a position.")
        answers = judged.answers  # (n, r, c)
        orders = range(answers.shape[1])
        shares = np.mean([decision_shares(answers[:, r]) for r in orders], axis=0)  # (n, c), NaN without every order
        entropies = np.mean([negative_entropies(answers[:, r]) for r in orders], axis=0)  # (n,)
        places, both = answers.shape[2] - int(judged.ties), len(orders) == 2
        wins = win_probabilities(shares, ties=judged.ties)  # (n, places): judges with and without ties can be compared
        samples = {
            "first_rate": Sample(
                wins[:, 0],
                BothOrdersStatistic() if both else ShareStatistic(),
                "first",
                null=1 / places,
                signed=False,
                confounded=not both,  # the better outputs may stand first
            ),
            "fairness": Sample(wins, FairnessStatistic(both_orders=both), "fairness", null=0.0, confounded=not both),
        }
        if both:
            consistent = consistent_preferences(answers[:, 0], answers[:, 1], ties=judged.ties)
            samples["position_consistency"] = Sample(consistent, ShareStatistic(), "consistent", null=1.0, signed=False)
        elif BETTER in judged.covariates:
            balanced = BalancedRate(judged.covariate(BETTER))
            samples["first_rate_balanced"] = Sample(
                wins[:, 0], balanced, "first, balanced", null=1 / places, signed=False
            )
        samples["confidence"] = Sample(entropies, MeanStatistic(), "confidence")
        return samples
