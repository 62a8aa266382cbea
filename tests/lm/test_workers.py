"""A model of which several workers hold copies: parts of calls, answers kept, and a pool of Ray actors, here a fake."""

import re
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import FormulaLM, messages_of, outcome
from lm.test_conformance import InProcess

from evalbias.lm import workers
from evalbias.lm.cache import CachedLM
from evalbias.lm.types import Choices, MeasuringLM, Text, Unanswered, chunk_of
from evalbias.lm.workers import RETRIES, About, Outcome, RayPool, Worker, WorkersLM, allotted

CHOICES = ("1", "2", "3", "4", "5")


class Model(FormulaLM):
    """A model that refuses prompts that say "too long", and counts how often it forgets."""

    forgot = 0

    def provenance(self):
        return {"model": self.model, "weights": "formula"}

    def forget(self):
        Model.forgot += 1

    def __init__(self):
        super().__init__(refuses=lambda question: "too long" in messages_of(question)[-1]["content"])


def prompts(n, said=""):
    return [[{"role": "user", "content": f"q={1 + i % 5} z={i / 7:.3f} {said}"}] for i in range(n)]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(workers, "PART", 4)


def test_workers_answer_the_parts_of_a_call():
    one, pool = Model(), InProcess(Model)
    lm = WorkersLM(pool)
    assert isinstance(lm, MeasuringLM)
    assert (lm.model, lm.provenance(), lm.in_flight) == (one.model, one.provenance(), 12)
    assert chunk_of(lm) == 256  # eight parts for each worker would be 96
    asked = prompts(10)
    asked[1:2], asked[9:] = prompts(1, "too long"), prompts(1, "too long")
    answers, refused, _ = outcome(lm, [Choices(prompt, CHOICES) for prompt in asked])
    assert [len(part) for part in pool.parts.values()] == [4, 4, 2]
    assert refused == dict.fromkeys([1, 9], "has 99 tokens, but the model's context is 64.")
    truth = one.choice_logprobs([prompt for n, prompt in enumerate(asked) if n in answers], CHOICES).logprobs
    np.testing.assert_array_equal(np.concatenate([answer.logprobs for answer in answers.values()]), truth)


@pytest.mark.parametrize(("exact", "times"), [(True, 3), (False, 0)])
def test_workers_forget_before_each_part_of_a_run_that_is_to_be_repeated_exactly(tmp_path, exact, times):
    before = Model.forgot
    journaled = CachedLM(WorkersLM(InProcess(Model)), tmp_path / "answers.jsonl", exact=exact)
    assert len(journaled.choice_logprobs(prompts(10), CHOICES).logprobs) == 10
    assert Model.forgot - before == times


def test_parts_without_answers_do_not_cost_the_others():
    pool = InProcess(Model, lambda number, outcome: Outcome(error="3 workers died") if number else outcome)
    message = r"fake/formula: items 4 to 7 of a call: 3 workers died \(1 more parts of the call failed.\)"
    answers, _, ended = outcome(WorkersLM(pool), [Choices(prompt, CHOICES) for prompt in prompts(10)])
    assert isinstance(ended, Unanswered)
    assert re.fullmatch(message, str(ended))
    assert sorted(answers) == [0, 1, 2, 3]


def test_an_error_of_the_model_names_the_items():
    class Broken(Model):
        def loglikelihood(self, pairs):
            raise FloatingPointError("the logits of text 0 are NaN")

    with pytest.raises(Unanswered, match="items 0 to 2 of a call: the logits of text 0 are NaN"):
        WorkersLM(InProcess(Broken)).loglikelihood([(prompt, "x") for prompt in prompts(3)])


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (ValueError("different models"), Unanswered)]
)
def test_a_call_that_ends_early_keeps_its_answers_in_the_journal(tmp_path, error, raised):
    def fault(number, outcome):
        if number == 0:  # after all later parts were answered
            raise error
        return outcome

    journal, asked = tmp_path / "answers.jsonl", prompts(10)
    with pytest.raises(raised):
        CachedLM(WorkersLM(InProcess(Model, fault)), journal).choice_logprobs(asked, CHOICES)
    again = CachedLM(WorkersLM(InProcess(Model)), journal)
    answer = again.choice_logprobs(asked, CHOICES)
    assert (again.replayed, again.asked.total()) == (6, 4)
    np.testing.assert_array_equal(answer.logprobs, Model().choice_logprobs(asked, CHOICES).logprobs)


def test_a_worker_returns_the_error_with_which_it_opened_the_model():
    def opening():
        raise ValueError("./none does not exist")

    assert Worker(opening, lambda lm: lm.provenance()).about().error == "./none does not exist"


