"""evalbias audit, as a user runs it: recorded answers, saved judges, and conditions that fail a build."""

import json
import os
import shlex
import subprocess
from functools import partial

import numpy as np
import pytest
from commands import COMMAND, answered, as_jsonl, evalbias, refused, rows_of

import evalbias as package
from evalbias import data
from evalbias.cli.audit import parse_conditions
from evalbias.data import world
from evalbias.evaluation.audit import audit, audit_each
from evalbias.options import read_scale
from evalbias.programs import SYNTHETIC, PairwiseJudge, PointwiseJudge
from evalbias.values import to_json

KEPT: dict = {}  # the audit of the pairs below
VERDICTS = ["--winner-field", "verdict", "--swapped-field", "verdict_swapped"]


def pairs(n, *, first):
    """Of a share of the pairs, the judge takes the first position; of the rest, the better output."""
    outputs = [[f"an answer {i}", f"the other, longer answer {i}"] for i in range(n)]
    choices = [(0, 1) if i < first * n else (i % 2, i % 2) for i in range(n)]
    verdicts = [{"better": i % 2, "verdict": a, "verdict_swapped": b} for i, (a, b) in enumerate(choices)]
    return [{"id": f"p{i}", "source": f"question {i}", "outputs": outputs[i]} | verdicts[i] for i in range(n)]


@pytest.fixture
def file(tmp_path):
    """Recorded choices in both orders."""
    return as_jsonl(tmp_path / "pairs.jsonl", pairs(120, first=0.5))


@pytest.mark.slow
def test_recorded_choices_as_json_and_nothing_else(file, tmp_path):
    found = answered("audit", "--data", file, *VERDICTS, "--out", "run", cwd=tmp_path)
    same = package.audit(file, winner_field="verdict", swapped_field="verdict_swapped")
    assert found == {"schema": "evalbias.audit/1"} | json.loads(json.dumps(to_json(same.to_dict())))
    position = found["biases"]["position"]
    assert position["estimate"] == pytest.approx(0.25)  # the first position wins 75 of 100
    assert position["low"] > 0
    assert (position["n"], position["undefined"]) == (120, 0)
    assert found["verdict"].startswith(found["validity"]["sentence"])
    assert " Biased, position: " in found["verdict"]
    assert "--likelihood-lm" in found["not_measured"]["likelihood"]
    assert json.loads((tmp_path / "run/result.json").read_text())["audit"]["verdict"] == found["verdict"]
    shown = " ".join(evalbias("audit", "--data", file, *VERDICTS, "--out", "run", cwd=tmp_path).stdout.split())
    assert shown.startswith("The judge agrees with people beyond chance: accuracy 0.75 (95 % interval ")
    assert ". Biased, position: the output shown first wins 75 of 100 comparisons instead of 50" in shown
    assert "Next: Ask in both orders and average, which removes it at twice the prompts. run folder" in shown
    whole = evalbias("audit", "--data", file, *VERDICTS, "--full", "--out", "run", cwd=tmp_path).stdout
    assert "it needs a model that reports likelihoods" in " ".join(whole.split())


# The first position wins 75 of 100, 95 % interval 70.5 to 79.5; of several conditions, one that fails decides.
EXITS = [(0, "position>0.33"), (0, "position<0.1"), (1, "position>0.33; position >= 0.15"), (3, "position>0.24")]
EXITS += [(3, "position<0.28"), (1, "position>0.24; position>0.1"), (0, "agreement.accuracy>0.9")]
# with a question mark, a condition must be shown
EXITS += [(0, "position<0.33?"), (3, "position<0.28?"), (1, "position<0.1 ?"), (0, "agreement.accuracy>0.6?")]
EXITS += [(3, "agreement.accuracy>0.75?"), (1, "likelihood<0.2?"), (1, "likelihood>0.2"), (2, "length>0.2")]
EXITS += [(2, "position.firstrate>0.2"), (1, "position.position_consistency>0.4")]  # less than the 1 of a fair judge


