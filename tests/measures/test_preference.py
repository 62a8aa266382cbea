"""Decisions about pairs, positions and scales: by hand, by slow definitions and by direct search."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import t

from evalbias.measures import decision_rates, decision_shares, negative_entropies, pairs, position_calibration
from evalbias.measures.pairs import ONE_SIDED, counted_fairness, estimate_balanced_rate, estimate_fairness
from evalbias.measures.position_calibration import batch_offsets, calibrate_comparisons, position_prior, rotations
from evalbias.measures.resample import estimate_share

NAN = math.nan
ROWS = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5], [NAN, NAN]]
both_orders = partial(pairs.estimate_first_rate, both_orders=True)
BOTH = rotations(2, every=True)


def fairness(rows):
    shares = decision_shares(rows)
    return counted_fairness(np.ones((1, len(shares))), shares).item()


def test_fairness_by_hand():
    # A wins two, B one, one is shared: (2.5, 1.5) / 4
    assert decision_rates(ROWS).tolist() == [0.625, 0.375]
    assert estimate_fairness(decision_shares(ROWS)).value == pytest.approx(-0.125)
    three = [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4]]
    # rates (2.5, 1, .5) / 4 against 1/3 each
    assert fairness(three) == pytest.approx(-(0.625 - 1 / 3 + 1 / 3 - 0.25 + 1 / 3 - 0.125) / 3)


def test_fairness_is_that_of_the_paper():
    # -.288 in the paper's tables of instructions, which is a first-win rate of .788
    wins = np.r_[np.full(788, 0.9), np.full(212, 0.1)]
    rows = np.stack([wins, 1 - wins], axis=1)
    assert decision_rates(rows)[0] == 0.788
    assert fairness(rows) == pytest.approx(-0.288)
    found, fair = (estimate_fairness(decision_shares(some)) for some in (rows, np.tile(ROWS[:3], (4, 1))))
    assert found.value == pytest.approx(-0.288)
    for one, unfair in ((found, True), (fair, False)):
        assert (one.p_value < 0.05) == (one.high < 0) == unfair
    assert [fairness(np.eye(c)[[0]]) for c in (2, 3, 4)] == pytest.approx([-1 / 2, -4 / 9, -3 / 8])  # one always wins


def test_longer_wins_shares_and_entropies_by_hand():
    wins = pairs.longer_wins([0.9, 0.2, 0.5, 0.7, NAN, 0.8], [9, 3, 5, 4, 9, 1], [1, 8, 1, 4, 1, 7])
    # the longer wins, wins, shares, (equal), (undefined), loses
    np.testing.assert_array_equal(wins, [1, 1, 0.5, NAN, NAN, 0])
    np.testing.assert_array_equal(decision_shares(ROWS), [[1, 0], [1, 0], [0, 1], [0.5, 0.5], [NAN, NAN]])
    entropies = negative_entropies([[1.0, 0.0], [0.5, 0.5], [NAN, 0.5]])
    np.testing.assert_allclose(entropies, [0, -math.log(2), NAN])


def test_consistent_preferences_by_hand():
    forward = [[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [NAN, 0.1], [1.0, 0.0]]
    swapped = [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.6, 0.4], [0.1, 0.9], [1.0, 0.0]]
    # kept, changed, undecided twice, undecided once, undefined, certain of the first position twice
    np.testing.assert_array_equal(pairs.consistent_preferences(forward, swapped), [1, 0, 1, 0, NAN, 0])
    forward = [[0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.4, 0.2, 0.4]]
    swapped = [[0.2, 0.6, 0.2], [0.6, 0.2, 0.2], [0.2, 0.4, 0.4]]
    # a tie has no position: kept, a tie that became a choice, the same candidate and the tie share both
    assert pairs.consistent_preferences(forward, swapped, ties=True).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="give the same comparisons twice"):
        pairs.consistent_preferences(forward, swapped[:2])
    with pytest.raises(ValueError, match=r"\[inf, 0\.0\] are not a distribution"):  # not left out
        pairs.consistent_preferences([[math.inf, 0.0]], [[0.0, 1.0]])


def test_ties_but_for_rounding_are_ties_and_nothing_defined_is_nan():
    assert pairs.longer_wins([0.5 + 1e-15], [9], [1])[0] == 0.5
    assert pairs.win_shares([0.1 + 0.2, 0.3], decided=True).tolist() == [0.5, 0.5]
    assert decision_shares([[0.1 + 0.2 + 0.2, 0.5]]).tolist() == [[0.5, 0.5]]
    assert np.isnan(decision_rates([[NAN, NAN]])).all()
    assert math.isnan(fairness([[NAN, NAN]]))


BAD_INPUT = [([0.5, 0.5], "shape"), ([[1.0]], "shape")]
BAD_INPUT += [([[0.5, 0.5], [0.5, 0.6], [0.5, 0.7]], r"\[0\.5, 0\.6\] are not a distribution")]
BAD_INPUT += [([[1.5, -0.5]], "not a distribution")]


@pytest.mark.parametrize("measure", [decision_rates, fairness, negative_entropies])
@pytest.mark.parametrize(("rows", "match"), BAD_INPUT)
def test_bad_input(measure, rows, match):
    with pytest.raises(ValueError, match=match):
        measure(rows)


def of_pairs(first, second, n):
    """Pairs of which the first position won so many twice, and the second position so many."""
    return np.array([1.0] * first + [0.0] * second + [0.5] * (n - first - second))


@pytest.mark.parametrize("n", [3, 30, 80])
def test_pairs_that_agree_leave_a_width_that_shrinks_with_their_number(n):
    found = both_orders(of_pairs(0, 0, n))
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
    found = both_orders(of_pairs(first, second, n))
    size = n * (n - 1) / n  # the variance of a sample counts n - 1
    quantile = t.ppf(0.975, n - 1) * np.sqrt(n / size)
    for end, sign in ((found.low, 1), (found.high, -1)):
        assert z_by_definition(first, second, n, 2 * end - 1) == pytest.approx(sign * quantile, rel=1e-4)


def test_a_position_has_a_mirror_image_and_pairs_of_a_document_that_move_together_count_once():
    ours, theirs = both_orders(of_pairs(7, 1, 40)), both_orders(of_pairs(1, 7, 40))
    assert (ours.low, ours.high) == pytest.approx((1 - theirs.high, 1 - theirs.low))
    assert both_orders(of_pairs(12, 0, 12)).high == 1.0
    assert both_orders(of_pairs(0, 12, 12)).low == 0.0
    documents = np.repeat(np.arange(12), 10)
    alone = both_orders(of_pairs(3, 1, 12))
    together = both_orders(np.repeat(of_pairs(3, 1, 12), 10), clusters=documents)
    assert (together.low, together.high, together.units) == pytest.approx((alone.low, alone.high, 12))


def test_each_class_counts_half_and_one_in_a_single_input_tells_nothing():
    scores, classes = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.25]), np.array([0.0, 0.0, 1.0, 1.0, 1.0, np.nan])
    found = estimate_balanced_rate(scores, classes)
    assert (found.value, found.n, found.undefined, found.units) == ((0.5 + 1.0) / 2, 5, 1, 2)
    assert np.isnan(estimate_balanced_rate(np.ones(3), np.ones(3)).value)  # nothing in the first class
    for classes in ([0.0] * 6, [0.0] * 5 + [1.0]):
        found = estimate_balanced_rate(np.ones(6), np.array(classes))
        assert math.isnan(found.low)
        assert found.reason == ONE_SIDED


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
    four = [(0, 0, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 0, 0), (3, 1, 0), (3, 1, 1)]
    four += [(number + 4, of_class, win) for number, of_class, win in four]
    inputs, classes, wins = np.array(four, dtype=float).T
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


def test_the_interval_of_a_difference_is_paired():
    classes = np.repeat([0.0, 1.0], [12, 8])
    a = np.tile([1.0, 0.0], 10)
    found = estimate_balanced_rate(a, classes, before=a)
    assert (found.value, found.low) == pytest.approx((0.0, -found.high))
    assert found.high > 0.0
    other = estimate_balanced_rate(1 - a, classes, before=a)
    assert other.value == pytest.approx(0.0)
    assert other.high > 2 * found.high


def test_comparisons_are_normalized_and_averaged_by_hand():
    # coverage .8 and .5; shares (.75, .25) and (.4, .6) by position; the second order has the candidates swapped
    logprobs = np.log([[[0.6, 0.2], [0.2, 0.3]]])
    found = calibrate_comparisons(logprobs, BOTH, correction=None, min_coverage=0.5)
    np.testing.assert_allclose(found.positions, [[[0.75, 0.25], [0.4, 0.6]]])
    np.testing.assert_allclose(found.probabilities, [[(0.75 + 0.6) / 2, (0.25 + 0.4) / 2]])
    np.testing.assert_allclose(found.coverage, [0.5])
    low = calibrate_comparisons(logprobs, BOTH, correction=None, min_coverage=0.51)
    assert np.isnan(low.positions).all()
    assert np.isnan(low.probabilities).all()


def test_answers_that_are_impossible_are_undefined():
    found = calibrate_comparisons(np.full((1, 1, 2), -np.inf), [(0, 1)], correction=None, min_coverage=0.0)
    assert np.isnan(found.positions).all()
    certain = calibrate_comparisons(np.array([[[0.0, -np.inf]]]), [(0, 1)], correction=None, min_coverage=0.9)
    assert certain.probabilities.tolist() == [[1, 0]]
    huge = calibrate_comparisons(np.array([[[-2000.0, -2001.0]]]), [(0, 1)], correction=None, min_coverage=0.0)
    assert huge.positions[0, 0] == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)])  # no overflow


def test_batch_offsets_by_hand():
    # shares (.75, .25), (.5, .5); a row with an impossible answer is left out
    logprobs = np.log([[[0.6, 0.2]], [[0.1, 0.1]]])
    expected = [(math.log(0.75) + math.log(0.5)) / 2, (math.log(0.25) + math.log(0.5)) / 2]
    np.testing.assert_allclose(batch_offsets(logprobs), expected)
    with_impossible = np.concatenate([logprobs, [[[-0.1, -np.inf]]]])
    np.testing.assert_allclose(batch_offsets(with_impossible), expected)
    assert np.isnan(batch_offsets(np.full((2, 1, 3), NAN))).tolist() == [True] * 3
    # both orders of a comparison count
    orders = np.log([[[0.6, 0.2], [0.1, 0.1]]])
    np.testing.assert_allclose(batch_offsets(orders), expected)


def test_decisions_wins_and_gaps_by_hand():
    rows = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [NAN, NAN, NAN], [0.7, 0.2, 0.1]])
    assert position_calibration.decisions(rows) == [1, None, None, 0]
    np.testing.assert_allclose(position_calibration.gaps(rows), [0.2, 0.0, NAN, 0.5])
    np.testing.assert_array_equal(pairs.win_shares(rows, ties=False), rows)
    wins = [[0.35, 0.65], [0.5, 0.5], [NAN, NAN], [0.75, 0.25]]
    np.testing.assert_allclose(pairs.win_shares(rows, ties=True), wins)
    np.testing.assert_allclose(pairs.win_shares(rows[None], ties=True)[0], wins)
    four = np.array([[0.0, 0.0, 0.0, 1.0], [0.6, 0.0, 0.1, 0.3]])
    np.testing.assert_allclose(pairs.win_shares(four, ties=True), [[1 / 3, 1 / 3, 1 / 3], [0.7, 0.1, 0.2]])


def planted(prior, n, *, noise, ties=False, seed=0):
    """Answers of a judge that multiplies the candidates' own odds by a prior over the positions: (n, c, c + t)."""
    rng, count = np.random.default_rng(seed), len(prior)
    orders = rotations(count, every=True)
    quality = rng.normal(0, 1.5, (n, count))
    logits = np.stack([quality[:, list(order)] for order in orders], axis=1) + np.log(prior)
    logits = logits + rng.normal(0, noise, logits.shape)
    if ties:
        logits = np.concatenate([logits, np.full((n, count, 1), 0.3)], axis=2)
    return quality, logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)


