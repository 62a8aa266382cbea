"""The commands, as a user runs them: in a process of their own."""

import errno
import io
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pandas
import pytest
import typer
from commands import as_jsonl, evalbias, kill_once, signalled
from lm.gguf_files import save_llama
from lm.models import save

from evalbias import Criterion, data, embedded_judge_lm, judge_examples, measure
from evalbias.cli import app as cli
from evalbias.cli.judge import summary, told
from evalbias.data import world
from evalbias.evaluation.biases import Likelihood
from evalbias.measures import spearman
from evalbias.optimizers.demonstrations import draw_demos, with_demos
from evalbias.programs import SYNTHETIC, PairwiseJudge, PointwiseJudge, load_judge, load_pairwise_judge
from evalbias.programs.criterion import PRESETS
from evalbias.runs import Journal


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    found = [{k: e[k] for k in ("id", "source", "output", "scores")} for e in world.examples(700, seed=5)]
    return as_jsonl(tmp_path_factory.mktemp("data") / "items.jsonl", found)


CRITERION = f"{world.NAME}: {world.DEFINITION}"


@pytest.mark.slow
def test_measure_likelihood(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--out", "run"]
    told = evalbias("measure", "likelihood", *options, "--json", cwd=tmp_path)
    (found,) = [one["estimates"] for one in json.loads(told.stdout)["likelihood"].values()]
    train, test = data.split(list(data.read(items)), seed=0)
    demos, _ = draw_demos(train, 8, seed=0)
    judge = with_demos(PointwiseJudge(Criterion(world.NAME, world.DEFINITION)), demos)
    judged = judge_examples(judge, test, lm=embedded_judge_lm(), likelihood_lm="own")
    ours = measure(Likelihood(), judged, seed=0)
    for name in ("bias_score", "performance"):
        assert found[name]["n"] == ours[name].n == 140
        assert found[name]["value"] == pytest.approx(ours[name].value, abs=1e-6)
        assert found[name]["low"] == pytest.approx(ours[name].low, abs=1e-3)
    assert {f.name for f in (tmp_path / "run").iterdir()} == {
        "run.json",
        "judgments.jsonl",
        "result.json",
        "report.html",
        f"scatter-{world.NAME}.png",
    }
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["command"] == "measure likelihood"
    assert run["seed"] == 0
    assert run["lm"]["model"].startswith("local/embedded@")
    assert len(run["data_sha256"]) == 64
    shown = evalbias("measure", "likelihood", *options, cwd=tmp_path).stdout
    assert "answers asked 0, replayed 280" in shown
    shown = " ".join(shown.split())
    assert re.search(r"quality: .+: (the judge (over|under)rates likelier outputs|no effect of .+ is shown)\.", shown)
    other = evalbias("measure", "likelihood", *options, "--seed", 1, cwd=tmp_path, check=False)
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr
    assert "seed: 0 there, 1 now" in other.stderr


def test_measure_likelihood_of_a_judge_without_demonstrations(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--limit", 100, "-k", 0, "--json"]
    options += ["--task", "Describe her.", "--source-label", "Facts", "--output-label", "Reply"]
    told = json.loads(evalbias("measure", "likelihood", *options, cwd=tmp_path).stdout)
    (found,) = [one["estimates"] for one in told["likelihood"].values()]
    _, test = data.split(random.Random(0).sample(list(data.read(items)), 100), seed=0)
    criterion = Criterion(
        world.NAME, world.DEFINITION, task="Describe her.", source_label="Facts", output_label="Reply"
    )
    lm = embedded_judge_lm()
    judged = judge_examples(PointwiseJudge(criterion), test, lm=lm, likelihood_lm=lm)
    expected = spearman(judged.answers, judged.covariate("human_scores")).value
    assert found["performance"]["value"] == pytest.approx(expected, abs=1e-6)
    expected = measure(Likelihood(), judged, seed=0)["bias_score"].value
    assert found["bias_score"]["value"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_compile_and_judge(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--resamples", 200, "--limit", 200]
    options += ["--keep-worse"]  # 80 items may show nothing to be better
    told = evalbias("compile", "likelihood", *options, "-k", 4, "--out", "run", "--json", cwd=tmp_path)
    decision, written = (json.loads(told.stdout)[name][world.NAME] for name in ("decisions", "written"))
    assert "held-back inputs" in decision
    kept = "The given program was kept" in decision
    assert f"judge-{world.NAME}.json holds the {'judge as it was given' if kept else 'compiled judge'}" in written
    shown = " ".join(evalbias("compile", "likelihood", *options, "-k", 4, "--out", "run", cwd=tmp_path).stdout.split())
    for row in ("given", "paper's", "compiled", "likelihood alone", "length alone", "answers asked 0"):
        assert row in shown
    (found,) = json.loads(told.stdout)["likelihood"].values()
    assert found["changes"].keys() == {"likelihood_effect", "bias_score", "bias_score_z", "performance"}
    assert found["changes"]["bias_score"].keys() == {"before", "after", "difference", "test", "itemwise_test"}
    judge = tmp_path / f"run/judge-{world.NAME}.json"
    told = evalbias(
        "judge", "--judge", judge, "--data", items, "--lm", "embedded", "--json", "--out", "j", cwd=tmp_path
    )
    assert json.loads(told.stdout)["n"] == 700
    rows = [json.loads(line) for line in (tmp_path / "j/scores.jsonl").read_text().splitlines()]
    assert len(rows) == 700
    assert all(1 <= r["score"] <= 5 for r in rows)
    assert rows[0]["distribution"].keys() == {"1", "2", "3", "4", "5"}


def test_a_saved_judge_is_compiled_with_its_own_instruction_and_criterion(items, tmp_path):
    given = PointwiseJudge(SYNTHETIC)
    wording = f"Rate how well she is described.\n{SYNTHETIC.answer_format}"
    given.predict.signature = given.predict.signature.with_instructions(wording)
    given.save(str(tmp_path / "mine.json"))
    options = ["compile", "likelihood", "--judge", "mine.json", "--lm", "embedded", "--data", items, "--limit", 60]
    options += ["-k", 2, "--resamples", 99, "--bare", "--keep-worse", "--out", "run"]
    evalbias(*options, cwd=tmp_path)
    compiled = load_judge(tmp_path / f"run/judge-{SYNTHETIC.name}.json")
    assert compiled.predict.signature.instructions == wording
    assert compiled.criterion == SYNTHETIC
    assert len(compiled.predict.demos) == 2
    for refused in (["--criterion", CRITERION], ["--scale", "1-5"], ["--output-label", "Reply"]):
        told = evalbias(*options, *refused, cwd=tmp_path, check=False)
        assert told.returncode == 2
        assert "a saved judge has its own criterion, scale, task and labels" in re.sub(r"[\s│]+", " ", told.stderr)
    given = PointwiseJudge(SYNTHETIC)
    given.predict.signature = given.predict.signature.with_instructions("Another wording.")
    given.save(str(tmp_path / "mine.json"))
    told = evalbias(*options, cwd=tmp_path, check=False)
    assert "holds a run with other settings" in told.stderr


@pytest.mark.slow
def test_a_model_that_hardly_answers_is_warned_of_first(tmp_path):
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    rows = [{"source": e.source, "output": e.output} for e in world.examples(3, seed=1)]
    as_jsonl(tmp_path / "new.jsonl", rows)
    options = ["--judge", "judge.json", "--data", "new.jsonl", "--lm", save("llama", tmp_path / "model")]
    shown = evalbias("judge", *options, "--out", "run", cwd=tmp_path).stdout  # its weights are random
    warning = "Do not rely on this judge: its model hardly ever answers with a label (median probability "
    assert shown.startswith(warning)
    assert warning in (tmp_path / "run/report.html").read_text()


def test_items_to_be_judged_need_no_scores(tmp_path):
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    rows = [{"source": e.source, "output": e.output} for e in world.examples(3, seed=1)]
    as_jsonl(tmp_path / "new.jsonl", rows)
    options = ["--judge", "judge.json", "--data", "new.jsonl", "--lm", "embedded", "--out", "run"]
    evalbias("judge", *options, cwd=tmp_path)
    scores = [json.loads(line)["score"] for line in (tmp_path / "run/scores.jsonl").read_text().splitlines()]
    assert len(scores) == 3
    assert all(1 <= score <= 5 for score in scores)


def test_a_criterion_on_the_command_line_makes_a_new_judge(tmp_path):
    rows = [{"source": e.source, "output": e.output} for e in world.examples(3, seed=1)]
    as_jsonl(tmp_path / "new.jsonl", rows)
    options = ["judge", "--lm", "embedded", "--data", "new.jsonl"]
    evalbias(*options, "--criterion", CRITERION, *WORLDLY, "--scale", "1-7", "--out", "run", cwd=tmp_path)
    found = [json.loads(line) for line in (tmp_path / "run/scores.jsonl").read_text().splitlines()]
    labels = {"source_label": world.SOURCE_LABEL, "output_label": world.OUTPUT_LABEL}
    judge = PointwiseJudge(Criterion(world.NAME, world.DEFINITION, scale=(1, 7), **labels))
    expected = judge.batch(world.examples(3, seed=1), lm=embedded_judge_lm())
    assert [row["score"] for row in found] == pytest.approx([one.score for one in expected], abs=1e-5)


@pytest.mark.slow
def test_a_table_with_columns_of_its_own_is_judged_and_measured(items, tmp_path):
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    found = list(data.read(items))[:60]
    rows = [{"id": e.id, "data": e.source, "text": e.output, "stars": e.scores[world.NAME]} for e in found]
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    plain = ["id", "source", "output", "score"]
    pandas.DataFrame(rows).set_axis(plain, axis=1).to_parquet(tmp_path / "b.parquet")
    mapped = ["--data", "a.csv", "--map", "source=data,output=text", "--map", "score=stars"]
    for name, options in (("a", mapped), ("b", ["--data", "b.parquet"])):
        evalbias("judge", "--judge", "judge.json", *options, "--lm", "embedded", "--out", f"j{name}", cwd=tmp_path)
    assert (tmp_path / "ja/scores.jsonl").read_text() == (tmp_path / "jb/scores.jsonl").read_text()
    assert json.loads((tmp_path / "ja/run.json").read_text())["mapping"]["score"] == "stars"
    options = [*mapped, "--lm", "embedded", "--criterion", CRITERION, "-k", 0, "--out", "m", "--json"]
    told = json.loads(evalbias("measure", "likelihood", *options, cwd=tmp_path).stdout)
    assert told["likelihood"][world.NAME]["estimates"]["performance"]["n"] == 12
    two = evalbias("measure", "likelihood", *options, "--criterion", "wit: is it funny?", cwd=tmp_path, check=False)
    assert "has one score, and 2 criteria are judged" in two.stderr
    unmapped = evalbias("measure", "likelihood", "--data", "a.csv", *options[-6:], cwd=tmp_path, check=False)
    assert unmapped.returncode == 2
    unscored = [*options[:2], "--map", "source=data,output=text", *options[6:]]
    told = evalbias("measure", "likelihood", *unscored, cwd=tmp_path, check=False)
    assert "'stars' looks like 'score': --map score=stars" in told.stderr


@pytest.mark.slow
def test_candidates_are_the_items_of_a_list(items, tmp_path):
    train, _ = data.split(list(data.read(items)), seed=0)
    (tmp_path / "ids.txt").write_text("".join(f"{e.id}\n" for e in train[:100]))
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--candidates", tmp_path / "ids.txt"]
    options += ["--keep-worse"]
    evalbias("compile", "likelihood", *options, "--bare", "--resamples", 200, "--out", "run", "--json", cwd=tmp_path)
    demos = json.loads((tmp_path / f"run/judge-{world.NAME}.json").read_text())["predict"]["demos"]
    assert len(demos) == 8
    assert {demo["source"] + demo["output"] for demo in demos} <= {e.source + e.output for e in train[:100]}
    (tmp_path / "ids.txt").write_text("world-5-0\nelsewhere\n")
    told = evalbias("compile", "likelihood", *options, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert "elsewhere" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.slow
def test_likelihood_from_another_model(items, tmp_path):
    other = save("gpt2", tmp_path / "other")
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--limit", 100, "--json"]
    own = json.loads(evalbias("measure", "likelihood", *options, "--out", "own", cwd=tmp_path).stdout)
    told = json.loads(
        evalbias("measure", "likelihood", *options, "--likelihood-lm", other, "--out", "run", cwd=tmp_path).stdout
    )
    (mine,), (theirs,) = ([one["estimates"] for one in side["likelihood"].values()] for side in (own, told))
    assert mine["performance"] == theirs["performance"]
    assert mine["bias_score"]["value"] != theirs["bias_score"]["value"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["likelihood_lm"]["model"].startswith("local/other@")


@pytest.mark.slow
def test_the_demo_shows_the_method_and_prints_nothing_else(tmp_path):
    told = evalbias("demo", "--json", cwd=tmp_path)
    found = json.loads(told.stdout)
    assert found.keys() == {"likelihood", "decisions", "written", "preference", "conclusion"}
    rows, changes = found["preference"]["rows"], found["likelihood"]["changes"]
    initial, searched = (
        {name: e["value"] for m in rows[title].values() for name, e in m["estimates"].items()}
        for title in ("initial", "searched")
    )
    assert found["conclusion"].startswith("In short: the given judge overrates likely wording (effect +0.")
    assert "it chooses the first with a win rate of 0.9" in found["conclusion"]
    assert initial["fairness"] < -0.5
    assert searched["fairness"] > -0.3
    assert searched["spearman"] > initial["spearman"] + 0.2
    bias, performance = changes["bias_score"], changes["performance"]
    assert bias["before"]["value"] > 0.2
    assert bias["before"]["low"] > 0
    assert abs(bias["after"]["value"]) < bias["before"]["value"] / 2
    assert bias["test"]["p_value"] < 0.05
    assert performance["after"]["value"] > performance["before"]["value"]
    assert (bias["before"]["n"], bias["before"]["undefined"]) == (300, 0)
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["rows"]["searched"]["comparisons"]["agreement"]["changes"]["spearman"]["test"]["p_value"] < 0.05
    again = evalbias("demo", "--json", cwd=tmp_path)  # the same folder: everything is replayed
    assert again.stdout == told.stdout


@pytest.mark.slow
def test_real_data_bring_their_criteria_and_labels(data_dir, tmp_path):
    spec = f"webnlg2020:{data_dir}/upstream/webnlg-challenge-2020"
    config = save_llama(tmp_path / "model") / "config.json"  # of random weights; the embedded one lacks the words
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 8192}))
    options = ["--lm", "model", "--data", spec, "--limit", 100, "-k", 2, "--resamples", 99, "--out", "run", "--json"]
    options += ["--bare", "--keep-worse"]
    told = evalbias(
        "compile", "likelihood", *options, "--criterion", "fluency", "--criterion", "relevance", cwd=tmp_path
    )
    assert list(json.loads(told.stdout)["likelihood"]) == ["fluency", "relevance", "total"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["bins"] == [15, 40, 65, 90]
    assert run["left_out"] == {"empty output": 1, "no ratings": 1, "reference text": 178}
    assert [c["name"] for c in run["criteria"]] == ["fluency", "relevance"]
    assert (run["train"]["items"], run["test"]["items"]) == (80, 20)
    rated = {e.source + e.output: e.scores["fluency"] for e in data.read(spec)}
    for demo in json.loads((tmp_path / "run/judge-fluency.json").read_text())["predict"]["demos"]:
        score = rated[demo["source"] + demo["output"]]
        assert demo["score"] == 1 + sum(score >= edge for edge in (15, 40, 65, 90))
    assert {f.name for f in (tmp_path / "run").glob("*.png")} == {
        "scatter-fluency.png",
        "scatter-relevance.png",
        "scatter-total.png",
    }


@pytest.mark.slow
def test_each_criterion_is_told_on_its_own_scale(data_dir, tmp_path):
    config = save_llama(tmp_path / "model") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 8192}))
    options = ["--data", f"topicalchat:{data_dir}/topicalchat_usr.jsonl", "--lm", "model", "-k", 0, "--limit", 150]
    criteria = {c.name: c.scale for c in PRESETS["topicalchat"]}
    told = json.loads(evalbias("measure", "likelihood", *options, "--json", cwd=tmp_path).stdout)
    assert len(set(criteria.values())) > 1
    assert told["sentences"].keys() == {*criteria, "total"}
    assert "on the scale of" not in told["sentences"]["total"]
    named = {
        n: re.findall(r"on the scale of (\d) to (\d)", text) for n, text in told["sentences"].items() if n in criteria
    }
    assert any(named.values())
    for name, (low, high) in criteria.items():
        assert named[name] in ([], [(str(low), str(high))])  # where the effect can be told
        points = told["likelihood"][name]["estimates"]["likelihood_effect"]["points"]
        assert points is None or 0 <= points <= (high - low) / 2  # one standard deviation of scores on this scale


def test_a_scale_of_ones_own_takes_no_edges_of_the_data_set(data_dir, tmp_path):
    data = f"webnlg2020:{data_dir}/webnlg2020_en.jsonl.gz"
    options = ["--data", data, "--lm", "embedded", "--criterion", "fluency: is it fluent?", "--scale", "1-7"]
    told = evalbias("measure", "likelihood", *options, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert "outside the scale 1 to 7: correct it, or give the scale that people rated on" in told.stderr


@pytest.mark.slow
def test_a_direct_judge_scores_a_file_too(items, tmp_path):
    PointwiseJudge(SYNTHETIC, scoring="direct").save(str(tmp_path / "judge.json"))
    options = ["--judge", "judge.json", "--data", items, "--lm", "embedded", "--out", "run"]
    evalbias("judge", *options, cwd=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "run/scores.jsonl").read_text().splitlines()]
    assert {row["score"] for row in rows} <= {1, 2, 3, 4, 5, None}
    assert len({row["score"] for row in rows} - {None}) > 1
    assert "answers asked 0" in evalbias("judge", *options, cwd=tmp_path).stdout


def killed_at(journal, lines, options, cwd):
    """Run a command that is killed when its journal holds so many lines; return how many whole answers it leaves."""
    kill_once(journal, *options, cwd=cwd, lines=lines)
    whole = len(Journal(journal).read())
    with journal.open("a") as file:
        file.write('{"key": "torn')  # what a kill in the middle of a write leaves
    return whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "kills", "results"),
    [
        (["judge", "--judge", "judge.json"], [1], ["result.json", "scores.jsonl"]),
        (
            ["compile", "likelihood", "--bare", "--keep-worse", "--resamples", 99],
            [1, 600, 1200],
            ["result.json", f"judge-{world.NAME}.json"],
        ),
    ],
)
def test_a_killed_run_resumes_to_the_same_result(items, tmp_path, monkeypatch, command, kills, results):
    monkeypatch.setattr("evalbias.lm.cache.SECONDS", math.inf)  # chunks of the same size, as in what is killed
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    options = [*command, "--data", items, "--lm", "embedded", "--exact-resume"]
    options += ["--criterion", CRITERION] if "compile" in command else []
    evalbias(*options, "--out", "whole", cwd=tmp_path)
    journal, done = tmp_path / "killed/judgments.jsonl", 0
    for lines in kills:
        done = killed_at(journal, lines, [*options, "--out", "killed"], tmp_path)
        assert not (tmp_path / "killed/result.json").exists()
    shown = evalbias(*options, "--out", "killed", cwd=tmp_path).stdout
    keys, whole = (
        [json.loads(line)["key"] for line in (tmp_path / name / "judgments.jsonl").read_text().splitlines()]
        for name in ("killed", "whole")
    )
    assert keys == whole
    assert len(set(keys)) == len(keys)
    asked = int(re.search(r"answers asked (\d+)", shown).group(1))
    assert asked == len(keys) - done  # a whole chunk stood before the torn line
    for name in results:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_folder_is_of_one_list_of_candidates(items, tmp_path):
    options = ["--lm", "embedded", "--data", items, "--criterion", CRITERION, "--limit", 100, "--seed", 3]
    train, _ = data.split(random.Random(3).sample(list(data.read(items)), 100), seed=3)
    for name, chosen in (("a", train[:40]), ("b", train[40:])):
        (tmp_path / f"{name}.txt").write_text("".join(f"{e.id}\n" for e in chosen))
    evalbias("measure", "likelihood", *options, "--candidates", "a.txt", "--out", "run", cwd=tmp_path)
    told = evalbias(
        "measure", "likelihood", *options, "--candidates", "b.txt", "--out", "run", cwd=tmp_path, check=False
    )
    assert told.returncode == 2
    assert "train.ids: " in told.stderr


