"""Agreement with people: beside floors, the human ceiling, and corrected for the judge's errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from evalbias.evaluation.estimates import Estimate, Measurement, Number
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
from evalbias.measures import (
    brier_scores,
    decision_shares,
    estimate_coefficient,
    estimate_mean,
    estimate_share,
    estimate_spearman,
    win_shares,
)
from evalbias.measures.agreement import (
    ceiling_columns,
    counted_alpha,
    counted_ceiling,
    counted_kappa,
    counted_pearson,
    estimate_calibration_error,
    estimate_kendall,
    one_against_the_others,
)
from evalbias.measures.arrays import FloatArray
from evalbias.measures.corrections import MIN_LABELS, estimate_corrected
from evalbias.measures.resample import Interval

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

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        people, scores = _people(judged), _judge(judged)

        def number(name: str, label: str, values: FloatArray, estimator: Callable[..., Interval]) -> Number:
            return Number(name, label, values, estimator, signed=False, tested=estimator is not corrected)

        corrected = partial(estimate_corrected, people=people)
        if not judged.pairwise:
            return [
                number("judge_mean", "judge's mean", scores, estimate_mean),
                number("people_mean", "people's mean", people, estimate_mean),
                number("corrected_mean", "corrected", scores, corrected),
            ]
        name = _systems(judged)[0]
        numbers = [
            number("judge_rate", f"{name} wins, judge", scores, estimate_share),
            number("people_rate", f"{name} wins, people", people, estimate_share),
            number("corrected_mean", f"{name} wins, corrected", scores, corrected),
        ]
        said = np.concatenate([scores, people])
        if np.isin(said[~np.isnan(said)], (0.0, 1.0)).all():
            label, rate = f"{name} wins, by sensitivity and specificity", partial(corrected, verdicts=True)
            numbers.append(Number("corrected_rate", label, scores, rate, signed=False, tested=False))
        return numbers


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


def side(difference: FloatArray) -> FloatArray:
    """Return 1 for positive numbers, 0 for negative ones, NaN for 0."""
    return np.where(difference == 0, np.nan, (1 + np.sign(difference)) / 2)


def agreeing(choice: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) 1 for equal choices, 0 for different ones, .5 where one is a tie; NaN where undefined."""
    return np.asarray(choice * other + (1 - choice) * (1 - other))


def floors(judged: Judged) -> list[Number]:
    """Return what the floors are computed from, each on the side that agrees better with people on these items."""
    found = []
    for name, (covariate, most, least) in FLOORS.items():
        if covariate in judged.covariates:
            values = judged.covariate(covariate)
            more, less = _floor(judged, name, values, most), _floor(judged, name, -values, least)
            found.append(less if less.value() > more.value() else more)  # NaN is not above
    return found


def surpasses(
    agreement: Number, floor: FloatArray, *, clusters: Sequence[object] | None, n_resamples: int = SWAPS, seed: int
) -> bool:
    """Return whether a judge agrees with people significantly better than a floor (paired test, one-sided at 5 %).

    Args:
        agreement: The judge's agreement with people.
        floor: (n,) values of the floor in place of the judge's.
        clusters: (n,) input of each item; None where every item has its own.
        n_resamples: Swaps of the test.
        seed: Seed of the test.
    """
    found = agreement.change(floor, clusters, seed=seed, n_resamples=0, swaps=n_resamples)
    return bool(found.value > 0 and found.p_value / 2 < LEVEL)


def floors_not_surpassed(agreement: Measurement, *, seed: int) -> str:
    """Say which floors a judge is not shown to surpass; empty where it surpasses all, or nothing can be compared.

    A judge that compares counts with its mean accuracy over the orders that it saw.

    Args:
        agreement: Agreement with people, as ``PeopleAgreement`` measures it.
        seed: Seed of the tests.
    """
    name = next((name for name in ("spearman", "accuracy") if name in agreement.numbers), None)
    if name is None:
        return ""
    own = _own(agreement, name)
    value = own.value()
    if np.isnan(value):
        return ""
    unsurpassed: list[Estimate] = [
        agreement[floor]
        for floor in FLOORS
        if floor in agreement.numbers
        and not np.isnan(agreement[floor].value)
        and not surpasses(own, agreement.numbers[floor].values, clusters=agreement.clusters, seed=seed)
    ]
    if not unsurpassed:
        return ""
    outputs = " or the ".join(PREFERRED[one.label] for one in unsurpassed)
    numbers = joined([one.text() for one in unsurpassed])
    return (
        f"The judge is not shown to agree with people better than always preferring the {outputs} output would: "
        f"{own.label} {agreement[name].text(value)} against {numbers}."
    )


