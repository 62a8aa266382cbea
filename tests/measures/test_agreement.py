import math

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalbias.measures import kendall, pairwise_accuracy, pearson, spearman

NAN = math.nan
values = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=10)


def test_correlations_by_hand():
    # deviations (-1.5, -.5, .5, 1.5) and (-2, 0, -1, 3): (3 + 0 - .5 + 4.5) / sqrt(5 * 14)
    assert pearson([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(7 / math.sqrt(70))
    # ranks 1, 3, 2, 4: 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(0.8)
    # 5 pairs in the same order, 1 in the opposite
    assert kendall([1, 2, 3, 4], [0, 2, 1, 5]).value == pytest.approx(4 / 6)
    # one tie in x: (1 + 1 - 0) / sqrt(2 * 3)
    assert kendall([1, 1, 2], [1, 2, 3]).value == pytest.approx(2 / math.sqrt(6))


def test_pairwise_accuracy_by_hand():
    # pairs of y: 1-2, 1-3, 2-3 (1-4 and 2-4 too, 3-4 tied): right, right, tied, right, wrong
    found = pairwise_accuracy([1, 3, 3, 2], [1, 2, 4, 4])
    assert found.value == pytest.approx((1 + 1 + 1 + 0.5 + 0) / 5)
    assert math.isnan(pairwise_accuracy([1, 2, 3], [5, 5, 5]).value)
    assert pairwise_accuracy([2, 1], [1, 2]).value == 0


@pytest.mark.parametrize("measure", [spearman, pearson, kendall])
@given(x=values, y=values)
def test_correlations_are_scipys(measure, x, y):
    n = min(len(x), len(y))
    a, b = x[:n], y[:n]
    found = measure(a, b).value
    if len(set(a)) < 2 or len(set(b)) < 2:
        assert math.isnan(found)
        return
    theirs = {spearman: stats.spearmanr, pearson: stats.pearsonr, kendall: stats.kendalltau}[measure]
    assert found == pytest.approx(theirs(a, b).statistic)


@pytest.mark.parametrize("measure", [spearman, pearson, kendall, pairwise_accuracy])
def test_groups_undefined_items_and_groups_are_counted(measure):
    #         p: same order  q: opposite order (r: constant) (s: one item left)
    x = [1.0, 2.0, 5.0, 3.0, 9.0, 4.0, 4.0, 8.0, NAN, 3.0]
    y = [5.0, 6.0, 7.0, 1.0, 0.5, 2.0, 2.0, 1.0, 1.0, NAN]
    groups = ["p", "p", "p2", "q", "q", "r", "r", "s", "s", "p2"]
    found = measure(x, y, groups=groups)
    low = 0 if measure is pairwise_accuracy else -1
    assert [v if v == v else None for v in found.by_group] == pytest.approx([1, None, low, None, None])
    assert found.value == pytest.approx((1 + low) / 2)
    assert (found.n, found.undefined, found.groups, found.undefined_groups) == (8, 2, 2, 3)
    pooled = measure(x, y)
    assert (pooled.n, pooled.undefined, pooled.groups, pooled.undefined_groups) == (8, 2, 1, 0)
    assert pooled.by_group == (pooled.value,)
    assert pooled.value == pytest.approx(measure(x[:8], y[:8]).value)


@pytest.mark.parametrize("measure", [spearman, pearson, kendall, pairwise_accuracy])
def test_groups_belong_to_items_by_place_whatever_the_index_of_a_series(measure):
    x, y, groups = [1, 2, 3, 1, 2, 3], [1, 2, 3, 3, 2, 1], ["a", "a", "a", "b", "b", "b"]
    by_place = measure(x, y, groups=groups)
    for index in ([3, 4, 5, 0, 1, 2], [10, 11, 12, 13, 14, 15]):  # of sorted and of filtered rows
        assert measure(x, y, groups=pandas.Series(groups, index=index)) == by_place


def test_nothing_to_correlate():
    for measure in (spearman, pearson, kendall, pairwise_accuracy):
        for x, y in (([1.0], [2.0]), ([NAN, 1.0], [1.0, 2.0]), ([], [])):
            found = measure(x, y)
            assert math.isnan(found.value)
            assert found.groups == 0
    with pytest.raises(ValueError, match="groups has 1 entries for 2 items"):
        kendall([1, 2], [1, 2], groups=["p"])
    with pytest.raises(ValueError, match="x 2, y 1"):
        pearson([1, 2], [1])
    with pytest.raises(ValueError, match=r"y\[1\] is infinite"):
        spearman([1, 2], [1, np.inf])


@pytest.mark.parametrize("correlation", [kendall, pearson, spearman])
def test_constant_scores_of_either_side_have_no_correlation(correlation):
    varied, same = [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]
    assert [math.isnan(correlation(a, b).value) for a, b in ((varied, same), (same, varied), (varied, varied))] == [
        True,
        True,
        False,
    ]
