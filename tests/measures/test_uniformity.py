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


def test_the_fit_by_hand():
    # orthogonal polynomials (-3, -1, 1, 3) and (1, -1, -1, 1): coefficients 4/20 and -2/4 explain .8 + 1 of 2
    fit = quadratic_fit([0, 1, 2, 3], [0, 1, 2, 1])
    assert (fit.curvature, fit.slope, fit.constant) == pytest.approx((-0.5, 1.9, -0.1))
    assert (fit.top, fit.r_squared, fit.n) == pytest.approx((1.9, 0.9, 4))
    assert fit([0, 2]) == pytest.approx([-0.1, 1.7])
    gap = quadratic_fit([0, 1, 2, 3, math.nan], [0, 1, 2, 1, 0.3])
    assert (gap.curvature, gap.n) == (pytest.approx(-0.5), 4)


def test_points_that_do_not_tell_a_parabola():
    for x, y in (([0, 1, 2], [0, 1, 0]), ([0, 0, 1, 1], [0, 1, 2, 1]), ([0, 1, 2, 3], [5, 5, 5, 5]), ([], [])):
        fit = quadratic_fit(x, y)
        assert np.isnan([fit.curvature, fit.slope, fit.constant, fit.top, fit.r_squared]).all()
        assert fit.n == len(x)
    assert math.isnan(quadratic_fit([0, 1, 2, 3], [0, 0.5, 2, 4.5]).top)  # x^2 / 2 has no highest point
    assert quadratic_fit([0, 0, 1, 2], [0, 0, 1, 0]).curvature == pytest.approx(-1)  # four points at three places


def test_the_scale_holds_its_ends():
    assert score_uniformity([0.0, 1.0], low=0, high=1) == pytest.approx(-0.25)
    for low, high, scores in ((1, 1, [1]), (2, 1, []), (0, 1, [-0.1]), (0, 1, [0.5, 1.1])):
        with pytest.raises(ValueError, match="must contain them"):
            score_uniformity(scores, low=low, high=high)
    with pytest.raises(ValueError, match=r"lowest and highest score are \[-0.5, 0.25\]; the scale 0 to 1"):
        score_uniformity([0.25, -0.5, 0.0], low=0, high=1)