@pytest.fixture
def once(monkeypatch):
    """Audit the pairs once, and only decide anew for each condition."""

    def kept(each):
        if not KEPT:
            KEPT.update(audit_each(each))
        return KEPT

    monkeypatch.setattr("evalbias.cli.audit.audit_each", kept)


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(("code", "conditions"), EXITS)
def test_conditions_decide_the_exit_code(file, tmp_path, conditions, code, snapshot):
    options = [part for condition in conditions.split("; ") for part in ("--fail-on", condition)]
    done = evalbias("audit", "--data", file.name, *VERDICTS, *options, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert done.stderr.splitlines() == snapshot


@pytest.mark.slow
@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(("condition", "code"), [("position>0.33", 0), ("position>0.1", 1)])
def test_a_reader_who_leaves_changes_neither_the_files_nor_the_exit_code(form, condition, code, file, tmp_path):
    options = ["audit", "--data", str(file), *VERDICTS, "--fail-on", condition, "--out", "run", *form]
    reader, writer = os.pipe()
    os.close(reader)  # as head does once it has its lines, but before the first
    done = subprocess.run([*COMMAND, *options], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == code
    told = "failed: position>0.1: position is 0.25 (95 % interval 0.205 to 0.295)"
    assert done.stderr.splitlines() == ([told] if code else [])
    assert {"result.json", "report.html"} <= {one.name for one in (tmp_path / "run").iterdir()}


@pytest.mark.slow
def test_an_output_stream_that_is_closed_is_no_error(file, tmp_path):
    command = shlex.join([*COMMAND, "audit", "--data", str(file), *VERDICTS, "--json"])
    done = subprocess.run(f"{command} >&-", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["position", "position>", "position=0.2", "position>x", ">0.2", ""])
def test_a_condition_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="is no condition: write BIAS>NUMBER"):
        parse_conditions([text])


@pytest.mark.parametrize(("text", "conditions"), [
    ("position>0.2, agreement.spearman<.3", [("position", None, ">", 0.2), ("agreement", "spearman", "<", 0.3)]),
    ("self_preference.excess_of_gpt-4o v1.2 >= 0.2", [("self_preference", "excess_of_gpt-4o v1.2", ">=", 0.2)]),
    ("scale use>0.2", [("scale_use", None, ">", 0.2)]),  # as the tables name it
    ("self-preference > 0.2", [("self_preference", None, ">", 0.2)]),
    ("self_preference.excess_of_my model>0", [("self_preference", "excess_of_my model", ">", 0)]),
])  # fmt: skip
def test_a_condition_names_a_bias_or_any_estimate(text, conditions):
    found = parse_conditions([text])
    assert [(c.bias, c.estimate, c.operator, c.limit) for c in found] == conditions
    with pytest.raises(ValueError, match=r"name an estimate of agreement, such as agreement\.spearman"):
        parse_conditions(["agreement<0.3"])


def test_bounds_decide_a_condition():
    rng = np.random.default_rng(5)
    judged = [(q, q + rng.normal() / 2) for q in rng.normal(size=400).tolist()]
    rows = [{"output": "x" * int(rng.integers(9, 99)), "js": q, "rating_1": r} for q, r in judged]
    found = audit(rows, scores_field="js")
    conditions = parse_conditions(["verbosity>0.5,verbosity<0.5?,verbosity<0.5,verbosity>0.01"])
    assert found.having("bounds only")
    assert [condition.decide(found)[0] for condition in conditions] == [0, 0, 1, 3]


NEW = [
    *("--criterion", f"quality: {SYNTHETIC.definition}", "--task", SYNTHETIC.task),
    *("--source-label", SYNTHETIC.source_label, "--output-label", SYNTHETIC.output_label),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PointwiseJudge, partial(PairwiseJudge, instruction_place="first")])
def test_a_new_judge_of_a_criterion_is_the_saved_one(kind, tmp_path):
    judge = kind(SYNTHETIC)
    judge.save(str(tmp_path / "judge.json"))
    if kind is PointwiseJudge:
        rows = rows_of(world.examples(30, seed=3), "id", "ratings")
    else:
        both = [world.documents(1, 2, seed=n) for n in range(30)]
        rows = [{"id": n, "source": e[0].source, "outputs": [e[0].output, e[1].output]} for n, e in enumerate(both)]
    options = ["audit", "--data", as_jsonl(tmp_path / "items.jsonl", rows), "--lm", "embedded"]
    saved = answered(*options, "--judge", "judge.json", cwd=tmp_path)
    new = answered(*options, *NEW, cwd=tmp_path)
    assert new["biases"] == saved["biases"]
    assert new["agreement"] == saved["agreement"]
    assert saved["judge"].startswith(f"{judge.kind} on embedded")
    bias = "likelihood" if kind is PointwiseJudge else "position"
    assert saved["n"] == saved["biases"][bias]["n"] == 30


