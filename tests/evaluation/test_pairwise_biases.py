"""Biases of a judge that compares, on answers worked out by hand."""

import math

import dspy
import numpy as np
import pytest
from fakes import Comparer, Wording, numbers, pair, rated, searched_judge

from evalbias import data
from evalbias.evaluation import BIASES, Judged, compare_judges, compare_with_baselines, judge_examples, measure
from evalbias.evaluation.answers import recorded_verdicts
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import BETTER
from evalbias.evaluation.rankings import measure_ranking, order_spread, ranking_agreement
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
    assert position["fairness"].value == pytest.approx(-1 / 6)
    assert position["position_consistency"].value == pytest.approx(2 / 3)
    assert (position["fairness"].n, position.undefined) == (3, {})
    assert position["fairness"].low <= position["fairness"].value <= position["fairness"].high
    assert position.cost == {"judgments": 6}
    averaged = measured(PairwiseJudge(C, debias="permutation"), pairs, lm=Comparer(lean=2.0))["position"]
    assert (averaged["first_rate"].value, averaged["position_consistency"].value) == (pytest.approx(0.5), 1)
    assert averaged.coverage == pytest.approx(0.8)
    with pytest.raises(ValueError, match="Position on wit cannot be measured"):
        measure(BIASES["position"], Judged(("a", "b"), "wit", np.array([1.0, 2.0])), seed=0)
    assert set(found) == {"position", "verbosity"}
    assert position.ids == ("0", "1", "2")


class Model(Comparer):
    def loglikelihood(self, asked):
        return [LogLikelihood(np.array([10 * numbers(text)[1]])) for _, text in asked]


def test_a_judge_that_prefers_the_likelier_and_the_longer():
    rng = np.random.default_rng(0)
    drawn = zip(*rng.normal(size=(2, 60)), rng.integers(1, 9, 60), strict=True)
    texts = [[f"q={a:.3f} z={a:.3f}" + "x" * int(w), f"q={b:.3f} z={b:.3f}"] for a, b, w in drawn]
    pairs = [dspy.Example(source=str(k), candidates=candidates) for k, candidates in enumerate(texts)]
    found = measured(PairwiseJudge(C), pairs, lm=Comparer(), likelihood_lm=Model())
    assert found["likelihood"]["likelihood_correlation"].value == pytest.approx(1, abs=1e-6)
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
    for examples, match in (([pair(1, 2, 3)], "does not have two candidates"), ([], "no examples")):
        with pytest.raises(ValueError, match=match):
            judge_examples(PairwiseJudge(C), examples, lm=Comparer())


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


def test_agreement_is_the_mean_over_the_orders_as_the_papers_code_averages():
    orders = [[[0, 1, 2], [1, 0, 2]], [[0, 1, 2], [2, 1, 0]]]  # of two documents, each rated 0, 1 and 2
    counts = dict.fromkeys(("comparisons", "judgments", "first", "ties", "undefined", "contradictions"), 1)
    rankings = [dspy.Prediction(scores_by_order=each, unranked={}, **counts) for each in orders]
    documents = [[dspy.Example(input_id=d, scores={"quality": q}) for q in range(3)] for d in "ab"]
    found = ranking_agreement(rankings, documents, "quality")
    # Spearman 1 and 1/2, then 1 and -1; the averaged scores have .87, and none at all
    assert found["spearman"].value == pytest.approx((0.75 + 0) / 2)
    assert found.notes["orders"] == 2
    assert found.notes["spearman_sd_over_orders"] == pytest.approx(1.25 / math.sqrt(2))
    assert order_spread([found]) == ["mean of 2 initial orders, standard deviation over them 0.88"]


def test_a_judge_that_gives_ties_is_compared_with_one_that_gives_none():
    decided, tied = recorded([0, 0, 0, 1], [1, 1, 0, 0]), recorded([0, -1, 0, 1], [1, -1, -1, 0])
    # the first position wins 1, 1, .5 and 0 of a pair's comparisons before, and 1, .5, .75 and 0 after
    found = compare_judges(decided, tied, seed=0, n_resamples=9, n_intervals=9)
    assert (found["fairness"].before.value, found["fairness"].after.value) == (-0.125, -0.0625)
    assert (found["first_rate"].before.value, found["first_rate"].after.value) == (0.625, 0.5625)


