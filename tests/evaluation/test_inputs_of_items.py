"""Outputs of one input are resampled and swapped together."""

from functools import partial

import numpy as np
import pytest

from evalbias.evaluation import compare, measure
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.judged import HUMAN_SCORES, LIKELIHOODS, Judged
from evalbias.measures import Draws, estimate
from evalbias.measures.agreement import counted_spearman
from evalbias.measures.likelihood import counted_bias_score


def judged(scores, likelihoods, human, inputs=()):
    ids = tuple(map(str, range(len(scores))))
    return Judged(ids, "quality", scores, {LIKELIHOODS: likelihoods, HUMAN_SCORES: human}, inputs=inputs)


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(4)
    shared = rng.normal(size=(5, 20)).repeat(6, axis=1)  # of a document: LS, quality, errors
    ls, quality, first, second = rng.normal(size=(4, 120)) + 1.5 * shared[:4]
    return quality + first, quality + second, ls, quality, tuple(f"d{i // 6}" for i in range(120))


def test_intervals_and_tests_follow_the_inputs(drawn):
    first, second, ls, human, inputs = drawn
    one, two = (measure(Likelihood(), judged(s, ls, human, inputs), seed=0) for s in (first, second))
    for name in ("bias_score", "bias_score_z", "performance"):
        number = one.numbers[name]
        counted = counted_spearman if name == "performance" else counted_bias_score
        normalization = {"normalization": "z-score"} if name == "bias_score_z" else {}
        interval = estimate(
            partial(counted, **normalization), number.values, *number.given, clusters=inputs, method="normal"
        )
        assert one[name].high - one[name].low == pytest.approx(interval.high - interval.low, rel=0.1)
        assert one[name].units == 20
        change = compare(one, two, n_resamples=300, seed=0)[name]
        draws = Draws(resamples=0, swaps=300)
        p_values = [
            number.estimator(second, *number.given, before=first, clusters=c, draws=draws).p_value
            for c in (inputs, None)
        ]
        assert [change.p_value, change.p_itemwise] == p_values
        assert p_values[0] != p_values[1]
        assert change.difference.units == 20
    assert "intervals over 20 inputs" in one.table().caption


def test_intervals_of_shared_errors_are_wider(drawn):
    first, _, ls, human, inputs = drawn
    shared, alone = (measure(Likelihood(), judged(first, ls, human, i), seed=0) for i in (inputs, ()))
    for name in ("bias_score", "performance"):
        assert shared[name].high - shared[name].low > 1.3 * (alone[name].high - alone[name].low)


def test_items_with_inputs_of_their_own_or_one_for_all_are_resampled_one_by_one(drawn):
    first, second, ls, human, _ = drawn
    bare = measure(Likelihood(), judged(first, ls, human), seed=0)
    for inputs in (tuple(map(str, range(120))), ("one",) * 120):
        one, two = (measure(Likelihood(), judged(s, ls, human, inputs), seed=0) for s in (first, second))
        assert one.clusters is None
        assert str(one.estimates) == str(bare.estimates)  # the likelihood effect of one rating is NaN
        change = compare(one, two, n_resamples=50, seed=0)["performance"]
        assert change.p_value == change.p_itemwise


def test_other_inputs_are_not_compared(drawn):
    first, _, ls, human, inputs = drawn
    one, two = (measure(Likelihood(), judged(first, ls, human, i), seed=0) for i in (inputs, inputs[::-1]))
    with pytest.raises(ValueError, match="belong to different inputs"):
        compare(one, two, n_resamples=5, seed=0)
