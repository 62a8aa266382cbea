"""Mitigations of likelihood bias behind one compiler, and the rule by which it chooses."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from fakes import FormulaLM, items, of_sources
from planted import with_effect

from evalbias import BiasedDemos, LikelihoodMitigation
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, RATINGS
from evalbias.lm.types import PromptTooLong
from evalbias.measures import likelihood_effect
from evalbias.optimizers import likelihood_rules as rules
from evalbias.optimizers.demonstrations import TooFewError, balanced, both_ends, highest_rs, signed_rs
from evalbias.optimizers.likelihood import against_baselines
from evalbias.optimizers.likelihood_rules import (
    BIAS_SCORE_Z,
    EFFECT,
    REASONS,
    LikelihoodRule,
    bias_number,
    cross_fitted,
    fitted,
    slope,
)
from evalbias.programs import Criterion, PointwiseJudge, load_judge

C = Criterion("quality", "is it good?")


def rule(name=EFFECT, **options):
    return LikelihoodRule(name, n_resamples=500, seed=0, **options)


def p_value(one, given, name=EFFECT):
    (found,) = rule(name).p_values([one], given)
    return found


def test_the_magnitude_of_the_effect_is_tested_on_both_sides():
    biased, fair, opposite = with_effect(0.6), with_effect(0.0), with_effect(-0.6)
    assert p_value(fair, biased) < 0.001
    assert p_value(biased, fair) > 0.9
    assert p_value(opposite, biased) > 0.05  # the same magnitude: the difference alone would be significant
    assert p_value(fair, opposite) < 0.001
    assert p_value(biased, biased) == 1.0
    found = rule().estimates(biased)[EFFECT]
    expected = likelihood_effect(biased.covariates[LIKELIHOODS], biased.answers, biased.covariates[RATINGS])
    assert (found.value, found.low, found.high) == (expected.effect, expected.low, expected.high)


@pytest.mark.slow
def test_judges_of_equal_bias_are_told_apart_in_five_percent_of_data_sets():
    accepted = []
    for seed in range(0, 600, 4):
        one = with_effect(0.6, n=80, seed=seed)
        twins = [np.random.default_rng([seed, k]).normal(size=80) for k in (1, 2, 3)]
        first, *others = (replace(one, answers=one.answers + noise) for noise in twins)
        accepted.append(min(rule().p_values(others, first)) < 0.05)
    assert 0.01 <= np.mean(accepted) <= 0.09


@pytest.mark.slow
def test_an_unbiased_judge_passes_no_candidate_whose_bias_only_looks_smaller():
    """A candidate without any noise of its own is nearer to 0 than an unbiased judge in every second data set."""
    passed = []
    for seed in range(0, 600, 4):
        given = with_effect(0.0, n=60, noise=2.0, seed=seed)
        exact = replace(given, answers=with_effect(0.0, n=60, noise=0.01, seed=seed).answers)
        passed.append(p_value(exact, given) < 0.05)
    assert np.mean(passed) <= 0.08


def test_families_of_different_items_share_the_level_and_the_given_judge_must_be_biased_on_all():
    given, half = with_effect(0.6), np.arange(100, 200)
    fair = with_effect(0.0)
    everywhere, (late,) = rule().p_values([fair], given)[0], rule().p_values([fair.take(half)], given.take(half))
    both = rule().p_values([fair, fair.take(half)], given)
    assert both == pytest.approx([2 * everywhere, 2 * late], abs=0.002)
    assert rule().p_values([given, given.take(half)], given) == [1.0, 1.0]  # and not 2
    unclear = replace(given, answers=np.where(np.arange(200) < 100, with_effect(-0.6).answers, given.answers))
    assert rule().p_values([fair.take(half)], unclear)[0] > 0.05  # biased one way and the other: 0 over all
    compared = rule(held_back=100)
    assert compared.costs(fair) == compared.costs(fair.take(half))
    assert compared.error(fair) == compared.error(fair.take(half))


def test_cross_fitted_scores_are_corrected_by_other_inputs_alone(monkeypatch):
    one = replace(with_effect(0.6, n=60), inputs=[str(i // 3) for i in range(60)], scale=(-9.0, 9.0))
    options = {"reduction": "sum", "scale": (-9.0, 9.0), "seed": 0}
    slopes, measured = [], rules.slope

    def watched(name, part):
        slopes.append(part.inputs)
        return measured(name, part)

    monkeypatch.setattr(rules, "slope", watched)
    half, full = cross_fitted(EFFECT, one, (0.5, 1.0), **options)
    assert len(slopes) == 10
    assert all(len(inputs) == 54 and len(set(inputs)) == 18 for inputs in slopes)
    taken = one.answers - full.answers
    assert half.answers == pytest.approx(one.answers - taken / 2)
    left_out = [i for i in range(60) if one.inputs[i] not in slopes[0]]
    others = [i for i in range(60) if i not in left_out]
    fit = fitted(EFFECT, one.take(np.array(others)), reduction="sum")
    likelihoods = one.covariates[LIKELIHOODS]
    assert taken[left_out] == pytest.approx(fit.slope * (likelihoods[left_out] - likelihoods[others].mean()))
    monkeypatch.setattr(rules, "slope", lambda name, part: math.nan)
    undefined = cross_fitted(EFFECT, one, (1.0,), **options)[0]
    assert np.isnan(undefined.answers).all()


def test_a_smaller_bias_must_not_cost_performance():
    given = with_effect(0.6)
    noisy = with_effect(0.0, noise=4.0)
    found = rule()
    assert found.loss(noisy, given).startswith("loses performance (0.")
    assert "max_loss" not in found.loss(noisy, given)  # it may be large
    assert found.loss(with_effect(0.0), given) == ""
    few = with_effect(0.6, n=24), with_effect(0.0, n=24, noise=1.0)
    reason = found.loss(few[1], few[0])  # no significant loss, but so few items cannot rule one out
    assert reason.startswith("may lose more than 0.1 of performance (0.")
    assert rule().loss(replace(few[0], answers=2 * few[0].answers), few[0]) == ""  # the same ranking
    effect = found.estimates(given)[EFFECT]
    assert found.error(given) == pytest.approx((effect.high - effect.low) / (2 * 1.959964), rel=1e-6)
    bias, performance = found.costs(given)
    assert bias == pytest.approx(abs(effect.value))
    assert performance < -0.5


def test_a_loss_that_is_allowed_is_ruled_out_by_the_items_to_be_larger():
    given = with_effect(0.5, noise=0.3, n=600)
    noisy = replace(given, answers=given.answers + 0.05 * np.sign(-given.covariates[HUMAN_SCORES]))
    lost = re.match(
        r"loses performance \((0\.\d+) -> (0\.\d+), p = 0\.\d+, at worst -0\.\d\d; max_loss=(0\.\d+), --max-loss \3, ",
        rule().loss(noisy, given),
    )
    assert lost[1] != lost[2]  # two digits would not tell them apart
    assert rule(max_loss=float(lost[3])).loss(noisy, given) == ""
    assert rule(max_loss=float(lost[3]) - 0.01).loss(noisy, given) != ""
    assert rule(max_loss=0.1).loss(noisy, given) == ""
    much = replace(given, answers=np.random.default_rng(9).normal(size=600))
    assert rule(max_loss=0.1).loss(much, given).startswith("may lose more than 0.1 of performance (0.")
    assert rule(max_loss=0.1).aim == "less likelihood bias at a loss of performance of at most 0.1"
    with pytest.raises(ValueError, match=r"max_loss=1.5: give a fall"):
        LikelihoodMitigation(max_loss=1.5)


def test_without_several_ratings_the_standardized_bias_score_decides_and_says_why():
    single = with_effect(0.6, ratings=1)
    assert bias_number(single.covariates.get(RATINGS)) == bias_number(np.ones((3, 1))) == BIAS_SCORE_Z
    assert bias_number(np.array([[1.0, np.nan], [2.0, 3.0]])) == EFFECT
    assert "one rating each" in REASONS[BIAS_SCORE_Z]
    assert p_value(with_effect(0.0, ratings=1), single, BIAS_SCORE_Z) < 0.05
    assert p_value(single, single, BIAS_SCORE_Z) == 1.0
    correlations = [
        np.corrcoef(single.covariates[LIKELIHOODS], x)[0, 1] for x in (single.answers, single.covariates[HUMAN_SCORES])
    ]
    assert slope(BIAS_SCORE_Z, single) == pytest.approx(correlations[0] - correlations[1])
    assert list(rule(BIAS_SCORE_Z).estimates(single)) == ["bias_score_z", "bias_score", "performance"]


def test_demonstrations_at_both_ends_of_matched_lengths_worked_by_hand():
    likelihoods = np.array([-1.0, -2.0, -3.0, -9.0, -8.0, -7.0, -5.0])
    unfairness = np.array([0.9, 0.8, 0.5, -0.9, -0.7, -0.6, 0.0])
    signed = signed_rs(likelihoods, unfairness)
    assert np.argsort(-np.abs(signed))[:2].tolist() == [0, 3]
    assert sorted(highest_rs(signed, 2)) == [0, 3]
    words = np.array([30.0, 12.0, 10.0, 10.0, 35.0, 28.0, 99.0])
    assert both_ends(signed, words, 4) == [2, 3, 0, 4]  # of all matches, 30-35, 12-28, 10-10 differ least
    with pytest.raises(TooFewError, match="3 likely overrated and 0 unlikely underrated"):
        both_ends(np.abs(signed[:3]), words[:3], 2)


def test_balanced_demonstrations_hold_likelihood_and_label_apart():
    rng = np.random.default_rng(0)
    human = rng.integers(1, 6, 90).astype(float)
    likelihoods = 3 * human + rng.normal(0, 4, 90)  # what is good is likely
    words = rng.integers(5, 40, 90).astype(float)
    picks = balanced(likelihoods, human, words, 8)
    assert len(set(picks)) == 8
    pairs = np.array(picks).reshape(4, 2)
    assert (likelihoods[pairs[:, 0]] > likelihoods[pairs[:, 1]]).all()
    assert np.abs(human[pairs[:, 0]] - human[pairs[:, 1]]).max() <= 1
    assert np.ptp(human[picks]) >= 3
    everything = np.corrcoef(likelihoods, human)[0, 1]
    assert abs(np.corrcoef(likelihoods[picks], human[picks])[0, 1]) < everything / 1.5
    with pytest.raises(TooFewError, match="20 items"):
        balanced(likelihoods[:20], human[:20], words[:20], 8)


def test_a_judge_that_is_no_better_than_the_likelihood_is_told_so():
    weak = with_effect(0.6, noise=3.0)
    fitted = {**with_effect(0.0, seed=50).covariates, "lengths": np.arange(200.0)}
    weak.covariates["lengths"] = np.arange(200.0)
    found = against_baselines(weak, fitted, n_resamples=500, seed=0)
    assert list(found["baselines"]) == ["likelihood alone", "length alone"]
    assert found["baselines"]["likelihood alone"].value > 0.2
    assert "The judge is not significantly better than likelihood alone: no gain is shown" in found["against_baselines"]
    strong = with_effect(0.0, noise=0.1)
    strong.covariates["lengths"] = np.arange(200.0)
    assert (
        "not significantly better"
        not in against_baselines(strong, fitted, n_resamples=500, seed=0)["against_baselines"]
    )


def test_the_family_takes_what_helps_and_its_calibration_works_where_it_is_used(tmp_path):
    class Stubborn(FormulaLM):
        """Learns nothing from demonstrations."""

        def _row(self, prompt, choices):
            return super()._row([prompt[0], prompt[-1]], choices)

    lm = Stubborn()
    optimizer = LikelihoodMitigation(k=(4,), n_resamples=300)
    compiled = optimizer.compile(PointwiseJudge(C), trainset=of_sources(100, 1), valset=of_sources(60, 2), lm=lm)
    report = compiled.report
    assert report.objective == "likelihood effect, because the items have several ratings"
    assert "likelihood calibration of strength" in report.chosen
    assert report.decision.startswith(f'"{report.chosen}" was chosen out of 13 candidates on all 100 training inputs')
    given, best = report.candidates[0], next(t for t in report.candidates if t.chosen)
    effects = [abs(t.estimates["likelihood_effect"].value) for t in (given, best)]
    assert effects[1] < effects[0] / 4
    assert best.name in report.front
    assert best.cost.judgments == 0  # the raw scores were known
    compiled.save(str(tmp_path / "judge.json"))
    fresh = of_sources(5, 9)
    loaded = load_judge(tmp_path / "judge.json").batch(fresh, lm=lm)
    assert [p.score for p in loaded] == [p.score for p in compiled.batch(fresh, lm=lm)]
    assert all(p.score != p.raw_score for p in loaded)
    assert report.paper.ids == report.after.ids == tuple(e.id for e in of_sources(60, 2))
    texts = {e.output for e in (*of_sources(100, 1), *of_sources(60, 2))}
    assert report.cost.likelihoods == len(texts)  # each once, for all candidates and both reductions


def test_a_judge_without_bias_is_returned_as_it_was_given():
    lm, student = FormulaLM(bias=0.0), PointwiseJudge(C)
    compiled = LikelihoodMitigation(k=(4,), n_resamples=300).compile(student, trainset=of_sources(100, 1), lm=lm)
    assert compiled.dump_state() == student.dump_state()
    assert compiled.report.decision.startswith("The given program was kept: none of 13 candidates showed less likel")
    assert (compiled.report.chosen, compiled.report.paper) == ("the given judge", None)


def test_another_models_likelihood_allows_no_calibration_and_long_demonstrations_are_left_out():
    class Short(FormulaLM):
        def choice_logprobs(self, prompts, choices):
            if max(len(p) for p in prompts) > 2 + 2 * 4:
                raise PromptTooLong(dict.fromkeys(range(len(prompts)), "has 99 tokens, but the context is 64."))
            return super().choice_logprobs(prompts, choices)

    optimizer = LikelihoodMitigation(k=(4,), likelihood_lm=FormulaLM(), n_resamples=300)
    report = optimizer.compile(PointwiseJudge(C), trainset=of_sources(60, 1), lm=Short()).report
    assert report.left_out == {"likelihood calibration": "LS is another model's, which the judge does not ask"}
    with pytest.raises(ValueError, match="4 of 8 demonstrations fit"):
        LikelihoodMitigation(k=(4, 8)).compile(PointwiseJudge(C), trainset=of_sources(60, 1), lm=Short())
    with pytest.raises(ValueError, match=r"k=\(1, 4\)"):
        LikelihoodMitigation(k=(1, 4))
    with pytest.raises(ValueError, match="k=4: give the numbers of demonstrations to try, each at least 2, such as"):
        LikelihoodMitigation(k=4)  # as BiasedDemos takes it


def test_ratings_that_do_not_agree_are_the_reason_why_an_effect_is_not_compared():
    given = with_effect(0.5, n=40)
    given.covariates[RATINGS] = np.random.default_rng(5).normal(size=(40, 2))
    estimate = rule().estimates(given)[EFFECT]
    assert estimate.reason.startswith("the ratings are too few or too unreliable to hold the quality fixed")
    assert math.isnan(p_value(with_effect(0.0, n=40), given))
    assert rule().estimates(with_effect(0.5))[EFFECT].reason == ""


@pytest.mark.parametrize("optimizer", [LikelihoodMitigation(k=(2,)), BiasedDemos(k=2), BiasedDemos(k=2, select=False)])
def test_a_model_without_likelihoods_is_refused_before_it_judges(optimizer):
    class Chat(FormulaLM):
        def loglikelihood(self, pairs):
            raise NotImplementedError("no likelihoods")

    lm, train = Chat(), [e.copy(source=f"s{i}") for i, e in enumerate(items(80, seed=1))]
    with pytest.raises(NotImplementedError, match="no likelihoods"):
        optimizer.compile(PointwiseJudge(C), trainset=train, lm=lm)
    assert lm.judged == []
    other = FormulaLM()
    optimizer.likelihood_lm = other
    optimizer.compile(PointwiseJudge(C), trainset=train, lm=lm)
    assert lm.judged
    assert other.judged == []
