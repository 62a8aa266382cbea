"""Krippendorff's alpha, Cohen's kappa, Brier scores and calibration errors: by hand, slowly, and by third parties."""

import itertools
import math
from fractions import Fraction
from functools import partial

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa

from evalbias.measures import (
    Draws,
    brier_scores,
    calibration_error,
    cohen_kappa,
    estimate_coefficient,
    estimate_share,
    estimate_spearman,
    krippendorff_alpha,
    pairwise_accuracy,
)
from evalbias.measures.agreement import (
    calibration_errors_by_chance,
    ceiling_columns,
    counted_alpha,
    counted_calibration_error,
    counted_ceiling,
    counted_kappa,
    counted_kendall,
    counted_pearson,
    estimate_calibration_error,
    estimate_kendall,
    one_against_the_others,
)
from evalbias.measures.resample import ALONE, bootstrapped

NAN = math.nan
LEVELS = ["nominal", "ordinal", "interval"]
TABLE = [[1, 2, NAN], [3, 3, 3], [NAN, 5, 4], [2, NAN, NAN], [1, 1, 2], [5, 4, 5]]


def test_interval_alpha_by_hand():
    # squared differences of ordered pairs over (raters - 1): 0, 2 * 1, 0 -> 2 / 6; of all ratings: 58 / 30
    assert krippendorff_alpha([[1, 1], [2, 3], [3, 3]], level="interval") == pytest.approx(
        float(1 - Fraction(2, 6) / Fraction(58, 30))
    )


@pytest.mark.parametrize("level", LEVELS)
@given(st.lists(st.lists(st.sampled_from([1.0, 2.0, 2.5, 4.0, NAN]), min_size=3, max_size=3), min_size=2, max_size=8))
def test_alpha_is_that_of_krippendorff(level, table):
    usable = [row for row in table if sum(v == v for v in row) > 1]
    if len({v for row in usable for v in row if v == v}) < 2:
        assert math.isnan(krippendorff_alpha(table, level=level))
        return
    theirs = krippendorff.alpha(reliability_data=np.transpose(usable), level_of_measurement=level)
    assert krippendorff_alpha(table, level=level) == pytest.approx(theirs, abs=1e-9)


def test_alpha_without_ratings_to_compare_is_undefined():
    assert math.isnan(krippendorff_alpha([[1, NAN], [NAN, 2]], level="interval"))
    assert math.isnan(krippendorff_alpha([[3, 3], [3, 3]], level="nominal"))
    for table, level in (([1, 2], "interval"), ([[1, 2]], "ratio"), ([[1, math.inf]], "interval")):
        with pytest.raises(ValueError, match="give one of"):
            krippendorff_alpha(table, level=level)


def test_kappa_by_hand_and_by_statsmodels():
    assert cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]) == pytest.approx(float(Fraction(3, 4) - Fraction(1, 2)) * 2)
    a, b = np.random.default_rng(0).integers(0, 2, size=(2, 50))
    table = [[sum((a == i) & (b == j)) for j in (0, 1)] for i in (0, 1)]
    assert cohen_kappa(a, b) == pytest.approx(cohens_kappa(table).kappa)
    # a tie is half of either class: p_o = (1 + .5) / 2, p_e = .75 * .5 + .25 * .5
    assert cohen_kappa([1, 0.5, NAN], [1, 0, 1]) == pytest.approx((0.75 - 0.5) / 0.5)
    assert math.isnan(cohen_kappa([1, 1], [1, 1]))
    assert math.isnan(cohen_kappa([NAN], [1]))
    with pytest.raises(ValueError, match="A choice is 2"):
        cohen_kappa([2], [1])


