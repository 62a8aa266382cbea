"""Corrected estimates of judged items: a mean score, and the win rate of a system."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import numbers, scored

from evalbias.evaluation import Judged, compare, measure
from evalbias.evaluation.agreement import CorrectedEstimates
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES
from evalbias.measures import corrected_mean, corrected_rate

NAN = math.nan


def partly(judged, known):
    human = judged.covariates[HUMAN_SCORES].copy()
    human[known:] = NAN
    return replace(judged, covariates={HUMAN_SCORES: human})


def test_a_mean_score():
    judged = partly(scored(np.random.default_rng(0), 200), 30)
    found = measure(CorrectedEstimates(), judged, seed=0, n_resamples=50)
    human, scores = judged.covariates[HUMAN_SCORES], judged.answers
    direct = corrected_mean(scores[:30], human[:30], scores[30:])
    corrected = found["corrected_mean"]
    assert (corrected.value, corrected.low, corrected.high) == (direct.value, direct.low, direct.high)
    assert (corrected.n, corrected.undefined, corrected.null) == (200, 0, None)
    assert found["judge_mean"].value == pytest.approx(scores.mean())
    assert (found["people_mean"].value, found["people_mean"].n) == (pytest.approx(human[:30].mean()), 30)
    assert not any(one.text()[0] in "+-" for one in found.estimates.values())  # scores, and no differences


def test_outputs_of_one_input_count_together():
    judged = partly(scored(np.random.default_rng(1), 120), 40)
    judged = replace(judged, inputs=tuple(str(i // 4) for i in range(120)))
    found = measure(CorrectedEstimates(), judged, seed=0, n_resamples=50)["corrected_mean"]
    clusters = list(judged.inputs)
    human, scores = judged.covariates[HUMAN_SCORES], judged.answers
    groups = {"labeled_clusters": clusters[:40], "unlabeled_clusters": clusters[40:]}
    direct = corrected_mean(scores[:40], human[:40], scores[40:], **groups)
    assert (found.low, found.units) == (direct.low, 10)


def test_two_judges_are_compared():
    before = partly(scored(np.random.default_rng(2), 60), 20)
    after = replace(before, answers=before.answers + 1)  # the same, but for a constant that the labels correct
    sides = [measure(CorrectedEstimates(), one, seed=0, n_resamples=20) for one in (before, after)]
    change = compare(*sides, n_resamples=20, n_intervals=20, seed=0)
    assert change["judge_mean"].difference.value == pytest.approx(1)
    corrected = change["corrected_mean"].difference
    assert (corrected.value, corrected.low, corrected.high) == pytest.approx((0, 0, 0), abs=1e-9)
    assert [name for name, one in change.changes.items() if one.p_itemwise is not None] == ["judge_mean", "people_mean"]
    pairwise, *_ = pairs(np.random.default_rng(2), 60, 30)
    of_pairs = measure(CorrectedEstimates(), pairwise, seed=0, n_resamples=20)
    change = compare(of_pairs, of_pairs, n_resamples=20, n_intervals=20, seed=0)
    assert [name for name, one in change.changes.items() if one.p_itemwise is not None] == ["judge_rate", "people_rate"]


def pairs(rng, n, known):
    """Verdicts on outputs of systems a and b in random order; a wins 6 of 10 with people, the judge errs in 2 of 10."""
    wins = rng.random(n) < 0.6
    judge = np.where(rng.random(n) < 0.8, wins, ~wins)
    first = rng.random(n) < 0.5  # a comes first
    verdict = np.where(first, judge, ~judge).astype(float)
    better = np.where(first, ~wins, wins).astype(float)
    better[known:] = NAN
    writers = [("a", "b") if one else ("b", "a") for one in first]
    answers = np.stack([verdict, 1 - verdict], axis=1)[:, None]
    judged = Judged(tuple(map(str, range(n))), "quality", answers, {BETTER: better}, writers=writers)
    return judged, wins, judge


def test_a_win_rate():
    judged, wins, judge = pairs(np.random.default_rng(2), 400, 100)
    found = measure(CorrectedEstimates(), judged, seed=0, n_resamples=50)
    assert found["judge_rate"].value == pytest.approx(judge.mean())
    assert found["people_rate"].value == pytest.approx(wins[:100].mean())
    assert [one.label for one in found.estimates.values()] == [
        "a wins, judge",
        "a wins, people",
        "a wins, corrected",
        "a wins, by sensitivity and specificity",
    ]
    assert not any(one.text()[0] in "+-" for one in found.estimates.values())  # shares
    arrays = judge[:100].astype(float), wins[:100].astype(float), judge[100:].astype(float)
    for name, direct in (("corrected_mean", corrected_mean(*arrays)), ("corrected_rate", corrected_rate(*arrays))):
        assert (found[name].value, found[name].low, found[name].high) == (direct.value, direct.low, direct.high)
        assert found[name].low < 0.6 < found[name].high
    grouped = replace(judged, inputs=tuple(str(i // 4) for i in range(400)))
    found = measure(CorrectedEstimates(), grouped, seed=0, n_resamples=50)["corrected_rate"]
    clusters = {"labeled_clusters": grouped.inputs[:100], "unlabeled_clusters": grouped.inputs[100:]}
    direct = corrected_rate(*arrays, **clusters)
    assert (found.low, found.high, found.units) == (direct.low, direct.high, 25)
    tied = judged.answers.copy()
    tied[0] = 0.5
    assert "corrected_rate" not in numbers(CorrectedEstimates(), replace(judged, answers=tied))


def test_a_tie_of_people_is_a_label_that_counts_half():
    judged, wins, _ = pairs(np.random.default_rng(2), 100, 100)
    better = judged.covariates[BETTER].copy()
    better[:25] = -1
    tied = replace(judged, covariates={BETTER: better})
    assert not CorrectedEstimates().applies(tied)  # all 100 are labeled
    assert audit_answers(tied).label_next == []
    some = replace(tied, covariates={BETTER: np.where(np.arange(100) < 60, better, NAN)})
    found = measure(CorrectedEstimates(), some, seed=0, n_resamples=20)
    assert found["people_rate"].n == 60
    assert found["people_rate"].value == pytest.approx((25 / 2 + wins[25:60].sum()) / 60)
    assert "corrected_rate" not in found  # sensitivity and specificity know no tie
    assert set(audit_answers(some).label_next) == set(map(str, range(60, 100)))


def test_what_it_needs():
    judged = scored(np.random.default_rng(3), 20)
    assert CorrectedEstimates().applies(partly(judged, 2))
    assert not CorrectedEstimates().applies(partly(judged, 1))
    assert not CorrectedEstimates().applies(judged)  # all labeled
    compared, *_ = pairs(np.random.default_rng(4), 20, 10)
    assert CorrectedEstimates().applies(compared)
    for writers in ((), [("a", "a")] * 20, [("a", "b"), ("a", "c")] * 10):
        assert not CorrectedEstimates().applies(replace(compared, writers=writers))


def test_judges_measured_with_other_labels_are_not_compared():
    judged = scored(np.random.default_rng(3), 20)
    sides = [measure(CorrectedEstimates(), partly(judged, known), seed=0) for known in (5, 5, 6)]
    compare(*sides[:2], n_resamples=9, seed=0)
    with pytest.raises(ValueError, match="was measured before and after with different"):
        compare(*sides[1:], n_resamples=9, seed=0)
