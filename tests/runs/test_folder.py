"""Run folders: what they hold, and that nothing in them is half written."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from evalbias.runs.folder import RunFolder, plain


@dataclass(frozen=True)
class Found:
    value: float
    rows: np.ndarray


def test_undefined_is_null_and_everything_else_survives():
    told = plain({"a": Found(math.nan, np.array([1.0, math.inf])), 2: (np.int64(3), "x", None, True)})
    assert told == {"a": {"value": None, "rows": [1.0, None]}, "2": [3, "x", None, True]}
    json.dumps(told, allow_nan=False)


def test_a_run_goes_on_with_the_same_settings_only(tmp_path):
    folder = RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)})
    before = (tmp_path / "run/run.json").stat().st_mtime_ns
    RunFolder(tmp_path / "run", {"seed": 0, "scale": (1, 5)})
    assert (tmp_path / "run/run.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"other settings \(seed: 0 there, 1 now\)"):
        RunFolder(tmp_path / "run", {"seed": 1, "scale": (1, 5)})
    folder.write_result({"x": math.nan})
    assert json.loads((tmp_path / "run/result.json").read_text()) == {"x": None}
    assert {f.name for f in (tmp_path / "run").iterdir()} == {"run.json", "result.json"}


def test_any_criterion_has_a_file_name(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    assert folder.file("judge", "clarity/brevity in 2", ".json").name == "judge-clarity-brevity-in-2.json"
