"""The joint model: which effects remain when the others are held fixed."""

import re
from dataclasses import replace

import numpy as np
import pytest
from planted import compared, flagged, numbers, scored

from evalbias.evaluation import measure
from evalbias.evaluation.audit import audit_answers
from evalbias.evaluation.biases import Joint, Likelihood
from evalbias.evaluation.judged import LENGTHS, LIKELIHOODS, RATINGS
from evalbias.measures import effect_at_equal_quality

MINE = Joint(own="mine")


def entangled(rng, n, draw=scored, **planted):
    """A judge on items whose length goes with LS beyond what quality explains."""
    judged = draw(rng, n, **planted)
    ls = judged.covariates[LIKELIHOODS] + 0.8 * np.log(judged.covariates[LENGTHS])
    return replace(judged, covariates={**judged.covariates, LIKELIHOODS: ls})


def test_effects_are_those_with_the_others_as_covariates():
    judged = scored(np.random.default_rng(0), 200, length=0.3)
    found = measure(MINE, judged, seed=0)
    assert list(found.estimates) == ["likelihood", "length", "own_system"]
    ls, length = judged.covariates[LIKELIHOODS], np.log(judged.covariates[LENGTHS])
    own = np.array([w == "mine" for w in judged.writers], dtype=float)
    for name, feature, others, scaled in (
        ("likelihood", ls, (length, own), True),
        ("length", length, (ls, own), True),
        ("own_system", own, (ls, length), False),
    ):
        covariates = {str(i): other.tolist() for i, other in enumerate(others)}
        direct = effect_at_equal_quality(
            feature, judged.answers, judged.covariates[RATINGS], covariates=covariates, standardized=scaled
        )
        assert (found[name].value, found[name].low) == pytest.approx((direct.value, direct.low))


@pytest.mark.slow
@pytest.mark.parametrize("draw", [scored, compared])
def test_a_bias_that_only_goes_with_another_does_not_remain(draw):
    def judged(rng):
        return entangled(rng, 400, draw, length=0.5)

    assert flagged(Likelihood(), "likelihood_effect", judged, sets=20) >= 0.9  # by itself it looks biased
    assert flagged(Joint(), "likelihood", judged, sets=100) <= 0.08
    assert flagged(Joint(), "length", judged, sets=20) >= 0.9


def test_an_audit_says_that_one_bias_may_look_like_another():
    found = audit_answers(entangled(np.random.default_rng(0), 400, length=0.5))
    alone = {finding.bias: finding.alone for finding in found.having("biased")}
    assert alone == {"likelihood": False, "verbosity": True}
    assert found.paragraphs[1] == (
        "With the other biases held fixed, likelihood is not shown (see 'Biases in one model'): in these outputs, one "
        "bias may look like another."
    )
    assert found.to_dict()["biases"]["likelihood"]["alone"] is False
    plain = audit_answers(scored(np.random.default_rng(0), 400, length=0.5, likelihood=0.5))
    assert all(finding.alone for finding in plain.having("biased"))
    assert "held fixed" not in plain.verdict


def test_an_unbiased_judge_is_not_flagged():
    for name in ("likelihood", "length", "own_system"):
        assert flagged(MINE, name, lambda rng: scored(rng, 200), sets=60) <= 0.1


def test_position_is_the_mean_advantage_of_both_orders():
    judged = compared(np.random.default_rng(1), 300, first=0.4)
    found = measure(Joint(), judged, seed=0, n_resamples=200)["position"]
    wins = judged.answers[:, :, 0]
    assert found.value == pytest.approx(np.log(wins / (1 - wins)).mean())
    assert found.value == pytest.approx(0.8, abs=0.1)  # twice the planted one: odds are e to the double
    assert "position" not in numbers(Joint(), compared(np.random.default_rng(1), 50, orders=1))


def test_what_it_needs():
    judged = scored(np.random.default_rng(2), 30)
    alone = replace(judged, covariates={k: v for k, v in judged.covariates.items() if k != LIKELIHOODS})
    assert not Joint().applies(alone)
    assert MINE.applies(alone)
    assert not Joint(own="absent").applies(alone)
    assert not Joint().applies(replace(judged, covariates={LENGTHS: np.ones(30), LIKELIHOODS: np.ones(30)}))


def test_an_audit_explains_with_it_and_does_not_count_it_as_a_bias():
    judged = scored(np.random.default_rng(3), 150)
    found = audit_answers(judged, own_system="mine")
    assert {"joint", "self_preference", "scale_use", "verbosity", "agreement"} <= set(found.measurements)
    assert not {"joint", "agreement"} & {finding.bias for finding in found.findings}
    told = found.to_dict()
    assert set(told["further"]["joint"]) == {"likelihood", "length", "own_system"}
    assert "joint" not in told["biases"]
    assert {"scale_use", "self_preference"} <= set(told["biases"])


def test_biases_that_the_joint_model_cannot_tell_apart_are_not_called_alone():
    rng = np.random.default_rng(0)
    judged = scored(rng, 300, length=0.4)
    lengths = judged.covariates[LENGTHS]
    judged = replace(judged, covariates={**judged.covariates, LIKELIHOODS: -2 * np.log(lengths)})
    found = audit_answers(judged)
    likelihood, verbosity = (f for f in found.findings if f.bias in ("likelihood", "verbosity"))
    assert (likelihood.status, verbosity.status) == ("biased", "biased")
    assert likelihood.estimate.value == pytest.approx(-verbosity.estimate.value)
    assert np.isnan([likelihood.joint.low, verbosity.joint.low]).all()
    assert not likelihood.alone
    assert not verbosity.alone
    assert re.search("With the other biases held fixed, .* and .* cannot be told apart", found.verdict)
    assert not any(told["alone"] for told in found.to_dict()["biases"].values() if told["status"] == "biased")
