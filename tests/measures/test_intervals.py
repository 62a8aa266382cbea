import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures import (
    FairnessStatistic,
    MeanStatistic,
    OddsStatistic,
    ShareStatistic,
    SkewnessStatistic,
    bias_score_statistic,
    bootstrap_ci,
    performance_statistic,
    share_interval,
    spearman_rows,
)
from evalbias.measures.agreement import counted_ranks, rank_rows
from evalbias.measures.resample import Statistic, p_of_interval, picked

NORMALIZATIONS = ("mean-range", "center-max", "z-score")


def kinds(n, rng, values=4):
    ls, human, scores = (rng.integers(0, values, n).astype(float) for _ in range(3))
    shares = rng.dirichlet(np.ones(3), size=n)
    return [
        (performance_statistic(human), scores),
        *((bias_score_statistic(ls, human, normalization=name), scores) for name in NORMALIZATIONS),
        (MeanStatistic(), scores),
        (ShareStatistic(), scores / values),
        (SkewnessStatistic(), scores - 1),
        (FairnessStatistic(), shares),
        (FairnessStatistic([0.5, 0.3, 0.2]), shares),
        (FairnessStatistic(ties=True), shares),
        (OddsStatistic(ls), shares[:, 0]),
    ]


@settings(max_examples=40)
@given(n=st.integers(4, 14), values=st.sampled_from([3, 4, 1000]), seed=st.integers(0, 999))
def test_resamples_by_counts_are_resamples_of_items(n, values, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, np.ones(n) / n, size=25)
    counts[:3] = counts[:3, rng.permutation(n)] * rng.integers(1, 3, size=(3, 1))  # of different sizes
    for one, scores in kinds(n, rng, values):
        np.testing.assert_allclose(
            one.resampled(scores, counts), Statistic.resampled(one, scores, counts), atol=1e-9, err_msg=repr(one)
        )


@settings(max_examples=40)
@given(n=st.integers(1, 12), values=st.integers(1, 5), seed=st.integers(0, 999))
def test_counted_ranks_are_those_of_the_resample(n, values, seed):
    rng = np.random.default_rng(seed)
    x, counts = rng.integers(0, values, n).astype(float), rng.multinomial(n, np.ones(n) / n, size=6)
    rows, items = next(picked(counts))
    for ranks in (counted_ranks(x, counts), counted_ranks(np.tile(x, (6, 1)), counts)):
        np.testing.assert_array_equal(np.take_along_axis(ranks[rows], items, axis=1), rank_rows(x[items]))


@pytest.mark.parametrize("clusters", [None, np.repeat(np.arange(20), 2)])
def test_bca_is_scipys_at_the_wider_level(clusters):
    rng = np.random.default_rng(0)
    x = rng.exponential(size=40)
    units = 40 if clusters is None else 20
    wide = 2 * stats.norm.cdf(stats.t.ppf(0.9, units - 1) * math.sqrt(units / (units - 1))) - 1
    found = bootstrap_ci(
        lambda rows: rows.var(axis=1), x, clusters=clusters, n_resamples=60_000, confidence=0.8, seed=0
    )
    if clusters is None:
        data, statistic = (x,), np.var
    else:  # documents of two outputs: their sums of x and of squares
        data = (x.reshape(20, 2).sum(axis=1), (x.reshape(20, 2) ** 2).sum(axis=1))

        def statistic(first, second, axis=-1):
            return second.mean(axis) / 2 - (first.mean(axis) / 2) ** 2

    theirs = stats.bootstrap(
        data,
        statistic,
        paired=True,
        confidence_level=wide,
        n_resamples=60_000,
        method="BCa",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(theirs), rel=0.02)
    assert (found.n_resamples, found.undefined, found.units) == (60_000, 0, units)


def test_percentiles_are_scipys():
    x = np.random.default_rng(0).exponential(size=40)
    found = bootstrap_ci(lambda rows: rows.mean(axis=1), x, method="percentile", n_resamples=40_000, seed=0)
    theirs = stats.bootstrap((x,), np.mean, method="percentile", n_resamples=40_000, rng=np.random.default_rng(1))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval), rel=0.02)