def test_texts_of_the_data_are_neither_markup_nor_commands_to_a_terminal(tmp_path):
    rows = [row | {"set": ("[/b]", "\x1b[31mred [red]hot")[k % 2]} for k, row in enumerate(pairs(60, first=0.5))]
    file = as_jsonl(tmp_path / "pairs.jsonl", rows)
    told = evalbias("audit", "--data", file, *VERDICTS, "--by", "set", "--out", "run", cwd=tmp_path)
    assert "[/b]" in told.stdout
    assert "[red]hot" in told.stdout
    assert "\x1b" not in told.stdout + told.stderr
    for command in (["show", "run"], ["list", "--root", "."]):
        assert "\x1b" not in evalbias("runs", *command, cwd=tmp_path).stdout
    folder = (tmp_path / "run").rename(tmp_path / "an-audit-of-recorded-choices-of-two-outputs-04e7f3")
    assert folder.name in evalbias("runs", "list", "--root", ".", cwd=tmp_path).stdout  # whole, to be copied
    rows = [{"id": f"{k}[/x]", "source": "\x1b[2J[/INST]", "output": f"reply {k}"} for k in range(2)]
    file = as_jsonl(tmp_path / "outputs.jsonl", rows)
    quality = ("--criterion", "quality: is it good?")
    ranked = evalbias("judge", "--rank", "--data", file, "--lm", "embedded", *quality, cwd=tmp_path)
    assert "1[/x]" in ranked.stdout
    assert "[/INST]" in ranked.stdout
    assert "\x1b" not in ranked.stdout


@pytest.mark.slow
def test_a_judge_is_compared_with_choices_in_other_codes(tmp_path):
    drawn = data.pairs(world.documents(6, 2, seed=3), ordered=False, seed=0)
    choices = zip(drawn, [0, 1, "tie"] * 2, strict=True)
    rows = [{"source": pair.source, "outputs": pair.candidates, "better": better} for pair, better in choices]
    options = ["audit", "--lm", "embedded", "--criterion", f"{world.NAME}: {world.DEFINITION}"]
    same = answered(*options, "--data", as_jsonl(tmp_path / "a.jsonl", rows), cwd=tmp_path)
    codes = {0: "model_a", 1: "model_b", "tie": "both"}
    options += ["--data", as_jsonl(tmp_path / "b.jsonl", [row | {"better": codes[row["better"]]} for row in rows])]
    found = answered(*options, "--labels", "model_a,model_b,both", "--out", "run", cwd=tmp_path)
    assert found["agreement"] == same["agreement"]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["measurements"]["agreement"]["estimates"]["accuracy"]["n"] == 4
    assert json.loads((tmp_path / "run/run.json").read_text())["labels"] == ["model_a", "model_b", "both"]


@pytest.mark.parametrize(("text", "ends"), [("0-4", (0, 4)), ("-2-6", (-2, 6)), (" 0.0 - 4.5", (0, 4.5))])
def test_a_scale_is_read(text, ends):
    assert read_scale(text) == ends


def test_the_scale_is_among_the_settings_and_no_other_is_shown(tmp_path):
    rows = [{"source": f"s{k}", "output": "a", "ratings": [k % 5, k % 4], "mine": k % 5} for k in range(30)]
    options = ["--data", as_jsonl(tmp_path / "items.jsonl", rows), "--scores-field", "mine", "--scale", "-2-6"]
    evalbias("audit", *options, "--out", "run", cwd=tmp_path)
    settings = json.loads((tmp_path / "run/run.json").read_text())
    assert settings["scale"] == [-2, 6]
    assert all("scale" not in criterion for criterion in settings["criteria"])


@pytest.mark.parametrize(("row", "field", "code", "told"), [
    ("", "GPT score", 2, "evalbias: a.csv holds no items to judge: give at least one row with an output.\n"),
    ("q,a,3,4,5\n", "gpt score", 2, "Did you mean 'GPT score'?\n"),
    ("q,a,3,4,5\n", "GPT score", 0, ""),
])  # fmt: skip
def test_a_stranger_is_told_what_is_wrong_with_a_table(tmp_path, row, field, code, told):
    (tmp_path / "a.csv").write_text("question,answer,GPT score,anna,ben\n" + row)
    names = ["--map", "source=question,output=answer,rating_1=anna,rating_2=ben"]
    done = evalbias("audit", "--data", "a.csv", *names, "--scores-field", field, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr.endswith(told)) == (code, True)
    assert "Warning" not in done.stderr
    assert "undefined to" not in done.stdout


