"""Effects at equal quality: likelihood, length and the own system, each by itself and in one model."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from commands import printed
from fakes import FormulaLM, items
from fakes import numbers as numbers_in
from planted import by_hand, compared, entangled, having, likelihood_effect, numbers, scored, with_effect, without

from evalbias.evaluation import BIASES, Judged, compare_judges, judge_examples, measure
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import Joint, Likelihood, SelfPreference, Verbosity, written_by
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, PER_TOKEN, RATINGS
from evalbias.lm.types import LogLikelihood
from evalbias.measures import Draws, EqualQuality
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.report.page import in_terminal

NAN = math.nan
MINE = SelfPreference(own="mine")


def test_every_effect_is_that_of_its_property_over_inputs():
    judged = scored(np.random.default_rng(0), 240, own=0.5, raters=3)
    judged = replace(judged, inputs=tuple(f"d{i // 4}" for i in range(240)))
    own = np.array([w == "mine" for w in judged.writers], dtype=float)
    columns = {"likelihood": judged.covariates[LIKELIHOODS], "length": np.log(judged.covariates[LENGTHS]), "own": own}
    joint = Joint(own="mine")
    for bias, name, feature, others in (
        (Likelihood(), "likelihood_effect", "likelihood", ()),
        (Verbosity(), "length_effect", "length", ()),
        (MINE, "own_excess", "own", ()),
        (MINE, "excess_of_mine", "own", ()),
        (joint, "likelihood", "likelihood", ("length", "own")),
        (joint, "length", "length", ("likelihood", "own")),
        (joint, "own_system", "own", ("likelihood", "length")),
    ):
        found = measure(bias, judged, seed=0, n_resamples=20)[name]
        held, options = {one: columns[one] for one in (feature, *others)}, {"unscaled": ["own"] * (feature == "own")}
        model = EqualQuality(judged.answers, judged.covariates[RATINGS], held, clusters=judged.inputs, **options)
        direct = model.effect(feature)
        assert (found.value, found.low, found.high) == pytest.approx((direct.value, direct.low, direct.high))
        assert (found.null, found.n, found.undefined, found.units) == (0.0, 240, 0, 60)
    for bias in (Likelihood(), Verbosity()):
        assert next(iter(numbers(bias, judged))) == bias.headlines[0] == bias.effect_name
        assert BIASES[bias.name] == bias
    assert list(numbers(joint, judged)) == ["likelihood", "length", "own_system"]


def test_two_judges_are_compared_by_the_paired_effect():
    before = with_effect(0.5)
    after = replace(before, answers=before.answers - 0.5 * before.covariates[LIKELIHOODS])
    bias = Likelihood()
    sides = [measure(bias, judged, seed=0, n_resamples=9) for judged in (before, after)]
    change = compare_judges(*sides, n_resamples=20, seed=0)
    found = change["likelihood_effect"]
    arrays = before.covariates[LIKELIHOODS], after.answers, before.covariates[RATINGS]
    direct = likelihood_effect(*arrays, before=before.answers)
    assert found.difference.value == pytest.approx(direct.value)
    assert (found.difference.low, found.difference.high) == pytest.approx((direct.low, direct.high))
    assert found.p_value == direct.p_value < 1e-6
    assert found.p_itemwise is None
    assert found.after.value - found.before.value == pytest.approx(direct.value)
    assert found.text().endswith("*")
    other, first = (measure(bias, one, seed=0, n_resamples=9) for one in (with_effect(0.5, seed=1), before))
    with pytest.raises(ValueError, match="likelihood_effect was measured before and after with different"):
        compare_judges(first, other, seed=0)
    recipe = bias.number("likelihood_effect", before)
    with pytest.raises(ValueError, match="has a 95 % interval only"):
        recipe.estimator(recipe.values, *recipe.columns, draws=Draws(confidence=0.9))


def test_a_mean_without_ratings_is_one_rating_of_unknown_reliability():
    judged = with_effect(0.4, ratings=3)
    bare = without(judged, RATINGS)
    found = measure(Likelihood(), bare, seed=0, n_resamples=50)["likelihood_effect"]
    assert math.isnan(found.value)
    known = Likelihood(reliability=0.75)  # of a mean of three: 1 / (1 + 1 / 3)
    stated = measure(known, bare, seed=0, n_resamples=50)["likelihood_effect"]
    assert found.low < stated.low < stated.high < found.high
    best = measure(Likelihood(), judged, seed=0, n_resamples=50)["likelihood_effect"]
    assert stated.value == pytest.approx(best.value, abs=0.06)
    with pytest.raises(ValueError, match="have several ratings"):
        known.number(known.effect_name, judged).value()


def test_comparisons_with_ratings_have_an_effect_on_the_log_odds():
    judged, n = compared(np.random.default_rng(3), 400, likelihood=0.5, first=0.4), 400
    answers, ls, differences = judged.answers, judged.covariates[LIKELIHOODS], judged.covariates[RATINGS]
    first, swapped = answers[:, 0, 0].copy(), answers[:, 1, 0]
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
    assert "likelihood_effect" not in numbers(Likelihood(), replace(judged, covariates={LIKELIHOODS: ls}))  # unrated


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


def test_preferences_by_hand():
    first, second, tie = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    verdicts = [[first, second], [first, first], [tie, second], [second, first], [(NAN,) * 3, first]]
    found = by_hand(verdicts, ties=True).strength
    assert found == pytest.approx([1, 0, 0.5, -1, NAN], nan_ok=True)
    assert by_hand([[(0.0, 1.0)], [(0.5, 0.5)]]).strength == pytest.approx([-1, 0])
    odds = by_hand([[(0.8, 0.2), (0.5, 0.5)], [(1.0, 0.0), (0.1234, 0.8766)]]).strength
    assert odds == pytest.approx([math.log(4) / 2, NAN], nan_ok=True)  # certain once: no finite log-odds
    odds = by_hand([[(0.8, 0.2), (0.5, 0.5)], [(0.6, 0.4), (0.2, 0.8)]]).strength
    assert odds == pytest.approx([math.log(4) / 2, math.log(1.5 * 4) / 2])


def test_shares_of_drawn_answers_are_no_certainty():
    found = by_hand([[(1.0, 0.0), (0.2, 0.8)], [(0.6, 0.4), (0.0, 1.0)], [(NAN, NAN), (0.4, 0.6)]])
    assert found.strength == pytest.approx([0.8, 0.6, NAN], nan_ok=True)
    assert found.verdicts
    thirds = [[(1 / 3, 1 / 3, 1 / 3), (0.0, 1.0, 0.0)]]  # a tie of three answers: sixths
    assert by_hand(thirds, ties=True).strength == pytest.approx([0.5])
    odds = by_hand([[(0.6, 0.4)], [(0.55, 0.45)]])
    assert odds.strength == pytest.approx([math.log(1.5), math.log(11 / 9)])
    assert not odds.verdicts


def test_ties_of_people_are_no_preference_and_an_empty_output_has_no_length():
    pairs = by_hand([[(0.9, 0.1)]] * 3, **{BETTER: [0, 1, NAN]})
    assert pairs.ratings[:, 0] == pytest.approx([1, -1, NAN], nan_ok=True)
    lengths = by_hand([[(0.5, 0.5)]] * 2, **{LENGTHS: [[1, math.e], [0, 1]]})
    assert Verbosity().feature(lengths) == pytest.approx(np.array([[0, 1], [NAN, 0]]), nan_ok=True)


def test_the_excess_is_that_of_one_output_instead_of_another():
    judged = scored(np.random.default_rng(0), 3000, own=0.5, raters=3)
    found = measure(MINE, judged, seed=0)
    excess = found["own_excess"]
    assert excess.value * judged.answers.std() == pytest.approx(0.5, abs=0.12)  # in points, less what the ends cut off
    assert set(found.estimates) == {
        "own_excess", "own_excess_at_failures", "excess_of_mine", "excess_of_other", "excess_of_third"
    }  # fmt: skip
    assert found["excess_of_other"].high < 0
    assert found["own_excess_at_failures"].low > 0
    assert {*numbers(BIASES["self_preference"], judged)} == {"excess_of_mine", "excess_of_other", "excess_of_third"}


def test_failures_by_hand():
    # the rating that CRC-32 of the id chooses, modulo 3, is the first of all but b, whose third it is: 5, 4, 3, 1 and,
    # with two ratings, none; their median is 3.5
    ratings = np.array([[5, 1, 1], [4, 1, 4], [3, 3, 2], [1, 5, 5], [1, 1, NAN]], dtype=float)
    writers = ["mine", "other"] * 2 + ["mine"]
    judged = Judged(tuple("abcde"), "quality", np.arange(5.0), {RATINGS: ratings}, writers=writers)
    (left, *_) = numbers(MINE, judged)["own_excess_at_failures"].columns
    assert np.isnan(left).all(axis=1).tolist() == [True, True, False, False, True]
    (turned, *_) = numbers(MINE, judged.take(np.arange(5)[::-1]))["own_excess_at_failures"].columns
    np.testing.assert_array_equal(turned[::-1], left)
    assert ratings[0, 0] == 5  # the given ratings are left as they are


def test_both_orders_tell_whichever_system_the_data_name_first():
    judged = compared(np.random.default_rng(0), 200, own=0.8)
    judged = judged.take(np.array([i for i, pair in enumerate(judged.writers) if len(set(pair)) == 2]))
    assert written_by(judged, ["mine"])[0].tolist() == [writer == "mine" for writer in judged.writers[0]]
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


@pytest.mark.slow
def test_an_audit_says_which_bias_may_look_like_another():
    found = audit_answers(entangled(np.random.default_rng(0), scored, length=0.5))
    alone = {finding.bias: finding.alone for finding in found.having("biased")}
    assert alone == {"likelihood": False, "verbosity": True}
    assert found.to_dict()["biases"]["likelihood"]["alone"] is False
    assert [finding.bias for finding in found.findings if finding.remedy] == ["verbosity"]
    plain = scored(np.random.default_rng(0), 400, length=0.5, likelihood=0.5)
    found = audit_answers(plain)
    assert all(finding.alone for finding in found.having("biased"))
    assert "held fixed" not in found.verdict
    same = -2 * np.log(plain.covariates[LENGTHS])  # one property under two names
    found = audit_answers(having(plain, **{LIKELIHOODS: same}))
    likelihood, verbosity = found.having("biased")
    assert likelihood.estimate.value == pytest.approx(-verbosity.estimate.value)
    assert np.isnan([likelihood.joint.low, verbosity.joint.low]).all()
    assert (likelihood.alone, verbosity.alone) == (False, False)
    assert re.search("Biased, .* or .*, which these data cannot tell apart", found.verdict)


def opposed(rng, n, *, length=0.0, likelihood=0.0, r=-0.85):
    """A judge on outputs whose LS falls with their length, as sums over tokens do: both effects cancel."""
    quality, (log_length, ls) = rng.normal(size=n), rng.multivariate_normal([0, 0], [[1, r], [r, 1]], size=n).T
    log_length, ls = (0.3 * quality + np.sqrt(0.91) * one for one in (log_length, ls))
    ratings = np.clip(np.round(3 + quality[:, None] + 0.7 * rng.normal(size=(n, 3))), 1, 5)
    scores = 3 + 0.6 * quality + length * log_length + likelihood * ls + 0.6 * rng.normal(size=n)
    covariates = {LENGTHS: np.exp(5 + log_length), LIKELIHOODS: ls, RATINGS: ratings}
    covariates[HUMAN_SCORES] = ratings.mean(axis=1)
    ids = tuple(map(str, range(n)))
    return Judged(ids, "quality", np.clip(np.round(scores), 1, 5), covariates, scale=(1, 5))


@pytest.mark.slow
def test_biases_that_cancel_are_found_with_each_other_held_fixed():
    found = audit_answers(opposed(np.random.default_rng(0), 500, length=0.3, likelihood=0.35))
    for name, feature in (("verbosity", "length"), ("likelihood", "likelihood")):
        (finding,) = (f for f in found.having("biased") if f.bias == name)
        headline = f"{feature}_effect"
        alone, joint = found[name][headline], found["joint"][feature]
        assert finding.hidden
        assert alone.low < 0.2
        assert (finding.estimate, finding.joint) == (replace(joint, name=f"{headline}_held_fixed"), joint)
        assert joint.low > 0.1
        assert f"({alone.text()} standard deviations of the score, 95 %" in finding.sentence
        assert finding.remedy
        content = found.to_dict()["biases"][name]
        assert (content["hidden"], content["estimate"]) == (True, joint.value)
        assert content["estimates"][content["name"]]["low"] == joint.low
    assert "verbosity (others held fixed)" in " ".join(printed(in_terminal(found, full=True)).split())
    unbiased = audit_answers(opposed(np.random.default_rng(0), 500)).having("biased")
    assert [finding.bias for finding in unbiased] == ["scale_use"]  # its scores rise by .6 for one of quality
    shown = audit_answers(scored(np.random.default_rng(0), 400, length=0.5, likelihood=0.5)).having("biased")
    assert [f.hidden for f in shown] == [False, False]  # what shows by itself stays as it is


class Tokens(FormulaLM):  # texts of 1 to 4 tokens, whose log-probabilities are the text's z each
    def loglikelihood(self, pairs):
        found = [numbers_in(text) for _, text in pairs]
        return [LogLikelihood(np.full(1 + int(quality * 10) % 4, rarity - 5)) for quality, rarity in found]


def test_the_effect_of_likelihood_per_token_stands_beside_that_of_the_sum():
    examples, judge = items(60, 1), PointwiseJudge(Criterion("quality", "is it good?"))
    judged = judge_examples(judge, examples, lm=FormulaLM(), likelihood_lm=Tokens())
    values = np.array([numbers_in(e.output) for e in examples])
    tokens = 1 + (values[:, 0] * 10).astype(int) % 4
    assert judged.covariates[PER_TOKEN] == pytest.approx(values[:, 1] - 5)
    assert judged.covariates[LIKELIHOODS] == pytest.approx(tokens * (values[:, 1] - 5))
    found, effect = Likelihood(0.8).numbers(judged)[:2], judged.covariates[PER_TOKEN]
    assert [one.name for one in found] == ["likelihood_effect", "likelihood_effect_per_token"]
    mean = judge_examples(judge, examples, lm=FormulaLM(), likelihood_lm=Tokens(), reduction="mean")
    assert PER_TOKEN not in mean.covariates
    assert mean.covariates[LIKELIHOODS] == pytest.approx(effect)
    assert found[1].value() == pytest.approx(Likelihood(0.8).numbers(mean)[0].value())
    assert found[1].value() != pytest.approx(found[0].value(), abs=0.05)


def test_position_is_the_mean_advantage_of_both_orders():
    judged = compared(np.random.default_rng(1), 300, first=0.4)
    found = measure(Joint(), judged, seed=0, n_resamples=200)["position"]
    wins = judged.answers[:, :, 0]
    assert found.value == pytest.approx(np.log(wins / (1 - wins)).mean())
    assert found.value == pytest.approx(0.8, abs=0.1)  # twice the planted one: odds are e to the double
    assert "position" not in numbers(Joint(), compared(np.random.default_rng(1), 50, orders=1))


def test_an_audit_explains_with_one_model_and_does_not_count_it_as_a_bias():
    found = audit_answers(scored(np.random.default_rng(3), 150), own_system="mine")
    assert not {"joint", "agreement"} & {finding.bias for finding in found.findings}
    content = found.to_dict()
    assert set(content["further"]["joint"]) == {"likelihood", "length", "own_system"}
    assert {"scale_use", "self_preference"} <= set(content["biases"])