# Actors that die are replaced, and what kills each of them is told.


PARTS = {n: [Text(f"text {n}")] for n in range(5)}
ABOUT = About("model", {"weights": "w"})


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(cause)
        self.cause = cause


class FakeRay:
    """Actors whose n-th is ``kinds[n]``, the last kind for all further ones; calls are answered in their order.

    A kind is a function from a call ("about" or a part) to its result; it raises what Ray raises.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *kinds):
        self.kinds, self.started, self.needs, self.results = deque(kinds), 0, None, {}

    def nodes(self):
        dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        return [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}} for _ in range(2)] + [dead]

    def remote(self, _):
        return SimpleNamespace(options=self._options)

    def _options(self, **needs):
        self.needs = needs
        return SimpleNamespace(remote=self._start)

    def _start(self, *arguments):
        self.started += 1
        kind = self.kinds.popleft() if len(self.kinds) > 1 else self.kinds[0]

        def call(asked, _=None):
            self.results[reference := object()] = (kind, asked)
            return reference

        about, answer = SimpleNamespace(remote=lambda: call("about")), SimpleNamespace(remote=call)
        return SimpleNamespace(about=about, answer=answer)

    def wait(self, references, num_returns):
        assert references, "nothing is waited for"
        return [next(r for r in self.results if r in references)], []

    def get(self, reference):
        kind, asked = self.results.pop(reference)
        return kind(asked)


DIED = RayError("the actor died")


def actor(about=ABOUT, error=None, on=None):
    """An actor that raises an error on some parts, by default on all; ``about`` may be an error too."""

    def answer(asked):
        fails = error is not None and asked != "about" and (on is None or asked in on)
        result = error if fails else about if asked == "about" else Outcome({0: asked[0].prompt.upper()})
        if isinstance(result, Exception):
            raise result
        return result

    return answer


def ray_pool(monkeypatch, *kinds, actors=2):
    fake = FakeRay(*kinds)
    monkeypatch.setattr(workers, "started_ray", lambda: fake)
    return RayPool(lambda: None, lambda lm: {}, actors), fake


def test_parts_are_answered_once_each(monkeypatch):
    found, fake = ray_pool(monkeypatch, actor())
    assert (found.size, found.about(), fake.needs, fake.started) == (2, ABOUT, {"num_gpus": 1}, 2)
    for _ in range(2):
        answers = dict(found.answers(PARTS, False))
        assert {n: outcome.answers[0] for n, outcome in answers.items()} == {n: f"TEXT {n}" for n in range(5)}
    next(iter(answers := found.answers(PARTS, False)))
    answers.close()  # a call that ends early leaves the workers to the next
    assert len(dict(found.answers(PARTS, False))) == 5
    assert list(found.answers({}, False)) == []


BROKEN = RayTaskError(RuntimeError("out of memory"))


@pytest.mark.parametrize(
    ("kinds", "actors", "started", "error"),
    [
        ([actor(error=DIED), actor()], 2, 3, None),  # its part goes to another
        ([actor(error=DIED, on=[PARTS[1]])], 2, 5, "3 workers died, perhaps of too little memory: the actor died"),
        ([actor(error=BROKEN, on=[PARTS[1]])], 1, 1, "RuntimeError: out of memory"),  # the worker goes on
    ],
)
def test_what_ails_a_worker_costs_no_other_part(monkeypatch, kinds, actors, started, error):
    found, fake = ray_pool(monkeypatch, *kinds, actors=actors)
    answers = dict(found.answers(PARTS, False))
    assert {number: outcome.error for number, outcome in answers.items()} == {**dict.fromkeys(range(5)), 1: error}
    assert fake.started == started


def test_workers_that_die_while_they_open_the_model_are_replaced_a_few_times(monkeypatch):
    found, fake = ray_pool(monkeypatch, actor(about=DIED), actor(about=DIED), actor())
    assert (found.about(), fake.started) == (ABOUT, 4)


@pytest.mark.parametrize(
    ("kinds", "match"),
    [
        ([actor(about=DIED)], "3 workers died while they opened the model, perhaps of too little memory"),
        (
            [actor(), actor(About("model", {"weights": "v"}))],
            r"models, \{'weights': 'w'\} and \{'weights': 'v'\}",
        ),
        ([actor(About(error="./none does not exist"))], r"^\./none does not exist$"),
    ],
)
def test_workers_that_open_no_model_or_different_ones_are_refused(monkeypatch, kinds, match):
    found, fake = ray_pool(monkeypatch, *kinds)
    with pytest.raises(ValueError, match=match):
        dict(found.answers(PARTS, False))
    assert fake.started <= 2 + RETRIES


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
