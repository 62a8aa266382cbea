import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures import (
    FairnessStatistic,
    MeanStatistic,
    OddsStatistic,
    SkewnessStatistic,
    bias_score,
    bias_score_statistic,
    bootstrap_ci,
    likelihood_bias,
    mixture,
    paired_permutation_test,
    performance_statistic,
    spearman_rows,
    unfairness_scores,
)
from evalbias.measures import resample as intervals
from evalbias.measures.agreement import rank_rows
from evalbias.measures.mixture import Mixture


def systems(n, seed=0, decimals=6):
    rng = np.random.default_rng(seed)
    likelihoods, quality = rng.normal(size=(2, n))
    human = np.round(quality + rng.normal(size=n) * 0.5, decimals)
    first = np.round(quality + 0.8 * likelihoods, decimals)
    second = np.round(quality + 0.1 * likelihoods + rng.normal(size=n) * 0.3, decimals)
    return likelihoods, human, first, second


STATISTICS = {"performance": lambda ls, h: performance_statistic(h)} | {
    f"BiasScore, {name}": lambda ls, h, name=name: bias_score_statistic(ls, h, normalization=name)
    for name in ("mean-range", "center-max", "z-score")
}


def exchanged(name, human, scores):
    """Return what two judges exchange: z-scores of their ranks, of their scores, or of their US."""
    if name == "performance":
        return stats.zscore(stats.rankdata(scores))
    if name == "BiasScore, z-score":
        return unfairness_scores(scores, human, normalization="z-score")
    return stats.zscore(scores)


def correlated(name, ls, human):
    """Return the function from exchanged numbers to the statistic."""
    if name == "performance":
        return lambda x: np.corrcoef(x, stats.rankdata(human))[0, 1]
    if name == "BiasScore, z-score":
        return lambda x: bias_score(ls, x)
    return STATISTICS[name](ls, human)


@pytest.mark.parametrize("few", [0, 10**6])  # by a form, or ranked one by one
@pytest.mark.parametrize("decimals", [6, 0])  # 0: many ties
@pytest.mark.parametrize("name", STATISTICS)
def test_every_swap_gives_the_statistic_of_the_definition(monkeypatch, name, decimals, few):
    monkeypatch.setattr(mixture, "FEW", few)
    ls, human, a, b = systems(30, decimals=decimals)
    one = STATISTICS[name](ls, human)
    swap = np.random.default_rng(1).random((50, 30)) < 0.5
    of_a, of_b = one.swapping(a, b)(swap)
    value, first, second = correlated(name, ls, human), exchanged(name, human, a), exchanged(name, human, b)
    assert (value(first), value(second)) == pytest.approx((one(a), one(b)))
    assert of_a == pytest.approx([value(np.where(row, second, first)) for row in swap])
    assert of_b == pytest.approx([value(np.where(row, first, second)) for row in swap])


@pytest.mark.parametrize("level", [1.0, 2.0, 3.0])
def test_a_swap_that_leaves_equal_ranks_has_no_correlation(level):
    human = np.random.default_rng(0).normal(size=60)
    others = np.random.default_rng(1).permutation(np.arange(30) % 4.0)
    a, b = np.concatenate([np.full(30, level), others]), np.concatenate([others, np.full(30, level)])
    swap = np.stack([np.arange(60) >= 30, np.arange(60) >= 45, np.arange(60) >= 60])
    of_a, of_b = performance_statistic(human).swapping(a, b)(swap)
    assert np.isnan(of_a).tolist() == [True, False, False]  # but for rounding errors, all ranks are equal
    assert not np.isnan(of_b).any()
    assert of_a[2] == pytest.approx(stats.spearmanr(a, human).statistic)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_p_value_is_that_of_all_swaps(name):
    ls, human, a, b = systems(9, seed=5)
    found = paired_permutation_test(STATISTICS[name](ls, human), a, b, n_resamples=40_000, seed=0)
    value, a, b = correlated(name, ls, human), exchanged(name, human, a), exchanged(name, human, b)
    observed = abs(value(a) - value(b))
    extreme = 0.0
    for bits in itertools.product([False, True], repeat=9):
        x, y = np.where(bits, b, a), np.where(bits, a, b)
        difference = abs(value(x) - value(y))
        tie = 1 if all(bits) or not any(bits) else 0.5
        extreme += tie if difference == pytest.approx(observed, abs=1e-12) else difference > observed
    assert found.p_value == pytest.approx(extreme / 2**9, abs=0.01)


