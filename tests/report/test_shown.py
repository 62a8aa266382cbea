"""Tables and the scatter plot, as a user sees them."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import printed
from fakes import FormulaLM, items
from numpy.testing import assert_allclose
from planted import scored

from evalbias.evaluation import compare, judge_examples, measure
from evalbias.evaluation.biases import Likelihood
from evalbias.evaluation.words import coverage_warning, mark
from evalbias.measures import unfairness_scores
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.report.plots import draw, scatter
from evalbias.report.tables import coverage_note, headlines_table, mitigation_table
from evalbias.values import to_json

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def judged():
    examples = items(80, 3)
    models = [FormulaLM(bias=b) for b in (1.0, 0.1)]
    return [judge_examples(PointwiseJudge(C), examples, lm=lm, likelihood_lm="own") for lm in models]


def cells(table, name):
    row = next(line for line in printed(table).splitlines() if name in line)
    return [cell.strip() for cell in row.split("│")[1:-1]]


def test_a_measurement_says_what_is_undefined():
    examples = items(10, 3)
    for e in examples[:3]:
        e.scores["quality"] = math.nan
    for e in examples[3:]:
        e.scores["quality"] = 3.0
    one = judge_examples(PointwiseJudge(C), examples, lm=FormulaLM(), likelihood_lm="own")
    measurement = measure(Likelihood(), one, seed=0)
    table = headlines_table({"wit": measurement})
    assert cells(table, "wit") == ["wit", "effect of likelihood", "undefined", "undefined", "7", "3"]
    assert cells(table, "performance") == ["", "performance", "undefined", "undefined", "7", "3"]
    assert measurement.undefined == {"human_scores": 3}
    assert "undefined human scores: 3" in " ".join(printed(measurement.table()).split())


def test_the_table_of_a_mitigation_says_why_a_number_is_undefined():
    rng = np.random.default_rng(0)
    before = scored(rng, 60)
    after = replace(before, answers=np.full(60, 3.0))
    report = SimpleNamespace(before=before, paper=None, after=after, baselines={})
    table = mitigation_table({"quality": report}, seed=0)
    compiled = cells(table, "compiled")
    assert compiled.count("undefined") >= 2
    assert not any("[undefined" in cell for cell in compiled)
    assert "is undefined: all items have the same score" in " ".join(printed(table).split())
    assert "is undefined" not in printed(
        mitigation_table({"quality": SimpleNamespace(**vars(report) | {"after": before})}, seed=0)
    )


def test_a_measurement_as_a_table_as_json_and_in_a_notebook(judged):
    measurement = measure(Likelihood(), judged[0], seed=0)
    bias = measurement["bias_score"]
    assert bias.low < bias.value < bias.high
    table = headlines_table({"quality": measurement})
    effect = measurement["likelihood_effect"]
    assert math.isnan(effect.value)  # one rating an item
    assert effect.low < effect.high
    interval = f"{effect.low:+.2f} to {effect.high:+.2f}"
    assert cells(table, "quality") == ["quality", "effect of likelihood", "undefined", interval, "80"]
    assert cells(table, "BiasScore") == ["", "BiasScore", f"{bias.value:+.2f}", bias.interval, "80"]
    content = json.loads(json.dumps(to_json(measurement), allow_nan=False))
    assert content["estimates"]["bias_score"]["value"] == bias.value
    assert len(content["items"]["likelihoods"]) == len(content["items"]["id"]) == 80
    assert "items" not in measurement.to_dict(items=False)
    page = measurement._repr_html_()
    assert re.search(rf">BiasScore<.*?<td>{re.escape(f'{bias.value:+.2f}')}</td>", page)
    assert "<svg" in page
    assert bias.sentence().startswith(f"BiasScore {bias.value:+.2f} (95 % interval")
    assert "an unbiased judge has +0.00; 80 items" in bias.sentence()


def test_a_comparison_carries_the_papers_signs(judged):
    change = compare(*(measure(Likelihood(), one, seed=0) for one in judged), n_resamples=999, seed=0)
    table = headlines_table({"quality": change})
    bias, performance = change["bias_score"], change["performance"]
    assert cells(table, "quality") == ["quality", "effect of likelihood", "undefined -> undefined", "", "80"]
    row = cells(table, "BiasScore")
    assert row[2] == f"{bias.before.value:+.2f} -> {bias.after.value:+.2f}*"
    assert row[3:] == [f"{bias.p_value:.5f}", "80"]
    assert cells(table, "performance")[2] == f"{performance.before.value:+.2f} -> {performance.after.value:+.2f}*"
    assert [mark(p) for p in (0.049, 0.05, 0.059, 0.06, math.nan)] == ["*", "†", "†", "", ""]
    assert cells(change.table(), "BiasScore")[1] == row[2]
    before, after = bias.before.value, bias.after.value
    assert f"<td>{before:+.2f}</td><td>{after:+.2f}</td>" in change._repr_html_()


def test_a_judge_that_hardly_answers_is_warned_of():
    note = coverage_note({"wit": [0.004, 0.006, math.nan], "style": [0.9, 0.95]})
    assert note == "median coverage of the labels: wit 0.005, style 0.93"
    assert coverage_note({"wit": [math.nan]}) == coverage_note({}) == ""
    one = coverage_warning({"wit": [0.004, 0.006, math.nan], "style": [0.9]})
    assert one.startswith("Do not rely on this judge's answers on wit: its model")
    assert "(median probability 0.5 %)" in one
    both = coverage_warning({"wit": [0.0], "style": [0.05]})
    assert both.startswith("Do not rely on this judge: ")
    assert "(median probability less than 0.1 % and 5 %)" in both
    assert coverage_warning({"wit": [math.nan], "style": [0.9], "tone": []}) == ""


def test_the_scatter_shows_before_above_after(judged):
    plot = scatter({"before": judged[0], "after": judged[1]}, file="scatter-quality")
    for dots, one in zip(plot.marks, judged, strict=True):
        x, y = dots.points[""]
        assert x.tolist() == one.covariates["likelihoods"].tolist()
        assert_allclose(y, unfairness_scores(one.answers, one.covariates["human_scores"]))
    biases = [measure(Likelihood(), one, seed=0)["bias_score"].value for one in judged]
    assert plot.title == f"BiasScore on quality: {biases[0]:+.2f} before and {biases[1]:+.2f} after"
    assert len(scatter({"": judged[0]}).marks) == 1


def test_a_page_draws_a_few_hundred_dots_and_the_file_all():
    plot = scatter({"": scored(np.random.default_rng(0), 900)})
    assert len(plot.marks[0].points[""][0]) == 900
    assert plot.caption.endswith("dots are drawn, evenly spaced by likelihood; the file scatter.png has all.")
    wide, _ = draw(plot)
    assert 300 <= wide.count("<use ") < 350  # the ticks are drawn so too
