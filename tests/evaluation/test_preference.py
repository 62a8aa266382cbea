import math

import dspy
import numpy as np
import pytest
from fakes import Comparer, numbers, pair, rated

from evalbias import data
from evalbias.evaluation.position import measure_preference, ranking_agreement
from evalbias.lm.types import LogLikelihood
from evalbias.programs import Criterion, PairwiseJudge, PairwiseRanker

C = Criterion("quality", "is it good?")


def test_a_lean_to_the_first_position_by_hand():
    pairs = [pair(1, 2), pair(1, 4), pair(5, 2)]
    found = measure_preference(PairwiseJudge(C), pairs, lm=Comparer(lean=2.0))
    # forward 1-2+2, 1-4+2, 5-2+2: A, B, A; swapped 2-1+2, 4-1+2, 2-5+2: A, A, B
    assert found.decision_rates == pytest.approx((4 / 6, 2 / 6))
    assert found.fairness == pytest.approx(-1 / 3)
    assert found.position_consistency == pytest.approx(2 / 3)
    assert (found.n, found.undefined, found.likelihood) == (3, 0, None)


def test_what_the_judge_leans_to():
    rng = np.random.default_rng(0)
    pairs = [
        dspy.Example(source=str(k), candidates=[f"q={a:.3f} z={a:.3f}" + "x" * int(w), f"q={b:.3f} z={b:.3f}"])
        for k, (a, b, w) in enumerate(zip(*rng.normal(size=(2, 60)), rng.integers(1, 9, 60), strict=True))
    ]

    class Model(Comparer):
        def loglikelihood(self, asked):
            return [LogLikelihood(np.array([10 * numbers(text)[1]])) for _, text in asked]

    found = measure_preference(PairwiseJudge(C), pairs, lm=Comparer(), likelihood_lm=Model())
    assert found.likelihood.spearman == pytest.approx(1, abs=1e-6)
    assert found.likelihood.odds_per_nat == pytest.approx(math.exp(0.1), rel=1e-3)
    assert found.likelihood.odds_of_first == pytest.approx(1, abs=1e-3)
    leaning = measure_preference(PairwiseJudge(C), pairs, lm=Comparer(lean=1.0), likelihood_lm=Model())
    assert leaning.likelihood.odds_of_first == pytest.approx(math.e, rel=1e-3)
    assert leaning.likelihood.odds_per_nat == pytest.approx(math.exp(0.1), rel=1e-3)
    assert 0.3 < found.longer.rate < 0.7


def test_ties_and_undefined_answers_are_counted():
    pairs = [pair(1, 2), pair(3, 1)]
    found = measure_preference(PairwiseJudge(C, ties=True), pairs, lm=Comparer(tie=9.0))
    assert found.decision_rates == pytest.approx((0, 0, 1))
    assert found.position_consistency == 1
    mute = measure_preference(PairwiseJudge(C), pairs, lm=Comparer(mass=1e-9))
    assert mute.undefined == 4
    assert math.isnan(mute.fairness)
    with pytest.raises(ValueError, match="give pairs"):
        measure_preference(PairwiseJudge(C), [pair(1, 2, 3)], lm=Comparer())


def test_agreement_by_document():
    documents = list(data.by_input(rated()).values())
    fair = ranking_agreement(PairwiseRanker(PairwiseJudge(C)), documents, lm=Comparer())
    assert [a.value for a in (fair.spearman, fair.kendall, fair.pairwise_accuracy)] == pytest.approx([1, 1, 1])
    assert fair.spearman.groups == 12
    assert fair.comparisons == fair.judgments <= 12 * 6 * 3
    leaning = ranking_agreement(PairwiseRanker(PairwiseJudge(C)), documents, lm=Comparer(lean=8.0))
    assert leaning.spearman.value < 0.9
    debiased = PairwiseRanker(PairwiseJudge(C, debias="permutation"))
    both = ranking_agreement(debiased, documents, lm=Comparer(lean=8.0))
    assert both.spearman.value == pytest.approx(1)
    assert both.judgments == 2 * both.comparisons
    with pytest.raises(ValueError, match="'0-0' has no score on 'wit'"):
        ranking_agreement(PairwiseRanker(PairwiseJudge(Criterion("wit", "funny?"))), documents, lm=Comparer())


def test_permutation_is_fair_by_construction():
    pairs = [pair(1, 2), pair(1, 4), pair(5, 2)]
    found = measure_preference(PairwiseJudge(C, debias="permutation"), pairs, lm=Comparer(lean=2.0))
    assert found.decision_rates == pytest.approx((0.5, 0.5))
    assert found.position_consistency == 1
    assert found.coverage == pytest.approx(0.8)
