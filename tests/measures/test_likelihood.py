"""US, BiasScore and RS by hand."""

import math

import numpy as np
import pytest

from evalbias.measures import bias_score, rs_scores, unfairness_scores

NAN = math.nan


def test_unfairness_by_hand():
    # mean-range: (-1/2, 0, 1/2) - (-25, -10, 35)/60, with mean 25 of 0, 15, 60; center-max divides by 35
    unfairness = unfairness_scores([1, 3, 5], [0, 15, 60])
    assert unfairness == pytest.approx([-0.5 + 25 / 60, 10 / 60, 0.5 - 35 / 60])
    center_max = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="center-max")
    assert center_max == pytest.approx([-1 + 25 / 35, 10 / 35, 0])
    # z-score: (-2, 0, 2) has the variance 8/3; (-25, -10, 35) has (625 + 100 + 1225) / 3 = 650
    standardized = unfairness_scores([1, 3, 5], [0, 15, 60], normalization="z-score")
    model, human = math.sqrt(8 / 3), math.sqrt(650)
    assert standardized == pytest.approx([-2 / model + 25 / human, 10 / human, 2 / model - 35 / human])
    # an item with an undefined score enters neither normalization
    with_gap = unfairness_scores([1, 3, 5, 9], [0, 25, 100, NAN])
    assert with_gap == pytest.approx([-0.5 + 125 / 300, 50 / 300, 0.5 - 175 / 300, NAN], nan_ok=True)
    with pytest.raises(ValueError, match="normalization='min-max' is unknown"):
        unfairness_scores([1, 3, 5], [0, 15, 60], normalization="min-max")


def test_bias_scores_of_both_normalizations_by_hand():
    # judge (-1, 0, 0, 1) of range 2 and sd sqrt(1/2); people (-1, -1, 1, 1) of range 2 and sd 1
    # mean-range: US = (0, 1/2, -1/2, 0), ranks (2.5, 4, 1, 2.5) against 1, 2, 3, 4: -1.5 / sqrt(4.5 * 5)
    # z-score: US = (1 - sqrt 2, 1, -1, sqrt 2 - 1), ranks (2, 4, 1, 3): 0 / ...
    judge, people, ls = [2, 3, 3, 4], [1, 1, 5, 5], [1, 2, 3, 4]
    assert bias_score(ls, unfairness_scores(judge, people)) == pytest.approx(-1.5 / math.sqrt(4.5 * 5))
    assert bias_score(ls, unfairness_scores(judge, people, normalization="z-score")) == pytest.approx(0)
    assert math.isnan(bias_score([1.0], [1.0]))


def test_rs_by_hand():
    # LS* = (-1, 0, 1); US centered: (-1/3, 2/3, -1/3) / (2/3) = (-1/2, 1, -1/2)
    assert rs_scores([-30, -20, -10], [0, 1, 0]) == pytest.approx([1.5, 1, 0.5])
    assert np.isnan(rs_scores([1, 1, 1], [1, 2, 3])).all()
