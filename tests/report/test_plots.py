"""What the plots draw, against values worked out by hand."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from fakes import Comparer, FormulaLM, items, pair
from numpy.testing import assert_allclose
from planted import compared, likelihood_effect, partly, scored, with_effect

from evalbias.evaluation import BIASES, Judged, judge_examples, measure
from evalbias.evaluation.bias import Bias, Intervals, Plot, beyond_quality, by_construction, full_effect, interval_plot
from evalbias.evaluation.biases import Likelihood, order_outcomes
from evalbias.evaluation.estimates import Estimate, Number, measured
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS
from evalbias.evaluation.loops import Loop, LoopRun
from evalbias.measures import unfairness_scores
from evalbias.measures.resample import SHARE, estimate_mean
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.loops import Step
from evalbias.report.page import loop_sections, scored_section, worst_items
from evalbias.report.plots import draw, scatter

OUTCOMES = ("same output both times", "always the first", "always the second", "a tie in one order")


def found_in(bias, judged, **options):
    return measure(BIASES[bias], judged, seed=0, n_resamples=9, **options)


def drawing_of(bias, judged):
    found = found_in(bias, judged)
    return found.bias.plot(found)


def test_what_swapping_does_to_a_verdict():
    answers = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.5, 0.5], [np.nan, np.nan]])
    swapped = np.array([[0.2, 0.8], [0.7, 0.3], [0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.5, 0.5]])

    def outcomes(first, second, *, ties=False):
        ids = tuple(map(str, range(len(first))))
        return order_outcomes(Judged(ids, "wit", np.stack([first, second], axis=1), ties=ties))

    assert outcomes(answers, swapped) == dict(zip(OUTCOMES, (0.4, 0.2, 0.2, 0.2), strict=True))
    tied = np.array([[0.1, 0.2, 0.7]])
    assert outcomes(tied, tied, ties=True) == dict(zip(OUTCOMES, (1, 0, 0, 0), strict=True))
    assert outcomes(answers[5:], swapped[5:]) == {}


def test_the_plot_of_both_orders_agrees_with_the_numbers_where_a_tie_is_as_probable_as_a_position():
    answers = np.array([[[0.4, 0.4, 0.2], [0.4, 0.4, 0.2]], [[0.4, 0.2, 0.4], [0.4, 0.2, 0.4]]])  # first, second, tie
    judged = Judged(("a", "b"), "wit", answers, ties=True)
    rate, stack = drawing_of("position", judged).marks
    assert rate.rows[""][0].value == (0.5 + 0.75) / 2  # of the second pair the tie takes half of its half
    assert stack.shares == dict(zip(OUTCOMES, (0.5, 0.5, 0, 0), strict=True))
    assert stack.shares[OUTCOMES[0]] == found_in("position", judged)["position_consistency"].value


def test_the_line_of_an_effect_has_the_slope_of_its_dots():
    judged = with_effect(0.3, n=4000)
    found = found_in("likelihood", judged)
    fit = full_effect(recipe := found.numbers["likelihood_effect"], judged.clusters)
    x, y = beyond_quality(recipe, fit, mirrored=False)
    direct = likelihood_effect(judged.covariates[LIKELIHOODS], judged.answers, judged.covariates["ratings"])
    assert np.polyfit(x, y, 1)[0] == pytest.approx(direct.value * direct.score_sd, abs=0.01)
    assert_allclose([x.mean(), x.std(), y.mean()], [0, 1, 0], atol=1e-9)
    plot = found.bias.plot(found)
    assert f"{direct.value * direct.score_sd:+.2f} points at equal quality" in plot.title
    assert "300 of 4,000 dots" in plot.caption
    along, *lines = plot.marks[0].line.T
    slopes = np.array([direct.value, direct.low, direct.high]) * direct.score_sd
    assert_allclose(lines, slopes[:, None] * along, rtol=1e-6)


def test_what_is_drawn_where_little_is_known(snapshot):
    judged = with_effect(0.3)
    del judged.covariates[RATINGS]  # an interval and no line
    known = partly(with_effect(0.3), 30)
    assert [drawing_of("likelihood", judged).title, drawing_of("corrected", known).title] == snapshot
    nothing = Judged(("a", "b"), "wit", np.full(2, np.nan), {LIKELIHOODS: np.zeros(2), HUMAN_SCORES: np.ones(2)})
    assert drawing_of("likelihood", nothing) is None
    assert worst_items(found_in("likelihood", nothing)) is None


PAIRS = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.5, 0.5]], [[0.2, 0.8], [0.9, 0.1]]])
TURNED = np.array([[0.9, 0.8], [0.6, 0.4], [0.1, 0.2]])
SCORED = {LIKELIHOODS: np.arange(6.0), HUMAN_SCORES: np.array([1.0, 2, 3, 5, 4, 3])}

LIKELY, BOTH = np.array([1.0, 2, 3, 4, 5, np.nan]), np.stack([TURNED, 1 - TURNED], axis=2)
GAP = "judge {:.2f}, people {:.2f}, likelier than {} % of the outputs"
PLACES = "in the order below, the first position gets {} %, in the other {} %"
PREFER = "people prefer output {}, the judge gives it {} %"  # means of two shares: (.1 + .2) / 2 and (.3 + .5) / 2
WORST = [("likelihood", LIKELY, SCORED, {"d": GAP.format(4, 5, 50), "e": GAP.format(5, 4, 67)})]  # others have no gap
WORST += [("position", BOTH, {}, {"a": PLACES.format(90, 80), "c": PLACES.format(10, 20)})]
WORST += [("position", PAIRS, {BETTER: np.array([1.0, 0, 1])}, {"a": PREFER.format(2, 15), "b": PREFER.format(1, 40)})]


@pytest.mark.parametrize(("bias", "answers", "covariates", "reasons"), WORST)
def test_the_worst_items(bias, answers, covariates, reasons):
    judged = Judged(tuple("abcdef"[: len(answers)]), "wit", answers, covariates)
    listed = worst_items(found_in(bias, judged)).blocks[1]
    assert {item.name: item.reason for item in listed} == reasons


def test_what_averaging_both_orders_settles_is_marked():
    judge = PairwiseJudge(Criterion("wit", "is it witty?"), debias="permutation")
    examples = [pair(k, k + 1, source=f"s{k}") for k in range(4)]
    found = found_in("position", judge_examples(judge, examples, lm=Comparer(lean=1)))
    assert "True by construction, not found" in by_construction(found)
    assert by_construction(found_in("position", compared(np.random.default_rng(0), 60))) == ""


def test_a_loop_is_drawn_on_one_range_and_its_worst_items_flatter_themselves(snapshot):
    def loop(name, *scores):
        return Loop(name, tuple(Step(k, f"{name}{k}", x, "", True, "", 0, 0) for k, x in enumerate(scores)))

    run = LoopRun((loop("a", 1.0, 5.0), loop("b", 3.0, 3.0), Loop("c", ())), "own", 1.0, 5.0)
    quality = np.array([[-20.0, -10.0, np.nan], [-20.0, -5.0, np.nan]])
    shown, worst = loop_sections(run, quality, [{"source": "s"}] * 3, limits=(-20.0, 0.0))
    # own .0 and .5, then 1 and .5; quality 0 and .5, then 0 and .75
    (item,) = worst.blocks[1]
    assert [shown.finding, item.reason] == snapshot
    assert (item.name, [text for _, text in item.passages]) == ("a", ["s", "a0", "a1"])


def test_scores_are_drawn(snapshot):
    assert scored_section([np.nan]).finding == ""
    drawn = ([1.0, 4.0, 4.2, np.nan], np.linspace(0, 1, 101), [1 / 3, *[2 / 3] * 3])
    found = [scored_section(scores) for scores in drawn]
    assert [(section.finding, section.blocks[0].title) for section in found] == snapshot
    assert found[1].blocks[0].marks[0].edges.tolist() == pytest.approx(np.arange(11) / 10)  # between 0 and 1: in tenths
    assert scored_section([0, 1, 1]).blocks[0].marks[0].edges.tolist() == [-0.5, 0.5, 1.5]
    assert scored_section([0.7, 0.7]).blocks[0].marks[0].heights["judge"].sum() == 1


def test_the_scatter_shows_before_above_after():
    examples = items(80, 3)
    models = [FormulaLM(bias=b) for b in (1.0, 0.1)]
    judge = PointwiseJudge(Criterion("quality", "is it good?"))
    sides = [judge_examples(judge, examples, lm=lm, likelihood_lm="own") for lm in models]
    plot = scatter(dict(zip(("before", "after"), sides, strict=True)))
    for dots, one in zip(plot.marks, sides, strict=True):
        x, y = dots.points[""]
        assert x.tolist() == one.covariates["likelihoods"].tolist()
        assert_allclose(y, unfairness_scores(one.answers, one.covariates["human_scores"]))
    biases = [measure(Likelihood(), one, seed=0)["bias_score"].value for one in sides]
    assert plot.title == f"BiasScore on quality: {biases[0]:+.2f} before and {biases[1]:+.2f} after"
    alone = scatter({"": scored(np.random.default_rng(0), 900)})
    assert [len(mark.points[""][0]) for mark in alone.marks] == [900]
    assert alone.caption.endswith("dots are drawn, evenly spaced by likelihood.")
    assert 300 <= draw(alone).count("<use ") < 350  # the ticks are drawn so too


def test_names_from_data_are_drawn_as_they_are():
    names = {"$\\frac{": 0.1, "<script>": 0.2, "a" * 300: 0.3}
    estimates = {name: Estimate(name, name, v, v - 0.1, v + 0.1, 9, 0, null=0.0) for name, v in names.items()}
    svg = draw(interval_plot(estimates, "writers"))
    assert "$\\frac{" in svg
    assert "&lt;script&gt;" in svg
    assert "<script" not in svg
    assert "a" * 61 not in svg


def test_everything_on_the_axis_of_the_first_headline_is_drawn():
    values = {"x": np.array([0.1, 0.2, 0.4]), "y": np.array([0.3, 0.2, 0.1]), "z": np.full(3, np.nan)}
    samples = [Number(name, name, v, estimate_mean, null=0.0) for name, v in values.items()]
    samples.append(Number("other", "other", values["x"], estimate_mean, null=1.0))

    class Taste(Bias):
        name = title = question = "taste"
        headlines = ("y",)

    fields = {"bias": Taste(), "criterion": "wit", "ids": tuple("abc"), "columns": {}}
    plot = Taste().plot(measured(samples, seed=0, n_resamples=9, **fields))
    assert plot.title.startswith("Y: +0.20")
    assert list(plot.marks[0].rows) == ["Y", "X"]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_are_drawn_between_0_and_100_percent(share):
    estimates = {"x": Estimate("x", "x", share, share, share, 9, 0, unit=SHARE, signed=False)}
    ticks = re.findall(r">(\S+)</text>", draw(interval_plot(estimates, "shares")))
    numbers = [float(tick.replace("\N{MINUS SIGN}", "-")) for tick in ticks if tick not in ("x", SHARE)]
    assert 0 <= min(numbers) <= max(numbers) <= 1


def test_rows_of_a_plot_are_named_for_a_reader_who_knows_no_paper():
    judged = with_effect(0.3)
    judged.covariates[LENGTHS] = np.arange(1.0, len(judged.ids) + 1)
    drawn = draw(drawing_of("agreement", judged))
    labels = [found_in("agreement", judged)[name].label for name in ("likelihood_floor", "length_floor")]
    assert not any(name in drawn for name in ("one rater", *labels))
    words = " ".join(" ".join(re.findall(r">([^<>]+)</text>", drawn)).split())
    for label in labels:
        assert f"For comparison: {label.split()[0]} in place of a judge" in words


@pytest.mark.parametrize(("verdicts", "axis"), [(True, "verdict beyond quality"), (False, "log-odds beyond quality")])
def test_the_axis_of_verdicts_has_a_short_name(verdicts, axis):
    judged = compared(np.random.default_rng(0), 60, verdicts=verdicts)
    assert drawing_of("verbosity", judged).marks[0].y_label == axis


@pytest.mark.parametrize(
    "label", ["font: 12px serif", "$x$", ' id="x" url(#a) href="#b"', "#010203", "a\u202e\x1b\ud800b", "<b>]]>-->"]
)
def test_a_label_is_a_text_whatever_it_says(label):
    estimate = Estimate("x", "x", 0.1, 0, 0.2, 9, 0)
    wide = draw(Plot("title", "caption", [Intervals({"x": [estimate]}, x_label=label)]))
    texts = [text.text for text in ET.fromstring(wide).iter("{http://www.w3.org/2000/svg}text")]
    assert ("a\ufffd\ufffd\ufffdb" if label.startswith("a") else label) in texts