def test_wilsons_interval_is_scipys_but_for_students_quantile():
    for successes, n in ((30, 30), (0, 12), (19, 20), (40, 100)):
        found = share_interval([1.0] * successes + [0.0] * (n - successes))
        t = stats.t.ppf(0.975, n - 1)
        # without a measured variation the effective number is n, else n - 1: the variance is estimated
        size = n if successes in (0, n) else n - 1
        exact = stats.binomtest(round(successes), n).proportion_estimate
        center = (exact + t * t / (2 * size)) / (1 + t * t / size)
        half = t / (1 + t * t / size) * math.sqrt(exact * (1 - exact) / size + t * t / (4 * size * size))
        assert (found.low, found.high) == (pytest.approx(center - half, abs=1e-12), pytest.approx(center + half))
        normal = stats.binomtest(successes, n).proportion_ci(method="wilson")
        assert found.low == pytest.approx(normal.low, abs=0.05)
        assert found.low <= exact <= found.high


def test_the_share_of_documents_counts_documents():
    values = np.repeat([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0], 5)
    documents = np.repeat(np.arange(8), 5)
    whole, alone = share_interval(values, clusters=documents), share_interval(values[::5])
    assert (whole.low, whole.high, whole.units) == (pytest.approx(alone.low), pytest.approx(alone.high), 8)
    agreed = share_interval(np.ones(40), clusters=documents)
    assert (agreed.low, agreed.high) == (pytest.approx(share_interval(np.ones(8)).low), 1)


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.9999, 1.0])
@pytest.mark.parametrize("units", [4, 30])
def test_the_interval_of_a_share_does_not_jump(value, units):
    alike = share_interval([value] * units)
    moved = share_interval([value] * (units - 1) + [abs(value - 1e-7)])
    assert (moved.low, moved.high) == pytest.approx((alike.low, alike.high), abs=1e-6)
    # Wilson's interval of a share in n decisions, here with n = units + 4 p (1 - p) units^2
    n, t = units + 4 * value * (1 - value) * units**2, stats.t.ppf(0.975, units - 1)
    for end in {alike.low, alike.high} - {value}:
        assert abs(end - value) == pytest.approx(t * math.sqrt(end * (1 - end) / n))


def test_sure_and_right_judgments_leave_room_for_a_wrong_one():
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):  # probabilities of the truth: .999, but in 5 of 100 draws 0
        values = np.where(rng.random(10) < 0.05, 0, 0.999 - 1e-4 * rng.random(10))
        found = share_interval(values)
        held += found.low <= 0.95 * 0.99895 <= found.high
    assert held >= 380


def test_shares_that_cannot_be_estimated():
    assert math.isnan(share_interval([math.nan, 1.0]).low)
    assert share_interval([math.nan, 1.0]).estimate == 1
    assert math.isnan(share_interval([]).estimate)
    with pytest.raises(ValueError, match=r"\[2.0\] do not"):
        share_interval([2.0, 1.0])
    with pytest.raises(ValueError, match="confidence=1"):
        share_interval([0.0, 1.0], confidence=1)


def test_the_fairness_of_two_positions_follows_their_rate():
    first = np.array([1.0] * 18 + [0.0] * 6)
    found = FairnessStatistic().interval(np.stack([first, 1 - first], axis=1), seed=0)
    rate = share_interval(first)
    assert found.estimate == pytest.approx(-0.5)
    assert (found.low, found.high) == (pytest.approx(-2 * (rate.high - 0.5)), pytest.approx(-2 * (rate.low - 0.5)))
    fair = FairnessStatistic([0.75, 0.25]).interval(np.stack([first, 1 - first], axis=1), seed=0)
    assert (fair.estimate, fair.high) == (0, 0)
    assert fair.low == pytest.approx(-2 * max(0.75 - rate.low, rate.high - 0.75))
    least = FairnessStatistic().interval(np.stack([1 - first, first], axis=1), seed=0)
    assert (least.low, least.high) == (pytest.approx(found.low), pytest.approx(found.high))


def test_fairness_with_ties_follows_the_rate_whose_ties_count_half():
    decisions = np.repeat(np.eye(3), [9, 3, 12], axis=0)  # A 9, B 3, tie 12
    found = FairnessStatistic(ties=True).interval(decisions, seed=0)
    rate = share_interval([1.0] * 9 + [0.0] * 3 + [0.5] * 12)
    assert found.estimate == pytest.approx(-6 / 24)
    assert (found.low, found.high) == (
        pytest.approx(-2 * (rate.high - 0.5)),
        pytest.approx(-2 * max(rate.low - 0.5, 0)),
    )


