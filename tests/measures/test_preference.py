import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from evalbias.measures import (
    calibration_gap,
    confidence,
    count_undefined,
    decision_rates,
    fairness,
    likelihood_preference,
    longer_preference,
    pairwise_accuracy,
    position_consistency,
)

NAN = math.nan
ROWS = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5], [NAN, NAN]]


def test_fairness_by_hand():
    # A wins two, B one, one is shared: (2.5, 1.5) / 4
    assert decision_rates(ROWS).tolist() == [0.625, 0.375]
    assert fairness(ROWS) == pytest.approx(-0.25)
    assert fairness(ROWS, prior=[0.625, 0.375]) == pytest.approx(0)
    assert count_undefined(ROWS) == 1


def test_fairness_of_three_classes_by_hand():
    rows = [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4]]
    # rates (2.5, 1, .5) / 4 against 1/3 each
    assert fairness(rows) == pytest.approx(-(0.625 - 1 / 3 + 1 / 3 - 0.25 + 1 / 3 - 0.125))


@given(n=st.integers(1, 30), c=st.integers(2, 5), seed=st.integers(0, 99))
def test_fairness_does_not_depend_on_the_order_of_rows_or_classes(n, c, seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(c), size=n)
    found = fairness(rows)
    assert -2 <= found <= 0
    assert fairness(rows[rng.permutation(n)][:, rng.permutation(c)]) == pytest.approx(found)
    assert decision_rates(rows).sum() == pytest.approx(1)


def test_confidence_by_hand():
    assert confidence([[1.0, 0.0], [0.5, 0.5], [NAN, 0.5]]) == pytest.approx(-math.log(2) / 2)


def test_calibration_gap_by_hand():
    assert calibration_gap([[-1.0, -2.0], [-3.0, -1.0], [NAN, -1.0]]) == pytest.approx(0.5)
    assert calibration_gap([[-1.0, -2.0, -4.0]]) == pytest.approx(3)
    with pytest.raises(ValueError, match=r"logprobs\[1\] is infinite"):
        calibration_gap([[-1.0, -2.0], [-math.inf, -1.0]])


def test_position_consistency_by_hand():
    forward = [[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [NAN, 0.1]]
    swapped = [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.6, 0.4], [0.1, 0.9]]
    # kept, changed, undecided twice, undecided once
    assert position_consistency(forward, swapped) == pytest.approx(2 / 4)
    with pytest.raises(ValueError, match="give the same comparisons twice"):
        position_consistency(forward, swapped[:2])


def test_a_tie_has_no_position():
    forward = [[0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.4, 0.2, 0.4]]
    swapped = [[0.2, 0.6, 0.2], [0.6, 0.2, 0.2], [0.2, 0.4, 0.4]]
    # kept, a tie that became a choice, the same candidate and the tie share both
    assert position_consistency(forward, swapped, ties=True) == pytest.approx(2 / 3)


def test_longer_preference_by_hand():
    found = longer_preference([0.9, 0.2, 0.5, 0.7, NAN, 0.8], [9, 3, 5, 4, 9, 1], [1, 8, 1, 4, 1, 7])
    # the longer wins, wins, shares, (equal), (undefined), loses
    assert found.rate == pytest.approx(2.5 / 4)
    assert (found.n, found.equal, found.undefined) == (4, 1, 1)


def test_likelihood_preference_finds_the_planted_odds():
    rng = np.random.default_rng(0)
    a, b = rng.normal(-40, 10, size=(2, 500))
    found = likelihood_preference(expit(0.05 * (a - b) + 0.3), a, b)
    assert found.spearman == pytest.approx(1)
    assert found.odds_per_nat == pytest.approx(math.exp(0.05), rel=1e-4)
    assert found.odds_of_first == pytest.approx(math.exp(0.3), rel=1e-4)


def test_separated_decisions_have_no_odds():
    found = likelihood_preference([0.0, 0.0, 1.0, 1.0, NAN], [1, 2, 3, 4, 5], [2.5] * 5)
    assert math.isnan(found.odds_per_nat)
    assert found.spearman == pytest.approx(0.894, abs=1e-3)
    assert (found.n, found.undefined) == (4, 1)
    assert math.isnan(likelihood_preference([0.1, 0.9], [1, 1], [2, 2]).odds_per_nat)


def test_pairwise_accuracy_by_hand():
    # group a: 1-2 right, 1-3 wrong, 2-3 equal for people; group b: a tie counts half; group c: nothing to order
    judged, human = [1, 2, 0, 5, 5, 1, 2, NAN], [1, 2, 2, 3, 4, 2, 2, 1]
    groups = ["a", "a", "a", "b", "b", "c", "c", "c"]
    found = pairwise_accuracy(judged, human, groups=groups)
    assert found.value == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert (found.groups, found.undefined_groups, found.undefined) == (2, 1, 1)


@pytest.mark.parametrize("measure", [decision_rates, fairness, confidence])
@pytest.mark.parametrize(
    ("rows", "match"),
    [([0.5, 0.5], "shape"), ([[1.0]], "shape"), ([[0.5, 0.6]], "no distribution"), ([[1.5, -0.5]], "no distribution")],
)
def test_bad_input(measure, rows, match):
    with pytest.raises(ValueError, match=match):
        measure(rows)


def test_nothing_defined_is_nan():
    assert np.isnan(decision_rates([[NAN, NAN]])).all()
    assert all(math.isnan(m([[NAN, NAN]])) for m in (fairness, confidence, calibration_gap))
    assert math.isnan(position_consistency([[NAN, NAN]], [[0.5, 0.5]]))
    with pytest.raises(ValueError, match="prior"):
        fairness(ROWS, prior=[0.2, 0.2])


def test_rates_averaged_over_documents():
    groups = ["a", "a", "a", "b", "b"]
    # a: A, A, B; b: shared, undefined
    assert decision_rates(ROWS, groups=groups).tolist() == pytest.approx([(2 / 3 + 1 / 2) / 2, (1 / 3 + 1 / 2) / 2])
    assert fairness(ROWS, groups=groups) == pytest.approx(-2 * ((2 / 3 + 1 / 2) / 2 - 0.5))
    with pytest.raises(ValueError, match="groups has 2 entries for 5 rows"):
        decision_rates(ROWS, groups=["a", "b"])


def test_an_agreement_tells_every_group():
    found = pairwise_accuracy([1, 2, 3, 1, NAN, 5], [1, 3, 2, 1, 2, 4], groups=list("aaabbc"))
    assert found.by_group[0] == pytest.approx(2 / 3)
    assert [math.isnan(v) for v in found.by_group] == [False, True, True]
