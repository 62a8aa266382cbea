"""PriDe: by hand, and on a judge whose position bias is planted."""

import math

import numpy as np
import pytest

from evalbias.measures import win_shares
from evalbias.measures.position_calibration import (
    PositionOffsets,
    batch_offsets,
    calibrate_comparisons,
    decisions,
    gaps,
    position_prior,
    prior_offsets,
    rotations,
)

BOTH = rotations(2, every=True)
NAN = math.nan


# Averages over orders, and decisions.


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
    assert decisions(rows) == [1, None, None, 0]
    np.testing.assert_allclose(gaps(rows), [0.2, 0.0, NAN, 0.5])
    np.testing.assert_array_equal(win_shares(rows, ties=False), rows)
    wins = [[0.35, 0.65], [0.5, 0.5], [NAN, NAN], [0.75, 0.25]]
    np.testing.assert_allclose(win_shares(rows, ties=True), wins)
    np.testing.assert_allclose(win_shares(rows[None], ties=True)[0], wins)
    four = np.array([[0.0, 0.0, 0.0, 1.0], [0.6, 0.0, 0.1, 0.3]])
    np.testing.assert_allclose(win_shares(four, ties=True), [[1 / 3, 1 / 3, 1 / 3], [0.7, 0.1, 0.2]])


# PriDe.


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
    assert prior_offsets(np.array([0.75, 0.25]), ties=True) == pytest.approx([math.log(3) / 2, -math.log(3) / 2, 0])


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
    offsets = PositionOffsets(tuple(prior_offsets(position_prior(exact, orders), ties=ties)))
    found = calibrate_comparisons(exact, orders, correction=offsets, min_coverage=0.0)
    _, fair = planted([1 / len(prior)] * len(prior), 30, noise=0.0, ties=ties)
    if not ties:
        np.testing.assert_allclose(found.positions, np.exp(fair))
        assert decisions(found.probabilities) == quality.argmax(axis=1).tolist()
    # the odds of a tie against the geometric mean of the positions are those of the answers as they were
    count = len(prior)
    if ties:
        odds = np.log(found.positions[..., -1]) - np.log(found.positions[..., :count]).mean(axis=2)
        np.testing.assert_allclose(odds, exact[..., -1] - exact[..., :count].mean(axis=2))