def test_ties_count_half_and_the_data_in_full():
    # 5 wins to 1 among 8 pairs: differences of 6 come from 2 of 64 sign patterns, and 12 of 64 tie with 4
    a, b = np.array([1.0] * 5 + [0.0] + [1.0, 0.0]), np.array([0.0] * 5 + [1.0] + [1.0, 0.0])
    found = paired_permutation_test(MeanStatistic(), a, b, n_resamples=200_000, seed=0)
    # the data and its mirror are 2 of the 2^8 swaps, and count in full
    assert found.p_value == pytest.approx(2 / 64 + 12 / 64 / 2 + 2 / 256 / 2, abs=0.002)
    turned = paired_permutation_test(MeanStatistic(), b, a, n_resamples=200_000, seed=0)
    assert turned.p_value == found.p_value
    # without ties, and with three documents, the data are 2 of 8 swaps
    few = paired_permutation_test(MeanStatistic(), [1.0, 2.0, 4.0], [0.0, 0.0, 0.0], n_resamples=40_000, seed=0)
    assert few.p_value == pytest.approx(2 / 8, abs=0.01)


def test_p_of_few_resamples_by_hand():
    ones, zeros = np.ones(60), np.zeros(60)  # no draw swaps all of 60 items or none
    assert paired_permutation_test(MeanStatistic(), ones, zeros, n_resamples=99, seed=0).p_value == 1 / 100
    # the second item is equal: every swap ties, in full if it swaps both items or none, else half
    one_draw = [
        paired_permutation_test(MeanStatistic(), [1.0, 0.5], [0.0, 0.5], n_resamples=1, seed=seed).p_value
        for seed in range(20)
    ]
    assert set(one_draw) == {(1 + 1) / 2, (1 + 1 / 2) / 2}


@pytest.mark.parametrize("unit", [1e-14, 1e-3, 1e9])
def test_the_unit_of_the_scores_does_not_matter(unit):
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 6, size=(2, 14)) / 10  # many swaps tie, but for rounding errors
    plain, other = (
        paired_permutation_test(MeanStatistic(), u * a, u * b, n_resamples=4_000, seed=0) for u in (1, unit)
    )
    assert other.p_value == plain.p_value < 1
    found, expected = (MeanStatistic().interval(u * a, n_resamples=500, seed=0) for u in (unit, 1))
    assert (found.low / unit, found.high / unit) == pytest.approx((expected.low, expected.high))


def test_few_decisions_are_tested_as_mcnemars_mid_p_does():
    # 11 of 30 pairs differ: mid-p rejects in 6.5 %, and would in 1.2 % if ties counted in full
    rejected = 0.0
    for k in range(12):
        a, b = np.zeros(30), np.zeros(30)
        a[:k], b[k:11] = 1, 1
        p = paired_permutation_test(MeanStatistic(), a, b, n_resamples=20_000, seed=k).p_value
        exact = stats.binom.cdf(min(k, 11 - k), 11, 0.5) * 2 - stats.binom.pmf(k, 11, 0.5)  # McNemar's mid-p
        assert p == pytest.approx(exact, abs=0.015)
        rejected += stats.binom.pmf(k, 11, 0.5) * (p <= 0.05)
    assert rejected == pytest.approx(0.0654, abs=1e-4)


