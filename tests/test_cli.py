"""The commands, as a user runs them: in a process of their own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from lm.models import save

from evalbias.data import world

COMMAND = [sys.executable, "-m", "evalbias.cli"]


def evalbias(*arguments, cwd, check=True):
    told = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    if check:
        assert told.returncode == 0, told.stderr
    return told


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "items.jsonl"
    found = [{k: e[k] for k in ("id", "source", "output", "scores")} for e in world.examples(700, seed=5)]
    file.write_text("".join(json.dumps(e) + "\n" for e in found))
    return file


CRITERION = f"{world.NAME}: {world.DEFINITION}"


def test_measure_likelihood(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--out", "run"]
    told = evalbias("measure", "likelihood", *options, "--json", cwd=tmp_path)
    (found,) = json.loads(told.stdout)["likelihood"].values()
    assert found["n"] == 140
    assert -1 <= found["bias_score"] <= 1
    assert {f.name for f in (tmp_path / "run").iterdir()} == {
        "run.json",
        "judgments.jsonl",
        "result.json",
        f"scatter-{world.NAME}.png",
    }
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["command"] == "measure likelihood"
    assert run["seed"] == 0
    assert run["lm"]["model"].startswith("local/embedded@")
    assert len(run["data_sha256"]) == 64
    shown = evalbias("measure", "likelihood", *options, cwd=tmp_path).stdout
    assert "answers asked 0, replayed 280" in shown
    other = evalbias("measure", "likelihood", *options, "--seed", 1, cwd=tmp_path, check=False)
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr
    assert "seed: 0 there, 1 now" in other.stderr


def test_compile_and_judge(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--resamples", 200, "--limit", 200]
    told = evalbias("compile", "likelihood", *options, "--out", "run", "--json", cwd=tmp_path)
    (found,) = json.loads(told.stdout)["likelihood"].values()
    assert found.keys() == {"before", "after", "p_value"}
    judge = tmp_path / f"run/judge-{world.NAME}.json"
    told = evalbias(
        "judge", "--judge", judge, "--data", items, "--lm", "embedded", "--json", "--out", "j", cwd=tmp_path
    )
    assert json.loads(told.stdout)["n"] == 700
    rows = [json.loads(line) for line in (tmp_path / "j/scores.jsonl").read_text().splitlines()]
    assert len(rows) == 700
    assert all(1 <= r["score"] <= 5 for r in rows)
    assert rows[0]["distribution"].keys() == {"1", "2", "3", "4", "5"}


def test_items_to_be_judged_need_no_scores(tmp_path):
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.criteria import SYNTHETIC

    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    rows = [{"source": e.source, "output": e.output} for e in world.examples(3, seed=1)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--judge", "judge.json", "--data", "new.jsonl", "--lm", "embedded", "--out", "run"]
    evalbias("judge", *options, cwd=tmp_path)
    scores = [json.loads(line)["score"] for line in (tmp_path / "run/scores.jsonl").read_text().splitlines()]
    assert len(scores) == 3
    assert all(1 <= score <= 5 for score in scores)


def test_candidates_are_the_items_of_a_list(items, tmp_path):
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    (tmp_path / "ids.txt").write_text("".join(f"{row['id']}\n" for row in rows[:300]))
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--candidates", tmp_path / "ids.txt"]
    evalbias("compile", "likelihood", *options, "--resamples", 200, "--out", "run", "--json", cwd=tmp_path)
    demos = json.loads((tmp_path / f"run/judge-{world.NAME}.json").read_text())["demos"]
    sources = {row["source"] for row in rows[:300]}
    assert len(demos) == 8
    assert {demo["source"] for demo in demos} <= sources
    (tmp_path / "ids.txt").write_text("world-5-0\nelsewhere\n")
    told = evalbias("compile", "likelihood", *options, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert "elsewhere" in told.stderr
    assert "Traceback" not in told.stderr


def test_likelihood_from_another_model(items, tmp_path):
    other = save("gpt2", tmp_path / "other")
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--limit", 100, "--json"]
    own = json.loads(evalbias("measure", "likelihood", *options, "--out", "own", cwd=tmp_path).stdout)
    told = json.loads(
        evalbias("measure", "likelihood", *options, "--likelihood-lm", other, "--out", "run", cwd=tmp_path).stdout
    )
    (mine,), (theirs,) = own["likelihood"].values(), told["likelihood"].values()
    assert mine["performance"] == theirs["performance"]
    assert mine["bias_score"] != theirs["bias_score"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["likelihood_lm"]["model"].startswith("local/other@")


def test_a_killed_run_resumes_to_the_same_result(items, tmp_path):
    options = ["judge", "--judge", tmp_path / "judge.json", "--data", items, "--lm", "embedded"]
    from evalbias.programs import PointwiseJudge
    from evalbias.programs.criteria import SYNTHETIC

    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    evalbias(*options, "--out", "whole", cwd=tmp_path)
    process = subprocess.Popen(
        [*COMMAND, *map(str, options), "--out", "killed"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal = tmp_path / "killed/judgments.jsonl"
    for _ in range(6000):
        if journal.exists() and journal.stat().st_size:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed/result.json").exists()
    with journal.open("a") as file:
        file.write('{"key": "torn')  # what a kill in the middle of a write leaves
    done = len(journal.read_text().splitlines()) - 1
    shown = evalbias(*options, "--out", "killed", cwd=tmp_path).stdout
    assert done >= 256
    assert shown
    for name in ("result.json", "scores.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
    whole = [json.loads(line)["key"] for line in (tmp_path / "whole/judgments.jsonl").read_text().splitlines()]
    assert len(set(keys)) == len(keys)
    assert keys == whole


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--data", "none.jsonl"], "none.jsonl does not exist"),
        (["--data", "webnlg2020"], "names no data"),
        (["--data", "{items}", "--lm", "./none"], "./none does not exist"),
        (["--data", "{items}", "--lm", "hosted_vllm/x"], "give its address with --api-base"),
        (["--data", "{items}", "--criterion", "wit"], "write it as 'name: definition'"),
        (["--data", "{items}", "--criterion", "wit: is it funny?"], "has no score on 'wit'"),
        (["--data", "{items}", "--split-by", "topic"], "by='topic' is unknown"),
    ],
)
def test_what_a_user_can_mend_is_told_in_one_line(items, tmp_path, arguments, match):
    given = [a.replace("{items}", str(items)) for a in arguments]
    defaults = {"--lm": "embedded", "--criterion": CRITERION}
    extra = [x for name, value in defaults.items() if name not in given for x in (name, value)]
    told = evalbias("measure", "likelihood", *given, *extra, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert match in told.stderr
    assert "Traceback" not in told.stderr
