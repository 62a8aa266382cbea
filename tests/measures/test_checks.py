"""Checks of arguments: what is wrong is named, and the first of several wrong values."""

import math

import numpy as np
import pytest

from evalbias.measures import corrected_rate, estimate_first_rate, estimate_share
from evalbias.measures.arrays import checked, defined, mean_of_defined, vectors

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vectors(x=[1.0, INF, -INF]), r"^x\[1\] is infinite"),
        (lambda: checked({"x": [[1.0, -INF]]}), r"^x\[0, 1\] is infinite"),
        (lambda: vectors(x=[[1.0]]), r"^x has the shape \(1, 1\)"),
        (lambda: checked({"x": 1.0}), r"^x has the shape \(\)"),
        (lambda: vectors(x=[1, 2], y=[1]), "different lengths: x 2, y 1"),
        (lambda: corrected_rate([1, 0.5, 2], [1, 1, 1], [1]), r"^labeled_judge\[1\] is 0.5"),
        (lambda: estimate_share([0, 2, 3, 4, 5]), r"\[2.0, 3.0, 4.0\] do not"),
        (lambda: estimate_share([0.5, -0.5]), r"\[-0.5\] do not"),
        (lambda: estimate_first_rate([0, 2, 3, 4, 5], both_orders=True), r"\[2.0, 3.0, 4.0\] do not"),
    ],
)
def test_the_first_wrong_value_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_undefined_values_are_left_out():
    assert mean_of_defined([1.0, NAN, 3.0]) == 2.0
    assert mean_of_defined([0.0]) == 0.0
    assert math.isnan(mean_of_defined([NAN]))
    assert math.isnan(mean_of_defined([]))
    assert defined(np.array([1.0, NAN, 2.0]), np.array([NAN, 1.0, 2.0])).tolist() == [False, False, True]
    assert [one.tolist() for one in vectors(x=[1, 2], y=[3, 4])] == [[1.0, 2.0], [3.0, 4.0]]
    assert vectors() == []
