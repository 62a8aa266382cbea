"""Agreement of any judge with people, beside what people reach among themselves and what needs no judge at all."""

from __future__ import annotations

import numpy as np

from evalbias.evaluation.estimates import Sample
from evalbias.evaluation.floors import floors
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, RATINGS, Judged
from evalbias.evaluation.quality import agreeing, mean_of_raters, on_one_scale, preferred, side
from evalbias.measures import brier_scores, consistent_preferences, decision_shares
from evalbias.measures.agreement_statistics import (
    AlphaStatistic,
    CalibrationStatistic,
    CeilingStatistic,
    KappaStatistic,
    KendallStatistic,
    PearsonStatistic,
    one_against_the_others,
)
from evalbias.measures.arrays import FloatArray
from evalbias.measures.calibration import win_probabilities
from evalbias.measures.rank_statistic import RankStatistic
from evalbias.measures.statistic import ShareStatistic


class PeopleAgreement:
    """Agreement with people, their own (the ceiling), and that of likelihood or length alone (the floors).

    Estimates of a judge that scores: ``spearman``, ``kendall`` (tau-b) and ``pearson`` with the human scores; where
    both use one scale, ``alpha_interval`` and ``alpha_ordinal`` (Krippendorff's, of the judge and the human score as
    two raters); ``human_ceiling`` (Spearman's rho of one rating with the mean of the item's others, over every choice
    of the one, each rater's own level subtracted; the others are one rater fewer than the judge is compared with);
    ``likelihood_floor`` and ``length_floor`` (Spearman's rho of LS and of the length with the human scores).

    A floor is that of the likeliest and of the longest output, or of the rarest and of the shortest, whichever agrees
    better with these items; so a floor near chance is a little too high.

    Estimates of a judge that compares: ``accuracy`` and ``accuracy_swapped`` (share of pairs in which it chooses the
    candidate that people prefer, in the order given and in the other; a tie counts half), ``consistency`` (share of
    pairs with the same choice in both orders), ``kappa`` (Cohen's, of its choices in the order given), ``brier`` and
    ``calibration_error`` (of probabilities, averaged over the orders; not of verdicts), ``human_ceiling`` (share of
    choices of one rater who prefers the same candidate as the others, averaged over the pairs) and the floors (share of
    pairs in which people prefer the likelier or the longer candidate; ties count half).
    """

    name = "agreement"
    headlines = ("spearman", "accuracy")
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        return (
            bool({BETTER, RATINGS} & judged.covariates.keys()) if judged.pairwise else HUMAN_SCORES in judged.covariates
        )

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        return _of_choices(judged) if judged.pairwise else _of_scores(judged)


def choices(judged: Judged, order: int) -> FloatArray:
    """Return (n,) 1 where the judge chooses the first candidate in one order of a pair, 0 the second, .5 for a tie."""
    shares = win_probabilities(decision_shares(judged.answers[:, order]), ties=judged.ties)[:, 0]
    return np.asarray(shares if order == 0 else 1 - shares)


def _of_scores(judged: Judged) -> dict[str, Sample]:
    human, scores = judged.covariate(HUMAN_SCORES), judged.answers
    samples = {
        "spearman": Sample(scores, RankStatistic(human), "Spearman"),
        "kendall": Sample(scores, KendallStatistic(human), "Kendall", tested=False),
        "pearson": Sample(scores, PearsonStatistic(human), "Pearson", tested=False),
    }
    if on_one_scale(judged):
        samples["alpha_interval"] = Sample(scores, AlphaStatistic(human), "alpha (interval)", tested=False)
        samples["alpha_ordinal"] = Sample(scores, AlphaStatistic(human, ordinal=True), "alpha (ordinal)", tested=False)
    if RATINGS in judged.covariates:
        ceiling = CeilingStatistic(judged.covariate(RATINGS))
        if not np.isnan(ceiling.values).all():
            samples["human_ceiling"] = Sample(ceiling.values, ceiling, "one rater", tested=False)
    return samples | floors(judged)


def _of_choices(judged: Judged) -> dict[str, Sample]:
    people, orders = preferred(judged), judged.answers.shape[1]
    samples = {
        name: _share(agreeing(choices(judged, order), people), label)
        for order, (name, label) in enumerate(
            [("accuracy", "accuracy"), ("accuracy_swapped", "accuracy, swapped")][:orders]
        )
    }
    if orders == 2:
        consistent = consistent_preferences(judged.answers[:, 0], judged.answers[:, 1], ties=judged.ties)
        samples["consistency"] = _share(consistent, "consistent")
    samples["kappa"] = Sample(choices(judged, 0), KappaStatistic(people), "kappa", tested=False)
    wins = judged.win_shares
    if not np.isin(judged.answers[~np.isnan(judged.answers)], (0.0, 1.0)).all():
        samples["brier"] = _share(brier_scores(wins, people), "Brier")
        calibration = CalibrationStatistic(people)
        samples["calibration_error"] = Sample(wins, calibration, "ECE", signed=False, tested=False)
    if RATINGS in judged.covariates:
        one, others = np.moveaxis(one_against_the_others(judged.covariate(RATINGS)), 2, 0)
        ceiling = mean_of_raters(agreeing(side(one), side(others)))
        if not np.isnan(ceiling).all():
            samples["human_ceiling"] = _share(ceiling, "one rater", tested=False)
    return samples | floors(judged)


def _share(values: FloatArray, label: str, *, tested: bool = True) -> Sample:
    return Sample(values, ShareStatistic(), label, signed=False, tested=tested)
