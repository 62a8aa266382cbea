"""Several systems tested together: adjusted p-values by hand, and the chance of any false finding."""

import math

import numpy as np
import pytest
from planted import likelihood_effect
from scipy import stats

from evalbias.measures.agreement import estimate_pearson, pearson_influence
from evalbias.measures.equal_quality import EqualQuality, effects_on_judges
from evalbias.measures.families import higher_than_first, holm, nonzero, smaller_in_magnitude, step_down


def test_step_down_worked_by_hand():
    draws = np.array([[0.0, 5.0, 1.0], [2.0, 0.0, 1.0], [0.0, 0.0, 4.0], [1.0, 1.0, 1.0]])
    # 4.5 is reached by the largest of row 0; 3 among columns 0 and 2 by row 2; 2 in column 0 by row 1 alone, which
    # would be smaller than the p before it: p never falls
    assert step_down(np.array([2.0, 4.5, 3.0]), draws).tolist() == [0.4, 0.4, 0.4]
    # rows 0, 1 and 2 reach 2; in column 0 alone, rows 1 and 3 reach 1, which again is fewer
    assert step_down(np.array([1.0, np.nan, 2.0]), draws) == pytest.approx([0.6, np.nan, 0.6], nan_ok=True)
    assert step_down(np.array([9.0]), np.full((9, 1), np.nan)).tolist() == [1.0]  # an undefined draw speaks for nothing


def test_a_number_whose_error_is_unknown_has_no_test_and_costs_no_other():
    errors = np.random.default_rng(0).normal(size=(999, 3)) / 10
    alone = smaller_in_magnitude(np.array([1.0, 0.1]), errors[:, :2])
    errors[:, 2] = np.nan
    assert np.isnan(nonzero(1.0, errors[:, 2]))
    assert smaller_in_magnitude(np.array([1.0, 0.1, 0.2]), errors) == pytest.approx([*alone, np.nan], nan_ok=True)
    assert np.isnan(smaller_in_magnitude(np.array([0.2, 0.1]), errors[:, [2, 0]])).all()


def test_the_magnitude_is_smaller_only_if_difference_and_sum_have_the_sign():
    rng = np.random.default_rng(0)
    errors = rng.normal(0, 0.1, size=(20_000, 5))
    p = smaller_in_magnitude(np.array([-1.0, -0.5, 0.5, -1.0, 1.5]), errors)
    assert p[0] == pytest.approx(p[1], abs=0.002)
    assert p[0] < 0.005
    assert 0.4 < p[2] < 0.8  # the same magnitude
    assert p[3] > 0.99  # far on the other side
    together = np.repeat(errors[:, :1], 2, axis=1)
    assert smaller_in_magnitude(np.array([0.3, 0.3]), together).tolist() == [1.0]  # the same judge
    assert np.isnan(smaller_in_magnitude(np.array([0.3, np.nan]), errors[:, :2])).all()
    assert nonzero(0.1, errors[:, 0]) == pytest.approx(2 * stats.norm.sf(1), abs=0.01)
    assert nonzero(-0.2, np.array([-0.3, 0.1, 0.0, 0.2])) == (2 + 1) / (4 + 1)  # -.3 and .2 reach it
    assert np.isnan(nonzero(np.nan, errors[:, 0]))


def test_joint_effects_are_those_of_every_judge_with_the_errors_of_their_differences():
    rng = np.random.default_rng(0)
    quality, other = rng.normal(size=(2, 60))
    ls = 0.5 * quality + other
    ratings = quality[:, None] + rng.normal(0, 0.7, size=(60, 3))
    scores = np.column_stack([quality + ls, quality - ls, quality, np.ones(60)])
    scores[:, :3] += rng.normal(0, 0.3, (60, 3))
    scores[4, 1] = np.nan
    clusters = [str(i // 2) for i in range(60)]
    effects, influence = effects_on_judges(ls, scores, ratings, clusters=clusters)
    kept = np.arange(60) != 4
    names = [c for c, k in zip(clusters, kept, strict=True) if k]
    for j in range(3):
        single = likelihood_effect(ls[kept], scores[kept, j], ratings[kept], clusters=names)
        assert effects[j] == pytest.approx(single.value)
        assert np.sqrt((influence[:, j] ** 2).sum()) == pytest.approx(single.standard_error)
    with pytest.raises(ValueError, match="several ratings, which tell their reliability"):
        effects_on_judges(ls, scores, ratings, reliability=0.5)
    change = likelihood_effect(ls[kept], scores[kept, 1], ratings[kept], before=scores[kept, 0], clusters=names)
    assert np.sqrt(((influence[:, 1] - influence[:, 0]) ** 2).sum()) == pytest.approx(change.standard_error)
    assert np.isnan(effects[3])
    assert np.isnan(influence[:, 3]).all()
    points, _ = effects_on_judges(ls, scores, ratings, clusters=clusters, per_point=True)
    model = EqualQuality(scores[kept, 0], ratings[kept], {"ls": ls[kept]}, clusters=names)
    assert points[0] == pytest.approx(model.effect("ls").value / model.effect("ls").quality)
    noisy = np.column_stack([scores[:, 0], scores[:, 0] + 0.5 * scores[:, 2], -scores[:, 0]])  # the last one falls
    assert np.isnan(effects_on_judges(ls, noisy, ratings, per_point=True)[0]).tolist() == [False, False, True]


def rated(noise, *, n=60, seed=0, draw=1):
    """People's scores of n items, and those of a judge with so much noise of its own."""
    quality = np.random.default_rng(seed).normal(size=n)
    return quality, quality + noise * np.random.default_rng([seed, draw]).normal(size=n)


def test_higher_estimates_have_the_t_tests_p_and_twins_cost_nothing():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(20_000, 8)) * 0.1
    values = np.array([0.2, 0.5, 0.1, *5 * [0.2]])
    (alone,) = higher_than_first(values[:2], errors[:, :2])
    assert alone == pytest.approx(stats.norm.sf(0.3 / (0.1 * math.sqrt(2))), abs=0.003)
    twins = [0, 1, 1, 1]
    assert higher_than_first(values[twins], errors[:, twins]) == pytest.approx([alone] * 3)
    assert alone < higher_than_first(values, errors)[0] < 7 * alone
    assert higher_than_first(values, errors)[1] > 0.5
    assert higher_than_first(values[[0, 0]], errors[:, [0, 0]]) == [1.0]


def test_the_agreement_of_judges_errs_over_inputs_and_undefined_judges_have_no_test():
    human, given = rated(2.0)
    better = rated(1.0, draw=2)[1]
    scores, inputs = np.column_stack([given, better]), np.arange(60) // 3
    influence = pearson_influence(scores, human, inputs)
    change = estimate_pearson(better, human, before=given, clusters=inputs.tolist())
    error = math.sqrt(((influence[:, 1] - influence[:, 0]) ** 2).sum())
    assert influence.shape == (20, 2)
    assert change.high - change.value == pytest.approx(stats.t.ppf(0.975, 19) * error)
    errors = np.random.default_rng(0).normal(size=(99, 20)) @ influence
    found = higher_than_first(np.array([0.4, math.nan, 0.7]), np.insert(errors, 1, np.nan, axis=1))
    assert np.isnan(found).tolist() == [True, False]


def test_holm_by_its_definition():
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([math.nan, 0.04, 0.01])[1:] == [0.04, 0.02]  # an undefined p counts as no test
