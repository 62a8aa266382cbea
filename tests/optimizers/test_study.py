"""The search of settings: drawn by the seed, resumed without repeating anything, and shared by processes."""

import math
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from evalbias.optimizers.study import search_settings

SPACE = {"wording": ["plain", "kind", "terse", "long"], "shots": list(range(8)), "debias": [None, "permutation"]}
BEST = {"wording": "terse", "shots": 5, "debias": None}


def closeness(settings):
    """Return a value that is highest, 0, at ``BEST``."""
    return [-abs(settings["shots"] - 5) - 3 * (settings["wording"] != "terse") - (settings["debias"] is not None)]


def found(trials=30, seed=0, measure=closeness, **options):
    return search_settings(SPACE, measure, trials=trials, seed=seed, **options)


def test_the_search_ends_with_its_trials_and_finds_the_best_of_64_settings():
    # 40 random ones hold it with a probability of .47, all four times with .05. Of the seeds 0 to 19, optuna 3.6 to 4.9
    # find it with all but 1, 17 and 18, and optuna 5 with all.
    for seed in range(2, 6):
        trials = found(40, seed)
        assert [one.number for one in trials] == list(range(40))
        assert [one.values for one in trials] == [tuple(closeness(one.settings)) for one in trials]
        assert max(trials, key=lambda one: one.values).settings == BEST


CODE = (
    "import runpy, sys\n"
    "found = runpy.run_path(sys.argv[1])['found']\n"
    "print([(one.settings, one.values) for one in found(trials=12, seed=3, storage=(sys.argv[2:] or [None])[0])])"
)


def process(*arguments):
    return subprocess.Popen([sys.executable, "-c", CODE, __file__, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_seed_decides_also_in_a_fresh_process():
    mine = [(one.settings, one.values) for one in found(trials=12, seed=3)]
    assert process().communicate()[0] == f"{mine}\n"
    assert mine != [(one.settings, one.values) for one in found(trials=12, seed=4)]


@pytest.mark.parametrize("dies", [pytest.param(5, marks=pytest.mark.slow), 12])  # ten are drawn at random first
def test_a_search_that_was_stopped_in_a_trial_continues_as_if_it_had_not_been(tmp_path, dies):
    storage, asked = f"sqlite:///{tmp_path}/study.db", []

    def measured(settings):
        asked.append(settings)
        if len(asked) == dies:
            raise KeyboardInterrupt
        return closeness(settings)

    with pytest.raises(KeyboardInterrupt):
        found(trials=13, measure=measured, storage=storage)
    resumed = found(trials=13, measure=measured, storage=storage)
    assert len(asked) == 14  # the one in which it was stopped is measured again, and no other
    assert asked[dies - 1] == asked[dies]
    assert [(one.settings, one.values) for one in resumed] == [(one.settings, one.values) for one in found(trials=13)]


def test_a_trial_with_an_undefined_value_fails_and_is_counted():
    def half(settings):
        return [math.nan if settings["debias"] else 1.0, settings["shots"]]

    trials = found(measure=half, directions=["maximize", "minimize"], trials=10)
    failed = [one for one in trials if math.isnan(one.values[0])]
    assert len(trials) == 10 + len(failed)
    assert failed
    assert {one.settings["debias"] for one in failed} == {"permutation"}
    never = found(measure=lambda settings: [math.nan], trials=6)
    assert [math.isnan(one.values[0]) for one in never] == [True] * 6


@pytest.mark.slow
def test_a_study_is_of_one_identity_one_space_and_one_seed(tmp_path):
    storage, asked = f"sqlite:///{tmp_path}/study.db", []

    def counted(settings):
        asked.append(settings)
        return [1.0]

    for options in ({}, {"identity": "another model"}, {"seed": 1}, {}):
        found(trials=3, measure=counted, storage=storage, **options)
    search_settings({"shots": [1, 2]}, counted, trials=3, seed=0, storage=storage)
    assert len(asked) == 4 * 3


@pytest.mark.slow
def test_processes_share_a_study(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    others = [process(storage) for _ in range(2)]
    assert all(one.communicate()[0].startswith("[(") for one in others)
    asked = []
    trials = found(trials=12, seed=3, measure=lambda settings: asked.append(settings) or [0.0], storage=storage)
    assert 12 <= len(trials) <= 13  # two that ran at the same time may both have begun the last
    assert not asked


@pytest.mark.slow
def test_a_process_that_is_paused_while_it_writes_is_waited_for(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    found(trials=2, storage=storage)
    with closing(sqlite3.connect(tmp_path / "study.db", check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        paused = threading.Timer(6, other.rollback)  # SQLite itself gives up after 5 seconds
        paused.start()
        try:
            trials = found(trials=4, storage=storage)
        finally:
            paused.join()
    assert len(trials) == 4
