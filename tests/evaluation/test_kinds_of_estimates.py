"""What each bias needs, and which estimates are tested by swaps or confounded; ``test_words`` shows nulls and signs."""

from dataclasses import replace

import numpy as np
import pytest
from planted import by_hand, compared, having, numbers, partly, scored, without

from evalbias.evaluation import BIASES
from evalbias.evaluation.agreement import CorrectedEstimates, PeopleAgreement
from evalbias.evaluation.biases import EXPECTED, Joint, SelfPreference, Verbosity
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS

SWAPPED = {  # quick to compute, of the judge, and without a test of their own interval
    "agreement": {"spearman", "leniency", "accuracy", "accuracy_swapped", "consistency", "brier"},
    "joint": {"position"},
    "likelihood": {"bias_score", "bias_score_z", "performance", "likelihood_correlation"},
    "position": {"first_rate", "first_rate_balanced", "fairness", "position_consistency", "confidence"},
    "scale_use": {"ends_share"},
    "self": {"bias", "skewness", "own", "expected"},
    "verbosity": {"longer_rate"},
}
QUALITY_MAY_EXPLAIN = {  # better texts are longer and likelier, and in one order they may stand first
    "likelihood": {"bias_score", "bias_score_z", "likelihood_correlation"},
    "verbosity": {"longer_rate", "accuracy_gap"},
}


def kinds():
    rng = np.random.default_rng(0)
    scores, both = scored(rng, 60, raters=3), compared(rng, 60, raters=3)
    scores, one = (
        having(scores, **{EXPECTED: scores.covariates[HUMAN_SCORES]}),
        replace(both, answers=both.answers[:, :1]),
    )
    choices = having(one, **{BETTER: (both.covariates[RATINGS].mean(axis=1) < 0).astype(float)})
    return {"scores": scores, "both orders": both, "one order": one, "choices": choices}


@pytest.mark.parametrize("kind", ["scores", "both orders", "one order", "choices"])
def test_what_each_estimate_is(kind):
    judged = kinds()[kind]
    one_order = judged.pairwise and judged.answers.shape[1] == 1
    applied = [one for one in {**BIASES, "self_preference": SelfPreference(own="mine")}.values() if one.applies(judged)]
    assert len(applied) > 4
    for bias in applied:
        name = bias.name
        confounded = QUALITY_MAY_EXPLAIN.get(name, set()) | ({"first_rate", "fairness"} if one_order else set())
        for key, number in numbers(bias, judged).items():
            assert number.tested is (key in SWAPPED.get(name, set())), key
            assert number.confounded is (key in confounded), key
            assert number.only_below is (key == "slope"), key


def test_what_a_bias_needs():
    judged, mine = scored(np.random.default_rng(1), 20), SelfPreference(own="mine")
    pairs, one = compared(np.random.default_rng(4), 20), np.ones(1)
    turned = replace(pairs, answers=pairs.answers[:, :1], writers=[("mine", "other"), ("other", "mine")] * 10)
    first = replace(turned, writers=[("mine", "other")] * 20)
    chosen = replace(turned, covariates={BETTER: np.array([1.0, np.nan] * 10)})

    unknown, unrated = without(judged, LIKELIHOODS), without(judged, RATINGS, HUMAN_SCORES)
    for bias, items, applies in (
        (mine, judged, True),
        (SelfPreference(own="absent"), judged, False),
        (mine, replace(judged, writers=["mine"] * 20), False),
        (mine, replace(judged, writers=()), False),
        (mine, unrated, False),
        (mine, turned, True),
        (mine, first, False),  # position explains its wins as well
        (Verbosity(), by_hand(one, **{LENGTHS: one}), False),
        (Verbosity(), by_hand(one, **{LENGTHS: one, HUMAN_SCORES: one}), True),
        (Verbosity(), replace(pairs, covariates={LENGTHS: np.ones((20, 2))}), True),
        (Joint(), unknown, False),  # one property
        (Joint(own="mine"), unknown, True),
        (Joint(own="absent"), unknown, False),
        (Joint(), unrated, False),
        (PeopleAgreement(), by_hand(one), False),
        (PeopleAgreement(), by_hand(one, **{HUMAN_SCORES: one}), True),
        (PeopleAgreement(), replace(pairs, covariates={}), False),
        (PeopleAgreement(), chosen, True),
        (CorrectedEstimates(), partly(judged, 2), True),
        (CorrectedEstimates(), partly(judged, 1), False),
        (CorrectedEstimates(), judged, False),  # all are labeled
        (CorrectedEstimates(), chosen, True),
        (CorrectedEstimates(), replace(chosen, writers=()), False),
        (CorrectedEstimates(), replace(chosen, writers=[("a", "a")] * 20), False),
        (CorrectedEstimates(), replace(chosen, writers=[("a", "b"), ("a", "c")] * 10), False),
    ):
        assert bias.applies(items) is applies, (bias, items.covariates.keys(), items.writers)
    assert list(numbers(Verbosity(), replace(pairs, covariates={LENGTHS: np.ones((20, 2))}))) == ["longer_rate"]
    with pytest.raises(ValueError, match=r"^length_effect on .* cannot be measured: it needs people's ratings"):
        Verbosity().number("length_effect", unrated)
