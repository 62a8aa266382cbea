"""The commands, as a user runs them."""

import json
import math
import re
from pathlib import Path

import dspy
import numpy as np
import pytest
from commands import answered, as_jsonl, evalbias, kill_once, records, refused, rows_of
from lm.gguf_files import save_llama
from lm.models import load, save

from benchmarks.sets import read
from evalbias import Criterion, embedded_judge_lm
from evalbias.cli import run
from evalbias.cli.judge import ScoredItems
from evalbias.data import world
from evalbias.programs import SYNTHETIC, PairwiseJudge, PairwiseRanker, PointwiseJudge, files
from evalbias.programs.criterion import PRESETS
from evalbias.runs import Journal
from evalbias.values import to_json

CRITERION = f"{world.NAME}: {world.DEFINITION}"
WORLDLY = ["--source-label", world.SOURCE_LABEL, "--output-label", world.OUTPUT_LABEL]
JUDGE = f"judge-{world.NAME}.json"
LIKELY, FAIR = ["optimize", "--aim", "likelihood"], ["optimize", "--aim", "fairness"]
SMALL = ["--epochs", 2, "--population", 3, "--pairs", 30, "--bare", "--orders", 5]


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    """Rated items."""
    rows = rows_of(world.examples(700, seed=5), "id", "scores")
    return as_jsonl(tmp_path_factory.mktemp("data") / "items.jsonl", rows)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Rated documents with several outputs each."""
    rows = rows_of(world.documents(16, 4, seed=9), "id", "input_id", "scores")
    return as_jsonl(tmp_path_factory.mktemp("documents") / "outputs.jsonl", rows)


@pytest.fixture
def scoring(items):
    """Options that name the items, the embedded judge and a criterion."""
    return ["--lm", "embedded", "--data", items, "--criterion", CRITERION]


@pytest.fixture
def new(tmp_path):
    """Options of a saved judge and three items that nobody rated."""
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "judge.json"))
    as_jsonl(tmp_path / "new.jsonl", rows_of(world.examples(3, seed=1)))
    return ["--judge", "judge.json", "--data", "new.jsonl"]


@pytest.fixture
def model(tmp_path):
    """A model of random weights that takes long prompts."""
    config = save_llama(tmp_path / "model") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 8192}))
    return config.parent


@pytest.mark.slow
def test_compile_and_judge(scoring, items, tmp_path):
    options = [*LIKELY, *scoring, "--resamples", 200, "--limit", 200, "-k", 4, "--out", "run"]
    found = answered(*options, cwd=tmp_path)
    decision, written = (found[name][world.NAME] for name in ("decisions", "written"))
    assert "training inputs (cross-fitted)" in decision
    kept = "Kept your judge" in decision
    assert f"judge-{world.NAME}.json holds the {'judge as it was given' if kept else 'compiled judge'}" in written
    shown = " ".join(evalbias(*options, cwd=tmp_path).stdout.split())
    for row in ("given", "paper's", "compiled", "likelihood alone", "length alone", "answers asked 0"):
        assert row in shown
    changes = found["likelihood"][world.NAME]["changes"]
    effects = {"likelihood_effect", "likelihood_effect_per_token"}
    assert changes.keys() == effects | {"bias_score", "bias_score_z", "pearson", "performance"}
    judged = ["--judge", f"run/judge-{world.NAME}.json", "--data", items, "--lm", "embedded", "--out", "j"]
    assert answered("judge", *judged, cwd=tmp_path)["n"] == 700
    rows = records(tmp_path / "j/scores.jsonl")
    assert len(rows) == 700
    assert all(1 <= row["score"] <= 5 for row in rows)
    assert rows[0]["distribution"].keys() == {"1", "2", "3", "4", "5"}


@pytest.mark.slow
def test_a_saved_judge_is_compiled_with_its_own_instruction_and_criterion(items, tmp_path):
    given = PointwiseJudge(SYNTHETIC)
    wording = f"Rate how well she is described.\n{PointwiseJudge(SYNTHETIC).answer_format}"
    given.predict.signature = given.predict.signature.with_instructions(wording)
    given.save(str(tmp_path / "mine.json"))
    options = [*LIKELY, "--judge", "mine.json", "--lm", "embedded", "--data", items, "--limit", 60]
    options += ["-k", 2, "--resamples", 99, "--bare", "--out", "run"]
    evalbias(*options, cwd=tmp_path)
    compiled = files.load(tmp_path / f"run/judge-{SYNTHETIC.name}.json")
    assert compiled.predict.signature.instructions == wording
    assert compiled.criterion == SYNTHETIC
    assert len(compiled.predict.demos) == 2
    PointwiseJudge(SYNTHETIC).save(str(tmp_path / "mine.json"))
    assert "holds a run with other settings" in refused(*options, cwd=tmp_path)


@pytest.mark.slow
def test_a_model_that_hardly_answers_is_warned_of_first(new, tmp_path):
    shown = evalbias("judge", *new, "--lm", save("llama", tmp_path / "model"), "--out", "run", cwd=tmp_path).stdout
    warning = "Do not rely on this judge: its model hardly ever answers with a label (median probability "
    assert shown.startswith(warning)  # its weights are random
    assert warning in (tmp_path / "run/report.html").read_text()


def test_a_criterion_on_the_command_line_makes_a_new_judge(new, tmp_path):
    options = ["judge", "--lm", "embedded", *new[2:], "--criterion", CRITERION, *WORLDLY, "--scale", "1-7"]
    evalbias(*options, "--out", "run", cwd=tmp_path)
    labels = {"source_label": world.SOURCE_LABEL, "output_label": world.OUTPUT_LABEL}
    judge = PointwiseJudge(Criterion(world.NAME, world.DEFINITION, scale=(1, 7), **labels))
    expected = [one.score for one in judge.batch(world.examples(3, seed=1), lm=embedded_judge_lm())]
    assert [row["score"] for row in records(tmp_path / "run/scores.jsonl")] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_likelihood_from_another_model(scoring, tmp_path):
    own = answered("audit", *scoring, cwd=tmp_path)["biases"]
    options = ["audit", *scoring, "--likelihood-lm", save("gpt2", tmp_path / "other"), "--out", "run"]
    other = answered(*options, cwd=tmp_path)["biases"]
    same, differ = ([side[bias]["low"] for side in (own, other)] for bias in ("verbosity", "likelihood"))
    assert same[0] == pytest.approx(same[1], abs=1e-5)
    assert abs(differ[0] - differ[1]) > 0.001
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["likelihood_lm"]["model"].startswith("local/other@")


@pytest.mark.slow
def test_the_demo_shows_the_method_and_prints_nothing_else(tmp_path):
    found = answered("demo", cwd=tmp_path)  # the page of the demo is checked against what it prints otherwise
    assert found.keys() == {"schema", "likelihood", "decisions", "written", "preference", "conclusion"}
    bias = found["likelihood"]["changes"]["bias_score"]
    assert (bias["before"]["n"], bias["before"]["undefined"]) == (300, 0)
    assert abs(bias["after"]["value"]) < bias["before"]["low"] / 2
    assert bias["test"]["p_value"] < 0.05
    initial, searched = (
        {name: e["value"] for m in found["preference"]["rows"][row].values() for name, e in m["estimates"].items()}
        for row in ("initial", "searched")
    )
    assert initial["fairness"] < -0.25 < -0.15 < searched["fairness"]
    assert searched["spearman"] > initial["spearman"] + 0.2
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["rows"]["searched"]["comparisons"]["agreement"]["changes"]["spearman"]["test"]["p_value"] < 0.05
    assert answered("demo", cwd=tmp_path) == found  # the same folder: everything is replayed


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
def test_ready_made_criteria_compile_judges_of_real_data(model, tmp_path):
    items = as_jsonl(tmp_path / "tmu.jsonl", [to_json(item.toDict()) for item in read("tmu-gfm")])
    options = [*LIKELY, "--lm", model, "--data", items, "--limit", 100, "-k", 2, "--resamples", 99]
    options += ["--criterion", "tmu-gfm:fluency", "--criterion", "tmu-gfm:grammar", "--bare", "--out", "run"]
    assert list(answered(*options, cwd=tmp_path)["likelihood"]) == ["fluency", "grammar", "total"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert [Criterion(**one) for one in run["criteria"]] == [*PRESETS["tmu-gfm"][::-1]]
    assert (run["train"]["items"], run["test"]["items"]) == (80, 20)
    page = (tmp_path / "run/report.html").read_text()
    assert all(f"Likelihood and unfairness: {name}" in page for name in ("fluency", "grammar", "total"))


@pytest.mark.slow
def test_a_search_on_few_inputs_asks_about_as_often_as_it_foretells(scoring, tmp_path, monkeypatch):
    foretold, shown = [], run.progress
    monkeypatch.setattr(run, "progress", lambda total, doing: foretold.append(total) or shown(total, doing))
    evalbias(*LIKELY, *scoring, "--limit", 40, "-k", 4, "--resamples", 99, "--out", "few", cwd=tmp_path)
    assert 0.75 < foretold[0] / len(records(tmp_path / "few" / "judgments.jsonl")) < 1.1  # each half is judged


KILLED = {"judge": ([1], ["scores.jsonl"]), "audit": ([1, 400], []), "probe": ([1, 400, 900], [])}
KILLED |= {"likelihood": ([1, 600, 1200], [JUDGE]), "mitigation": ([1, 300, 700], [JUDGE])}
KILLED |= {"align": ([1, 300, 900], ["judge.json"])}
KILLED |= {"fairness": ([1, 100, 250], ["judge.json", "search/proposals.jsonl"])}
"""Command -> lengths of the journal at which it is killed, and what it writes besides its result."""


@pytest.mark.slow
@pytest.mark.parametrize("command", KILLED)
def test_a_killed_run_resumes_to_the_same_result(items, outputs, scoring, new, tmp_path, command):
    more = {"judge": ["judge", "--data", items, *new[:2]], "audit": ["audit", *new[:2], "--data", items]}
    more |= {"probe": ["probe", "run", *new[:2], "--data", items]}
    more |= {"likelihood": [*LIKELY, *scoring, "--bare", "--resamples", 99]}
    more |= {"mitigation": [*LIKELY, *scoring, "--resamples", 99, "--limit", 240]}
    more |= {"align": ["align", *scoring, "--limit", 60]}
    more |= {"fairness": [*FAIR, "--criterion", CRITERION, "--data", outputs, *WORLDLY, *SMALL]}
    options = [*more[command], "--lm", "embedded", "--out"]
    told = evalbias(*options, "whole", cwd=tmp_path).stderr
    kills, results = KILLED[command]
    journal, done = tmp_path / "killed/judgments.jsonl", 0
    for lines in kills:
        kill_once(journal, *options, "killed", cwd=tmp_path, lines=lines)
        done = len(Journal(journal).read())
        with journal.open("a") as file:
            file.write('{"key": "torn')  # what a kill in the middle of a write leaves
        assert not (tmp_path / "killed/result.json").exists()
    shown = evalbias(*options, "killed", cwd=tmp_path).stdout
    keys, whole = ([row["key"] for row in records(tmp_path / name / "judgments.jsonl")] for name in ("killed", "whole"))
    assert keys == whole
    assert len(set(keys)) == len(keys)
    assert int(re.search(r"answers asked (\d+)", shown).group(1)) == len(keys) - done
    if command == "align":  # whose plan counts what is asked, and not what is known
        planned = re.search(r"plan: about ([\d,]+) prompts", told).group(1)
        assert 0.5 < int(planned.replace(",", "")) / len(keys) < 1.5
    for name in ("result.json", *results):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_outputs_that_the_model_cannot_take_are_unranked_by_name(tmp_path):
    rows = [{**row, "input_id": "1"} for row in rows_of(world.documents(1, 3, seed=1), "id")]
    rows.append({**rows[0], "id": "long", "output": rows[0]["output"] * 200})
    as_jsonl(tmp_path / "outputs.jsonl", [{**row, "scores": {world.NAME: n}} for n, row in enumerate(rows)])
    options = ["--data", "outputs.jsonl", "--lm", "embedded", "--criterion", CRITERION, *WORLDLY, "--out", "run"]
    found = answered("judge", "--rank", *options, cwd=tmp_path)
    (row,) = records(tmp_path / "run/rankings.jsonl")
    assert sorted(row["order"]) == sorted(one["id"] for one in rows[:3])
    assert row["scores"]["long"] is None
    assert row["unranked"].keys() == {"long"}
    assert "the model cannot take the prompts" in row["unranked"]["long"]
    assert found["unranked"] == found["agreement"]["notes"]["unranked"] == 1


@pytest.mark.slow
def test_a_new_judge_asks_in_its_language_without_a_cue_and_ranks_from_several_orders(model, tmp_path):
    documents = world.documents(3, 4, seed=1)
    as_jsonl(tmp_path / "outputs.jsonl", rows_of(documents, "id", "input_id"))
    options = ["--data", "outputs.jsonl", "--lm", model, "--criterion", CRITERION, "--language", "ja", "--no-cue"]
    answered("judge", "--rank", *options, "--orders", 3, "--ties", "--out", "ranked", cwd=tmp_path)
    answered("judge", *options, "--out", "judged", cwd=tmp_path)
    lm, criterion = load(model), Criterion(world.NAME, world.DEFINITION)
    ranker = PairwiseRanker(PairwiseJudge(criterion, language="ja", ties=True, cue=False), orders=3)
    groups = [documents[:4], documents[4:8], documents[8:]]
    examples = [dspy.Example(source=g[0].source, candidates=[e.output for e in g]) for g in groups]
    expected = [score for ranking in ranker.batch(examples, lm=lm) for score in ranking.scores]
    rows = records(tmp_path / "ranked/rankings.jsonl")
    found = {name: score for row in rows for name, score in row["scores"].items()}
    assert [found[e.id] for e in documents] == pytest.approx(expected)
    scores = [p.score for p in PointwiseJudge(criterion, language="ja", cue=False).batch(documents, lm=lm)]
    assert [row["score"] for row in records(tmp_path / "judged/scores.jsonl")] == pytest.approx(scores, abs=1e-4)
    for other in (PointwiseJudge(criterion, cue=False), PointwiseJudge(criterion, language="ja")):
        assert scores != pytest.approx([p.score for p in other.batch(documents, lm=lm)], abs=1e-4)


@pytest.mark.slow
def test_optimize_on_documents_that_people_rated(outputs, tmp_path):
    options = [*FAIR, "--criterion", CRITERION, "--data", outputs, "--lm", "embedded", *WORLDLY, *SMALL]
    options += ["--out", "run"]
    found = answered(*options, cwd=tmp_path)
    assert list(found["rows"]) == ["initial", "initial + permutation", "searched", "searched + permutation"]
    assert (found["judgments"], found["pairs"]["search"]) == (7 * 30, 30)
    initial, searched = found["rows"]["initial"], found["rows"]["searched"]
    for bias, name in (("position", "fairness"), ("agreement", "spearman")):
        assert searched[bias]["estimates"][name]["value"] > initial[bias]["estimates"][name]["value"]
    written = {"run.json", "judgments.jsonl", "result.json", "report.html", "judge.json", "search"}
    assert {f.name for f in (tmp_path / "run").iterdir()} == written
    judge = files.load(tmp_path / "run/judge.json")
    assert judge.predict.signature.instructions == found["instruction"]
    run, result = (json.loads((tmp_path / f"run/{name}.json").read_text()) for name in ("run", "result"))
    assert (run["command"], run["aim"], run["train"]["items"], run["test"]["items"]) == ("optimize", "fairness", 32, 32)
    change = result["rows"]["searched"]["comparisons"]["agreement"]["changes"]["spearman"]
    assert 0 < change["test"]["p_value"] < 1
    shown = evalbias(*options, cwd=tmp_path).stdout
    assert "answers asked 0" in shown
    assert "permutation" in shown


@pytest.mark.slow
def test_optimize_begins_with_a_wording_of_ones_own(outputs, tmp_path):
    own = "Which text is better on politeness?"
    options = ["--criterion", "politeness: is the text polite?", "--data", outputs, "--lm", "embedded", "--bare"]
    options += ["--instruction", own, "--aim", "fairness", "--pairs", "all", "--epochs", 1, "--population", 2]
    finished = evalbias("optimize", *options, "--out", "run", cwd=tmp_path)
    assert "The grammar cannot reword this instruction" in finished.stderr
    result = json.loads((tmp_path / "run/result.json").read_text())
    search = result["search"]
    assert all(row["measurements"].keys() == {"position", "verbosity"} for row in result["rows"].values())  # unrated
    assert search["objective"] == "fairness"
    assert search["tried"][0]["instruction"] == own
    assert result["pairs"]["search"] == result["pairs"]["all"] == search["tried"][0]["examples"] > 20
    judge = files.load(tmp_path / "run/judge.json")
    assert judge.predict.signature.instructions == search["chosen"]


@pytest.mark.slow
def test_judges_are_searched_against_a_probe(scoring, outputs, tmp_path):
    more = ["--aim", "probe:injection", "--bare", "--out", "run"]
    evalbias("optimize", *scoring, *more, "--limit", 60, "-k", 2, "--resamples", 99, cwd=tmp_path)
    demos = json.loads((tmp_path / f"run/judge-{world.NAME}.json").read_text())["predict"]["demos"]
    assert [bool(re.search(r"(: |assistant\n)5\.?$", demo["output"])) for demo in demos] == [True, True]
    PairwiseJudge(SYNTHETIC, instruction_place="first").save(tmp_path / "compares.json")
    options = ["--judge", "compares.json", "--data", outputs, "--lm", "embedded", "--epochs", 1, "--population", 2]
    evalbias("optimize", *options, *more[:3], "--pairs", 20, "--out", "searched", cwd=tmp_path)
    result = json.loads((tmp_path / "searched/result.json").read_text())["search"]
    assert (result["objective"], result["tried"][0]["examples"]) == ("probe", 40)  # edited and with the placebo
    judge = files.load(tmp_path / "searched/judge.json")
    assert " ".join(judge.predict.signature.instructions.split()) == result["chosen"]


@pytest.mark.slow
def test_recorded_pairs_are_searched_on_but_not_ranked(tmp_path):
    verdicts = Path(__file__).parents[2] / "docs/data/verdicts.jsonl"
    options = ["--data", verdicts, "--lm", "embedded", *WORLDLY, "--pairs", 20]
    small = ["--epochs", 1, "--population", 2, "--bare"]
    found = answered(*FAIR, "--criterion", CRITERION, *options, *small, cwd=tmp_path)
    assert found["judgments"] == 3 * 20
    assert found["rows"]["searched"].keys() >= {"position", "verbosity"}


@pytest.mark.slow
def test_rank(outputs, tmp_path):
    options = ["--data", outputs, "--lm", "embedded", "--criterion", CRITERION, *WORLDLY]
    plain = answered("judge", "--rank", *options, "--out", "plain", cwd=tmp_path)
    both = answered("judge", "--rank", *options, "--debias", "permutation", cwd=tmp_path)
    spearman, permuted = (one["agreement"]["estimates"]["spearman"]["value"] for one in (plain, both))
    assert permuted > spearman
    assert ["chose place A" in found["conclusion"] for found in (plain, both)] == [True, False]
    rows = records(tmp_path / "plain/rankings.jsonl")
    assert len(rows) == plain["documents"] == 16
    for row in rows:
        assert sorted(row["scores"], key=lambda i: -row["scores"][i]) == row["order"]


def test_items_that_the_model_did_not_answer_are_told_from_those_that_it_cannot_take():
    scores, file = np.array([3.0, math.nan, math.nan, math.nan]), Path("scores.jsonl")
    rows = [{"id": "a"}, {"id": "b", "undefined": "too long"}, {"id": "c"}, {"id": "d"}]
    scored = ScoredItems.of(rows, scores)
    assert vars(scored) == {"n": 1, "undefined": 3, "mean": 3.0, "refused": ["b"], "unanswered": 2}
    assert "1 item scored, 3 undefined (the model cannot take item b)" in scored.sentence(file)
    assert "2 items have no score although the model answered" in scored.sentence(file)
    assert "although the model answered" not in ScoredItems.of(rows[:2], scores[:2]).sentence(file)
