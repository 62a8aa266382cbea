"""Statistics by hand; how they are swapped is tested in test_significance.py, their intervals in test_intervals.py."""

import math

import numpy as np
import pytest
import scipy

from evalbias.measures import (
    FairnessStatistic,
    MeanStatistic,
    OddsStatistic,
    RankStatistic,
    ShareStatistic,
    SkewnessStatistic,
    bias_score_statistic,
    performance_statistic,
    share_interval,
)
from evalbias.measures import pairs as decision_statistics
from evalbias.measures.effect_statistic import EffectStatistic
from evalbias.measures.resample import ALIKE, FEWEST_UNITS, MeanCorrelationStatistic, Statistic

NAN = math.nan
LS, HUMAN, SCORES = [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 5.0, 5.0], [2.0, 3.0, 3.0, 4.0]


def test_fairness_by_hand():
    rates = np.array([[0.5, 0.2, 0.3]])
    assert FairnessStatistic()(rates) == pytest.approx(-(0.5 - 1 / 3 + 1 / 3 - 0.2 + 1 / 3 - 0.3))
    # the positions share .7: .35 each
    assert FairnessStatistic(ties=True)(rates) == pytest.approx(-(0.15 + 0.15))
    assert FairnessStatistic([0.5, 0.5, 0], ties=True)(rates) == pytest.approx(-(0 + 0.3 + 0.3))
    assert FairnessStatistic([0.6, 0.4])([[0.9, 0.1], [0.5, 0.5]]) == pytest.approx(-(0.1 + 0.1))
    # three positions and a tie: .8 / 3 each
    assert FairnessStatistic(ties=True)([[0.5, 0.2, 0.1, 0.2]]) == pytest.approx(
        -(0.5 - 0.8 / 3 + 0.8 / 3 - 0.2 + 0.8 / 3 - 0.1)
    )
    np.testing.assert_allclose(FairnessStatistic(ties=True).rows(np.stack([rates, rates[:, ::-1]])), [-0.3, -0.1])


def test_ranks_by_hand():
    # ranks 1, 2.5, 2.5, 4 and 1.5, 1.5, 3.5, 3.5: (1.5 * 1 + 0 + 0 + 1.5 * 1) / sqrt(4.5 * 4)
    assert performance_statistic(HUMAN)(SCORES) == pytest.approx(3 / math.sqrt(18))
    # US = (-1/2 + 1/2, 0 + 1/2, 0 - 1/2, 1/2 - 1/2): ranks 2.5, 4, 1, 2.5 against 1, 2, 3, 4
    assert bias_score_statistic(LS, HUMAN)(SCORES) == pytest.approx(-1.5 / math.sqrt(4.5 * 5))
    assert bias_score_statistic(LS, HUMAN, normalization="z-score")(SCORES) == pytest.approx(0)
    assert math.isnan(performance_statistic(HUMAN)([3.0] * 4))
    assert math.isnan(bias_score_statistic(LS, [2.0] * 4)(SCORES))


def test_means_and_skewness_by_hand():
    np.testing.assert_allclose(MeanStatistic().rows(np.array([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])), [3, 1])
    np.testing.assert_allclose(SkewnessStatistic().rows(np.array([[0.0, 3.0], [-2.0, 2.0], [4.0, 4.0]])), [0.5, 0, 1])
    counts = np.array([[1, 1, 1], [2, 1, 0]])
    np.testing.assert_allclose(MeanStatistic().resampled(np.array([1.0, 2.0, 6.0]), counts), [3, 4 / 3])
    # (0, 3) as above; (0, 0, 3): 1 - 4 * 3 / (4 * 3 + 6)
    skewness = SkewnessStatistic().resampled(np.array([0.0, 3.0]), np.array([[1, 1], [2, 1], [2, 0]]))
    np.testing.assert_allclose(skewness, [0.5, 1 - 12 / 18, NAN])
    assert SkewnessStatistic().resampled(np.array([-2.0, 2.0, 5.0]), np.array([[3, 3, 0]]))[0] == 0


