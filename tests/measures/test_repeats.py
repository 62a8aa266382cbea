"""The same input twice: a judge's noise by hand, by the analysis of variance, and in simulations of known shares."""

from functools import partial

import numpy as np
import pytest

from evalbias.evaluation import Number
from evalbias.measures import Draws, estimate, estimate_coefficient, repeats
from evalbias.measures.repeats import counted_noise_share, counted_steadiness, rating_moments, sample_moments

DRAWS = Draws(seed=0, resamples=400, swaps=0)


def of_all(statistic, *columns):
    return statistic(np.ones((1, len(columns[0]))), *columns)[0]


def test_the_moments_are_those_of_the_analysis_of_variance():
    samples = np.random.default_rng(3).normal(size=(12, 1)) + np.random.default_rng(4).normal(size=(12, 5))
    between = 5 * samples.mean(axis=1).var(ddof=1)
    within = samples.var(axis=1, ddof=1).mean()
    moments = sample_moments(samples)
    assert of_all(counted_steadiness, moments) == pytest.approx((between - within) / (between + 4 * within))  # ICC(1,1)
    assert of_all(counted_noise_share, moments) == pytest.approx(within / between)  # 1 - ICC(1,k)
    assert of_all(repeats.counted_noise, moments) == pytest.approx(np.sqrt(within))
    np.testing.assert_allclose(sample_moments(samples + 1e6)[:, 1:], moments[:, 1:], rtol=1e-6)


def test_scores_that_are_missing_are_left_out_of_their_item():
    holes = np.array([[1.0, 3, np.nan, np.nan], [2, 2, 2, 5], [4, np.nan, np.nan, np.nan], [np.nan] * 4])
    np.testing.assert_allclose(sample_moments(holes)[:2], [[2, 2, 1 / 2], [11 / 4, 9 / 4, 1 / 4]])
    assert np.isnan(sample_moments(holes)[2:]).all()
    np.testing.assert_allclose(repeats.flip_shares(holes), [1, 3 / 6, np.nan, np.nan])
    with pytest.raises(ValueError, match="samples has the shape"):
        sample_moments([1.0, 2.0])


def draw(rng, n, s, r, *, noise, raters, rho):
    """Scores and ratings whose opinions have the variance 1 and 9, and correlate rho; raters differ in strictness."""
    quality, other = rng.normal(size=(2, n))
    opinion = rho * quality + np.sqrt(1 - rho**2) * other
    scores = 7 + 3 * (opinion[:, None] + np.sqrt(noise) * rng.normal(size=(n, s)))
    return scores, quality[:, None] + np.sqrt(raters) * rng.normal(size=(n, r)) + 2 * rng.normal(size=r)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s", "r", "noise", "raters", "rho"), [
    (100, 2, 2, 1.0, 1.0, 0.8), (100, 5, 3, 0.3, 0.5, 0.5), (200, 3, 2, 0.5, 1.0, 1.0), (60, 4, 3, 0.25, 0.3, 0.9)
])  # fmt: skip
def test_known_shares_are_found_with_their_intervals(n, s, r, noise, raters, rho):
    rng, runs = np.random.default_rng(n + s), 60
    total = raters + noise + 2 * (1 - rho)
    truth = [raters / total, noise / total, 2 * (1 - rho) / total, 1 / (1 + noise), noise / s / (1 + noise / s)]
    found = []
    for _ in range(runs):
        scores, ratings = draw(rng, n, s, r, noise=noise, raters=raters, rho=rho)
        judge, people = sample_moments(scores), rating_moments(ratings)
        parts = [repeats.estimate_disagreement(judge, people, part=part, draws=DRAWS) for part in repeats.PARTS]
        steady = estimate_coefficient(counted_steadiness, judge, draws=DRAWS)
        found.append([*parts, steady, repeats.estimate_part(counted_noise_share, judge, draws=DRAWS)])
        assert np.abs(of_all(repeats.counted_shares, judge, people)).sum() == pytest.approx(1)
    ends = ("value", "low", "high")
    values, low, high = (np.array([[getattr(one, end) for one in row] for row in found]) for end in ends)
    np.testing.assert_allclose(values.mean(axis=0), truth, atol=0.03)
    covered = ((low <= truth) & (truth <= high)).mean(axis=0)
    assert covered.min() >= 0.87  # of 60 intervals of 95 %, at most 7 miss with probability .99
    assert ((low >= 0) & (high <= 1) & (low <= values) & (values <= high)).all()


