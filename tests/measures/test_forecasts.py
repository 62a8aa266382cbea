"""Forecasts of what several people say: skills by hand, and what chance shows."""

import numpy as np
import pytest

from evalbias.measures import estimate, forecasts
from evalbias.measures.forecasts import counted_calibration_error
from evalbias.measures.resample import Draws

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


def test_the_interval_of_the_skill_covers_it():
    p, y = world(100_000, alike=0.3, seed=99)
    truth = forecasts.counted_brier_skill(np.ones((1, len(p))), p, y.mean(axis=1))[0]
    covered = 0
    for seed in range(100):
        p, y = world(150, alike=0.3, seed=seed)
        draws = Draws(resamples=400, swaps=0)
        found = estimate(forecasts.counted_brier_skill, p, y.mean(axis=1), draws=draws)
        covered += found.low <= truth <= found.high
    assert 88 <= covered <= 99
