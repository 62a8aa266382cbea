"""Training questions can be weighted so that the likelihood of an output says nothing about people's ratings."""

import random

import dspy
import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.tuned_judge.balance import LARGEST, Balance, groups, independent
from benchmarks.tuned_judge.packing import answer_losses, pack
from benchmarks.tuned_judge.questions import Rated, pairwise_draws, pointwise, pointwise_draws
from evalbias import Criterion
from evalbias.lm.types import LogLikelihood

QUALITY = Criterion("quality", "is it good?", scale=(1, 5))
OTHER = Criterion("other", "is it other?", scale=(1, 5))


class Likelihoods:
    """The log-likelihood of an output is the number that it ends with."""

    def __init__(self):
        self.texts = 0

    def loglikelihood(self, pairs):
        self.texts += len(pairs)
        return [LogLikelihood(np.array([float(text.split()[-1])])) for _, text in pairs]


def items(seed=0, inputs=400):
    """Two outputs an input; likelier ones are rated better."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(inputs):
        for k in range(2):
            likelihood = rng.normal()
            score = float(np.clip(np.round(3 + 0.5 * likelihood + rng.normal()), 1, 5))
            scores = {"quality": score, "other": float("nan") if i % 2 else score}
            made.append(
                dspy.Example(id=f"{i}-{k}", source=f"source {i}", output=f"text {likelihood:.6f}", scores=scores)
            )
    return made


@pytest.fixture(scope="module")
def made():
    return items()


@pytest.fixture(scope="module")
def balance(made):
    return Balance(Rated("x", (QUALITY, OTHER), made, []), Likelihoods())


def likelihood(example):
    return float(example.output.split()[-1])


def test_the_weighted_correlation_of_likelihood_and_rating_vanishes(made, balance):
    ratings = np.array([e.scores["quality"] for e in made])
    ls = np.array([likelihood(e) for e in made])
    weights = np.array([balance.item(e, QUALITY) for e in made])
    assert weights.mean() == pytest.approx(1)
    fifths, levels = groups(ls), groups(ratings)
    mean = [np.average(x, weights=weights) for x in (fifths, levels)]
    covariance = np.average((fifths - mean[0]) * (levels - mean[1]), weights=weights)
    spread = [np.sqrt(np.average((x - m) ** 2, weights=weights)) for x, m in zip((fifths, levels), mean, strict=True)]
    assert spearmanr(ls, ratings).statistic > 0.3
    assert abs(covariance / np.prod(spread)) < 0.1


def test_independent_groups_have_equal_weights():
    first, second = np.repeat([0, 1, 2], 6), np.tile([0, 1], 9)
    np.testing.assert_allclose(independent(first, second), 1)
    first = np.repeat([0, 1], 50)
    second = first.copy()
    second[0] = 1  # would weigh 25 times its share
    weights = independent(first, second)
    assert weights[0] / weights[1] == pytest.approx(LARGEST / 0.5)  # the others: .5 * .49 / .49


def test_pairs_in_which_the_likelier_is_better_weigh_as_much_as_the_others(made, balance):
    pairs = [(made[i], made[i + 1]) for i in range(0, len(made), 2)]
    sums = {1: 0.0, -1: 0.0}
    for first, second in pairs:
        lead = first.scores["quality"] - second.scores["quality"]
        weight = balance.pair(first, second, QUALITY)
        if lead == 0:
            assert weight == 1
            continue
        sums[int(np.sign(lead * (likelihood(first) - likelihood(second))))] += weight
    assert sums[1] == pytest.approx(sums[-1])


def test_criteria_of_one_task_measure_each_text_once(made):
    lm = Likelihoods()
    alike = Criterion("other", "is it other?", scale=(1, 5), task=QUALITY.task)
    Balance(Rated("x", (QUALITY, alike), made, []), lm)
    assert lm.texts == len(made)


def test_draws_carry_the_weights_of_their_outputs(made, balance):
    sets = Rated("x", (QUALITY,), made, [])
    plain = pointwise_draws(sets, inputs=20, outputs=2)(random.Random(0))
    weighted = pointwise_draws(sets, inputs=20, outputs=2, weights=balance)(random.Random(0))
    assert [q.messages for q in plain] == [q.messages for q in weighted]
    assert {q.weight for q in plain} == {1.0}
    by_text = {e.output: balance.item(e, QUALITY) for e in made}
    for question in weighted:
        text = question.messages[-1]["content"]
        assert question.weight == next(weight for output, weight in by_text.items() if output in text)
    pairs = pairwise_draws(sets, inputs=20, weights=balance)(random.Random(0))
    assert len({q.weight for q in pairs}) > 1
    assert [q.weight for q in pairs[::2]] == [q.weight for q in pairs[1::2]]


def test_a_weight_multiplies_the_loss(lms):
    engine, question = lms["qwen2"].engine, pointwise(items()[0], QUALITY, None)
    double = type(question)(question.messages, question.labels, question.target, 2.0)
    one, two = (answer_losses(engine.loaded.model, pack(engine, [q]))[0].item() for q in (question, double))
    assert two == pytest.approx(2 * one)


def test_the_length_can_be_balanced_together_with_the_likelihood():
    rng = np.random.default_rng(1)
    made = []
    for i in range(1600):
        likelihood, words = rng.normal(), int(rng.integers(1, 40))
        score = float(np.clip(np.round(3 + 0.3 * likelihood - 0.04 * (words - 20) + rng.normal()), 1, 5))
        text = f"{'x' * words} {likelihood:.6f}"
        made.append(dspy.Example(id=str(i), source=f"source {i // 2}", output=text, scores={"quality": score}))
    ratings = np.array([e.scores["quality"] for e in made])
    lengths = np.array([len(e.output) for e in made])

    def slope(balance):
        weights = np.array([balance.item(e, QUALITY) for e in made])
        x, y = (values - np.average(values, weights=weights) for values in (groups(lengths), groups(ratings)))
        return np.average(x * y, weights=weights) / np.sqrt(
            np.average(x**2, weights=weights) * np.average(y**2, weights=weights)
        )

    sets = Rated("x", (QUALITY,), made, [])
    assert abs(slope(Balance(sets, Likelihoods()))) > 0.25
    assert abs(slope(Balance(sets, Likelihoods(), length=True))) < 0.1
