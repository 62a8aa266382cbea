"""The balanced win rate of the first position, of pairs that were judged in one order."""

import math

import numpy as np
import pytest

from evalbias.measures import estimate_share
from evalbias.measures.pairs import ONE_SIDED, estimate_balanced_rate


def test_each_class_counts_half():
    scores, classes = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.25]), np.array([0.0, 0.0, 1.0, 1.0, 1.0, np.nan])
    found = estimate_balanced_rate(scores, classes)
    assert (found.value, found.n, found.undefined, found.units) == ((0.5 + 1.0) / 2, 5, 1, 2)
    assert np.isnan(estimate_balanced_rate(np.ones(3), np.ones(3)).value)  # nothing in the first class


def test_the_distances_to_the_ends_of_both_classes_are_added_as_standard_errors_are():
    first, second = np.array([1.0, 1, 1, 0, 1, 0, 1]), np.array([0.0, 1, 0, 0])
    a, b = estimate_share(first), estimate_share(second)
    found = estimate_balanced_rate(np.concatenate([first, second]), np.repeat([0.0, 1.0], [7, 4]))
    middle = (5 / 7 + 1 / 4) / 2
    assert found.value == pytest.approx(middle)
    assert found.low == pytest.approx(middle - math.hypot(5 / 7 - a.low, 1 / 4 - b.low) / 2)
    assert found.high == pytest.approx(middle + math.hypot(a.high - 5 / 7, b.high - 1 / 4) / 2)


def test_means_that_move_together_over_the_inputs_widen_the_interval():
    wins, classes = np.tile([1.0, 1.0, 0.0, 0.0], 5), np.tile([0.0, 1.0], 10)
    documents = [str(i // 2) for i in range(20)]  # in each, the first position wins both pairs or none
    together = estimate_balanced_rate(wins, classes, clusters=documents)
    one = estimate_share(wins[::2])
    assert (together.low, together.high) == pytest.approx((one.low, one.high))  # r = 1: as one class
    assert together.high - together.low > 1.3 * np.ptp([getattr(_apart(wins, classes), e) for e in ("low", "high")])


def test_the_correlation_of_the_means_by_hand():
    # (input, class, win) of four inputs and of four more that are like them; both classes win half of their pairs
    pairs = [(0, 0, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 0, 0), (3, 1, 0), (3, 1, 1)]
    pairs += [(number + 4, of_class, win) for number, of_class, win in pairs]
    inputs, classes, wins = np.array(pairs, dtype=float).T
    found = estimate_balanced_rate(wins, classes, clusters=inputs.tolist())
    # sums of win - 1/2 over the first four inputs: 1, -1/2, -1/2, 0 of one class, -1/2, 1/2, 0, 0 of the other
    r = (-1 / 2 - 1 / 4) / math.sqrt((1 + 1 / 4 + 1 / 4) * (1 / 4 + 1 / 4))
    one, other = (estimate_share(wins[classes == k], clusters=inputs[classes == k].tolist()) for k in (0, 1))
    a, b = 1 / 2 - one.low, 1 / 2 - other.low
    assert found.low == pytest.approx(1 / 2 - math.sqrt(a**2 + b**2 + 2 * r * a * b) / 2)
    assert 0 < found.low < found.high < 1


def _apart(wins, classes):
    return estimate_balanced_rate(wins, classes)


def test_two_inputs_that_differ_in_opposite_ways_leave_a_width():
    # the classes' means err by the same amount with opposite signs: r = -1, which two inputs always have, or 1
    wins, classes = np.array([1.0, 1, 0, 0, 0, 0, 1, 1]), np.tile([0.0, 0, 1, 1], 2)
    found = estimate_balanced_rate(wins, classes, clusters=list("aaaabbbb"))
    assert found.low < 0.3 < 0.7 < found.high


def test_a_few_pairs_that_agree_leave_a_width():
    found = estimate_balanced_rate(np.ones(6), np.repeat([0.0, 1.0], 3))
    assert found.low < 0.6
    assert found.high == 1.0


@pytest.mark.parametrize(("n", "share"), [(30, 0.2), (100, 0.05), (100, 0.5)])
def test_an_accurate_judge_without_a_lean_is_rarely_called_biased(n, share):
    rng, rejected = np.random.default_rng(0), []
    for _ in range(500):
        better = (rng.random(n) < share).astype(float)  # people mostly prefer the first output
        wins = np.where(rng.random(n) < 0.9, 1 - better, better)
        found = estimate_balanced_rate(wins, better)
        rejected.append(found.low > 0.5 or found.high < 0.5)
    assert np.mean(rejected) <= 0.06


def test_a_class_in_one_input_tells_nothing():
    for classes in ([0.0] * 6, [0.0] * 5 + [1.0]):
        found = estimate_balanced_rate(np.ones(6), np.array(classes))
        assert math.isnan(found.low)
        assert found.reason == ONE_SIDED


def test_the_interval_of_a_difference_is_paired():
    classes = np.repeat([0.0, 1.0], [12, 8])
    a = np.tile([1.0, 0.0], 10)
    found = estimate_balanced_rate(a, classes, before=a)
    assert (found.value, found.low) == pytest.approx((0.0, -found.high))
    assert found.high > 0.0
    other = estimate_balanced_rate(1 - a, classes, before=a)
    assert other.value == pytest.approx(0.0)
    assert other.high > 2 * found.high
