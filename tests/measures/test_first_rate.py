"""The win rate of the first position: each pair its own control, or both classes of pairs counting half."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import t

from evalbias.measures import estimate_first_rate, estimate_share
from evalbias.measures.pairs import ONE_SIDED, estimate_balanced_rate

both_orders = partial(estimate_first_rate, both_orders=True)


def pairs(first, second, n):
    """Pairs of which the first position won so many twice, and the second position so many."""
    return np.array([1.0] * first + [0.0] * second + [0.5] * (n - first - second))


# Pairs in both orders.


@pytest.mark.parametrize("n", [3, 30, 80])
def test_pairs_that_agree_leave_a_width_that_shrinks_with_their_number(n):
    found = both_orders(pairs(0, 0, n))
    squared = t.ppf(0.975, n - 1) ** 2
    end = squared / (n + squared)  # Tango's interval of 0 of n discordant pairs
    assert (found.low, found.high) == pytest.approx(((1 - end) / 2, (1 + end) / 2))
    assert found.value == 0.5


def z_by_definition(first, second, n, difference):
    """Test statistic with the share of pairs won by the second position that a direct search finds most likely."""

    def surprise(lost):
        won = lost + difference
        cells = [(first, won), (second, lost), (n - first - second, 1 - won - lost)]
        return -sum(count * np.log(max(share, 1e-300)) for count, share in cells if count)

    bounds = (max(0.0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12)
    lost = minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
    variance = 2 * lost + difference - difference**2
    return ((first - second) / n - difference) / np.sqrt(variance / n)


@pytest.mark.parametrize(("first", "second", "n"), [(1, 0, 30), (9, 2, 40), (3, 12, 25), (6, 6, 12)])
def test_the_ends_are_where_the_test_statistic_is_the_quantile(first, second, n):
    found = both_orders(pairs(first, second, n))
    size = n * (n - 1) / n  # the variance of a sample counts n - 1
    quantile = t.ppf(0.975, n - 1) * np.sqrt(n / size)
    for end, sign in ((found.low, 1), (found.high, -1)):
        assert z_by_definition(first, second, n, 2 * end - 1) == pytest.approx(sign * quantile, rel=1e-4)


def test_a_position_and_its_mirror_image():
    ours, theirs = both_orders(pairs(7, 1, 40)), both_orders(pairs(1, 7, 40))
    assert (ours.low, ours.high) == pytest.approx((1 - theirs.high, 1 - theirs.low))
    assert both_orders(pairs(12, 0, 12)).high == 1.0
    assert both_orders(pairs(0, 12, 12)).low == 0.0


def test_pairs_of_a_document_that_move_together_count_once():
    documents = np.repeat(np.arange(12), 10)
    alone = both_orders(pairs(3, 1, 12))
    together = both_orders(np.repeat(pairs(3, 1, 12), 10), clusters=documents)
    assert (together.low, together.high, together.units) == pytest.approx((alone.low, alone.high, 12))


# Pairs in one order.


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


def test_two_inputs_that_differ_in_opposite_ways_leave_a_width():
    # the classes' means err by the same amount with opposite signs: r = -1, which two inputs always have, or 1
    wins, classes = np.array([1.0, 1, 0, 0, 0, 0, 1, 1]), np.tile([0.0, 0, 1, 1], 2)
    found = estimate_balanced_rate(wins, classes, clusters=list("aaaabbbb"))
    assert found.low < 0.3 < 0.7 < found.high


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
