"""Agreement with people and bias beside it: by hand, by slow definitions, and by scipy; see also test_resample."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures import agreement, estimate_spearman, forecasts, kendall, pairwise_accuracy, pearson, spearman
from evalbias.measures.agreement import counted_kappa, counted_pearson, estimate_pearson, estimate_tied_accuracy
from evalbias.measures.forecasts import brier_scores, counted_calibration_error, estimate_calibration_error
from evalbias.measures.likelihood import bias_score, rs_scores, unfairness_scores
from evalbias.measures.resample import ALONE, Draws, estimate, estimate_coefficient, estimate_share, share_ends

NAN = math.nan
EACH = pytest.mark.parametrize("measure", [spearman, pearson, kendall, pairwise_accuracy])


def alone(statistic, x, y):
    """A statistic of one sample."""
    return statistic(np.ones((1, len(x))), np.array(x, dtype=float), np.array(y, dtype=float))[0]


def test_correlations_by_hand():
    # deviations (-1.5, -.5, .5, 1.5) and (-2, 0, -1, 3): (3 + 0 - .5 + 4.5) / sqrt(5 * 14)
    assert pearson([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(7 / math.sqrt(70))
    # ranks 1, 3, 2, 4: 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(0.8)
    # 5 pairs in the same order, 1 in the opposite
    assert kendall([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(4 / 6)
    # one tie in x: (1 + 1 - 0) / sqrt(2 * 3)
    assert kendall([1, 1, 2], [1, 2, 3]).value == pytest.approx(2 / math.sqrt(6))
    # pairs of y: 1-2, 1-3, 2-3 (1-4 and 2-4 too, 3-4 tied): right, right, tied, right, wrong
    assert pairwise_accuracy([1, 3, 3, 2], [1, 2, 4, 4]).value == pytest.approx((1 + 1 + 1 + 0.5 + 0) / 5)
    assert math.isnan(pairwise_accuracy([1, 2, 3], [5, 5, 5]).value)


@EACH
def test_groups_undefined_items_and_groups_are_counted(measure):
    #         p: same order  q: opposite order (r: constant) (s: one item left)
    x = [1.0, 2.0, 5.0, 3.0, 9.0, 4.0, 4.0, 8.0, NAN, 3.0]
    y = [5.0, 6.0, 7.0, 1.0, 0.5, 2.0, 2.0, 1.0, 1.0, NAN]
    groups = ["p", "p", "p2", "q", "q", "r", "r", "s", "s", "p2"]
    found = measure(x, y, groups=groups)
    low = 0 if measure is pairwise_accuracy else -1
    assert found.by_group == pytest.approx((1, NAN, low, NAN, NAN), nan_ok=True)
    assert found.value == pytest.approx((1 + low) / 2)
    assert (found.n, found.undefined, found.groups, found.undefined_groups) == (8, 2, 2, 3)
    pooled = measure(x, y)
    assert (pooled.n, pooled.undefined, pooled.groups, pooled.undefined_groups) == (8, 2, 1, 0)
    assert pooled.by_group == (pooled.value,)
    assert pooled.value == pytest.approx(measure(x[:8], y[:8]).value)


@EACH
def test_nothing_to_correlate(measure):
    for x, y in (([1.0], [2.0]), ([NAN, 1.0], [1.0, 2.0]), ([], [])):
        found = measure(x, y)
        assert (math.isnan(found.value), found.groups) == (True, 0)
    with pytest.raises(ValueError, match="groups has 1 entries for 2 items"):
        measure([1, 2], [1, 2], groups=["p"])


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 3.3, 70.3, -1e5 - 0.1])
def test_a_constant_has_no_correlation_however_its_mean_is_rounded(constant):
    for n in range(2, 60):
        columns = np.full(n, constant), np.random.default_rng(n).normal(size=n)
        assert np.isnan([alone(counted_pearson, *pair) for pair in (columns, columns[::-1])]).all()
    small = constant * (1 + 1e-9 * np.arange(5.0))  # little variance is variance
    assert abs(alone(counted_pearson, small, np.arange(5.0))) == pytest.approx(1)
    rounded = np.array([0.1, 0.2, 0.3, 0.1 + 0.2]) * constant
    assert max(abs(alone(counted_pearson, rounded, rounded * unit)) for unit in (3, -3)) <= 1


@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 50), st.integers(0, 99))
def test_tau_and_accuracy_of_all_pairs_in_n_log_n(n, few, many, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, few, n).astype(float), rng.integers(0, many, n).astype(float)
    signs = np.array([(np.sign(x[j] - x[i]), np.sign(y[j] - y[i])) for i, j in itertools.combinations(range(n), 2)])
    a, b = signs.T
    untied = math.sqrt((a**2).sum() * (b**2).sum())
    expected = (a * b).sum() / untied if untied else NAN
    assert alone(agreement.counted_kendall, x, y) == pytest.approx(expected, nan_ok=True)
    accuracy = ((1 + a * b) / 2)[b != 0].mean() if b.any() else NAN
    assert pairwise_accuracy(x, y).value == pytest.approx(accuracy, nan_ok=True)


def test_alpha_and_kappa_by_hand():
    # squared differences of ordered pairs: 0, 2 * 1, 0 -> 2 / 6; of all ratings: 58 / 30
    assert alone(agreement.counted_alpha, [1, 2, 3], [1, 3, 3]) == pytest.approx(1 - (2 / 6) / (58 / 30))
    assert alone(counted_kappa, [1, 1, 0, 0], [1, 0, 0, 0]) == pytest.approx((3 / 4 - 1 / 2) * 2)
    # a tie is half of either class: p_o = (1 + .5) / 2, p_e = .75 * .5 + .25 * .5
    assert alone(counted_kappa, [1, 0.5], [1, 0]) == pytest.approx((0.75 - 0.5) / 0.5)
    assert math.isnan(alone(counted_kappa, [1, 1], [1, 1]))


def ceiling(ratings, **options):
    columns = agreement.ceiling_columns(np.asarray(ratings, dtype=float))
    return estimate_coefficient(partial(agreement.counted_ceiling, **options), columns)


def rhos(ratings):
    """Spearman's rho of each rater with the mean of the others, and the number of its items, by scipy."""
    found = []
    for j, own in enumerate(ratings.T):
        rest = np.delete(ratings, j, axis=1)
        kept = ~np.isnan(own) & ~np.isnan(rest).all(axis=1)
        others = np.round(np.nanmean(rest[kept], axis=1), 9)
        constant = min(len(np.unique(own[kept])), len(np.unique(others))) < 2
        found.append((NAN if constant else stats.spearmanr(own[kept], others).statistic, kept.sum()))
    return np.array(found)


