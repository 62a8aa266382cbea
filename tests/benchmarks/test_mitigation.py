"""The table of real judges: what is drawn, and what is counted."""

import dspy
import numpy as np

from benchmarks import choice
from benchmarks.mitigation import drawn, report
from evalbias.optimizers.correction import STRENGTHS


def items(inputs, outputs):
    return [
        dspy.Example(id=f"{i}-{k}", input_id=str(i), source=f"s{i}", output=f"o{k}")
        for i in range(inputs)
        for k in range(outputs)
    ]


def test_training_and_test_items_share_no_input_and_are_spread_over_the_inputs():
    train, test = drawn(items(40, 6), 60, 30, 0)
    sides = [{e.input_id for e in part} for part in (train, test)]
    assert (len(train), len(test)) == (60, 30)
    assert sides[0].isdisjoint(sides[1])
    assert [len(side) for side in sides] == [27, 13]  # 40 * 60 / 90 inputs to train on, each with 2 or 3 outputs
    assert drawn(items(40, 6), 60, 30, 0)[1] == test
    assert drawn(items(40, 6), 60, 30, 1)[1] != test


def tried(effect, performance, loss="", p_agrees=0.5):
    whole = {"value": effect, "low": effect - 0.1, "high": effect + 0.1, "n": 90}
    rho = {"value": performance, "low": performance - 0.1, "high": performance + 0.1, "n": 90}
    estimates = {"likelihood_effect": whole, "bias_score": whole, "pearson": rho, "performance": rho}
    return {"estimates": estimates, "p_smaller": 0.001, "p_agrees": p_agrees, "loss": loss, "undefined": 0}


def row(chosen, with_loss=None, **forms):
    asked = {"judge": "J", "set": "tmu-gfm", "criterion": "fluency", "k": 4, "seed": 0, "paper": "paper"}
    return asked | {
        "chosen": chosen,
        "chosen_with_loss": with_loss or chosen,
        "tried": {"given": tried(0.4, 0.5), "paper": tried(-0.3, 0.2, "loses agreement (0.50 -> 0.20)"), **forms},
        "alone": {"likelihood alone": {"value": 0.6, "low": 0.5, "high": 0.7, "n": 90}},
        "against_baselines": "The judge is not significantly better than likelihood alone: no gain is shown.",
        "inputs": {"train": 40, "test": 30},
        "items": {"train": 120, "test": 90},
        "lm": {"model": "m", "dtype": "float32"},
    }


def test_the_summary_counts_what_a_compiled_judge_keeps_and_loses(snapshot):
    half = row("likelihood calibration", **{"likelihood calibration": tried(0.2, 0.5)})
    lost = tried(0.3, 0.3, "loses agreement (0.50 -> 0.30)")
    less = row("random", "half", half=tried(0.1, 0.45, p_agrees=0.01), random=lost)
    # the calibration takes the bias from .4 to .2, and the paper's method ends at |-.3| with an agreement of .2
    assert report([half, less, row("given"), {"judge": "J", "set": "summeval", "why_not": "14 inputs"}]) == snapshot


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
