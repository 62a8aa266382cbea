"""Corrected means and rates: by hand, by slow definitions, and how often their intervals hold the truth."""

import math
from dataclasses import replace

import numpy as np
import pandas
import pytest
from scipy import optimize, stats

from evalbias.evaluation import Number
from evalbias.measures import corrected_mean, corrected_rate, estimate_share
from evalbias.measures.corrections import estimate_corrected
from evalbias.measures.resample import ALIKE

NAN = math.nan
JUDGE, HUMAN, REST = [2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 4.0, 4.0], [4.0, 4.0, 5.0, 5.0, 5.0, 4.0]


def variance(weight, judge, human, rest):
    """Variance of mean(h) + weight (mean_rest - mean_labeled), with m centered on its mean over both samples."""
    center = np.mean([*judge, *rest])
    labeled = np.subtract(human, np.mean(human)) - weight * np.subtract(judge, center)
    return (labeled**2).sum() / len(human) ** 2 + weight**2 * (np.subtract(rest, center) ** 2).sum() / len(rest) ** 2


def test_the_weight_minimizes_the_variance():
    found = corrected_mean(JUDGE, HUMAN, REST)
    best = optimize.minimize_scalar(variance, args=(JUDGE, HUMAN, REST), tol=1e-12)
    # around 4.1 the squares of m sum up to 6.44 and 2.46: (5.5 / 16) / (6.44 / 16 + 2.46 / 36) = 165 / 226
    assert best.x == pytest.approx(165 / 226)
    assert found.value == pytest.approx(2.75 + 165 / 226 * (4.5 - 3.5))
    half = stats.t.ppf(0.975, 2) * math.sqrt(4 / 2 * best.fun)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))
    assert found.units == 4


def test_the_scale_of_the_judge_does_not_matter():
    one = corrected_mean(JUDGE, HUMAN, REST)
    for unit in (-7, 0.01):
        other = corrected_mean(100 + unit * np.array(JUDGE), HUMAN, 100 + unit * np.array(REST))
        assert (other.value, other.low, other.high) == pytest.approx((one.value, one.low, one.high))


@pytest.mark.parametrize(("judge", "rest"), [([3.0] * 4, [3.0] * 5), (JUDGE, []), (JUDGE, [NAN])])
def test_without_help_from_the_judge_the_labels_stand_alone(judge, rest):
    found = corrected_mean(judge, HUMAN, rest)
    alone = stats.t.interval(0.95, 3, loc=2.75, scale=stats.sem(HUMAN))
    assert (found.low, found.high) == pytest.approx(alone)
    assert found.value == 2.75


