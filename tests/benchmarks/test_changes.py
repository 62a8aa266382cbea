"""Planted and recorded changes of a judge are split as they should be."""

from pathlib import Path

import dspy
import numpy as np
import pytest
from fakes import FormulaLM, numbers
from scipy.special import softmax

import evalbias
from benchmarks import changes


@pytest.fixture(scope="module")
def small():
    names = ("the same judge, anchors .3 sd lower", "stricter with good texts", "the same, three scores of a text")
    return {name: changes.split(changes.WORLDS[name], sets=60, seed=0, resamples=99) for name in names}


@pytest.mark.slow
def test_the_parts_of_planted_changes_are_covered(small):
    for name, parts in small.items():
        for part in parts.values():
            assert part["covered"] >= 0.88, name  # a share of 95 % of 60 sets has a standard error of 2.8 %
            assert part["mean"] == pytest.approx(part["truth"], abs=0.03)
    same, stricter, _ = (parts["judge"] for parts in small.values())
    assert same["found"] <= 0.12
    assert stricter["found"] >= 0.9
    table = changes.drift_table(small)
    assert table.count("\n|") == 4
    assert "| stricter with good texts | 200 | -0.2" in table


def test_a_recorded_change_is_compared_with_what_the_new_judge_gave(snapshot):
    rows = [
        {"id": f"{k}/{s}", "input_id": f"{k}", "output": f"{k} {s}", "system": s, "ratings": {"wit": [s == "b", 1]}}
        | {"judges": {"old": {"wit": 2 + (k + (s == "b")) % 3}, "new": {"wit": 1 + (k + (s == "b")) % 3}}}
        for k in range(40)
        for s in "ab"
    ]
    found = changes.between(rows, "old", "new", "wit", drawn=False)
    assert (found["known"], found["shift"], found["part"]) == (-1, -1, "-1.00")
    assert found["inside"]
    row = {"change": "c", "criterion": "wit", "drawn": False, **found}
    assert changes.recorded_table([row, {**row, "inside": False}]) == snapshot


def test_the_plan_is_of_the_noise():
    assert 130 < changes.planned(np.random.default_rng(0)) < 150


def test_the_difference_by_a_few_labels_covers_and_a_shared_correction_does_not():
    rows = changes.compared("at random", 63, sets=60, seed=0)
    assert rows["compare"]["covered"] >= 0.88
    assert rows["shared"]["covered"] < 0.7
    assert rows["compare"]["width"] < min(0.85 * rows["labels alone"]["width"], 0.6 * rows["gain"]["width"])


def test_a_judge_is_compared_with_itself_in_other_weights(monkeypatch):
    class Weights(FormulaLM):
        """Gives a point less with the new file, and with an adapter the same as with the old one."""

        def __init__(self, file, *, adapter, dtype):
            super().__init__()
            self.less, self.model = float("new" in file and adapter is None), f"{file}-{adapter}"

        def _row(self, prompt, choices):
            quality = numbers(prompt[-1]["content"])[0] - self.less
            return list(np.log(softmax([-9 * (float(c) - quality) ** 2 for c in choices])))

    rows = [
        {"id": f"{k}/{s}", "input_id": f"{k}", "source": f"s{k}", "output": f"q={3 + k % 2 + b} z={k}", "system": s}
        for k in range(60)
        for b, s in enumerate("ab")
    ]
    items = [dspy.Example(row, scores={"fluency": 3.0 + n % 2}) for n, row in enumerate(rows)]
    monkeypatch.setattr(changes, "usable", lambda *given, **how: items)
    monkeypatch.setattr(changes, "models_folder", lambda: Path("models"))
    monkeypatch.setattr(evalbias, "LocalLM", Weights, raising=False)
    rows = changes.quantized("new.Q4_0.gguf", inputs=40)
    names = [row["change"].removesuffix(", Q4_1 to Q4_0 (WebNLG)") for row in rows[::2]]
    assert names == ["SmolLM2", changes.TUNED]
    assert [row["known"] for row in rows] == [pytest.approx(-1, abs=1e-3)] * 2 + [0, 0]
    assert all(row["inside"] for row in rows[2:])
    assert [row["part"] for row in rows[:2]] == ["-1.00", "-1.00"]
