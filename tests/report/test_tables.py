"""Tables, as a user sees them in a terminal of 80 columns; and the plots of searches and compilations."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import printed
from fakes import FormulaLM, Wording, items, searched_judge
from matplotlib import image
from planted import scored

from evalbias.evaluation import LoopScores, compare_judges, compare_with_baselines, judge_examples, loops, measure
from evalbias.evaluation.bias import Plot
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.words import mark
from evalbias.optimizers.refine import LoopRecord, RefineReport
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.loops import Step
from evalbias.report import tables
from evalbias.report.page import sections
from evalbias.report.plots import write_png
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


def plain(table):
    """Return the lines of a printed table, whatever frame and alignment it has."""
    lines = [" ".join(re.sub("[┏┳┓┡╇┩└┴┘━─]", " ", line).split()) for line in printed(table).splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def judged():
    models = [FormulaLM(bias=b) for b in (1.0, 0.1)]
    return [judge_examples(PointwiseJudge(C), items(80, 3), lm=lm, likelihood_lm="own") for lm in models]


def test_a_measurement_says_what_is_undefined(snapshot):
    examples = items(10, 3)
    for place, e in enumerate(examples):
        e.scores["quality"] = math.nan if place < 3 else 3.0
    one = judge_examples(PointwiseJudge(C), examples, lm=FormulaLM(), likelihood_lm="own")
    measurement = measure(Likelihood(), one, seed=0)
    assert measurement.undefined == {"human_scores": 3}
    assert plain(measurement.table()) == snapshot


def test_the_table_of_a_mitigation_says_why_a_number_is_undefined(snapshot):
    before = scored(np.random.default_rng(0), 60)
    report = SimpleNamespace(before=before, paper=None, after=replace(before, answers=np.full(60, 3.0)), baselines={})
    assert plain(tables.mitigation_table({"quality": report}, seed=0)) == snapshot
    report.after = before
    assert "is undefined" not in said(tables.mitigation_table({"quality": report}, seed=0))


def test_a_measurement_as_a_table_as_json_and_in_a_notebook(judged, snapshot):
    measurement = measure(Likelihood(), judged[0], seed=0)
    bias, effect = measurement["bias_score"], measurement["likelihood_effect"]
    assert math.isnan(effect.value)  # one rating an item
    table = measurement.table()
    assert cells(table, "BiasScore") == ["BiasScore", f"{bias.value:+.2f}", bias.interval, "0", "80"]
    assert plain(table) == snapshot
    content = json.loads(json.dumps(to_json(measurement), allow_nan=False))
    assert content["estimates"]["bias_score"]["value"] == bias.value
    assert len(content["items"]["likelihoods"]) == len(content["items"]["id"]) == 80
    assert "items" not in measurement.to_dict(items=False)
    page = measurement._repr_html_()
    assert re.search(rf">BiasScore<.*?<td>{re.escape(f'{bias.value:+.2f}')}</td>", page)
    assert "<svg" in page


def test_a_comparison_carries_the_papers_signs(judged, snapshot):
    sides = [measure(Likelihood(), side, seed=0, n_resamples=99) for side in judged]
    change = compare_judges(*sides, n_resamples=99, seed=0)
    table, bias = tables.headlines_table({"quality": change}), change["bias_score"]
    assert cells(table, "BiasScore")[2:4] == [f"{bias.text()}", f"{bias.p_value:.5f}"]
    assert [mark(p) for p in (0.049, 0.05, 0.059, 0.06, math.nan)] == ["*", "†", "†", "", ""]
    assert [plain(table), plain(change.table())] == snapshot
    assert f"<td>{bias.before.value:+.2f}</td><td>{bias.after.value:+.2f}</td>" in change._repr_html_()


@pytest.fixture(scope="module")
def searched():
    judge, compiled, test = searched_judge(PairwiseJudge(C), epochs=2, racing=True)
    return compiled, compare_with_baselines(judge, compiled, test, lm=Wording(first=6.5), limit=60, n_resamples=999)


def test_four_judges_and_what_the_search_took(searched, snapshot):
    compiled, rows = searched
    table = tables.rows_table(rows, compiled.report)
    shown = {label: values for label, *values in cells(table)}
    for place, row in enumerate(rows.values()):
        position, agreement = row.measurements["position"], row.measurements["agreement"]
        assert shown["first"][place] == f"{position['first_rate'].value:.2f}"
        assert shown["consistent"][place] == f"{position['position_consistency'].value:.2f}"
        assert shown["longer"][place] == f"{row.measurements['verbosity']['longer_rate'].value:.2f}"
        assert shown["Spearman"][place].rstrip("*†") == f"{agreement['spearman'].value:+.2f}"
    turned = replace(compiled.report, rejected=(("empty", ""), ("known already", "x"), ("empty", " ")))
    more = (tables.rows_table(rows, compiled.report, pairs=(100, 360)), turned.tables[-1])
    assert [*map(plain, (table, *more))] == snapshot


def test_what_a_table_cannot_show_is_said(searched, snapshot):
    compiled, rows = searched
    few, bare = {}, {}
    for name, row in rows.items():
        agreement = row.measurements["agreement"]
        spearman = replace(agreement["spearman"], n=4, undefined=2)
        agreement = replace(agreement, estimates={**agreement.estimates, "spearman": spearman})
        few[name] = replace(row, measurements={**row.measurements, "agreement": agreement})
        bare[name] = replace(row, measurements={k: m for k, m in row.measurements.items() if k != "agreement"})
    assert [plain(tables.rows_table(those, compiled.report)) for those in (few, bare)] == snapshot


def test_a_search_is_drawn_by_epoch(searched):
    report = searched[0].report
    (dots,) = report.sections()[-1].blocks[0].marks
    most = max(one.examples for one in report.tried)
    whole = [(t.epoch, t.objective) for t in report.tried if t.examples == most]
    assert [*zip(*dots.points["instruction"], strict=True)] == whole
    assert sum(len(x) for x, _ in dots.points.values()) == len(report.tried)
    assert dots.line[:, 0].tolist() == [0, 1, 1, 2, 2][: 2 * len(report.history) - 1]  # a step an epoch
    assert dots.line[::2, 1].tolist() == list(report.history)


RNG = np.random.default_rng(0)
OWN = -RNG.uniform(0, 5, (11, 100))
EXPECTED = -RNG.uniform(10, 25, (11, 100))
DRAWS = {"n_resamples": 20, "seed": 0}


def test_rounds_and_loops_fit(snapshot):
    loop = loops.summarize_loop("gpt-3.5-turbo__ibo_Latn-en", EXPECTED, OWN, **DRAWS)
    both = (tables.self_bias_table(loop, rounds="iteration"), tables.loops_table([loop, loop], rounds="k"))
    assert [cells(table, width=80) for table in both] == snapshot
    bias = loop.rounds[0]["bias"].value
    assert bias == pytest.approx(np.mean(EXPECTED[0] - OWN[0]))
    assert all(f"{bias:+.2f} " in cell for cell in (cells(both[0])[0][3], cells(both[1])[0][2]))


def test_pairs_of_loops_fit(snapshot):
    numbers, ids = tuple(range(11)), tuple(map(str, range(100)))
    names = [f"{model}__ibo_Latn-en" for model in ("gpt-3.5-turbo", "deepseek_moe", "mistral_moe")]
    scores = [LoopScores(name, numbers, ids, OWN - 10 * k, EXPECTED) for k, name in enumerate(names)]
    pairs = loops.compare_loops(scores, **DRAWS)
    between = {f"{p.first} -> {p.second}, k {p.number}": p.comparison for p in pairs}
    note = "two-sided, not corrected for 3 pairs"
    table = tables.headlines_table(between, of="loops", title="Between loops", note=note)
    bias = [np.nanmean(OWN[-1] - 10 * k - EXPECTED[-1]) for k in range(2)]
    assert any(row[1:3] == ["Bias", f"{bias[0]:+.2f} -> {bias[1]:+.2f}*"] for row in cells(table, width=80))
    assert plain(table) == snapshot


def test_a_compilation_fits_and_is_drawn(tmp_path, snapshot):
    rounds = loops.measure_rounds(OWN / 25 + 1, EXPECTED / 25 + 1, quality=EXPECTED, **DRAWS)

    def record(feedback):
        return LoopRecord(feedback, tuple(rounds), (12345.0,) * 11, (123.0,) * 11, {})

    first, *_, last = (replace(one, cost={"calls": 22.0}) for one in rounds)
    records = {"own": record("own MQM"), "external": record("chrf")}
    settings = {"iterations": 3, "demonstrations": ("a", "b"), "items": 50, "calls": 1100}
    compared = {"self": compare_judges(first, last, n_intervals=20, **DRAWS)}
    shown = record("own MQM")
    report = RefineReport(chosen="3 refinements", **records, shown=shown, **settings, comparison=compared)
    assert len(cells(tables.refine_table(report), width=80)) == 11
    assert f"Bias {first['bias'].text()} -> {last['bias'].text()}" in said(tables.refine_table(report))
    plots = [block for one in sections(report) for block in one.blocks if isinstance(block, Plot)]
    (plot,) = (one for one in plots if one.title.startswith("The bias"))
    assert list(plot.marks[0].series) == ["own feedback (own MQM)", "external feedback (chrf)"]
    assert [line[3, 1] for line in plot.marks[0].series.values()] == [rounds[3]["bias"].value] * 2
    write_png(plot, tmp_path / "sides.png")
    assert image.imread(tmp_path / "sides.png").std() > 0
    nothing = {"shown": None, "iterations": 0, "demonstrations": (), "comparison": {}}
    alone = replace(report, own=record("own"), **nothing)
    assert [plain(tables.refine_table(one)) for one in (report, alone)] == snapshot


def test_a_loop_fits(snapshot):
    steps = tuple(Step(k, "x" * (k + 1), -float(k), "", True, "", 1000, 2) for k in range(3))
    run = loops.LoopRun((loops.Loop("a", steps), loops.Loop("b", (), error="down")), "own MQM", -25, 0)
    quality = [[-3.0, math.nan]] * 3
    made = tables.loop_table(run, quality, "sacrebleu chrf")
    assert cells(made, width=80)[2] == ["2", "-2.00", "-3.00", "3000", "1"]
    assert [plain(made)] == snapshot