def test_odds_by_hand():
    # two groups at x = 0 and 1 with shares 1/4 and 2/3: odds 1/3 at zero, and 2 after a unit
    x, wins = np.repeat([0.0, 1.0], [4, 3]), np.array([1, 0, 0, 0, 1, 1, 0], dtype=float)
    assert OddsStatistic(x)(wins) == pytest.approx(6)
    assert OddsStatistic(x, at_zero=True)(wins) == pytest.approx(1 / 3)
    assert OddsStatistic(10 * x + 5)(wins) == pytest.approx(6**0.1)
    assert OddsStatistic(10 * x + 5, at_zero=True)(wins) == pytest.approx(6**-0.5 / 3)
    # steep: log odds of -8 at -1 and 8 at 1
    steep = 1 / (1 + math.exp(8))
    assert OddsStatistic(np.array([-1.0, 1.0]))([steep, 1 - steep]) == pytest.approx(math.exp(8), rel=1e-5)
    # log odds beyond 20 are taken for those of separated decisions
    for log_odds, defined in ((19.5, True), (20.5, False)):
        least = 1 / (1 + math.exp(log_odds))
        assert np.isfinite(OddsStatistic(np.array([-1.0, 1.0]))([least, 1 - least])) == defined
    rows = OddsStatistic(x).rows(np.stack([wins, np.ones(7), wins[::-1]]), x[None])
    assert rows[0] == pytest.approx(6)
    assert math.isnan(rows[1])
    assert rows[2] == pytest.approx((1 / 2) / 1)  # 2 of 4 at 0, 1 of 3 at 1