@given(st.integers(3, 30), st.integers(2, 5), st.sampled_from([1.0, 0.1]), st.floats(0.0, 0.6), st.integers(0, 99))
def test_the_human_ceiling_is_scipys_rho_rater_by_rater(n, raters, step, left_out, seed):
    rng = np.random.default_rng(seed)
    ratings = step * np.clip(4 + rng.integers(-2, 2, (n, 1)) + rng.integers(-1, 2, (n, raters)), 1, 5)  # many ties
    ratings[rng.random(ratings.shape) < left_out] = NAN
    each, sizes = rhos(ratings).T
    known = ~np.isnan(each)
    expected = np.average(each[known], weights=sizes[known]) if sizes[known].sum() else NAN
    strict = ratings - np.arange(raters) if left_out == 0 else ratings  # a rater's level changes nothing
    assert ceiling(strict).value == pytest.approx(expected, nan_ok=True)
    columns, counts = agreement.ceiling_columns(ratings), rng.integers(0, 3, (2, n)).astype(float)
    if not np.isnan(columns).any():
        repeated = [np.repeat(ratings, held.astype(int), axis=0) for held in counts]
        each, sizes = np.moveaxis([rhos(rows) for rows in repeated], 2, 0)
        weights = np.where(np.isnan(each), 0, sizes)
        slow = [(np.nan_to_num(e) @ w / w.sum()) if w.sum() else NAN for e, w in zip(each, weights, strict=True)]
        assert agreement.counted_ceiling(counts, columns) == pytest.approx(slow, nan_ok=True)


