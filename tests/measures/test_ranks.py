import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures.agreement import counted_pearson, counted_ranks, pearson_rows, rank_rows, spearman_rows
from evalbias.measures.resample import chunks, cluster_codes, drawn, left_out, picked, sums_by_cluster, variance_of_mean

NAN = math.nan


def test_ranks_by_hand():
    rows = rank_rows(np.array([[3.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [-1.0, 0.0, 7.0, 2.0]]))
    assert rows.tolist() == [[3.5, 1, 3.5, 2], [2.5, 2.5, 2.5, 2.5], [1, 2, 4, 3]]


@settings(max_examples=50)
@given(k=st.integers(1, 4), n=st.integers(1, 12), values=st.integers(1, 6), seed=st.integers(0, 999))
def test_ranks_are_scipys(k, n, values, seed):
    x = np.random.default_rng(seed).integers(0, values, size=(k, n)).astype(float)
    np.testing.assert_array_equal(rank_rows(x), stats.rankdata(x, axis=1))


def test_correlations_by_hand():
    # deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6)
    x, y = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [4.0, 4.0, 4.0]]), np.array([0.0, 3.0, 3.0])
    r = 3 / math.sqrt(12)
    np.testing.assert_allclose(pearson_rows(x, y), [r, -r, NAN])
    np.testing.assert_allclose(pearson_rows(x, np.stack([y, x[0], y])), [r, -1, NAN])
    # ranks (1, 2, 3) and (1, 2.5, 2.5): deviations (-1, .5, .5): 1.5 / sqrt(2 * 1.5)
    rho = 1.5 / math.sqrt(3)
    np.testing.assert_allclose(spearman_rows(x, y * y), [rho, -rho, NAN])
    np.testing.assert_allclose(spearman_rows(x[0], y), [rho])


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 3.3, 70.3, -1e5 - 0.1])
def test_a_constant_has_no_correlation_however_its_mean_is_rounded(constant):
    rng = np.random.default_rng(0)
    for n in range(2, 60):
        same, other = np.full((1, n), constant), rng.normal(size=(1, n))
        counts = rng.integers(1, 4, size=(3, n)).astype(float)
        assert np.isnan(pearson_rows(same, other)).all()
        assert np.isnan(pearson_rows(other, same)).all()
        assert np.isnan(counted_pearson(same[0], other[0], counts)).all()
    assert np.isnan(pearson_rows(np.empty((2, 0)), np.empty((1, 0)))).tolist() == [True, True]
    small = constant * (1 + 1e-9 * np.arange(5.0))  # little variance is variance
    assert abs(pearson_rows(small[None], np.arange(5.0))[0]) == pytest.approx(1)


def test_correlations_stay_within_1():
    x = np.array([[0.1, 0.2, 0.3, 0.1 + 0.2]])
    assert pearson_rows(x, x * 3)[0] <= 1
    assert pearson_rows(x, -x * 3)[0] >= -1
    assert counted_pearson(x, x * 3, np.ones((1, 4)))[0] <= 1


def test_a_row_with_a_nan_is_undefined_alone():
    x = np.array([[1.0, 2.0, NAN], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(spearman_rows(x, np.array([1.0, 2.0, 3.0])), [NAN, 1])
    np.testing.assert_array_equal(spearman_rows(x[1:], np.array([[1.0, NAN, 3.0]])), [NAN])


def test_counted_correlations_by_hand():
    # counts (2, 1, 1) of (0, 1, 3) and (4, 6, 6): means 1 and 5; 2*1 + 0 + 2 over sqrt((2 + 0 + 4) * (2 + 1 + 1))
    found = counted_pearson(np.array([0.0, 1.0, 3.0]), np.array([4.0, 6.0, 6.0]), np.array([[2, 1, 1], [4, 0, 0]]))
    np.testing.assert_allclose(found, [4 / math.sqrt(24), NAN])


def test_counted_ranks_by_hand():
    # of 10, 10, 20, 30 with counts 2, 1, 0, 2: ranks 2, 2 (of 1 to 3), 4.5 (of 4 and 5)
    x, counts = np.array([10.0, 10.0, 20.0, 30.0]), np.array([[2, 1, 0, 2]])
    for ranks in (counted_ranks(x, counts), counted_ranks(x[None], counts)):
        assert ranks[0, [0, 1, 3]].tolist() == [2, 2, 4.5]


def test_clusters_are_numbered_by_first_appearance():
    kept = np.array([False, True, True, True, True])
    assert cluster_codes(["a", "c", "b", "c", "a"], kept).tolist() == [0, 1, 0, 2]
    assert cluster_codes(None, kept).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="clusters has 2 entries for 5 items"):
        cluster_codes(["a", "b"], kept)


def test_whole_clusters_are_drawn_as_many_as_there_are(monkeypatch):
    monkeypatch.setattr(chunks, "__defaults__", (12,))  # chunks of two resamples
    codes = np.array([0, 1, 1, 2, 0])
    parts = list(drawn(codes, 2001, np.random.default_rng(0)))
    assert [len(part) for part in parts[-2:]] == [2, 1]
    counts = np.concatenate(parts)
    assert counts.shape == (2001, 5)
    np.testing.assert_array_equal(counts[:, 0], counts[:, 4])
    np.testing.assert_array_equal(counts[:, 1], counts[:, 2])
    np.testing.assert_array_equal(counts[:, [0, 1, 3]].sum(axis=1), 3)
    assert counts.mean(axis=0) == pytest.approx(1, abs=0.1)


def test_every_cluster_or_group_is_left_out_once(monkeypatch):
    codes = np.array([0, 1, 1, 2, 0])
    expected = [[0, 1, 1, 1, 0], [1, 0, 0, 1, 1], [1, 1, 1, 0, 1]]
    assert np.concatenate(list(left_out(codes))).tolist() == expected
    assert len(np.concatenate(list(left_out(np.arange(450))))) == 200
    monkeypatch.setattr(chunks, "__defaults__", (5,))
    assert np.concatenate(list(left_out(codes))).tolist() == expected
    assert np.concatenate(list(left_out(codes, groups=2))).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]]


def test_counts_as_items():
    found = {tuple(r): items.tolist() for r, items in picked(np.array([[2.0, 0, 1], [0, 1, 0], [0, 3, 0]]))}
    assert found == {(1,): [[1]], (0, 2): [[0, 0, 2], [1, 1, 1]]}


def test_sums_and_the_variance_of_a_mean_by_cluster():
    codes = np.array([0, 1, 0])
    assert sums_by_cluster(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), codes).tolist() == [[6, 8], [3, 4]]
    # 1, 3, 8 around their mean 4: clusters add up to -3 + 4 and -1; 2 / 1 * (1 + 1) / 9
    assert variance_of_mean(np.array([1.0, 3.0, 8.0]), codes) == pytest.approx(4 / 9)
