"""The likelihood effect of judged items: estimates, comparisons, pairs, and what is said about it."""

import math
from dataclasses import replace

import dspy
import numpy as np
import pytest

from evalbias.evaluation import BIASES, Judged, compare, measure, total
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.estimates import Estimate
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, human_ratings
from evalbias.measures import Draws, likelihood_effect
from evalbias.measures.equal_quality import SCORE_SD
from evalbias.programs import Criterion

NAN = math.nan
LIKELIER = "An output that is one standard deviation likelier gets "


def simulated(n=240, effect=0.4, *, seed=0, outputs=1, **covariates):
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=n)
    ls = 0.5 * quality + rng.normal(size=n)
    ratings = quality[:, None] + 0.7 * rng.normal(size=(n, 3))
    scores = 3 + quality + effect * ls + 0.5 * rng.normal(size=n)
    covariates = {LIKELIHOODS: ls, HUMAN_SCORES: ratings.mean(axis=1), RATINGS: ratings, **covariates}
    inputs = tuple(f"d{i // outputs}" for i in range(n))
    return Judged(tuple(map(str, range(n))), "wit", scores, covariates, inputs)


def test_the_effect_leads_with_its_own_interval_over_inputs():
    judged = simulated(outputs=4)
    found = measure(Likelihood(), judged, seed=0, n_resamples=50)
    direct = likelihood_effect(
        judged.covariates[LIKELIHOODS], judged.answers, judged.covariates[RATINGS], clusters=judged.inputs
    )
    first = found["likelihood_effect"]
    assert next(iter(found.estimates)) == found.headlines[0] == "likelihood_effect"
    assert (first.value, first.low, first.high) == pytest.approx((direct.value, direct.low, direct.high))
    assert (first.null, first.n, first.undefined, first.units) == (0.0, 240, 0, 60)
    assert first.value > 0.2
    assert Likelihood().fit(judged) == direct
    assert BIASES["likelihood"] == Likelihood()


def test_items_without_two_ratings_do_not_count():
    judged = simulated()
    ratings = judged.covariates[RATINGS].copy()
    ratings[:10, 1:] = NAN
    ratings[10] = NAN
    changed = replace(judged, covariates={**judged.covariates, RATINGS: ratings})
    found = measure(Likelihood(), changed, seed=0, n_resamples=50)
    assert (found["likelihood_effect"].n, found["likelihood_effect"].undefined) == (229, 11)
    assert found["bias_score"].n == 240
    rest = likelihood_effect(*(v[11:] for v in (judged.covariates[LIKELIHOODS], judged.answers, ratings)))
    assert found["likelihood_effect"].value == pytest.approx(rest.value)


def test_two_judges_are_compared_by_the_paired_effect():
    before = simulated(effect=0.5)
    after = replace(before, answers=before.answers - 0.5 * before.covariates[LIKELIHOODS])
    bias = Likelihood()
    change = compare(*(measure(bias, one, seed=0, n_resamples=50) for one in (before, after)), n_resamples=200, seed=0)
    found = change["likelihood_effect"]
    arrays = before.covariates[LIKELIHOODS], after.answers, before.covariates[RATINGS]
    direct = likelihood_effect(*arrays, before=before.answers)
    assert found.difference.value == pytest.approx(direct.value)
    assert (found.difference.low, found.difference.high) == pytest.approx((direct.low, direct.high))
    assert found.p_value == direct.p_value < 1e-6
    assert found.p_itemwise is None
    assert found.after.value - found.before.value == pytest.approx(direct.value)
    assert found.text().endswith("*")
    other, first = (measure(bias, one, seed=0, n_resamples=9) for one in (simulated(seed=1), before))
    with pytest.raises(ValueError, match="likelihood_effect was measured before and after with different"):
        compare(first, other, seed=0)
    recipe = bias.number("likelihood_effect", before)
    with pytest.raises(ValueError, match="has a 95 % interval only"):
        recipe.estimator(recipe.values, *recipe.given, draws=Draws(confidence=0.9))


