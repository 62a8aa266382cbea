"""Juries that are learned from recorded answers: better than the best judge where shown, never by chance."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.juries import drawn, kept, members_of
from evalbias.evaluation.judged import LENGTHS
from evalbias.measures import juries
from evalbias.measures.juries import JuryRule, Panel, fit_rules, inverse_error_weights
from evalbias.optimizers.juries import beyond_choice, learn_jury


def test_weights_are_those_of_the_inverse_error_covariance():
    scores, ratings, _ = drawn(np.random.default_rng(0), 40_000, 4, 0.3)
    panel = Panel(scores, ratings)
    weights = inverse_error_weights(panel)
    covariances = juries.error_covariances(panel.correlations[None], panel.validities[None])[0]
    exact = np.linalg.solve(covariances, panel.validities)
    assert weights == pytest.approx(np.maximum(exact, 0) / np.maximum(exact, 0).sum(), abs=0.06)
    of = partial(juries.validity, panel.correlations[None], panel.validities[None])
    assert of(weights=weights) > of(weights=np.ones(4))
    few = inverse_error_weights(Panel(scores[:25], ratings[:25]))  # are drawn towards equal ones
    assert np.ptp(few) < np.ptp(weights)


def test_outputs_of_an_input_that_say_the_same_weigh_no_more_than_one():
    """Correlations and validities are shrunk by what varies between inputs, whatever the number of their outputs."""
    scores, ratings, _ = drawn(np.random.default_rng(3), 150, 4, 0.0)
    many = np.repeat(scores, 4, axis=0), np.repeat(ratings, 4, axis=0)
    once = inverse_error_weights(Panel(scores, ratings))
    assert inverse_error_weights(Panel(*many, clusters=np.repeat(range(150), 4).tolist())) == pytest.approx(once)
    assert np.ptp(inverse_error_weights(Panel(*many))) > np.ptp(once)
    first, second = learn_jury(members_of(scores, ratings)), learn_jury(members_of(*many, outputs=4))
    assert len(first.rule.members) > 1
    assert second.rule.weights == pytest.approx(first.rule.weights)
    assert second.sentences[0] == first.sentences[0]


def test_a_jury_of_equal_judges_is_chosen_and_asks_few_first():
    rng = np.random.default_rng(2)
    quality = rng.normal(size=500)
    scores = quality[:, None] + rng.normal(size=(500, 4))
    found = learn_jury(members_of(scores, quality[:, None] + 0.5 * rng.normal(size=(500, 3))))
    assert found.sentences[0].startswith('Combined by "')
    assert "the judges agree better with people than the best one alone" in found.sentences[0]
    assert found.agreement[1] == pytest.approx(np.corrcoef(found.answers, quality)[0, 1], abs=0.1)
    assert len(found.rule.members) == 4
    new = rng.normal(size=5000)
    judged = new[:, None] + rng.normal(size=(5000, 4))
    alone = np.corrcoef(judged[:, 0], new)[0, 1]
    assert np.corrcoef(found.rule(judged), new)[0, 1] > alone + 0.1
    assert np.corrcoef(found.answers, quality)[0, 1] > alone + 0.1


def test_the_best_judge_stands_where_the_others_add_nothing():
    rng = np.random.default_rng(3)
    quality = rng.normal(size=300)
    scores = quality[:, None] * [1, 0, 0] + rng.normal(size=(300, 3)) * [0.3, 1, 1]
    ratings = quality[:, None] + 0.5 * rng.normal(size=(300, 2))
    found = learn_jury(members_of(scores, ratings))
    assert found.sentences[0].startswith("The best judge alone, judge 0, is kept: none of 2 ways to combine")
    assert found.rule.members == (0,)
    lengths = {LENGTHS: np.exp(scores[:, 0])}
    long = [replace(one, covariates={**one.covariates, **lengths}) for one in members_of(scores, ratings)]
    assert learn_jury(long).shared == ()  # nothing is averaged that could cancel a bias
    assert found.rule(scores) == pytest.approx(scores[:, 0])


def test_the_dear_one_is_asked_where_the_cheap_ones_differ():
    """Two cheap judges who are mostly right, and a dear one who always is: the majority of the first settles most."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 3000).astype(float)
    right = rng.random((3000, 3)) < [0.93, 0.93, 0.995]
    verdicts = np.where(right, truth[:, None], 1 - truth[:, None])
    judged = members_of(verdicts, truth[:, None])
    found = learn_jury(judged, costs={"judge 2": 100}, reliability=1.0)
    assert found.rule.first == (0, 1)
    assert found.rule.cost(verdicts, [1, 1, 100]) == pytest.approx(2 + 13, abs=3)
    assert "settles 87 % of the items" in str(found) or "settles 86 % of the items" in str(found)
    assert (found.rule(verdicts) == truth).mean() > 0.985