def test_outputs_that_the_model_cannot_take_are_unranked_by_name(tmp_path):
    documents = world.documents(1, 3, seed=1)
    rows = [{"id": e.id, "input_id": "1", "source": e.source, "output": e.output} for e in documents]
    rows.append({**rows[0], "id": "long", "output": documents[0].output * 200})
    rows = [{**row, "scores": {world.NAME: number}} for number, row in enumerate(rows)]
    as_jsonl(tmp_path / "outputs.jsonl", rows)
    options = ["--data", "outputs.jsonl", "--lm", "embedded", "--criterion", CRITERION, *WORLDLY]
    told = json.loads(evalbias("rank", *options, "--out", "run", "--json", cwd=tmp_path).stdout)
    (row,) = [json.loads(line) for line in (tmp_path / "run/rankings.jsonl").read_text().splitlines()]
    assert sorted(row["order"]) == sorted(e.id for e in documents)
    assert row["scores"]["long"] is None
    assert row["unranked"].keys() == {"long"}
    assert "the model cannot take the prompts" in row["unranked"]["long"]
    assert told["unranked"] == told["agreement"]["notes"]["unranked"] == 1


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Rated documents with several outputs each."""
    file = tmp_path_factory.mktemp("documents") / "outputs.jsonl"
    fields = ("id", "input_id", "source", "output", "scores")
    rows = [{k: e[k] for k in fields} for e in world.documents(16, 4, seed=9)]
    as_jsonl(file, rows)
    return file


WORLDLY = ["--source-label", world.SOURCE_LABEL, "--output-label", world.OUTPUT_LABEL]
SMALL = ["--epochs", 2, "--population", 3, "--pairs", 30, "--bare", "--keep-worse"]


@pytest.mark.slow
def test_optimize_for_a_new_criterion_without_labels(outputs, tmp_path):
    rows = [json.loads(line) for line in outputs.read_text().splitlines()]
    for row in rows:
        del row["scores"]
    as_jsonl(tmp_path / "bare.jsonl", rows)
    options = ["politeness: is the text polite?", "--data", "bare.jsonl", "--lm", "embedded", *SMALL, "--out", "run"]
    told = json.loads(evalbias("optimize", *options, "--json", cwd=tmp_path).stdout)
    assert list(told["rows"]) == ["initial", "initial + permutation", "searched", "searched + permutation"]
    assert told["judgments"] == 7 * 30
    assert "politeness" in told["instruction"]
    assert all(row.keys() == {"position", "verbosity"} for row in told["rows"].values())
    assert {f.name for f in (tmp_path / "run").iterdir()} == {
        "run.json",
        "judgments.jsonl",
        "result.json",
        "report.html",
        "judge.json",
        "history.png",
        "search",
    }
    judge = load_pairwise_judge(tmp_path / "run/judge.json")
    assert judge.predict.signature.instructions == told["instruction"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["train"]["items"], run["test"]["items"]) == (32, 32)
    shown = evalbias("optimize", *options, cwd=tmp_path).stdout
    assert "answers asked 0" in shown
    assert "permutation" in shown
    told = json.loads(
        evalbias(
            "rank", "--data", "bare.jsonl", "--lm", "embedded", "--judge", "run/judge.json", "--json", cwd=tmp_path
        ).stdout
    )
    assert told["documents"] == 16
    assert "agreement" not in told


@pytest.mark.slow
def test_optimize_on_documents_that_people_rated(outputs, tmp_path):
    options = [CRITERION, "--data", outputs, "--lm", "embedded", *WORLDLY, *SMALL, "--curve", "--out", "run", "--json"]
    told = json.loads(evalbias("optimize", *options, cwd=tmp_path).stdout)
    initial, searched = told["rows"]["initial"], told["rows"]["searched"]
    for bias, name in (("position", "fairness"), ("agreement", "spearman")):
        assert searched[bias]["estimates"][name]["value"] > initial[bias]["estimates"][name]["value"]
    result = json.loads((tmp_path / "run/result.json").read_text())
    change = result["rows"]["searched"]["comparisons"]["agreement"]["changes"]["spearman"]
    assert 0 < change["test"]["p_value"] < 1
    for curve in (result["curves"]["initial"], result["curves"]["after permutation"]):
        assert [p["instruction"] for p in curve] == [t["instruction"] for t in result["search"]["tried"]]
    assert told["pairs"]["search"] == 30 < told["pairs"]["all"]
    assert (tmp_path / "run/curve.png").exists()


@pytest.mark.slow
def test_optimize_begins_with_a_wording_of_ones_own(outputs, tmp_path):
    own = ["--instruction", "Which text is better on politeness?", "--instruction-place", "first"]
    options = [
        "politeness: is the text polite?",
        "--data",
        outputs,
        "--lm",
        "embedded",
        *own,
        "--pairs",
        "all",
        "--bare",
        "--keep-worse",
    ]
    finished = evalbias("optimize", *options, "--epochs", 1, "--population", 2, "--out", "run", cwd=tmp_path)
    assert "The grammar cannot reword this instruction" in finished.stderr
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["search"]["tried"][0]["instruction"] == own[1]
    assert result["pairs"]["search"] == result["pairs"]["all"] == result["search"]["tried"][0]["examples"] > 20
    judge = load_pairwise_judge(tmp_path / "run/judge.json")
    assert judge.predict.signature.instructions == result["search"]["chosen"]


@pytest.mark.slow
def test_optimize_on_a_hugging_face_folder_that_rewords_itself(outputs, tmp_path):
    folder = save("llama", tmp_path / "model")
    options = ["wit: is it funny?", "--data", outputs, "--lm", folder, "--proposer-lm", folder, *SMALL, "--out", "run"]
    told = json.loads(evalbias("optimize", *options, "--json", cwd=tmp_path).stdout)
    assert told["instruction"] == PairwiseJudge(Criterion("wit", "is it funny?")).predict.signature.instructions
    search = json.loads((tmp_path / "run/result.json").read_text())["search"]
    assert search["stopped"].startswith(
        "the proposer has nothing new (12 wordings turned down"
    )  # its weights are random
    assert len(search["rejected"]) == 12
    assert "answers asked 0" in evalbias("optimize", *options, cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_killed_search_resumes_to_the_same_result(outputs, tmp_path, monkeypatch):
    monkeypatch.setattr("evalbias.lm.cache.SECONDS", math.inf)  # chunks of the same size, as in what is killed
    options = ["optimize", CRITERION, "--data", outputs, "--lm", "embedded", "--exact-resume", *WORLDLY, *SMALL]
    evalbias(*options, "--out", "whole", cwd=tmp_path)
    journal, done = tmp_path / "killed/judgments.jsonl", 0
    for lines in (1, 100, 250):
        done = killed_at(journal, lines, [*options, "--out", "killed"], tmp_path)
    shown = evalbias(*options, "--out", "killed", cwd=tmp_path).stdout
    keys, whole = (
        [json.loads(line)["key"] for line in (tmp_path / name / "judgments.jsonl").read_text().splitlines()]
        for name in ("killed", "whole")
    )
    assert keys == whole
    assert int(re.search(r"answers asked (\d+)", shown).group(1)) == len(keys) - done
    for name in ("result.json", "judge.json", "search/instructions.jsonl", "search/proposals.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_recorded_pairs_are_measured_and_searched_on_but_not_ranked(tmp_path):
    verdicts = str(Path(__file__).parents[1] / "docs/data/verdicts.jsonl")
    options = ["--data", verdicts, "--lm", "embedded", *WORLDLY, "--json"]
    measured = evalbias("measure", "preference", *options, "--criterion", CRITERION, "--pairs", 20, cwd=tmp_path)
    position = json.loads(measured.stdout)["preference"]["position"]["estimates"]
    assert position["fairness"]["n"] == 20
    small = ["--pairs", 20, "--epochs", 1, "--population", 2, "--bare", "--keep-worse"]
    told = json.loads(evalbias("optimize", CRITERION, *options, *small, cwd=tmp_path).stdout)
    assert told["judgments"] == 3 * 20
    assert told["rows"]["searched"].keys() >= {"position", "verbosity"}


@pytest.mark.slow
def test_measure_preference_and_rank(outputs, tmp_path):
    options = ["--data", outputs, "--lm", "embedded", "--criterion", CRITERION, *WORLDLY, "--json"]
    measure = ["measure", "preference", *options, "--pairs", 40]
    found = json.loads(evalbias(*measure, "--likelihood", cwd=tmp_path).stdout)["preference"]
    assert found.keys() == {"likelihood", "position", "verbosity"}
    position = found["position"]["estimates"]
    assert position["fairness"]["n"] == 40
    assert position["first_rate"]["value"] > 0.7
    assert position["first_rate"]["low"] <= position["first_rate"]["value"] <= position["first_rate"]["high"]
    assert -1 <= found["likelihood"]["estimates"]["likelihood_correlation"]["value"] <= 1
    calibrated = json.loads(evalbias(*measure, "--calibration", "batch", cwd=tmp_path).stdout)["preference"]
    assert calibrated["position"]["estimates"]["fairness"]["value"] > position["fairness"]["value"]
    plain = json.loads(evalbias("rank", *options, "--out", "plain", cwd=tmp_path).stdout)
    both = json.loads(evalbias("rank", *options, "--debias", "permutation", "--search", "beam", cwd=tmp_path).stdout)
    spearman, permuted = (one["agreement"]["estimates"]["spearman"]["value"] for one in (plain, both))
    assert permuted > spearman
    rows = [json.loads(line) for line in (tmp_path / "plain/rankings.jsonl").read_text().splitlines()]
    assert len(rows) == plain["documents"] == 16
    for row in rows:
        assert sorted(row["scores"], key=lambda i: -row["scores"][i]) == row["order"]


@pytest.mark.slow
def test_a_bias_is_an_objective_by_its_name(outputs, tmp_path):
    options = ["optimize", CRITERION, "--data", outputs, "--lm", "embedded", *WORLDLY, *SMALL]
    evalbias(*options, "--objective", "verbosity", "--out", "run", cwd=tmp_path)
    assert json.loads((tmp_path / "run/result.json").read_text())["search"]["objective"] == "verbosity"


def test_runs_are_listed_shown_compared_and_deleted(items, tmp_path):
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    lines = items.read_text().splitlines(keepends=True)
    for name, part in (("few", lines[:20]), ("more", lines[:40])):
        (tmp_path / f"{name}.jsonl").write_text("".join(part))
        options = ["--judge", "judge.json", "--data", f"{name}.jsonl", "--lm", "embedded"]
        evalbias("judge", *options, "--out", f"runs/{name}", cwd=tmp_path)
    listed = json.loads(evalbias("runs", "list", "--json", cwd=tmp_path).stdout)
    assert [(run["path"], run["status"]) for run in listed] == [("runs/more", "finished"), ("runs/few", "finished")]
    assert "few.jsonl" in evalbias("runs", "list", cwd=tmp_path).stdout
    shown = evalbias("runs", "show", "runs/few", cwd=tmp_path).stdout
    assert "runs/few: finished" in shown
    assert "  n: 20" in shown
    differences = json.loads(evalbias("runs", "compare", "runs/few", "runs/more", "--json", cwd=tmp_path).stdout)
    assert differences["result.n"] == [20, 40]
    assert "settings.seed" not in differences
    shown = evalbias("runs", "compare", "runs/few", "runs/more", "--html", "page.html", cwd=tmp_path).stdout
    assert shown.startswith("few and more differ in 3 settings, 0 estimates and 2 other results.")
    assert re.search(r"│ n +│ 20 +│ 40 +│", shown)
    assert "page: page.html" in shown
    same = evalbias("runs", "compare", "runs/few", "runs/few", cwd=tmp_path).stdout
    assert same == "runs/few and runs/few have the same settings and results.\n"
    damaged = {"bias": "verbosity", "criterion": "wit", "estimates": {"length_effect": {"name": "length_effect"}}}
    (tmp_path / "runs/more/result.json").write_text(json.dumps({"measurements": damaged}))
    told = evalbias("runs", "compare", "runs/few", "runs/more", cwd=tmp_path, check=False)
    assert (told.returncode, "runs/more/result.json holds a measurement of another" in told.stderr) == (2, True)
    (tmp_path / "runs/more/result.json").unlink()
    assert evalbias("runs", "compare", "runs/few", "runs/more", cwd=tmp_path).stderr == "runs/more is stopped.\n"
    assert "few and more differ in" in (tmp_path / "page.html").read_text(encoding="utf-8")
    (tmp_path / "runs/more/run.json").write_text('{"lm": "of another program"}')
    assert "1 run in" not in evalbias("runs", "list", cwd=tmp_path).stdout
    evalbias("runs", "compare", "runs/few", "runs/more", "--html", "page.html", cwd=tmp_path)
    evalbias("runs", "delete", "runs/few", "--yes", cwd=tmp_path)
    assert "1 run in runs" in evalbias("runs", "list", cwd=tmp_path).stdout
    assert not (tmp_path / "runs/few").exists()
    wrong = evalbias("runs", "delete", ".", "--yes", cwd=tmp_path, check=False)
    assert (wrong.returncode, "has no run.json" in wrong.stderr) == (2, True)
    assert (tmp_path / "judge.json").exists()


@pytest.mark.slow
def test_a_second_command_in_the_same_folder_is_refused(items, tmp_path):
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    options = ["judge", "--judge", "judge.json", "--data", items, "--lm", "embedded", "--out", "run"]
    first = signalled(signal.SIGSTOP, tmp_path / "run/judgments.jsonl", *options, cwd=tmp_path)
    try:
        assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])  # it holds the folder as long as the test wants
        refused = evalbias(*options, cwd=tmp_path, check=False)
        listed = json.loads(evalbias("runs", "list", "--root", tmp_path, "--json", cwd=tmp_path).stdout)
        kept = evalbias("runs", "delete", "run", "--yes", cwd=tmp_path, check=False)
    finally:
        first.send_signal(signal.SIGCONT)
        _, told = first.communicate()
    assert refused.returncode == kept.returncode == 2
    assert f"Process {first.pid} works in run" in refused.stderr
    assert listed[0]["status"] == f"running ({first.pid})"
    assert first.returncode == 0, told
    assert evalbias(*options, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "command", ["", "audit", "judge", "optimize", "measure", "measure likelihood", "compile", "compile refine"]
)
def test_help_cuts_nothing_off_in_a_terminal_of_80_columns(monkeypatch, tmp_path, command):
    monkeypatch.setenv("COLUMNS", "80")
    text = evalbias(*command.split(), "--help", cwd=tmp_path).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    _, _, listed = text.partition("Commands:")
    assert [line for line in listed.splitlines() if line.endswith("...")] == []
    if not command:
        assert [line.split()[0] for line in listed.strip().splitlines()] == cli.LISTED
        assert sorted(typer.main.get_command(cli.app).commands) == sorted(cli.LISTED)
    if command == "audit":
        assert "source=question,output=answer,score=rating" in text
        assert "rating_1=anna,rating_2=ben" in text
        assert "'agreement.spearman<0.3'" in text
        assert "\n  Exit codes: 0 done; 1 a --fail-on condition is met; 2 an error that you can\n" in text


def test_help_lists_the_options_of_a_command_by_section(tmp_path):
    text = evalbias("audit", "--help", cwd=tmp_path).stdout
    _, *parts = re.split(r"^(\S.*):\n", text, flags=re.MULTILINE)
    sections = {
        heading: set(re.findall(r"^ +.*?(--[a-z-]+)", lines, re.MULTILINE))
        for heading, lines in zip(parts[::2], parts[1::2], strict=True)
    }
    assert [*sections] == ["Data", "Model and judge", "Measurement", "Running models", "Run"]
    assert sections["Measurement"] == {"--task", "--likelihood-lm", "--own-system", "--reliability"}
    assert {"--data", "--map"} <= sections["Data"]
    assert {"--lm", "--scores-field", "--winner-field"} <= sections["Model and judge"]
    assert {"--api-base", "--device"} <= sections["Running models"]
    assert {"--fail-on", "--yes", "--help"} <= sections["Run"]


DATA = ["--data", "items.jsonl"]
EMBEDDED = [*DATA, "--lm", "embedded", "--criterion", CRITERION]
LOOP = [*DATA, "--lm", "embedded", "--task", "constrained-generation"]
OPENED, READ = "runs.RunFolder.__init__", "runs.read_run"
LEAVES = {
    "audit": ([*DATA, "--scores-field", "mine"], OPENED),
    "judge": (EMBEDDED, OPENED),
    "rank": (EMBEDDED, OPENED),
    "refine": (LOOP, OPENED),
    "optimize": ([CRITERION, *DATA, "--lm", "embedded"], OPENED),
    "demo": ([], OPENED),
    "measure likelihood": (EMBEDDED, OPENED),
    "measure preference": (EMBEDDED, OPENED),
    "measure self": ([*DATA, "--own", "mine", "--expected", "theirs"], OPENED),
    "measure style": (LOOP, OPENED),
    "compile likelihood": (EMBEDDED, OPENED),
    "compile refine": (LOOP, OPENED),
    "runs list": (["--root", "."], "runs.list_runs"),
    "runs show": (["."], READ),
    "runs compare": ([".", "."], READ),
    "runs delete": (["."], READ),
}
"""Command -> arguments with which it gets as far as a function, and the function."""


@pytest.fixture
def few(tmp_path):
    """Items for every command, in the folder in which it runs."""
    rows = [
        {"id": f"{k}", "input_id": f"{k // 2}", "source": f"s{k // 2}", "output": e.output, "concepts": ["a", "b"]}
        | {"mine": k % 3 + 0.5, "theirs": k % 4 + 0.5, "score": k % 5 + 1, "iteration": 0}
        for k, e in enumerate(world.examples(16, seed=1))
    ]
    as_jsonl(tmp_path / "items.jsonl", rows)


class Panic(BaseException):
    """What a fault in a library written in Rust raises."""


def leaves(group, *names):
    for name, command in group.commands.items():
        yield from leaves(command, *names, name) if hasattr(command, "commands") else [" ".join((*names, name))]


def test_every_command_is_tried_with_defects():
    assert sorted(leaves(typer.main.get_command(cli.app))) == sorted(LEAVES)


@pytest.fixture
def failing(few, tmp_path, monkeypatch):
    """Run a command in which a function raises an error."""

    def run(command, error):
        def fail(*_, **__):
            raise error

        arguments, function = LEAVES[command]
        monkeypatch.setattr(f"evalbias.{function}", fail)
        return evalbias(*command.split(), *arguments, cwd=tmp_path, check=False)

    return run


@pytest.mark.parametrize("command", LEAVES)
def test_a_defect_exits_with_70(failing, command):
    told = failing(command, TypeError("of\n::error::type"))
    assert told.returncode == 70, told.stderr
    assert told.stderr.splitlines()[-2:] == [
        "evalbias: TypeError: of",
        "  \ufffd:error::type. This is a defect of evalbias: please report it, with the traceback that -v prints.",
    ]
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        (70, [MemoryError(), RecursionError("deep"), KeyError("k"), EOFError(), RuntimeError(), Panic("in Rust")]),
        (2, [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError("o"), ValueError("v"), typer.BadParameter("b")]),
        (130, [KeyboardInterrupt()]),
        (143, [SystemExit(143)]),
    ],
)
def test_no_error_exits_with_1(failing, code, errors):
    for error in errors:
        assert failing("runs show", error).returncode == code, error


def test_the_traceback_of_a_defect_is_told_on_request(tmp_path):
    script = """