def test_a_mean_without_ratings_is_one_rating_of_unknown_reliability():
    judged = simulated()
    bare = replace(judged, covariates={k: v for k, v in judged.covariates.items() if k != RATINGS})
    found = measure(Likelihood(), bare, seed=0, n_resamples=50)["likelihood_effect"]
    assert math.isnan(found.value)
    assert found.low < 0.1 < found.high
    known = Likelihood(reliability=0.86)  # of a mean of three: 1 / (1 + .49 / 3)
    stated = measure(known, bare, seed=0, n_resamples=50)["likelihood_effect"]
    best = measure(Likelihood(), judged, seed=0, n_resamples=50)["likelihood_effect"]
    assert stated.value == pytest.approx(best.value, abs=0.06)
    with pytest.raises(ValueError, match="have several ratings"):
        known.fit(judged)


def test_comparisons_with_ratings_have_an_effect_on_the_log_odds():
    rng = np.random.default_rng(3)
    quality, n = rng.normal(size=(400, 2)), 400
    ls = 0.5 * quality + rng.normal(size=(n, 2))
    ratings = quality[:, :, None] + 0.7 * rng.normal(size=(n, 2, 2))
    differences = ratings[:, 0] - ratings[:, 1]
    pull = 0.8 * (quality[:, 0] - quality[:, 1]) + 0.5 * (ls[:, 0] - ls[:, 1])
    first, swapped = (1 / (1 + np.exp(-(0.4 + side * pull + 0.3 * rng.normal(size=n)))) for side in (1, -1))
    answers = np.stack([np.stack([p, 1 - p], axis=1) for p in (first, swapped)], axis=1)  # (n, 2, 2)
    judged = Judged(tuple(map(str, range(n))), "wit", answers, {LIKELIHOODS: ls, RATINGS: differences})
    found = measure(Likelihood(), judged, seed=0, n_resamples=20)["likelihood_effect"]
    log_odds = (np.log(first / (1 - first)) - np.log(swapped / (1 - swapped))) / 2
    direct = likelihood_effect(ls[:, 0] - ls[:, 1], log_odds, differences, differences=True, mirrored=True)
    assert (found.value, found.low, found.high) == pytest.approx((direct.value, direct.low, direct.high))
    assert found.low > 0
    answers[0, 0] = (1.0, 0.0)  # certain: no finite log-odds
    again = measure(Likelihood(), replace(judged, answers=answers), seed=0, n_resamples=20)["likelihood_effect"]
    assert (again.n, again.undefined) == (399, 1)
    one_order = replace(judged, answers=answers[:, :1]).take(np.arange(1, n))
    single = measure(Likelihood(), one_order, seed=0, n_resamples=20)["likelihood_effect"]
    direct = likelihood_effect((ls[:, 0] - ls[:, 1])[1:], np.log(first / (1 - first))[1:], differences[1:])
    assert single.value == pytest.approx(direct.value)
    unrated = replace(judged, covariates={LIKELIHOODS: ls})
    assert "likelihood_effect" not in {one.name for one in Likelihood().numbers(unrated)}


def test_ratings_of_items_and_of_a_total():
    examples = [dspy.Example(ratings={"wit": [1, None, 3]}), dspy.Example(), dspy.Example(ratings={"wit": [2]})]
    rows = human_ratings(examples, Criterion("wit", "is it witty?"))
    expected = np.array([[1, NAN, 3], [NAN, NAN, NAN], [2, NAN, NAN]])
    assert np.array_equal(rows, expected, equal_nan=True)
    both = [simulated(seed=0), simulated(seed=0)]
    both[1] = replace(both[1], covariates={**both[1].covariates, RATINGS: both[1].covariates[RATINGS] + 2})
    assert total(both).covariates[RATINGS] == pytest.approx(both[0].covariates[RATINGS] + 1)
    both[1] = replace(both[1], covariates={**both[1].covariates, RATINGS: both[1].covariates[RATINGS][:, :2]})
    assert RATINGS not in total(both).covariates


