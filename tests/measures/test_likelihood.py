import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures import (
    bias_score,
    kendall,
    likelihood_bias,
    pearson,
    rs_scores,
    spearman,
    unfairness_scores,
)
from evalbias.measures.likelihood import normalize

values = st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=12)

NAN = math.nan


def test_unfairness_by_hand():
    # mean-range: (-1/2, 0, 1/2) - (-25, -10, 35)/60, with mean 25 of 0, 15, 60; center-max divides by 35
    unfairness = unfairness_scores([1, 3, 5], [0, 15, 60])
    assert unfairness == pytest.approx([-0.5 + 25 / 60, 10 / 60, 0.5 - 35 / 60])
    with pytest.raises(ValueError, match="normalization='min-max' is unknown"):
        unfairness_scores([1, 3, 5], [0, 15, 60], normalization="min-max")
    center_max = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="center-max")
    assert center_max == pytest.approx([-1 + 25 / 35, 10 / 35, 0])
    # z-score: (-2, 0, 2) has the variance 8/3; (-25, -10, 35) has (625 + 100 + 1225) / 3 = 650
    standardized = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="z-score")
    model, human = math.sqrt(8 / 3), math.sqrt(650)
    assert standardized == pytest.approx([-2 / model + 25 / human, 10 / human, 2 / model - 35 / human])


def test_bias_scores_of_both_normalizations_by_hand():
    # judge (-1, 0, 0, 1) of range 2 and sd sqrt(1/2); people (-1, -1, 1, 1) of range 2 and sd 1
    # mean-range: US = (0, 1/2, -1/2, 0), ranks (2.5, 4, 1, 2.5) against 1, 2, 3, 4: -1.5 / sqrt(4.5 * 5)
    # z-score: US = (1 - sqrt 2, 1, -1, sqrt 2 - 1), ranks (2, 4, 1, 3): 0 / ...
    items = [1, 2, 3, 4], [2, 3, 3, 4], [1, 1, 5, 5]
    assert likelihood_bias(*items).bias_score == pytest.approx(-1.5 / math.sqrt(4.5 * 5))
    assert likelihood_bias(*items, normalization="z-score").bias_score == pytest.approx(0)
    both = [1, 2, 3, 4], {"a": items[1]}, {"a": items[2]}
    assert likelihood_bias(*both, normalization="z-score")["total"].bias_score == pytest.approx(0)


def test_an_outlier_moves_the_published_bias_score_more_than_that_of_z_scores():
    rng = np.random.default_rng(0)
    human = rng.normal(size=3000)
    judge = human + 0.5 * rng.normal(size=3000)
    far = np.append(judge, 30.0), np.append(human, 0.0)
    moved = {
        n: bias_score(np.append(human, 0.0), unfairness_scores(*far, normalization=n))
        - bias_score(human, unfairness_scores(judge, human, normalization=n))
        for n in ("mean-range", "z-score")
    }
    assert moved["mean-range"] < -0.4
    assert abs(moved["z-score"]) < 0.25


def test_an_item_with_an_undefined_score_enters_neither_normalization():
    unfairness = unfairness_scores([1, 3, 5, 9], [0, 25, 100, math.nan])
    assert unfairness[:3] == pytest.approx([-0.5 + 125 / 300, 50 / 300, 0.5 - 175 / 300])
    assert math.isnan(unfairness[3])


def test_rs_by_hand():
    # LS* = (-1, 0, 1); US centered: (-1/3, 2/3, -1/3) / (2/3) = (-1/2, 1, -1/2)
    assert rs_scores([-30, -20, -10], [0, 1, 0]) == pytest.approx([1.5, 1, 0.5])


def test_likelihood_bias_by_hand():
    bias = likelihood_bias([-3, -2, -1, -9], [1, 3, 5, 2], [0, 25, 100, math.nan])
    # US = (0, 1/4, 0): its ranks 1.5, 3, 1.5 against 1, 2, 3 correlate at 0
    assert bias.bias_score == pytest.approx(0)
    assert bias.performance == 1
    assert (bias.n, bias.undefined) == (3, 1)


