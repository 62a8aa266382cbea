import math

import numpy as np
import pytest

from evalbias.measures import win_shares
from evalbias.measures.position_calibration import (
    PositionOffsets,
    batch_offsets,
    by_candidate,
    calibrate_comparisons,
    decisions,
    gaps,
    rotations,
)

NAN = math.nan


def test_rotations():
    assert rotations(3, every=True) == [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    assert rotations(3, every=False) == [(0, 1, 2)]
    assert rotations(2, every=True) == [(0, 1), (1, 0)]


def test_positions_become_candidates_by_hand():
    positions = np.array([[[0.6, 0.3, 0.1], [0.7, 0.1, 0.2]]])  # two orders of two candidates and a tie
    found = by_candidate(positions, [(0, 1), (1, 0)])
    assert found.tolist() == [[[0.6, 0.3, 0.1], [0.1, 0.7, 0.2]]]
    assert positions[0, 1].tolist() == [0.7, 0.1, 0.2]  # the given array stays
    three = by_candidate(np.array([[[0.5, 0.3, 0.2]]]), [(1, 2, 0)])
    assert three.tolist() == [[[0.2, 0.5, 0.3]]]


def test_comparisons_are_normalized_and_averaged_by_hand():
    # coverage .8 and .5; shares (.75, .25) and (.4, .6) by position; the second order has the candidates swapped
    logprobs = np.log([[[0.6, 0.2], [0.2, 0.3]]])
    found = calibrate_comparisons(logprobs, [(0, 1), (1, 0)], correction=None, min_coverage=0.5)
    np.testing.assert_allclose(found.positions, [[[0.75, 0.25], [0.4, 0.6]]])
    np.testing.assert_allclose(found.probabilities, [[(0.75 + 0.6) / 2, (0.25 + 0.4) / 2]])
    np.testing.assert_allclose(found.coverage, [0.5])
    low = calibrate_comparisons(logprobs, [(0, 1), (1, 0)], correction=None, min_coverage=0.51)
    assert np.isnan(low.positions).all()
    assert np.isnan(low.probabilities).all()


def test_offsets_are_divided_out_by_hand():
    # .6 / .3 : .2 / .1 = 1 : 1, and .2 / .3 : .3 / .1 = 2 : 9
    logprobs = np.log([[[0.6, 0.2], [0.2, 0.3]]])
    offsets = PositionOffsets(tuple(np.log([0.3, 0.1])))
    found = calibrate_comparisons(logprobs, [(0, 1), (1, 0)], correction=offsets, min_coverage=0.0)
    np.testing.assert_allclose(found.positions, [[[0.5, 0.5], [2 / 11, 9 / 11]]])
    np.testing.assert_allclose(found.coverage, [0.5])  # of the answers as they were


def test_answers_that_are_impossible_are_undefined():
    found = calibrate_comparisons(np.full((1, 1, 2), -np.inf), [(0, 1)], correction=None, min_coverage=0.0)
    assert np.isnan(found.positions).all()
    certain = calibrate_comparisons(np.array([[[0.0, -np.inf]]]), [(0, 1)], correction=None, min_coverage=0.9)
    assert certain.probabilities.tolist() == [[1, 0]]


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


def test_three_candidates_share_a_tie_by_thirds():
    rows = np.array([[0.0, 0.0, 0.0, 1.0], [0.6, 0.0, 0.1, 0.3]])
    np.testing.assert_allclose(win_shares(rows, ties=True), [[1 / 3, 1 / 3, 1 / 3], [0.7, 0.1, 0.2]])


def test_huge_log_probabilities_do_not_overflow():
    found = calibrate_comparisons(np.array([[[-2000.0, -2001.0]]]), [(0, 1)], correction=None, min_coverage=0.0)
    assert found.positions[0, 0] == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)])