def recorded(winner, swapped):
    pairs = [dspy.Example(outputs=["a", "b"], better=0, w=a, ws=b) for a, b in zip(winner, swapped, strict=True)]
    return measure(BIASES["position"], recorded_verdicts(pairs, "w", swapped="ws"), seed=0)


def test_pairs_that_lack_an_order_are_left_out_and_counted_and_each_is_its_own_control():
    always_right = recorded([0] * 80, [0, None] * 40)
    first = always_right["first_rate"]
    assert (first.value, first.n, first.undefined) == (0.5, 40, 40)
    assert (always_right["fairness"].value, always_right["fairness"].n) == (0, 40)
    assert always_right["confidence"].undefined == 40
    found = recorded([0] * 80, [0] * 80)
    assert found["first_rate"].low == pytest.approx(0.476, abs=1e-3)  # 80 independent comparisons: .391
    assert found["fairness"].low == pytest.approx(found["first_rate"].low - 0.5)


@pytest.fixture(scope="module")
def searched():
    return searched_judge(PairwiseJudge(C), epochs=3)


@pytest.mark.slow
def test_four_rows_with_the_permutation_beside_the_search(searched):
    judge, compiled, test = searched
    rows = compare_with_baselines(judge, compiled, test, lm=Wording(first=6.5), limit=80, n_resamples=9999)
    assert list(rows) == ["initial", "initial + permutation", "searched", "searched + permutation"]
    initial, best = (rows[name].measurements for name in ("initial", "searched"))
    assert list(initial) == ["position", "verbosity", "agreement"]
    assert best["position"]["fairness"].value > initial["position"]["fairness"].value
    permuted = rows["initial + permutation"].measurements["agreement"]
    assert permuted.cost["judgments"] == 2 * permuted.notes["comparisons"]
    assert rows["initial"].comparisons == {}
    change = rows["searched"].comparisons["agreement"]["spearman"].difference
    gain = best["agreement"]["spearman"].value - initial["agreement"]["spearman"].value
    assert change.value == pytest.approx(gain)
    assert change.low <= gain <= change.high
    assert (gain > 0, change.n) == (True, 12)
    assert judge.debias is compiled.debias is None


@pytest.mark.slow
def test_items_that_nobody_rated_have_no_agreement_and_every_bias_that_applies_is_measured(searched, monkeypatch):
    judge, compiled, test = searched
    another = type("Copy", (type(BIASES["verbosity"]),), {"name": "another"})
    monkeypatch.setitem(BIASES, "another", another())
    bare = [e.copy(scores={}) for e in test]
    row = compare_with_baselines(judge, compiled, bare, lm=Wording(), limit=20, n_resamples=99)["searched"]
    assert list(row.measurements) == list(row.comparisons) == ["position", "verbosity", "another"]
    some = [e if e.input_id != test[0].input_id else e.copy(scores={}) for e in test]
    agreed = compare_with_baselines(judge, compiled, some, lm=Wording(), limit=20, n_resamples=99)["searched"]
    assert agreed.measurements["agreement"]["spearman"].undefined == 1


def model_against_reference(n, rng, *, swapped=False):
    """Pairs of a better model with a reference, judged in one order by a judge that takes the better output."""
    quality = rng.normal([1.0, 0.0], size=(n, 2))
    writers = np.tile(["model", "reference"], (n, 1))
    if swapped:
        half = np.arange(n) % 2 == 1
        quality[half], writers[half] = quality[half][:, ::-1], writers[half][:, ::-1]
    judge, people = ((quality + rng.normal(size=(n, 2))) @ [1, -1] for _ in range(2))
    answers = np.stack([judge > 0, judge <= 0], axis=1)[:, None].astype(float)
    ids = tuple(map(str, range(n)))
    return Judged(ids, "quality", answers, {BETTER: (people <= 0).astype(float)}, writers=[*map(tuple, writers)])


def test_position_is_not_measured_where_every_system_has_its_place():
    sides = [model_against_reference(400, np.random.default_rng(0), swapped=swapped) for swapped in (False, True)]
    found, turned = map(audit_answers, sides)
    (position,) = (f for f in found.findings if f.bias == "position")
    assert position.status == "not measured"
    assert "first_rate_balanced" not in found["position"]
    assert not turned.having("biased")