def test_brier_scores_and_calibration_errors_by_hand():
    assert brier_scores([0.75, 0.25, NAN], [1, 1, 0]) == pytest.approx([1 / 16, 9 / 16, NAN], nan_ok=True)
    # bins [0, .5) and [.5, 1]: means .2 and .8, frequencies 1 / 2 and 2 / 3 -> (2 * .3 + 3 * (.8 - 2 / 3)) / 5
    assert calibration_error([0.1, 0.3, 0.7, 0.8, 0.9], [0, 1, 1, 1, 0], bins=2) == pytest.approx(0.6 / 5 + 0.4 / 5)
    assert calibration_error([1.0, NAN], [1, 1]) == 0.0
    assert brier_scores([0.0, 1.0], [0, 0]).tolist() == [0.0, 1.0]
    assert calibration_error([0.1, 0.8, 0.9], [1, 0, 0], bins=1) == pytest.approx(0.6 - 1 / 3)
    assert calibration_error([1.0, 0.9], [0, 1]) == pytest.approx((1 - 0.1) / 2)  # 1 is in the last bin too
    assert math.isnan(calibration_error([NAN], [1]))
    for arguments, message in (
        (([1.5], [1]), "A probability is 1.5"),
        (([-0.5], [1]), "A probability is -0.5"),
        (([0.5], [0.5]), "An outcome is 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            brier_scores(*arguments)
    with pytest.raises(ValueError, match="bins=0"):
        calibration_error([0.5], [1], bins=0)


def likert(rng, n):
    quality = rng.normal(size=n)
    return [np.clip(np.round(3 + quality + rng.normal(size=n)), 1, 5) for _ in range(2)]


@pytest.mark.parametrize(
    ("statistic", "definition"),
    [
        (counted_pearson, lambda x, y: stats.pearsonr(x, y).statistic),
        (counted_alpha, lambda x, y: krippendorff_alpha(np.column_stack([x, y]), level="interval")),
        (
            partial(counted_alpha, ordinal=True),
            lambda x, y: krippendorff_alpha(np.column_stack([x, y]), level="ordinal"),
        ),
        (counted_kendall, lambda x, y: stats.kendalltau(x, y).statistic),
        (counted_kappa, lambda x, y: cohen_kappa(x > 3, y > 3)),
        (counted_calibration_error, lambda x, y: calibration_error(x / 5, y > 3)),
    ],
)
def test_statistics_of_resamples_are_those_of_their_items(statistic, definition):
    x, y = likert(np.random.default_rng(1), 30)
    columns = {counted_kappa: (x > 3, y > 3), counted_calibration_error: (x / 5, y > 3)}.get(statistic, (x, y))
    columns = [np.asarray(column, dtype=float) for column in columns]
    assert statistic(np.ones((1, 30)), *columns)[0] == pytest.approx(definition(x, y))
    counts = next(iter(bootstrapped(np.arange(30), 5, 0)))
    for row, value in zip(counts.astype(int), statistic(counts, *columns), strict=True):
        assert value == pytest.approx(definition(np.repeat(x, row), np.repeat(y, row)))


@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 50), st.integers(0, 99))
def test_tau_and_accuracy_of_all_pairs_in_n_log_n(n, few, many, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, few, n).astype(float), rng.integers(0, many, n).astype(float)
    signs = np.array([(np.sign(x[j] - x[i]), np.sign(y[j] - y[i])) for i, j in itertools.combinations(range(n), 2)])
    a, b = signs.T
    untied = math.sqrt((a**2).sum() * (b**2).sum())
    expected = (a * b).sum() / untied if untied else NAN
    assert counted_kendall(np.ones((1, n)), x, y)[0] == pytest.approx(expected, nan_ok=True)
    accuracy = ((1 + a * b) / 2)[b != 0].mean() if b.any() else NAN
    assert pairwise_accuracy(x, y).value == pytest.approx(accuracy, nan_ok=True)


def ceiling(ratings):
    return estimate_coefficient(counted_ceiling, ceiling_columns(ratings))


