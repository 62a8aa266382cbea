"""What each estimate is: shown with a sign, tested by swaps, open to another explanation, 0 or 1 without a bias."""

from dataclasses import replace

import numpy as np
import pytest
from planted import compared, numbers, scored

from evalbias.evaluation import BIASES
from evalbias.evaluation.biases import EXPECTED, SelfPreference
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, RATINGS

NEVER_NEGATIVE = {
    "agreement": {"accuracy", "accuracy_swapped", "consistency", "brier", "calibration_error"},
    "likelihood": {"odds_per_nat", "odds_of_first"},
    "position": {"first_rate", "first_rate_balanced", "position_consistency"},
    "scale_use": {"spread_ratio", "top_two_share", "entropy", "ends_share"},
    "self": {"skewness"},
    "verbosity": {"longer_rate"},
}
SHARES_OF_PAIRS = {"human_ceiling", "likelihood_floor", "length_floor"}
SWAPPED = {  # quick to compute, of the judge, and without a test of their own interval
    "agreement": {"spearman", "accuracy", "accuracy_swapped", "consistency", "brier"},
    "joint": {"position"},
    "likelihood": {"bias_score", "bias_score_z", "performance", "likelihood_correlation"},
    "position": {"first_rate", "first_rate_balanced", "fairness", "position_consistency", "confidence"},
    "scale_use": {"ends_share"},
    "self": {"bias", "skewness", "own", "expected"},
    "verbosity": {"longer_rate"},
}
QUALITY_MAY_EXPLAIN = {  # better texts are longer and likelier, and in one order they may stand first
    "likelihood": {"bias_score", "bias_score_z", "likelihood_correlation", "odds_per_nat"},
    "verbosity": {"longer_rate", "accuracy_gap"},
}
UNBIASED = {  # all others: 0
    "first_rate": 0.5,
    "first_rate_balanced": 0.5,
    "longer_rate": 0.5,
    "odds_of_first": 1.0,
    "odds_per_nat": 1.0,
    "position_consistency": 1.0,
    "slope": 1.0,
}
NOT_OF_A_BIAS = {
    "likelihood": {"performance"},
    "position": {"confidence"},
    "scale_use": {"spread_ratio", "top_two_share", "entropy", "ends_share"},
    "self": {"own", "expected"},
}


def kinds():
    rng = np.random.default_rng(0)
    scores, both = scored(rng, 60, raters=3), compared(rng, 60, raters=3)
    scores = replace(scores, covariates={**scores.covariates, EXPECTED: scores.covariates[HUMAN_SCORES]})
    choices = {**both.covariates, BETTER: (both.covariates[RATINGS].mean(axis=1) < 0).astype(float)}
    return {"scores": scores, "both orders": both, "one order": replace(both, answers=both.answers[:, :1])} | {
        "choices": replace(both, answers=both.answers[:, :1], covariates=choices)
    }


@pytest.mark.parametrize("kind", ["scores", "both orders", "one order", "choices"])
def test_what_each_estimate_is(kind):
    judged = kinds()[kind]
    one_order = judged.pairwise and judged.answers.shape[1] == 1
    applied = [one for one in {**BIASES, "self_preference": SelfPreference(own="mine")}.values() if one.applies(judged)]
    assert len(applied) > 4
    for bias in applied:
        found, name = numbers(bias, judged), bias.name
        unsigned = NEVER_NEGATIVE.get(name, set()) | (SHARES_OF_PAIRS if judged.pairwise else set())
        confounded = QUALITY_MAY_EXPLAIN.get(name, set()) | ({"first_rate", "fairness"} if one_order else set())
        unbiased = {} if name == "agreement" else {key: UNBIASED.get(key, 0.0) for key in found}
        unbiased |= dict.fromkeys(NOT_OF_A_BIAS.get(name, set()) & {*found})
        for key, number in found.items():
            assert number.signed is (key not in unsigned), key
            assert number.tested is (key in SWAPPED.get(name, set())), key
            assert number.confounded is (key in confounded), key
            assert number.only_below is (key == "slope"), key
            assert number.null == unbiased.get(key), key