def test_scipy_agrees():
    ls, human, a, b = systems(40, seed=2)
    value = correlated("performance", ls, human)

    def difference(x, y):
        return value(x) - value(y)

    ours = paired_permutation_test(performance_statistic(human), a, b, n_resamples=20_000, seed=0)
    ranks, rng = [exchanged("performance", human, x) for x in (a, b)], np.random.default_rng(0)
    theirs = stats.permutation_test(ranks, difference, permutation_type="samples", n_resamples=600, rng=rng)
    assert ours.difference == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.05)


def test_equal_systems_have_p_1_because_ties_count():
    ls, human, a, _ = systems(30)
    found = paired_permutation_test(bias_score_statistic(ls, human), a, a, n_resamples=500, seed=0)
    assert (found.difference, found.p_value) == (0, 1)


def test_two_sided_and_seeded():
    ls, human, a, b = systems(60)
    bias = bias_score_statistic(ls, human)
    found = paired_permutation_test(bias, a, b, n_resamples=3_000, seed=0)
    turned = paired_permutation_test(bias, b, a, n_resamples=3_000, seed=0)
    assert turned.difference == -found.difference
    assert turned.p_value == found.p_value
    assert paired_permutation_test(bias, a, b, n_resamples=3_000, seed=0) == found
    assert found.p_value >= 1 / 3_001


def test_what_is_undefined_is_left_out_and_counted():
    _, human, a, b = systems(50)
    part = paired_permutation_test(performance_statistic(human[:48]), a[:48], b[:48], n_resamples=300, seed=0)
    a[48], human[49] = math.nan, math.nan
    whole = paired_permutation_test(performance_statistic(human), a, b, n_resamples=300, seed=0)
    assert (whole.n, whole.undefined) == (48, 2)
    assert whole.p_value == part.p_value


def test_an_undefined_statistic_has_no_p_value():
    found = paired_permutation_test(performance_statistic([1, 2, 3]), [1, 1, 1], [1, 2, 3], n_resamples=9, seed=0)
    assert math.isnan(found.p_value)


@pytest.mark.parametrize(
    ("a", "options", "match"),
    [([1, 2], {}, "arrays have 2, 2, 3 items"), ([1, 2, 3], {"n_resamples": 0}, "draw at least one")],
)
def test_bad_input(a, options, match):
    with pytest.raises(ValueError, match=match):
        paired_permutation_test(performance_statistic([1, 2, 3]), a, a, seed=0, **options)


def test_the_null_hypothesis_is_rejected_as_often_as_the_level_says():
    rng, rejected = np.random.default_rng(0), 0
    for trial in range(200):
        human = rng.normal(size=40)
        a, b = human + rng.normal(size=(2, 40))
        rejected += (
            paired_permutation_test(performance_statistic(human), a, b, n_resamples=199, seed=trial).p_value < 0.1
        )
    assert 8 <= rejected <= 34  # 20 expected; 3.3 standard deviations


def test_documents_are_swapped_whole():
    rng = np.random.default_rng(2)
    documents = list("aabbbcddde")
    a, b = rng.normal(size=(2, 10))
    found = paired_permutation_test(MeanStatistic(), a, b, clusters=documents, n_resamples=40_000, seed=0)
    totals = [sum(x - y for x, y, d in zip(a, b, documents, strict=True) if d == one) for one in "abcde"]
    observed = abs(sum(totals))
    extreme = sum(
        abs(sum(s * t for s, t in zip(signs, totals, strict=True))) >= observed - 1e-9
        for signs in itertools.product([1, -1], repeat=5)
    )
    assert found.p_value == pytest.approx(extreme / 2**5, abs=0.01)
    assert (found.n, found.units) == (10, 5)
    alone = paired_permutation_test(MeanStatistic(), a, b, n_resamples=500, seed=0)
    assert paired_permutation_test(MeanStatistic(), a, b, clusters=range(10), n_resamples=500, seed=0) == alone
    assert alone.units == 10


