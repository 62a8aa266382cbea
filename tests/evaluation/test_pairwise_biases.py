"""Biases of a judge that compares, on answers worked out by hand."""

import math

import dspy
import numpy as np
import pytest
from fakes import Comparer, numbers, pair, rated

from evalbias import data
from evalbias.evaluation import BIASES, Judged, compare, judge_examples, measure, measure_ranking
from evalbias.evaluation.answers import recorded_verdicts
from evalbias.lm.types import LogLikelihood
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker

C = Criterion("quality", "is it good?")


def measured(judge, pairs, **options):
    judged = judge_examples(judge, pairs, **options)
    return {name: measure(bias, judged, seed=0) for name, bias in BIASES.items() if bias.applies(judged)}


def test_a_lean_to_the_first_position_by_hand():
    pairs = [pair(1, 2), pair(1, 4), pair(5, 2)]
    found = measured(PairwiseJudge(C), pairs, lm=Comparer(lean=2.0))
    # forward 1-2+2, 1-4+2, 5-2+2: A, B, A; swapped 2-1+2, 4-1+2, 2-5+2: A, A, B
    position = found["position"]
    assert position["first_rate"].value == pytest.approx(4 / 6)
    assert position["fairness"].value == pytest.approx(-1 / 3)
    assert position["position_consistency"].value == pytest.approx(2 / 3)
    assert (position["fairness"].n, position.undefined) == (3, {})
    assert position["fairness"].low <= position["fairness"].value <= position["fairness"].high
    assert position.cost == {"judgments": 6}
    assert set(found) == {"position", "verbosity"}
    assert position.ids == ("0", "1", "2")


def leaning_pairs():
    rng = np.random.default_rng(0)
    return [
        dspy.Example(source=str(k), candidates=[f"q={a:.3f} z={a:.3f}" + "x" * int(w), f"q={b:.3f} z={b:.3f}"])
        for k, (a, b, w) in enumerate(zip(*rng.normal(size=(2, 60)), rng.integers(1, 9, 60), strict=True))
    ]


class Model(Comparer):
    def loglikelihood(self, asked):
        return [LogLikelihood(np.array([10 * numbers(text)[1]])) for _, text in asked]


def test_a_judge_that_prefers_the_likelier_and_the_longer():
    found = measured(PairwiseJudge(C), leaning_pairs(), lm=Comparer(), likelihood_lm=Model())
    likelihood = found["likelihood"]
    assert likelihood["likelihood_correlation"].value == pytest.approx(1, abs=1e-6)
    assert likelihood["odds_per_nat"].value == pytest.approx(math.exp(0.1), rel=1e-3)
    assert likelihood["odds_of_first"].value == pytest.approx(1, abs=1e-3)
    leaning = measured(PairwiseJudge(C), leaning_pairs(), lm=Comparer(lean=1.0), likelihood_lm=Model())
    assert leaning["likelihood"]["odds_of_first"].value == pytest.approx(math.e, rel=1e-3)
    assert leaning["likelihood"]["odds_per_nat"].value == pytest.approx(math.exp(0.1), rel=1e-3)
    assert 0.3 < found["verbosity"]["longer_rate"].value < 0.7


def test_the_longer_candidate_by_hand():
    # .8 in both orders wins; .6 and .3 average to less than half for the first; a tie; equal lengths; one order
    first = np.array([[0.8, 0.2], [0.6, 0.7], [0.5, 0.5], [0.9, 0.1], [math.nan, 0.5]])
    answers = np.stack([first, 1 - first], axis=2)
    lengths = np.array([[9.0, 1.0], [9.0, 1.0], [9.0, 1.0], [3.0, 3.0], [5.0, 1.0]])
    found = measure(BIASES["verbosity"], Judged(tuple("abcde"), "quality", answers, {"lengths": lengths}), seed=0)
    rate = found["longer_rate"]
    assert rate.value == pytest.approx((1 + 0 + 0.5) / 3)
    assert (rate.n, rate.undefined, rate.excluded) == (3, 1, 1)  # equal lengths are excluded, not undefined
    assert list(found.columns) == ["answers", "answers_swapped", "lengths"]
    np.testing.assert_array_equal(found.columns["answers_swapped"], answers[:, 1])


def test_ties_and_undefined_answers_are_counted():
    pairs = [pair(1, 2), pair(3, 1)]
    tied = measured(PairwiseJudge(C, ties=True), pairs, lm=Comparer(tie=9.0))["position"]
    assert (tied["first_rate"].value, tied["fairness"].value) == pytest.approx((0.5, 0))
    assert tied["position_consistency"].value == 1
    mute = measured(PairwiseJudge(C), pairs, lm=Comparer(mass=1e-9))["position"]
    assert mute.undefined == {"answers": 2, "answers_swapped": 2}
    assert math.isnan(mute["fairness"].value)
    assert (mute["fairness"].n, mute["fairness"].undefined) == (0, 2)
    with pytest.raises(ValueError, match="does not have two candidates: give pairs"):
        judge_examples(PairwiseJudge(C), [pair(1, 2, 3)], lm=Comparer())
    with pytest.raises(ValueError, match="no examples to judge"):
        judge_examples(PairwiseJudge(C), [], lm=Comparer())


