"""The second rule of the optimizers against likelihood bias: better agreement at no larger bias."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fakes import FormulaLM, numbers, of_sources
from planted import with_effect

from evalbias import LikelihoodMitigation
from evalbias.evaluation.judged import RATINGS
from evalbias.optimizers.likelihood_rules import EFFECT, RISE, AgreementRule, LikelihoodRule
from evalbias.optimizers.selection import LEVEL
from evalbias.programs import Criterion, PointwiseJudge

C = Criterion("quality", "is it good?")


def rule(**options):
    return AgreementRule(EFFECT, n_resamples=2_000, seed=0, **options)


def test_the_two_rules_share_the_level():
    assert LikelihoodRule.level + AgreementRule.level == pytest.approx(LEVEL)


def test_only_a_higher_agreement_passes_and_families_of_different_items_share_the_level():
    dull, sharp = with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1)
    assert rule().p_values([sharp], dull)[0] < 0.001
    assert rule().p_values([dull], sharp)[0] > 0.99
    assert rule().p_values([dull], dull) == [1.0]
    half = np.arange(100, 200)
    everywhere, (late,) = rule().p_values([sharp], dull)[0], rule().p_values([sharp.take(half)], dull.take(half))
    assert rule().p_values([sharp, sharp.take(half)], dull) == pytest.approx([2 * everywhere, 2 * late])
    assert rule().p_values([dull, dull.take(half)], sharp) == [1.0, 1.0]  # and not 2
    undefined = replace(sharp, answers=np.full(200, np.nan))
    assert math.isnan(rule().p_values([undefined], dull)[0])


def test_the_bias_may_not_be_larger_and_the_items_must_rule_out_that_it_is():
    dull, sharp = with_effect(0.0, noise=3.0), with_effect(0.0, noise=0.1)
    assert rule().loss(sharp, dull) == ""
    assert rule().loss(with_effect(0.8, noise=0.1), dull).startswith("is more biased (likelihood effect 0.")
    assert rule().loss(with_effect(-0.8, noise=0.1), dull).startswith("is more biased (likelihood effect 0.")
    unclear = rule().loss(with_effect(0.1, noise=3.0, n=20, seed=5), with_effect(0.0, noise=0.3, n=20, seed=5))
    assert unclear.startswith("may be more biased (likelihood effect 0.")
    assert float(unclear.rpartition(" ")[2].strip("+)")) > RISE
    disagreeing = {**dull.covariates, RATINGS: np.random.default_rng(5).normal(size=(200, 2))}
    reason = rule().loss(replace(sharp, covariates=disagreeing), replace(dull, covariates=disagreeing))
    assert reason == "may be more biased: the likelihood effect is undefined"


def test_a_judge_that_disagrees_a_little_less_does_not_agree():
    given = with_effect(0.0, noise=3.0)
    human = given.covariate(RATINGS).mean(axis=1)
    random = np.random.default_rng(0).normal(size=200)
    random -= np.polyval(np.polyfit(human, random, 1), human)  # uncorrelated
    useless, less = replace(given, answers=random), replace(given, answers=random + 0.02 * human)
    assert rule().p_values([less], useless)[0] < 0.025
    assert rule().loss(less, useless).startswith("is not shown to agree with people (performance ")


def test_the_performance_comes_first_and_its_standard_error_decides_what_is_equal():
    sharp = with_effect(0.3, noise=0.1)
    minus_performance, bias = rule().costs(sharp)
    assert (bias, -minus_performance) == tuple(
        abs(x) for x in LikelihoodRule(EFFECT, n_resamples=9, seed=0).costs(sharp)
    )
    performance = rule().estimates(sharp)["performance"]
    assert rule().error(sharp) == pytest.approx((performance.high - performance.low) / (2 * 1.959964), rel=1e-6)
    late = rule(held_back=100)
    assert late.costs(sharp) == late.costs(sharp.take(np.arange(100, 200))) != rule().costs(sharp)


class Confused(FormulaLM):
    """Has no taste for the likely, and hardly reads the texts unless demonstrations show it how."""

    def __init__(self, taught_bias=0.0):
        super().__init__(bias=0.0)
        self.taught_bias = taught_bias

    def _row(self, prompt, choices):
        quality, rarity = numbers(prompt[-1]["content"])
        shown = quality + self.taught_bias * rarity if len(prompt) > 2 else 3 + 2 * math.sin(1e4 * rarity)
        weights = np.exp(-np.array([(float(c) - shown) ** 2 for c in choices]))
        return list(np.log(self.mass * weights / weights.sum()))


def test_demonstrations_that_make_a_useless_judge_agree_are_compiled_though_it_has_no_bias_to_lessen():
    optimizer = LikelihoodMitigation(k=(4,), n_resamples=2_000)
    compiled = optimizer.compile(
        PointwiseJudge(C), trainset=of_sources(100, 1), valset=of_sources(60, 2), lm=Confused()
    )
    report = compiled.report
    assert len(compiled.predict.demos) == 4
    assert "for better agreement with people at no larger likelihood bias: " in report.decision
    change = report.comparison["likelihood"]["performance"]
    assert change.after.value - change.before.value > 0.5


def test_demonstrations_that_make_a_useless_judge_agree_but_biased_are_not():
    student = PointwiseJudge(C)
    compiled = LikelihoodMitigation(k=(4,), n_resamples=2_000).compile(
        student, trainset=of_sources(100, 1), lm=Confused(taught_bias=1.0)
    )
    assert compiled.dump_state() == student.dump_state()
    assert compiled.report.decision.startswith(
        "The given program was kept: none of 13 candidates showed less likelihood bias at no significant loss of "
        "performance, or better agreement with people at no larger likelihood bias on 50 held-back inputs"
    )