def test_the_judge_moves_the_mean_of_three_labels_and_not_of_two():
    judge, human, rest = [1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [2.0, 4.0]
    # around 2.4 the squares of m sum up to 2.48 and 2.72: (2 / 9) / (2.48 / 9 + 2.72 / 4) = 50 / 215
    assert corrected_mean(judge, human, rest).value == pytest.approx(7 / 3 + 50 / 215 * (3 - 2))
    assert corrected_mean(judge[:2], human[:2], rest).value == 2.0


def test_undefined_items_are_left_out():
    found = corrected_mean([*JUDGE, NAN, 3.0], [*HUMAN, 2.0, NAN], [*REST, NAN])
    assert found == replace(corrected_mean(JUDGE, HUMAN, REST), undefined=3)
    single = corrected_mean([1.0], [1.0], REST)
    assert math.isnan(single.low)
    assert (single.n, single.units) == (7, 1)


def test_outputs_of_one_input_count_together():
    repeated = corrected_mean(
        np.repeat(JUDGE, 3),
        np.repeat(HUMAN, 3),
        np.repeat(REST, 3),
        labeled_clusters=np.repeat(["a", "b", "c", "d"], 3).tolist(),
        unlabeled_clusters=np.repeat(list("efghij"), 3).tolist(),
    )
    alone = corrected_mean(JUDGE, HUMAN, REST)
    assert (repeated.value, repeated.low, repeated.high) == (alone.value, alone.low, alone.high)
    assert (repeated.n, repeated.units) == (3 * alone.n, alone.units)
    shared = corrected_mean(JUDGE, HUMAN, JUDGE, labeled_clusters=list("abcd"), unlabeled_clusters=list("abcd"))
    # the same inputs on both sides: their difference of judge means is known to be 0, so it moves nothing
    assert (shared.low, shared.high) == pytest.approx(stats.t.interval(0.95, 3, loc=2.75, scale=stats.sem(HUMAN)))
    with pytest.raises(ValueError, match="labeled_clusters has 3 entries for 4 items"):
        corrected_mean(JUDGE, HUMAN, REST, labeled_clusters=list("abc"))


def counts(true_positive, false_negative, false_positive, true_negative):
    judge = [1] * true_positive + [0] * false_negative + [1] * false_positive + [0] * true_negative
    return judge, [1] * (true_positive + false_negative) + [0] * (false_positive + true_negative)


def test_a_rate_by_hand():
    # sensitivity 9 / 10, specificity 8 / 10, 60 of 100 called positive: (.6 + .8 - 1) / (.9 + .8 - 1) = 4 / 7
    found = corrected_rate(*counts(9, 1, 2, 8), [1] * 60 + [0] * 40)
    assert found.value == pytest.approx(4 / 7)
    # delta method by numerical derivatives, at the rates with pseudo-counts
    t = stats.t.ppf(0.975, 19)  # 20 labels
    rates = np.array([(60 + t**2 / 2) / (100 + t**2), 10 / 12, 9 / 12])
    sizes = np.array([100 + t**2, 12, 12])

    def rogan_gladen(r):
        return (r[0] + r[2] - 1) / (r[1] + r[2] - 1)

    gradient = optimize.approx_fprime(rates, rogan_gladen, 1e-7)
    half = t * math.sqrt((gradient**2 * rates * (1 - rates) / sizes).sum())
    assert (found.low, found.high) == pytest.approx(
        (rogan_gladen(rates) - half, min(1, rogan_gladen(rates) + half)), abs=1e-5
    )


def test_a_rate_that_the_judge_cannot_tell_is_undefined():
    assert math.isnan(corrected_rate(*counts(5, 5, 5, 5), [1, 0]).value)  # it tells nothing
    assert math.isnan(corrected_rate(*counts(2, 8, 9, 1), [1, 0]).value)  # it tells the opposite
    assert math.isnan(corrected_rate(*counts(9, 1, 0, 1), [1, 0]).value)  # one label of a kind
    judge, human = counts(9, 1, 2, 8)
    assert corrected_rate(judge, human, [NAN]) == estimate_share(human)
    assert corrected_rate(*counts(10, 0, 0, 10), [1] * 10).high == 1.0
    with pytest.raises(ValueError, match=r"labeled_judge\[1\] is 0.5: a verdict is 1, 0, or NaN"):
        corrected_rate([1, 0.5], [1, 0], [1])


def weighted_rate(weights, kind, verdict):
    """Rogan and Gladen's rate of weighted items: kind 0 unlabeled, 1 people say yes, 2 people say no."""
    p, yes, no = (np.average(verdict[kind == k], weights=weights[kind == k]) for k in range(3))
    return (p - no) / (yes - no)


def test_pairs_of_one_input_count_together_in_a_rate():
    rng = np.random.default_rng(3)
    human, judge = (rng.random(24) < 0.5).astype(float), (rng.random(24) < 0.5).astype(float)
    judge[:20] = human[:20]
    rest = (rng.random(40) < 0.6).astype(float)
    labeled, unlabeled = [i // 4 for i in range(24)], [i // 4 + 3 for i in range(40)]  # three inputs are in both
    found = corrected_rate(judge, human, rest, labeled_clusters=labeled, unlabeled_clusters=unlabeled)
    t = stats.t.ppf(0.975, 5)  # six labeled inputs
    # a pseudo-count is an item of its own whose weight may be a fraction
    kind = np.concatenate([np.zeros(40), np.where(human == 1, 1, 2), np.repeat([0, 1, 2], 2)])
    verdict = np.concatenate([rest, judge, np.tile([0.0, 1.0], 3)])
    weights = np.concatenate([np.ones(64), [t**2 / 2] * 2, np.ones(4)])
    effects = optimize.approx_fprime(weights, weighted_rate, 1e-7, kind, verdict)
    inputs = np.array(unlabeled + labeled)
    variance = sum(effects[:64][inputs == i].sum() ** 2 for i in set(inputs)) + (effects**2 * weights)[64:].sum()
    center, half = weighted_rate(weights, kind, verdict), t * math.sqrt(variance)
    assert (found.low, found.high) == pytest.approx((max(0, center - half), min(1, center + half)), abs=1e-5)
    assert 0 < found.low < found.high < 1
    assert found.units == 6
    alone = corrected_rate(judge, human, rest)
    assert alone.value == found.value
    own = {"labeled_clusters": list(range(24)), "unlabeled_clusters": list(range(24, 64))}
    assert corrected_rate(judge, human, rest, **own) == alone
    one = corrected_rate(*counts(3, 1, 1, 3), rest, labeled_clusters=list("aaaabbcc"))  # people's yes of one input only
    assert math.isnan(one.value)
    grouped = corrected_rate(judge, human, [], labeled_clusters=labeled)
    assert grouped == estimate_share(human, clusters=labeled)


def test_equal_labels_whose_mean_is_rounded_are_no_certainty():
    found = corrected_mean([1, 2, 3], [0.1, 0.1, 0.1], [1, 2, 3])  # numpy's mean of three .1 is not .1
    assert np.isnan([found.low, found.high]).all()
    assert (found.reason, found.n, found.undefined) == (ALIKE, 6, 0)


@pytest.mark.parametrize("estimator", [corrected_mean, corrected_rate])
def test_inputs_belong_to_items_by_place_whatever_the_index_of_a_series(estimator):
    judge, human, rest = [1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 0, 1], [1, 0, 1]
    inputs = ["a", "a", "b", "c", "c", "d"]
    by_place = estimator(judge, human, rest, labeled_clusters=inputs)
    for index in ([5, 0, 4, 1, 3, 2], [10, 11, 12, 13, 14, 15]):  # of sorted and of filtered rows
        shuffled = pandas.Series(inputs, index=index)
        assert estimator(judge, human, rest, labeled_clusters=shuffled) == by_place


def test_the_corrected_mean_is_the_center_of_its_interval_where_items_share_an_input():
    """Twelve inputs with eight outputs each, whose judge errs alike on the outputs of an input; four are labeled."""
    rng = np.random.default_rng(137)
    quality, shared = rng.normal(3, 0.5, size=(12, 8)), rng.normal(0, 1.5, size=(12, 1))
    scores, clusters = (quality + shared + rng.normal(0, 0.2, size=(12, 8))).ravel(), np.repeat(np.arange(12), 8)
    people = np.where(np.arange(96) % 8 < 4, quality.ravel(), NAN)
    number = Number("corrected", "corrected", scores, estimate_corrected, given=(people,))
    found = number.estimate(clusters.tolist(), seed=0)
    assert found.value == pytest.approx((found.low + found.high) / 2)
    assert found.value == number.value(clusters.tolist())
    assert abs(found.value - number.value()) > 0.01  # as if every item had its own input, the weight is another
