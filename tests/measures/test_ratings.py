"""Ratings: what the ends of their scales do to an effect, and raters whose points are worth different amounts."""

import numpy as np
import pytest
from planted import likelihood_effect
from scipy.integrate import trapezoid
from scipy.optimize import minimize
from scipy.special import eval_hermitenorm, factorial, ndtri

from evalbias.measures import ratings as of_ratings
from evalbias.measures.equal_quality import BENT
from evalbias.measures.ratings import curvature, curvature_of_differences, levels_of, pool, solved_correlation

N = 20_000
NORMAL = ndtri((np.arange(N) + 0.5) / N)
CHOICES = (NORMAL > 0).astype(float)
MANY = [pytest.param(*panel, marks=pytest.mark.slow) for panel in ((100, 0), (300, 0), (100, 50), (300, 150))]


def test_coefficients_are_the_integrals_that_define_them():
    values = np.repeat([1.0, 2.0, 5.0], [30, 50, 20])
    z = np.linspace(-9, 9, 200_001)
    steps = np.select([z < ndtri(0.3), z < ndtri(0.8)], [1.0, 2.0], 5.0) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    defined = [trapezoid(steps * eval_hermitenorm(k, z), z) / np.sqrt(factorial(k)) for k in range(1, 9)]
    assert of_ratings.hermite_coefficients(values)[:8] == pytest.approx(defined, abs=1e-4)
    assert of_ratings.hermite_coefficients(NORMAL)[:2] == pytest.approx([1.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("r", [0.3, 0.6])
def test_choices_by_the_arcsine_law(r):
    shared = np.arcsin(r) / (2 * np.pi)  # of two choices whose normals correlate r
    straight = curvature(NORMAL, CHOICES, shared=shared, covariance=np.sqrt(r / (2 * np.pi)))
    assert straight == pytest.approx(np.arcsin(r) / r - 1, abs=2e-3)
    assert curvature(CHOICES, CHOICES, shared=shared, covariance=shared) == pytest.approx(0.0, abs=1e-9)
    assert curvature(NORMAL, CHOICES, shared=shared, covariance=0.0) == 0.0
    less = 0.5 * r  # a judge that chooses too, and is less reliable than a rater: it bends less
    found = curvature(CHOICES, CHOICES, shared=shared, covariance=np.arcsin(less) / (2 * np.pi))
    assert found == pytest.approx(less * np.arcsin(r) / (r * np.arcsin(less)) - 1, abs=2e-3)


def test_a_correlation_outside_its_range_is_put_at_the_nearer_end():
    assert solved_correlation(lambda r: r + 1) == 0.0
    assert 0.999 < solved_correlation(lambda r: r - 2) < 1.0
    assert solved_correlation(lambda r: r - 2, -0.5, 0.5) == 0.5
    assert solved_correlation(lambda r: r + 0.25, -0.5, 0.5) == pytest.approx(-0.25)


def test_an_unbiased_judge_is_not_flagged_because_ratings_stop_at_5():
    rng, n = np.random.default_rng(0), 20_000
    quality = 4 + rng.normal(size=n)
    feature = 0.5 * quality + np.sqrt(0.75) * rng.normal(size=n)
    ratings = np.clip(np.round(quality[:, None] + 0.7 * rng.normal(size=(n, 3))), 1, 5)  # a third are 5
    found = likelihood_effect(feature, quality + 0.5 * rng.normal(size=n), ratings)
    assert found.value > 1.96 * found.standard_error  # the fault, where the ends are not allowed for
    assert found.p_value > 0.05
    assert found.low < 0
    assert found.allowance[0] <= 0 < found.allowance[1] < 0.08


def test_differences_are_said_and_not_guessed():
    rng = np.random.default_rng(0)
    quality = rng.normal(size=(200, 2))
    feature = 0.5 * quality + np.sqrt(0.75) * rng.normal(size=(200, 2))
    ratings = np.clip(np.round(4.5 + quality[:, None] + 0.7 * rng.normal(size=(200, 3, 2))), 1, 5)  # half are 5
    items = feature @ [1, -1], quality @ [1, -1] + 0.5 * rng.normal(size=200), ratings @ [1, -1]
    plain, stated = likelihood_effect(*items), likelihood_effect(*items, differences=True)
    assert plain == likelihood_effect(*items, differences=False)
    curved = curvature_of_differences(items[2].ravel(), shared=pool(items[2]).product.mean())
    assert plain.allowance[1] > 0
    assert stated.allowance[1] / plain.allowance[1] == pytest.approx(curved / BENT, rel=0.02)
    low = plain.low - stated.allowance[1] + plain.allowance[1]
    assert (stated.low, plain.high) == pytest.approx((low, stated.high))


@pytest.mark.parametrize("center", [3.0, 4.0, 4.5])
def test_the_ends_of_the_scale_are_told_from_differences(center):
    rng = np.random.default_rng(2)
    quality = rng.normal(size=(40_000, 1, 2))
    ratings = np.clip(np.round(center + quality + 0.7 * rng.normal(size=(40_000, 2, 2))), 1, 5)
    first, second = (ratings[..., 0] - ratings[..., 1]).T
    rising = np.mean([np.cov(quality[:, 0, side], ratings[:, 0, side])[0, 1] for side in (0, 1)])
    shared = np.mean([np.cov(*ratings[:, :, side].T)[0, 1] for side in (0, 1)])
    expected = shared / rising**2 - 1  # var(g) / cov(q, g)^2 - 1 for the expected rating g(q)
    found = curvature_of_differences(np.concatenate([first, second]), shared=float(np.mean(first * second)))
    assert found == pytest.approx(expected, abs=0.012)


def test_differences_are_counted_in_20_steps_at_most():
    step, counts = of_ratings._lags(np.array([0.0, 2.0, -2.0, 4.0]))
    assert (step, counts.tolist()) == (2.0, [1, 2, 1])
    step, counts = of_ratings._lags(np.array([0.03, -10.0]))
    assert (step, len(counts), counts.sum()) == (0.5, 21, 2)


def preferences(n, *, effect, seed, tied=0.7):
    """Feature, log-odds and three raters' preferences (1, 0, -1) of n pairs; a third of the preferences are 0."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(n, 2))
    feature = (0.5 * quality + np.sqrt(0.75) * rng.normal(size=(n, 2))) @ [1, -1] / np.sqrt(2)
    seen = (quality[:, None] + 0.7 * rng.normal(size=(n, 3, 2))) @ [1, -1]
    noise = np.sqrt(1 - 0.36 - effect**2 - 0.6 * effect) * rng.normal(size=n)
    scores = 0.6 * quality @ [1, -1] / np.sqrt(2) + effect * feature + noise
    return feature, scores, np.where(np.abs(seen) < tied, 0.0, np.sign(seen))


@pytest.mark.parametrize("effect", [0.0, 0.2])
def test_preferences_of_pairs_find_an_effect_as_differences_of_scores_do(effect):
    found = likelihood_effect(*preferences(2_000, effect=effect, seed=0), differences=True, mirrored=True)
    assert (found.p_value < 0.05) == (effect > 0)
    assert 0.01 < found.allowance[1] < 0.05  # that of ratings of two values is .1


def test_preferences_bend_as_their_own_distribution_says():
    r, sides = 0.6, np.repeat([1.0, -1.0], 500)  # choices: the arcsine law
    found = curvature_of_differences(sides, shared=2 * np.arcsin(r) / np.pi)
    assert found == pytest.approx(np.arcsin(r) / r - 1, abs=2e-3)
    rng = np.random.default_rng(3)
    quality = rng.normal(size=(200_000, 1))
    seen = quality + 0.7 * rng.normal(size=(200_000, 2))
    given = np.where(np.abs(seen) < 0.5, 0.0, np.sign(seen))
    shared = np.mean(given[:, 0] * given[:, 1])
    expected = shared / np.mean(quality * given) ** 2 - 1
    assert curvature_of_differences(given.ravel(), shared=shared) == pytest.approx(expected, abs=0.01)
    assert curvature_of_differences(5 * given.ravel(), shared=25 * shared) == pytest.approx(expected, abs=0.01)


def test_coins_are_worked_out_by_hand():
    coins = np.repeat([-1.0, 0.0, 1.0], [25, 50, 25])  # differences of two fair ones
    r = 0.5  # of the normals behind them: coins of one output have the covariance asin(r) / 2 pi
    for unit in (1, 3):
        found = curvature_of_differences(unit * coins, shared=unit**2 * np.arcsin(r) / np.pi)
        assert found == pytest.approx(np.arcsin(r) / r - 1, abs=2e-3)
    assert curvature_of_differences(coins, shared=0.0) == curvature_of_differences(np.zeros(4), shared=1.0) == 0.0


def panel(scales, n, *, seed, noise=0.7):
    """Return quality (n,) and ratings (n, r) of a panel whose raters move so many points for one of quality."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    return quality, 2.0 + np.asarray(scales) * quality[:, None] + noise * rng.normal(size=(n, len(scales)))


def correction(ratings):
    return of_ratings.scale_correction(levels_of(ratings)[0])


def shortfall(scales):
    """(mean l)^2 over the mean of l_j l_k, j != k."""
    scales = np.asarray(scales)
    r = len(scales)
    return scales.mean() ** 2 / ((scales.sum() ** 2 - (scales**2).sum()) / (r * (r - 1)))


@pytest.mark.parametrize("scales", [(0.5, 1, 1.5), (0.7, 1, 1.3), (0.2, 1, 1, 1.8), (0, 1, 1), (1, 1, 1), (3, 4, 5)])
def test_the_shortfall_of_a_large_panel_is_found(scales):
    _, ratings = panel(scales, 20_000, seed=0)
    assert correction(ratings) == pytest.approx(shortfall(scales), rel=0.02)
    assert correction(ratings * 10 - 7) == pytest.approx(correction(ratings), rel=1e-9)
    assert correction(ratings[:, ::-1]) == pytest.approx(correction(ratings), rel=1e-6)


def test_the_scales_are_those_of_greatest_posterior_density():
    """Another way to the same: the density of the scales is written out, and minimized without its structure."""
    _, ratings = panel((0.5, 1, 1.5), 60, seed=4)
    ratings -= ratings.mean(axis=0)
    products = ratings.T @ ratings / len(ratings)
    above = np.triu_indices(3, k=1)
    shared = products[above].mean()
    noise = np.diag(products).mean() / shared

    def objective(scales):
        misfit = products[above] / shared - np.outer(scales, scales)[above]
        return len(ratings) * (misfit**2).sum() + ((scales - 1) ** 2).sum() * (3 * noise) ** 2

    scales = minimize(objective, np.ones(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    assert correction(ratings) == pytest.approx(scales.mean() ** 2, rel=1e-5)
    assert np.ptp(scales) > 0.5


def test_two_raters_those_without_agreement_and_those_who_change_from_item_to_item_are_not_corrected():
    assert correction(panel((0.6, 1.4), 500, seed=0)[1]) == pytest.approx(1.0, abs=1e-12)
    assert correction(panel((1, -1, 0), 500, seed=0)[1]) == 1.0
    _, ratings = panel(np.linspace(0.3, 1.7, 40), 20_000, seed=0)
    kept = np.random.default_rng(1).random(ratings.shape).argsort(axis=1) < 3
    assert correction(np.where(kept, ratings, np.nan)) == pytest.approx(1.0, abs=0.01)
    # who rated what says nothing else: with gaps at random, a fixed panel is corrected as without
    _, fixed = panel((0.5, 1, 1.5), 20_000, seed=2)
    some = np.where(np.random.default_rng(3).random(20_000) < 0.5, np.nan, fixed[:, 2])
    partly = np.column_stack([fixed[:, :2], some])
    mean, product = (1 + 0.75) / 2, (11 / 12 + 0.5) / 2  # of l_j and of l_j l_k: half of the items have two raters
    assert correction(partly) == pytest.approx(mean**2 / product, rel=0.01)


@pytest.mark.parametrize(("raters", "teams"), [(2, 0), (40, 0), (40, 20), *MANY])
def test_levels_of_many_raters_leave_the_quality_that_ratings_share(raters, teams):
    """Two ratings an item, by people .7 points apart: drawn for each of 300, or in teams of two who share them out."""
    shared, rng = [], np.random.default_rng(raters)
    for _ in range(30):
        quality, ratings = NORMAL[:: N // 300][:300] / NORMAL[:: N // 300][:300].std(), np.full((300, raters), np.nan)
        places = 2 * (np.arange(300) * (raters // 2) // 300)[:, None] + [0, 1]
        if not teams:
            places = rng.random((300, raters)).argsort(axis=1)[:, :2]
        given = rng.permutation(quality)[:, None] + 0.7 * rng.normal(size=raters)[places]
        given += 0.7 * rng.normal(size=(300, 2))
        np.put_along_axis(ratings, places, given, axis=1)
        shared.append(pool(ratings).product.mean())
    within = 1 - teams / 300 if raters <= 60 else 1  # each team's own mean is taken off, if its raters rate enough
    assert np.mean(shared) == pytest.approx(within, abs=0.04)
    alone = np.where(np.eye(3, dtype=bool).repeat(9, axis=0), 1.0, np.nan)  # who rated no item beside others
    assert len(set(levels_of(alone)[2])) == 1


@pytest.mark.parametrize("share", [0.5, 1 / 12])
@pytest.mark.parametrize("top", [3.0, 4.4])  # 11 to 22 % of the ratings are the highest, or half of them and more
def test_the_scores_of_a_group_follow_from_its_ratings_where_these_end(share, top):
    rng = np.random.default_rng(0)
    group = rng.random(100_000) < share
    quality = rng.normal(size=100_000) + group
    ratings = np.clip(np.round(top + quality[:, None] + 0.7 * rng.normal(size=(100_000, 2))), 1, 5)
    scores = quality + 0.5 * rng.normal(size=100_000)  # no end, and no preference
    mean, scores = ratings.mean(axis=1) - ratings.mean(), scores - scores.mean()
    known = {"shared": np.cov(ratings.T)[0, 1], "covariance": np.mean(mean * scores)}
    apart = mean[group].mean() - mean[~group].mean()
    found = of_ratings.difference_of_group(scores, ratings.ravel(), share, apart, **known)
    assert found == pytest.approx(1.0, abs=0.02)
    if top > 4:  # in points of ratings, which end, it is less: a straight line takes it for a preference
        assert apart * known["covariance"] / known["shared"] < 0.85
    none = of_ratings.difference_of_group(scores, ratings.ravel(), share, 0.0, **known)
    assert none == pytest.approx(0.0, abs=1e-6)
