"""Tables of self-bias and refine loops fit a terminal of 80 columns; plots are drawn."""

import math

import numpy as np
from commands import printed
from matplotlib import image

from evalbias.evaluation import Aspect, StyleReport, summarize_loop
from evalbias.evaluation.loops import Loop, LoopRun
from evalbias.measures import MeanStatistic, SelfBias, paired_permutation_test, trajectory
from evalbias.optimizers.refine_report import LoopEnd, LoopRecord, RefineReport, Validation
from evalbias.programs.refine_step import Step
from evalbias.report.refine import aspects_table, loop_table, refine_table, sides_plot, style_table
from evalbias.report.self_bias import loops_table, self_bias_table

RNG = np.random.default_rng(0)
OWN = -RNG.uniform(0, 5, (11, 100))
WORTH = -RNG.uniform(10, 25, (11, 100))
TEST = paired_permutation_test(MeanStatistic(100), OWN[0], OWN[1], n_resamples=20, seed=0)


def cells(table):
    text = printed(table, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    return [[c.strip() for c in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_rounds_and_loops_fit():
    found = summarize_loop("gpt-3.5-turbo__ibo_Latn-en", WORTH, OWN, n_resamples=50, seed=0)
    rows = cells(self_bias_table(found, rounds="iteration"))
    assert [row[0] for row in rows] == [str(k) for k in range(11)]
    assert rows[0][3].startswith(f"{found.rounds[0].found.bias:+.2f} (")
    rows = cells(loops_table([found, found], rounds="k"))
    assert rows[0][2].startswith(f"{found.rounds[0].found.bias:+.2f} -> {found.rounds[-1].found.bias:+.2f}")


def record(feedback, margin):
    steps = tuple(trajectory(OWN / 25 + 1, WORTH / 25 + 1, n_resamples=20, seed=0))
    each = tuple(WORTH.mean(axis=1))
    return LoopRecord(feedback, margin, each, each, (12345.0,) * 11, (123.0,) * 11, steps, 1, {})


def test_a_compilation_fits_and_is_drawn(tmp_path):
    end = LoopEnd(-17.0, SelfBias(0.5, 0.4, 0.9, 0.4, 50, 0), 12345.0, 22.0, {})
    report = RefineReport(
        (record("own MQM", 0.0), record("own MQM", 0.1)),
        record("InstructScore", 0.0),
        record("own MQM", 0.1),
        3,
        0.1,
        ("a", "b"),
        50,
        1100,
        Validation(end, end, TEST),
    )
    rows = cells(refine_table(report))
    assert len(rows) == 11
    assert rows[0][4] == "123.0"
    shown = " ".join(printed(refine_table(report)).split())
    assert "3 refinements at most, accepted when better by more than 10% of the range, 2 demonstrations" in shown
    assert "Bias +0.50 -> +0.50" in shown
    sides_plot(report, tmp_path / "sides.png")
    assert image.imread(tmp_path / "sides.png").std() > 0
    alone = RefineReport((record("own", math.nan),), record("x", 0.0), None, 0, math.nan, (), 5, 9, None)
    assert "5 items, 9 calls: 0 refinements at most, 0 demonstrations" in " ".join(printed(refine_table(alone)).split())


def test_a_loop_its_aspects_and_its_style_fit():
    steps = tuple(Step(k, "x", -float(k), "", True, "", 1000, 2) for k in range(3))
    run = LoopRun((Loop("a", steps), Loop("b", (), error="down")), "own MQM", -25, 0)
    rows = cells(loop_table(run, [[-3.0, math.nan]] * 3, "sacrebleu chrf"))
    assert rows[2] == ["2", "-2.00", "-3.00", "3000", "1"]
    (interval,) = {s.bias_interval for s in trajectory(OWN[:1], WORTH[:1], n_resamples=20, seed=0)}
    (row,) = cells(aspects_table([Aspect("judge of understandability", (1.0, 2.0), (interval,) * 2, TEST, 3)]))
    assert row[:2] == ["judge of understandability", "+1.00"]
    first, last = trajectory(OWN[:2], WORTH[:2], n_resamples=20, seed=0)
    rows = cells(style_table(StyleReport(first, last, TEST, TEST, OWN[:2], WORTH[:2], run, {})))
    assert [row[0] for row in rows] == ["as it is", "paraphrased"]
