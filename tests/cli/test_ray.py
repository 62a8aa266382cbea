"""Commands with ``--workers ray`` on a real Ray cluster of two actors: the numbers of the same commands without."""

import json
import os
import signal
from types import SimpleNamespace

import pytest
from commands import as_jsonl, evalbias, records, rows_of

from evalbias import PairwiseJudge, PointwiseJudge
from evalbias.cli import models
from evalbias.cli.models import open_lm
from evalbias.data import world
from evalbias.lm.cache import model_identity
from evalbias.lm.types import Text
from evalbias.lm.workers import PART
from evalbias.options import MeasuringModels
from evalbias.programs.criterion import SYNTHETIC

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """Ray with two CPUs, started once."""
    import ray

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=2, object_store_memory=10**8, **quiet)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def workers(cluster):
    """The embedded judge in two actors."""
    return open_lm("embedded", MeasuringModels(workers="ray:2"))


@pytest.fixture
def _opened(workers, monkeypatch):
    """Give every command the same actors: opening the model takes them longer than the tests."""
    monkeypatch.setattr(models, "_distributed", lambda name, options: workers)


RANKED = {"performance", "likelihood_correlation"}


def leaves(value, path=()):
    """Return path -> number or text of a JSON value."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        return {p: leaf for key, one in inside for p, leaf in leaves(one, (*path, key)).items()}
    return {path: value}


def check_same(here, there):
    """Check that two runs have the same settings, and the same results up to 1e-5, as between two sizes of a batch.

    A rank correlation moves by more where two items that are equal but for such a difference change places.
    """
    assert (here / "run.json").read_text() == (there / "run.json").read_text()
    expected, found = (leaves(json.loads((run / "result.json").read_text())) for run in (here, there))
    assert found.keys() == expected.keys()
    assert len(expected) > 20
    for path, value in expected.items():
        within = 1e-3 if RANKED & {*path} else 1e-5
        assert found[path] == (pytest.approx(value, abs=within, rel=1e-5) if isinstance(value, float) else value), path


def test_the_model_is_the_same_in_workers_and_here(workers):
    here = open_lm("embedded")
    assert (workers.model, workers.provenance()) == (here.model, model_identity(here))
    prompts = [[{"role": "user", "content": f"Judge {n}."}] for n in range(2 * PART + 1)]
    pairs = [(prompt, "She was born in Lima.") for prompt in prompts]
    for kind in (
        lambda lm, some: lm.choice_logprobs(prompts[some], ["1", "5"]).logprobs.ravel().tolist(),
        lambda lm, some: [answer.total for answer in lm.loglikelihood(pairs[some])],
    ):
        expected = []
        for start in range(0, len(prompts), PART):
            expected += kind(here, slice(start, start + PART))
        assert kind(workers, slice(None)) == pytest.approx(expected, abs=1e-5)  # float32 keeps 4e-6 of 40 nats
    texts = [Text(prompts[n % 3], 4, float(n > 2), seed=n) for n in range(6)]  # greedy, then drawn
    there, in_place = {}, {}
    workers.answer(texts, there)
    here.answer(texts, in_place)
    assert [there[n].text for n in range(6)] == [in_place[n].text for n in range(6)]


@pytest.mark.usefixtures("_opened")
@pytest.mark.parametrize("judge", [PointwiseJudge, PairwiseJudge])
def test_a_command_has_the_results_of_a_run_without_workers(tmp_path, judge):
    as_jsonl(tmp_path / "items.jsonl", rows_of(world.documents(24, 4, seed=9), "id", "input_id", "scores"))
    judge(SYNTHETIC).save(tmp_path / "judge.json")
    command = ["audit", "--judge", "judge.json", "--data", "items.jsonl", "--lm", "embedded"]
    evalbias(*command, "--out", "here", cwd=tmp_path)
    evalbias(*command, "--workers", "ray:2", "--out", "there", cwd=tmp_path)
    check_same(tmp_path / "here", tmp_path / "there")


@pytest.mark.usefixtures("_opened")
def test_a_worker_that_dies_is_replaced_and_costs_no_score(tmp_path, cluster, workers, monkeypatch):
    rows = [{"id": f"i{n}", "source": e.source, "output": e.output} for n, e in enumerate(world.examples(400, seed=3))]
    as_jsonl(tmp_path / "items.jsonl", rows)
    PointwiseJudge(SYNTHETIC).save(tmp_path / "judge.json")
    command = ["judge", "--judge", "judge.json", "--data", "items.jsonl", "--lm", "embedded"]
    evalbias(*command, "--out", "here", cwd=tmp_path)
    actors = [*workers._idle]
    alive = [cluster.get(actors[0].__ray_call__.remote(lambda worker: os.getpid()))]

    def killing(reference):
        result = cluster.get(reference)
        if alive:
            os.kill(alive.pop(), signal.SIGKILL)
        return result

    monkeypatch.setattr(workers, "_ray", SimpleNamespace(wait=cluster.wait, get=killing, exceptions=cluster.exceptions))
    evalbias(*command, "--workers", "ray:2", "--out", "there", cwd=tmp_path)
    here, there = (records(tmp_path / run / "scores.jsonl") for run in ("here", "there"))
    assert [row["id"] for row in here] == [row["id"] for row in there] == [f"i{n}" for n in range(400)]
    assert [row["score"] for row in there] == pytest.approx([row["score"] for row in here], abs=1e-5)
    left = workers._idle
    assert (len(left), actors[0] in left, actors[1] in left) == (2, False, True)