def test_slope_and_intercept_of_the_same_resamples_are_fitted_once(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    wins = (rng.random(40) < 1 / (1 + np.exp(-x))).astype(float)
    options = {"n_resamples": 300, "seed": 1}
    alone = OddsStatistic(x, at_zero=True).interval(wins, **options)
    slope = OddsStatistic(x)
    intercept = OddsStatistic(x, at_zero=True, shared=slope)
    slope.interval(wins, **options)
    assert intercept.matches(OddsStatistic(x, at_zero=True))  # what was fitted is no setting
    fit, rows = decision_statistics._logistic, []
    monkeypatch.setattr(decision_statistics, "_logistic", lambda *a, **o: rows.append(len(a[2])) or fit(*a, **o))
    assert intercept.interval(wins, **options) == alone
    assert rows == [1]  # the estimate itself
    intercept.interval(wins, n_resamples=300, seed=2)
    assert sum(rows) > 300


def test_a_fit_that_has_converged_takes_no_further_steps(monkeypatch):
    x, wins = np.repeat([0.0, 1.0], [40, 30]), np.tile([1.0, 0.0, 0.0, 1.0, 0.0], 14)
    counts = np.random.default_rng(0).multinomial(70, np.full(70, 1 / 70), size=20).astype(float)
    expit, rows = scipy.special.expit, []
    monkeypatch.setattr(scipy.special, "expit", lambda z: rows.append(len(z)) or expit(z))
    assert np.isfinite(decision_statistics._logistic(x, wins, counts)).all()
    assert len(rows) < 10  # Newton's method doubles the digits with every step
    assert rows == sorted(rows, reverse=True)
    assert 0 < rows[-1] < rows[0] == 20


def test_a_resample_of_few_distant_items_is_separated_too():
    x, wins = np.array([-9.0, -9.0, 9.0, 9.0, *np.linspace(-0.1, 0.1, 96)]), np.tile([0.0, 1.0], 50)
    wins[:4] = [0.0, 0.0, 1.0, 1.0]
    counts = np.ones((2, 100))
    counts[0, 4:] = 0
    odds = OddsStatistic(x).resampled(wins, counts)
    assert math.isnan(odds[0])
    assert odds[1] == pytest.approx(OddsStatistic(x)(wins))


def test_statistics_match_if_kind_settings_and_references_do():
    assert performance_statistic(HUMAN).matches(performance_statistic(HUMAN))
    assert performance_statistic([1.0, NAN]).matches(performance_statistic([1.0, NAN]))
    assert not performance_statistic(HUMAN).matches(performance_statistic(HUMAN[::-1]))
    assert not performance_statistic(HUMAN).matches(bias_score_statistic(HUMAN, HUMAN))
    assert not performance_statistic(HUMAN).matches(MeanStatistic())
    assert not MeanStatistic().matches(ShareStatistic())
    assert MeanStatistic().matches(MeanStatistic())
    assert not FairnessStatistic(ties=True).matches(FairnessStatistic())
    assert FairnessStatistic([0.5, 0.5]).matches(FairnessStatistic([0.5, 0.5]))
    assert not FairnessStatistic([0.5, 0.5]).matches(FairnessStatistic([0.4, 0.6]))
    assert not FairnessStatistic([0.5, 0.5]).matches(FairnessStatistic())


class Wrapper(Statistic):
    def __init__(self, inner):
        self.inner = inner


def test_a_statistic_within_another_is_compared_too():
    assert Wrapper(performance_statistic(HUMAN)).matches(Wrapper(performance_statistic(HUMAN)))
    assert not Wrapper(performance_statistic(HUMAN)).matches(Wrapper(performance_statistic(LS)))
    assert not Wrapper(None).matches(Wrapper(performance_statistic(LS)))
    assert Wrapper((1, 2)).matches(Wrapper((1, 2)))
    for other in ((1,), (1, 2, 3), (1, 3), None):
        assert not Wrapper((1, 2)).matches(Wrapper(other))
        assert not Wrapper(other).matches(Wrapper((1, 2)))


def test_statistics_with_named_columns_match_if_names_and_columns_do():
    feature, ratings = np.arange(4.0), np.ones((4, 2))

    def of(**covariates):
        return EffectStatistic(feature, ratings, covariates=covariates)

    assert of(length=feature).matches(of(length=feature.copy()))
    assert not of(length=feature).matches(of(words=feature))
    assert not of(length=feature).matches(of(length=feature + 1))
    assert not of(length=feature).matches(of())


def test_a_part_of_the_items_has_a_part_of_the_references():
    one = RankStatistic(LS, HUMAN)
    part = one.keep(np.array([True, False, True, True]))
    assert [r.tolist() for r in part.references] == [[1, 3, 4], [1, 5, 5]]
    assert one.references[0].tolist() == LS
    assert part([2.0, 3.0, 4.0]) == pytest.approx(RankStatistic([1, 3, 4], [1, 5, 5])([2.0, 3.0, 4.0]))
    with pytest.raises(NotImplementedError):
        Statistic()([1.0])


def test_swaps_by_hand():
    a, b = np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[0.2, 0.8], [0.5, 0.5]])
    of_a, of_b = FairnessStatistic().swapping(a, b)(np.array([[False, False], [True, False], [True, True]]))
    np.testing.assert_allclose(of_a, [-0.5, -0.2, -0.3])  # rates of A .75, .4, .35
    np.testing.assert_allclose(of_b, [-0.3, -0.4, -0.5])  # .35, .7, .75
    of_a, of_b = MeanStatistic().swapping(a[:, 0], b[:, 0])(np.array([[True, False]]))
    np.testing.assert_allclose((of_a[0], of_b[0]), (0.4, 0.7))


def test_p_of_a_statistic_at_the_end_of_its_range_is_that_of_its_own_test():
    rng, found = np.random.default_rng(0), {"fairness": [], "three": [], "skewness": []}
    for seed in range(200):  # the shares are fair, the values symmetric
        first = (rng.random(40) < 0.5).astype(float)
        three = np.eye(3)[rng.integers(0, 3, 40)]
        for name, one, values in (
            ("fairness", FairnessStatistic(), np.stack([first, 1 - first], axis=1)),
            ("three", FairnessStatistic(), three),
            ("skewness", SkewnessStatistic(), rng.normal(size=40)),
        ):
            interval = one.interval(values, n_resamples=200, seed=seed)
            found[name].append(interval.p_value)
            assert (interval.p_value < 0.05) == (interval.low > 0 or interval.high < 0)
    for values in found.values():
        assert np.mean(np.array(values) < 0.05) <= 0.08
        assert 0.35 < np.mean(np.array(values) < 0.5) < 0.75  # not all of them are .05


