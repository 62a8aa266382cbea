"""Raters whose points are worth different amounts: what is made up for, and when there is nothing to make up for."""

import numpy as np
import pytest
from scipy.optimize import minimize

from evalbias.measures.ratings import deviations, pool, scale_correction


def panel(scales, n, *, seed, noise=0.7):
    """Return quality (n,) and ratings (n, r) of a panel whose raters move so many points for one of quality."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    return quality, 2.0 + np.asarray(scales) * quality[:, None] + noise * rng.normal(size=(n, len(scales)))


def correction(ratings):
    return scale_correction(deviations(ratings))


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


def test_three_raters_without_noise_by_hand():
    # l = 1, 2, 3: the products of two have the mean (2 + 3 + 6) / 3, the squared mean is 4
    quality = np.tile([-1.0, 0.0, 1.0], 4000)
    assert correction(quality[:, None] * [1.0, 2.0, 3.0]) == pytest.approx(4 / (11 / 3), rel=2e-3)


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


def test_two_raters_and_raters_without_agreement_are_not_corrected():
    assert correction(panel((0.6, 1.4), 500, seed=0)[1]) == pytest.approx(1.0, abs=1e-12)
    assert correction(panel((1, -1, 0), 500, seed=0)[1]) == 1.0


def test_raters_who_change_from_item_to_item_need_no_correction():
    _, ratings = panel(np.linspace(0.3, 1.7, 40), 20_000, seed=0)
    kept = np.random.default_rng(1).random(ratings.shape).argsort(axis=1) < 3
    assert correction(np.where(kept, ratings, np.nan)) == pytest.approx(1.0, abs=0.01)
    # who rated what says nothing else: with gaps at random, a fixed panel is corrected as without
    _, fixed = panel((0.5, 1, 1.5), 20_000, seed=2)
    some = np.where(np.random.default_rng(3).random(20_000) < 0.5, np.nan, fixed[:, 2])
    partly = np.column_stack([fixed[:, :2], some])
    mean, product = (1 + 0.75) / 2, (11 / 12 + 0.5) / 2  # of l_j and of l_j l_k: half of the items have two raters
    assert correction(partly) == pytest.approx(mean**2 / product, rel=0.01)


def test_the_product_is_the_square_of_the_mean_rating_without_noise():
    quality, ratings = panel((0.5, 1, 1.5), 20_000, seed=0)
    rated = pool(ratings)
    assert rated.product.mean() == pytest.approx(quality.var(), rel=0.03)
    assert rated.reliability == pytest.approx(1 / (1 + 0.49 / 3), rel=0.02)
    assert rated.mean.mean() == pytest.approx(0.0, abs=1e-12)