def _floor(judged: Judged, name: str, values: FloatArray, label: str) -> Number:
    if not judged.pairwise:
        human = judged.covariate(HUMAN_SCORES)
        return Number(name, label, values, estimate_spearman, given=(human,), tested=False)
    chosen = (1 + np.sign(values[:, 0] - values[:, 1])) / 2
    return _share(name, label, agreeing(chosen, judged.preferred), tested=False)


def _own(agreement: Measurement, name: str) -> Number:
    number, swapped = agreement.numbers[name], agreement.numbers.get(f"{name}_swapped")
    return number if swapped is None else replace(number, values=(number.values + swapped.values) / 2)


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

    def numbers(self, judged: Judged) -> list[Number]:
        """See ``Bias``."""
        return [*(_of_choices(judged) if judged.pairwise else _of_scores(judged)), *floors(judged)]


def choices(judged: Judged, order: int) -> FloatArray:
    """Return (n,) 1 where the judge chooses the first candidate in one order of a pair, 0 the second, .5 for a tie."""
    shares = win_shares(decision_shares(judged.answers[:, order]), ties=judged.ties)[:, 0]
    return np.asarray(shares if order == 0 else 1 - shares)


def _of_scores(judged: Judged) -> list[Number]:
    human, scores = judged.covariate(HUMAN_SCORES), judged.answers

    def number(name: str, label: str, estimator: Callable[..., Interval], *, tested: bool = False) -> Number:
        return Number(name, label, scores, estimator, given=(human,), tested=tested)

    numbers = [
        number("spearman", "Spearman", estimate_spearman, tested=True),
        number("kendall", "Kendall", estimate_kendall),
        number("pearson", "Pearson", partial(estimate_coefficient, counted_pearson)),
    ]
    if judged.on_peoples_scale:
        ordinal = partial(counted_alpha, ordinal=True)
        numbers += [
            number("alpha_interval", "alpha (interval)", partial(estimate_coefficient, counted_alpha)),
            number("alpha_ordinal", "alpha (ordinal)", partial(estimate_coefficient, ordinal)),
        ]
    if RATINGS in judged.covariates:
        columns = ceiling_columns(judged.covariate(RATINGS))
        if not np.isnan(columns).all():
            ceiling = partial(estimate_coefficient, counted_ceiling)
            numbers.append(Number("human_ceiling", "one rater", columns, ceiling, tested=False))
    return numbers


def _of_choices(judged: Judged) -> list[Number]:
    people, orders = judged.preferred, judged.answers.shape[1]
    numbers = [
        _share(name, label, agreeing(choices(judged, order), people))
        for order, (name, label) in enumerate(
            [("accuracy", "accuracy"), ("accuracy_swapped", "accuracy, swapped")][:orders]
        )
    ]
    if orders == 2:
        numbers.append(_share("consistency", "consistent", judged.consistent))
    kappa = partial(estimate_coefficient, counted_kappa)
    numbers.append(Number("kappa", "kappa", choices(judged, 0), kappa, given=(people,), tested=False))
    wins = judged.win_shares
    if not np.isin(judged.answers[~np.isnan(judged.answers)], (0.0, 1.0)).all():
        shown: dict[str, Any] = {"signed": False, "tested": False}
        numbers.append(_share("brier", "Brier", brier_scores(wins, people)))
        numbers.append(Number("calibration_error", "ECE", wins, estimate_calibration_error, given=(people,), **shown))
    if RATINGS in judged.covariates:
        one, others = np.moveaxis(one_against_the_others(judged.covariate(RATINGS)), 2, 0)
        ceiling = mean_of_raters(agreeing(side(one), side(others)))
        if not np.isnan(ceiling).all():
            numbers.append(_share("human_ceiling", "one rater", ceiling, tested=False))
    return numbers


def _share(name: str, label: str, values: FloatArray, *, tested: bool = True) -> Number:
    return Number(name, label, values, estimate_share, signed=False, tested=tested)
