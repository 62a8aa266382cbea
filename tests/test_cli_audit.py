"""evalbias audit, as a user runs it: recorded answers, saved judges, and conditions that fail a build."""

import csv
import json
import os
import shlex
import subprocess

import pytest
from commands import COMMAND, as_jsonl, evalbias

import evalbias as package
from evalbias import data
from evalbias.cli.audit import parse_conditions
from evalbias.data import world
from evalbias.programs import SYNTHETIC, PairwiseJudge, PointwiseJudge
from evalbias.values import to_json


def pairs(n, *, first):
    """Of a share of the pairs, the judge takes the first position; of the rest, the better output."""
    return [
        {
            "id": f"p{i}",
            "source": f"question {i}",
            "outputs": [f"an answer {i}", f"the other, longer answer {i}"],
            "better": i % 2,
            "verdict": 0 if i < first * n else i % 2,
            "verdict_swapped": 1 if i < first * n else i % 2,
        }
        for i in range(n)
    ]


VERDICTS = ["--winner-field", "verdict", "--swapped-field", "verdict_swapped"]


def test_recorded_choices_as_json_and_nothing_else(tmp_path):
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs(120, first=0.5))
    told = evalbias("audit", "--data", file, *VERDICTS, "--json", "--out", "run", cwd=tmp_path)
    found = json.loads(told.stdout)
    same = package.audit(file, winner_field="verdict", swapped_field="verdict_swapped")
    assert found == json.loads(json.dumps(to_json(same.to_dict())))
    position = found["biases"]["position"]
    assert position["estimate"] == pytest.approx(0.25)  # the first position wins 75 of 100
    assert position["low"] > 0
    assert (position["n"], position["undefined"]) == (120, 0)
    assert found["verdict"].startswith("The judge is biased (position)")
    assert "--likelihood-lm" in found["not_measured"]["likelihood"]
    assert json.loads((tmp_path / "run/result.json").read_text())["audit"]["verdict"] == found["verdict"]
    shown = " ".join(evalbias("audit", "--data", file, *VERDICTS, "--out", "run", cwd=tmp_path).stdout.split())
    assert shown.startswith("The judge is biased (position): the output shown first wins 75 of 100 comparisons")
    assert "Not measured: likelihood: it needs a model that reports likelihoods" in shown


def test_conditions_decide_the_exit_code(tmp_path):
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs(120, first=0.5))

    def code(*conditions):
        options = [part for condition in conditions for part in ("--fail-on", condition)]
        return evalbias("audit", "--data", file, *VERDICTS, *options, cwd=tmp_path, check=False)

    assert code("position>0.3").returncode == 0
    met = code("position>0.3", "position >= 0.2")
    assert met.returncode == 1
    assert met.stderr.splitlines()[-1] == "failed: position >= 0.2: position is 0.25"
    assert code("position.position_consistency>0.4").returncode == 1  # .5 less than the 1 of a fair judge
    missing = code("likelihood>0.2")
    assert missing.returncode == 1
    assert "likelihood was not measured (it needs a model that reports likelihoods" in missing.stderr
    unknown = code("length>0.2")
    assert unknown.returncode == 2
    assert "'length' is unknown, choose one of likelihood, position, verbosity" in unknown.stderr
    estimate = code("position.firstrate>0.2")
    assert estimate.returncode == 2
    assert "position has no estimate 'firstrate' here, only first_rate" in estimate.stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("condition", "code"), [pytest.param("position>0.3", 0, marks=pytest.mark.slow), ("position>0.2", 1)]
)
def test_a_reader_who_leaves_changes_neither_the_files_nor_the_exit_code(form, condition, code, tmp_path):
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs(120, first=0.5))
    options = ["audit", "--data", str(file), *VERDICTS, "--fail-on", condition, "--out", "run", *form]
    reader, writer = os.pipe()
    os.close(reader)  # as head does once it has its lines, but before the first
    done = subprocess.run([*COMMAND, *options], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == code
    assert done.stderr.splitlines() == (["failed: position>0.2: position is 0.25"] if code else [])
    assert {"result.json", "report.html"} <= {one.name for one in (tmp_path / "run").iterdir()}


def test_an_output_stream_that_is_closed_is_no_error(tmp_path):
    file = as_jsonl(tmp_path / "pairs.jsonl", pairs(120, first=0.5))
    command = shlex.join([*COMMAND, "audit", "--data", str(file), *VERDICTS, "--json"])
    done = subprocess.run(f"{command} >&-", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["position", "position>", "position=0.2", "position>x", ">0.2", ""])
def test_a_condition_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="is no condition: write BIAS>NUMBER"):
        parse_conditions([text])


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        (
            "position>0.2, agreement.spearman<.3",
            [("position", None, ">", 0.2), ("agreement", "spearman", "<", 0.3)],
        ),
        (
            "self_preference.excess_of_gpt-4o v1.2 >= 0.2",
            [("self_preference", "excess_of_gpt-4o v1.2", ">=", 0.2)],
        ),
        ("scale use>0.2", [("scale_use", None, ">", 0.2)]),  # as the tables name it
        ("self-preference > 0.2", [("self_preference", None, ">", 0.2)]),
        ("self_preference.excess_of_my model>0", [("self_preference", "excess_of_my model", ">", 0)]),
    ],
)
def test_a_condition_names_a_bias_or_any_estimate(text, conditions):
    found = parse_conditions([text])
    assert [(c.bias, c.estimate, c.operator, c.limit) for c in found] == conditions
    with pytest.raises(ValueError, match="name the estimate of the agreement"):
        parse_conditions(["agreement<0.3"])


