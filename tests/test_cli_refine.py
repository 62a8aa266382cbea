"""The commands of self-bias, as a user runs them."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import COMMAND, evalbias
from lm.models import save

ITEMS = {
    "translation": {"source": "un chien court", "target_language": "English", "reference": "a dog runs"},
    "constrained-generation": {"concepts": ["dog", "park"]},
    "mathematics": {"source": "2 + 2", "answer": "4"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = Path(save("llama", tmp_path_factory.mktemp("model")))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 4096  # the prompts are longer than the other tests'
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_measure_self_on_the_recordings(data_dir, tmp_path):
    file = data_dir / "self_bias_recorded/mt/gpt-3.5-turbo__yor-en.jsonl"
    options = ["--data", file, "--expected", "human_score", "--resamples", 200, "--out", "run"]
    told = json.loads(evalbias("measure", "self", *options, "--json", cwd=tmp_path).stdout)
    first, last = told["rounds"][0]["found"], told["rounds"][-1]["found"]
    assert [round(x, 3) for x in (first["bias"], first["skewness"])] == [19.6, 0.803]
    assert [round(last["bias"], 1), round(last["skewness"], 3)] == [21.9, 0.885]
    assert told["rounds"][5]["found"]["n"] == 0  # no human scored the iterations between
    assert told["last_against_first"]["bias"]["n"] == 50
    names = {"run.json", "result.json", "trajectory.png", "scores.png", "differences.png"}
    assert {f.name for f in (tmp_path / "run").iterdir()} == names
    shown = evalbias("measure", "self", *options, cwd=tmp_path).stdout
    assert "+19.60" in shown
    wrong = evalbias("measure", "self", "--data", file, cwd=tmp_path, check=False)
    assert wrong.returncode == 2
    assert "has no field 'expected'" in wrong.stderr


@pytest.mark.parametrize("task", ITEMS)
def test_every_task_runs_with_a_real_local_model(task, model, tmp_path):
    write(tmp_path / "items.jsonl", [ITEMS[task]] * 2)
    options = [
        "--task",
        task,
        "--data",
        "items.jsonl",
        "--lm",
        model,
        "--max-iterations",
        1,
        "--max-tokens",
        8,
        "--out",
        "run",
    ]
    told = json.loads(evalbias("refine", *options, "--json", cwd=tmp_path).stdout)
    assert told["failed"] == {}
    assert [one["id"] for one in told["loops"]] == ["1", "2"]
    assert all(len(one["steps"]) in (1, 2) for one in told["loops"])
    assert len(told["own"]) == len(told["worth"]) == len(told["tokens"])
    assert told["tokens"][0] > 0
    again = json.loads(evalbias("refine", *options, "--json", cwd=tmp_path).stdout)
    assert again == told


def test_a_killed_loop_goes_on(model, tmp_path):
    write(tmp_path / "items.jsonl", [{"source": f"{n} + {n}", "answer": str(2 * n)} for n in range(1, 5)])
    options = [
        "--task",
        "mathematics",
        "--data",
        "items.jsonl",
        "--lm",
        str(model),
        "--max-iterations",
        "1",
        "--max-tokens",
        "24",
    ]
    whole = json.loads(evalbias("refine", *options, "--out", "whole", "--json", cwd=tmp_path).stdout)
    log = tmp_path / "killed/steps.jsonl"
    process = subprocess.Popen(
        [*COMMAND, "refine", *options, "--out", "killed"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not log.exists():
        time.sleep(0.01)
    assert process.poll() is None, "the command ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = log.read_text()
    assert 1 <= done.count("\n") < 4
    found = json.loads(evalbias("refine", *options, "--out", "killed", "--json", cwd=tmp_path).stdout)
    assert log.read_text().startswith(done)
    assert found == whole


def test_compile_refine(model, tmp_path):
    write(tmp_path / "items.jsonl", [{**ITEMS["constrained-generation"], "id": f"i{n}"} for n in range(4)])
    options = [
        "--task",
        "constrained-generation",
        "--data",
        "items.jsonl",
        "--lm",
        model,
        "--max-iterations",
        1,
        "--max-tokens",
        8,
    ]
    told = json.loads(evalbias("compile", "refine", *options, "--out", "run", "--json", cwd=tmp_path).stdout)["report"]
    assert told["own"]["feedback"] == "own list of missing concepts"
    assert told["external"]["feedback"] == "exact match of concepts"
    assert told["iterations"] in (0, 1)
    program = json.loads((tmp_path / "run/program.json").read_text())
    assert program["generate.predict"]["demos"] == []  # a model of random weights improves nothing
    assert (tmp_path / "run/trajectory.png").exists()


@pytest.mark.parametrize(
    ("row", "task", "match"),
    [
        ({"source": "x"}, "mathematics", "'1' has no 'answer': the task mathematics needs it"),
        ({"source": "x", "target_language": "en"}, "translation", "has no 'reference'"),
    ],
)
def test_what_a_task_needs_is_told_first(row, task, match, model, tmp_path):
    write(tmp_path / "items.jsonl", [row])
    told = evalbias("refine", "--task", task, "--data", "items.jsonl", "--lm", model, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert match in told.stderr
    assert not (tmp_path / "runs").exists()
