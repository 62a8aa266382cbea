"""The search of settings, drawn by the seed and by what was measured."""

import subprocess
import sys

import pytest

from evalbias.optimizers.race import search_settings

SPACE = {"wording": ["plain", "kind", "terse", "long"], "shots": list(range(8)), "debias": [None, "permutation"]}
BEST = {"wording": "terse", "shots": 5, "debias": None}


def found(trials, seed):
    """Return the settings that were tried; their value is highest, 0, at ``BEST``."""
    tried = []

    def closeness(settings):
        tried.append(settings)
        return -abs(settings["shots"] - 5) - 3 * (settings["wording"] != "terse") - (settings["debias"] is not None)

    search_settings(SPACE, closeness, trials=trials, seed=seed)
    return tried


@pytest.mark.slow
def test_the_search_ends_with_its_trials_and_finds_the_best_of_64_settings():
    # 40 random ones hold it with a probability of .47, all four times with .05. Of the seeds 0 to 19, optuna 3.6 to 4.9
    # find it with all but 1, 17 and 18, and optuna 5 with all.
    for seed in range(2, 6):
        trials = found(40, seed)
        assert len(trials) == 40
        assert BEST in trials


@pytest.mark.slow
def test_the_seed_decides_also_in_a_fresh_process():
    code = "import runpy, sys\nprint(runpy.run_path(sys.argv[1])['found'](12, 3))"
    process = subprocess.run([sys.executable, "-c", code, __file__], stdout=subprocess.PIPE, text=True, check=True)
    assert process.stdout == f"{found(12, 3)}\n"
    assert found(12, 3) != found(12, 4)