def test_errors_that_documents_share_need_swaps_of_documents():
    rng, rejected = np.random.default_rng(0), {"documents": 0, "items": 0}
    documents = np.repeat(np.arange(20), 5)
    for trial in range(200):
        a, b = rng.normal(size=(2, 20)).repeat(5, axis=1) + rng.normal(size=(2, 100))
        for name, clusters in (("documents", documents), ("items", None)):
            test = paired_permutation_test(MeanStatistic(), a, b, clusters=clusters, n_resamples=199, seed=trial)
            rejected[name] += test.p_value < 0.1
    assert 8 <= rejected["documents"] <= 34  # 20 expected; 3.3 standard deviations
    assert rejected["items"] > 50


def test_documents_are_resampled_whole(monkeypatch):
    monkeypatch.setattr(intervals, "FEWEST_UNITS", 3)
    x = np.array([1.0, 5.0, 2.0, 8.0, 3.0, math.nan])
    documents = ["a", "b", "a", "c", "b", "c"]  # after the undefined item a: 1, 2; b: 5, 3; c: 8
    outputs = [[1.0, 2.0], [5.0, 3.0], [8.0]]
    means = [np.concatenate(picked).mean() for picked in itertools.product(outputs, repeat=3)]
    drawn = []

    def spied(rows):
        drawn.extend(rows.mean(axis=1))
        return rows.mean(axis=1)

    found = bootstrap_ci(spied, x, clusters=documents, n_resamples=4_000, seed=0)
    assert found.estimate == pytest.approx(19 / 5)
    assert found.units == 3
    values, counts = np.unique(np.round(means, 9), return_counts=True)
    for value, count in zip(values, counts, strict=True):  # each of the 27 draws is as likely as the others
        share = np.mean(np.isclose(drawn[1:], value))  # the first is the estimate
        assert share == pytest.approx(count / 27, abs=0.035)


def test_clusters_of_one_item_are_items_and_one_cluster_has_no_interval():
    x = np.random.default_rng(0).normal(size=30)
    mean = MeanStatistic().rows
    alone = bootstrap_ci(mean, x, n_resamples=200, seed=0)
    assert bootstrap_ci(mean, x, clusters=[f"d{i}" for i in range(30)], n_resamples=200, seed=0) == alone
    one = bootstrap_ci(mean, x, clusters=["d"] * 30, n_resamples=200, seed=0)
    assert (math.isnan(one.low), one.estimate, one.units) == (True, pytest.approx(x.mean()), 1)
    with pytest.raises(ValueError, match="clusters has 2 entries for 30 items"):
        bootstrap_ci(mean, x, clusters=["a", "b"], seed=0)


def test_intervals_of_documents_are_as_wide_as_those_of_their_means():
    rng = np.random.default_rng(1)
    means = rng.normal(size=60)
    whole = bootstrap_ci(MeanStatistic().rows, means.repeat(4), clusters=np.arange(60).repeat(4), seed=0)
    alone = bootstrap_ci(MeanStatistic().rows, means, seed=0)
    assert (whole.low, whole.high) == (pytest.approx(alone.low), pytest.approx(alone.high))


def test_bootstrap_covers_and_is_seeded(monkeypatch):
    x, y = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=400).T
    found = bootstrap_ci(spearman_rows, x, y, n_resamples=2_000, seed=0)
    assert found.low < 0.58 < found.high
    assert found.estimate == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.65 / math.sqrt(400), rel=0.25)
    assert bootstrap_ci(spearman_rows, x, y, n_resamples=2_000, seed=0) == found
    x[0] = math.nan
    assert bootstrap_ci(spearman_rows, x, y, n_resamples=50, seed=0).estimate == pytest.approx(
        stats.spearmanr(x[1:], y[1:]).statistic
    )


def test_the_comparison_of_measured_judges_uses_the_same_numbers():
    ls, human, a, _ = systems(80)
    assert bias_score_statistic(ls, human)(a) == pytest.approx(likelihood_bias(ls, a, human).bias_score)
    standardized = bias_score_statistic(ls, human, normalization="z-score")
    assert standardized(a) == pytest.approx(likelihood_bias(ls, a, human, normalization="z-score").bias_score)
    assert not standardized.matches(bias_score_statistic(ls, human))
    with pytest.raises(ValueError, match="normalization='z' is unknown"):
        bias_score_statistic(ls, human, normalization="z")


