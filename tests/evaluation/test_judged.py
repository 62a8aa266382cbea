"""Judged answers by hand: criteria averaged, items picked, and what people's ratings of them tell."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import by_hand, compared, having, numbers, partly, scored, without

from evalbias.evaluation import BIASES, measure
from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement
from evalbias.evaluation.biases import EXPECTED, Joint, Position, SelfPreference, Verbosity
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS, Asking, total

NAN = math.nan


def test_a_total_is_the_mean_over_the_criteria():
    covariates = {LIKELIHOODS: [-3, NAN, -1], HUMAN_SCORES: [1, 2, NAN], RATINGS: [[1, 1], [1, 3], [NAN, NAN]]}
    wit = replace(by_hand([1, 3, NAN], **covariates), asked=Asking(np.array([0.2, 0.4, NAN]), judgments=3))
    others = {LIKELIHOODS: [-3, NAN, -1], HUMAN_SCORES: [5, NAN, 4], RATINGS: [[5, 3], [NAN, 1], [4, 4]]}
    asked = Asking(np.array([0.6, 0.4, 0.8]), judgments=4)
    style = replace(by_hand([2, 5, 4], **others), criterion="style", asked=asked)
    whole = total([wit, style])
    assert (whole.criterion, whole.asked.judgments, whole.ids) == ("total", 7, ("0", "1", "2"))
    assert whole.answers == pytest.approx([1.5, 4, NAN], nan_ok=True)  # undefined for one, undefined in all
    assert whole.covariates[HUMAN_SCORES] == pytest.approx([3, NAN, NAN], nan_ok=True)
    assert whole.covariates[RATINGS] == pytest.approx(np.array([[3, 2], [NAN, 2], [NAN, NAN]]), nan_ok=True)
    assert whole.asked.coverage == pytest.approx([0.4, 0.4, NAN], nan_ok=True)
    assert whole.covariates[LIKELIHOODS] == pytest.approx([-3, NAN, -1], nan_ok=True)
    assert RATINGS not in total([wit, having(style, **{RATINGS: np.ones((3, 1))})]).covariates  # by other raters
    moved = having(style, **{LIKELIHOODS: np.array([-3.0, NAN, -2.0])})
    with pytest.raises(ValueError, match="style and quality were judged on different items"):
        total([wit, moved])


def test_items_are_picked_with_all_that_is_known_of_them():
    fields = {"writers": ["a", "b", "c"], "asked": Asking(np.array([0.1, 0.2, 0.3]), {"0": "no", "2": "nor this"})}
    whole = replace(by_hand([1, 2, 3], **{HUMAN_SCORES: [4, 5, 6]}), inputs=("x", "y", "z"), **fields)
    part = whole.take(np.array([2, 1, 2]))
    assert (part.ids, part.inputs, part.writers) == (("2", "1", "2"), ("z", "y", "z"), ["c", "b", "c"])
    assert (part.answers.tolist(), part.covariates[HUMAN_SCORES].tolist()) == ([3, 2, 3], [6, 5, 6])
    assert (part.asked.coverage.tolist(), part.asked.reasons) == ([0.3, 0.2, 0.3], {"2": "nor this"})


def test_the_balanced_rate_is_the_first_positions():
    # the first position wins .9 and .7 where people prefer the first output, .6 and .2 where they prefer the second
    pairs = by_hand([[(x, 1 - x)] for x in (0.9, 0.7, 0.6, 0.2)], **{BETTER: [0, 0, 1, 1]})
    found = measure(Position(), pairs, seed=0, n_resamples=20)
    assert found["first_rate_balanced"].value == pytest.approx(((1 + 1) / 2 + (1 + 0) / 2) / 2)
    assert found["first_rate"].value == pytest.approx(3 / 4)
    assert found.columns.keys() == {"answers", BETTER}  # one order


# over half of the scale or not, of it and beyond
ON_SCALE = [((1, 5), [1, 3], True), ((1, 5), [3, 5], True), ((1, 5), [2, 3.9], False), ((1, 5), [0.9, 4], False)]
ON_SCALE += [((1, 5), [2, 5.1], False), ((0, 100), [1, 5], False)]
# without a scale: scores from 2 to 3 reach over a quarter; ratings over half of both together
ON_SCALE += [(None, [1, 5], True), (None, [1, 5.1], False), (None, [2.4, 2.9], True), (None, [2.4, 2.8], False)]
# nothing in common, or a part: the scores end where the ratings begin
ON_SCALE += [(None, [3, 4.5], False), (None, [0.5, 2], False), (None, [2.9, 4.4], True), (None, [0.6, 2.1], True)]


@pytest.mark.parametrize(("scale", "human", "same"), ON_SCALE)
def test_people_rate_on_the_judges_scale(scale, human, same):
    one = by_hand([2, 3, 2.5], scale=scale, **{HUMAN_SCORES: [*human, NAN]})
    assert one.on_peoples_scale is same
    mean = sum(human) / 2  # the single ratings count, where they are known
    rated = by_hand([2, 3, 2.5], scale=scale, **{HUMAN_SCORES: [mean] * 3, RATINGS: [human, [mean, NAN], [NAN, NAN]]})
    assert rated.on_peoples_scale is same


def test_one_scale_needs_scores_and_ratings():
    assert not by_hand([1, 5], scale=(1, 5)).on_peoples_scale
    assert not by_hand([NAN, NAN], scale=(1, 5), **{HUMAN_SCORES: [1, 5]}).on_peoples_scale
    assert not by_hand([1, 5], scale=(1, 5), **{HUMAN_SCORES: [NAN, NAN]}).on_peoples_scale


def test_items_that_were_rated_once_where_others_were_rated_more_often():
    ratings = [[1, 2, 3], [3, NAN, NAN], [NAN, NAN, NAN], [NAN, 4, NAN], [1, 2, NAN]]
    assert by_hand([1] * 5, **{RATINGS: ratings}).rated_once == 2
    assert by_hand([1] * 3, **{RATINGS: [[1, NAN], [NAN, 2], [NAN, NAN]]}).rated_once == 0
    assert by_hand([1]).rated_once == 0
    assert by_hand([1, 2], **{HUMAN_SCORES: [4, NAN]}).ratings == pytest.approx(np.array([[4], [NAN]]), nan_ok=True)
    pair = by_hand([[(0.5, 0.5)]], **{HUMAN_SCORES: [[4, 1.5]]})
    assert pair.ratings.tolist() == [[2.5]]
    assert having(pair, **{RATINGS: np.array([[2.0, 3.0]])}).ratings.tolist() == [[2, 3]]


# What each bias needs, and which estimates are tested by swaps or confounded; test_words shows nulls and signs.

SWAPPED = {  # quick to compute, of the judge, and without a test of their own interval
    "agreement": {"spearman", "leniency", "accuracy", "accuracy_swapped", "consistency", "brier"},
    "joint": {"position"},
    "likelihood": {"bias_score", "bias_score_z", "performance", "likelihood_correlation"},
    "position": {"first_rate", "first_rate_balanced", "fairness", "position_consistency", "confidence"},
    "self": {"bias", "skewness", "own", "expected"},
    "verbosity": {"longer_rate"},
}
QUALITY_MAY_EXPLAIN = {  # better texts are longer and likelier, and in one order they may stand first
    "likelihood": {"bias_score", "bias_score_z", "likelihood_correlation"},
    "verbosity": {"longer_rate"},
}


def kinds():
    rng = np.random.default_rng(0)
    scores, both = scored(rng, 60, raters=3), compared(rng, 60, raters=3)
    scores = having(scores, **{EXPECTED: scores.covariates[HUMAN_SCORES]})
    one = replace(both, answers=both.answers[:, :1])
    choices = having(one, **{BETTER: (both.covariates[RATINGS].mean(axis=1) < 0).astype(float)})
    return {"scores": scores, "both orders": both, "one order": one, "choices": choices}


@pytest.mark.parametrize("kind", ["scores", "both orders", "one order", "choices"])
def test_what_each_estimate_is(kind):
    judged = kinds()[kind]
    one_order = judged.pairwise and judged.answers.shape[1] == 1
    applied = [one for one in {**BIASES, "self_preference": SelfPreference(own="mine")}.values() if one.applies(judged)]
    assert len(applied) > 4
    for bias in applied:
        name = bias.name
        confounded = QUALITY_MAY_EXPLAIN.get(name, set()) | ({"first_rate", "fairness"} if one_order else set())
        for key, number in numbers(bias, judged).items():
            assert number.tested is (key in SWAPPED.get(name, set())), key
            assert number.confounded is (key in confounded), key
            assert number.only_below is (key == "slope"), key


def test_what_a_bias_needs():
    judged, mine = scored(np.random.default_rng(1), 20), SelfPreference(own="mine")
    pairs, one = compared(np.random.default_rng(4), 20), np.ones(1)
    turned = replace(pairs, answers=pairs.answers[:, :1], writers=[("mine", "other"), ("other", "mine")] * 10)
    first = replace(turned, writers=[("mine", "other")] * 20)
    chosen = replace(turned, covariates={BETTER: np.array([1.0, np.nan] * 10)})

    unknown, unrated = without(judged, LIKELIHOODS), without(judged, RATINGS, HUMAN_SCORES)
    agreement, corrected, absent = PeopleAgreement(), CorrectedEstimates(), SelfPreference(own="absent")
    long, long_pairs = by_hand(one, **{LENGTHS: one}), replace(pairs, covariates={LENGTHS: np.ones((20, 2))})
    rated, bare = by_hand(one, **{LENGTHS: one, HUMAN_SCORES: one}), replace(pairs, covariates={})
    yes = [(mine, judged), (mine, turned), (Verbosity(), rated), (Verbosity(), long_pairs)]
    yes += [(Joint(own="mine"), unknown), (agreement, rated), (agreement, chosen)]
    yes += [(corrected, partly(judged, 2)), (corrected, chosen)]
    no = [(absent, judged), *((mine, replace(judged, writers=writers)) for writers in (["mine"] * 20, ()))]
    no += [(mine, unrated), (mine, first), (Verbosity(), long)]  # of the first, position explains its wins as well
    no += [(Joint(), unknown), (Joint(own="absent"), unknown), (Joint(), unrated)]  # one property
    no += [(agreement, by_hand(one)), (agreement, bare)]
    no += [(corrected, partly(judged, 1)), (corrected, judged)]  # one is labeled, and all are
    writers = ((), [("a", "a")] * 20, [("a", "b"), ("a", "c")] * 10)
    no += [(corrected, replace(chosen, writers=some)) for some in writers]
    for applies, cases in ((True, yes), (False, no)):
        for bias, items in cases:
            assert bias.applies(items) is applies, (bias, items.covariates.keys(), items.writers)
    assert list(numbers(Verbosity(), replace(pairs, covariates={LENGTHS: np.ones((20, 2))}))) == ["longer_rate"]
    with pytest.raises(ValueError, match=r"^length_effect on .* cannot be measured: it needs people's ratings"):
        Verbosity().number("length_effect", unrated)
    with pytest.raises(ValueError, match="'likelihoods'"):
        unknown.covariate(LIKELIHOODS)
