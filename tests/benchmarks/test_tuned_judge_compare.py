"""Adapters are tested against the one that was trained like them but for the weights, and averaged over seeds."""

import numpy as np
import pytest

from benchmarks.tuned_judge.compare import AS_IT_COMES, rows
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS, Judged


def judged(effect, seed=0):
    """Scores of the same items under a planted effect of likelihood."""
    rng = np.random.default_rng(0)
    quality, likelihoods = rng.normal(size=(2, 200))
    people = quality[:, None] + rng.normal(size=(200, 2))
    scores = quality + effect * likelihoods + 0.3 * np.random.default_rng(seed + 1).normal(size=200)
    covariates = {LIKELIHOODS: likelihoods, HUMAN_SCORES: people.mean(axis=1), RATINGS: people}
    return Judged(ids=tuple(map(str, range(200))), criterion="quality", answers=scores, covariates=covariates)


def effects(body):
    return {name: float(effect.split()[0]) for _, name, effect, *_ in body}


@pytest.mark.slow
def test_each_balanced_adapter_is_tested_against_the_one_of_its_seed():
    judges = {AS_IT_COMES: judged(0.3), "one": judged(0.6), "fair one": judged(0.0, 1)}
    judges |= {"two": judged(0.0, 2), "biased two": judged(0.6, 3)}
    body = rows("set", judges, [["one", "fair one"], ["two", "biased two"]], seed=0)
    tests = {name: against for _, name, *_, against in body}
    assert (tests[AS_IT_COMES], tests["one"], tests["two"]) == ("", "", "")
    assert float(tests["fair one"].split()[3].rstrip(";")) < 0.01
    assert float(tests["biased two"].split()[3].rstrip(";")) > 0.99
    found = effects(body)
    plain, balanced = list(found.values())[-2:]
    assert list(found)[-2:] == ["mean (range) of one, two", "mean (range) of fair one, biased two"]
    assert plain == pytest.approx((found["one"] + found["two"]) / 2, abs=0.01)
    assert balanced == pytest.approx((found["fair one"] + found["biased two"]) / 2, abs=0.01)


def test_a_single_training_has_no_mean():
    body = rows("set", {AS_IT_COMES: judged(0.3), "one": judged(0.6)}, [["one"]], seed=0)
    assert [name for _, name, *_ in body] == [AS_IT_COMES, "one"]