def test_the_human_ceiling_takes_every_choice_of_one_rater():
    ratings = np.array([[1, 5, 3], [2, 4, NAN], [4, NAN, NAN], [3, 1, 2]], dtype=float)
    pairs = one_against_the_others(ratings)
    assert pairs[0] == pytest.approx(np.array([[1, 4], [5, 2], [3, 3]]))
    assert pairs[1] == pytest.approx(np.array([[2, 4], [4, 2], [NAN, NAN]]), nan_ok=True)
    assert np.isnan(pairs[2]).all()
    ratings = np.random.default_rng(0).integers(1, 6, (30, 1)) + np.random.default_rng(1).integers(0, 3, (30, 3)) - 1.0
    ratings -= ratings.mean(axis=0)  # the raters have one level
    columns = ceiling_columns(ratings)
    choices = [(row[r], np.delete(row, r).mean()) for row in ratings for r in range(3)]
    expected = stats.spearmanr(*np.round(choices, 9).T).statistic
    assert ceiling(ratings).value == pytest.approx(expected)
    alone = ceiling_columns(np.array([[1.0, 2.0], [3.0, NAN], [4.0, 5.0]]))
    assert np.isnan(alone).all(axis=1).tolist() == [False, True, False]
    assert ceiling(ratings - [0, 10, 20]).value == pytest.approx(expected)
    counts = np.random.default_rng(2).integers(0, 3, (2, 30)).astype(float)
    for found, held in zip(counted_ceiling(counts, columns), counts.astype(int), strict=True):
        repeated = np.repeat(np.round(choices, 9).reshape(30, 3, 2), held, axis=0).reshape(-1, 2)
        assert found == pytest.approx(stats.spearmanr(*repeated.T).statistic)


