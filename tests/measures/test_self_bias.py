import itertools
import math

import numpy as np
import pytest

from evalbias.measures import Draws, QuantileMap, estimate_skewness
from evalbias.measures.loops import differences, symmetry_p
from evalbias.measures.resample import ALONE

NAN = math.nan


def skewness(x):
    return estimate_skewness(x, draws=ALONE).value


def by_definition(x):
    x = np.asarray(x, dtype=float)
    denominator = np.abs(x[:, None] + x[None]).sum()
    return 1 - np.abs(x[:, None] - x[None]).sum() / denominator if denominator else math.nan


def test_by_hand():
    # |0-3| twice over 0 + 3 + 3 + 6, and |1 - 2| twice over 2 + 3 + 3 + 4
    expected = {(0, 3): 1 - 6 / 12, (1, 2): 1 - 2 / 12, (-2, 2): 0, (4, 4, 4): 1, (-4, -4): 1, (NAN, 3, NAN): 1}
    assert [skewness([*x]) for x in expected] == pytest.approx([*expected.values()])
    assert np.isnan([skewness([0, 0]), skewness([])]).all()
    with pytest.raises(ValueError, match="infinite"):
        skewness([1, math.inf])


@pytest.mark.parametrize(("x", "documents"), [
    ([3.0, 1.0, 2.0, 2.0, -1.0, 4.0, 0.0], [0, 1, 2, 3, 4, 5, 6]),
    ([3.0, 1.0, 2.0, 2.0, -1.0, 4.0, 0.0], [0, 0, 1, 1, 1, 2, 3]),
    # p is .625; a first step longer or shorter by 1 gives .375 or .94
    ([1.3, -2.6, 0.1, 0.9, 0.1], [0, 1, 2, 3, 4]),
])  # fmt: skip
def test_symmetry_is_tested_by_all_changes_of_sign(x, documents):
    x, codes = np.array(x), np.array(documents)
    found = symmetry_p(x, codes, draws=Draws(seed=0, resamples=20_000))
    signs = np.array(list(itertools.product([-1, 1], repeat=codes.max() + 1)))[:, codes]
    extreme = [by_definition(x * row) >= by_definition(x) - 1e-12 for row in signs]
    assert found == pytest.approx(np.mean(extreme), abs=0.015)
    assert symmetry_p(np.array([2.0]), np.array([0]), draws=Draws(resamples=7)) == 1  # (1 + 7) / (1 + 7)


def test_the_interval_of_skewness_holds_0_unless_symmetry_is_rejected():
    rng, covered, lowest = np.random.default_rng(0), 0, []
    for trial in range(60):
        x = np.round(2 * rng.normal(size=40))
        found = estimate_skewness(x, draws=Draws(seed=trial, resamples=199))
        assert (found.p_value < 0.05) == (found.low > 0)
        covered += found.low == 0
        lowest.append(estimate_skewness(x + 3, draws=Draws(seed=trial, resamples=199)).low)
    assert 52 <= covered <= 60  # 57 expected
    assert min(lowest) > 0.2
    assert math.isnan(estimate_skewness(np.zeros(5)).low)
    few = estimate_skewness(np.arange(1.0, 9.0), draws=Draws(resamples=3, confidence=0.75))
    assert few.p_value == 0.25
    assert few.low > 0  # p is at its level


def test_a_map_preserves_ranks():
    fitted = QuantileMap.fit([0.1, 0.2, 0.2, 0.4], [-25, -10, -4, 0], metric="chrf")
    # ranks of the source: 0, 1.5/3, 1
    assert fitted([0.1, 0.2, 0.4]).tolist() == pytest.approx([-25, np.quantile([-25, -10, -4, 0], 0.5), 0])
    assert fitted([0.3]).tolist() == pytest.approx([(-7 + 0) / 2])
    assert fitted([-5, 9]).tolist() == [-25, 0]  # outside the fitted range: its ends
    assert fitted.outside([-5, 0.2, 9, math.nan]) == 2
    assert math.isnan(fitted([math.nan])[0])
    ends = QuantileMap.fit([1, 1, 2, 3, 3, NAN], [0, 10, NAN, 20, 30], metric="chrF")
    # 1 and 3 are the ends; 2 has the rank 2 of 0 to 4, the median
    assert (ends.source.tolist(), ends.target.tolist()) == ([1, 2, 3], [0, 15, 30])
    assert ends.outside([1, 3, 0.999, 3.001, 2]) == 2
    assert ends([1.5, 2.5]).tolist() == [7.5, 22.5]
    with pytest.raises(ValueError, match="1 target scores"):
        QuantileMap.fit([1, 2], [0, NAN], metric="chrF")
    with pytest.raises(ValueError, match="1 different source scores"):
        QuantileMap.fit([1, 1], [0, 1], metric="chrf")
    with pytest.raises(ValueError, match="metric is empty: name the metric"):
        QuantileMap.fit([0, 1], [0, 1], metric=" ")


def test_a_map_is_of_one_metric():
    fitted = QuantileMap.fit([0.1, 0.2], [0, 1], metric="comet wmt22-comet-da")
    fitted.check_metric("Comet WMT22-comet-da")
    with pytest.raises(ValueError, match="fitted to scores of 'comet wmt22-comet-da', but these are scores of 'bleu'"):
        fitted.check_metric("bleu")


def test_differences_of_rounding_errors_are_none():
    own, expected = np.array([0.1 + 0.2, 0.3, NAN]), np.full(3, 0.3)
    assert differences(own, expected).tolist() == pytest.approx([0, 0, NAN], abs=0, nan_ok=True)
    assert math.isnan(skewness(differences(own, expected)))
    assert skewness(differences(np.array([0.1 + 0.2, 0.4]), expected[:2])) == pytest.approx(0.5)