@pytest.mark.parametrize("normalization", ["mean-range", "center-max", "z-score"])
def test_resamples_are_normalized_one_by_one(normalization):
    ls, human, a, _ = systems(40, decimals=0)
    one = bias_score_statistic(ls, human, normalization=normalization)
    picks = np.random.default_rng(0).integers(0, 40, size=(25, 40))
    values = one.rows(a[picks], ls[picks], human[picks])
    slow = [bias_score(ls[i], unfairness_scores(a[i], human[i], normalization=normalization)) for i in picks]
    assert values == pytest.approx(slow)


@pytest.mark.parametrize("name", STATISTICS)
def test_judges_that_differ_in_their_scale_alone_are_equal(name):
    ls, human, a, _ = systems(30)
    found = paired_permutation_test(STATISTICS[name](ls, human), a, 10 * a + 3, n_resamples=99, seed=0)
    assert (found.difference, found.p_value) == (pytest.approx(0), 1)


def test_the_p_of_a_performance_depends_on_ranks_alone():
    _, human, a, b = systems(60, decimals=1)
    options = {"n_resamples": 500, "seed": 0}
    found = paired_permutation_test(performance_statistic(human), a, b, **options)
    assert paired_permutation_test(performance_statistic(human), a, 100 + np.exp(b), **options) == found


@pytest.mark.parametrize("name", ["performance", "BiasScore, mean-range"])
def test_a_judge_that_scores_higher_throughout_is_tested_at_the_level(name):
    """Where the scores themselves are swapped, 0 % of equal judges are said to differ, and 20 % of better ones."""
    rng, seen = np.random.default_rng(0), np.zeros(2)
    for seed in range(200):
        human, ls, shared, *own = rng.normal(size=(6, 60))
        taste = human if name == "performance" else ls
        first, equal, other = np.outer([0.3, 0.3, 0.8], taste) + 0.5 * shared + 0.75 * np.stack(own)
        for i, second in enumerate((equal, other)):
            test = paired_permutation_test(STATISTICS[name](ls, human), first, 3 + second, n_resamples=99, seed=seed)
            seen[i] += test.p_value <= 0.05
    assert 0.02 <= seen[0] / 200 <= 0.09
    assert seen[1] / 200 > 0.4


@settings(max_examples=60)
@given(n=st.integers(2, 12), values=st.integers(1, 4), seed=st.integers(0, 999))
def test_a_mixture_is_spearmans_rho_whatever_the_ties(n, values, seed):
    rng = np.random.default_rng(seed)
    a, b, reference = rng.integers(0, values, size=(3, n)).astype(float)
    swap = rng.random((80, n)) < 0.5
    found = Mixture(a, b, rank_rows(reference[None])[0])(swap)
    np.testing.assert_allclose(found, spearman_rows(np.where(swap, b, a), reference[None]), atol=1e-12)


def test_a_large_mixture_stays_exact():
    rng = np.random.default_rng(0)
    a, b, reference = rng.normal(size=(3, 2100))
    swap = rng.random((70, 2100)) < 0.5
    found = Mixture(a, b, rank_rows(reference[None])[0])(swap)
    np.testing.assert_allclose(found, spearman_rows(np.where(swap, b, a), reference[None]), atol=1e-12)


def test_sums_beyond_24_bits_stay_exact():
    # all items of the upper half change from 0 to 1: the sum of their centered ranks, n^2 / 8, is an odd number of
    # halves, of which 32 bits hold 2^24 at most
    n = 20_002
    reference = np.arange(1.0, n + 1)
    swap = np.tile(reference > n / 2, (64, 1))
    found = Mixture(np.zeros(n), np.ones(n), reference)(swap)
    assert found == pytest.approx(math.sqrt(0.75 / (1 - 1 / n**2)), abs=1e-14)  # of two halves


