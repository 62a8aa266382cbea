"""Panels of judges: what their errors share at equal quality, against worked values and planted panels."""

from functools import partial

import numpy as np
import pytest

from benchmarks.juries import drawn
from evalbias.measures import juries
from evalbias.measures.juries import Panel


def panel(n=4000, *, judges=4, correlation=0.5, seed=0, raters=2, **options):
    scores, ratings, _ = drawn(np.random.default_rng(seed), n, judges, correlation, raters=raters)
    return Panel(scores, ratings, **options)


def test_votes_of_equal_judges_are_the_textbooks():
    """Of K judges whose errors correlate at rho they are K / (1 + (K - 1) rho); of unequal variances 1'S1 decides."""
    for rho, votes in ((0.0, 4), (0.5, 4 / 2.5), (1.0, 1)):
        errors = np.where(np.eye(4) == 1, 1.0, rho) / 2  # half of each score's variance
        found = juries.error_left((errors + 0.5)[None], np.full((1, 4), np.sqrt(0.5)))
        assert 1 / found[0] == pytest.approx(votes)
    covariances = np.array([[0.75, 0.1], [0.1, 0.36]])
    validities = np.array([0.5, 0.8])
    found = juries.error_left((covariances + np.outer(validities, validities))[None], validities[None])
    assert 1 / found[0] == pytest.approx(2 * 1.11 / 1.31)


def test_a_mean_follows_quality_as_its_parts_do_and_scales_and_order_do_not_matter():
    correlations, validities = np.array([[[1.0, 0.28], [0.28, 1.0]]]), np.array([[0.6, 0.8]])
    found = juries.validity(correlations, validities, weights=np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert found[0] == pytest.approx([0.6, 1.4 / np.sqrt(2.56)])
    scores, ratings, _ = drawn(np.random.default_rng(1), 300, 3, 0.3)
    first, second = Panel(scores, ratings), Panel(scores[:, ::-1] * [2, 30, 4] + 7, 10 * ratings[:, ::-1] - 3)
    assert second.validities[::-1] == pytest.approx(first.validities)
    assert second.votes().low == pytest.approx(first.votes().low)


def test_raters_noise_does_not_make_errors_alike():
    found = panel(20_000, correlation=0.0)
    assert found.estimate(juries.error_correlation).value == pytest.approx(0.0, abs=0.02)
    noisy = found.validities * np.sqrt(1 - found.noise)
    assert juries.error_correlation(found.correlations[None], noisy[None])[0] > 0.1
    assert found.votes().value == pytest.approx(4, abs=0.3)


def test_pairs_count_both_ways():
    """Which output of a pair is named first changes nothing."""
    scores, ratings, _ = drawn(np.random.default_rng(2), 200, 3, 0.3)
    signs = np.random.default_rng(3).choice([-1, 1], size=(200, 1))
    first, second = (Panel(s * scores, s * ratings, mirrored=True) for s in (1, signs))
    assert second.votes().value == pytest.approx(first.votes().value)
    assert second.votes().high == pytest.approx(first.votes().high)


def test_exact_labels_take_a_reliability():
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 6000)
    verdicts = np.where(rng.random((6000, 3)) < [0.9, 0.8, 0.7], truth[:, None], 1 - truth[:, None])
    found = Panel(verdicts, truth[:, None], reliability=1.0)
    assert found.validities == pytest.approx([0.8, 0.6, 0.4], abs=0.03)
    assert found.estimate(juries.error_correlation).value == pytest.approx(0, abs=0.03)
    with pytest.raises(ValueError, match="leave out reliability"):
        Panel(verdicts, np.column_stack([truth, truth]), reliability=1.0)


def test_systems_widen_the_interval_where_they_err_alike():
    scores, ratings, _ = drawn(np.random.default_rng(5), 1200, 4, 0.2)
    systems = np.arange(1200) % 12
    scores += np.random.default_rng(6).normal(size=(12, 1))[systems]
    alone, both = Panel(scores, ratings), Panel(scores, ratings, systems=systems.tolist())
    lefts = [one.estimate(juries.error_left) for one in (alone, both)]
    assert lefts[0].value == lefts[1].value
    assert lefts[1].high - lefts[1].low > 1.5 * (lefts[0].high - lefts[0].low)
    assert both.systems == lefts[1].units == 12


def test_what_cannot_be_told_is_refused():
    scores, ratings, _ = drawn(np.random.default_rng(8), 60, 3, 0.3)
    with pytest.raises(ValueError, match="0 items have a score of each of 3 judges and two ratings"):
        Panel(scores, ratings[:, :1])
    with pytest.raises(ValueError, match="The scores are of 1 judges: give two or more"):
        Panel(scores[:, :1], ratings)
    with pytest.raises(ValueError, match=r"of each of 2 judges \('b' scored 9\) and two ratings"):
        Panel(np.column_stack([scores[:, 0], [*scores[:9, 1], *[np.nan] * 51]]), ratings, names="ab")
    with pytest.raises(ValueError, match="The items are of one input: give items of several"):
        Panel(scores, ratings, clusters=["a"] * 60)
    with pytest.raises(ValueError, match="do not tell quality"):
        Panel(scores, np.column_stack([ratings[:, 0], -ratings[:, 0]]))
    scores[1:, 2] = 4.0
    with pytest.raises(ValueError, match="judge 'c' gives all the same score"):
        Panel(scores, ratings, names="abc")


def test_what_is_undefined_is_left_out_and_counted():
    scores, ratings, _ = drawn(np.random.default_rng(9), 200, 3, 0.3)
    scores[:7, 0], ratings[7:10, 0] = np.nan, np.nan
    votes = Panel(scores, ratings).votes()
    assert (votes.n, votes.undefined) == (190, 10)
    assert votes.value == pytest.approx(Panel(scores[10:], ratings[10:]).votes().value)


def test_no_correlation_is_beyond_1_however_little_the_ratings_tell():
    """The estimate that lies beyond is 1, as are the ends; the p is that of what was estimated."""
    scores, ratings, _ = drawn(np.random.default_rng(0), 40, 3, 0.3)
    found = Panel(scores + ratings.mean(axis=1, keepdims=True), ratings)
    assert found.validities.max() > 1
    weights = np.eye(3)[found.validities.argmax()]
    e = found.estimate(partial(juries.validity, weights=weights))
    raw = found.estimate(partial(juries.validity, weights=weights), most=np.inf)
    assert (e.value, e.high, e.p_value) == (1, 1, raw.p_value)
    assert e.low == min(raw.low, 1)
    assert raw.high > 1
