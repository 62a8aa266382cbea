"""The commands of self-bias, as a user runs them."""

import json
from pathlib import Path

import pytest
from commands import answered, as_jsonl, evalbias, kill_once, refused
from lm.models import save

from evalbias.programs.tasks import TASKS

pytestmark = pytest.mark.slow

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


@pytest.fixture
def run(model, tmp_path):
    """Function that runs a command of a task on some items with the model; it returns what is printed as JSON."""

    def call(command, task, *options, rows=None, ask=answered, **more):
        given = [{**ITEMS[task], "id": f"i{n}"} for n in range(2)] if rows is None else rows
        as_jsonl(tmp_path / "items.jsonl", given)
        words = [*command.split(), "--task", task, "--data", "items.jsonl", "--lm", model]
        length = [] if "--max-tokens" in options else ["--max-tokens", 8]
        return ask(*words, *length, *options, cwd=tmp_path, **more)

    return call


def test_refine_measure_on_the_recordings(data_dir, tmp_path):
    folder = data_dir / "self_bias_recorded/mt"
    file = folder / "gpt-3.5-turbo__yor-en.jsonl"
    options = ["--data", file, "--expected", "human_score", "--resamples", 200, "--out", "run"]
    (told,) = answered("refine", "measure", *options, cwd=tmp_path)["loops"]
    rounds = [{name: e["value"] for name, e in one["estimates"].items()} for one in told["rounds"]]
    first, last = rounds[0], rounds[-1]
    assert [round(x, 3) for x in (first["bias"], first["skewness"])] == [19.6, 0.803]
    assert [round(last["bias"], 1), round(last["skewness"], 3)] == [21.9, 0.885]
    assert told["rounds"][5]["estimates"]["bias"]["n"] == 0  # no human scored the iterations between
    assert told["change"]["changes"]["bias"]["test"]["n"] == 50
    assert {f.name for f in (tmp_path / "run").iterdir()} == {"run.json", "result.json", "report.html"}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    as_jsonl(tmp_path / "shared.jsonl", [row | {"input_id": row["i"] // 2} for row in rows])
    (told,) = answered("refine", "measure", "--data", "shared.jsonl", *options[2:6], cwd=tmp_path)["loops"]
    assert told["rounds"][0]["estimates"]["bias"]["n"] > told["rounds"][0]["estimates"]["bias"]["units"]
    several = ["--data", file, "--data", folder / "deepseek_moe__yor-en.jsonl.gz", "--expected", "bleurt_mapped"]
    shown = evalbias("refine", "measure", *several, "--resamples", 50, "--out", "several", cwd=tmp_path).stdout
    assert all(words in shown for words in ("first -> last", "Between loops"))
    assert "on the items of both, not corrected for 1 pair" in " ".join(shown.split())
    both = json.loads((tmp_path / "several/result.json").read_text())
    assert [loop["name"] for loop in both["loops"]] == ["gpt-3.5-turbo__yor-en", "deepseek_moe__yor-en"]
    for loop in both["loops"]:
        first, last = (loop["rounds"][k]["estimates"]["bias"]["value"] for k in (0, -1))
        assert last > first
    (pair,) = both["pairs"]
    assert (pair["number"], pair["items"]) == (10, 100)
    change = pair["comparison"]["changes"]["bias"]
    assert [round(change[side]["value"], 2) for side in ("before", "after")] == [14.77, 16.37]  # as in RESULTS.md
    other = folder / "gpt-3.5-turbo__jav_Latn-en.jsonl"  # the same ids, but other sources
    unpaired = ["--data", file, "--data", other, "--expected", "bleurt_mapped", "--resamples", 9, "--out", "two"]
    apart = evalbias("refine", "measure", *unpaired, cwd=tmp_path).stdout
    assert "The loops are not compared: no two have an item and a round in common." in apart
    assert "Between loops" not in apart


@pytest.mark.parametrize("task", ITEMS)
def test_every_task_runs_with_a_real_local_model(task, run):
    told = run("refine run", task, "--max-iterations", 1, rows=[ITEMS[task]] * 2)
    assert told["failed"] == {}
    assert [one["id"] for one in told["loops"]] == ["1", "2"]
    assert all(len(one["steps"]) in (1, 2) for one in told["loops"])
    assert len(told["own"]) == len(told["quality"]) == len(told["tokens"])
    assert told["tokens"][0] > 0


def test_a_killed_loop_goes_on_to_the_same_result(run, tmp_path):
    rows = [{"id": f"i{n}", "concepts": ["dog", f"c{n}"]} for n in range(4)]
    options = ["refine run", "constrained-generation", "--max-iterations", 2, "--max-tokens", 16, "--out"]
    run(*options, "whole", rows=rows)
    log = tmp_path / "killed/steps.jsonl"
    for lines in (1, 3):
        kill = lambda *words, n=lines, cwd: kill_once(log, *words, cwd=cwd, lines=n)  # noqa: E731
        done = run(*options, "killed", rows=rows, ask=kill)
    run(*options, "killed", rows=rows)
    assert log.read_text().startswith(done)
    for name in ("result.json", "steps.jsonl", "outputs.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_killed_compilation_goes_on_and_its_loop_is_run(run, tmp_path):
    rows = [{**ITEMS["constrained-generation"], "id": f"i{n}"} for n in range(4)]
    options = ["optimize --aim self-bias", "constrained-generation", "--max-iterations", 1, "--max-tokens", 16]
    options += ["--bare", "--out"]  # four items are too few to choose on
    whole = run(*options, "whole", rows=rows)
    log = tmp_path / "killed/loops/own/steps.jsonl"
    done = run(*options, "killed", rows=rows, ask=lambda *words, cwd: kill_once(log, *words, cwd=cwd))
    assert run(*options, "killed", rows=rows) == whole
    assert log.read_text().startswith(done)
    report = whole["report"]
    assert report["own"]["feedback"] == "own list of missing concepts"
    assert report["external"]["feedback"] == "exact match of concepts"
    assert report["comparison"]["self"]["cost"]["calls"][0] > 0
    assert report["iterations"] in (0, 1)
    task, program = ["refine run", "constrained-generation", "--max-tokens", 16], tmp_path / "killed/program.json"
    assert len(run(*task, "--program", program, rows=rows)["own"]) == report["iterations"] + 1
    assert "run.json" in run(*task, "--program", tmp_path / "killed/run.json", rows=rows, ask=refused)
    assert "program.json" in run("refine run", "translation", "--program", program, ask=refused)


def test_the_commands_seed_decides_for_a_saved_loop(run, tmp_path):
    TASKS["constrained-generation"](max_iterations=1, seed=5).loop.save(str(tmp_path / "loop.json"))

    def loops(*options):
        return run("refine run", "constrained-generation", *options)["loops"]

    saved = loops("--program", "loop.json", "--seed", 3)
    assert saved == loops("--max-iterations", 1, "--seed", 3)
    assert saved != loops("--program", "loop.json", "--seed", 4)


def test_the_style_of_others_is_compared_on_the_scale_of_a_map(run, tmp_path):
    rows = [{**ITEMS["translation"], "id": f"i{n}", "output": "the dog running"} for n in range(2)]
    as_jsonl(tmp_path / "pairs.jsonl", [{"chrf": x, "mqm": y} for x, y in ((0, -25), (40, -10), (100, 0))])
    mapped = ["--quantile-map", "pairs.jsonl", "--out", "style"]
    style = run("refine style", "translation", *mapped, rows=rows)["report"]
    expected = style["before"]["items"]["expected"]
    assert len(style["after"]["items"]["scores"]) == 2
    assert -25 < expected[0] == expected[1] < 0
    told = "No Bias is measured: own scores are MQM points (-25 to 0), and chrf gives 0 to 100"
    assert told in run("refine style", "translation", "--out", "unmapped", rows=rows, ask=refused)
    assert not (tmp_path / "unmapped").exists()  # before anything is written
    assert told in run("refine run", "translation", "--max-iterations", 1, rows=rows, ask=evalbias).stderr
    as_jsonl(tmp_path / "loop.jsonl", [{"id": k, "iteration": 0, "self_score": -3, "chrf": 99 + k} for k in range(10)])
    words = ["refine", "measure", "--data", "loop.jsonl", "--expected", "chrf", *mapped[:2]]
    assert "8 of 10 scores of 'chrf' lie outside the map's 0 to 100" in evalbias(*words, cwd=tmp_path).stderr
