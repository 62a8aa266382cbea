"""Run folders: what they hold, that nothing in them is half written, and that one process works in them."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from evalbias.runs import lock
from evalbias.runs.folder import RunFolder, check_settings, default_path
from evalbias.runs.listing import delete_run, read_run
from evalbias.runs.lock import FILE, FolderInUse, holder
from evalbias.runs.values import number, to_json


@dataclass(frozen=True)
class Result:
    value: float
    rows: np.ndarray


class WithDict:
    def to_dict(self):
        return {"x": math.nan}


def test_undefined_is_null_and_everything_else_survives():
    converted = to_json(
        {"a": Result(math.nan, np.array([1.0, math.inf])), 2: (np.int64(3), "x", None, True), "t": WithDict()}
    )
    assert converted == {"a": {"value": None, "rows": [1.0, "Infinity"]}, "2": [3, "x", None, True], "t": {"x": None}}
    text = json.dumps(converted, allow_nan=False)
    assert [number(v) for v in json.loads(text)["a"]["rows"]] == [1.0, math.inf]
    assert math.isnan(number(json.loads(text)["a"]["value"]))


def test_a_run_continues_with_the_same_settings_only(tmp_path):
    with RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)}) as folder:
        before = (tmp_path / "run/run.json").stat().st_mtime_ns
        folder.write_result({"x": math.nan})
    RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)}).close()
    assert (tmp_path / "run/run.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"other settings \(seed: 0 there, 1 now\)"):
        RunFolder(tmp_path / "run", {"seed": 1, "scale": (1, 5)})
    assert json.loads((tmp_path / "run/result.json").read_text()) == {"x": None}
    assert {f.name for f in (tmp_path / "run").iterdir()} == {"run.json", "result.json"}


def test_any_criterion_has_a_file_name(tmp_path):
    with RunFolder(tmp_path / "run", {}) as folder:
        assert folder.file("judge", "data_coverage", ".json").name == "judge-data_coverage.json"
        assert folder.file("judge", "clarity/brevity in 2", ".json").name.startswith("judge-clarity-brevity-in-2-")
        assert len({folder.file("judge", name, ".json") for name in ("clear?", "clear!", "clear-")}) == 3


def test_the_same_settings_name_the_same_folder():
    first, again = (
        default_path({"command": "measure self", "a": 1, "b": 2}),
        default_path({"b": 2, "a": 1, "command": "measure self"}),
    )
    assert first == again != default_path({"command": "measure self", "a": 1, "b": 3})
    assert first.as_posix().startswith("runs/measure-self-")


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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe{}", b"[" * 100_000])
def test_a_damaged_run_file_is_named(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"run\.json (is not valid JSON|holds \[\]).*: delete its folder to start over"
    ):
        RunFolder(tmp_path, {})


def test_settings_of_a_log_are_compared(tmp_path):
    check_settings(tmp_path / "search/search.json", {"seed": 0})
    check_settings(tmp_path / "search/search.json", {"seed": 0})
    with pytest.raises(ValueError, match=r"search holds a run with other settings \(seed: 0 there, 1 now\)"):
        check_settings(tmp_path / "search/search.json", {"seed": 1})


OPENS = """
import sys
from pathlib import Path
from evalbias.runs.folder import RunFolder
from evalbias.runs.lock import FolderInUse
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


def test_a_second_process_is_refused_by_the_first_ones_id(tmp_path):
    with RunFolder(tmp_path, {}) as folder:
        assert holder(tmp_path) == os.getpid()
        second = opening(tmp_path)
        assert f"Process {os.getpid()} works in {tmp_path}" in second.communicate()[0]
        assert second.returncode == 3
        RunFolder(tmp_path, {}).close()  # the same process may open it twice
        assert holder(tmp_path) == os.getpid()
    assert folder.path == tmp_path
    assert holder(tmp_path) is None
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("patience", [lock.PATIENCE, 0.0])  # 0 as if this process was paused after its first attempt
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, monkeypatch, patience):
    monkeypatch.setattr(lock, "PATIENCE", patience)
    with opening(tmp_path) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(FolderInUse, match=f"Process {first.pid} works in"):
            RunFolder(tmp_path, {})
        with pytest.raises(FolderInUse, match=f"Process {first.pid} works in"):
            delete_run(tmp_path)
        first.kill()
    left = (tmp_path / FILE).read_bytes()
    assert read_run(tmp_path).status == "stopped"
    (tmp_path / FILE).write_bytes(left)  # which the look at the run has removed
    (tmp_path / "run.json").unlink()  # as if it had been killed before it wrote its settings: only the lock is left
    with RunFolder(tmp_path, {}):
        assert holder(tmp_path) == os.getpid()
    delete_run(tmp_path)
    assert not tmp_path.exists()


def test_a_folder_that_holds_something_else_is_not_taken_for_a_run(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"holds files of no run, such as thesis.txt: choose a new folder as --out\."):
        RunFolder(tmp_path, {})
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
