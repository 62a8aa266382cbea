"""Planted and recorded changes of a judge are split as they should be."""

import numpy as np
import pytest

from benchmarks.changes import (
    GAINS,
    WORLDS,
    between,
    drift_table,
    gain_table,
    gained,
    planned,
    recorded_table,
    split,
    watched,
)


@pytest.fixture(scope="module")
def small():
    names = ("the same judge, anchors .3 sd lower", "stricter with good texts", "the same, three scores of a text")
    return {name: split(WORLDS[name], sets=60, seed=0, resamples=99) for name in names}


@pytest.mark.slow
def test_the_parts_of_planted_changes_are_covered(small):
    for name, parts in small.items():
        for part in parts.values():
            assert part["covered"] >= 0.88, name  # a share of 95 % of 60 sets has a standard error of 2.8 %
            assert part["mean"] == pytest.approx(part["truth"], abs=0.03)
    same, stricter, _ = (parts["judge"] for parts in small.values())
    assert same["found"] <= 0.12
    assert stricter["found"] >= 0.9
    table = drift_table(small)
    assert table.count("\n|") == 4
    assert "| stricter with good texts | 200 | -0.2" in table


@pytest.mark.slow
def test_a_watch_is_quiet_until_the_judge_changes():
    share, median = watched(0.0, 0, 60, 0, sets=20, seed=0)
    assert share == 0
    assert np.isnan(median)
    share, median = watched(0.4, 0, 20, 0, sets=20, seed=0)
    assert share == 1
    assert median < 6
    (once, late), (again, soon) = (watched(0.4, 30, 60, every, sets=10, seed=0) for every in (0, 30))
    assert again == 1 >= once
    assert 30 <= soon < 36 < late


def test_a_recorded_change_is_compared_with_what_the_new_judge_gave():
    rows = [
        {"id": f"{k}/{s}", "input_id": f"{k}", "output": f"{k} {s}", "system": s, "ratings": {"wit": [s == "b", 1]}}
        | {"judges": {"old": {"wit": 2 + (k + (s == "b")) % 3}, "new": {"wit": 1 + (k + (s == "b")) % 3}}}
        for k in range(40)
        for s in "ab"
    ]
    found = between(rows, "old", "new", "wit", drawn=False)
    assert (found["known"], found["shift"], found["part"]) == (-1, -1, "-1.00")
    assert found["inside"]
    row = {"change": "c", "criterion": "wit", "drawn": False, **found}
    table = recorded_table([row, {**row, "inside": False}])
    assert "in 1 of 1 intervals with anchors by all systems, and in 0 with" in table
    assert "| **-1.00, -1.00 to -1.00** (-1.00) |" in table


def test_the_plan_is_of_the_noise():
    assert 130 < planned(np.random.default_rng(0)) < 150


@pytest.mark.slow
def test_the_parts_of_planted_gains_are_covered():
    rows = {name: gained(*gains, sets=40, seed=0) for name, gains in GAINS.items()}
    for name, parts in rows.items():
        for part in parts.values():
            assert part["covered"] >= 0.85, name  # a share of 95 % of 40 sets has a standard error of 3.4 %
            assert part["mean"] == pytest.approx(part["truth"], abs=0.05), name
    table = gain_table(rows)
    assert "| quality and length, other items rated | +0.15, +0." in table
    assert "| in the rest |" in table
