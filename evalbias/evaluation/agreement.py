"""Agreement with people: beside floors, the human ceiling, and corrected for the judge's errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalbias.evaluation.estimates import Estimate, Measurement, Sample, estimate_value
from evalbias.evaluation.judged import (
    BETTER,
    HUMAN_SCORES,
    LENGTHS,
    LIKELIHOODS,
    RATINGS,
    Judged,
    mean_of_raters,
)
from evalbias.evaluation.words import joined
from evalbias.measures import brier_scores, corrected_mean, corrected_rate, decision_shares
from evalbias.measures.agreement import (
    AlphaStatistic,
    CalibrationStatistic,
    CeilingStatistic,
    KappaStatistic,
    KendallStatistic,
    PearsonStatistic,
    one_against_the_others,
)
from evalbias.measures.arrays import BoolArray, FloatArray
from evalbias.measures.corrections import MIN_LABELS
from evalbias.measures.likelihood import RankStatistic
from evalbias.measures.position_calibration import win_probabilities
from evalbias.measures.resample import (
    ConfidenceInterval,
    MeanStatistic,
    ShareStatistic,
    Statistic,
    aligned,
    paired_permutation_test,
)

# Estimate people's mean score of all items from a judge's scores of all of them and people's scores of a few.


class CorrectedEstimates:
    """Mean score, or one system's win rate over another, corrected by the items that people labeled.

    Estimates of a judge that scores: ``judge_mean`` (its mean score), ``people_mean`` (mean human score of the labeled
    items) and ``corrected_mean`` (mean human score of all items, see ``measures.corrected_mean``). Of a judge that
    compares outputs of two systems: the win rate of the system that comes first in the alphabet, ``judge_rate``,
    ``people_rate`` and ``corrected_mean``, and ``corrected_rate`` where the judge gives verdicts without ties
    (``measures.corrected_rate``). They are right if the labeled items are a random sample, as those of ``label_next``.

    Its headline has no null: it is not of a bias.
    """

    name = "corrected"
    headlines = ("corrected_mean",)
    objective = None

    def applies(self, judged: Judged) -> bool:
        """See ``Bias``."""
        if not judged.rated or (judged.pairwise and len(_systems(judged)) != 2):
            return False
        if not judged.pairwise and HUMAN_SCORES not in judged.covariates:
            return False
        known = int((~np.isnan(_people(judged))).sum())
        return MIN_LABELS <= known < len(judged.ids)

    def samples(self, judged: Judged) -> dict[str, Sample]:
        """See ``Bias``."""
        people, scores = _people(judged), _judge(judged)
        if not judged.pairwise:
            return {
                "judge_mean": Sample(scores, MeanStatistic(), "judge's mean", signed=False),
                "people_mean": Sample(people, MeanStatistic(), "people's mean", signed=False),
                "corrected_mean": Sample(scores, CorrectedStatistic(people), "corrected", signed=False, tested=False),
            }
        name = _systems(judged)[0]
        samples = {
            "judge_rate": Sample(scores, ShareStatistic(), f"{name} wins, judge", signed=False),
            "people_rate": Sample(people, ShareStatistic(), f"{name} wins, people", signed=False),
            "corrected_mean": Sample(
                scores, CorrectedStatistic(people), f"{name} wins, corrected", signed=False, tested=False
            ),
        }
        said = np.concatenate([scores, people])
        if np.isin(said[~np.isnan(said)], (0.0, 1.0)).all():
            rate = CorrectedStatistic(people, verdicts=True)
            label = f"{name} wins, by sensitivity and specificity"
            samples["corrected_rate"] = Sample(scores, rate, label, signed=False, tested=False)
        return samples


class CorrectedStatistic(Statistic):
    """Corrected mean, or rate, of what people say (n,), NaN where they said nothing; its interval is its own.

    Args:
        people: (n,) human scores or verdicts.
        verdicts: Whether to use sensitivity and specificity (``corrected_rate``).
    """

    def __init__(self, people: FloatArray, *, verdicts: bool = False) -> None:
        labeled = ~np.isnan(people)
        self.references = (np.where(labeled, people, 0.0), labeled.astype(np.float64))
        self._verdicts = verdicts

    def rows(self, scores: FloatArray, *references: FloatArray) -> FloatArray:
        """See ``Statistic``."""
        people, labeled = (np.broadcast_to(reference, scores.shape) for reference in references)
        rows = zip(scores, people, labeled == 1, strict=True)
        return np.array([self._corrected(*row).estimate for row in rows])

    def interval(
        self,
        scores: ArrayLike,
        *,
        clusters: Sequence[object] | None = None,
        n_resamples: int = 10_000,
        confidence: float = 0.95,
        seed: int,
    ) -> ConfidenceInterval:
        """Return the interval of ``corrected_mean`` or ``corrected_rate``."""
        column, people, labeled = aligned(scores, *self.references)
        return self._corrected(column, people, labeled == 1, clusters, confidence)

    def _corrected(
        self,
        scores: FloatArray,
        people: FloatArray,
        labeled: BoolArray,
        clusters: Sequence[object] | None = None,
        confidence: float = 0.95,
    ) -> ConfidenceInterval:
        arrays = scores[labeled], people[labeled], scores[~labeled]
        corrected = corrected_rate if self._verdicts else corrected_mean
        if clusters is None:
            return corrected(*arrays, confidence=confidence)
        first, second = ([clusters[int(i)] for i in np.flatnonzero(mask)] for mask in (labeled, ~labeled))
        return corrected(*arrays, labeled_clusters=first, unlabeled_clusters=second, confidence=confidence)


def _systems(judged: Judged) -> list[str]:
    """Return the two systems whose outputs are compared in every pair; empty where there are other pairs."""
    pairs = {tuple(sorted(pair)) for pair in np.asarray(judged.writers, dtype=str).reshape(-1, 2).tolist()}
    names = sorted(pairs.pop()) if len(pairs) == 1 else []
    return names if len(set(names)) == 2 else []


def _judge(judged: Judged) -> FloatArray:
    return _of_system(judged, judged.win_shares) if judged.pairwise else judged.answers


def _people(judged: Judged) -> FloatArray:
    return _of_system(judged, judged.chosen) if judged.pairwise else judged.covariate(HUMAN_SCORES)


def _of_system(judged: Judged, first: FloatArray) -> FloatArray:
    """Turn (n,) numbers about the first candidate of each pair into those about one system's."""
    ours = np.asarray(judged.writers, dtype=str)[:, 0] == _systems(judged)[0]
    return np.where(ours, first, 1 - first)


