"""The papers' methods on a judge of code, here a model that answers by the words of its prompt."""

import argparse
import zlib

import numpy as np
import pytest
from fakes import Fake, messages_of

from benchmarks import code_judge
from evalbias.lm.types import ChoiceLogprobs, Choices, LogLikelihood


class Hashing(Fake):
    model = "hashing"

    def answer(self, questions, answers):
        for place, question in enumerate(questions):
            rng = np.random.default_rng(zlib.crc32(repr(messages_of(question)).encode()))
            if isinstance(question, Choices):
                logits = rng.normal(size=len(question.choices))
                answers[place] = ChoiceLogprobs(question.choices, (logits - np.logaddexp.reduce(logits))[None])
            else:
                answers[place] = LogLikelihood(-rng.exponential(size=5))


@pytest.fixture
def args(data_dir):
    return argparse.Namespace(problems=12, seeds=2, reductions=["sum"], resamples=200, pairs=16, seed=0)


@pytest.mark.slow
def test_the_mean_is_of_the_draws(args):
    *_, first, second, mean = code_judge.demonstrations(args, Hashing()).splitlines()
    sides = [[float(side.strip("*†| ")) for side in row.split(" | ")[4].split(" -> ")] for row in (first, second, mean)]
    assert sides[2] == pytest.approx(np.mean(sides[:2], axis=0), abs=0.011)


def test_the_wordings_of_a_search_have_fairness_and_accuracy(args):
    text = code_judge.fairness(args, Hashing())
    assert "16 pairs of the search, 10 for other problems" in text
    assert "| initial + permutation | 0.50 |" in text
    assert "Over 26 wordings" in text
