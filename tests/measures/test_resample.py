"""Intervals, changes and paired tests of every statistic, by hand, by slow definitions and by scipy."""

import itertools
import math
from dataclasses import astuple, replace
from functools import partial

import krippendorff
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measures.test_self_bias import by_definition
from refusals import refusals
from scipy import stats

from evalbias.measures import agreement, forecasts, likelihood, loops, pairs, resample, scale_use
from evalbias.measures.arrays import checked, vectors
from evalbias.measures.corrections import compare_means, corrected_mean
from evalbias.measures.equal_quality import estimate_effect
from evalbias.measures.resample import Draws, estimate, estimate_coefficient, estimate_mean, estimate_share, mean

NAN = math.nan
NORMALIZATIONS = ("mean-range", "center-max", "z-score")
RANKED = ("performance", *NORMALIZATIONS)


def few(seed=0, resamples=40, **kind):
    return Draws(seed=seed, resamples=resamples, swaps=0, **kind)


def swaps(number, seed=0):
    return Draws(seed=seed, resamples=0, swaps=number)


N = 24
RNG = np.random.default_rng(0)
QUALITY = RNG.integers(1, 6, N).astype(float)
RATINGS = QUALITY[:, None] + RNG.integers(-1, 2, (N, 3))
SCORES = QUALITY + RNG.integers(-1, 2, N)
GROUP, CHOICE, SHARES = np.arange(N) % 2.0, (SCORES > 3).astype(float), RNG.dirichlet(np.ones(3), N)
WINS = SHARES[:, :2]
RESAMPLED = {
    "mean": (estimate_mean, SCORES, ()),
    "skewness": (loops.estimate_skewness, SCORES - 2, ()),
    "ranks": (partial(estimate, partial(pairs.over_orders, agreement.counted_spearman)), WINS, (QUALITY,)),
    "spread": (partial(estimate, scale_use.counted_spread), SCORES, (QUALITY,)),
    "calibration": (forecasts.estimate_calibration_error, SHARES[:, 0], (CHOICE,)),
}
"""Name -> estimator, values and further columns, whose interval is read from resamples."""
FIRST_WINS = np.stack([CHOICE, 1 - CHOICE], axis=1)
EXACT = {
    "share": (estimate_share, SHARES[:, 0], ()),
    "mean coefficient": (resample.estimate_mean_coefficient, 2 * SHARES[:, 0] - 1, ()),
    "both orders": (partial(pairs.estimate_first_rate, both_orders=True), np.repeat([1, 0.5, 0.5, 0], 6), ()),
    "fairness of two": (pairs.estimate_fairness, FIRST_WINS, ()),
    "balanced": (pairs.estimate_balanced_rate, SHARES[:, 0], (GROUP,)),
    "top two": (partial(scale_use.estimate_top_two, levels=8), SCORES, ()),
    "performance": (agreement.estimate_spearman, SCORES, (QUALITY,)),
    "bias score": (likelihood.estimate_bias_score, SCORES, (SHARES[:, 0], QUALITY)),
    "pearson": (partial(estimate_coefficient, agreement.counted_pearson), SCORES, (QUALITY,)),
    "alpha": (partial(estimate_coefficient, agreement.counted_alpha), SCORES, (QUALITY,)),
    "kappa": (partial(estimate_coefficient, agreement.counted_kappa), CHOICE, ((QUALITY > 3).astype(float),)),
    "ceiling": (partial(estimate_coefficient, agreement.counted_ceiling), agreement.ceiling_columns(RATINGS), ()),
    "slope": (scale_use.quality_slope, SCORES, (RATINGS,)),
    "effect": (partial(estimate_effect, names=("x",)), SCORES, (RATINGS, SHARES[:, 0])),
}
"""The same, whose interval draws no resamples, or only to estimate a variance."""
ALL = RESAMPLED | EXACT
IN_ALL = pytest.mark.parametrize("name", sorted(ALL))