def test_the_fairness_of_three_classes_lies_within_the_reach_of_their_rates():
    rng = np.random.default_rng(0)
    decisions = np.eye(3)[rng.choice(3, p=[0.6, 0.2, 0.2], size=200)]
    found = FairnessStatistic().interval(decisions, n_resamples=4_000, seed=0)
    rates = decisions.mean(axis=0)
    moved = np.abs(rng.multinomial(200, rates, size=20_000) / 200 - rates).sum(axis=1)
    reach = np.quantile(moved, 0.95) * stats.t.ppf(0.975, 199) * math.sqrt(200 / 199) / stats.norm.ppf(0.975)
    estimate = -np.abs(rates - 1 / 3).sum()
    assert found.estimate == pytest.approx(estimate)
    assert (found.low, found.high) == (
        pytest.approx(estimate - reach, abs=0.005),
        pytest.approx(estimate + reach, abs=0.005),
    )
    fair = FairnessStatistic().interval(np.eye(3)[np.arange(99) % 3], n_resamples=500, seed=0)
    assert (fair.estimate, fair.high) == (pytest.approx(0), 0)


@pytest.mark.parametrize("ties", [False, True])
def test_the_fairness_of_three_classes_that_all_fall_alike_has_a_width(ties):
    rng, held = np.random.default_rng(0), 0
    shares = np.array([0.0, 0.02, 0.02, 0.96]) if ties else np.array([0.96, 0.02, 0.02])
    truth = -np.abs((1 - shares[-1]) / 3 - shares[:-1]).sum() if ties else -np.abs(shares - 1 / 3).sum()
    for seed in range(200):  # all 20 decisions fall alike in 44 % of samples
        decisions = np.eye(len(shares))[rng.choice(len(shares), p=shares, size=20)]
        found = FairnessStatistic(ties=ties).interval(decisions, n_resamples=200, seed=seed)
        held += found.low <= truth <= found.high
    assert held >= 185
    alike = FairnessStatistic().interval(np.eye(3)[np.zeros(20, dtype=int)], n_resamples=50, seed=0)
    assert (alike.low, alike.estimate) == (
        pytest.approx(-2 + 2 / 3 - 2 * (1 - share_interval(np.ones(20)).low)),
        -4 / 3,
    )


def test_the_difference_of_two_judges_is_resampled_in_pairs():
    rng = np.random.default_rng(0)
    human = rng.normal(size=60)
    a, b = human + rng.normal(size=(2, 60))
    a[7] = math.nan
    found = performance_statistic(human).difference(a, b, n_resamples=400, seed=0)
    slow = bootstrap_ci(
        lambda x, y, h: spearman_rows(y, h) - spearman_rows(x, h),
        a,
        b,
        human,
        method="normal",
        n_resamples=400,
        seed=0,
    )
    assert (found.low, found.high, found.estimate) == pytest.approx((slow.low, slow.high, slow.estimate))
    assert found.units == 59


def test_intervals_around_the_estimate_by_hand():
    # six items of standard deviation 1: that of the mean's resamples is 1 / sqrt(6)
    x, half = np.array([0.0, 2.0] * 3), stats.t.ppf(0.975, 5) * math.sqrt(6 / 5) / math.sqrt(6)
    found = bootstrap_ci(lambda rows: rows.mean(axis=1), x, method="normal", n_resamples=80_000, seed=0)
    assert (found.low, found.high) == pytest.approx((1 - half, 1 + half), rel=0.02)
    assert math.isnan(bootstrap_ci(lambda rows: rows.mean(axis=1), x[:5], n_resamples=9, seed=0).low)


def test_the_difference_of_two_shares_has_a_width_where_all_pairs_agree():
    agreed = ShareStatistic().difference(np.ones(30), np.ones(30), seed=0)
    half = share_interval(np.full(30, 0.5))
    assert (agreed.low, agreed.high, agreed.estimate) == (
        pytest.approx(2 * half.low - 1),
        pytest.approx(-agreed.low),
        0,
    )
    # at most one of 30 pairs and a bit would differ: n = 30 + 30^2
    assert agreed.high == pytest.approx(stats.t.ppf(0.975, 29) / math.sqrt(930), rel=0.01)
    a, b = np.repeat([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [math.nan, 1.0]], [2, 90, 28, 1], axis=0).T
    moved = ShareStatistic().difference(a, b, seed=0)
    assert (moved.estimate, moved.units) == (pytest.approx(26 / 120), 120)
    deviation = math.sqrt((30 - 26**2 / 120) / 119 / 120)  # of the mean of -1, 0 and 1
    assert moved.high - moved.low == pytest.approx(2 * stats.t.ppf(0.975, 119) * deviation, rel=0.03)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_tied_unfairness_has_intervals_around_its_estimate(normalization):
    rng = np.random.default_rng(0)
    ls, human, a, b = (rng.integers(1, 6, 40).astype(float) for _ in range(4))
    bias = bias_score_statistic(ls, human, normalization=normalization)
    options = {"n_resamples": 300, "seed": 3}
    found = bias.interval(a, **options)
    slow = bootstrap_ci(bias.rows, a, ls, human, method="normal", **options)
    t = stats.t.ppf(0.975, 39)
    error = (slow.high - slow.low) / 2 / t
    for end in (found.low, found.high):  # Wilson's: the ends lie t of their own standard errors from the estimate
        assert abs(end - bias(a)) == pytest.approx(t * error * math.sqrt((1 - end**2) / (1 - bias(a) ** 2)))
    changed = bias.difference(a, b, **options)
    slow = bootstrap_ci(
        lambda x, y, *r: bias.rows(y, *r) - bias.rows(x, *r), a, b, ls, human, method="normal", **options
    )
    assert (changed.low, changed.high) == pytest.approx((slow.low, slow.high))
    assert changed.estimate == pytest.approx(bias(b) - bias(a))