def test_the_kappa_of_a_rater_is_that_with_another_one():
    rng = np.random.default_rng(1)
    ratings = (rng.normal(size=(80, 1)) + rng.normal(size=(80, 3)) > 0.8).astype(float)
    each = []
    for j in range(3):
        first, second = ratings[:, j], np.delete(ratings, j, axis=1)
        same, rates = (first[:, None] == second).mean(), (first.mean(), second.mean())
        chance = rates[0] * rates[1] + (1 - rates[0]) * (1 - rates[1])
        each.append((same - chance) / (1 - chance))
    assert ceiling(ratings, statistic=counted_kappa).value == pytest.approx(np.mean(each))
    two = ceiling(ratings[:, :2], statistic=counted_kappa).value
    assert two == pytest.approx(alone(counted_kappa, ratings[:, 0], ratings[:, 1]))


PERFECT = [estimate_spearman]
PERFECT += [*(partial(estimate_coefficient, one) for one in (counted_pearson, agreement.counted_alpha, counted_kappa))]


@pytest.mark.parametrize("estimator", PERFECT)
@pytest.mark.parametrize("outputs", [1, 4])
def test_perfect_agreement_has_the_interval_of_a_share_of_1(estimator, outputs):
    x = np.arange(24.0) % 2
    clusters = (np.arange(24) // outputs).tolist()
    same = estimator(x, x, clusters=clusters)
    share = estimate_share(np.ones(24 // outputs))
    assert (same.low, same.high, same.units) == (pytest.approx(2 * share.low - 1), 1, 24 // outputs)
    assert math.isnan(estimator(np.ones(24), np.ones(24)).low)
    assert math.isnan(estimator(x[:5], x[:5]).low)


def calibration_error(p, y):
    return estimate_calibration_error(p, y, draws=ALONE).value


def test_brier_scores_and_calibration_errors_by_hand():
    assert brier_scores([0.75, 0.25, NAN], [1, 1, 0]) == pytest.approx([1 / 16, 9 / 16, NAN], nan_ok=True)
    # bins [.1, .2) and [.8, .9): means .15 and .84, frequencies 1 / 2 and 2 / 3 -> (2 * .35 + 3 * (.84 - 2 / 3)) / 5
    found = calibration_error([0.12, 0.18, 0.81, 0.84, 0.87], [0, 1, 1, 1, 0])
    assert found == pytest.approx((2 * 0.35 + 3 * 0.84 - 2) / 5)
    assert calibration_error([1.0, NAN], [1, 1]) == 0.0
    assert brier_scores([0.0, 1.0], [0, 0]).tolist() == [0.0, 1.0]
    assert calibration_error([1.0, 0.9], [0, 1]) == pytest.approx((1 - 0.1) / 2)  # 1 is in the last bin too
    assert math.isnan(calibration_error([NAN], [1]))
    for arguments, message in (
        (([0.5, 1.5, -0.5], [1, 1, 1]), "A probability is 1.5"),
        (([-0.5], [1]), "A probability is -0.5"),
        (([0.5, 0.5], [0.5, 2]), "An outcome is 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            brier_scores(*arguments)


def test_an_error_as_large_as_chance_often_makes_it_may_be_0():
    outcomes = np.repeat([1.0, 0.0], [13, 7])
    # of 20 coins, 13 or more fall alike with a probability of .26, 14 or more with .12
    found = estimate_calibration_error(np.full(20, 0.5), outcomes, draws=Draws(confidence=0.8))
    assert (found.value, found.low) == (pytest.approx(0.15), 0.0)


def slow_tied_accuracy(x, y, clusters):
    """Deutsch et al. 2023, equation 4: try every difference of two scores as the threshold of a tie."""
    pairs = itertools.combinations(range(len(x)), 2)
    pairs = [p for p in pairs if clusters is None or len({clusters[i] for i in p}) < 2]

    def right(threshold):
        signs = [0 if abs(x[i] - x[j]) <= threshold + 1e-9 else np.sign(x[i] - x[j]) for i, j in pairs]
        return np.mean([sign == np.sign(y[i] - y[j]) for sign, (i, j) in zip(signs, pairs, strict=True)])

    return max(right(threshold) for threshold in [0, *(abs(x[i] - x[j]) for i, j in pairs)])


@given(st.integers(0, 10_000), st.integers(0, 2), st.booleans())
def test_the_accuracy_of_pairs_calibrates_its_ties(seed, digits, clustered):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=14).round(digits), rng.integers(0, 3, 14)
    clusters = [int(c) for c in np.arange(14) % 4] if clustered else None
    found = estimate_tied_accuracy(x, y, clusters=clusters, draws=ALONE)
    assert found.value == pytest.approx(slow_tied_accuracy(x, y, clusters))
    assert estimate_tied_accuracy(-3 * x + 1, -y, clusters=clusters).value == pytest.approx(found.value)


def test_the_accuracy_of_pairs_by_hand_and_its_interval():
    # 1 < 2 < 2: pairs (a, b) and (a, c) ordered, (b, c) tied; scores .1 apart are tied best
    assert estimate_tied_accuracy([1.0, 2.0, 2.1], [1, 2, 2]).value == 1
    assert estimate_tied_accuracy([1.0, 2.0, 2.1], [1, 1, 2]).value == pytest.approx(2 / 3)
    assert math.isnan(estimate_tied_accuracy([1.0], [1]).value)
    alike = estimate_tied_accuracy([1.0, 2.0, 3.0, 5.0], [1, 1, 2, 2], clusters=[0, 0, 1, 1])
    assert (math.isnan(alike.value), alike.unit, alike.reason[:23]) == (True, "share", "people rate all outputs")
    rng = np.random.default_rng(0)
    y = np.arange(40.0)
    x, clusters = y + rng.normal(0, 20, 40), [i // 4 for i in range(40)]
    found = estimate_tied_accuracy([*x, math.nan], [*y, 1.0], clusters=[*clusters, 0])
    assert (found.n, found.undefined, found.units) == (40, 1, 10)
    pairs = [p for p in itertools.combinations(range(40), 2) if p[0] // 4 == p[1] // 4]
    ordered = np.diff(x[np.array(pairs)], axis=1)[:, 0] > 0
    shares = ordered.reshape(10, 6).mean(axis=1)  # no pair is tied by people, so none should be by the scores
    assert found.value == pytest.approx(shares.mean())
    variance = shares.var() / 9
    ends = share_ends(found.value, variance, units=10, df=9, confidence=0.95)
    assert (found.low, found.high) == pytest.approx(ends)
    one = estimate_tied_accuracy(x, y, clusters=[max(i, 9) for i in range(40)])  # one cluster holds all pairs
    assert (one.units, one.reason) == (1, "fewer than 6 groups of outputs hold a pair")
    assert math.isnan(one.low + one.high)
    many = rng.normal(size=1_500)
    assert estimate_tied_accuracy(many, many + rng.normal(size=1_500)).value == pytest.approx(0.75, abs=0.02)


def test_a_change_of_the_correlation_has_the_jackknifes_error():
    rng = np.random.default_rng(1)
    y = rng.normal(size=60)
    a, b, clusters = y + rng.normal(size=60), y + 2 * rng.normal(size=60), [i // 3 for i in range(60)]
    found = estimate_pearson(b, y, before=a, clusters=clusters)

    def difference(kept):
        return pearson(b[kept], y[kept]).value - pearson(a[kept], y[kept]).value

    rest = np.array([difference(np.array(clusters) != c) for c in range(20)])
    error = math.sqrt(19 * rest.var())
    half = stats.t.ppf(0.975, 19) * error
    expected = difference(np.full(60, True)), found.value - half, found.value + half
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(found.value) / error, 19))
    turned = estimate_pearson([0, 2, 1, 3, 5, 4, 6], np.arange(7), before=[6, 2, 5, 4, 1, 3, 0])
    assert 0 < turned.low < turned.value < turned.high == 2  # no correlation changes by more
    linear = estimate_pearson(5 + 0.1 * a, y, before=a)
    assert (linear.value, linear.p_value) == (pytest.approx(0, abs=1e-12), 1.0)
    assert math.isnan(estimate_pearson(a[:4], y[:4], before=b[:4]).low)


@pytest.mark.slow
def test_equal_judges_differ_in_their_accuracy_of_pairs_in_five_percent_of_data_sets():
    rejected = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        quality, clusters = rng.normal(size=120), [i // 4 for i in range(120)]
        people = np.round(quality + 0.7 * rng.normal(size=120))
        one, other = (np.round(quality + rng.normal(size=120)) for _ in range(2))
        rejected.append(estimate_tied_accuracy(other, people, before=one, clusters=clusters).p_value < 0.05)
    assert 0.02 <= np.mean(rejected) <= 0.09


def test_unfairness_by_hand():
    # mean-range: (-1/2, 0, 1/2) - (-25, -10, 35)/60, with mean 25 of 0, 15, 60; center-max divides by 35
    unfairness = unfairness_scores([1, 3, 5], [0, 15, 60])
    assert unfairness == pytest.approx([-0.5 + 25 / 60, 10 / 60, 0.5 - 35 / 60])
    center_max = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="center-max")
    assert center_max == pytest.approx([-1 + 25 / 35, 10 / 35, 0])
    # z-score: (-2, 0, 2) has the variance 8/3; (-25, -10, 35) has (625 + 100 + 1225) / 3 = 650
    standardized = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="z-score")
    model, human = math.sqrt(8 / 3), math.sqrt(650)
    assert standardized == pytest.approx([-2 / model + 25 / human, 10 / human, 2 / model - 35 / human])
    # an item with an undefined score enters neither normalization
    with_gap = unfairness_scores([1, 3, 5, 9], [0, 25, 100, NAN])
    assert with_gap == pytest.approx([-0.5 + 125 / 300, 50 / 300, 0.5 - 175 / 300, NAN], nan_ok=True)
    with pytest.raises(ValueError, match="normalization='min-max' is unknown"):
        unfairness_scores([1, 3, 5], [0, 15, 60], normalization="min-max")


def test_bias_scores_of_both_normalizations_and_rs_by_hand():
    # judge (-1, 0, 0, 1) of range 2 and sd sqrt(1/2); people (-1, -1, 1, 1) of range 2 and sd 1
    # mean-range: US = (0, 1/2, -1/2, 0), ranks (2.5, 4, 1, 2.5) against 1, 2, 3, 4: -1.5 / sqrt(4.5 * 5)
    # z-score: US = (1 - sqrt 2, 1, -1, sqrt 2 - 1), ranks (2, 4, 1, 3): 0 / ...
    judge, people, ls = [2, 3, 3, 4], [1, 1, 5, 5], [1, 2, 3, 4]
    assert bias_score(ls, unfairness_scores(judge, people)) == pytest.approx(-1.5 / math.sqrt(4.5 * 5))
    assert bias_score(ls, unfairness_scores(judge, people, normalization="z-score")) == pytest.approx(0)
    assert math.isnan(bias_score([1.0], [1.0]))
    # LS* = (-1, 0, 1); US centered: (-1/3, 2/3, -1/3) / (2/3) = (-1/2, 1, -1/2)
    assert rs_scores([-30, -20, -10], [0, 1, 0]) == pytest.approx([1.5, 1, 0.5])
    assert np.isnan(rs_scores([1, 1, 1], [1, 2, 3])).all()


# Forecasts of what several people say: skills by hand, and what chance shows.

ONE = np.ones((1, 4))
P = np.array([0.9, 0.9, 0.1, 0.1])
Y = np.array([[1.0, 1.0], [1.0, np.nan], [0.0, 0.0], [0.0, 1.0]])


def world(n=400, *, alike=0.3, raters=3, seed=0):
    """Draw flawless forecasts, and people who correlate by ``alike`` beyond them."""
    rng = np.random.default_rng(seed)
    p, strength = rng.beta(2, 2, n), (1 - alike) / alike if alike else None
    q = rng.beta(p * strength, (1 - p) * strength) if alike else p
    return p, (rng.random((n, raters)) < q[:, None]).astype(float)


def test_the_skill_is_that_of_each_persons_verdict():
    shares = np.nanmean(Y, axis=1)
    np.testing.assert_allclose(shares, [1, 1, 0, 0.5])
    errors = np.nanmean((P[:, None] - Y) ** 2, axis=1)
    np.testing.assert_allclose(forecasts.squared_errors(P, shares), errors)
    base = shares.mean()
    baseline = np.nanmean((base - Y) ** 2, axis=1).mean()
    assert forecasts.counted_brier_skill(ONE, P, shares)[0] == pytest.approx(1 - errors.mean() / baseline)
    assert forecasts.counted_brier_skill(ONE, np.full(4, base), shares)[0] == pytest.approx(0.0)
    # a forecaster of the mean of an item's people is flawless, and yet not certain of one of them
    assert forecasts.counted_brier_skill(ONE, shares, shares)[0] == pytest.approx(1 - 0.25 / 4 / baseline)
    assert np.isnan(forecasts.counted_brier_skill(ONE, P, np.ones(4))[0])


def test_agreement_beyond_a_forecast_is_found():
    for alike in (0.0, 0.3, 0.8):
        assert forecasts.agreement_beyond(*world(4000, alike=alike)) == pytest.approx(alike, abs=0.04)
    assert forecasts.agreement_beyond(P, Y[:, :1]) == 0.0


def test_outputs_of_one_input_deviate_together_from_flawless_forecasts():
    inputs = np.repeat(np.arange(8), 4)
    p, y = np.full(32, 0.5), (inputs < 7).astype(float)[:, None]  # 7 of 8 inputs come true, each with all its outputs
    alone, together = (forecasts.estimate_flawless_error(p, y, clusters=one) for one in (None, inputs.tolist()))
    # of 8 fair inputs, all but one, or none but one, come true in 16 of 256 draws, and all or none in 2
    assert together.high == pytest.approx(3 / 8)
    assert alone.high < 0.2
    draws = Draws(resamples=99, swaps=0)
    errors = [forecasts.estimate_calibration_error(p, y[:, 0], clusters=one, draws=draws) for one in (None, inputs)]
    assert errors[0].low > 0 == errors[1].low


@pytest.mark.slow
@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_flawless_forecasts_exceed_their_bound_in_5_of_100(alike):
    draws, over = Draws(resamples=0, swaps=0), 0
    for seed in range(100):
        p, y = world(120, alike=alike, seed=seed)
        error = estimate(counted_calibration_error, p, y.mean(axis=1), draws=draws).value
        over += error > forecasts.estimate_flawless_error(p, y, draws=draws).high
    assert over <= 11  # of 100, the 99 % end of a binomial of .05
    p, y = world(300, alike=alike)
    wrong = estimate(counted_calibration_error, 0.5 * p, y.mean(axis=1), draws=draws).value
    assert wrong > forecasts.estimate_flawless_error(0.5 * p, y, draws=draws).high
