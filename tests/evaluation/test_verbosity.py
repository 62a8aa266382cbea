"""Verbosity: the effect of length at equal quality, for judges that score and judges that compare."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from planted import compared, flagged, numbers, scored

from evalbias.evaluation import BIASES, Judged, compare, measure
from evalbias.evaluation.biases import Verbosity
from evalbias.evaluation.estimates import Number
from evalbias.evaluation.judged import (
    BETTER,
    HUMAN_SCORES,
    LENGTHS,
    RATINGS,
)
from evalbias.measures import effect_at_equal_quality, estimate_effect
from evalbias.measures.pairs import ONE_GROUP, counted_gap, estimate_gap

NAN = math.nan


def pairs_judged(answers, ties=False, **covariates):
    answers = np.array(answers, dtype=float)
    return Judged(tuple(map(str, range(len(answers)))), "quality", answers, covariates, ties=ties)


@pytest.mark.slow
@pytest.mark.parametrize("n", [120, 568])
@pytest.mark.parametrize("draw", [scored, compared])
def test_an_unbiased_judge_is_not_flagged_although_longer_text_is_better(n, draw):
    assert flagged(Verbosity(), "length_effect", lambda rng: draw(rng, n), sets=150) <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"orders": 2}, {"orders": 1}])
def test_verdicts_without_probabilities_do_not_flag_an_unbiased_judge(options):
    def draw(rng):
        return compared(rng, 300, verdicts=True, **options)

    assert flagged(Verbosity(), "length_effect", draw, sets=150) <= 0.08
    assert flagged(Verbosity(), "longer_rate", draw, sets=20) == 1.0  # it prefers better text, which is longer


@pytest.mark.parametrize("draw", [scored, compared])
def test_a_planted_preference_for_length_is_found(draw):
    assert flagged(Verbosity(), "length_effect", lambda rng: draw(rng, 200, length=0.4), sets=40) >= 0.9
    judged = draw(np.random.default_rng(1), 600, length=-0.4)
    found = measure(Verbosity(), judged, seed=0, n_resamples=20)["length_effect"]
    assert found.high < 0


def test_the_effect_is_that_of_log_length():
    judged = scored(np.random.default_rng(2), 80)
    found = measure(Verbosity(), judged, seed=0, n_resamples=20)
    direct = effect_at_equal_quality(
        np.log(judged.covariates[LENGTHS]), judged.answers, judged.covariates[RATINGS], name="length"
    )
    assert list(found.estimates) == ["length_effect"]
    assert (found["length_effect"].value, found["length_effect"].low) == (direct.value, direct.low)
    assert BIASES["verbosity"] == Verbosity()


def test_one_rating_gives_bounds_and_a_stated_reliability_an_effect():
    judged = scored(np.random.default_rng(3), 400, raters=1)
    bounds = measure(Verbosity(), judged, seed=0, n_resamples=20)["length_effect"]
    assert math.isnan(bounds.value)
    known = measure(Verbosity(reliability=0.65), judged, seed=0, n_resamples=20)["length_effect"]
    assert bounds.low < known.low < known.high < bounds.high


def test_without_people_only_the_longer_candidate_is_counted():
    lengths = np.array([[9.0, 1.0], [2.0, 3.0]])
    judged = pairs_judged([[[0.8, 0.2]], [[0.6, 0.4]]], **{LENGTHS: lengths})
    assert list(numbers(Verbosity(), judged)) == ["longer_rate"]
    scores = Judged(("a",), "quality", np.ones(1), {LENGTHS: np.ones(1)})
    assert not Verbosity().applies(scores)
    assert Verbosity().applies(Judged(("a",), "quality", np.ones(1), {LENGTHS: np.ones(1), HUMAN_SCORES: np.ones(1)}))


def test_preferences_by_hand():
    first, second, tie = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    verdicts = [[first, second], [first, first], [tie, second], [second, first], [(NAN,) * 3, first]]
    found = pairs_judged(verdicts, ties=True).strength
    assert found == pytest.approx([1, 0, 0.5, -1, NAN], nan_ok=True)
    assert pairs_judged([[(0.0, 1.0)], [(0.5, 0.5)]]).strength == pytest.approx([-1, 0])
    odds = pairs_judged([[(0.8, 0.2), (0.5, 0.5)], [(1.0, 0.0), (0.1234, 0.8766)]]).strength
    assert odds == pytest.approx([math.log(4) / 2, NAN], nan_ok=True)  # certain once: no finite log-odds
    odds = pairs_judged([[(0.8, 0.2), (0.5, 0.5)], [(0.6, 0.4), (0.2, 0.8)]]).strength
    assert odds == pytest.approx([math.log(4) / 2, math.log(1.5 * 4) / 2])


def test_shares_of_drawn_answers_are_no_certainty():
    shares = [[(1.0, 0.0), (0.2, 0.8)], [(0.6, 0.4), (0.0, 1.0)], [(NAN, NAN), (0.4, 0.6)]]
    found = pairs_judged(shares)
    assert found.strength == pytest.approx([0.8, 0.6, NAN], nan_ok=True)
    assert found.verdicts
    thirds = [[(1 / 3, 1 / 3, 1 / 3), (0.0, 1.0, 0.0)]]  # a tie of three answers: sixths
    assert pairs_judged(thirds, ties=True).strength == pytest.approx([0.5])
    odds = pairs_judged([[(0.6, 0.4)], [(0.55, 0.45)]])
    assert odds.strength == pytest.approx([math.log(1.5), math.log(11 / 9)])
    assert not odds.verdicts


def test_a_drawn_judge_is_measured_on_the_pairs_that_it_is_sure_of_too():
    """Its verbosity among 400 pairs: most of five answers agree, so log-odds would leave few pairs."""
    rng = np.random.default_rng(0)
    quality, length = rng.normal(size=(2, 400))
    ratings = quality[:, None] + 0.5 * rng.normal(size=(400, 2))
    win = 1 / (1 + np.exp(-3 * (quality + 0.5 * length)))
    drawn = np.stack([rng.binomial(5, win), rng.binomial(5, 1 - win)], axis=1) / 5
    lengths = np.exp(np.stack([length, np.zeros(400)], axis=1))
    judged = pairs_judged(np.stack([drawn, 1 - drawn], axis=2), **{LENGTHS: lengths, RATINGS: ratings})
    found = measure(Verbosity(), judged, seed=0, n_resamples=20)["length_effect"]
    assert (found.n, found.undefined) == (400, 0)
    assert found.low > 0


def test_ratings_by_hand():
    scores = pairs_judged([[(0.5, 0.5)]], **{HUMAN_SCORES: np.array([[4.0, 1.5]])})
    assert scores.ratings.tolist() == [[2.5]]
    rated = pairs_judged([[(0.5, 0.5)]], **{HUMAN_SCORES: np.array([[4.0, 1.5]]), RATINGS: np.array([[2.0, 3.0]])})
    assert rated.ratings.tolist() == [[2.0, 3.0]]
    lengths = pairs_judged([[(0.5, 0.5)]] * 2, **{LENGTHS: np.array([[1.0, math.e], [0.0, 1.0]])})
    assert Verbosity().feature(lengths) == pytest.approx(np.array([[0, 1], [NAN, 0]]), nan_ok=True)  # an empty output


def test_the_accuracy_gap_by_hand():
    # the longer one wins, wins, loses, ties; people prefer the longer, the shorter, the shorter, the longer
    answers = [[(0.9, 0.1)], [(0.9, 0.1)], [(0.8, 0.2)], [(0.5, 0.5)], [(0.9, 0.1)], [(0.9, 0.1)]]
    lengths = np.array([[9, 1], [9, 1], [1, 9], [9, 1], [3, 3], [9, 1]], dtype=float)
    judged = pairs_judged(answers, **{LENGTHS: lengths, BETTER: np.array([0.0, 1.0, 0.0, 0.0, 1.0, NAN])})
    gap = measure(Verbosity(), judged, seed=0, n_resamples=50)["accuracy_gap"]
    assert gap.value == pytest.approx((1 + 0.5) / 2 - (0 + 1) / 2)
    assert (gap.n, gap.excluded, gap.undefined, gap.confounded) == (4, 1, 1, True)
    assert judged.ratings[:, 0] == pytest.approx([1, -1, 1, 1, -1, NAN], nan_ok=True)


def test_gaps_of_resamples_are_those_of_their_items():
    values, members = np.array([1.0, 0.0, 0.5, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])
    assert estimate_gap(values, members).value == 0.5 - 0.75
    counts = np.array([[2.0, 1.0, 1.0, 0.0], [1.0, 3.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    found = counted_gap(counts, values, members)
    assert found == pytest.approx([2 / 3 - 0.5, 1 / 4 - 1, NAN], nan_ok=True)


def test_gaps_of_judges_that_are_mostly_right_hold_the_truth():
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):  # people prefer the longer one in 85 % of the pairs, and the judge is right in 95 %
        members, right = (rng.random(80) < 0.85).astype(float), (rng.random(80) < 0.95).astype(float)
        found = estimate_gap(right, members)
        held += found.low <= 0 <= found.high
    assert held >= 185
    flawless = estimate_gap(np.ones(40), np.arange(40.0) % 2)
    assert flawless.low == pytest.approx(-flawless.high)
    assert 0.1 < flawless.high < 0.3
    assert estimate_gap(np.ones(40), np.ones(40)).reason == ONE_GROUP


def choose(judged, rng, errors=0.0):
    """Replace the ratings by one choice of people, as often wrong as stated."""
    better = (judged.covariates[RATINGS].mean(axis=1) < 0).astype(float)
    better = np.where(rng.random(len(better)) < errors, 1 - better, better)
    return replace(judged, covariates={LENGTHS: judged.covariates[LENGTHS], BETTER: better})


@pytest.mark.slow
@pytest.mark.parametrize("errors", [0.0, 0.1])
def test_peoples_choices_alone_give_bounds_that_do_not_flag_an_unbiased_judge(errors):
    def draw(rng):
        return choose(compared(rng, 568, verdicts=True, noise=0.3), rng, errors)

    assert flagged(Verbosity(), "length_effect", draw, sets=100) <= 0.05


def test_peoples_choices_find_a_strong_preference_for_length():
    def draw(rng):
        return choose(compared(rng, 568, verdicts=True, noise=0.3, length=1.5), rng, 0.1)

    assert flagged(Verbosity(), "length_effect", draw, sets=20) >= 0.9
    assert flagged(Verbosity(reliability=0.45), "length_effect", draw, sets=20) == 1.0


def test_other_features_can_be_held_fixed():
    rng = np.random.default_rng(4)
    judged = scored(rng, 600, likelihood=0.5)
    ratings, scores = judged.covariates[RATINGS], judged.answers
    # length that goes with likelihood has the effect of likelihood, unless likelihood is held fixed
    ls = judged.covariates["likelihoods"]
    length = ls + 0.5 * rng.normal(size=600)
    joint = effect_at_equal_quality(length, scores, ratings, covariates={"likelihood": ls})
    assert effect_at_equal_quality(length, scores, ratings).low > 0.1
    assert joint.low < 0 < joint.high
    estimator = partial(estimate_effect, names=("length", "likelihood"))
    number = Number("x", "x", scores, estimator, given=(ratings, length, ls))
    assert number.value() == joint.value
    assert number.like(replace(number, given=(ratings, length, ls.copy()), values=length))
    assert not number.like(replace(number, given=(ratings, length, ls + length)))
    assert not number.like(replace(number, given=(ratings, length)))
    assert not number.like(replace(number, estimator=partial(estimate_effect, names=("length", "other"))))


def test_a_feature_that_is_0_or_1_has_the_effect_of_its_unit():
    rng = np.random.default_rng(5)
    quality, own = rng.normal(size=4000), rng.integers(0, 2, size=4000).astype(float)
    ratings = quality[:, None] + 0.7 * rng.normal(size=(4000, 2))
    scores = quality + 0.5 * own + 0.5 * rng.normal(size=4000)
    unit = effect_at_equal_quality(own, scores, ratings, standardized=False)
    assert unit.value * unit.score_sd == pytest.approx(0.5, abs=0.05)
    scaled = effect_at_equal_quality(own, scores, ratings)
    assert scaled.value == pytest.approx(unit.value * own.std())
    assert scaled.standard_error == pytest.approx(unit.standard_error * own.std(), rel=1e-3)
    constant = effect_at_equal_quality(np.ones(4000), scores, ratings, name="writer", standardized=False)
    assert constant.reason == "all items have the same writer"


def test_two_judges_are_compared_on_length():
    before = scored(np.random.default_rng(6), 500, length=0.5)
    after = replace(before, answers=scored(np.random.default_rng(6), 500).answers)
    measured = [measure(Verbosity(), one, seed=0, n_resamples=20) for one in (before, after)]
    found = compare(*measured, n_resamples=50, n_intervals=20, seed=0)["length_effect"]
    assert found.difference.high < 0
    assert found.p_value < 1e-4
