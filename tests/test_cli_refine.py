"""The commands of self-bias, as a user runs them."""

import json
from pathlib import Path

import pytest
from commands import as_jsonl, evalbias, kill_once
from lm.models import save

from evalbias.programs.tasks import TASKS
from evalbias.values import file_digest

pytestmark = pytest.mark.slow

ITEMS = {
    "translation": {"source": "un chien court", "target_language": "English", "reference": "a dog runs"},
    "constrained-generation": {"concepts": ["dog", "park"]},
    "mathematics": {"source": "2 + 2", "answer": "4"},
    "mathematics-refiner": {"source": "2 + 2", "answer": "4"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = Path(save("llama", tmp_path_factory.mktemp("model")))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 4096  # the prompts are longer than the other tests'
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_measure_self_on_the_recordings(data_dir, tmp_path):
    folder = data_dir / "self_bias_recorded/mt"
    file = folder / "gpt-3.5-turbo__yor-en.jsonl"
    options = ["--data", file, "--expected", "human_score", "--resamples", 200, "--out", "run"]
    (told,) = json.loads(evalbias("measure", "self", *options, "--json", cwd=tmp_path).stdout)["loops"]
    rounds = [{name: e["value"] for name, e in one["estimates"].items()} for one in told["rounds"]]
    first, last = rounds[0], rounds[-1]
    assert [round(x, 3) for x in (first["bias"], first["skewness"])] == [19.6, 0.803]
    assert [round(last["bias"], 1), round(last["skewness"], 3)] == [21.9, 0.885]
    assert told["rounds"][5]["estimates"]["bias"]["n"] == 0  # no human scored the iterations between
    assert told["change"]["changes"]["bias"]["test"]["n"] == 50
    names = {"run.json", "result.json", "report.html", "trajectory.png", "differences.png"}
    assert {f.name for f in (tmp_path / "run").iterdir()} == names
    several = [
        x
        for name in ("gpt-3.5-turbo__yor-en.jsonl", "deepseek_moe__yor-en.jsonl.gz")
        for x in ("--data", folder / name)
    ]
    shown = evalbias("measure", "self", *several, "--expected", "bleurt_mapped", "--resamples", 50, cwd=tmp_path).stdout
    assert "first -> last" in shown
    (run,) = (tmp_path / "runs").iterdir()
    both = json.loads((run / "result.json").read_text())["loops"]
    assert [loop["name"] for loop in both] == ["gpt-3.5-turbo__yor-en", "deepseek_moe__yor-en"]
    for loop in both:
        first, last = (loop["rounds"][k]["estimates"]["bias"]["value"] for k in (0, -1))
        assert last > first
    assert len(list(run.glob("differences-*.png"))) == 2
    assert "Between loops" in shown
    (pair,) = json.loads((run / "result.json").read_text())["pairs"]
    assert (pair["number"], pair["items"]) == (10, 100)
    change = pair["comparison"]["changes"]["bias"]
    assert [round(change[side]["value"], 2) for side in ("before", "after")] == [14.77, 16.37]  # as in RESULTS.md
    other = folder / "gpt-3.5-turbo__jav_Latn-en.jsonl"  # the same ids, but other sources
    unpaired = ["--data", file, "--data", other, "--expected", "bleurt_mapped", "--resamples", 9, "--out", "two"]
    apart = evalbias("measure", "self", *unpaired, cwd=tmp_path).stdout
    assert "The loops are not compared: no two have an item and a round in common." in apart
    assert "Between loops" not in apart
    wrong = evalbias("measure", "self", "--data", file, cwd=tmp_path, check=False)
    assert wrong.returncode == 2
    assert "has no field 'expected'" in wrong.stderr
    rows = tmp_path / "rows.jsonl"
    for row, told in (
        ({"id": 1}, "'iteration' is missing; give"),
        ({"iteration": 0}, "'id' and 'i' are missing; give"),
    ):
        rows.write_text(json.dumps(row))
        refused = evalbias("measure", "self", "--data", rows, cwd=tmp_path, check=False)
        assert (refused.returncode, told in refused.stderr) == (2, True)


@pytest.mark.parametrize("task", ITEMS)
def test_every_task_runs_with_a_real_local_model(task, model, tmp_path):
    as_jsonl(tmp_path / "items.jsonl", [ITEMS[task]] * 2)
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
    assert len(told["own"]) == len(told["quality"]) == len(told["tokens"])
    assert told["tokens"][0] > 0


def test_best_of_k_is_reported_by_k(model, tmp_path):
    rows = [{**ITEMS["constrained-generation"], "id": f"i{n}", "concepts": ["dog", f"c{n}"]} for n in range(3)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    task = ["--task", "constrained-generation", "--data", "items.jsonl", "--lm", model, "--max-tokens", 6]
    shown = evalbias("refine", *task, "--best-of", 3, "--feedback", "external", "--out", "run", cwd=tmp_path).stdout
    assert "all 3 drafts of every item are different" in " ".join(shown.split())
    told = json.loads((tmp_path / "run/result.json").read_text())
    assert (told["by"], told["distinct"]) == ("k", {"i0": 3, "i1": 3, "i2": 3})
    assert json.loads((tmp_path / "run/run.json").read_text())["temperature"] == 1.0
    assert len(told["own"]) == 3
    drafts = {step["output"] for one in told["loops"] for step in one["steps"]}
    (loop,) = json.loads(evalbias("measure", "self", "--data", "run", "--json", cwd=tmp_path).stdout)["loops"]
    assert loop["numbers"] == [1, 2, 3]
    assert loop["rounds"][0]["estimates"]["bias"]["value"] == 0  # the exact match is both the feedback and the quality
    other = evalbias(
        "refine", *task, "--best-of", 3, "--feedback", "external", "--seed", 1, "--json", cwd=tmp_path
    ).stdout
    assert not drafts & {step["output"] for one in json.loads(other)["loops"] for step in one["steps"]}


def test_an_independent_judge_of_fluency_and_the_model_itself_only_where_asked(model, tmp_path):
    as_jsonl(tmp_path / "items.jsonl", [{**ITEMS["constrained-generation"], "id": f"i{n}"} for n in range(2)])
    task = ["--task", "constrained-generation", "--data", "items.jsonl", "--lm", model, "--max-tokens", 6]
    options = [*task, "--max-iterations", 1]
    shown = evalbias("refine", *options, "--aspects-lm", "embedded", "--out", "other", cwd=tmp_path).stdout
    assert "judged by local/embedded" in " ".join(shown.split())
    assert "judge of fluency" in shown
    told = json.loads((tmp_path / "other/result.json").read_text())
    assert told["failed"] == {}
    run = json.loads((tmp_path / "other/run.json").read_text())
    assert run["aspects_lm"]["model"] != run["lm"]["model"]
    shown = evalbias("refine", *options, "--aspects-lm", "same", "--out", "same", cwd=tmp_path).stdout
    assert "judged by the model that wrote the texts" in " ".join(shown.split())
    evalbias("refine", *options, "--out", "none", cwd=tmp_path)
    assert json.loads((tmp_path / "none/result.json").read_text())["aspects"] == []


@pytest.mark.slow
def test_a_killed_loop_goes_on(model, tmp_path):
    as_jsonl(tmp_path / "items.jsonl", [{"source": f"{n} + {n}", "answer": str(2 * n)} for n in range(1, 5)])
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
        "16",
    ]
    whole = json.loads(evalbias("refine", *options, "--out", "whole", "--json", cwd=tmp_path).stdout)
    log = tmp_path / "killed/steps.jsonl"
    done = kill_once(log, "refine", *options, "--out", "killed", cwd=tmp_path)
    assert 1 <= done.count("\n") < 4
    found = json.loads(evalbias("refine", *options, "--out", "killed", "--json", cwd=tmp_path).stdout)
    assert log.read_text().startswith(done)
    assert found == whole


@pytest.mark.slow
def test_a_killed_compilation_goes_on_and_its_loop_is_run(model, tmp_path):
    rows = [{**ITEMS["constrained-generation"], "id": f"i{n}"} for n in range(4)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    task = ["--task", "constrained-generation", "--data", "items.jsonl", "--lm", str(model), "--max-tokens", "16"]
    options = [*task, "--max-iterations", "1"]
    options += ["--bare", "--keep-worse"]  # four items are too few to choose on
    whole = json.loads(evalbias("compile", "refine", *options, "--out", "whole", "--json", cwd=tmp_path).stdout)
    log = tmp_path / "killed/loops/own-0/steps.jsonl"
    done = kill_once(log, "compile", "refine", *options, "--out", "killed", cwd=tmp_path)
    found = json.loads(evalbias("compile", "refine", *options, "--out", "killed", "--json", cwd=tmp_path).stdout)
    assert log.read_text().startswith(done)
    assert found == whole
    report = found["report"]
    assert report["own"][0]["feedback"] == "own list of missing concepts"
    assert report["external"]["feedback"] == "exact match of concepts"
    assert report["comparison"]["self"]["cost"]["calls"][0] > 0
    assert report["iterations"] in (0, 1)
    assert (tmp_path / "killed/sides.png").exists()
    program = tmp_path / "killed/program.json"
    told = json.loads(evalbias("refine", *task, "--program", program, "--json", "--out", "run", cwd=tmp_path).stdout)
    assert len(told["own"]) == report["iterations"] + 1
    wrong = evalbias("refine", *task, "--program", tmp_path / "killed/run.json", cwd=tmp_path, check=False)
    assert "is not a saved refine loop" in wrong.stderr
    other = ["--task", "mathematics-refiner", *task[2:]]
    wrong = evalbias("refine", *other, "--program", program, cwd=tmp_path, check=False)
    assert "is a compiled loop of another task" in wrong.stderr


@pytest.mark.slow
def test_the_commands_seed_decides_for_a_saved_loop(model, tmp_path):
    as_jsonl(tmp_path / "items.jsonl", [ITEMS["mathematics-refiner"]] * 2)
    TASKS["mathematics-refiner"](max_iterations=1, paths=10, seed=5).loop.save(str(tmp_path / "loop.json"))
    task = ["--task", "mathematics-refiner", "--data", "items.jsonl", "--lm", model, "--max-tokens", 8, "--json"]

    def loops(*options):
        return json.loads(evalbias("refine", *task, *options, cwd=tmp_path).stdout)["loops"]

    saved = loops("--program", "loop.json", "--seed", 3)
    assert saved == loops("--max-iterations", 1, "--seed", 3)
    assert saved != loops("--program", "loop.json", "--seed", 4)


@pytest.mark.slow
def test_instructscore_aspects_and_style(model, tmp_path):
    rows = [{**ITEMS["translation"], "id": f"i{n}", "output": "the dog running"} for n in range(2)]
    as_jsonl(tmp_path / "items.jsonl", rows)
    (tmp_path / "request.txt").write_text("{reference} {output}")
    task = ["--task", "translation", "--data", "items.jsonl", "--lm", model, "--max-tokens", 8]
    judged = ["--feedback", "external", "--instructscore", model, "--instructscore-prompt", "request.txt"]
    judged += ["--aspects-lm", "same"]
    options = [*task, *judged, "--max-iterations", 1, "--json"]
    told = json.loads(evalbias("refine", *options, cwd=tmp_path).stdout)
    assert told["failed"] == {}
    assert {step["status"] for one in told["loops"] for step in one["steps"]} == {"unreadable"}  # of random weights
    assert [aspect["name"] for aspect in told["aspects"]] == ["judge of fluency", "judge of understandability"]
    for aspect in told["aspects"]:
        assert all(1 <= one["estimates"]["score"]["value"] <= 5 for one in aspect["rounds"])
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["instructscore_prompt"] == file_digest(tmp_path / "request.txt")
    as_jsonl(tmp_path / "pairs.jsonl", [{"chrf": x, "mqm": y} for x, y in [(0, -25), (40, -10), (100, 0)]])
    options = [*task, "--quantile-map", "pairs.jsonl", "--out", "style", "--json"]
    style = json.loads(evalbias("measure", "style", *options, cwd=tmp_path).stdout)["report"]
    expected = style["before"]["items"]["expected"]
    assert len(style["after"]["items"]["scores"]) == 2
    assert -25 < expected[0] == expected[1] < 0
    own = [[value for value in style[side]["items"]["scores"] if value is not None] for side in ("before", "after")]
    assert (tmp_path / "style/differences.png").exists() == all(own)  # drawn where both sides have a score


def test_a_file_of_examples_is_shown_and_kept_in_the_run(model, tmp_path):
    as_jsonl(tmp_path / "items.jsonl", [{**ITEMS["constrained-generation"], "id": f"i{n}"} for n in range(2)])
    rows = {"generate": [{"concepts": ["sun"], "output": "The sun shines."}], "feedback": [], "refine": []}
    (tmp_path / "examples.json").write_text(json.dumps(rows))
    task = ["--task", "constrained-generation", "--data", "items.jsonl", "--lm", model, "--max-tokens", 6]
    options = [*task, "--max-iterations", 0, "--json"]
    told = [
        json.loads(evalbias("refine", *options, *more, "--out", out, cwd=tmp_path).stdout)
        for out, more in (("own", ["--examples", "examples.json"]), ("built-in", []))
    ]
    assert told[0]["tokens"] != told[1]["tokens"]
    kept = [json.loads((tmp_path / name / "run.json").read_text()).get("examples") for name in ("own", "built-in")]
    assert kept == [file_digest(tmp_path / "examples.json"), None]


@pytest.mark.slow
def test_bias_of_translations_needs_a_map(data_dir, model, tmp_path):
    folder = data_dir / "self_bias_recorded"
    recorded = ["--data", folder / "mt/gpt-3.5-turbo__jav_Latn-en.jsonl", "--expected", "bleurt_raw"]
    options = [*recorded, "--quantile-map", folder / "bleurt_to_mqm_pairs.jsonl", "--resamples", 50, "--json"]
    (told,) = json.loads(evalbias("measure", "self", *options, cwd=tmp_path).stdout)["loops"]
    assert told["rounds"][0]["estimates"]["bias"]["value"] == pytest.approx(0.11, abs=0.02)  # an unbiased judge
    as_jsonl(tmp_path / "items.jsonl", [{**ITEMS["translation"], "output": "a dog"}] * 2)
    as_jsonl(tmp_path / "pairs.jsonl", [{"chrf": x, "mqm": y} for x, y in [(0, -25), (40, -10), (100, 0)]])
    task = ["--task", "translation", "--data", "items.jsonl", "--lm", model, "--max-tokens", 8, "--json"]
    plain = evalbias("refine", *task, "--max-iterations", 1, "--out", "plain", cwd=tmp_path)
    assert "No Bias is measured: own scores are MQM points (-25 to 0), and chrf gives 0 to 100" in plain.stderr
    assert 'human MQM scores: lines such as {"chrf": 50.0, "mqm": -12.0}.' in plain.stderr
    mapped = evalbias("measure", "self", "--data", "plain", "--quantile-map", "pairs.jsonl", cwd=tmp_path, check=False)
    assert "plain has no output with both an own and an expected score" in mapped.stderr  # the model writes no feedback
    as_jsonl(tmp_path / "narrow.jsonl", [{"bleurt_raw": x, "mqm": y} for x, y in [(0.5, -25), (0.6, 0)]])
    narrow = evalbias(
        "measure", "self", *recorded, "--quantile-map", "narrow.jsonl", "--resamples", 50, "--json", cwd=tmp_path
    )
    with open(recorded[1]) as file:
        raw = [json.loads(line)["bleurt_raw"] for line in file]
    outside = sum(not 0.5 <= x <= 0.6 for x in raw)
    assert list(json.loads(narrow.stdout)["outside_map"].values()) == [outside]
    assert f"{outside} of {len(raw)} scores of 'bleurt_raw' lie outside the map's 0.5 to 0.6" in narrow.stderr
    wrong = evalbias("measure", "self", "--data", "plain", cwd=tmp_path, check=False)
    assert "has no Bias: own scores lie in -25 to 0, and the quality in 0 to 100" in wrong.stderr
    as_jsonl(tmp_path / "bleu.jsonl", [{"bleu": x, "mqm": y} for x, y in [(0, -25), (40, -10), (100, 0)]])
    other = "The quantile map was fitted to scores of 'bleu', but these are scores of 'chrf'"
    for wrong in (
        ["measure", "self", "--data", "plain", "--quantile-map", "bleu.jsonl"],
        ["measure", "self", *recorded, "--quantile-map", "bleu.jsonl"],
        ["refine", *task, "--quantile-map", "bleu.jsonl"],
    ):
        told = evalbias(*wrong, cwd=tmp_path, check=False)
        assert told.returncode == 2
        assert other.replace("chrf", "bleurt_raw" if recorded[1] in wrong else "chrf") in told.stderr
    style = evalbias(
        "measure", "style", *task, "--quantile-map", "bleu.jsonl", "--metric", "bleu", "--out", "style", cwd=tmp_path
    )
    assert "No Bias is measured" not in style.stderr
    settings = json.loads((tmp_path / "style/run.json").read_text())
    assert settings["metric"]["name"] == "bleu"
    assert len(settings["quantile_map"]) == 64
