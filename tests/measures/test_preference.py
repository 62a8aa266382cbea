import math

import numpy as np
import pandas
import pytest
from scipy.special import expit

from evalbias.measures import (
    calibration_gap,
    confidence,
    consistent_preferences,
    decision_rates,
    decision_shares,
    estimate_fairness,
    fairness,
    longer_wins,
    negative_entropies,
    win_shares,
)
from evalbias.measures.pairs import counted_odds

NAN = math.nan
ROWS = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5], [NAN, NAN]]


def test_fairness_by_hand():
    # A wins two, B one, one is shared: (2.5, 1.5) / 4
    assert decision_rates(ROWS).tolist() == [0.625, 0.375]
    assert fairness(ROWS) == pytest.approx(-0.125)
    assert fairness(ROWS, prior=[0.625, 0.375]) == pytest.approx(0)
    three = [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4]]
    # rates (2.5, 1, .5) / 4 against 1/3 each
    assert fairness(three) == pytest.approx(-(0.625 - 1 / 3 + 1 / 3 - 0.25 + 1 / 3 - 0.125) / 3)


def test_fairness_is_that_of_the_paper():
    # -.288 in the paper's tables of instructions, which is a first-win rate of .788
    wins = np.r_[np.full(788, 0.9), np.full(212, 0.1)]
    rows = np.stack([wins, 1 - wins], axis=1)
    assert decision_rates(rows)[0] == 0.788
    assert fairness(rows) == pytest.approx(-0.288)
    assert estimate_fairness(decision_shares(rows)).value == pytest.approx(-0.288)
    tied = np.concatenate([rows, np.zeros((1000, 1))], axis=1)
    assert fairness(tied, ties=True) == pytest.approx(-0.288)
    assert [fairness(np.eye(c)[[0]]) for c in (2, 3, 4)] == pytest.approx([-1 / 2, -4 / 9, -3 / 8])  # one always wins
    assert fairness([[1.0, 0.0]], prior=[0.0, 1.0]) == -1


def test_calibration_gap_by_hand():
    assert calibration_gap([[-1.0, -2.0], [-3.0, -1.0], [NAN, -1.0]]) == pytest.approx(0.5)
    assert calibration_gap([[-1.0, -2.0, -4.0]]) == pytest.approx(3)
    with pytest.raises(ValueError, match=r"logprobs\[1\] is infinite"):
        calibration_gap([[-1.0, -2.0], [-math.inf, -1.0]])


def test_consistent_preferences_by_hand():
    forward = [[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [NAN, 0.1], [1.0, 0.0]]
    swapped = [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.6, 0.4], [0.1, 0.9], [1.0, 0.0]]
    # kept, changed, undecided twice, undecided once, undefined, certain of the first position twice
    np.testing.assert_array_equal(consistent_preferences(forward, swapped), [1, 0, 1, 0, NAN, 0])
    forward = [[0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.4, 0.2, 0.4]]
    swapped = [[0.2, 0.6, 0.2], [0.6, 0.2, 0.2], [0.2, 0.4, 0.4]]
    # a tie has no position: kept, a tie that became a choice, the same candidate and the tie share both
    assert consistent_preferences(forward, swapped, ties=True).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="give the same comparisons twice"):
        consistent_preferences(forward, swapped[:2])
    with pytest.raises(ValueError, match=r"\[inf, 0\.0\] are not a distribution"):  # not left out
        consistent_preferences([[math.inf, 0.0]], [[0.0, 1.0]])


def test_the_longer_wins_by_hand():
    wins = longer_wins([0.9, 0.2, 0.5, 0.7, NAN, 0.8], [9, 3, 5, 4, 9, 1], [1, 8, 1, 4, 1, 7])
    # the longer wins, wins, shares, (equal), (undefined), loses
    np.testing.assert_array_equal(wins, [1, 1, 0.5, NAN, NAN, 0])


def test_shares_and_entropies_of_rows_by_hand():
    np.testing.assert_array_equal(decision_shares(ROWS), [[1, 0], [1, 0], [0, 1], [0.5, 0.5], [NAN, NAN]])
    entropies = negative_entropies([[1.0, 0.0], [0.5, 0.5], [NAN, 0.5]])
    np.testing.assert_allclose(entropies, [0, -math.log(2), NAN])
    assert confidence([[1.0, 0.0], [0.5, 0.5], [NAN, 0.5]]) == pytest.approx(-math.log(2) / 2)


def odds(x, wins):
    """The factor on the odds for a unit of x, and the odds at 0."""
    ones = np.ones((1, len(x)))
    return [counted_odds(ones, np.array(wins), np.array(x, dtype=float), at_zero=z)[0] for z in (False, True)]


