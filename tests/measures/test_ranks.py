"""Ranks and correlations of resamples given as counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures.agreement import counted_pearson, counted_ranks, counted_spearman

NAN = math.nan


def alone(statistic, x, y):
    """A statistic of one sample."""
    return statistic(np.ones((1, len(x))), np.array(x, dtype=float), np.array(y, dtype=float))[0]


@settings(max_examples=50)
@given(k=st.integers(1, 4), n=st.integers(1, 12), values=st.integers(1, 6), seed=st.integers(0, 999))
def test_ranks_are_scipys(k, n, values, seed):
    rng = np.random.default_rng(seed)
    x, counts = rng.integers(0, values, n).astype(float), rng.multinomial(n, np.ones(n) / n, size=k)
    for ranks in (counted_ranks(counts, x), counted_ranks(counts, np.tile(x, (k, 1)))):
        for row, own in zip(counts, ranks, strict=True):
            np.testing.assert_array_equal(np.repeat(own, row), stats.rankdata(np.repeat(x, row)))


def test_correlations_by_hand():
    # deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6)
    x, y, r = [1, 2, 3], [0, 3, 3], 3 / math.sqrt(12)
    assert [alone(counted_pearson, one, y) for one in (x, x[::-1])] == pytest.approx([r, -r])
    assert math.isnan(alone(counted_pearson, [4, 4, 4], y))
    # ranks (1, 2, 3) and (1, 2.5, 2.5): deviations (-1, .5, .5): 1.5 / sqrt(2 * 1.5)
    assert alone(counted_spearman, x, np.square(y)) == pytest.approx(1.5 / math.sqrt(3))
    # counts (2, 1, 1) of (0, 1, 3) and (4, 6, 6): means 1 and 5; 2*1 + 0 + 2 over sqrt((2 + 0 + 4) * (2 + 1 + 1))
    found = counted_pearson(np.array([[2, 1, 1], [4, 0, 0]]), np.array([0.0, 1.0, 3.0]), np.array([4.0, 6.0, 6.0]))
    np.testing.assert_allclose(found, [4 / math.sqrt(24), NAN])


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 3.3, 70.3, -1e5 - 0.1])
def test_a_constant_has_no_correlation_however_its_mean_is_rounded(constant):
    rng = np.random.default_rng(0)
    for n in range(2, 60):
        same, other, counts = np.full(n, constant), rng.normal(size=n), rng.integers(1, 4, size=(3, n)).astype(float)
        assert np.isnan(counted_pearson(counts, same, other)).all()
        assert np.isnan(counted_pearson(counts, other, same)).all()
    small = constant * (1 + 1e-9 * np.arange(5.0))  # little variance is variance
    assert abs(alone(counted_pearson, small, np.arange(5.0))) == pytest.approx(1)


def test_correlations_stay_within_1():
    x = np.array([0.1, 0.2, 0.3, 0.1 + 0.2])
    assert alone(counted_pearson, x, x * 3) <= 1
    assert alone(counted_pearson, x, -x * 3) >= -1


def test_counted_ranks_by_hand():
    # of 10, 10, 20, 30 with counts 2, 1, 0, 2: ranks 2, 2 (of 1 to 3), 4.5 (of 4 and 5)
    x, counts = np.array([10.0, 10.0, 20.0, 30.0]), np.array([[2, 1, 0, 2]])
    for ranks in (counted_ranks(counts, x), counted_ranks(counts, x[None])):
        assert ranks[0, [0, 1, 3]].tolist() == [2, 2, 4.5]
