"""The benchmark of a compiler's chances has no calibration where none can be fitted."""

import numpy as np

from benchmarks import choice
from evalbias.optimizers.likelihood_rules import STRENGTHS


def facts(n, agreement, seed=0):
    rng = np.random.default_rng(seed)
    quality, ls = rng.normal(size=(2, n))
    ratings = agreement * quality[:, None] + rng.normal(size=(n, 2))
    return quality, ls, ratings, rng.normal(size=n)


def test_a_fit_needs_raters_who_agree():
    taste = choice.Taste(0.4)
    known, unknown = (choice.judged(taste, *facts(60, agreement)) for agreement in (3.0, 0.0))
    answers, effects = choice.calibrations(known, known, taste)
    assert len(answers) == len(effects) == len(STRENGTHS)
    assert choice.calibrations(known, unknown, taste) == ([], [])


def test_every_procedure_answers_where_there_is_no_calibration():
    chances = [choice.tested(choice.WORLDS[1], 24, np.random.default_rng(seed)) for seed in range(3)]
    assert {len(one) for row in chances for one in row.values()} == {3}
