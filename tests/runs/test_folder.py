"""Run folders: what they hold, that nothing in them is half written, and that one process works in them."""

import errno
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from commands import evalbias
from filelock._identity import host_name

from evalbias import runs
from evalbias.report.page import title_of_run
from evalbias.runs import LOCK, FolderInUse, RunFolder, check_settings, default_path, delete_run, holder, read_run
from evalbias.values import json_number, to_json


@dataclass(frozen=True)
class Result:
    value: float
    rows: np.ndarray


class WithDict:
    def to_dict(self):
        return {"x": math.nan}


def test_undefined_is_null_and_everything_else_survives():
    given = {"a": Result(math.nan, np.array([1.0, math.inf])), 2: (np.int64(3), "x", None, True), "t": WithDict()}
    converted = to_json(given)
    assert converted == {"a": {"value": None, "rows": [1.0, "Infinity"]}, "2": [3, "x", None, True], "t": {"x": None}}
    text = json.dumps(converted, allow_nan=False)
    assert [json_number(v) for v in json.loads(text)["a"]["rows"]] == [1.0, math.inf]
    assert math.isnan(json_number(json.loads(text)["a"]["value"]))
    assert to_json([[10**400], [1.5]]) == [[10**400], [1.5]]
    for value in (10**400, [1], {}, "many"):
        with pytest.raises(ValueError, match=r"not a number|could not convert"):
            json_number(value)


def test_a_run_continues_with_the_same_settings_only(tmp_path):
    with RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)}) as folder:
        before = (tmp_path / "run/run.json").stat().st_mtime_ns
        folder.write_result({"x": math.nan})
    RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)}).close()
    assert (tmp_path / "run/run.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"other settings \(seed: 0 there, 1 now\)"):
        RunFolder(tmp_path / "run", {"seed": 1, "scale": (1, 5)})
    assert json.loads((tmp_path / "run/result.json").read_text()) == {"schema": "evalbias.run/1", "x": None}
    assert {f.name for f in (tmp_path / "run").iterdir()} == {"run.json", "result.json"}
    log = tmp_path / "search/search.json"
    for _ in range(2):
        check_settings(log, {"seed": 0})
    with pytest.raises(ValueError, match=r"search holds a run with other settings \(seed: 0 there, 1 now\)"):
        check_settings(log, {"seed": 1})


def test_any_criterion_has_a_file_name(tmp_path):
    with RunFolder(tmp_path / "run", {}) as folder:
        assert folder.file("judge", "data_coverage", ".json").name == "judge-data_coverage.json"
        assert folder.file("judge", "clarity/brevity in 2", ".json").name.startswith("judge-clarity-brevity-in-2-")
        assert len({folder.file("judge", name, ".json") for name in ("clear?", "clear!", "clear-")}) == 3


def test_the_same_settings_name_the_same_folder():
    first, again = {"command": "refine measure", "a": 1, "b": 2}, {"b": 2, "a": 1, "command": "refine measure"}
    assert default_path(first) == default_path(again) != default_path({**first, "b": 3})
    first = default_path(first)
    assert first.as_posix().startswith("runs/refine-measure-")


def test_only_the_parts_of_a_setting_that_differ_are_shown(tmp_path):
    there = {"data_sha256": "ab" * 32, "criteria": [{"name": "wit", "definition": "is it witty?"}], "limit": None}
    now = {"data_sha256": "cd" * 32, "criteria": [{"name": "wit", "definition": "x" * 500}], "limit": [1, 2]}
    RunFolder(tmp_path / "run", there).close()
    with pytest.raises(ValueError, match="holds a run with other settings") as raised:
        RunFolder(tmp_path / "run", now)
    shown = str(raised.value).replace(str(tmp_path), "")
    assert "criteria[0].definition: 'is it witty?' there, 'xxx" in shown
    assert "data_sha256: abababab... there, cdcdcdcd... now" in shown
    assert "limit: None there, [1, 2] now" in shown
    assert "name" not in shown
    assert len(shown) < 500


OPENS = """
import sys
from pathlib import Path
from evalbias.runs import FolderInUse, RunFolder
try:
    folder = RunFolder(Path(sys.argv[1]), {})
except FolderInUse as error:
    print(error)
    raise SystemExit(3)
print("open", flush=True)
sys.stdin.read()
"""


def opening(path):
    """Start a process that opens the folder, and holds it until its input ends."""
    command = [sys.executable, "-c", OPENS, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_second_process_is_refused_by_the_first_ones_id(tmp_path):
    with RunFolder(tmp_path, {}) as folder:
        assert holder(tmp_path) == os.getpid()
        assert read_run(tmp_path).status == f"running ({os.getpid()})"
        second = opening(tmp_path)
        assert f"Process {os.getpid()} works in {tmp_path}" in second.communicate()[0]
        assert second.returncode == 3
        RunFolder(tmp_path, {}).close()  # the same process may open it twice
        assert holder(tmp_path) == os.getpid()
    assert folder.path == tmp_path
    assert holder(tmp_path) is None
    assert not (tmp_path / LOCK).exists()


@pytest.mark.slow
@pytest.mark.parametrize("patience", [runs.PATIENCE, 0.0])  # 0 as if this process was paused after its first attempt
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, monkeypatch, patience):
    monkeypatch.setattr(runs, "PATIENCE", patience)
    with opening(tmp_path) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(FolderInUse, match=f"Process {first.pid} works in"):
            RunFolder(tmp_path, {})
        with pytest.raises(FolderInUse, match=f"Process {first.pid} works in"):
            delete_run(tmp_path)
        first.kill()
    left = (tmp_path / LOCK).read_bytes()
    assert read_run(tmp_path).status == "stopped"
    (tmp_path / LOCK).write_bytes(left)  # which the look at the run has removed
    (tmp_path / "run.json").unlink()  # as if it had been killed before it wrote its settings: only the lock is left
    with RunFolder(tmp_path, {}):
        assert holder(tmp_path) == os.getpid()
    delete_run(tmp_path)
    assert not tmp_path.exists()


def test_a_folder_that_holds_something_else_is_not_taken_for_a_run(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    refused = r"holds files of no run, such as thesis.txt: choose a new folder \(`out` or log_dir\)\."
    with pytest.raises(ValueError, match=refused):
        RunFolder(tmp_path, {})
    with pytest.raises(ValueError, match=refused):
        check_settings(tmp_path / "search.json", {})
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["result.json", "scores.jsonl", "judge-wit.json", "history.png", "steps.jsonl.torn"])
def test_a_run_is_not_continued_through_a_link(tmp_path, name):
    RunFolder(tmp_path / "run", {}).close()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "run/notes").symlink_to(tmp_path / "precious")  # where no run writes
    RunFolder(tmp_path / "run", {}).close()
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match=f"{name} is a link, and a run writes there: delete the link"):
        RunFolder(tmp_path / "run", {})
    assert [file.name for file in delete_run(tmp_path / "run")] == ["notes"]
    assert (tmp_path / "precious").read_text() == "mine"