def test_intervals_draw_10_000_resamples_by_default():
    for one in (MeanStatistic(), SkewnessStatistic()):
        a, b = [1.0, 2.0, 4.0, 5.0, 7.0, 9.0], [1.0, 3.0, 4.0, 6.0, 7.0, 8.0]
        found = one.interval(a, seed=0)
        assert found.n_resamples == one.difference(a, b, seed=0).n_resamples == 10_000
        assert found == one.interval(a, n_resamples=10_000, confidence=0.95, seed=0)


def test_few_units_have_no_bootstrap_interval_and_a_difference_stays_within_its_limits():
    rng = np.random.default_rng(0)
    people = rng.normal(size=8)
    for n in range(2, FEWEST_UNITS):  # a judge and people that agree on all of a few items
        found = RankStatistic(people[:n]).interval(people[:n], n_resamples=50, seed=0)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert (found.n_resamples, found.undefined, found.units) == (0, 0, n)
    found = RankStatistic(people).interval(people + rng.normal(size=8), n_resamples=50, seed=0)
    assert (found.n_resamples, found.undefined, found.units) == (0, 0, 8)  # the jackknife draws nothing
    documents = ["a", "b", "c", "d", "e"] * 8
    assert math.isnan(MeanStatistic().interval(rng.normal(size=40), clusters=documents, n_resamples=50, seed=0).low)
    found = RankStatistic(people).difference(people, -people + rng.normal(0, 0.4, 8), n_resamples=400, seed=0)
    assert -2 <= found.low < found.estimate < found.high <= 2


def test_random_rankers_of_few_documents_are_rarely_called_good():
    rng, called = np.random.default_rng(1), []
    for units in (2, 3, 4, 6, 8):
        found = [MeanStatistic().interval(rng.choice([-1.0, 1.0], units), n_resamples=99, seed=0) for _ in range(300)]
        called.append(np.mean([one.low > 0 or one.high < 0 for one in found]))
    assert max(called) < 0.1
    assert max(called[:3]) == 0


def test_documents_that_all_rank_perfectly_leave_room_for_one_that_does_not():
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):  # one ranking in ten is reversed, so the mean is .8
        found = MeanCorrelationStatistic().interval(rng.choice([-1.0, 1.0], 10, p=[0.1, 0.9]), seed=0)
        held += found.low <= 0.8 <= found.high
    assert held >= 275
    perfect = MeanCorrelationStatistic().interval(np.ones(10), seed=0)
    assert (perfect.low, perfect.high) == (pytest.approx(2 * share_interval(np.ones(10)).low - 1), 1)


def test_equal_differences_do_not_tell_that_a_judge_is_biased():
    rng, called = np.random.default_rng(0), 0
    for seed in range(200):  # the mean is 0, and all 10 are 1 in 39 % of samples
        found = MeanStatistic().interval(rng.choice([-10.0, 1.0], 10, p=[1 / 11, 10 / 11]), n_resamples=99, seed=seed)
        called += found.low > 0
    assert called <= 10
    alike = MeanStatistic().interval(np.full(10, 0.1), n_resamples=99, seed=0)
    assert (alike.estimate, alike.reason) == (pytest.approx(0.1), ALIKE)
    assert math.isnan(alike.low)
    assert math.isnan(alike.high)


def test_an_interval_of_skewness_leaves_0_out_where_p_is_at_its_level():
    found = SkewnessStatistic().interval(np.arange(1.0, 9.0), n_resamples=3, confidence=0.75, seed=0)
    assert found.p_value == 0.25
    assert found.low > 0