@pytest.mark.slow
def test_the_papers_resamples_fit_into_memory():
    ls, human, a, b = np.random.default_rng(0).normal(size=(4, 568))
    tracemalloc.start()  # numpy tells it what it allocates
    try:
        paired_permutation_test(bias_score_statistic(ls, human), a, b, n_resamples=100_000, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2e8  # bytes; all swaps at once are 4.5e8 an array


def test_a_mean_is_tested_as_scipy_does():
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.3, 1, 14), rng.normal(0, 1, 14)
    a[3] = math.nan
    found = paired_permutation_test(MeanStatistic(), a, b, n_resamples=200_000, seed=0)
    kept = ~np.isnan(a)
    exact = stats.permutation_test(
        (a[kept], b[kept]), lambda x, y, axis: x.mean(axis) - y.mean(axis), permutation_type="samples", vectorized=True
    )
    assert found.difference == pytest.approx((a - b)[kept].mean())
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.005)
    assert (found.n, found.undefined) == (13, 1)


def test_every_statistic_swaps_as_its_definition():
    rng = np.random.default_rng(5)
    n = 12
    shares_a, shares_b = rng.dirichlet(np.ones(3), size=(2, n))
    wins_a, wins_b = rng.random((2, n))
    cases = [
        (FairnessStatistic(), shares_a, shares_b),
        (FairnessStatistic([0.2, 0.3, 0.5]), shares_a, shares_b),
        (FairnessStatistic(ties=True), shares_a, shares_b),
        (MeanStatistic(), wins_a, wins_b),
        (SkewnessStatistic(), wins_a - 0.4, wins_b - 0.4),
        (OddsStatistic(rng.normal(size=n)), wins_a, wins_b),
    ]
    swap = rng.random((20, n)) < 0.5
    for one, a, b in cases:
        of_a, of_b = one.swapping(a, b)(swap)
        for row, x, y in zip(swap, of_a, of_b, strict=True):
            mask = row[:, None] if a.ndim == 2 else row
            assert x == pytest.approx(one(np.where(mask, b, a)))
            assert y == pytest.approx(one(np.where(mask, a, b)))


def test_items_are_left_out_of_rows_of_numbers_too():
    shares = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [np.nan, 0.5]])
    found = paired_permutation_test(FairnessStatistic(), shares, shares[:, ::-1], n_resamples=99, seed=0)
    assert (found.statistic_a, found.n, found.undefined, found.p_value) == (pytest.approx(-1 / 3), 3, 1, 1)


def test_swaps_between_judges_with_one_score_each_are_undefined_without_a_warning():
    human, same, other = np.arange(6.0), np.full(6, 3.0), np.full(6, 2.0)
    swap = np.array([[False] * 6, [True] * 6, [True] + [False] * 5])
    of_a, of_b = bias_score_statistic(human, human[::-1]).swapping(same, other)(swap)
    assert np.isnan(of_a).tolist() == np.isnan(of_b).tolist() == [True] * 3


def test_the_values_of_both_systems_are_told_and_one_item_has_none():
    found = paired_permutation_test(MeanStatistic(), [1.0, 2.0, np.nan], [4.0, 6.0, 7.0], n_resamples=50, seed=0)
    assert (found.statistic_a, found.statistic_b, found.difference) == (1.5, 5.0, -3.5)
    assert (found.n_resamples, found.n, found.undefined, found.units) == (50, 2, 1, 2)
    alone = paired_permutation_test(MeanStatistic(), [1.0], [4.0], n_resamples=50, seed=0)
    assert np.isnan([alone.statistic_a, alone.statistic_b, alone.difference, alone.p_value]).all()
    assert (alone.n_resamples, alone.n, alone.undefined, alone.units) == (50, 1, 0, 1)


def test_every_unit_is_swapped_however_many_there_are():
    for n in range(8, 70):
        a = np.append(np.zeros(n - 2), [1.0, 2.0])  # of the last two, 3 is the difference in two of four swaps
        found = paired_permutation_test(MeanStatistic(), a, np.zeros(n), n_resamples=2_000, seed=0)
        assert found.p_value == pytest.approx(1 / 4, abs=0.03)