def test_every_item_is_scored_by_a_fit_on_other_inputs():
    """Ratings that are noise: fitted weights would agree with them on their own items, and held-back ones do not."""
    rng = np.random.default_rng(5)
    found = learn_jury(members_of(rng.normal(size=(200, 6)), np.repeat(rng.normal(size=(200, 1)), 2, axis=1)))
    assert "is kept" in found.sentences[0]


def test_rules_of_scores_and_of_verdicts():
    scores, ratings, _ = drawn(np.random.default_rng(6), 300, 3, 0.3)
    assert [*fit_rules(Panel(scores, ratings), scores)] == ["equal mean", "weighted mean"]
    signs = np.sign(scores)
    named = fit_rules(Panel(signs, np.sign(ratings), mirrored=True), signs, (-1.0, 1.0))
    assert [*named] == ["equal majority", "weighted majority"]
    assert isinstance(named["equal majority"], JuryRule)
    assert set(named["equal majority"](signs)) == {-1.0, 1.0}


@pytest.mark.slow
def test_what_chose_a_judge_does_not_flatter_it():
    """Two equal judges: the noise e that chooses has half the errors' variance, and its largest s / pi^.5 on average.

    Less e / .5, that is .05 * 2^.5 / pi^.5 below what both seem. A judge that stands out loses nothing. Of five equal
    ones that agree at .5, the best seems better by about .05.
    """
    rng = np.random.default_rng(0)
    for other, less in ((0.5, 0.05 * np.sqrt(2 / np.pi)), (0.1, 0.0)):
        value, _ = beyond_choice(np.array([0.5, other, -0.5]), 0.05 * rng.normal(size=(5000, 3)), 2)
        assert value == pytest.approx(0.5 - less, abs=0.004)
    errors = 0.04 * rng.normal(size=(1000, 6)) + 0.03 * rng.normal(size=(1000, 1))
    missed, inside, seem = [], [], []
    for luck in errors[:100]:
        values = np.append(np.full(5, 0.5), 0.3) + luck
        value, variance = beyond_choice(values, errors, 5)
        missed.append(value - 0.5)
        inside.append(abs(value - 0.5) < 1.96 * np.sqrt(variance))
        seem.append(values.max() - 0.5)
    assert np.mean(seem) > 0.04
    assert np.mean(missed) == pytest.approx(0, abs=0.015)
    assert 0.92 <= np.mean(inside) <= 0.99


@pytest.mark.slow
def test_a_chosen_jury_is_no_worse_on_new_items():
    row = kept(200, 5, 0.3, sets=40, seed=1)
    assert row["worse"] <= 0.05
    assert row["gain"] >= 0


def test_a_judge_that_never_errs_here_is_promised_what_it_has():
    rng = np.random.default_rng(3)
    right = (rng.random(40) < 0.5).astype(float)
    others = [np.where(rng.random(40) < share, 1 - right, right) for share in (0.15, 0.2)]
    found = learn_jury(members_of(np.column_stack([right, *others]), right[:, None]), reliability=1.0)
    assert found.expected.value == pytest.approx(1)
    assert 0.7 < found.expected.low <= found.expected.high <= 1
