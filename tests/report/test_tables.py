"""Tables, as a user sees them in a terminal of 80 columns; and the plots of searches and compilations."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import printed
from fakes import PARTS, FormulaLM, Wording, items, rated
from matplotlib import image
from planted import scored

from evalbias import data
from evalbias.evaluation import (
    LoopScores,
    compare,
    compare_loops,
    compare_with_baselines,
    judge_examples,
    measure,
    measure_rounds,
    summarize_loop,
)
from evalbias.evaluation.bias import Plot
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.loops import Loop, LoopRun
from evalbias.evaluation.words import coverage_warning, mark
from evalbias.optimizers.objectives import DebiasedFairness
from evalbias.optimizers.proposers import GrammarParaphraser
from evalbias.optimizers.refine import LoopRecord, RefineReport
from evalbias.optimizers.zepo import ZEPO
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.loops import Step
from evalbias.report.page import sections
from evalbias.report.plots import history, write_png
from evalbias.report.tables import (
    headlines_table,
    loop_table,
    loops_table,
    mitigation_table,
    refine_table,
    rows_table,
    search_table,
    self_bias_table,
)
from evalbias.values import to_json

C = Criterion("quality", "is it good?")


def cells(table, name=None, *, width=None):
    """Return the cells of a printed table, or of its row of a name."""
    text = printed(table) if width is None else printed(table, width=width)
    if width is not None:
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return rows if name is None else next(row for row in rows if any(name in cell for cell in row))


def said(table):
    return " ".join(printed(table).split())


# --- measurements and comparisons ---


@pytest.fixture(scope="module")
def judged():
    models = [FormulaLM(bias=b) for b in (1.0, 0.1)]
    return [judge_examples(PointwiseJudge(C), items(80, 3), lm=lm, likelihood_lm="own") for lm in models]


def test_a_measurement_says_what_is_undefined():
    examples = items(10, 3)
    for place, e in enumerate(examples):
        e.scores["quality"] = math.nan if place < 3 else 3.0
    one = judge_examples(PointwiseJudge(C), examples, lm=FormulaLM(), likelihood_lm="own")
    measurement = measure(Likelihood(), one, seed=0)
    table = headlines_table({"wit": measurement})
    assert cells(table, "wit") == ["wit", "effect of likelihood", "undefined", "undefined", "7", "3"]
    assert cells(table, "performance") == ["", "performance", "undefined", "undefined", "7", "3"]
    assert measurement.undefined == {"human_scores": 3}
    assert "undefined human scores: 3" in said(measurement.table())


def test_the_table_of_a_mitigation_says_why_a_number_is_undefined():
    before = scored(np.random.default_rng(0), 60)
    report = SimpleNamespace(before=before, paper=None, after=replace(before, answers=np.full(60, 3.0)), baselines={})
    table = mitigation_table({"quality": report}, seed=0)
    compiled = cells(table, "compiled")
    assert compiled.count("undefined") >= 2
    assert not any("[undefined" in cell for cell in compiled)
    assert "is undefined: all items have the same score" in said(table)
    report.after = before
    assert "is undefined" not in said(mitigation_table({"quality": report}, seed=0))


def test_a_measurement_as_a_table_as_json_and_in_a_notebook(judged):
    measurement = measure(Likelihood(), judged[0], seed=0)
    bias, effect = measurement["bias_score"], measurement["likelihood_effect"]
    assert bias.low < bias.value < bias.high
    assert math.isnan(effect.value)  # one rating an item
    assert effect.low < effect.high
    interval = f"{effect.low:+.2f} to {effect.high:+.2f}"
    table = headlines_table({"quality": measurement})
    assert cells(table, "quality") == ["quality", "effect of likelihood", "undefined", interval, "80"]
    assert cells(table, "BiasScore") == ["", "BiasScore", f"{bias.value:+.2f}", bias.interval, "80"]
    content = json.loads(json.dumps(to_json(measurement), allow_nan=False))
    assert content["estimates"]["bias_score"]["value"] == bias.value
    assert len(content["items"]["likelihoods"]) == len(content["items"]["id"]) == 80
    assert "items" not in measurement.to_dict(items=False)
    page = measurement._repr_html_()
    assert re.search(rf">BiasScore<.*?<td>{re.escape(f'{bias.value:+.2f}')}</td>", page)
    assert "<svg" in page


def test_a_comparison_carries_the_papers_signs(judged):
    change = compare(*(measure(Likelihood(), one, seed=0, n_resamples=99) for one in judged), n_resamples=99, seed=0)
    table = headlines_table({"quality": change})
    bias, performance = change["bias_score"], change["performance"]
    assert cells(table, "quality") == ["quality", "effect of likelihood", "undefined -> undefined", "", "80"]
    row = cells(table, "BiasScore")
    assert row[2] == f"{bias.before.value:+.2f} -> {bias.after.value:+.2f}*"
    assert row[3:] == [f"{bias.p_value:.5f}", "80"]
    assert cells(table, "performance")[2] == f"{performance.before.value:+.2f} -> {performance.after.value:+.2f}*"
    assert [mark(p) for p in (0.049, 0.05, 0.059, 0.06, math.nan)] == ["*", "†", "†", "", ""]
    assert cells(change.table(), "BiasScore")[1:3] == row[2].rstrip("*").split(" -> ")
    assert f"<td>{bias.before.value:+.2f}</td><td>{bias.after.value:+.2f}</td>" in change._repr_html_()


def test_a_judge_that_hardly_answers_is_warned_of():
    one = coverage_warning({"wit": [0.004, 0.006, math.nan], "style": [0.9]})
    assert one.startswith("Do not rely on this judge's answers on wit: its model")
    assert "(median probability 0.5 %)" in one
    both = coverage_warning({"wit": [0.0], "style": [0.05]})
    assert both.startswith("Do not rely on this judge: ")
    assert "(median probability less than 0.1 % and 5 %)" in both
    assert coverage_warning({"wit": [math.nan], "style": [0.9], "tone": []}) == ""


# --- a fairness search ---


@pytest.fixture(scope="module")
def searched():
    train, test = data.split(rated(documents=24), seed=0, by="input", test_fraction=0.5)
    judge, lm = PairwiseJudge(C), Wording(first=6.5)
    zepo = ZEPO(GrammarParaphraser(PARTS), epochs=2, select=False)
    compiled = zepo.compile(judge, trainset=data.pairs(train, limit=100, seed=0), lm=lm)
    return compiled, compare_with_baselines(judge, compiled, test, lm=lm, limit=60, n_resamples=999)


def test_four_judges_and_what_the_search_took(searched):
    compiled, rows = searched
    table = rows_table(rows, compiled.report)
    shown = {label: values for label, *values in cells(table)}
    for place, row in enumerate(rows.values()):
        position, agreement = row.measurements["position"], row.measurements["agreement"]
        assert shown["first"][place] == f"{position['first_rate'].value:.2f}"
        assert shown["consistent"][place] == f"{position['position_consistency'].value:.2f}"
        assert shown["longer"][place] == f"{row.measurements['verbosity']['longer_rate'].value:.2f}"
        assert shown["Spearman"][place].rstrip("*†") == f"{agreement['spearman'].value:+.2f}"
    spent, saved = compiled.report.judgments, compiled.report.saved
    remark = f"{spent} judgments ({saved / (spent + saved):.0%} saved by racing in rounds up to 25, 50, 100 pairs)"
    assert remark in said(table)
    assert compiled.report.chosen in said(table)
    assert "searched on 100 of 360 ordered pairs" in said(rows_table(rows, compiled.report, pairs=(100, 360)))
    debiased = replace(compiled.report, objective=DebiasedFairness.name)
    assert "searched on 100 of 180 pairs;" in said(rows_table(rows, debiased, pairs=(100, 180)))
    turned = replace(compiled.report, rejected=(("empty", ""), ("known already", "x"), ("empty", " ")))
    assert "3 were turned down: 2 empty, 1 known already." in said(search_table(turned))


def test_what_a_table_cannot_show_is_said(searched):
    compiled, rows = searched
    few, bare = {}, {}
    for name, row in rows.items():
        agreement = row.measurements["agreement"]
        spearman = replace(agreement["spearman"], n=4, undefined=2)
        agreement = replace(agreement, estimates={**agreement.estimates, "spearman": spearman})
        few[name] = replace(row, measurements={**row.measurements, "agreement": agreement})
        bare[name] = replace(row, measurements={k: m for k, m in row.measurements.items() if k != "agreement"})
    assert "too few documents for a significant difference" in said(rows_table(few, compiled.report))
    assert "2 documents without a correlation" in said(rows_table(few, compiled.report))
    assert "Spearman" not in said(rows_table(bare, compiled.report))


def test_a_search_is_drawn_by_epoch(searched):
    report = searched[0].report
    (dots,) = history(report).marks
    most = max(one.examples for one in report.tried)
    whole = [(t.epoch, t.objective) for t in report.tried if t.examples == most]
    assert [*zip(*dots.points["instruction"], strict=True)] == whole
    assert sum(len(x) for x, _ in dots.points.values()) == len(report.tried)
    assert dots.line[:, 0].tolist() == [0, 1, 1, 2, 2][: 2 * len(report.history) - 1]  # a step an epoch
    assert dots.line[::2, 1].tolist() == list(report.history)


# --- self-bias and refine loops ---

RNG = np.random.default_rng(0)
OWN = -RNG.uniform(0, 5, (11, 100))
EXPECTED = -RNG.uniform(10, 25, (11, 100))
DRAWS = {"n_resamples": 20, "seed": 0}


def test_rounds_and_loops_fit():
    loop = summarize_loop("gpt-3.5-turbo__ibo_Latn-en", EXPECTED, OWN, **DRAWS)
    biases = [measurement["bias"].value for measurement in loop.rounds]
    rows = cells(self_bias_table(loop, rounds="iteration"), width=80)
    assert [row[0] for row in rows] == [str(k) for k in range(11)]
    assert rows[0][3].startswith(f"{biases[0]:+.2f} (")
    rows = cells(loops_table([loop, loop], rounds="k"), width=80)
    assert rows[0][2].startswith(f"{biases[0]:+.2f} -> {biases[-1]:+.2f}")


def test_pairs_of_loops_fit():
    names, ids = [f"{model}__ibo_Latn-en" for model in ("gpt-3.5-turbo", "deepseek_moe", "mistral_moe")], range(100)
    loops = [
        LoopScores(name, tuple(range(11)), tuple(map(str, ids)), OWN - 10 * k, EXPECTED) for k, name in enumerate(names)
    ]
    pairs = compare_loops(loops, **DRAWS)
    between = {f"{p.first} -> {p.second}, k {p.number}": p.comparison for p in pairs}
    table = headlines_table(between, of="loops", title="Between loops", note="two-sided, not corrected for 3 pairs")
    shown = cells(table, width=80)
    bias = [np.nanmean(OWN[-1] - 10 * k - EXPECTED[-1]) for k in range(2)]
    change = f"{bias[0]:+.2f} -> {bias[1]:+.2f}*"
    assert any(row[1:3] == ["Bias", change] for row in shown)
    assert shown[0][0].startswith("gpt-3.5-turbo")
    assert "Between loops" in said(table)
    assert "(paired test); two-sided, not corrected for 3 pairs" in said(table)


def test_a_compilation_fits_and_is_drawn(tmp_path):
    rounds = measure_rounds(OWN / 25 + 1, EXPECTED / 25 + 1, quality=EXPECTED, **DRAWS)

    def record(feedback, margin):
        return LoopRecord(feedback, margin, tuple(rounds), (12345.0,) * 11, (123.0,) * 11, {})

    first, *_, last = (replace(one, cost={"calls": 22.0}) for one in rounds)
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
        comparison={"self": compare(first, last, n_intervals=20, **DRAWS)},
    )
    rows = cells(refine_table(report), width=80)
    assert len(rows) == 11
    assert rows[0][4] == "123.0"
    shown = said(refine_table(report))
    assert "3 refinements at most, accepted when better by more than 10% of the range, 2 demonstrations" in shown
    assert f"Bias {first['bias'].text()} -> {last['bias'].text()}" in shown
    assert "calls an item 22.0 -> 22.0" in shown
    (plot,) = (
        b for one in sections(report) for b in one.blocks if isinstance(b, Plot) and b.title.startswith("The bias")
    )
    assert list(plot.marks[0].series) == ["own feedback (own MQM)", "external feedback (InstructScore)"]
    assert [line[3, 1] for line in plot.marks[0].series.values()] == [rounds[3]["bias"].value] * 2
    write_png(plot, tmp_path / "sides.png")
    assert image.imread(tmp_path / "sides.png").std() > 0
    nothing = {"shown": None, "iterations": 0, "margin": math.nan, "demonstrations": (), "comparison": {}}
    alone = replace(report, own=(record("own", math.nan),), **nothing)
    assert "50 items, 1100 calls: 0 refinements at most, 0 demonstrations" in said(refine_table(alone))


def test_a_loop_fits():
    steps = tuple(Step(k, "x" * (k + 1), -float(k), "", True, "", 1000, 2) for k in range(3))
    run = LoopRun((Loop("a", steps), Loop("b", (), error="down")), "own MQM", -25, 0)
    quality = [[-3.0, math.nan]] * 3
    assert cells(loop_table(run, quality, "sacrebleu chrf"), width=80)[2] == ["2", "-2.00", "-3.00", "3000", "1"]
    drawn = loop_table(run, quality, "sacrebleu chrf", best_of=4)
    assert [row[0] for row in cells(drawn, width=80)] == ["1", "2", "3"]
    assert "1 of 1 items have fewer than 4 different drafts, 3.0 on average" in said(drawn)