def test_only_what_a_run_writes_is_deleted(tmp_path, monkeypatch):
    with RunFolder(tmp_path / "run", {}) as folder:
        folder.write_result({})
        for name in ("loops/own-0", "search", "mine/loops"):
            (folder.path / name).mkdir(parents=True)
        ours = ["report.html", "judge.json.part", "judgments.jsonl", "judgments.jsonl.torn", "scatter-wit.png"]
        ours += ["loops/own-0/steps.jsonl", "loops/own-0/.lock.fd", "loops/quality.jsonl", "search/search.json"]
        theirs = ["thesis.tex", "search/notes.txt", "mine/steps.jsonl", "mine/loops/steps.jsonl", "data.jsonl"]
        for name in (*ours, *theirs):
            (folder.path / name).write_text("")
    assert [file.name for file in delete_run(tmp_path / "run")] == ["data.jsonl", "mine", "search", "thesis.tex"]
    left = [f"{f.relative_to(tmp_path / 'run')}" for f in (tmp_path / "run").rglob("*") if f.is_file()]
    assert sorted(left) == sorted(theirs)
    monkeypatch.chdir(tmp_path / "run")
    RunFolder(Path("new"), {}).close()
    monkeypatch.chdir("new")
    assert delete_run(Path(".")) == []
    assert not (tmp_path / "run/new").exists()


