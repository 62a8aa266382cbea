"""Tables of self-bias and refine loops fit a terminal of 80 columns; plots are drawn."""

import math
from dataclasses import replace

import numpy as np
from commands import printed
from matplotlib import image

from evalbias.evaluation import (
    LoopScores,
    StyleReport,
    compare,
    compare_loops,
    measure_aspects,
    measure_rounds,
    summarize_loop,
)
from evalbias.evaluation.loops import Loop, LoopRun
from evalbias.evaluation.marks import Plot
from evalbias.measures import measure_self_bias
from evalbias.optimizers.refine import LoopRecord, RefineReport
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import Step
from evalbias.report.plots import write_png
from evalbias.report.sections import sections
from evalbias.report.tables import (
    aspects_table,
    loop_table,
    loops_table,
    pairs_table,
    refine_table,
    self_bias_table,
    style_table,
)

RNG = np.random.default_rng(0)
OWN = -RNG.uniform(0, 5, (11, 100))
EXPECTED = -RNG.uniform(10, 25, (11, 100))


def cells(table):
    text = printed(table, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    return [[c.strip() for c in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_rounds_and_loops_fit():
    loop = summarize_loop("gpt-3.5-turbo__ibo_Latn-en", EXPECTED, OWN, n_resamples=50, seed=0)
    biases = [measurement["bias"].value for measurement in loop.rounds]
    rows = cells(self_bias_table(loop, rounds="iteration"))
    assert [row[0] for row in rows] == [str(k) for k in range(11)]
    assert rows[0][3].startswith(f"{biases[0]:+.2f} (")
    rows = cells(loops_table([loop, loop], rounds="k"))
    assert rows[0][2].startswith(f"{biases[0]:+.2f} -> {biases[-1]:+.2f}")


def test_pairs_of_loops_fit():
    names = ("gpt-3.5-turbo__ibo_Latn-en", "deepseek_moe__ibo_Latn-en", "mistral_moe__ibo_Latn-en")
    items = tuple(map(str, range(100)))
    loops = [LoopScores(name, tuple(range(11)), items, OWN - 10 * k, EXPECTED) for k, name in enumerate(names)]
    pairs = compare_loops(loops, n_resamples=50, seed=0)
    rows = cells(pairs_table(pairs, rounds="iteration"))
    bias = [measure_self_bias(OWN[-1] - 10 * k, EXPECTED[-1]).bias for k in range(3)]
    assert [row[0] for row in rows[:2]] == list(names[:2])
    assert (rows[0][1], rows[1][1]) == ("10", "")
    assert [row[2] for row in rows[:2]] == [f"{value:+.2f}" for value in bias[:2]]
    assert "not corrected for 3 pairs" in " ".join(printed(pairs_table(pairs, rounds="iteration")).split())


def test_small_and_undefined_p_values_of_pairs_are_said():
    (pair,) = compare_loops(
        [LoopScores(name, (0,), tuple("abc"), OWN[:1, :3], EXPECTED[:1, :3]) for name in "xy"], n_resamples=9, seed=0
    )
    for p, shown in ((1e-6, "< 0.0001"), (math.nan, "-"), (0.03, "0.0300")):
        named = pair.comparison.changes.items()
        changes = {name: replace(one, difference=replace(one.difference, p_value=p)) for name, one in named}
        table = pairs_table([replace(pair, comparison=replace(pair.comparison, changes=changes))], rounds="k")
        assert (table.rows[1][3], table.rows[1][5]) == (shown, shown)


def rounds():
    return measure_rounds(OWN / 25 + 1, EXPECTED / 25 + 1, quality=EXPECTED, n_resamples=20, seed=0)


def record(feedback, margin):
    return LoopRecord(feedback, margin, tuple(rounds()), (12345.0,) * 11, (123.0,) * 11, 1, {})


def test_a_compilation_fits_and_is_drawn(tmp_path):
    first, *_, last = (replace(one, cost={"calls": 22.0}) for one in rounds())
    report = RefineReport(
        chosen="3 refinements, 2 demonstrations",
        own=(record("own MQM", 0.0), record("own MQM", 0.1)),
        external=record("InstructScore", 0.0),
        shown=record("own MQM", 0.1),
        iterations=3,
        margin=0.1,
        demonstrations=("a", "b"),
        items=50,
        calls=1100,
        comparison={"self": compare(first, last, n_resamples=20, n_intervals=20, seed=0)},
    )
    rows = cells(refine_table(report))
    assert len(rows) == 11
    assert rows[0][4] == "123.0"
    shown = " ".join(printed(refine_table(report)).split())
    assert "3 refinements at most, accepted when better by more than 10% of the range, 2 demonstrations" in shown
    assert f"Bias {first['bias'].text()} -> {last['bias'].text()}" in shown
    assert "calls an item 22.0 -> 22.0" in shown
    (plot,) = (b for one in sections(report) for b in one.blocks if isinstance(b, Plot) and b.file == "sides")
    assert list(plot.marks[0].series) == ["own feedback (own MQM)", "external feedback (InstructScore)"]
    assert [line[3, 1] for line in plot.marks[0].series.values()] == [rounds()[3]["bias"].value] * 2
    write_png(plot, tmp_path / "sides.png")
    assert image.imread(tmp_path / "sides.png").std() > 0
    alone = replace(
        report,
        own=(record("own", math.nan),),
        shown=None,
        iterations=0,
        margin=math.nan,
        demonstrations=(),
        comparison={},
    )
    assert "50 items, 1100 calls: 0 refinements at most, 0 demonstrations" in " ".join(
        printed(refine_table(alone)).split()
    )


class Short:
    name, low, high = "judge of understandability", 0.0, 5.0

    def __call__(self, example, output):
        return Feedback(float(len(output)), "")


def test_a_loop_its_aspects_and_its_style_fit():
    steps = tuple(Step(k, "x" * (k + 1), -float(k), "", True, "", 1000, 2) for k in range(3))
    run = LoopRun((Loop("a", steps), Loop("b", (), error="down")), "own MQM", -25, 0)
    rows = cells(loop_table(run, [[-3.0, math.nan]] * 3, "sacrebleu chrf"))
    assert rows[2] == ["2", "-2.00", "-3.00", "3000", "1"]
    drawn = loop_table(run, [[-3.0, math.nan]] * 3, "sacrebleu chrf", best_of=4)
    assert [row[0] for row in cells(drawn)] == ["1", "2", "3"]
    assert "1 of 1 items have fewer than 4 different drafts, 3.0 on average" in " ".join(printed(drawn).split())
    aspects = measure_aspects(run, [{"id": "a"}, {"id": "b"}], [Short()], n_resamples=20)
    (row,) = cells(aspects_table(aspects, judge="local/judge"))
    assert row == ["judge of understandability", "+1.00 -> +3.00", "1"]
    first, last = measure_rounds(OWN[:2], EXPECTED[:2], n_resamples=20, seed=0)
    change = compare(first, last, n_resamples=20, n_intervals=20, seed=0)
    rows = cells(style_table(StyleReport(first, last, change, run, {})))
    assert [row[0] for row in rows] == ["as given", "paraphrased"]