def test_an_estimate_beside_all_resamples_has_an_interval():
    x = np.arange(10.0)
    found = bootstrap_ci(lambda rows: rows.max(axis=1), x, n_resamples=300, seed=0)
    assert found.low <= found.high == 9
    # no resample has as many different values as the sample
    few = bootstrap_ci(
        lambda rows: np.array([float(len(set(r))) for r in rows]), np.arange(12.0), n_resamples=99, seed=0
    )
    assert few.estimate == 12
    assert 3 < few.low <= few.high < 12
    assert math.isnan(bootstrap_ci(lambda rows: np.full(len(rows), np.nan), x, n_resamples=300, seed=0).low)
    with pytest.raises(ValueError, match="method='basic'"):
        bootstrap_ci(spearman_rows, x, x, method="basic", seed=0)
    with pytest.raises(ValueError, match="0 arrays"):
        bootstrap_ci(spearman_rows, seed=0)
    for confidence in (0, 1):
        with pytest.raises(ValueError, match=f"confidence={confidence}, .*out of range"):
            bootstrap_ci(spearman_rows, x, x, confidence=confidence, seed=0)


def test_p_is_below_a_twentieth_exactly_where_the_interval_excludes_the_null():
    rng = np.random.default_rng(0)
    for value, *ends in rng.normal(size=(400, 3)):  # in a third of the draws the estimate lies within
        low, high = sorted(ends)
        p = p_of_interval(value, low, high, null=0.0)
        assert (p < 0.05) == (low > 0 or high < 0)
    three = p_of_interval(0.98, 0.0, 5.0, null=-0.49)  # standard error .5 below, so the null is 2.94 of them away
    assert three == pytest.approx(math.erfc(2.94 / math.sqrt(2)), rel=1e-3)
    few = p_of_interval(0.98, -1.0, 5.0, null=-2.0, units=5)  # 1.98 is 2.776 standard errors of t with 4 df
    assert few == pytest.approx(2 * stats.t.sf(2.98 / 1.98 * 2.776445, 4), rel=1e-5)
    assert few == pytest.approx(0.014, abs=5e-4)  # by the normal distribution .003
    assert p_of_interval(1.0, 0.5, 2.0, null=1.0) == 1  # the estimate is the null itself
    assert p_of_interval(1.0, 1.0, 2.0, null=0.0) == 0  # no width on the side of the null
    for low, high in ((math.nan, 2.0), (0.5, math.nan), (math.nan, math.nan)):
        assert math.isnan(p_of_interval(1.0, low, high, null=0.0))
    assert p_of_interval(math.nan, 1.0, 3.0, null=0.0) > p_of_interval(1.5, 1.0, 3.0, null=0.0)


def test_two_inputs_and_one_resample_are_enough_to_compute():
    two = share_interval([1.0, 0.0, 1.0, 1.0], clusters=["a", "a", "b", "b"])
    assert 0 <= two.low < 0.75 < two.high <= 1
    assert math.isnan(share_interval([1.0, 0.0], clusters=["a", "a"]).low)
    assert (
        bootstrap_ci(lambda x: x.mean(axis=-1), np.arange(9.0), n_resamples=1, method="percentile", seed=0).n_resamples
        == 1
    )


def test_documents_belong_to_items_by_place_whatever_the_index_of_a_series():
    values, documents = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0], ["a", "a", "a", "b", "b", "c"]
    by_place = share_interval(values, clusters=documents)
    for index in ([5, 0, 4, 1, 3, 2], [10, 11, 12, 13, 14, 15]):
        assert share_interval(values, clusters=pandas.Series(documents, index=index)) == by_place
