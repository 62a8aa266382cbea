"""The table of real judges: what is drawn, and what is counted."""

import dspy

from benchmarks.mitigation import drawn, lines, report
from evalbias.optimizers.likelihood_rules import AGREEMENT, PERFORMANCE


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
    estimates = {"likelihood_effect": whole, "bias_score": whole, AGREEMENT: rho, PERFORMANCE: rho}
    return {"estimates": estimates, "p_smaller": 0.001, "p_agrees": p_agrees, "loss": loss, "undefined": 0}


def row(chosen, with_loss=None, **forms):
    return {
        "judge": "J",
        "set": "tmu-gfm",
        "criterion": "fluency",
        "k": 4,
        "seed": 0,
        "chosen": chosen,
        "chosen_with_loss": with_loss or chosen,
        "paper": "paper",
        "tried": {"given": tried(0.4, 0.5), "paper": tried(-0.3, 0.2, "loses agreement (0.50 -> 0.20)"), **forms},
        "alone": {"likelihood alone": {"value": 0.6, "low": 0.5, "high": 0.7, "n": 90}},
        "against_baselines": "The judge is not significantly better than likelihood alone: no gain is shown.",
        "inputs": {"train": 40, "test": 30},
        "items": {"train": 120, "test": 90},
        "lm": {"model": "m", "dtype": "float32"},
    }


def test_the_summary_counts_what_a_compiled_judge_keeps_and_loses():
    half = row("likelihood calibration", **{"likelihood calibration": tried(0.2, 0.5)})
    lost = tried(0.3, 0.3, "loses agreement (0.50 -> 0.30)")
    less = row("random", "half", half=tried(0.1, 0.45, p_agrees=0.01), random=lost)
    text = report([half, less, row("given"), {"judge": "J", "set": "summeval", "why_not": "14 inputs"}])
    compiled, with_loss = (line for line in text.splitlines() if line.startswith("- Compiled"))
    assert compiled == (
        "- Compiled: the given judge was kept in 1 of 3 rows. In the other 2, the bias was at least halved in 1, and "
        "agreement was gained significantly in 0 and lost significantly in 1: J on tmu-gfm fluency."
    )
    assert with_loss.endswith("halved in 2, and agreement was gained significantly in 1 and lost significantly in 0.")
    assert lines(less)[3][2:4] == ["with loss: half", "+0.10 [+0.00, +0.20]"]
    assert "The paper's method loses agreement significantly in 3 of 3 rows." in text
    # beside |-.3| and .2: the calibration's .2 and .5, and .3 and .3 of the compiled random demonstrations
    assert "In 2 of 3 rows, the given judge, one of its calibrated forms or the compiled judge" in text
    assert "In 3 of 3 rows, the judge does not agree" in text
    assert "J on summeval was not run: 14 inputs." in text
    title = "tmu-gfm, fluency (90 outputs of 30 inputs)"
    shown = lines(half)
    assert shown[0] == ["J", title, "given", "+0.40 [+0.30, +0.50]", "+0.40", *["+0.50 [+0.40, +0.60]"] * 2, ""]
    assert shown[2][2:4] == ["compiled: likelihood calibration", "+0.20 [+0.10, +0.30]"]
    assert shown[2][-1] == "less biased p = 0.0010, agrees better p = 0.5000; no loss"
    assert shown[3][2:] == ["likelihood alone", "", "", "", "+0.60 [+0.50, +0.70]", ""]
