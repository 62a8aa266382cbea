"""The commands of run folders: what they refuse, and results that no run wrote."""

import copy
import json

import pytest
from commands import evalbias, refused
from hypothesis import given
from hypothesis import strategies as st
from mutants import places

from evalbias.report.page import title_of_run
from evalbias.runs import RunFolder, flatten

ESTIMATE = {"name": "effect", "label": "effect", "value": 0.5, "low": None, "high": "Infinity", "null": 0, "n": 4}
ESTIMATE |= {"undefined": 0, "units": 4, "p_value": 0.5, "unit": "share", "signed": True}
SETTINGS = {"command": "judge", "criteria": [{"name": "wit"}], "lm": {"model": "m"}, "data": ["a"], "versions": {}}
RESULT = {"measurements": [{"bias": "verbosity", "criterion": "wit", "estimates": {"effect": ESTIMATE}}], "n": [1, 2]}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=9),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["name", "a", "value"]), part, max_size=3)
    ),
    max_leaves=4,
)


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two"):
        with RunFolder(tmp_path / name, SETTINGS) as opened:
            opened.write_result(RESULT)
    return tmp_path


def test_a_report_is_opened(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or len(opened) == 1)
    assert "one has no report, because the run is finished" in refused("runs", "show", "one", "--open", cwd=folder)
    (folder / "one/report.html").touch()
    assert evalbias("runs", "show", "one", "--open", cwd=folder).stdout == ""
    assert opened == [(folder / "one/report.html").resolve().as_uri()]
    assert "No browser was found" in refused("runs", "show", "one", "--open", cwd=folder)


def test_runs_are_listed_and_shown(folder):
    def printed(*words, code=0):
        done = evalbias("runs", *words, cwd=folder, check=False)
        assert done.returncode == code
        return done

    with RunFolder(folder / "two", SETTINGS) as opened:
        opened.write_result({**RESULT, "n": [1, 3]})
    listed = json.loads(printed("list", "--root", ".", "--json").stdout)
    assert [(run["path"], run["status"], run["model"]) for run in listed] == [
        ("two", "finished", "m"),  # the latest first
        ("one", "finished", "m"),
    ]
    assert "2 runs in ." in printed("list", "--root", ".").stdout
    shown = printed("show", "one").stdout
    assert "one: finished" in shown
    assert "  n: [1, 2]" in shown
    (folder / "two/run.json").write_text('{"lm": "of another program"}')
    assert "2 runs in ." in printed("list", "--root", ".").stdout
    assert "has no run.json" in printed("delete", ".", "--yes", code=2).stderr


def test_what_is_not_the_runs_is_kept_and_named(folder):
    (folder / "one/thesis.tex").write_text("mine")
    told = evalbias("runs", "delete", "one", "--yes", cwd=folder).stdout
    assert told == "deleted one\nkept one for what is not the run's: thesis.tex\n"
    assert [file.name for file in (folder / "one").iterdir()] == ["thesis.tex"]
    assert evalbias("runs", "delete", "two", "--yes", cwd=folder).stdout == "deleted two\n"
    assert not (folder / "two").exists()


def test_what_cannot_be_read_is_named_and_does_not_hide_the_others(folder):
    (folder / "two/result.json").write_text('{"a":' * 600 + "1" + "}" * 600)
    (folder / "bad/run.json").mkdir(parents=True)
    listed = json.loads(evalbias("runs", "list", "--root", ".", "--json", cwd=folder).stdout)
    assert {run["path"]: run["status"] for run in listed} == {"one": "finished", "two": "damaged", "bad": "damaged"}
    for command in (["show", "two"], ["show", "two", "--json"]):
        assert "damaged" in (told := evalbias("runs", *command, cwd=folder)).stdout + told.stderr


def test_the_title_of_a_run_is_of_its_criterion_or_command():
    for criteria in (5, None, "wit", [5], [{}], {"name": 1}):
        assert title_of_run({"command": "judge", "criteria": criteria}) == "Judge"
    lm = {"model": "local/tiny"}  # the task of a prompt is not that of a loop
    audited = {"command": "audit", "criteria": [{"name": "wit"}], "task": "Write a joke.", "lm": lm}
    assert title_of_run(audited) == "Wit, judged by tiny"
    assert title_of_run({"command": "refine run", "task": "translation", "lm": lm}).startswith(
        "Translation, written and"
    )


@pytest.mark.slow
@given(st.data())
def test_results_that_no_run_wrote_are_shown(data):
    content = copy.deepcopy({"settings": SETTINGS, "result": RESULT})
    for _ in range(data.draw(st.integers(0, 2))):
        container, key = data.draw(st.sampled_from([*places(content["settings"]), *places(content["result"])]))
        container[key] = data.draw(ODD)
    assert isinstance(flatten(content), dict)
    assert isinstance(title_of_run(content["settings"]), str)
