"""Which of several systems people would rate higher: differences by hand, their coverage, and the parts of features."""

import numpy as np
import pytest
from scipy import stats

from evalbias.measures.corrections import compare_means, part_of
from evalbias.measures.equal_quality import Effect
from evalbias.measures.resample import ALIKE, Interval

NAN = np.nan
INPUTS = [f"{k}" for k in range(40)]


def sides(seed=0, n=40, systems=2):
    """Return the judge's scores and people's (systems, n), which share a part of every input."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n) + 0.5 * rng.normal(size=(systems, n)) + 0.3 * np.arange(systems)[:, None]
    return quality + 0.4 * rng.normal(size=(systems, n)), quality + 0.4 * rng.normal(size=(systems, n))


def compared(judge, people, clusters=None):
    names = np.repeat([*"ABCDE"[: len(judge)]], judge.shape[1]).tolist()
    return compare_means(judge.ravel(), people.ravel(), names, clusters=clusters)


def test_with_all_labels_the_difference_is_that_of_paired_or_of_independent_means():
    judge, people = sides()
    for clusters, test in ((INPUTS * 2, stats.ttest_rel), (None, stats.ttest_ind)):
        (found,) = compared(judge, people, clusters).differences
        low, high = (expected := test(people[1], people[0])).confidence_interval()
        assert found.value == pytest.approx(people[1].mean() - people[0].mean())
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.003)  # of 39 for 38 degrees of freedom
        assert found.p_value == pytest.approx(expected.pvalue, rel=0.05)
        assert (found.n, found.units, found.undefined) == (80, 40 if clusters else 80, 0)


def test_the_weight_makes_the_variance_least_and_serves_both_systems():
    judge = np.array([[1.0, 2.0, 3.0, 4.0, 6.0, 8.0], [2.0, 1.0, 4.0, 3.0, 5.0, 3.0]])
    people = np.array([[1.0, 3.0, 3.0, 5.0, NAN, NAN], [2.0, 2.0, 4.0, 4.0, NAN, NAN]])
    found = compared(judge, people)
    # deviations of people from 3 and 3, of the judge from 4 and 3 (all) and 2.5 and 2.5 (labeled)
    a = np.array([-2, 0, 0, 2, 0, 0, -1, -1, 1, 1, 0, 0]) / 4
    labeled = np.array([-1.5, -0.5, 0.5, 1.5, 0, 0, -0.5, -1.5, 1.5, 0.5, 0, 0]) / 4
    b = np.array([-3, -2, -1, 0, 2, 4, -1, -2, 1, 0, 2, 0]) / 6 - labeled
    weight = -(a @ b) / (b @ b)
    assert found.people == pytest.approx([3 + weight * 1.5, 3 + weight * 0.5])
    assert found.differences[0].value == pytest.approx(-weight)
    assert found.judge.tolist() == [4, 3]
    assert found.favors[0].value == pytest.approx(-1 + weight)
    assert (found.outputs.tolist(), found.labels.tolist()) == ([6, 6], [4, 4])
    # errors with 4 / 2.5 for each mean and its half of the weight, 1 less the leverage, and the weight's own error
    psi = np.sqrt(4 / 2.5) * (a - weight * labeled) + weight * (b + labeled)
    signs = np.repeat([-1, 1], 6)
    psi, moved = signs * psi / (1 - b**2 / (b @ b)), signs * b
    psi -= -1 * moved * psi / (b @ b)  # the shifts are 1.5 and .5
    part = [((a - weight * labeled)[rows] ** 2).sum() for rows in (slice(6), slice(6, 12))]
    share = np.array([5.0, 5.0]) / 10
    df = sum(part) ** 2 / (part[0] ** 2 / (3 - share[0]) + part[1] ** 2 / (3 - share[1]))
    half = stats.t.ppf(0.975, df) * np.sqrt((psi**2).sum())
    assert found.differences[0].high - found.differences[0].value == pytest.approx(half)


def test_what_the_labels_do_not_tell_is_undefined_and_says_why():
    judge, people = sides()
    few, alike = people.copy(), people.copy()
    few[1, 1:], alike[1, :9], alike[1, 9:] = NAN, 3.0, NAN
    (found,) = compared(judge, few).differences
    assert (np.isnan(found.value), found.reason) == (True, "fewer than 4 outputs of B have a score and a rating")
    third = compare_means([*judge.ravel(), *judge[0]], [*people.ravel(), *few[1]], np.repeat([*"ABC"], len(judge[0])))
    assert third.differences[:1] == compared(judge, people).differences  # without the third system
    assert [e.reason for e in third.differences[1:]] == 2 * ["fewer than 4 outputs of C have a score and a rating"]
    assert np.isnan([third.people[2], *third.enough[1:], third.differences[1].value]).all()
    (found,) = compared(judge, alike).differences
    assert (np.isnan([found.value, found.low]).tolist(), found.reason) == ([False, True], ALIKE)
    judge[0, :5] = NAN
    assert compared(judge, people).differences[0].undefined == 5
    # A third system of few labels, where the first output with a score is the second system's.
    both = [(*judge.T.ravel(),), (*people.T.ravel(),), [*"AB"] * len(judge[0])]
    third = ([*part, more] for part, more in zip(both, (1.0, 1.0, "C"), strict=True))
    two, three = compare_means(*both), compare_means(*third)
    assert three.differences[0].value == pytest.approx(two.differences[0].value)
    assert three.people[:2] == pytest.approx(two.people)
    with pytest.raises(ValueError, match="different lengths"):
        compare_means([1.0], [1.0, 2.0], ["A"])


def test_labels_that_would_decide_are_those_that_shrink_the_interval():
    judge, people = sides(n=4000)
    rng = np.random.default_rng(1)
    few = np.where(rng.random(people.shape) < 0.005, people, NAN)
    enough = compared(judge, few).enough[0]
    draws = [np.where(rng.random(people.shape) < enough / people.size, people, NAN) for _ in range(40)]
    assert 0.5 < np.mean([compared(judge, some).differences[0].low > 0 for some in draws]) <= 1
    assert np.isnan(compared(judge[:, :40], people[:, :40] - 0.3 * np.arange(2)[:, None]).enough).all()


@pytest.mark.slow
@pytest.mark.parametrize(("systems", "labels"), [(2, (22, 22)), (4, (22, 22, 22, 22)), (2, (4, 100))])
def test_intervals_cover_and_are_narrower_than_those_of_the_labels(systems, labels):
    covered, narrower = [], []
    for seed in range(200):
        judge, people = sides(seed, n=150, systems=systems)
        judge[1] += 0.5  # which favors the second
        places = np.random.default_rng([seed, 1]).permuted(np.tile(np.arange(150), (systems, 1)), axis=1)
        some = np.where(places < np.transpose([labels]), people, NAN)
        truth = 0.3 * np.diff(compared(judge, people).pairs).ravel()
        found = compared(judge, some, [f"{k}" for k in range(150)] * systems).differences
        covered.append(all(e.low <= t <= e.high for e, t in zip(found, truth, strict=True)))
        (alone,) = compared(np.zeros((2, 150)), some[:2]).differences
        narrower.append((found[0].high - found[0].low) / (alone.high - alone.low))
    assert 0.92 <= np.mean(covered) <= 0.99
    assert np.median(narrower) < 0.75 or systems > 2


def test_the_part_of_a_feature_is_its_worth_times_its_difference():
    moved, effect = Interval(2.0, 1.0, 3.0), Effect(0.5, 0.3, 0.7, score_sd=2.0, first_stage_f=100.0)
    found = part_of(moved, effect)
    assert (found.value, found.high - found.value) == pytest.approx((2.0, np.hypot(2.0 * 0.4, 1.0 * 1.0)))
    assert part_of(moved, Effect(NAN, reason="nobody rated")).reason == "nobody rated"