@pytest.mark.parametrize("settings", ["{}", '{"versions": 1}', '{"versions": {"torch": "2"}}', '{"command": "judge"}'])
def test_a_folder_whose_settings_no_run_wrote_is_not_deleted(tmp_path, settings):
    (tmp_path / "run.json").write_text(settings)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ValueError, match=r"its run\.json is not one of a run: delete it yourself"):
        delete_run(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_every_name_under_which_a_run_writes_is_known():
    root = Path(runs.__file__).parents[1]
    places = ("evalbias/cli/*.py", "evalbias/evaluation/*.py", "optimizers/**/*.py")
    text = "".join(file.read_text(encoding="utf-8") for place in places for file in root.glob(place))
    literal = re.compile(r"""(?:path|log_dir|folder) / "([\w.-]+\.(?:json|jsonl|png|html))\"""")
    kind = re.compile(r"""folder\.file\("(\w+)", \w+, "(\.\w+)"\)""")
    names = {*literal.findall(text), *("-wit".join(found) for found in kind.findall(text))}
    assert {"sample.json", "scores.jsonl", "judge-wit.json", "quality.jsonl"} <= names
    assert [name for name in sorted(names) if not runs.WRITTEN.fullmatch(name)] == []


@pytest.mark.skipif(sys.platform == "win32", reason="has no pipes and loops of links in folders")
def test_a_folder_that_cannot_be_read_is_listed_as_damaged(tmp_path):
    RunFolder(tmp_path / "good", {}).close()
    for name in ("pipe", "looped"):
        RunFolder(tmp_path / name, {}).close()
    os.mkfifo(tmp_path / "pipe/result.json")
    (tmp_path / "looped/result.json").symlink_to("result.json")
    (tmp_path / "folder/run.json").mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/run.json").symlink_to("run.json")
    (tmp_path / "no run").mkdir()
    found = {run.path.name: (run.status, bool(run.damage)) for run in runs.list_runs(tmp_path)}
    damaged = dict.fromkeys(("pipe", "looped", "folder", "loop"), ("damaged", True))
    assert found == {"good": ("stopped", False), **damaged}


@pytest.mark.slow
def test_a_kernel_lock_holds_where_process_ids_say_nothing(tmp_path):
    with opening(tmp_path) as first:
        assert first.stdout.readline() == "open\n"
        (tmp_path / LOCK).write_text(f"{2**22 - 7}\n{host_name()}\n")  # as of a process of another PID namespace
        with pytest.raises(FolderInUse, match=f"Process {2**22 - 7} works in"):
            RunFolder(tmp_path, {})
        assert holder(tmp_path) == 2**22 - 7
        first.kill()
    with RunFolder(tmp_path, {}):
        assert holder(tmp_path) == os.getpid()
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_without_kernel_locks_the_process_is_asked(tmp_path, monkeypatch):
    def missing(lock):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock._acquire", missing)
    with RunFolder(tmp_path, {}):
        assert holder(tmp_path) == os.getpid()
    assert holder(tmp_path) is None


ESTIMATE = {"name": "effect", "label": "effect", "value": 0.5, "low": None, "high": "Infinity", "null": 0, "n": 4}
ESTIMATE |= {"undefined": 0, "units": 4, "p_value": 0.5, "unit": "share", "signed": True}
SETTINGS = {"command": "judge", "criteria": [{"name": "wit"}], "lm": {"model": "m"}, "data": ["a"], "versions": {}}
RESULT = {"measurements": [{"bias": "verbosity", "criterion": "wit", "estimates": {"effect": ESTIMATE}}], "n": [1, 2]}


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two"):
        with RunFolder(tmp_path / name, SETTINGS) as opened:
            opened.write_result(RESULT)
    return tmp_path


def test_runs_are_listed_and_shown(folder):
    def printed(*words, code=0):
        done = evalbias("runs", *words, cwd=folder, check=False)
        assert done.returncode == code
        return done

    with RunFolder(folder / "two", SETTINGS) as opened:
        opened.write_result({**RESULT, "n": [1, 3]})
    listed = json.loads(printed("list", "--root", ".", "--json").stdout)
    latest_first = [(name, "finished", "m") for name in ("two", "one")]
    assert [(run["path"], run["status"], run["model"]) for run in listed] == latest_first
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
    assert title_of_run({"command": "refine run", "task": "translation", "lm": lm}).startswith("Translation, written a")