def side(difference: FloatArray) -> FloatArray:
    """Return 1 for positive numbers, 0 for negative ones, NaN for 0."""
    return np.where(difference == 0, np.nan, (1 + np.sign(difference)) / 2)


def agreeing(choice: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) 1 for equal choices, 0 for different ones, .5 where one is a tie; NaN where undefined."""
    return np.asarray(choice * other + (1 - choice) * (1 - other))


# Floors: how well an output's likelihood or length alone agrees with people, and whether a judge does better.


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
    return Sample(agreeing(chosen, judged.preferred), ShareStatistic(), label, signed=False, tested=False)


def _own(agreement: Measurement, name: str) -> Sample:
    sample = agreement.samples[name]
    swapped = agreement.samples.get(f"{name}_swapped")
    if swapped is None:
        return sample
    values = np.asarray((sample.values + swapped.values) / 2)
    return Sample(values, sample.statistic, sample.label, signed=sample.signed)


# Agreement of any judge with people, beside what people reach among themselves and what needs no judge at all.


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
    if judged.on_peoples_scale:
        samples["alpha_interval"] = Sample(scores, AlphaStatistic(human), "alpha (interval)", tested=False)
        samples["alpha_ordinal"] = Sample(scores, AlphaStatistic(human, ordinal=True), "alpha (ordinal)", tested=False)
    if RATINGS in judged.covariates:
        ceiling = CeilingStatistic(judged.covariate(RATINGS))
        if not np.isnan(ceiling.values).all():
            samples["human_ceiling"] = Sample(ceiling.values, ceiling, "one rater", tested=False)
    return samples | floors(judged)


def _of_choices(judged: Judged) -> dict[str, Sample]:
    people, orders = judged.preferred, judged.answers.shape[1]
    samples = {
        name: _share(agreeing(choices(judged, order), people), label)
        for order, (name, label) in enumerate(
            [("accuracy", "accuracy"), ("accuracy_swapped", "accuracy, swapped")][:orders]
        )
    }
    if orders == 2:
        samples["consistency"] = _share(judged.consistent, "consistent")
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
