"""Self-bias of the rounds of a loop, by hand."""

import math

import numpy as np
import pytest

from evalbias.evaluation import measure_rounds

NAN = math.nan
OWN, EXPECTED = [[4, 3, 5], [5, 4, 5]], [[3, 3, 3], [3, NAN, 4]]


def values(measurement):
    return {name: one.value for name, one in measurement.estimates.items()}


def test_each_round_by_hand():
    first, second = measure_rounds(OWN, EXPECTED, n_resamples=20, seed=0)
    # differences 1, 0, 2: the distances of all ordered pairs sum up to 8, the sizes of their sums to 18
    assert values(first) == pytest.approx({"bias": 1, "skewness": 1 - 8 / 18, "own": 4, "expected": 3})
    # differences 2 and 1, own scores of the same two items: 2 and 12
    assert values(second) == pytest.approx({"bias": 1.5, "skewness": 1 - 2 / 12, "own": 5, "expected": 3.5})
    assert [(one["own"].n, one["own"].undefined) for one in (first, second)] == [(3, 0), (2, 1)]
    assert first.ids == second.ids == ("0", "1", "2")


def test_quality_has_all_items_and_points_of_its_own():
    rounds = measure_rounds(OWN, EXPECTED, quality=[[50, 60, 70], [55, 65, NAN]], ids="abc", n_resamples=20, seed=0)
    assert [(one["quality"].value, one["quality"].n) for one in rounds] == [(60, 3), (60, 2)]
    assert rounds[1].ids == ("a", "b", "c")
    assert values(rounds[1])["bias"] == 1.5


@pytest.mark.parametrize(("own", "expected"), [([1, 2], [1, 2]), (np.ones((2, 3)), np.ones((3, 3)))])
def test_rounds_of_different_shapes_are_refused(own, expected):
    with pytest.raises(ValueError, match=r"The scores have the shapes .*: give \(rounds, items\) each time"):
        measure_rounds(own, expected, seed=0)
