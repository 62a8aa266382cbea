"""The benchmark of certificates: what it draws, and what it counts."""

import numpy as np
import pytest

from benchmarks import certificates
from evalbias.measures import Draws


def test_draws_have_the_rates_that_they_are_given():
    judge, people = certificates.drawn(np.random.default_rng(0), 40_000, [(0.8, 0.95), (0.9, 0.7), (0.6, 0.9)])
    both = 0.6 * 0.9 * 0.6 + 0.4 * 0.3 * 0.1  # independent given what they deserve
    assert (people[:, 0] * people[:, 1]).mean() == pytest.approx(both, abs=0.01)
    assert judge.mean() == pytest.approx(0.6 * 0.8 + 0.4 * 0.05, abs=0.01)
    copies, people = certificates.drawn(np.random.default_rng(0), 2_000, [(0.8, 0.95), (0.9, 0.7)], copied=1.0)
    assert (copies == people[:, 0]).all()


def test_what_is_counted():
    found = certificates.simulated(150, 0.9, 3, sets=6, draws=Draws(resamples=30))
    assert list(found) == ["tpr", "tnr", "prevalence", "certified", "dependent"]
    assert min(found[name] for name in ("tpr", "tnr", "prevalence")) >= 0.5
    assert max(found["certified"], found["dependent"]) <= 0.5
    copied = certificates.simulated(400, 0.9, 3, sets=3, draws=Draws(resamples=30), copied=0.6)
    assert copied["dependent"] == 1
