"""Use of the scale: by hand, against least squares on the quality itself, and on simulated judges."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from planted import by_hand, compared, numbers, scored
from scipy import stats

from evalbias.evaluation import compare_judges, measure
from evalbias.evaluation.biases import ScaleUse
from evalbias.evaluation.estimates import worsened
from evalbias.evaluation.findings import findings_of
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS
from evalbias.measures import estimate, scale_use
from evalbias.measures.scale_use import estimate_top_two, quality_slope, slope_of_shifted

NAN = math.nan


def judge(scores, human, scale=(1, 5), **covariates):
    return by_hand(scores, scale=scale, **{HUMAN_SCORES: human, **covariates})


def test_levels_by_hand():
    judged = judge([3.1, 2.9, 4.4, 1.2, 3.0, NAN], [1, 2, 3, 4, 5, 5])
    found = measure(ScaleUse(), judged, seed=0, n_resamples=50)
    # nearest levels 3, 3, 4, 1, 3: the two most frequent are 3 of 5 and 1 of 5
    assert found["top_two_share"].value == pytest.approx(4 / 5)
    assert found["spread_ratio"].value == pytest.approx(np.std([3.1, 2.9, 4.4, 1.2, 3.0]) / np.std([1, 2, 3, 4, 5]))
    assert (found["top_two_share"].n, found["top_two_share"].undefined) == (5, 1)
    assert ScaleUse().number("top_two_share", judged).name == "top_two_share"
    assert "top_two_share" in numbers(ScaleUse(), replace(judged, scale=(1, 20)))
    assert "top_two_share" not in numbers(ScaleUse(), replace(judged, scale=(0, 20)))  # 21 levels
    assert "top_two_share" not in numbers(ScaleUse(), replace(judged, scale=(0.5, 5)))


def test_a_judge_without_scores_is_not_taken_for_ratings_on_another_scale():
    ratings = np.array([[1.0, 2.0], [3.0, 3.0], [5.0, 4.0]])
    judged = judge([NAN, NAN, NAN], ratings.mean(axis=1), **{RATINGS: ratings})
    assert ScaleUse().lacks(judged) == "scores by the judge (all are undefined)"


def test_statistics_at_their_ends():
    places = np.array([[0.0, 1.0, 2.0, 3.0], [2.0, 2.0, 2.0, 2.0]])
    assert [estimate_top_two(row, levels=4).value for row in places] == pytest.approx([0.5, 1])
    spread = partial(estimate, scale_use.counted_spread)
    assert spread([1.0, 2.0, 3.0], [0.0, 5.0, 10.0]).value == pytest.approx(0.2)
    assert math.isnan(spread([1.0, 2.0, 3.0], np.ones(3)).value)
    assert math.isnan(spread(np.arange(7.0), np.full(7, 0.1)).value)  # the mean is not .1
    assert scale_use.nearest_levels([1.5, NAN, 9.0], [1, 2]) == pytest.approx([0, NAN, 1], nan_ok=True)
    assert math.isnan(estimate_top_two(np.full(3, NAN), levels=5).low)
    same = estimate_top_two(np.ones(20), levels=5)  # one level for all items is not certain to be the only one
    assert (same.low < 0.85, same.high) == (True, 1)


def slowly(scores, ratings):
    """The slope as the ratio of covariances over all ordered pairs of two ratings."""
    one, other = np.concatenate([ratings, ratings[:, ::-1]]).T
    y = np.tile(scores, 2)
    return ((y - y.mean()) * (other - other.mean())).sum() / ((one - one.mean()) * (other - other.mean())).sum()


def test_the_slope_by_its_slow_definition():
    judged = scored(np.random.default_rng(0), 200)
    ratings = judged.covariates[RATINGS]
    ratings = ratings - ratings.mean(axis=0)  # no rater is stricter
    found = quality_slope(judged.answers, ratings)
    assert found.value == pytest.approx(slowly(judged.answers, ratings))
    jackknife = ((np.delete(judged.answers, i), np.delete(ratings, i, axis=0)) for i in range(200))
    one_left_out = [quality_slope(*rest).value for rest in jackknife]
    error = math.sqrt(199 * np.var(one_left_out))
    assert (found.value - found.low) / 1.972 == pytest.approx(error, rel=0.02)
    assert (found.high - found.value) / 1.972 == pytest.approx(error, rel=0.02)
    pairs = np.repeat(np.arange(100), 2).tolist()
    assert quality_slope(judged.answers, ratings, clusters=pairs).units == 100


def both_covariances(scores, ratings):
    """Of score and mean rating, and of two ratings."""
    mean = ratings.mean(axis=1)
    with_score = (scores * mean).mean() - scores.mean() * mean.mean()
    return np.array([with_score, ratings.prod(axis=1).mean() - mean.mean() ** 2])


def test_the_interval_of_weak_ratings_is_fiellers():
    found, undefined = [], 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        quality = np.sqrt(0.2) * rng.normal(size=60)
        ratings, scores = quality[:, None] + rng.normal(size=(60, 2)), quality + rng.normal(size=60)
        free = ratings - ratings.mean(axis=0)  # no rater is stricter

        whole = both_covariances(scores, free)
        left_out = np.array([both_covariances(np.delete(scores, i), np.delete(free, i, axis=0)) for i in range(60)])
        error = 59 * np.cov(left_out.T, bias=True)
        one = quality_slope(scores, free)
        undefined += one.reason == scale_use.TOO_WEAK
        if one.reason == scale_use.TOO_WEAK:
            assert (one.n, one.undefined, one.units) == (60, 0, 60)
        if whole[1] ** 2 < 10 * error[1, 1] and not np.isnan(one.low):  # the test that rejects beyond the ends
            found += [abs(whole @ (1, -x)) / np.sqrt((1, -x) @ error @ (1, -x)) for x in (one.low, one.high)]
    assert undefined > 3
    assert len(found) > 10
    assert found == pytest.approx([stats.t.ppf(0.975, 59)] * len(found), rel=1e-6)


def test_two_judges_are_compared():
    before = scored(np.random.default_rng(3), 300)
    after = replace(before, answers=3 + 0.5 * (before.answers - 3))
    sides = [measure(ScaleUse(), one, seed=0, n_resamples=20) for one in (before, after)]
    change = compare_judges(*sides, n_resamples=20, n_intervals=20, seed=0)["slope"]
    assert change.difference.value == pytest.approx(sides[1]["slope"].value - sides[0]["slope"].value)
    assert change.difference.value == pytest.approx(-0.5 * sides[0]["slope"].value)
    assert change.difference.high < 0
    assert change.p_value < 1e-6
    assert worsened({"scale_use": compare_judges(*sides, n_resamples=20, n_intervals=20, seed=0)})
    assert not worsened({"scale_use": compare_judges(*sides[::-1], n_resamples=20, n_intervals=20, seed=0)})
    steeper = replace(before, answers=3 + 1.5 * (before.answers - 3))  # a slope above 1 is not of this bias
    sides[1] = measure(ScaleUse(), steeper, seed=0, n_resamples=20)
    assert sides[1]["slope"].value > 1.2
    assert not worsened({"scale_use": compare_judges(*sides, n_resamples=20, n_intervals=20, seed=0)})


def test_scores_that_follow_the_ratings_exactly_and_equal_judges():
    quality = np.random.default_rng(0).normal(size=40)
    ratings = np.column_stack([quality, quality])
    for scores in (quality, 0.5 * quality):
        found = quality_slope(scores, ratings)
        assert np.isnan([found.low, found.high, found.p_value]).all()
        assert found.reason.startswith("the scores follow people's ratings exactly")
    never = quality_slope(np.full(40, 3.0), ratings)
    assert [never.value, never.low, never.high, never.p_value] == pytest.approx([0, 0, 0, 0])
    same = quality_slope(quality, ratings, before=quality)
    assert (same.low, same.high, same.p_value) == (0, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.5, 2.0])  # ratings that hold the slope well, and weakly
def test_equal_judges_seldom_differ_in_slope_and_p_goes_with_the_interval(noise):
    p_values = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=60)
        ratings = quality[:, None] + noise * rng.normal(size=(60, 2))
        judges = quality[:, None] + rng.normal(size=(60, 2))
        found = quality_slope(judges[:, 1], ratings, before=judges[:, 0])
        assert math.isnan(found.p_value) == math.isnan(found.low)
        assert math.isnan(found.low) or (found.p_value < 0.05) == (not found.low <= 0 <= found.high)
        p_values.append(found.p_value)
    known = np.array(p_values)[~np.isnan(p_values)]
    assert len(known) > 20
    assert np.mean(known < 0.05) < 0.1


def test_ratings_that_do_not_agree_have_no_slope():
    rng = np.random.default_rng(2)
    nonsense = np.column_stack([np.arange(10.0), -np.arange(10.0)])
    found = quality_slope(rng.normal(size=10), nonsense)
    assert math.isnan(found.value)
    assert "whose ratings agree" in found.reason
    single = quality_slope([1.0, 2.0], [[1.0, NAN], [1.0, 2.0]])
    assert (single.n, single.undefined) == (1, 1)  # an item with one rating does not count


def test_the_numbers_that_a_scale_allows():
    human = np.random.default_rng(0).integers(1, 6, 40).astype(float)
    ratings = {RATINGS: np.stack([human, human], axis=1)}
    levels, percent = ["top_two_share"], judge(20 * human, human, scale=(0, 100), **ratings)
    assert list(numbers(ScaleUse(), judge(human, 20 * human))) == levels
    assert list(numbers(ScaleUse(), percent)) == []  # 1 to 5 reach over a 25th of 0 to 100
    fine = judge(20 * human, 19 * human, scale=(0, 100))
    assert list(numbers(ScaleUse(), fine)) == ["spread_ratio"]
    crowded = judge(2.5 + human / 4, human, **ratings)
    assert list(numbers(ScaleUse(), crowded)) == ["slope", "spread_ratio", *levels]
    assert measure(ScaleUse(), crowded, seed=0)["slope"].value == pytest.approx(0.25)
    compares = compared(np.random.default_rng(0), 5)
    for other in (percent, replace(fine, scale=None), replace(crowded, scale=None), compares):
        assert not ScaleUse().applies(other)  # without a scale, it may score on one of its own
    assert ScaleUse().applies(fine)


def test_the_test_allows_for_the_ends_of_a_scale_and_the_interval_does_not():
    judged = scored(np.random.default_rng(4), 568)
    slope, found = quality_slope(judged.answers, judged.covariates[RATINGS]).value, {}
    for wanted in (0.86, 0.6, 1.5):  # the scores are stretched until it is their slope
        stretched = replace(judged, answers=3 + wanted / slope * (judged.answers - 3), scale=(0, 6))
        found[wanted] = measure(ScaleUse(), stretched, seed=0, n_resamples=20)
    near, far, steep = (one["slope"] for one in found.values())
    assert (near.value, far.value) == pytest.approx((0.86, 0.6))
    assert near.high < 1
    assert near.p_value > 0.05
    error = (near.high - near.value) / stats.t.ppf(0.975, near.units - 1)
    assert near.p_value == pytest.approx(2 * stats.t.sf((0.9 - near.value) / error, near.units - 1))
    assert far.p_value < 1e-6
    assert steep.low > 1.3
    assert steep.p_value == 1
    (finding,) = findings_of({"scale_use": found[1.5]}, stretched, {})  # a slope above 1 is no sign of crowding
    assert (finding.status, finding.estimate.low) == ("no sign", steep.low - 1)


def test_a_useless_a_noisy_and_a_lenient_judge_do_not_crowd_their_scores(snapshot):
    rng = np.random.default_rng(6)
    judged = scored(rng, 568)
    quality = judged.covariates[HUMAN_SCORES] - 3
    useless, noise = rng.integers(1, 6, 568).astype(float), 1.3 * rng.normal(size=568)
    noisy, lenient = np.clip(np.round(3 + 0.4 * quality + noise), 1, 5), np.clip(judged.answers + 1.5, 1, 5)
    findings = []
    for answers in (useless, noisy, lenient, 4 + 0.3 * (judged.answers - 3)):  # the last is lenient and crowded
        measurement = measure(ScaleUse(), replace(judged, answers=answers), seed=0, n_resamples=200)
        findings += findings_of({"scale_use": measurement}, judged, {})
    assert [(finding.status, finding.sentence) for finding in findings] == snapshot
    assert findings[0].estimate.value == pytest.approx(-1, abs=0.2)
    noisy = findings[1]  # follows quality loosely: its spread, and not its slope, says that it does not crowd
    assert (noisy.status, noisy.estimate.name, noisy.estimate.low > -0.3) == ("no sign", "spread_ratio", True)
    assert [findings[k].estimate.high < end for k, end in ((0, 0), (2, -0.1), (3, 0))] == [True] * 3


def test_the_slope_of_a_person_as_lenient_as_the_judge():
    quality = np.random.default_rng(7).normal(size=4000)
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * np.random.default_rng(8).normal(size=(4000, 3))), 1, 5)
    assert slope_of_shifted(ratings.mean(axis=1), ratings, scale=(1, 5)) == pytest.approx(1)
    strict = ratings - [0, 0, 0]
    lenient = np.clip(strict + 1, 1, 5)
    parts = [np.cov(lenient[:, j], np.delete(ratings, j, axis=1).mean(axis=1))[0, 1] for j in range(3)]
    whole = [np.cov(ratings[:, j], np.delete(ratings, j, axis=1).mean(axis=1))[0, 1] for j in range(3)]
    found = slope_of_shifted(lenient.mean(axis=1), ratings, scale=(1, 5))
    assert found == pytest.approx(sum(parts) / sum(whole))
    assert 0.6 < found < 0.9
    ratings[:2000, 2] = NAN  # raters who differ by item
    assert slope_of_shifted(lenient.mean(axis=1), ratings, scale=(1, 5)) == pytest.approx(found, abs=0.05)


def test_the_use_of_a_scale_of_two_values_is_not_measured():
    ratings = (np.random.default_rng(9).random((60, 2)) < 0.5).astype(float)
    for scale in (None, (0, 1)):
        verdicts = judge(ratings[:, 0], ratings.mean(axis=1), scale=scale, **{RATINGS: ratings})
        assert not ScaleUse().applies(verdicts)
        assert ScaleUse().lacks(verdicts) == "scores of more than two values"
    shares = judge(0.5 * ratings[:, 0] + 0.2, ratings.mean(axis=1), scale=(0, 1), **{RATINGS: ratings})
    assert list(numbers(ScaleUse(), shares)) == ["slope", "spread_ratio"]


def test_five_inputs_are_the_fewest_for_an_interval_of_the_slope():
    rng = np.random.default_rng(0)
    quality = np.repeat([-1.0, 1.0], 15)
    inputs = np.tile(np.arange(6), 5)  # five outputs each, of either quality
    ratings = quality[:, None] + 0.1 * rng.normal(size=(30, 2))
    scores = quality + 0.1 * rng.normal(size=30)
    for n in (4, 5, 6):
        kept = inputs < n
        found = quality_slope(scores[kept], ratings[kept], clusters=inputs[kept].tolist())
        assert math.isnan(found.low) == (n < 5)
        assert (found.n, found.undefined, found.units) == (5 * n, 0, n)
