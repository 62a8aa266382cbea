"""Self-preference: what a judge gives its own system's outputs at equal quality."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, flagged, numbers, scored

from evalbias.evaluation import BIASES, Judged, measure
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import SelfPreference, written_by
from evalbias.evaluation.judged import HUMAN_SCORES, RATINGS
from evalbias.measures import effect_at_equal_quality

NAN = math.nan
MINE = SelfPreference(own="mine")


@pytest.mark.slow
@pytest.mark.parametrize("n", [120, 568])
@pytest.mark.parametrize("draw", [scored, compared])
def test_an_unbiased_judge_is_not_flagged_although_its_own_system_writes_better(n, draw):
    assert flagged(MINE, "own_excess", lambda rng: draw(rng, n), sets=100) <= 0.08


def test_failures_are_chosen_without_flagging_an_unbiased_judge():
    def draw(rng):
        return scored(rng, 400, raters=4)

    assert flagged(MINE, "own_excess_at_failures", draw, sets=100) <= 0.08


@pytest.mark.parametrize("draw", [scored, compared])
def test_a_planted_preference_is_found(draw):
    assert flagged(MINE, "own_excess", lambda rng: draw(rng, 300, own=0.6), sets=30) >= 0.9


def test_the_excess_is_that_of_one_output_instead_of_another():
    judged = scored(np.random.default_rng(0), 3000, own=0.5, raters=3)
    found = measure(MINE, judged, seed=0)
    own = np.array([w == "mine" for w in judged.writers], dtype=float)
    direct = effect_at_equal_quality(own, judged.answers, judged.covariates[RATINGS], standardized=False)
    excess = found["own_excess"]
    assert (excess.value, excess.low, excess.high) == (direct.value, direct.low, direct.high)
    assert excess.value * judged.answers.std() == pytest.approx(0.5, abs=0.12)  # in points, less what the ends cut off
    assert set(found.estimates) == {
        "own_excess", "own_excess_at_failures", "excess_of_mine", "excess_of_other", "excess_of_third"
    }  # fmt: skip
    assert found["excess_of_mine"].value == excess.value
    assert found["excess_of_other"].high < 0
    assert found["own_excess_at_failures"].low > 0


def test_failures_by_hand():
    # the rating that CRC-32 of the id chooses, modulo 3, is the first of all but b, whose third it is: 5, 4, 3, 1 and,
    # with two ratings, none; their median is 3.5
    ratings = np.array([[5, 1, 1], [4, 1, 4], [3, 3, 2], [1, 5, 5], [1, 1, NAN]], dtype=float)
    human = {RATINGS: ratings, HUMAN_SCORES: np.nanmean(ratings, axis=1)}
    judged = Judged(tuple("abcde"), "quality", np.arange(5.0), human, writers=["mine", "other"] * 2 + ["mine"])
    (left, *_) = numbers(MINE, judged)["own_excess_at_failures"].given
    assert np.isnan(left).all(axis=1).tolist() == [True, True, False, False, True]
    (turned, *_) = numbers(MINE, judged.take(np.arange(5)[::-1]))["own_excess_at_failures"].given
    np.testing.assert_array_equal(turned[::-1], left)
    assert ratings[0, 0] == 5  # the given ratings are left as they are


def test_writers_of_pairs():
    judged = Judged(("a", "b"), "quality", np.full((2, 1, 2), 0.5), writers=[("mine", "other"), ("other", "mine")])
    assert written_by(judged, "mine").tolist() == [[1, 0], [0, 1]]


def test_what_it_needs():
    judged = scored(np.random.default_rng(1), 50)
    assert MINE.applies(judged)
    assert not SelfPreference(own="absent").applies(judged)
    assert not MINE.applies(replace(judged, writers=["mine"] * 50))
    assert not MINE.applies(replace(judged, writers=()))
    assert not MINE.applies(replace(judged, covariates={}))
    found = measure(BIASES["self_preference"], judged, seed=0)
    assert set(found.estimates) == {"excess_of_mine", "excess_of_other", "excess_of_third"}


def test_pairs_in_which_one_system_always_stands_first_cannot_tell_in_one_order():
    judged = compared(np.random.default_rng(0), 40, orders=1)
    judged = replace(judged, writers=[("mine", "other")] * 40)
    found = audit_answers(judged, own_system="mine")
    assert found.not_measured["self_preference"].startswith("it needs pairs in which either system stands first")
    swapped = replace(judged, writers=[("mine", "other"), ("other", "mine")] * 20)
    assert MINE.applies(swapped)
    assert not MINE.applies(judged)


def test_both_orders_tell_whichever_system_the_data_name_first():
    judged = compared(np.random.default_rng(0), 200, own=0.8)
    judged = judged.take(np.array([i for i, pair in enumerate(judged.writers) if len(set(pair)) == 2]))
    other_first = np.array([pair[0] == "other" for pair in judged.writers])
    people = judged.covariates
    turned = replace(
        judged,
        answers=np.where(other_first[:, None, None], judged.answers[:, ::-1], judged.answers),
        covariates={RATINGS: np.where(other_first[:, None], -people[RATINGS], people[RATINGS])},
        writers=[("mine", "other")] * len(judged.ids),
    )
    found, again = (measure(MINE, one, seed=0, n_resamples=20)["own_excess"] for one in (judged, turned))
    assert (again.value, again.low, again.high) == pytest.approx((found.value, found.low, found.high))
    assert found.low > 0