@pytest.fixture
def labeled(tmp_path):
    """Verdicts and labels alone: of what people pass, the judge passes 95 of 100, of the rest it fails 80 of 100."""
    rows = [("pass", "yes")] * 190 + [("fail", "yes")] * 10 + [("pass", "no")] * 20 + [("fail", "no")] * 80
    file = tmp_path / "labeled.csv"
    file.write_text("\n".join(["verdict,label", *map(",".join, rows)]))
    return file


@pytest.mark.parametrize(("code", "rates"), [
    (0, "TPR=.8,tnr=.7"), (1, "tpr=.9, tnr=.9"), (3, "tnr=.75"), (3, "tpr=.95"), (1, "tpr=.94,tnr=.95")
])  # fmt: skip
def test_a_certificate(labeled, tmp_path, rates, code, snapshot):
    options = ["audit", "--data", labeled, "--scores-field", "verdict", "--certify", rates, "--out", "run"]
    done = evalbias(*options, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert done.stderr.splitlines() == snapshot
    assert done.stdout.startswith("Of the answers that people passed, the judge passed 95 of 100 (91 to 97)")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Of the answers that people passed, the judge passed 95 of 100" in page
    assert ": pass_or_fail.t" in page
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["audit"]["certificate"]
    assert [f"{one['decision']}: {one['why']}" for one in kept] == done.stderr.splitlines()


def test_certificates_that_are_none(labeled, file, tmp_path):
    verdicts = ["audit", "--data", labeled, "--scores-field", "verdict", "--out", "run"]
    for rates in ("tpr=2", "fpr=.8", "tpr", "tpr=high", "tpr=80"):
        assert "give a rate a number from 0 to 1, such" in refused(*verdicts, "--certify", rates, cwd=tmp_path)
    told = refused("audit", "--data", file, *VERDICTS, "--certify", "tpr=.8", cwd=tmp_path)
    assert "--certify needs a judge's recorded verdicts (--scores-field), pass or fail" in told
    labeled.write_text("verdict,label\n" + "pass,yes\n" * 9)
    done = evalbias(*verdicts[:-2], "--certify", "tnr=.8", cwd=tmp_path, check=False)
    assert (done.returncode, "undecided: tnr=.8" in done.stderr) == (3, True)
    for rows, told in (("verdict\n1\n0\n", "nobody labeled"), ("verdict,label\n1,2\n0,1\n", "neither pass nor f")):
        labeled.write_text(rows)
        assert told in refused(*verdicts, "--certify", "tpr=.8", cwd=tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_several_criteria_leave_one_run_and_one_page(tmp_path):
    rows = [
        {"output": "word " * (1 + i * 7 % 23), "ratings": {"wit": [1 + i % 5] * 2, "tone": [1 + i % 3] * 2}}
        | {"wit/mine": 1 + i % 5, "tone/mine": 1 + (i + i // 9) % 3, "wit/his": 3 + i % 2, "tone/his": 1 + i % 2}
        for i in range(60)
    ]
    asked = ["audit", "--data", as_jsonl(tmp_path / "items.jsonl", rows), "--criterion", "all"]
    conditions = ["--fail-on", "agreement.spearman<0.9"]
    done = evalbias(*asked, "--scores-field", "{criterion}/mine", *conditions, "--out", "a", cwd=tmp_path, check=False)
    assert (done.returncode, "failed: tone: agreement.spearman<0.9" in done.stderr) == (1, True)
    assert "failed: wit" not in done.stderr
    result = json.loads((tmp_path / "a/result.json").read_text())
    assert [*result["criteria"]] == ["wit", "tone"]
    assert result["criteria"]["tone"]["audit"]["criterion"] == "tone"
    page = (tmp_path / "a/report.html").read_text()
    order = [page.index(text) for text in ("All criteria", "with people: wit <", "with people: tone <")]
    assert order == sorted(order)
    found = answered(*asked, "--scores-field", "{criterion}/his", "--out", "b", cwd=tmp_path)
    assert found["criteria"]["wit"]["provenance"]["criteria"] == 2