def test_the_human_ceiling_does_not_depend_on_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    quality, level = np.repeat([0.0, 1.0, 2.0], 60), np.array([0.0, 2.0, 4.0])  # sorted by system; raters differ
    ratings = quality[:, None] + level + rng.normal(size=(180, 3))
    ratings[rng.random((180, 3)) < 0.1] = NAN
    values = [ceiling(rows).value for rows in (ratings, rng.permutation(ratings), ratings[:, [2, 0, 1]])]
    assert values == pytest.approx([values[0]] * 3)
    assert values[0] > 0.4


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_interval_of_tau_leaves_every_cluster_out(outputs):
    x, y = likert(np.random.default_rng(4), 36)
    clusters = np.random.default_rng(5).permutation(np.arange(36) // outputs)
    found = estimate_kendall(x, y, clusters=clusters.tolist())
    left_out = [stats.kendalltau(x[clusters != c], y[clusters != c]).statistic for c in np.unique(clusters)]
    units = 36 // outputs
    tau = stats.kendalltau(x, y).statistic
    # the ends of Wilson's interval lie t of their own standard errors from the estimate
    error = math.sqrt((units - 1) * np.var(left_out))
    for end in (found.low, found.high):
        own = error * math.sqrt((1 - end**2) / (1 - tau**2))
        assert abs(end - tau) == pytest.approx(stats.t.ppf(0.975, units - 1) * own)
    assert found.units == units


COEFFICIENTS = [
    estimate_spearman,
    estimate_kendall,
    *(partial(estimate_coefficient, one) for one in (counted_pearson, counted_alpha, counted_kappa)),
]


@pytest.mark.parametrize("estimator", COEFFICIENTS)
@pytest.mark.parametrize("outputs", [1, 4])
def test_perfect_agreement_has_the_interval_of_a_share_of_1(estimator, outputs):
    x = np.arange(24.0) % 2
    clusters = (np.arange(24) // outputs).tolist()
    same = estimator(x, x, clusters=clusters)
    share = estimate_share(np.ones(24 // outputs))
    assert (same.low, same.high, same.units) == (pytest.approx(2 * share.low - 1), 1, 24 // outputs)
    assert math.isnan(estimator(np.ones(24), np.ones(24)).low)
    assert math.isnan(estimator(x[:5], x[:5]).low)


@pytest.mark.parametrize("estimator", COEFFICIENTS)
@pytest.mark.parametrize("n", [6, 20])
def test_a_judge_that_errs_on_few_items_is_not_certain_to_agree(estimator, n):
    rng, truth, held = np.random.default_rng(0), 0.0, 0
    for sample in range(301):  # the judge repeats what people say, but guesses 6 % of the items
        size = n if sample else 3_000
        people = rng.integers(0, 2, size).astype(float)
        judge = np.where(rng.random(size) < 0.06, rng.integers(0, 2, size), people)
        if not sample:
            truth = estimator(judge, people, draws=ALONE).value
            continue
        found = estimator(judge, people)
        held += bool(np.isnan(found.low) or found.low <= truth <= found.high)
    assert truth == pytest.approx(0.94, abs=0.02)
    assert held >= 275  # 95 %, less 2.6 standard errors


@pytest.mark.parametrize("n", [10, 100])
def test_one_pair_out_of_order_tells_about_as_much_as_none(n):
    x = np.arange(float(n))
    y = x.copy()
    y[[4, 5]] = y[[5, 4]]
    found, same = (estimate_kendall(x, reference) for reference in (y, x))
    assert found.value == pytest.approx(1 - 4 / (n * (n - 1)))
    assert 1 - 8 / n < same.low == pytest.approx(found.low, abs=0.2)
    assert found.low < found.value < found.high < same.high == 1


def test_the_interval_of_tau_holds_the_truth():
    def pairs(rng, n):
        quality = rng.normal(size=n)
        return quality + rng.normal(size=n), quality + rng.normal(size=n)

    truth = 2 / math.pi * math.asin(0.5)  # of normal pairs with correlation .5
    held = 0
    for seed in range(200):
        x, y = pairs(np.random.default_rng(seed), 50)
        found = estimate_kendall(x, y)
        held += found.low <= truth <= found.high
    assert 182 <= held <= 198


def test_every_pair_of_values_counts_once():
    x, y = [1.0, 2.0, 2.0, 4.0], [1.0, 3.0, 2.0, 2.0]
    signs = [(np.sign(b - a), np.sign(d - c)) for (a, c), (b, d) in itertools.combinations(zip(x, y, strict=True), 2)]
    expected = sum(s * t for s, t in signs) / math.sqrt(sum(s * s for s, _ in signs) * sum(t * t for _, t in signs))
    assert estimate_kendall(x, y).value == pytest.approx(expected)
    assert estimate_kendall([5.0, 3.0], [1.0, 2.0]).value == -1  # one pair
    assert math.isnan(estimate_kendall([5.0], [1.0]).value)


@pytest.mark.parametrize("n", [30, 200])
def test_the_calibration_error_of_right_probabilities_may_be_0(n):
    rng, held = np.random.default_rng(0), 0
    for seed in range(60):
        p = rng.random(n)
        found = estimate_calibration_error(p, rng.random(n) < p, draws=Draws(seed=seed, resamples=100))
        held += found.low == 0
    assert held >= 52
    outcomes = rng.random(n) < 0.5
    wrong = estimate_calibration_error(rng.random(n), outcomes)
    assert 0 < wrong.low < wrong.value < wrong.high
    assert math.isnan(estimate_calibration_error(np.full(3, NAN), np.ones(3)).low)


def test_errors_by_chance_are_those_of_outcomes_that_are_drawn():
    p = np.array([0.02, 0.08, 0.15, 0.55, 0.85, 0.95, 1.0])
    outcomes = np.random.default_rng(0).random((50, 7)) < p
    found = calibration_errors_by_chance(p, draws=50, seed=0)
    assert found == pytest.approx([calibration_error(p, row) for row in outcomes])


def test_an_error_as_large_as_chance_often_makes_it_may_be_0():
    outcomes = np.repeat([1.0, 0.0], [13, 7])
    # of 20 coins, 13 or more fall alike with a probability of .26, 14 or more with .12
    found = estimate_calibration_error(np.full(20, 0.5), outcomes, draws=Draws(confidence=0.8))
    assert (found.value, found.low) == (pytest.approx(0.15), 0.0)
