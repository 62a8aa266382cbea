"""Agreement of judges with people, with its ceiling and floors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, scored
from scipy import stats

from evalbias.evaluation import BIASES, Judged, measure
from evalbias.evaluation.agreement import PeopleAgreement
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import krippendorff_alpha

NAN = math.nan
FIRST, SECOND, TIE, NONE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (NAN, NAN, NAN)


def agreement(judged):
    return measure(PeopleAgreement(), judged, seed=0, n_resamples=100)


def test_a_judge_that_scores():
    judged = scored(np.random.default_rng(0), 150, raters=3)
    human, ratings = judged.covariates[HUMAN_SCORES], judged.covariates[RATINGS]
    found = agreement(judged)
    level = ratings - ratings.mean(axis=0)
    choices_of_one = [(row[r], np.delete(row, r).mean()) for row in level for r in range(3)]
    expected = {
        "spearman": stats.spearmanr(judged.answers, human).statistic,
        "kendall": stats.kendalltau(judged.answers, human).statistic,
        "pearson": stats.pearsonr(judged.answers, human).statistic,
        "alpha_interval": krippendorff_alpha(np.column_stack([judged.answers, human]), level="interval"),
        "alpha_ordinal": krippendorff_alpha(np.column_stack([judged.answers, human]), level="ordinal"),
        "human_ceiling": stats.spearmanr(*np.round(choices_of_one, 9).T).statistic,
        "likelihood_floor": stats.spearmanr(judged.covariates[LIKELIHOODS], human).statistic,
        "length_floor": stats.spearmanr(judged.covariates[LENGTHS], human).statistic,
    }
    assert {name: estimate.value for name, estimate in found.estimates.items()} == pytest.approx(expected)
    assert all(e.low < e.value < e.high and e.null is None for e in found.estimates.values())
    assert isinstance(BIASES["agreement"], PeopleAgreement)


def test_a_floor_is_of_the_side_that_agrees_better():
    judged = scored(np.random.default_rng(0), 150, raters=3)
    floors = ("likelihood_floor", "length_floor")
    found = agreement(judged)
    assert [found[name].label for name in floors] == ["likelihood alone", "length alone"]
    worse = replace(judged, covariates={**judged.covariates, LENGTHS: -judged.covariates[LENGTHS]})
    other = agreement(worse)["length_floor"]
    assert (other.label, other.value, other.low) == (
        "brevity alone",
        found["length_floor"].value,
        found["length_floor"].low,
    )
    pairs = verdicts(**{BETTER: [0.0, 1.0, 1.0, NAN, 1.0], LENGTHS: [[1, 9], [1, 9], [3, 3], [9, 1], [9, 1.0]]})
    shares = agreement(pairs)["length_floor"]
    assert (shares.label, shares.value) == ("brevity alone", pytest.approx((1 + 0 + 0.5 + 1) / 4))
    pairs.covariates[LENGTHS][:] = 3.0
    assert (agreement(pairs)["length_floor"].label, agreement(pairs)["length_floor"].value) == ("length alone", 0.5)


def test_alpha_needs_one_scale():
    judged = scored(np.random.default_rng(0), 30)
    percent = replace(judged, covariates={HUMAN_SCORES: 25 * (judged.covariates[HUMAN_SCORES] - 1) + 6})
    assert "alpha_interval" not in agreement(percent).estimates
    assert "alpha_interval" in agreement(replace(judged, scale=(1, 5))).estimates
    assert "alpha_interval" not in agreement(replace(judged, scale=(2, 5))).estimates
    nobody = replace(judged, covariates={HUMAN_SCORES: np.full(30, NAN)})
    assert math.isnan(agreement(nobody)["spearman"].value)


def verdicts(**covariates):
    # chosen candidate in the order given: 0, 1, tie, 0, none; in the other order: 0, 0, 1, tie, 1
    answers = np.array([[FIRST, SECOND], [SECOND, SECOND], [TIE, FIRST], [FIRST, TIE], [NONE, FIRST]])
    return Judged(tuple("abcde"), "quality", answers, {k: np.array(v) for k, v in covariates.items()}, ties=True)


def test_verdicts_by_hand():
    judged = verdicts(**{BETTER: [0.0, 1.0, 1.0, NAN, 1.0], LENGTHS: [[9, 1], [9, 1], [3, 3], [1, 9], [1, 9.0]]})
    assert judged.preferred == pytest.approx([1, 0, 0, NAN, 0], nan_ok=True)
    found = agreement(judged)
    values = {name: (e.value, e.n, e.undefined) for name, e in found.estimates.items()}
    # kappa of the choices 1, 0, .5 with 1, 0, 0: p_o = 2.5 / 3, p_e = .5 / 3 + .5 * 2 / 3 = .5
    assert values == {
        "accuracy": (pytest.approx((1 + 1 + 0.5) / 3), 3, 2),
        "accuracy_swapped": (pytest.approx((1 + 0 + 1 + 1) / 4), 4, 1),
        "consistency": (pytest.approx(1 / 4), 4, 1),
        "kappa": (pytest.approx((2.5 / 3 - 0.5) / 0.5), 3, 2),
        "length_floor": (pytest.approx((1 + 0 + 0.5 + 1) / 4), 4, 1),
    }
    one_order = replace(judged, answers=judged.answers[:, :1])
    assert {"accuracy_swapped", "consistency"}.isdisjoint(agreement(one_order).estimates)


def test_probabilities_are_scored_as_forecasts():
    answers = np.array([[(0.8, 0.2), (0.4, 0.6)], [(0.3, 0.7), (0.5, 0.5)]])  # first candidate: .7 and .4
    judged = Judged(("a", "b"), "quality", answers, {BETTER: np.array([0.0, 0.0])})
    found = agreement(judged)
    assert found["brier"].value == pytest.approx((0.3**2 + 0.6**2) / 2)
    assert found["calibration_error"].value == pytest.approx((0.3 + 0.6) / 2)


def test_ratings_stand_in_for_choices():
    ratings = [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, NAN], [2.0, NAN, NAN], [NAN, NAN, NAN]]
    judged = verdicts(**{RATINGS: ratings})
    assert judged.preferred == pytest.approx([1, NAN, 0, 1, NAN], nan_ok=True)
    found = agreement(judged)
    # one rater against the others: in the first 1 against 0 (neither), -1 against 1; in the third -1 against -1
    assert (found["human_ceiling"].value, found["human_ceiling"].n) == (0.5, 2)
    pairs = agreement(compared(np.random.default_rng(1), 300, raters=3))
    assert 0.6 < pairs["human_ceiling"].low < pairs["human_ceiling"].value < pairs["accuracy"].high
    assert pairs["likelihood_floor"].value > 0.5


def test_agreement_needs_people():
    assert not PeopleAgreement().applies(verdicts())
    assert PeopleAgreement().applies(verdicts(**{BETTER: [1.0] * 5}))
    assert not PeopleAgreement().applies(Judged(("a",), "quality", np.ones(1)))
    assert PeopleAgreement().applies(Judged(("a",), "quality", np.ones(1), {HUMAN_SCORES: np.ones(1)}))