def test_total_averages_the_scores_first():
    ls, rng = np.arange(20.0), np.random.default_rng(0)
    model = {"a": rng.normal(size=20), "b": rng.normal(size=20)}
    human = {"a": rng.normal(size=20), "b": rng.normal(size=20)}
    model["b"][4] = math.nan
    biases = likelihood_bias(ls, model, human)
    of_means = likelihood_bias(ls, (model["a"] + model["b"]) / 2, (human["a"] + human["b"]) / 2)
    assert biases["total"] == of_means
    assert (biases["a"].undefined, biases["b"].undefined, biases["total"].undefined) == (0, 1, 1)
    assert biases["total"].bias_score != pytest.approx((biases["a"].bias_score + biases["b"].bias_score) / 2)


@pytest.mark.parametrize("normalization", ["mean-range", "center-max", "z-score"])
@given(x=values, scale=st.floats(0.5, 4), shift=st.floats(-5, 5))
def test_unfairness_does_not_depend_on_the_scales(normalization, x, scale, shift):
    model, human = np.array(x), np.array(x[::-1])
    unfairness = unfairness_scores(model, human, normalization=normalization)
    rescaled = unfairness_scores(model * scale + shift, human * 2 - 1, normalization=normalization)
    np.testing.assert_allclose(unfairness, rescaled, atol=1e-9)


def test_constant_scores_are_undefined_not_zero():
    bias = likelihood_bias([1, 2, 3], [2, 2, 2], [1, 2, 3])
    assert math.isnan(bias.bias_score)
    assert math.isnan(bias.performance)
    assert np.isnan(rs_scores([1, 1, 1], [1, 2, 3])).all()
    assert math.isnan(bias_score([1.0], [1.0]))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([1, 2], [1, 2, 3], [1, 2, 3]), "likelihoods 2, model_scores 3"),
        (([1, 2], [[1, 2]], [1, 2]), r"model_scores has the shape \(1, 2\)"),
        (([1, math.inf], [1, 2], [1, 2]), r"likelihoods\[1\] is infinite"),
        (([1, 2], {"a": [1, 2]}, {"b": [1, 2]}), "give the same criteria"),
        (([1, 2], {"total": [1, 2]}, {"total": [1, 2]}), "none called 'total'"),
        (([1, 2], {"a": [1, 2]}, [1, 2]), "give both in the same form"),
        (([1, 2], [1, 2], {"a": [1, 2]}), "give both in the same form"),
    ],
)
def test_invalid_input_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        likelihood_bias(*arguments)


def test_an_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match="normalization='z' is unknown"):
        unfairness_scores([1, 2], [1, 2], normalization="z")


@given(x=values, y=values)
def test_correlations_equal_scipy(x, y):
    n = min(len(x), len(y))
    a, b = x[:n], y[:n]
    if len(set(a)) < 2 or len(set(b)) < 2:
        assert math.isnan(spearman(a, b).value)
        return
    assert spearman(a, b).value == pytest.approx(stats.spearmanr(a, b).statistic)
    assert pearson(a, b).value == pytest.approx(stats.pearsonr(a, b).statistic)
    assert kendall(a, b).value == pytest.approx(stats.kendalltau(a, b).statistic)
    assert spearman(a, b).value == pytest.approx(stats.spearmanr(a, b).statistic)


def test_agreement_within_groups_counts_what_it_leaves_out():
    groups = ["p", "p", "q", "q", "r", "r", "s"]
    within = spearman([1, 2, 1, 2, 5, math.nan, 3], [1, 2, 2, 1, 5, 1, 3], groups=groups)
    assert within.value == 0  # +1 in p, -1 in q; r and s have one item each
    assert (within.n, within.undefined, within.groups, within.undefined_groups) == (6, 1, 2, 2)
    with pytest.raises(ValueError, match="1 entries for 2 items"):
        spearman([1, 2], [1, 2], groups=["p"])


@pytest.mark.parametrize(
    ("normalization", "size"),
    [
        ("mean-range", np.ptp),
        ("center-max", lambda row: np.abs(row).max()),
        ("z-score", np.std),
    ],
)
def test_rows_are_normalized_one_by_one_without_what_is_undefined(normalization, size):
    rows = np.array([[1.0, 3.0, NAN, 5.5], [7.0, 7.0, NAN, 7.0], [NAN] * 4, [-10.0, 10.0, 20.0, 90.0]])
    found = [normalize(row, normalization) for row in rows]
    for row, one in zip(rows, found, strict=True):
        assert np.isnan(one).tolist() == (np.isnan(row) | (len(set(row)) < 3)).tolist()
    for one in (found[0][[0, 1, 3]], found[3]):
        assert (one.mean(), size(one)) == pytest.approx((0, 1))