def test_the_prior_by_hand():
    # geometric means over the orders: sqrt(.6 * .3) = sqrt(.18) and sqrt(.2 * .1) = sqrt(.02), so 3 : 1
    logprobs = np.log([[[0.6, 0.2], [0.3, 0.1]]])
    assert position_prior(logprobs, BOTH) == pytest.approx([3 / 4, 1 / 4])
    # a second item without any bias has 1 : 1; the estimate is the mean of both priors
    second = np.log([[[0.8, 0.2], [0.2, 0.8]]])
    assert position_prior(np.concatenate([logprobs, second]), BOTH) == pytest.approx([5 / 8, 3 / 8])
    # log 3 and log 1 minus their mean
    offsets = position_calibration.prior_offsets(np.array([0.75, 0.25]), ties=True)
    assert offsets == pytest.approx([math.log(3) / 2, -math.log(3) / 2, 0])


def test_items_without_a_defined_probability_leave_the_prior_alone():
    good = np.log([[[0.6, 0.2], [0.3, 0.1]]])
    with np.errstate(divide="ignore"):
        zero = np.log([[[1.0, 0.0], [0.5, 0.5]]])
    undefined = np.array([[[NAN, NAN], [-1.0, -1.0]]])
    assert position_prior(np.concatenate([zero, good, undefined]), BOTH) == pytest.approx([3 / 4, 1 / 4])
    assert np.isnan(position_prior(np.concatenate([zero, undefined]), BOTH)).all()
    with pytest.raises(ValueError, match="give all 2 rotations"):
        position_prior(good[:, :1], [(0, 1)])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("prior", [(0.7, 0.3), (0.1, 0.9), (0.5, 0.2, 0.3), (0.4, 0.3, 0.2, 0.1)])
def test_a_planted_prior_is_recovered_and_removed(prior, ties):
    orders = rotations(len(prior), every=True)
    _, noisy = planted(prior, 300, noise=0.5, ties=ties)
    assert position_prior(noisy, orders) == pytest.approx(prior, abs=0.02)
    quality, exact = planted(prior, 30, noise=0.0, ties=ties)
    known = position_calibration.prior_offsets(position_prior(exact, orders), ties=ties)
    offsets = position_calibration.PositionOffsets(tuple(known))
    found = calibrate_comparisons(exact, orders, correction=offsets, min_coverage=0.0)
    _, fair = planted([1 / len(prior)] * len(prior), 30, noise=0.0, ties=ties)
    if not ties:
        np.testing.assert_allclose(found.positions, np.exp(fair))
        assert position_calibration.decisions(found.probabilities) == quality.argmax(axis=1).tolist()
    # the odds of a tie against the geometric mean of the positions are those of the answers as they were
    count = len(prior)
    if ties:
        odds = np.log(found.positions[..., -1]) - np.log(found.positions[..., :count]).mean(axis=2)
        np.testing.assert_allclose(odds, exact[..., -1] - exact[..., :count].mean(axis=2))