def test_agreement_by_document():
    documents = list(data.by_input(rated()).values())
    fair = measure_ranking(PairwiseRanker(PairwiseJudge(C)), documents, lm=Comparer())
    assert [e.value for e in fair.estimates.values()] == pytest.approx([1, 1, 1])
    assert fair["spearman"].n == 12
    assert fair.notes["comparisons"] == fair.cost["judgments"] <= 12 * 6 * 3
    assert fair.notes["unranked"] == 0
    leaning = measure_ranking(PairwiseRanker(PairwiseJudge(C)), documents, lm=Comparer(lean=8.0))
    assert leaning["spearman"].value < 0.9
    debiased = PairwiseRanker(PairwiseJudge(C, debias="permutation"))
    both = measure_ranking(debiased, documents, lm=Comparer(lean=8.0))
    assert both["spearman"].value == pytest.approx(1)
    assert both.cost["judgments"] == 2 * both.notes["comparisons"]
    with pytest.raises(ValueError, match="'0-0' has no score on 'wit'"):
        measure_ranking(PairwiseRanker(PairwiseJudge(Criterion("wit", "funny?"))), documents, lm=Comparer())


def test_permutation_is_fair_by_construction():
    pairs = [pair(1, 2), pair(1, 4), pair(5, 2)]
    position = measured(PairwiseJudge(C, debias="permutation"), pairs, lm=Comparer(lean=2.0))["position"]
    assert position["first_rate"].value == pytest.approx(0.5)
    assert position["position_consistency"].value == 1
    assert position.coverage == pytest.approx(0.8)


def test_measurements_made_differently_are_not_compared():
    def by(likelihood_lm, **options):
        judged = judge_examples(
            PairwiseJudge(C), leaning_pairs(), lm=Comparer(), likelihood_lm=likelihood_lm, **options
        )
        return measure(BIASES["likelihood"], judged, seed=0, n_resamples=9)

    class Other(Comparer):
        def loglikelihood(self, asked):
            return [LogLikelihood(np.array([9 * numbers(text)[1]])) for _, text in asked]

    options = {"seed": 0, "n_resamples": 9, "n_intervals": 9}
    same = compare(by(Model()), by(Model()), **options)
    assert same["likelihood_correlation"].difference.value == 0
    with pytest.raises(ValueError, match=r"likelihood_correlation was measured .* different likelihoods"):
        compare(by(Model()), by(Other()), **options)
    with pytest.raises(ValueError, match="different reductions of LS"):
        compare(by(Model()), by(Model(), reduction="mean"), **options)


def test_scores_have_no_position():
    scored = Judged(("a", "b"), "wit", np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="The judge on wit scores: only one that compares can prefer a position"):
        measure(BIASES["position"], scored, seed=0)


def test_a_judge_that_gives_ties_is_compared_with_one_that_gives_none():
    decided, tied = recorded([0, 0, 0, 1], [1, 1, 0, 0]), recorded([0, -1, 0, 1], [1, -1, -1, 0])
    # the first position wins 1, 1, .5 and 0 of a pair's comparisons before, and 1, .5, .75 and 0 after
    found = compare(decided, tied, seed=0, n_resamples=9, n_intervals=9)
    assert (found["fairness"].before.value, found["fairness"].after.value) == (-0.25, -0.125)
    assert (found["first_rate"].before.value, found["first_rate"].after.value) == (0.625, 0.5625)


def recorded(winner, swapped):
    pairs = [dspy.Example(outputs=["a", "b"], better=0, w=a, ws=b) for a, b in zip(winner, swapped, strict=True)]
    return measure(BIASES["position"], recorded_verdicts(pairs, "w", swapped="ws"), seed=0)


def test_pairs_that_lack_an_order_are_left_out_and_counted():
    always_right = recorded([0] * 80, [0, None] * 40)
    first = always_right["first_rate"]
    assert (first.value, first.n, first.undefined) == (0.5, 40, 40)
    assert (always_right["fairness"].value, always_right["fairness"].n) == (0, 40)
    assert always_right["confidence"].undefined == 40


def test_each_pair_is_its_own_control():
    found = recorded([0] * 80, [0] * 80)
    assert found["first_rate"].low == pytest.approx(0.476, abs=1e-3)  # 80 independent comparisons: .391
    assert found["fairness"].low == pytest.approx(2 * (found["first_rate"].low - 0.5))


def test_a_judge_of_three_that_always_ties_prefers_no_position():
    answers = np.tile([0.0, 0.0, 0.0, 1.0], (4, 1, 1))
    found = measure(BIASES["position"], Judged(tuple("abcd"), "quality", answers, ties=True), seed=0)
    assert found["first_rate"].value == pytest.approx(1 / 3)
    assert found["fairness"].value == pytest.approx(0.0)
