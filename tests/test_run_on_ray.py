"""``evalbias judge --workers ray``: the same scores as in one process, and a worker's death costs its chunks alone."""

import json
import os
import signal
import subprocess

import pytest
import ray
from commands import evalbias

from evalbias import PointwiseJudge
from evalbias.commands import run_on_ray
from evalbias.commands.models import open_lm
from evalbias.commands.options import ModelOptions
from evalbias.commands.run_on_ray import Corpus
from evalbias.commands.score_rows import rows_of, summary
from evalbias.data import DataError, load, world
from evalbias.data.chunks import chunks, load_chunk
from evalbias.programs.criteria import SYNTHETIC
from evalbias.runs.values import to_json

ITEMS = 700
OPENED = ModelOptions()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with items.jsonl and judge.json."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [
        {"id": f"i{n}", "source": item.source, "output": item.output if n != 300 else " "}
        for n, item in enumerate(world.examples(ITEMS, seed=3))
    ]
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    PointwiseJudge(SYNTHETIC).save(folder / "judge.json")
    return folder


@pytest.fixture(scope="module")
def expected(corpus):
    """What one process writes."""
    items = load("jsonl", corpus / "items.jsonl")
    found = run_on_ray.load_judge(corpus / "judge.json").batch(items, lm=open_lm("embedded"))
    return [json.loads(json.dumps(to_json(row))) for row in rows_of(items, found)]


def opened(corpus, out):
    return Corpus(corpus / "judge.json", corpus / "items.jsonl", "embedded", OPENED, out)


def same(file, expected):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    assert len(rows) == ITEMS - 1  # one output is empty


def test_a_file_is_read_in_chunks_as_in_one(corpus, tmp_path):
    found, sha256 = chunks(corpus / "items.jsonl", 256)
    whole = load("jsonl", corpus / "items.jsonl")
    parts = [load_chunk(corpus / "items.jsonl", chunk) for chunk in found]
    assert [chunk.lines for chunk in found] == [256, 256, 188]
    assert [dict(e) for part in parts for e in part] == [dict(e) for e in whole]
    assert sha256 == whole.sha256
    assert parts[1].left_out == whole.left_out
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"source": "a", "output": "b"}\n' * 5 + '{"source": "a"}\n')
    with pytest.raises(DataError, match=r"bad.jsonl:6: 'output' is missing"):
        load_chunk(bad, chunks(bad, 4)[0][1])
    with pytest.raises(DataError, match="cannot be read in chunks; give an uncompressed"):
        chunks(tmp_path / "items.jsonl.gz", 4)


@pytest.mark.slow
def test_workers_give_the_scores_of_one_process_and_one_that_dies_costs_its_chunks_alone(
    corpus, expected, tmp_path, monkeypatch
):
    opened_once = opened(corpus, tmp_path / "run")
    killed, seen = [], []

    def killing(todo, arguments, actors):
        for answer in judge_chunks(todo, arguments, actors):
            if not killed:
                killed.extend(workers())
                os.kill(killed[0], signal.SIGKILL)  # while it judges the second chunk
            yield answer

    judge_chunks = run_on_ray.judge_chunks
    monkeypatch.setattr(run_on_ray, "judge_chunks", killing)
    counts = opened_once.run(1, seen.append)
    assert len(killed) == 1
    assert workers() != killed
    assert sum(seen) == ITEMS - 1
    assert counts["left_out"] == {"empty output": 1}
    assert counts["lm"]["model"].startswith("local/")
    same(opened_once.scores, expected)
    brief, coverage = summary(opened_once.scores)
    assert brief["n"] == ITEMS - 1
    assert len(coverage) == ITEMS - 1

    # a run that was stopped in its second chunk goes on there
    log = tmp_path / "run" / "chunks.jsonl"
    first = log.read_text().splitlines()[0]
    log.write_text(first + "\n" + '{"line": 257, "by')
    before = opened_once.scores.read_bytes()[: json.loads(first)["bytes"]]
    asked = []
    monkeypatch.setattr(
        run_on_ray, "judge_chunks", lambda todo, *rest: (asked.extend(todo), judge_chunks(todo, *rest))[1]
    )
    again = opened(corpus, tmp_path / "run")
    again.run(1, lambda _: None)
    assert [chunk.line for chunk in asked] == [257, 513]
    assert again.scores.read_bytes()[: len(before)] == before
    same(again.scores, expected)

    # scores that are gone are judged again, those before are kept
    file = again.scores
    file.write_bytes(file.read_bytes()[: json.loads(first)["bytes"] + 10])
    asked.clear()
    lost = opened(corpus, tmp_path / "run")
    lost.run(1, lambda _: None)
    assert [chunk.line for chunk in asked] == [257, 513]
    same(lost.scores, expected)

    # what is wrong is told in words, and what came before it is kept
    bad = tmp_path / "bad.jsonl"
    lines = (corpus / "items.jsonl").read_text().splitlines(keepends=True)
    bad.write_text("".join([*lines[:256], '{"source": "a"}\n', *lines[256:]]))
    broken = Corpus(corpus / "judge.json", bad, "embedded", OPENED, tmp_path / "bad")
    with pytest.raises(ValueError, match=r"bad.jsonl:257: 'output' is missing"):
        broken.run(1, lambda _: None)
    assert len(broken.scores.read_text().splitlines()) == 256
    with pytest.raises(ValueError, match=r"./none does not exist"):
        Corpus(corpus / "judge.json", bad, "./none", OPENED, tmp_path / "none").run(1, lambda _: None)
    ray.shutdown()


def workers():
    """Process ids of the actors."""
    told = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in told.splitlines() if "ray::" in line and "Worker" in line]


@pytest.mark.slow
def test_workers_draw_with_the_seed_of_the_command(corpus, tmp_path, monkeypatch):
    given = []

    def judged(todo, arguments, actors):
        given.append(arguments["sampling"])
        yield {"error": "no worker here"}

    monkeypatch.setattr(run_on_ray, "judge_chunks", judged)
    files = (corpus / "judge.json", corpus / "items.jsonl", "embedded", ModelOptions(samples=2))
    with Corpus(*files, tmp_path / "run", seed=3) as sampled, pytest.raises(ValueError, match="no worker here"):
        sampled.run(None, lambda _: None)
    recorded = json.loads((tmp_path / "run/run.json").read_text())["sampling"]
    assert (given[0].seed, recorded["seed"], recorded["samples"]) == (3, 3, 2)


@pytest.mark.slow
def test_the_command_refuses_what_it_cannot_spread(corpus, tmp_path):
    arguments = ["judge", "--judge", corpus / "judge.json", "--lm", "embedded", "--out", tmp_path]
    (corpus / "empty.jsonl").write_text("\n")
    for data, workers, said in (
        (corpus / "empty.jsonl", "ray", "holds no items"),
        (corpus / "items.jsonl", "dask", "write ray, or ray:N"),
        (corpus / "items.csv", "ray", "cannot be read in chunks"),
    ):
        found = evalbias(*arguments, "--data", data, "--workers", workers, cwd=tmp_path, check=False)
        assert found.returncode != 0
        assert said in found.stderr
    found = evalbias(*arguments, "--data", corpus / "empty.jsonl", cwd=tmp_path, check=False)
    assert (found.returncode, "holds no items" in found.stderr) == (2, True)