def test_the_scores_that_a_mean_needs_make_its_noise_a_tenth():
    rng, shape = np.random.default_rng(9), {"noise": 1.0, "raters": 1.0, "rho": 0.5}
    two, nine = (sample_moments(draw(rng, 4000, s, 2, **shape)[0]) for s in (2, 9))
    assert of_all(counted_steadiness, two) == pytest.approx(0.5, abs=0.03)
    assert of_all(repeats.counted_needed, two) == pytest.approx(9, abs=0.9)
    assert of_all(repeats.counted_needed, nine) == pytest.approx(9, abs=0.4)
    assert of_all(counted_noise_share, nine) == pytest.approx(0.1, abs=0.005)
    apart = sample_moments(np.tile([1.0, 2.0], (20, 1)))  # no item differs from another
    assert np.isnan(of_all(repeats.counted_needed, apart))


def test_one_rating_of_known_reliability_has_the_shares_of_several():
    scores, ratings = draw(np.random.default_rng(1), 4000, 3, 2, noise=0.5, raters=1.0, rho=0.7)
    judge = sample_moments(scores)
    two = of_all(repeats.counted_shares, judge, rating_moments(ratings))
    one = of_all(repeats.counted_shares, judge, rating_moments(ratings[:, :1], reliability=0.5))
    np.testing.assert_allclose(one, two, atol=0.04)
    np.testing.assert_allclose(two, np.array([1, 0.5, 0.6]) / 2.1, atol=0.03)


def test_what_the_data_do_not_tell_is_undefined_with_its_reason():
    rng = np.random.default_rng(2)
    scores, ratings = draw(rng, 60, 3, 2, noise=0.5, raters=0.5, rho=0.8)
    judge, people = sample_moments(scores), rating_moments(ratings)
    cases = {
        repeats.NO_RATINGS: (judge, rating_moments(ratings[:, :1])),
        repeats.NO_REPEATS: (sample_moments(scores[:, :1]), people),
        repeats.UNSHARED: (judge, rating_moments(rng.normal(size=(60, 2)))),
        repeats.UNSTEADY: (sample_moments(rng.normal(size=(60, 3))), people),
    }
    for reason, columns in cases.items():
        found = repeats.estimate_disagreement(*columns, part="raters", draws=DRAWS)
        assert np.isnan([found.value, found.low, found.high]).all()
        assert found.reason == reason
    constant = estimate_coefficient(counted_steadiness, sample_moments(np.full((30, 2), 3.1)), draws=DRAWS)
    assert np.isnan(constant.value)


def test_a_judge_without_noise_has_an_interval_that_is_no_point():
    scores, ratings = draw(np.random.default_rng(5), 80, 1, 2, noise=0.0, raters=0.5, rho=0.8)
    judge, people = sample_moments(np.repeat(scores, 3, axis=1)), rating_moments(ratings)
    for found in (
        repeats.estimate_disagreement(judge, people, part="judge_noise", draws=DRAWS),
        repeats.estimate_part(counted_noise_share, judge, draws=DRAWS),
    ):
        assert (found.value, found.low) == (0, 0)
        assert 0.02 < found.high < 0.06


def test_a_change_between_two_judges_is_the_difference_of_their_shares():
    scores, ratings = draw(np.random.default_rng(6), 200, 2, 2, noise=1.0, raters=0.5, rho=0.8)
    people = rating_moments(ratings)
    quiet, _ = draw(np.random.default_rng(7), 200, 6, 2, noise=0.1, raters=1, rho=1)
    noisy, calm = sample_moments(scores), sample_moments(quiet)
    for estimator, given in (
        (partial(repeats.estimate_part, counted_noise_share), ()),
        (partial(estimate_coefficient, counted_steadiness), ()),
        (partial(estimate, repeats.counted_needed), ()),
        (partial(repeats.estimate_disagreement, part="judge_noise"), (people,)),
    ):
        before, after = (Number("x", "x", one, estimator, columns=given, tested=False) for one in (noisy, calm))
        change = after.change(noisy, seed=0, n_resamples=200, swaps=0)
        assert change.value == pytest.approx(after.value() - before.value())
        assert change.low < change.value < change.high


def test_the_items_to_discuss_are_those_that_differ_most():
    scores, ratings = draw(np.random.default_rng(8), 50, 4, 2, noise=0.1, raters=0.05, rho=1.0)
    ratings[7, 0] += 3  # two raters disagree
    scores[11] -= 12  # the judge disagrees with people
    spread, distance = repeats.item_differences(sample_moments(scores), rating_moments(ratings)).T
    assert spread.argmax() == 7
    assert np.abs(distance).argmax() == 11
    assert distance[11] == pytest.approx(-4, abs=1.5)  # in people's points, of which one is three of the judge's
