"""The pool of Ray actors: actors that die are replaced, and what kills each of them is told. Ray itself is a fake."""

from collections import deque
from types import SimpleNamespace

import pytest

from evalbias.lm import workers as ray_pool
from evalbias.lm.types import Text
from evalbias.lm.workers import RETRIES, About, Outcome, RayPool, share

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


def good(asked):
    return ABOUT if asked == "about" else Outcome({0: asked[0].prompt.upper()})


def dying(asked, on=None):
    """An actor that dies of some parts, by default of all."""
    if asked != "about" and (on is None or asked in on):
        raise RayError("the actor died")
    return good(asked)


def unborn(asked):
    """An actor that dies while it opens the model."""
    raise RayError("the actor died")


def pool(monkeypatch, *kinds, actors=2):
    fake = FakeRay(*kinds)
    monkeypatch.setattr(ray_pool, "started_ray", lambda: fake)
    return RayPool(lambda: None, lambda lm: {}, actors), fake


def test_parts_are_answered_once_each(monkeypatch):
    found, fake = pool(monkeypatch, good)
    assert (found.size, found.about(), fake.needs, fake.started) == (2, ABOUT, {"num_gpus": 1}, 2)
    for _ in range(2):
        answers = dict(found.answers(PARTS, False))
        assert {n: outcome.answers[0] for n, outcome in answers.items()} == {n: f"TEXT {n}" for n in range(5)}
    assert list(found.answers({}, False)) == []


def test_an_actor_that_dies_is_replaced_and_its_part_goes_to_another(monkeypatch):
    found, fake = pool(monkeypatch, dying, good)
    answers = dict(found.answers(PARTS, False))
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert all(outcome.error is None for outcome in answers.values())
    assert fake.started == 3


def test_a_part_that_kills_every_worker_is_given_up_and_costs_no_other(monkeypatch):
    found, fake = pool(monkeypatch, lambda asked: dying(asked, on=[PARTS[1]]))
    answers = dict(found.answers(PARTS, False))
    assert answers.pop(1).error == "3 workers died, perhaps of too little memory: the actor died"
    assert sorted(answers) == [0, 2, 3, 4]
    assert all(outcome.error is None for outcome in answers.values())
    assert fake.started == 2 + RETRIES + 1


def test_an_error_in_the_models_code_is_told_and_its_worker_goes_on(monkeypatch):
    def broken(asked):
        if asked is PARTS[0]:
            raise RayTaskError(RuntimeError("out of memory"))
        return good(asked)

    found, fake = pool(monkeypatch, broken, actors=1)
    answers = dict(found.answers(PARTS, False))
    assert answers.pop(0).error == "RuntimeError: out of memory"
    assert len(answers) == 4
    assert fake.started == 1


def test_workers_that_die_while_they_open_the_model_are_replaced_a_few_times(monkeypatch):
    found, fake = pool(monkeypatch, unborn, unborn, good)
    assert (found.about(), fake.started) == (ABOUT, 4)
    found, fake = pool(monkeypatch, unborn)
    with pytest.raises(ValueError, match="3 workers died while they opened the model, perhaps of too little memory"):
        found.about()
    assert fake.started == 2 + RETRIES


def test_workers_with_different_models_are_refused(monkeypatch):
    other = About("model", {"weights": "v"})
    found, _ = pool(monkeypatch, good, lambda asked: other if asked == "about" else good(asked))
    with pytest.raises(ValueError, match=r"different models, \{'weights': 'w'\} and \{'weights': 'v'\}: give"):
        dict(found.answers(PARTS, False))


def test_a_model_that_cannot_be_opened_is_told_in_its_own_words(monkeypatch):
    found, _ = pool(monkeypatch, lambda asked: About(error="./none does not exist"))
    with pytest.raises(ValueError, match=r"^\./none does not exist$"):
        found.about()


def test_a_call_that_ends_early_leaves_the_workers_to_the_next(monkeypatch):
    found, _ = pool(monkeypatch, good)
    next(iter(answers := found.answers(PARTS, False)))
    answers.close()
    assert len(dict(found.answers(PARTS, False))) == 5


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
    assert share(nodes, actors) == (size, needs)


def test_a_cluster_that_is_too_small_is_named_at_once():
    with pytest.raises(ValueError, match="--workers ray:9: the cluster has 8 GPUs; ask for at most 8 workers"):
        share([(8, 96)], 9)
    with pytest.raises(ValueError, match="has 2 CPU cores and no GPU; ask for at most 2 workers"):
        share([(0, 1), (0, 1)], 3)