def test_odds_by_hand():
    # two groups at x = 0 and 1 with shares 1/4 and 2/3: odds 1/3 at zero, and 2 after a unit
    x, wins = np.repeat([0.0, 1.0], [4, 3]), np.array([1, 0, 0, 0, 1, 1, 0], dtype=float)
    assert odds(x, wins) == pytest.approx([6, 1 / 3])
    assert odds(10 * x + 5, wins) == pytest.approx([6**0.1, 6**-0.5 / 3])
    assert odds(x, wins[::-1])[0] == pytest.approx((1 / 2) / 1)  # 2 of 4 at 0, 1 of 3 at 1
    # steep: log odds of -8 at -1 and 8 at 1; those beyond 20 are taken for those of separated decisions
    for log_odds, defined in ((8, True), (19.5, True), (20.5, False)):
        least = 1 / (1 + math.exp(log_odds))
        steep = odds([-1.0, 1.0], [least, 1 - least])[0]
        assert np.isfinite(steep) == defined
        assert log_odds != 8 or steep == pytest.approx(math.exp(8), rel=1e-5)


def test_a_resample_of_few_distant_items_is_separated_too():
    x, wins = np.array([-9.0, -9.0, 9.0, 9.0, *np.linspace(-0.1, 0.1, 96)]), np.tile([0.0, 1.0], 50)
    wins[:4] = [0.0, 0.0, 1.0, 1.0]
    counts = np.ones((2, 100))
    counts[0, 4:] = 0
    found = counted_odds(counts, wins, x)
    assert math.isnan(found[0])
    assert found[1] == pytest.approx(odds(x, wins)[0])


def test_odds_solve_the_score_equations():
    rng = np.random.default_rng(1)
    x, p = rng.normal(size=(3, 40)), (rng.random((3, 40)) < 0.6).astype(float)
    slope, intercept = np.log([odds(one, wins) for one, wins in zip(x, p, strict=True)]).T
    error = expit(slope[:, None] * x + intercept[:, None]) - p
    np.testing.assert_allclose([(error * x).mean(axis=1), error.mean(axis=1)], 0, atol=1e-8)


def test_separated_decisions_have_no_odds():
    for x, wins in (
        ([-1, 1], [0, 1]),
        ([0, 0, 1], [1, 1, 1]),
        ([1, 2, 3, 4], [0, 0, 0, 0]),
        ([1, 1, 2, 2], [1, 1, 0, 0]),
        ([-1.5, -0.5, 0.5, 1.5], [0, 0, 1, 1]),
        ([-1, -1], [0.1, 0.9]),
    ):
        assert np.isnan(odds(x, wins)).all()


def test_ties_but_for_rounding_are_ties():
    assert longer_wins([0.5 + 1e-15], [9], [1])[0] == 0.5
    assert win_shares([0.1 + 0.2, 0.3], decided=True).tolist() == [0.5, 0.5]
    assert decision_shares([[0.1 + 0.2 + 0.2, 0.5]]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("measure", [decision_rates, fairness, confidence])
@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([0.5, 0.5], "shape"),
        ([[1.0]], "shape"),
        ([[0.5, 0.5], [0.5, 0.6], [0.5, 0.7]], r"\[0\.5, 0\.6\] are not a distribution"),
        ([[1.5, -0.5]], "not a distribution"),
    ],
)
def test_bad_input(measure, rows, match):
    with pytest.raises(ValueError, match=match):
        measure(rows)


def test_nothing_defined_is_nan():
    assert np.isnan(decision_rates([[NAN, NAN]])).all()
    assert all(math.isnan(m([[NAN, NAN]])) for m in (fairness, confidence, calibration_gap))
    with pytest.raises(ValueError, match="prior"):
        fairness(ROWS, prior=[0.2, 0.2])


def test_rates_averaged_over_documents():
    groups = ["a", "a", "a", "b", "b"]
    # a: A, A, B; b: shared, undefined
    assert decision_rates(ROWS, groups=groups).tolist() == pytest.approx([(2 / 3 + 1 / 2) / 2, (1 / 3 + 1 / 2) / 2])
    by_place = decision_rates(ROWS, groups=pandas.Series(groups, index=[4, 3, 2, 1, 0]))
    assert by_place.tolist() == decision_rates(ROWS, groups=groups).tolist()
    assert fairness(ROWS, groups=groups) == pytest.approx(0.5 - (2 / 3 + 1 / 2) / 2)
    with pytest.raises(ValueError, match="groups has 2 entries for 5 items"):
        decision_rates(ROWS, groups=["a", "b"])
