"""A model of which several Ray actors hold copies: parts of calls, answers kept, and actors that die; Ray is a fake."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import FormulaLM, messages_of, outcome
from lm.fake_ray import FakeRay, RayError, RayTaskError

from evalbias.lm import workers
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import Choices, MeasuringLM, Text, Unanswered
from evalbias.lm.workers import Worker, WorkersLM, allotted

CHOICES = ("1", "2", "3", "4", "5")


class Model(FormulaLM):
    """A model that refuses prompts that say "too long"."""

    def provenance(self):
        return {"model": self.model, "weights": "formula"}

    def __init__(self):
        super().__init__(refuses=lambda question: "too long" in messages_of(question)[-1]["content"])


def prompts(n, said=""):
    return [[{"role": "user", "content": f"q={1 + i % 5} z={i / 7:.3f} {said}"}] for i in range(n)]


@pytest.fixture
def started(monkeypatch):
    """Return the model of some actors, given as kinds of ``FakeRay``, and their Ray; parts are small."""
    monkeypatch.setattr(workers, "PART", 4)

    def start(*kinds, actors=3, opening=Model):
        fake = FakeRay(*kinds, gpus=2)
        monkeypatch.setattr(workers, "started_ray", lambda: fake)
        return WorkersLM(opening, actors), fake

    return start


def test_workers_answer_the_parts_of_a_call(started):
    one, (lm, ray) = Model(), started()
    assert isinstance(lm, MeasuringLM)
    assert (lm.model, lm.provenance(), lm.chunk) == (one.model, one.provenance(), 256)  # 8 * 3 * 4 would be fewer
    asked = prompts(10)
    asked[1:2], asked[9:] = prompts(1, "too long"), prompts(1, "too long")
    answers, refused, _ = outcome(lm, [Choices(prompt, CHOICES) for prompt in asked])
    assert ray.sizes == [4, 4, 2]
    assert refused == dict.fromkeys([1, 9], "has 99 tokens, but the model's context is 64.")
    truth = one.choice_logprobs([prompt for n, prompt in enumerate(asked) if n in answers], CHOICES).logprobs
    np.testing.assert_array_equal(np.concatenate([answer.logprobs for answer in answers.values()]), truth)


def test_an_error_of_the_model_names_the_items(started):
    class Broken(Model):
        def loglikelihood(self, pairs):
            raise FloatingPointError("the logits of text 0 are NaN")

    with pytest.raises(Unanswered, match="items 0 to 2 of a call: the logits of text 0 are NaN"):
        started(opening=Broken)[0].loglikelihood([(prompt, "x") for prompt in prompts(3)])


# Actors that end a call, or die and are replaced, and what kills each of them is told.


PARTS = [Text(f"text {n}") for n in range(20)]
OPENED = {"model": "model", "weights": "w"}
DIED = RayError("the actor died")
BROKEN = RayTaskError(RuntimeError("out of memory"))


def actor(opened=OPENED, error=None, on=range(20)):
    """Return the kind of an actor that raises an error on parts that begin with some of ``PARTS``, or as it opens."""

    def answer(part):
        if isinstance(opened, Exception):
            raise opened
        if error is not None and part and PARTS.index(part[0]) in on:
            raise error
        return opened, {place: question.prompt.upper() for place, question in enumerate(part)}, None

    return lambda *_: SimpleNamespace(answer=answer)


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (ValueError("different models"), Unanswered)]
)
def test_a_call_that_ends_early_keeps_its_answers_and_its_workers(tmp_path, started, error, raised):
    asked, faults = prompts(10), [error]

    class Ending(Worker):
        def answer(self, questions):
            if questions and questions[0].prompt == asked[0] and faults:  # after all later parts were answered
                raise faults.pop()
            return super().answer(questions)

    lm, _ = started(lambda _, opening: Ending(opening))
    with pytest.raises(raised):
        CachedLM(lm, tmp_path / "answers.jsonl").choice_logprobs(asked, CHOICES)
    again = CachedLM(lm, tmp_path / "answers.jsonl")
    answer = again.choice_logprobs(asked, CHOICES)
    assert (again.replayed, again.asked.total()) == (6, 4)
    np.testing.assert_array_equal(answer.logprobs, Model().choice_logprobs(asked, CHOICES).logprobs)
    assert len(lm._idle) == 3


@pytest.mark.parametrize(
    ("kinds", "actors", "count", "lost", "error"),
    [
        ([actor()], 2, 2, [], None),
        ([actor(error=DIED), actor()], 2, 3, [], None),  # its part goes to another
        ([actor(error=DIED, on=[4])], 2, 5, [4], "3 workers died, perhaps of too little memory: the actor died"),
        ([actor(error=DIED, on=[4, 8])], 3, 9, [4, 8], "3 workers died, .*: the actor died .1 more parts of the call"),
        ([actor(error=BROKEN, on=[4])], 1, 1, [4], "RuntimeError: out of memory"),  # the worker goes on
        ([actor(DIED), actor(DIED), actor()], 2, 4, [], None),  # while it opens the model
    ],
)
def test_what_ails_a_worker_costs_no_other_part(started, kinds, actors, count, lost, error):
    lm, ray = started(*kinds, actors=actors)
    assert ray.needs == {"num_gpus": 1}
    for _ in range(1 if lost else 2):
        answers, _, ended = outcome(lm, PARTS)
        assert answers == {n: f"TEXT {n}" for n in range(20) if n // 4 * 4 not in lost}
        assert ended is None if error is None else re.search(f"model: items 4 to 7 of a call: {error}", str(ended))
    assert ray.started == count
    assert outcome(lm, []) == ({}, {}, None)


@pytest.mark.parametrize(
    ("kinds", "match"),
    [
        ([actor(DIED)], "The model cannot be opened: 3 workers died, perhaps of too little memory"),
        ([actor(), actor({"model": "m", "weights": "v"})], r"models, .*'w'\} and .*'v'\}: give every machine"),
        ([lambda make, _: make(Path("./none").read_text)], r"No such file or directory: 'none'$"),
    ],
)
def test_workers_that_open_no_model_or_different_ones_are_refused(started, kinds, match):
    with pytest.raises((ValueError, Unanswered), match=match):
        started(*kinds, actors=2)[0].answer(PARTS, {})


@pytest.mark.parametrize(
    ("nodes", "actors", "size", "needs"),
    [
        ([(8, 96)], None, 8, {"num_gpus": 1}),
        ([(8, 96)], 3, 3, {"num_gpus": 1}),
        ([(0, 16)], None, 8, {"num_cpus": 2}),
        ([(0, 1)], None, 1, {"num_cpus": 1}),
        ([(0, 2)], 2, 2, {"num_cpus": 1}),
        ([(0, 4)] * 8, 2, 2, {"num_cpus": 4}),  # no machine has half of the cluster's cores
        ([(0, 1)] * 2, 1, 1, {"num_cpus": 1}),
        ([(0, 3), (0, 3)], 3, 3, {"num_cpus": 1}),  # of 2 cores each, one would have no room
        ([(0, 5), (0, 2)], 3, 3, {"num_cpus": 2}),
    ],
)
def test_each_actor_has_a_gpu_or_its_share_of_a_machines_cores(nodes, actors, size, needs):
    assert allotted(nodes, actors) == (size, needs)


def test_a_cluster_that_is_too_small_is_named_at_once():
    with pytest.raises(ValueError, match="`workers` ray:9: the cluster has 8 GPUs; ask for at most 8 workers"):
        allotted([(8, 96)], 9)
    with pytest.raises(ValueError, match="has 2 CPU cores and no GPU; ask for at most 2 workers"):
        allotted([(0, 1), (0, 1)], 3)
