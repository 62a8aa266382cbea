"""Two models on the items that both have: differences by hand, the exact permutation test, what cannot be paired."""

import itertools
import math

import numpy as np
import pytest

from evalbias.evaluation import LoopScores, compare_loops

NAN = math.nan


def scores(name, items, own, expected, numbers=(0,)):
    return LoopScores(name, numbers, tuple(items), np.array(own, dtype=float), np.array(expected, dtype=float))


def test_pairs_are_of_the_items_that_both_have_and_define():
    first = scores("a", "pqrs", [[5, 4, 3, 2]], [[1, 1, 1, NAN]])  # differences 4, 3, 2, undefined
    second = scores("b", "srqx", [[9, 7, 9, 0]], [[1, 1, 3, 0]])  # differences 8, 6, 6, 0
    (pair,) = compare_loops([first, second], n_resamples=10, seed=0)
    bias = pair.comparison["bias"]
    assert (pair.first, pair.second, pair.items, bias.after.n) == ("a", "b", 3, 2)  # q and r; s is undefined in a
    assert (bias.before.value, bias.after.value, bias.difference.value) == (2.5, 6, 3.5)
    assert bias.after.undefined == 1


@pytest.mark.slow
def test_p_is_that_of_all_swaps():
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.0, 1, 8), rng.normal(0.9, 1, 8)
    observed = abs((b - a).mean())
    signs = np.array(list(itertools.product((1, -1), repeat=8)))
    exact = (abs((signs * (b - a)).mean(axis=1)) >= observed - 1e-12).mean()
    loops = [scores(name, "abcdefgh", [x], [np.zeros(8)]) for name, x in (("a", a), ("b", b))]
    (pair,) = compare_loops(loops, n_resamples=20_000, seed=0)
    assert pair.comparison["bias"].p_value == pytest.approx(exact, abs=0.01)
    assert 0.02 < exact < 0.5


def test_the_last_round_of_both_is_compared():
    first = scores("a", "pq", [[0, 0], [1, 1], [2, 2]], np.zeros((3, 2)), (0, 5, 10))
    second = scores("b", "pq", [[3, 3], [7, 7]], np.zeros((2, 2)), (0, 5))
    (pair,) = compare_loops([first, second], n_resamples=10, seed=0)
    change = pair.comparison["bias"]
    assert (pair.number, change.before.value, change.after.value) == (5, 1, 7)


def test_every_two_loops_are_compared_and_others_left_out():
    names = [scores(name, "pq", [[1, 2]], [[0, 0]]) for name in "abc"]
    pairs = compare_loops([*names, scores("d", "xy", [[1, 2]], [[0, 0]])], n_resamples=10, seed=0)
    assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert compare_loops([names[0], scores("d", "pq", [[1, 2]], [[0, 0]], (4,))], n_resamples=10, seed=0) == []
    assert compare_loops(names[:1], n_resamples=10, seed=0) == []