@IN_ALL
def test_an_interval_holds_its_value_and_says_its_units(name):
    estimator, values, given = ALL[name]
    by_two = np.repeat(np.arange(N // 2), 2).tolist()
    for clusters, units in ((None, N // (2 if name == "balanced" else 1)), (by_two, N // 2)):  # units of one class
        found = estimator(values, *given, clusters=clusters, draws=few())
        assert found.low <= found.value <= found.high
        assert (found.n, found.undefined, found.units, found.reason) == (N, 0, units, "")
    assert estimator(values, *given, clusters=clusters, draws=resample.ALONE).value == pytest.approx(found.value)


@IN_ALL
def test_an_interval_needs_as_many_inputs_as_it_says(name):
    estimator, values, given = ALL[name]
    of_shares = ("share", "mean coefficient", "both orders", "balanced", "top two")
    fewest = 2 if name in of_shares or "fairness" in name else 5 if name == "effect" else resample.FEWEST_UNITS
    for units in {1, *((fewest - 1, fewest) if name != "slope" else ())}:
        clusters = (np.arange(N) * units // N).tolist()
        found = estimator(values, *given, clusters=clusters, draws=few(resamples=99))
        assert found.units == units
        assert np.isnan([found.low, found.high]).tolist() == [units < fewest] * 2
        changed = estimator(values, *given, before=values[::-1].copy(), clusters=clusters, draws=few())
        assert units > 1 or np.isnan([found.p_value, changed.low]).all()


@IN_ALL
def test_undefined_items_are_left_out(name):
    estimator, values, given = ALL[name]
    kept = np.arange(N) % 5 > 0
    holes = values.copy()
    holes[~kept] = NAN
    inputs = (np.arange(N) // 2).tolist()
    of_kept = [inputs[index] for index in np.flatnonzero(kept)]
    found = estimator(holes, *given, clusters=inputs, draws=few())
    alone = estimator(values[kept], *(column[kept] for column in given), clusters=of_kept, draws=few())
    assert found == replace(alone, undefined=N - kept.sum())
    none = estimator(np.full_like(values, NAN), *given, draws=few())
    assert np.isnan([none.low, none.high, none.value, none.p_value]).all()
    assert (none.n, none.units) == (0, 0)


@IN_ALL
def test_a_change_is_that_of_the_two_values(name):
    estimator, values, given = ALL[name]
    other = values[::-1].copy()
    before, after = (estimator(x, *given, draws=few()).value for x in (values, other))
    found, back = (estimator(b, *given, before=a, draws=few()) for a, b in ((values, other), (other, values)))
    assert found.value == pytest.approx(after - before)
    assert back.value == pytest.approx(-found.value)
    assert found.units == N // (2 if name in ("balanced",) else 1)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"effect"}))
def test_an_interval_of_80_percent_lies_within_that_of_95_and_has_its_p(name):
    estimator, values, given = ALL[name]
    wide, narrow = (estimator(values, *given, draws=few(resamples=400, confidence=c)) for c in (0.95, 0.8))
    assert narrow.high - narrow.low < wide.high - wide.low
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high
    assert narrow.p_value == pytest.approx(wide.p_value, nan_ok=True)


@IN_ALL
def test_chunks_of_resamples_do_not_change_an_interval(name, monkeypatch):
    estimator, values, given = ALL[name]
    whole = estimator(values, *given, draws=few(resamples=20))
    monkeypatch.setattr(resample.chunks, "__defaults__", (3 * N,))
    found = estimator(values, *given, draws=few(resamples=20))
    assert np.array(astuple(found)[:7]) == pytest.approx(np.array(astuple(whole)[:7]), nan_ok=True)


OF_MANY = [(partial(estimate, scale_use.counted_spread), (0, 2)), (agreement.estimate_spearman, (0, 2))]
OF_MANY += [(likelihood.estimate_bias_score, (0, 1, 2)), (partial(estimate, mean, method="normal"), (2,))]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "columns"), OF_MANY)
def test_groups_of_many_units_tell_the_error_that_resamples_tell(estimator, columns, monkeypatch):
    quality, noise, other = np.random.default_rng(0).normal(size=(3, 6400))  # more than the most that are resampled
    likelihoods = 0.4 * quality + other
    scores = np.clip(np.round(quality + 0.3 * likelihoods), -3, 3)
    arrays = [(scores, likelihoods, quality + 0.5 * noise)[column] for column in columns]
    groups = estimator(*arrays)
    monkeypatch.setattr(resample, "MANY", 10**9)
    drawn = estimator(*arrays, draws=few(resamples=500))
    assert groups.value == drawn.value
    assert groups.high - groups.low == pytest.approx(drawn.high - drawn.low, rel=0.2)
    assert groups.high + groups.low == pytest.approx(drawn.high + drawn.low, abs=0.3 * (drawn.high - drawn.low))


def test_groups_of_many_inputs_are_of_whole_inputs():
    rng = np.random.default_rng(0)
    of_input = rng.normal(size=6000)
    found = estimate(mean, np.repeat(of_input, 3), clusters=np.repeat(np.arange(6000), 3).tolist())
    assert (found.n, found.units) == (18000, 6000)
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(6000), rel=0.15)
    assert len(np.concatenate(list(resample.left_out(np.arange(450))))) == 200


def counted(n, rng, values=4):
    """(statistic of counts, columns, the same of items) of every statistic."""
    ls, human, scores = (rng.integers(0, values, n).astype(float) for _ in range(3))
    shares, group, choices = rng.dirichlet(np.ones(3), size=n), rng.integers(0, 2, n) * 1.0, rng.integers(0, 2, n) * 1.0
    return [
        (agreement.counted_spearman, (scores, human), partial(if_varied, stats.spearmanr)),
        (agreement.counted_kendall, (scores, human), partial(if_varied, stats.kendalltau)),
        *(
            (partial(likelihood.counted_bias_score, normalization=name), (scores, ls, human), partial(biased, name))
            for name in NORMALIZATIONS
        ),
        (mean, (scores,), np.mean),
        (loops.counted_skewness, (scores - 1,), by_definition),
        (pairs.counted_fairness, (shares,), lambda s: -np.abs(s.mean(axis=0) - 1 / 3).mean()),
        (
            partial(scale_use.counted_top_two, levels=values),
            (scores,),
            lambda s: np.sort(np.bincount(s.astype(int)))[-2:].sum() / len(s),
        ),
        (pairs.counted_balance, (shares[:, 0], group), lambda s, g: (mean_of(s, g == 0) + mean_of(s, g == 1)) / 2),
        (agreement.counted_kappa, (choices, group), kappa),
        (agreement.counted_pearson, (scores, human), partial(if_varied, stats.pearsonr)),
        (agreement.counted_alpha, (scores, human), alpha),
        (forecasts.counted_calibration_error, (shares[:, 0], group), calibration_error),
        (forecasts.counted_brier_skill, (shares[:, 0], group), brier_skill),
    ]


def biased(normalization, scores, ls, human):
    return likelihood.bias_score(ls, likelihood.unfairness_scores(scores, human, normalization=normalization))


def if_varied(correlation, x, y):
    return correlation(x, y).statistic if len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0 else NAN


def alpha(x, y):
    several = len({*x, *y}) > 1
    return krippendorff.alpha(reliability_data=[x, y], level_of_measurement="interval") if several else NAN


def mean_of(x, kept):
    return x[kept].mean() if kept.any() else NAN


def kappa(x, y):
    chance = x.mean() * y.mean() + (1 - x.mean()) * (1 - y.mean())
    return ((x == y).mean() - chance) / (1 - chance) if chance < 1 else NAN


def calibration_error(p, y):
    bins = np.minimum(p // 0.1, 9)
    return sum((bins == one).mean() * abs(p[bins == one].mean() - y[bins == one].mean()) for one in set(bins))


def brier_skill(p, y):
    return 1 - np.square(p - y).mean() / y.var() if y.var() > 0 else NAN


@pytest.mark.slow
@settings(max_examples=40)
@given(n=st.integers(4, 14), values=st.sampled_from([3, 4, 1000]), seed=st.integers(0, 999))
def test_resamples_by_counts_are_resamples_of_items(n, values, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, np.ones(n) / n, size=12)
    counts[:3] = counts[:3, rng.permutation(n)] * rng.integers(1, 3, size=(3, 1))  # of different sizes
    for statistic, columns, slow in counted(n, rng, values):
        items = [np.repeat(np.arange(n), row) for row in counts]
        expected = [slow(*(column[i] for column in columns)) for i in items]
        np.testing.assert_allclose(statistic(1.0 * counts, *columns), expected, atol=1e-9, err_msg=repr(statistic))


@pytest.mark.slow
@settings(max_examples=40)
@given(n=st.integers(2, 12), values=st.sampled_from([3, 1000]), seed=st.integers(0, 999))
def test_swaps_by_counts_are_mixtures_of_both_judges(n, values, seed):
    rng = np.random.default_rng(seed)
    swap = rng.random((12, n)) < 0.5
    for statistic, (a, *given_columns), _ in counted(n, rng, values):
        b = np.roll(a, 1, axis=0)
        of_a, of_b = resample.counted_swaps(statistic)(a, b, *given_columns)(swap)
        for row, x, y in zip(swap, of_a, of_b, strict=True):
            mask, one = row.reshape(-1, *(1,) * (a.ndim - 1)), np.ones((1, n))
            assert x == pytest.approx(statistic(one, np.where(mask, b, a), *given_columns)[0], nan_ok=True)
            assert y == pytest.approx(statistic(one, np.where(mask, a, b), *given_columns)[0], nan_ok=True)


def test_swapped_means_are_those_of_counts():
    rng = np.random.default_rng(0)
    (a, b), swap = rng.random((2, 9, 3)), rng.random((20, 9)) < 0.5
    quick = resample.swapped_means(lambda means: -np.abs(means - 1 / 3).mean(axis=1))(a, b)(swap)
    np.testing.assert_allclose(quick, resample.counted_swaps(pairs.counted_fairness)(a, b)(swap))
    found = pairs.estimate_fairness(b[:, :2], before=a[:, :2], draws=swaps(999))
    assert found.p_value == resample.change(pairs.counted_fairness, a[:, :2], b[:, :2], draws=swaps(999)).p_value < 1
    with pytest.raises(ValueError, match=r"the shape \(9, 3\): give what each of two positions wins"):
        pairs.estimate_fairness(a)


def systems(n, seed=0, decimals=6):
    rng = np.random.default_rng(seed)
    likelihoods, quality = rng.normal(size=(2, n))
    human = np.round(quality + rng.normal(size=n) * 0.5, decimals)
    first = np.round(quality + 0.8 * likelihoods, decimals)
    second = np.round(quality + 0.1 * likelihoods + rng.normal(size=n) * 0.3, decimals)
    return likelihoods, human, first, second


def compared(name, ls, human, a, b, draws, **options):
    """Test a less b."""
    if name == "performance":
        return agreement.estimate_spearman(a, human, before=b, draws=draws, **options)
    return likelihood.estimate_bias_score(a, ls, human, normalization=name, before=b, draws=draws, **options)


def exchanged(name, human, scores):
    """Return what two judges exchange: z-scores of their ranks, of their scores, or of their US."""
    if name == "performance":
        return stats.zscore(stats.rankdata(scores))
    us = partial(likelihood.unfairness_scores, scores, human, normalization=name)
    return us() if name == "z-score" else stats.zscore(scores)


def correlated(name, ls, human):
    """Return the function from exchanged numbers to the statistic."""
    if name == "performance":
        return lambda x: np.corrcoef(x, stats.rankdata(human))[0, 1]
    if name == "z-score":
        return lambda x: likelihood.bias_score(ls, x)
    return lambda x: likelihood.bias_score(ls, likelihood.unfairness_scores(x, human, normalization=name))


@pytest.mark.parametrize("decimals", [6, 0])  # 0: many ties
@pytest.mark.parametrize("name", RANKED)
def test_every_swap_gives_the_statistic_of_the_definition(name, decimals):
    ls, human, a, b = systems(30, decimals=decimals)
    swap = np.random.default_rng(1).random((50, 30)) < 0.5
    if name == "performance":
        of_a, of_b = agreement.exchanged_ranks(a, b, human)(swap)
    else:
        of_a, of_b = likelihood._exchanged_us(a, b, ls, human, normalization=name)(swap)
    value, first, second = correlated(name, ls, human), exchanged(name, human, a), exchanged(name, human, b)
    assert of_a == pytest.approx([value(np.where(row, second, first)) for row in swap])
    assert of_b == pytest.approx([value(np.where(row, first, second)) for row in swap])


@pytest.mark.parametrize("level", [1.0, 2.0, 3.0])
def test_a_swap_that_leaves_equal_ranks_has_no_correlation(level):
    human = np.random.default_rng(0).normal(size=60)
    others = np.random.default_rng(1).permutation(np.arange(30) % 4.0)
    a, b = np.concatenate([np.full(30, level), others]), np.concatenate([others, np.full(30, level)])
    swap = np.stack([np.arange(60) >= 30, np.arange(60) >= 45, np.arange(60) >= 60])
    of_a, of_b = agreement.exchanged_ranks(a, b, human)(swap)
    assert np.isnan(of_a).tolist() == [True, False, False]  # but for rounding errors, all ranks are equal
    assert not np.isnan(of_b).any()
    assert of_a[2] == pytest.approx(stats.spearmanr(a, human).statistic)


def p_of_means(a, b, number=20_000, seed=0, **options):
    return estimate_mean(a, before=b, draws=swaps(number, seed), **options).p_value


def test_ties_count_half_and_the_data_in_full():
    # 5 wins to 1 among 8 pairs: differences of 6 come from 2 of 64 sign patterns, and 12 of 64 tie with 4
    a, b = np.array([1.0] * 5 + [0.0] + [1.0, 0.0]), np.array([0.0] * 5 + [1.0] + [1.0, 0.0])
    # the data and its mirror are 2 of the 2^8 swaps, and count in full
    assert p_of_means(a, b, 200_000) == pytest.approx(2 / 64 + 12 / 64 / 2 + 2 / 256 / 2, abs=0.002)
    assert p_of_means(b, a, 200_000) == p_of_means(a, b, 200_000)
    # without ties, and with three documents, the data are 2 of 8 swaps
    assert p_of_means([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], 40_000) == pytest.approx(2 / 8, abs=0.01)
    # at most 1 / (swaps + 1): no draw swaps all of 60 items or none
    assert p_of_means(np.ones(60), np.zeros(60), 99) == 1 / 100
    # the second item is equal: every swap ties, in full if it swaps both items or none, else half
    one_draw = {p_of_means([1.0, 0.5], [0.0, 0.5], 1, seed) for seed in range(20)}
    assert one_draw == {(1 + 1) / 2, (1 + 1 / 2) / 2}
    # swaps without a statistic count in full: nobody knows that they are less extreme
    undefined = resample.permutation_p(lambda s: (np.full(len(s), NAN),) * 2, 1.0, 0.0, np.arange(9), draws=swaps(99))
    assert undefined == 1.0


@pytest.mark.parametrize("unit", [1e-14, 1e-3, 1e9])
def test_the_unit_of_the_scores_does_not_matter(unit):
    a, b = np.random.default_rng(0).integers(1, 6, size=(2, 14)) / 10  # many swaps tie, but for rounding errors
    assert p_of_means(unit * a, unit * b) == p_of_means(a, b) < 1
    found, expected = (estimate_mean(u * a, draws=few(resamples=500)) for u in (unit, 1))
    assert (found.low / unit, found.high / unit) == pytest.approx((expected.low, expected.high))


def test_the_test_of_means_is_scipys():
    a, b = np.random.default_rng(3).normal([[0.3], [0.0]], 1, size=(2, 14))
    a[3] = NAN
    kept = ~np.isnan(a)
    options = {"permutation_type": "samples", "vectorized": True}
    exact = stats.permutation_test((a[kept], b[kept]), lambda x, y, axis: x.mean(axis) - y.mean(axis), **options)
    found = estimate_mean(a, before=b, draws=swaps(200_000))
    assert (found.value, found.n, found.undefined) == (pytest.approx((a - b)[kept].mean()), 13, 1)
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.005)


def test_equal_systems_have_p_1_and_undefined_ones_none():
    ls, human, a, b = systems(60)
    same = compared("mean-range", ls, human, a, a, swaps(500))
    assert (same.value, same.p_value) == (0, 1)
    found, turned = (compared("mean-range", ls, human, *pair, swaps(3_000)) for pair in ((a, b), (b, a)))
    assert (turned.value, turned.p_value) == (-found.value, found.p_value)
    assert compared("mean-range", ls, human, a, b, swaps(3_000)) == found
    assert math.isnan(agreement.estimate_spearman([1, 2, 3], [1, 2, 3], before=[1, 1, 1], draws=swaps(9)).p_value)
    assert math.isnan(p_of_means([1.0], [4.0]))
    assert math.isnan(estimate_mean([1.0, 2.0], before=[2.0, 1.0], draws=swaps(0)).p_value)
    _, human, same, other = np.arange(6.0), np.arange(6.0)[::-1], np.full(6, 3.0), np.full(6, 2.0)
    swap = np.array([[False] * 6, [True] * 6, [True] + [False] * 5])
    for side in likelihood._exchanged_us(same, other, np.arange(6.0), human, normalization="mean-range")(swap):
        assert np.isnan(side).all()  # judges with one score each, without a warning


test_bad_input = refusals(
    lambda call: call(),
    (lambda: vectors(x=[1.0, np.inf, -np.inf]), r"^x\[1\] is infinite"),
    (lambda: checked({"x": [[1.0, -np.inf]]}), r"^x\[0, 1\] is infinite"),
    (lambda: vectors(x=[[1.0]]), r"^x has the shape \(1, 1\)"),
    (lambda: checked({"x": 1.0}), r"^x has the shape \(\)"),
    (lambda: estimate_share([0, 2, 3, 4, 5]), r"\[2.0, 3.0, 4.0\] do not"),
    (lambda: estimate_share([0.5, -0.5]), r"\[-0.5\] do not"),
    (lambda: pairs.estimate_first_rate([0, 1.5], both_orders=True), r"\[1.5\] do not"),
    (lambda: agreement.estimate_spearman([1, 2], [1, 2, 3]), "different lengths: Array 0 2, Array 1 3"),
    (lambda: estimate(mean, [1.0], method="basic"), "method='basic'"),
    (lambda: estimate(mean), "0 arrays"),
    (lambda: estimate_mean([1.0, 2.0], clusters=["a"]), "clusters has 1 entries for 2 items"),
    (lambda: Draws(confidence=1), "confidence=1: give a number between 0 and 1"),
    (lambda: Draws(confidence=0), "confidence=0"),
    (lambda: Draws(resamples=-1), "resamples=-1"),
    (lambda: likelihood.estimate_bias_score([1], [1], [1], normalization="z"), "normalization='z' is unknown"),
)


def test_documents_are_swapped_whole():
    documents = list("aabbbcddde")
    a, b = np.random.default_rng(2).normal(size=(2, 10))
    found = estimate_mean(a, before=b, clusters=documents, draws=swaps(40_000))
    totals = [sum(x - y for x, y, d in zip(a, b, documents, strict=True) if d == one) for one in "abcde"]
    extreme = sum(
        abs(sum(s * t for s, t in zip(signs, totals, strict=True))) >= abs(sum(totals)) - 1e-9
        for signs in itertools.product([1, -1], repeat=5)
    )
    assert found.p_value == pytest.approx(extreme / 2**5, abs=0.01)
    assert (found.n, found.units) == (10, 5)
    assert p_of_means(a, b, clusters=range(10)) == p_of_means(a, b)


@pytest.mark.parametrize("name", RANKED)
def test_the_scales_of_the_judges_do_not_matter(name):
    ls, human, a, b = systems(30)
    found = compared(name, ls, human, 10 * a + 3, a, swaps(99))
    assert (found.value, found.p_value) == (pytest.approx(0), 1)
    moved = 100 + np.exp(a) if name == "performance" else 3 + 10 * a  # performance depends on ranks alone
    p_values = [compared(name, ls, human, one, b, swaps(500)).p_value for one in (moved, a)]
    assert p_values[0] == p_values[1] < 1


def test_large_mixtures_stay_exact():
    # all items of the upper half change from 0 to 1: the sum of their centered ranks, n^2 / 8, is an odd number of
    # halves, of which 32 bits hold 2^24 at most
    n = 20_002
    reference = np.arange(1.0, n + 1)
    found, _ = likelihood._ranked_mixtures(np.zeros(n), np.ones(n), reference)(np.tile(reference > n / 2, (4, 1)))
    assert found == pytest.approx(math.sqrt(0.75 / (1 - 1 / n**2)), abs=1e-14)  # of two halves


def test_every_unit_is_swapped_however_many_there_are():
    for n in range(8, 70):
        a = np.append(np.zeros(n - 2), [1.0, 2.0])  # of the last two, 3 is the difference in two of four swaps
        assert p_of_means(a, np.zeros(n), 2_000) == pytest.approx(1 / 4, abs=0.03)


def variance(counts, x):
    return mean(counts, x**2) - mean(counts, x) ** 2


@pytest.mark.parametrize("clusters", [None, np.repeat(np.arange(20), 2)])
def test_bca_is_scipys_at_the_wider_level(clusters):
    x, units = np.random.default_rng(0).exponential(size=40), 40 if clusters is None else 20
    wide = 2 * stats.norm.cdf(stats.t.ppf(0.9, units - 1) * math.sqrt(units / (units - 1))) - 1
    found = estimate(variance, x, clusters=clusters, draws=few(resamples=60_000, confidence=0.8))
    if clusters is None:
        data, statistic = (x,), np.var
    else:  # documents of two outputs: their sums of x and of squares
        data = (x.reshape(20, 2).sum(axis=1), (x.reshape(20, 2) ** 2).sum(axis=1))

        def statistic(first, second, axis=-1):
            return second.mean(axis) / 2 - (first.mean(axis) / 2) ** 2

    options = {"paired": True, "confidence_level": wide, "n_resamples": 60_000, "method": "BCa"}
    theirs = stats.bootstrap(data, statistic, rng=np.random.default_rng(1), **options).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(theirs), rel=0.02)
    assert found.units == units
    percentiles = estimate(variance, x, clusters=clusters, method="percentile", draws=few(resamples=40_000))
    options |= {"confidence_level": 0.95, "n_resamples": 40_000, "method": "percentile"}
    theirs = stats.bootstrap(data, statistic, rng=np.random.default_rng(1), **options).confidence_interval
    assert (percentiles.low, percentiles.high) == pytest.approx(tuple(theirs), rel=0.02)


def test_intervals_around_the_estimate_by_hand():
    # six items of standard deviation 1: that of the mean's resamples is 1 / sqrt(6)
    x, half = np.array([0.0, 2.0] * 3), stats.t.ppf(0.975, 5) * math.sqrt(6 / 5) / math.sqrt(6)
    found = estimate(mean, x, method="normal", draws=few(resamples=80_000))
    assert (found.low, found.high) == pytest.approx((1 - half, 1 + half), rel=0.02)
    assert math.isnan(estimate(mean, x[:5], method="normal").low)
    ends = estimate(mean, x, method="normal", limits=(0.5, 1.5))
    assert (ends.low, ends.high) == (0.5, 1.5)


def test_an_estimate_beside_all_resamples_has_an_interval():
    def largest(counts, x):
        return np.where(counts > 0, x, -np.inf).max(axis=1)

    found = estimate(largest, np.arange(10.0), draws=few(resamples=300))
    assert found.low <= found.high == 9
    # no resample has as many different values as the sample
    few_values = estimate(lambda counts, x: (counts > 0).sum(axis=1), np.arange(12.0), draws=few(resamples=99))
    assert few_values.value == 12
    assert 3 < few_values.low <= few_values.high < 12
    assert math.isnan(estimate(lambda counts, x: np.full(len(counts), NAN), np.arange(10.0)).low)


def test_clusters_of_one_item_are_items_and_larger_ones_are_as_wide_as_their_means():
    x = np.random.default_rng(0).normal(size=60)
    alone = estimate_mean(x)
    assert estimate_mean(x, clusters=[f"d{i}" for i in range(60)]) == alone
    whole = estimate_mean(x.repeat(4), clusters=np.arange(60).repeat(4))
    assert (whole.low, whole.high) == (pytest.approx(alone.low), pytest.approx(alone.high))
    by_place = estimate_share([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], clusters=["a", "a", "a", "b", "b", "c"])
    for index in ([5, 0, 4, 1, 3, 2], [10, 11, 12, 13, 14, 15]):  # of sorted and of filtered rows
        series = pandas.Series(["a", "a", "a", "b", "b", "c"], index=index)
        assert estimate_share([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], clusters=series) == by_place


def test_the_bootstrap_is_seeded():
    x, y = np.random.default_rng(0).normal(size=(2, 40))
    assert estimate(agreement.counted_spearman, x, y) == estimate(agreement.counted_spearman, x, y)
    assert estimate(agreement.counted_spearman, x, y) != estimate(agreement.counted_spearman, x, y, draws=Draws(seed=1))


def test_the_change_of_two_judges_is_resampled_in_pairs():
    human, *errors = np.random.default_rng(0).normal(size=(3, 60))
    a, b = (human + error for error in errors)
    a[7] = NAN
    found = agreement.estimate_spearman(b, human, before=a, draws=few(resamples=400))

    def both(counts, x, y, h):
        return agreement.counted_spearman(counts, y, h) - agreement.counted_spearman(counts, x, h)

    slow = estimate(both, a, b, human, method="normal", draws=few(resamples=400))
    assert (found.low, found.high, found.value) == pytest.approx((slow.low, slow.high, slow.value))
    assert found.units == 59
    alone = resample.change(agreement.counted_spearman, a, b, human, draws=few(resamples=400))
    assert alone.low == pytest.approx(slow.low)
    turned = agreement.estimate_spearman(human[:8] * -1 + 0.4 * errors[0][:8], human[:8], before=human[:8], draws=few())
    assert -2 <= turned.low < turned.value < turned.high <= 2


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_tied_unfairness_has_intervals_around_its_estimate(normalization):
    ls, human, a, _ = np.random.default_rng(0).integers(1, 6, (4, 40)).astype(float)
    draws = few(seed=3, resamples=300)
    found = likelihood.estimate_bias_score(a, ls, human, normalization=normalization, draws=draws)
    statistic = partial(likelihood.counted_bias_score, normalization=normalization)
    slow = estimate(statistic, a, ls, human, method="normal", draws=draws)
    t = stats.t.ppf(0.975, 39)
    for end in (found.low, found.high):  # Wilson's: the ends lie t of their own standard errors from the estimate
        own = (slow.high - slow.low) / 2 / t * math.sqrt((1 - end**2) / (1 - slow.value**2))
        assert abs(end - slow.value) == pytest.approx(t * own)


def test_equal_items_do_not_tell_how_much_others_differ():
    for n in (10, 6_000):
        alike = estimate_mean(np.full(n, 0.1))
        assert (alike.value, alike.reason) == (pytest.approx(0.1), resample.ALIKE)
        assert np.isnan([alike.low, alike.high]).all()


# the effective n: n - 1 where a variance is estimated, at most n + 4 p (1 - p) n^2
@pytest.mark.parametrize(("values", "size"), [
    ([1.0] * 30, 30),
    ([0.0] * 12, 12),
    ([1.0] * 19 + [0.0], 19),
    ([1.0] * 40 + [0.0] * 60, 99),
    *(([p] * n, n + 4 * p * (1 - p) * n**2) for p in (0.3, 0.5, 0.9999) for n in (4, 30)),
])  # fmt: skip
def test_the_ends_of_a_share_solve_wilsons_equation_and_do_not_jump(values, size):
    found, value, units = estimate_share(values), np.mean(values), len(values)
    t = stats.t.ppf(0.975, units - 1)
    assert found.low <= value <= found.high
    for end in {found.low, found.high} - {value}:
        assert abs(end - value) == pytest.approx(t * math.sqrt(end * (1 - end) / size))
    moved = estimate_share([*values[1:], abs(values[0] - 1e-7)])
    assert (moved.low, moved.high) == pytest.approx((found.low, found.high), abs=1e-6)


def test_the_difference_of_two_shares_has_a_width_where_all_pairs_agree():
    agreed = estimate_share(np.ones(30), before=np.ones(30), draws=few())
    half = estimate_share(np.full(30, 0.5))
    assert (agreed.low, agreed.high, agreed.value) == (pytest.approx(2 * half.low - 1), pytest.approx(-agreed.low), 0)
    # at most one of 30 pairs and a bit would differ: n = 30 + 30^2
    assert agreed.high == pytest.approx(stats.t.ppf(0.975, 29) / math.sqrt(930), rel=0.01)
    a, b = np.repeat([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [NAN, 1.0]], [2, 90, 28, 1], axis=0).T
    moved = estimate_share(b, before=a, draws=few())
    assert (moved.value, moved.units) == (pytest.approx(26 / 120), 120)
    deviation = math.sqrt((30 - 26**2 / 120) / 119 / 120)  # of the mean of -1, 0 and 1
    assert moved.high - moved.low == pytest.approx(2 * stats.t.ppf(0.975, 119) * deviation, rel=0.03)


def test_p_is_below_a_twentieth_exactly_where_the_interval_excludes_the_null():
    p_of = resample.p_of_interval
    for value, *ends in np.random.default_rng(0).normal(size=(400, 3)):  # in a third of the draws the value is within
        low, high = sorted(ends)
        assert (p_of(value, low, high, null=0.0) < 0.05) == (low > 0 or high < 0)
    # the standard error below is .5, so the null is 2.94 of them away
    assert p_of(0.98, 0.0, 5.0, null=-0.49) == pytest.approx(math.erfc(2.94 / math.sqrt(2)), rel=1e-3)
    # 1.98 is 2.776 standard errors of t with 4 degrees of freedom; by the normal distribution p would be .003
    assert p_of(0.98, -1.0, 5.0, null=-2.0, units=5) == pytest.approx(2 * stats.t.sf(2.98 / 1.98 * 2.776445, 4))
    assert p_of(1.0, 0.5, 2.0, null=1.0) == 1  # the estimate is the null itself
    assert p_of(1.0, 1.0, 2.0, null=0.0) == 0  # no width on the side of the null
    assert np.isnan([p_of(1.0, *ends, null=0.0) for ends in ((NAN, 2.0), (0.5, NAN), (NAN, NAN))]).all()
    assert p_of(NAN, 1.0, 3.0, null=0.0) > p_of(1.5, 1.0, 3.0, null=0.0)


def test_rows_are_split_into_chunks_that_fill_the_memory_granted():
    expected = {(7, 4, 12): [3, 3, 1], (2, 4, 3): [1, 1], (3, 0, 2): [2, 1], (0, 4, 12): []}  # a row is not split
    assert {given: [*map(len, resample.chunks(*given))] for given in expected} == expected
    assert list(resample.chunks(3, resample.CELLS // 2)) == [range(2), range(2, 3)]
    assert np.zeros(resample.CELLS).nbytes == 16 << 20


def test_the_mean_of_skewed_values_by_hand():
    x = np.array([0.0, 0.0, 0.0, 4.0])  # t = 1 / 1, and the skewness 6 / 2^3 by the root of 4 is 3 / 8
    expected, p_of = 2 * stats.t.sf(1 + 1 / 8 + 1 / 192 + 1 / 16, 3), resample.skewed_mean_p
    assert [p_of(sign * x, np.arange(4)) for sign in (1, -1)] == pytest.approx([expected] * 2)
    of_pairs = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0])
    assert p_of(of_pairs, np.repeat(np.arange(4), 2)) == pytest.approx(expected)
    assert np.isnan([p_of(np.ones(3), np.arange(3)), p_of(x, np.zeros(4, dtype=int))]).all()


def of_labels(x, codes):
    """Return the corrected mean of zeros and ones, of which people labeled a part with the largest cluster."""
    return corrected_mean(np.zeros(len(x)), np.where(np.arange(len(x)) < 90, x, math.nan), clusters=codes)


def of_systems(x, codes):
    """Return the difference of two systems of which the second has 0.5 in every output, half of them at random."""
    scores, names = [*x, *[0.4, 0.6] * 20], ["A"] * len(x) + ["B"] * 40
    return compare_means(np.zeros(len(scores)), scores, names, clusters=[*codes, *range(1000, 1040)]).differences[0]


@pytest.mark.parametrize(("estimator", "truth"), [
    (lambda x, codes: estimate_share(x, clusters=codes), 0.5),
    (lambda x, codes: estimate_mean(x, method="normal", clusters=codes, draws=Draws(resamples=200)), 0.5),
    (of_labels, 0.5),
    (of_systems, 0.0),
])  # fmt: skip
def test_one_large_input_does_not_hide_behind_the_number_of_the_others(estimator, truth):
    """One of 134 inputs holds a third of the items, and those of an input agree as often as in a share of .75."""
    codes, covered = np.repeat(np.arange(134), [67] + [1] * 133), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        shared, own = rng.normal(size=134)[codes], rng.normal(size=200)
        found = estimator((shared + own > 0).astype(float), codes.tolist())
        covered += found.low <= truth <= found.high
    assert covered >= 184  # 92 %
    sizes = [67] + [1] * 133
    assert resample.worth(codes) == pytest.approx(200**2 / sum(size**2 for size in sizes))  # 8.7
    assert (resample.worth(np.arange(30) // 5), resample.worth(np.zeros(9, dtype=int))) == (6, 2)