def test_usable_items_by_hand():
    ls, scores = np.array([1.0, NAN, 2.0]), np.arange(3.0)
    for ratings in ([[1.0, 2.0], [1.0, 2.0], [1.0, NAN]], [[1.0], [1.0], [NAN]]):
        found = likelihood_effect(ls, scores, ratings)
        assert (found.n, found.undefined) == (1, 2)


@pytest.mark.parametrize(
    ("found", "points", "shown"),
    [
        ((0.42, 0.24, 0.6), "0.21 more", "(95 % interval 0.12 to 0.30): the judge overrates likelier outputs."),
        ((-0.42, -0.6, -0.24), "0.21 fewer", "(95 % interval 0.12 to 0.30): the judge underrates likelier outputs."),
        ((0.1, -0.1, 0.3), "0.05 more", "(95 % interval -0.05 to 0.15): no effect of likelihood is shown."),
        (
            (NAN, 0.1, 0.9),
            "between 0.05 and 0.45 more",
            "(95 % interval, if the reliability of one rating is .5 or more): the judge overrates likelier outputs.",
        ),
    ],
)
def test_the_effect_in_words(found, points, shown):
    value, low, high = found
    estimate = Estimate("likelihood_effect", "effect of likelihood", value, low, high, 9, 0, unit=SCORE_SD, points=0.5)
    assert (
        Likelihood().conclusion(estimate, replace(simulated(), scale=(1, 5)))
        == f"{LIKELIER}{points} points at equal quality on the scale of 1 to 5 {shown}"
    )


@pytest.mark.parametrize("value", [NAN, 0.3])
def test_an_effect_without_an_interval_is_not_told(value):
    why = "the scores follow people's ratings exactly"
    estimate = Estimate("likelihood_effect", "effect of likelihood", value, NAN, NAN, 9, 0, reason=why)
    assert Likelihood().conclusion(estimate, simulated()) == f"The effect of likelihood cannot be told: {why}."


def test_bounds_name_the_reliabilities_that_they_hold_for():
    rng = np.random.default_rng(0)
    for human, least in ((rng.integers(0, 2, 60), ".32"), (rng.integers(1, 6, 60), ".5")):  # pass or fail: 1 / pi
        judged = simulated(60)
        judged = replace(
            judged, covariates={LIKELIHOODS: judged.covariates[LIKELIHOODS], HUMAN_SCORES: human.astype(float)}
        )
        found = measure(Likelihood(), judged, seed=0, n_resamples=9)["likelihood_effect"]
        assert math.isnan(found.value)
        assert f"if the reliability of one rating is {least} or more" in Likelihood().sentence(found, judged)


@pytest.mark.parametrize("n", [8, 40])
def test_scores_that_follow_the_ratings_exactly_do_not_tell_how_far_others_deviate(n):
    rng = np.random.default_rng(n)
    quality, ls = rng.integers(1, 6, size=n).astype(float), rng.normal(size=n)
    unanimous = np.column_stack([quality] * 3)
    for ratings, options in ((unanimous, {}), (unanimous[:, :1], {"reliability": 1.0})):
        found = likelihood_effect(ls, 2 * quality + 1, ratings, **options)
        assert found.value == pytest.approx(0, abs=1e-5)
        assert np.isnan([found.low, found.high, found.standard_error, found.p_value]).all()
        assert found.reason.startswith("the scores follow people's ratings exactly")
    change = likelihood_effect(ls, 2 * (quality + ls) / 3 + 0.1, unanimous, before=quality + ls)
    assert (change.reason, math.isnan(change.low)) == ("both judges score alike", True)  # but for their scale
    one = likelihood_effect(ls, quality + (ls == ls.max()), unanimous)  # deviates, and that tells something
    assert one.high - one.low > 0.05


def test_a_bias_score_that_hangs_on_few_items_is_told():
    judged = simulated(400)
    assert Likelihood().caution(judged) == ""
    few = simulated(40)
    assert Likelihood().caution(few).startswith("BiasScore follows the range of the scores: 40 items are few for it")
    scores = judged.answers.copy()
    scores[np.argmin(judged.covariates[LIKELIHOODS])] = 60.0
    told = Likelihood().caution(replace(judged, answers=scores))
    assert "items with the lowest and highest scores it is" in told