def test_recorded_scores_in_a_table_with_other_names(tmp_path):
    with (tmp_path / "replies.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["question", "reply", "stars", "my_score"])
        for i, e in enumerate(world.examples(60, seed=1)):
            rows.writerow([e.source, e.output, e.scores["quality"], 3 + (len(e.output) + i) % 3])
    names = ["--map", "source=question,output=reply,score=stars"]
    options = ["--data", "replies.csv", *names, "--scores-field", "my_score", "--json"]
    without = json.loads(evalbias("audit", *options, cwd=tmp_path).stdout)
    assert "--likelihood-lm" in without["not_measured"]["likelihood"]
    found = json.loads(evalbias("audit", *options, "--lm", "embedded", "--reliability", 0.8, cwd=tmp_path).stdout)
    assert "likelihood" not in found["not_measured"]
    assert found["biases"]["likelihood"]["n"] == 60
    assert found["biases"]["likelihood"]["low"] < found["biases"]["likelihood"]["estimate"]
    bounds = json.loads(evalbias("audit", *options, "--lm", "embedded", cwd=tmp_path).stdout)["biases"]["likelihood"]
    assert bounds["estimate"] is None
    assert bounds["low"] < bounds["high"]


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judges")
    PointwiseJudge(SYNTHETIC).save(str(folder / "scores.json"))
    PairwiseJudge(SYNTHETIC).save(str(folder / "compares.json"))
    return folder


@pytest.mark.slow
def test_a_saved_judge_that_scores(judges, tmp_path):
    items = [{k: e[k] for k in ("id", "source", "output", "scores")} for e in world.examples(40, seed=3)]
    file = as_jsonl(tmp_path / "items.jsonl", items)
    options = ["--data", file, "--judge", judges / "scores.json", "--lm", "embedded", "--reliability", 0.9]
    found = json.loads(evalbias("audit", *options, "--json", cwd=tmp_path).stdout)
    assert found["judge"].startswith("pointwise judge on embedded")
    assert found["n"] == found["biases"]["likelihood"]["n"] == 40
    again = evalbias("audit", *options, cwd=tmp_path).stdout
    assert "answers asked 0, replayed 80" in again  # a judgment and a likelihood an item


def test_a_saved_judge_that_compares(judges, tmp_path):
    documents = world.documents(8, 3, seed=4)
    items = [{k: e[k] for k in ("id", "source", "output", "scores")} for e in documents]
    file = as_jsonl(tmp_path / "items.jsonl", items)
    options = ["--data", file, "--judge", judges / "compares.json", "--lm", "embedded", "--pairs", 20, "--json"]
    found = json.loads(evalbias("audit", *options, cwd=tmp_path).stdout)
    assert found["judge"].startswith("pairwise judge on embedded")
    assert found["n"] == found["biases"]["position"]["n"] == 20


NEW = [
    *("--criterion", f"quality: {SYNTHETIC.definition}", "--task", SYNTHETIC.task),
    *("--source-label", SYNTHETIC.source_label, "--output-label", SYNTHETIC.output_label),
]


def test_a_new_judge_of_a_criterion_is_the_saved_one(judges, tmp_path):
    items = [{k: e[k] for k in ("id", "source", "output", "ratings")} for e in world.examples(30, seed=3)]
    file = as_jsonl(tmp_path / "items.jsonl", items)
    options = ["audit", "--data", file, "--lm", "embedded", "--json"]
    saved = json.loads(evalbias(*options, "--judge", judges / "scores.json", cwd=tmp_path).stdout)
    new = json.loads(evalbias(*options, *NEW, cwd=tmp_path).stdout)
    assert new["biases"]["likelihood"] == saved["biases"]["likelihood"]
    assert new["agreement"] == saved["agreement"]


def test_a_new_judge_compares_where_the_data_hold_pairs(judges, tmp_path):
    documents = [world.documents(1, 2, seed=n) for n in range(12)]
    rows = [
        {"id": str(n), "source": e[0].source, "outputs": [one.output for one in e]} for n, e in enumerate(documents)
    ]
    file = as_jsonl(tmp_path / "pairs.jsonl", rows)
    options = ["audit", "--data", file, "--lm", "embedded", "--json"]
    saved = json.loads(evalbias(*options, "--judge", judges / "compares.json", cwd=tmp_path).stdout)
    new = json.loads(evalbias(*options, *NEW, cwd=tmp_path).stdout)
    assert new["biases"]["position"] == saved["biases"]["position"]
    assert new["biases"]["position"]["n"] == 12


def test_texts_of_the_data_are_neither_markup_nor_commands_to_a_terminal(tmp_path):
    rows = [row | {"set": ("[/b]", "\x1b[31mred [red]hot")[k % 2]} for k, row in enumerate(pairs(60, first=0.5))]
    file = as_jsonl(tmp_path / "pairs.jsonl", rows)
    told = evalbias("audit", "--data", file, *VERDICTS, "--by", "set", "--out", "run", cwd=tmp_path)
    assert "[/b]" in told.stdout
    assert "[red]hot" in told.stdout
    assert "\x1b" not in told.stdout + told.stderr
    evalbias("audit", "--data", file, *VERDICTS, "--out", "other", "--seed", 1, cwd=tmp_path)
    for command in (["compare", "run", "other"], ["show", "run"], ["list", "--root", "."]):
        assert "\x1b" not in evalbias("runs", *command, cwd=tmp_path).stdout
    rows = [{"id": f"{k}[/x]", "source": "\x1b[2J[/INST]", "output": f"reply {k}"} for k in range(2)]
    file = as_jsonl(tmp_path / "outputs.jsonl", rows)
    quality = ("--criterion", "quality: is it good?")
    ranked = evalbias("rank", "--data", file, "--lm", "embedded", *quality, cwd=tmp_path)
    assert "1[/x]" in ranked.stdout
    assert "[/INST]" in ranked.stdout
    assert "\x1b" not in ranked.stdout


def test_other_codes_of_choices_are_named(tmp_path):
    rows = pairs(60, first=0.5)
    same = evalbias("audit", "--data", as_jsonl(tmp_path / "a.jsonl", rows), *VERDICTS, "--json", cwd=tmp_path)
    for row in rows:
        row.update({name: row[name] + 1 for name in ("verdict", "verdict_swapped")}, people=row.pop("better") + 1)
    file = as_jsonl(tmp_path / "b.jsonl", rows)
    for people in (["--map", "better=people"], ["--better-field", "people"]):
        told = evalbias("audit", "--data", file, *VERDICTS, *people, "--labels", "1,2,tie", "--json", cwd=tmp_path)
        assert json.loads(told.stdout)["biases"] == json.loads(same.stdout)["biases"]
    refused = evalbias("audit", "--data", file, *VERDICTS, cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "b.jsonl:1: 'verdict_swapped' is 2" in refused.stderr


def test_a_judge_is_compared_with_choices_in_other_codes(tmp_path):
    drawn = data.pairs(world.documents(6, 2, seed=3), ordered=False, seed=0)
    rows = [
        {"source": pair.source, "outputs": pair.candidates, "better": better}
        for pair, better in zip(drawn, [0, 1, "tie"] * 2, strict=True)
    ]
    asked = ["measure", "preference", "--lm", "embedded", "--criterion", f"{world.NAME}: {world.DEFINITION}", "--json"]
    same = evalbias(*asked, "--data", as_jsonl(tmp_path / "a.jsonl", rows), cwd=tmp_path)
    codes = {0: "model_a", 1: "model_b", "tie": "both"}
    file = as_jsonl(tmp_path / "b.jsonl", [row | {"better": codes[row["better"]]} for row in rows])
    told = evalbias(*asked, "--data", file, "--labels", "model_a,model_b,both", cwd=tmp_path)
    agreement = json.loads(told.stdout)["preference"]["agreement"]
    assert agreement == json.loads(same.stdout)["preference"]["agreement"]
    assert agreement["estimates"]["accuracy"]["n"] == 4
    (run,) = (path for path in (tmp_path / "runs").glob("*/run.json") if "model_a" in path.read_text())
    assert json.loads(run.read_text())["labels"] == ["model_a", "model_b", "both"]


def rated_rows(n):
    return [
        {"id": i, "source": f"s{i}", "output": "a " * (1 + i % 7), "ratings": [i % 5, (i + i // 5) % 5], "mine": i % 5}
        for i in range(n)
    ]


def audit_on(scale, tmp_path, **options):
    file = as_jsonl(tmp_path / "items.jsonl", rated_rows(30))
    return evalbias("audit", "--data", file, "--scores-field", "mine", "--scale", scale, cwd=tmp_path, **options)


@pytest.mark.slow
def test_the_scale_is_among_the_settings_and_no_other_is_shown(tmp_path):
    runs = set()
    for scale, ends in (("0-4", [0, 4]), ("-2-6", [-2, 6]), ("0.0-4.5", [0, 4.5])):
        audit_on(scale, tmp_path)
        (new,) = set((tmp_path / "runs").iterdir()) - runs
        runs.add(new)
        settings = json.loads((new / "run.json").read_text())
        assert settings["scale"] == ends
        assert all("scale" not in criterion for criterion in settings["criteria"])


def test_a_stranger_is_told_what_is_wrong_with_a_table(tmp_path):
    def told(text, *options):
        (tmp_path / "a.csv").write_text(text)
        names = ["--map", "source=question,output=answer,rating_1=anna,rating_2=ben"]
        return evalbias("audit", "--data", "a.csv", *names, *options, cwd=tmp_path, check=False)

    header = "question,answer,GPT score,anna,ben\n"
    empty = told(header, "--scores-field", "GPT score")
    assert empty.returncode == 2
    assert empty.stderr == "evalbias: a.csv holds no items to judge: give at least one row with an output.\n"
    near = told(header + "q,a,3,4,5\n", "--scores-field", "gpt score")
    assert near.stderr.endswith("Did you mean 'GPT score'?\n")
    alone = told(header + "q,a,3,4,5\n", "--scores-field", "GPT score")
    assert alone.returncode == 0
    assert "Warning" not in alone.stderr
    assert "undefined to" not in alone.stdout
