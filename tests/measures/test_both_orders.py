"""The interval of the first position's win rate, in which each pair is its own control."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import t

from evalbias.measures import estimate_first_rate

both_orders = partial(estimate_first_rate, both_orders=True)


def pairs(first, second, n):
    """Pairs of which the first position won so many twice, and the second position so many."""
    return np.array([1.0] * first + [0.0] * second + [0.5] * (n - first - second))


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


def test_undefined_pairs_are_left_out_and_others_refused():
    with_gaps = np.concatenate([pairs(5, 1, 20), [np.nan] * 7])
    found = both_orders(with_gaps)
    assert found == replace(both_orders(pairs(5, 1, 20)), undefined=7)
    single = both_orders([0.5])
    assert single.value == 0.5
    assert np.isnan([single.low, single.high]).all()
    with pytest.raises(ValueError, match=r"between 0 and 1; \[1\.5\] do not"):
        both_orders([0.5, 1.5])


@pytest.mark.parametrize(
    ("n", "documents", "first", "second"),
    [(30, 30, 0.05, 0.05), (30, 30, 0.1, 0.0), (120, 120, 0.02, 0.01), (120, 120, 0.4, 0.3), (120, 24, 0.1, 0.1)],
)
def test_intervals_cover_the_truth(n, documents, first, second):
    rng = np.random.default_rng(0)
    codes, draws, covered = np.repeat(np.arange(documents), n // documents), 300, 0
    for _ in range(draws):
        u = np.where(rng.random(n) < 0.5, rng.random(documents)[codes], rng.random(n))  # half the pairs move together
        found = both_orders(np.where(u < first, 1.0, np.where(u > 1 - second, 0.0, 0.5)), clusters=codes)
        covered += found.low <= (1 + first - second) / 2 <= found.high
    assert covered / draws > 0.925
