import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from evalbias.measures import quadratic_fit, score_uniformity


def test_by_hand():
    assert score_uniformity([1, 1, 1], low=1, high=5) == pytest.approx(-0.5)
    assert score_uniformity([5, 5], low=1, high=5) == pytest.approx(-0.5)
    assert score_uniformity([3, 3, math.nan], low=1, high=5) == pytest.approx(-0.25)
    assert score_uniformity([1, 5], low=1, high=5) == pytest.approx(-0.25)
    assert score_uniformity([2, 4], low=1, high=5) == pytest.approx(-0.125)
    assert score_uniformity(np.linspace(0, 1, 10_001), low=0, high=1) == pytest.approx(0, abs=1e-4)
    assert math.isnan(score_uniformity([math.nan], low=0, high=1))
    with pytest.raises(ValueError, match="must contain them"):
        score_uniformity([0.5, 7], low=1, high=5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_uniformity_equals_the_area_between_the_distribution_functions(scores):
    area, _ = quad(lambda x: abs(np.mean(np.array(scores) <= x) - x), 0, 1, limit=400, points=sorted(set(scores)))
    assert score_uniformity(scores, low=0, high=1) == pytest.approx(-area, abs=1e-6)


def test_the_fit_recovers_a_parabola():
    x = np.linspace(0.1, 0.9, 9)
    fit = quadratic_fit([*x, math.nan], [*(0.8 - 2 * (x - 0.45) ** 2), 0.3])
    assert (fit.curvature, fit.top, fit.r_squared) == pytest.approx((-2, 0.45, 1))
    assert (fit.n, fit.undefined) == (9, 1)
    assert fit(0.45) == pytest.approx(0.8)
    assert fit.linear_r_squared < 0.2
    assert math.isnan(quadratic_fit(x, x**2).top)
    assert math.isnan(quadratic_fit([0.1, 0.5, 0.5, 0.1], [1, 2, 3, 4]).curvature)
