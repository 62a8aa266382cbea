import math
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

from evalbias.data import world


def test_the_same_seed_gives_the_same_items_in_a_fresh_process():
    code = "from evalbias.data import world; print([e.toDict() for e in world.examples(5, seed=3)])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == str([e.toDict() for e in world.examples(5, seed=3)])
    assert told != str([e.toDict() for e in world.examples(5, seed=4)])


def test_quality_and_commonness_are_independent_and_standardised():
    rng = random.Random(0)
    drawn = [world.item(rng) for _ in range(4000)]
    quality, common = [d.quality for d in drawn], [d.commonness for d in drawn]
    assert abs(spearmanr(quality, common).statistic) < 0.05
    assert np.mean(common) == pytest.approx(0, abs=0.05)
    assert np.std(common) == pytest.approx(1, abs=0.05)
    assert {e for d in drawn for e in d.errors} == {"", "omission", "wrong object", "disfluency"}
    assert {d.quality for d in drawn} == {1 + 4 * half / 6 for half in range(7)}


def test_quality_counts_a_broken_sentence_half():
    rng = random.Random(1)
    for _ in range(200):
        drawn = world.item(rng)
        points = drawn.errors.count("") + drawn.errors.count("disfluency") / 2
        assert drawn.quality == pytest.approx(1 + 4 * points / 3)


def test_label_probabilities_are_those_of_a_rounded_rating():
    rng = random.Random(2)
    drawn = world.item(rng)
    told = world.label_probabilities(drawn, taste=1.0)
    assert sum(told) == pytest.approx(1)
    labels = [math.floor(world.rating(rng, drawn, taste=1.0) + 0.5) for _ in range(20000)]
    assert [labels.count(v) / 20000 for v in range(1, 6)] == pytest.approx(told, abs=0.015)