import sys
from evalbias import runs
from evalbias.cli import app

def read_run(path):
    key = "sk-" + "secret"
    raise TypeError("wrong")

runs.read_run = read_run
app.main()
"""
    for option in ([], ["-v"]):
        command = [sys.executable, "-c", script, "runs", "show", ".", *option]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 70
        assert ("Traceback" in done.stderr) == ("in read_run" in done.stderr) == bool(option)
        assert "sk-secret" not in done.stderr  # variables, of which keys are some
        assert done.stderr.splitlines()[-1].startswith("evalbias: TypeError: wrong. This is a defect of evalbias")


def test_an_error_that_cannot_be_printed_does_not_exit_with_1(few, tmp_path):
    command = [sys.executable, "-m", "evalbias", "runs", "show", "."]
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            assert subprocess.run(command, cwd=tmp_path, stderr=full, env=environment).returncode == 2


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), (None, 2), (KeyboardInterrupt(), 130)])
def test_only_a_no_exits_with_1(tmp_path, monkeypatch, answer, code):
    (tmp_path / "run.json").write_text("{}")

    class Answers(io.StringIO):
        def readline(self, *_):
            if isinstance(answer, BaseException):
                raise answer
            return "" if answer is None else f"{answer}\n"

    monkeypatch.setattr(sys, "stdin", Answers())
    assert evalbias("runs", "delete", ".", cwd=tmp_path, check=False).returncode == code
    assert (tmp_path / "run.json").exists()


@pytest.mark.parametrize("command", ["audit", "judge", pytest.param("demo", marks=pytest.mark.slow)])
def test_what_needs_no_network_asks_for_none(few, tmp_path, monkeypatch, command):
    asked = []
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, lambda *given: asked.append(given))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    evalbias(command, *LEAVES[command][0], cwd=tmp_path)
    assert asked == []


def test_items_that_the_model_did_not_answer_are_told_from_those_that_it_cannot_take(tmp_path):
    def row(name, score, **more):
        return {"id": name, "score": score, "coverage": math.nan, **more}

    rows = [row("a", 3.0), row("b", math.nan, undefined="too long"), row("c", math.nan), row("d", math.nan)]
    file = as_jsonl(tmp_path / "scores.jsonl", rows)
    brief = summary(file)[0]
    assert (brief["n"], brief["undefined"], brief["refused"], brief["unanswered"]) == (1, 3, ["b"], 2)
    assert "1 item scored, 3 undefined (the model cannot take item b)" in told(brief, file)
    assert "2 items have no score although the model answered" in told(brief, file)
    assert "although the model answered" not in told(summary(as_jsonl(file, rows[:2]))[0], file)
