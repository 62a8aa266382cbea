"""What the plots draw, against values worked out by hand."""

import re
import xml.etree.ElementTree as ET

import dspy
import numpy as np
import pytest
from fakes import Comparer, pair
from numpy.testing import assert_allclose
from planted import compared
from report.test_page import pairs, scored

from evalbias.evaluation import BIASES, Judged, judge_examples, measure
from evalbias.evaluation.bias import Bias, beyond_quality, interval_plot
from evalbias.evaluation.biases import order_outcomes
from evalbias.evaluation.estimates import Estimate, Number, measured
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS
from evalbias.evaluation.loops import Loop, LoopRun
from evalbias.evaluation.marks import Intervals, Plot
from evalbias.measures import likelihood_effect
from evalbias.measures.resample import SHARE, estimate_mean
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.programs.loops import Step
from evalbias.report.plots import by_construction, draw
from evalbias.report.sections import loop_sections, lowest_section, scored_section, worst_items

OUTCOMES = ("same output both times", "always the first", "always the second", "a tie in one order")


def drawing_of(found):
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
    found = measure(BIASES["position"], Judged(("a", "b"), "wit", answers, ties=True), seed=0, n_resamples=2)
    rate, stack = drawing_of(found).marks
    assert rate.rows[""][0].value == (0.5 + 0.75) / 2  # of the second pair the tie takes half of its half
    assert stack.shares == dict(zip(OUTCOMES, (0.5, 0.5, 0, 0), strict=True))
    assert stack.shares[OUTCOMES[0]] == found["position_consistency"].value


def test_scores_between_0_and_1_are_drawn_in_tenths():
    plot = scored_section(np.linspace(0, 1, 101)).blocks[0]
    assert plot.marks[0].edges.tolist() == pytest.approx(np.arange(11) / 10)
    assert plot.title == "11 % of the judge's scores lie between 0.9 and 1"
    assert scored_section([0, 1, 1]).blocks[0].marks[0].edges.tolist() == [-0.5, 0.5, 1.5]
    assert scored_section([0.7, 0.7]).blocks[0].marks[0].heights["judge"].sum() == 1


def test_the_line_of_an_effect_has_the_slope_of_its_dots():
    judged = scored(4000, effect=0.3)
    found = measure(BIASES["likelihood"], judged, seed=0, n_resamples=2)
    recipe, fit = found.numbers["likelihood_effect"], BIASES["likelihood"].fit(judged)
    x, y = beyond_quality(recipe, fit, mirrored=False)
    direct = likelihood_effect(judged.covariates[LIKELIHOODS], judged.answers, judged.covariates["ratings"])
    slope = np.polyfit(x, y, 1)[0]
    assert slope == pytest.approx(direct.value * direct.score_sd, abs=0.01)
    assert_allclose([x.mean(), x.std(), y.mean()], [0, 1, 0], atol=1e-9)
    assert f"{direct.value * direct.score_sd:+.2f} points at equal quality" in drawing_of(found).title
    assert "300 of 4,000 dots" in drawing_of(found).caption


def test_what_people_would_say_of_all_items_is_the_corrected_mean():
    judged = scored(200)
    human = judged.covariates[HUMAN_SCORES].copy()
    human[30:] = np.nan
    known = Judged(judged.ids, "quality", judged.answers, {HUMAN_SCORES: human})
    found = measure(BIASES["corrected"], known, seed=0, n_resamples=20)
    expected = f"Mean that people would give all items: {found['corrected_mean'].text()} (95 % interval"
    assert drawing_of(found).title.startswith(expected)


def test_one_rating_of_unknown_reliability_has_an_interval_and_no_line():
    judged = scored()
    del judged.covariates["ratings"]
    found = measure(BIASES["likelihood"], judged, seed=0, n_resamples=2)
    assert drawing_of(found).title.startswith("Of two equally good texts, the likelier one gets")


def test_a_measurement_without_a_defined_number_has_no_plot():
    judged = Judged(("a", "b"), "wit", np.full(2, np.nan), {LIKELIHOODS: np.zeros(2), HUMAN_SCORES: np.ones(2)})
    found = measure(BIASES["likelihood"], judged, seed=0, n_resamples=2)
    assert drawing_of(found) is None
    assert worst_items(found) is None


def test_the_worst_items_of_a_judge_that_scores():
    scores, human = np.array([1.0, 2, 3, 4, 5, np.nan]), np.array([1.0, 2, 3, 5, 4, 3])
    judged = Judged(tuple("abcdef"), "wit", scores, {LIKELIHOODS: np.arange(6.0), HUMAN_SCORES: human})
    section = worst_items(measure(BIASES["likelihood"], judged, seed=0, n_resamples=2), count=3)
    items = section.blocks[1]
    assert [item.name for item in items] == ["d", "e"]  # the others have no gap
    assert items[0].reason == "judge 4.00, people 5.00; likelier than 50 % of the outputs"


def test_the_worst_pairs_are_those_that_swapping_turns():
    first = np.array([[0.9, 0.8], [0.6, 0.4], [0.1, 0.2]])
    judged = Judged(tuple("abc"), "wit", np.stack([first, 1 - first], axis=2))
    section = worst_items(measure(BIASES["position"], judged, seed=0, n_resamples=2))
    items = section.blocks[1]
    assert [item.name for item in items] == ["a", "c"]
    assert items[0].reason == "the first position gets 90 % in the order below and 80 % in the other order"


def test_what_averaging_both_orders_settles_is_marked():
    judge = PairwiseJudge(Criterion("wit", "is it witty?"), debias="permutation")
    examples = [pair(k, k + 1, source=f"s{k}") for k in range(4)]
    found = measure(BIASES["position"], judge_examples(judge, examples, lm=Comparer(lean=1)), seed=0, n_resamples=2)
    assert "True by construction, not found" in by_construction(found)
    assert by_construction(measure(BIASES["position"], pairs(), seed=0, n_resamples=2)) == ""


def test_the_worst_pairs_are_those_that_people_would_turn():
    answers = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.5, 0.5]], [[0.2, 0.8], [0.9, 0.1]]])
    judged = Judged(tuple("abc"), "wit", answers, {BETTER: np.array([1.0, 0.0, 1.0])})
    section = worst_items(measure(BIASES["position"], judged, seed=0, n_resamples=2))
    items = section.blocks[1]
    assert [(item.name, item.reason) for item in items] == [
        ("a", "people prefer output 2, the judge gives it 15 %"),  # (.1 + .2) / 2
        ("b", "people prefer output 1, the judge gives it 40 %"),  # (.3 + .5) / 2
    ]


def test_a_loop_is_drawn_on_one_range_and_its_worst_items_flatter_themselves():
    def loop(name, *scores):
        steps = tuple(Step(k, f"{name}{k}", score, "", True, "", 0, 0) for k, score in enumerate(scores))
        return Loop(name, steps)

    run = LoopRun((loop("a", 1.0, 5.0), loop("b", 3.0, 3.0), Loop("c", ())), "own", 1.0, 5.0)
    quality = np.array([[-20.0, -10.0, np.nan], [-20.0, -5.0, np.nan]])
    shown, worst = loop_sections(run, quality, [{"source": "s"}] * 3, limits=(-20.0, 0.0), step="refinement")
    # own .0 and .5, then 1 and .5; quality 0 and .5, then 0 and .75
    assert (
        shown.finding
        == "Over 1 refinement, the own score goes from 25 % to 75 % and the quality goes from 25 % to 38 %."
    )
    (item,) = worst.blocks[1]
    assert item.name == "a"
    assert item.reason == "own score 100 %, quality 0 % of the way from worst to best"
    assert [text for _, text in item.passages] == ["s", "a0", "a1"]


def test_scores_are_drawn_and_the_lowest_listed():
    section = scored_section([1.0, 4.0, 4.2, np.nan])
    assert section.finding == "3 items were scored, 3.07 on average. 1 without a defined score."
    assert section.blocks[0].title == "67 % of the judge's scores lie between 3.5 and 4.5"
    examples = [dspy.Example(source="s", output=text) for text in "abcd"]
    lowest = lowest_section([2.0, np.nan, 1.0, 3.0], examples, list("wxyz"))
    assert [item.name for item in lowest.blocks[0]] == ["y", "w", "z"]
    assert lowest_section([np.nan], examples[:1], ["w"]) is None
    assert scored_section([np.nan]).finding == ""


def test_names_from_data_are_drawn_as_they_are():
    names = {"$\\frac{": 0.1, "<script>": 0.2, "a" * 300: 0.3}
    estimates = {name: Estimate(name, name, v, v - 0.1, v + 0.1, 9, 0, null=0.0) for name, v in names.items()}
    for svg in draw(interval_plot(estimates, "writers")):
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
    plot = drawing_of(measured(samples, seed=0, n_resamples=9, **fields))
    assert plot.title.startswith("Y: +0.20")
    assert list(plot.marks[0].rows) == ["Y", "X"]


def test_shares_are_drawn_between_0_and_100_percent():
    for share in (0.0, 1.0):
        estimates = {"x": Estimate("x", "x", share, share, share, 9, 0, unit=SHARE, signed=False)}
        ticks = re.findall(r">(\S+)</text>", draw(interval_plot(estimates, "shares"))[0])
        numbers = [float(tick.replace("\N{MINUS SIGN}", "-")) for tick in ticks if tick not in ("x", SHARE)]
        assert numbers
        assert 0 <= min(numbers) <= max(numbers) <= 1


def test_rows_of_a_plot_are_named_for_a_reader_who_knows_no_paper():
    judged = scored()
    judged.covariates[LENGTHS] = np.arange(1.0, len(judged.ids) + 1)
    agreement = measure(BIASES["agreement"], judged, seed=0, n_resamples=9)
    drawn = draw(drawing_of(agreement))[0]
    floors = [agreement[name].label for name in ("likelihood_floor", "length_floor")]
    for name in ("one rater", *floors):
        assert name not in drawn
    words = " ".join(re.findall(r">([^<>]+)</text>", drawn))
    for label in floors:
        assert f"For comparison: {label.split()[0]} in place of a judge" in " ".join(words.split())


def test_the_axis_of_verdicts_has_a_short_name():
    judged = compared(np.random.default_rng(0), 60, verdicts=True)
    plot = drawing_of(measure(BIASES["verbosity"], judged, seed=0, n_resamples=2))
    assert plot.marks[0].y_label == "verdict beyond quality"
    assert "on a scale from -1 (loses) to 1 (wins)" in plot.title
    odds = drawing_of(measure(BIASES["verbosity"], compared(np.random.default_rng(0), 60), seed=0, n_resamples=2))
    assert odds.marks[0].y_label == "log-odds beyond quality"


def test_a_label_is_a_text_whatever_it_says():
    labels = ["font: 12px serif", "$x$", ' id="x" url(#a) href="#b"', "#010203", "a\u202e\x1b\ud800b", "<b>]]>-->"]

    estimate = Estimate("x", "x", 0.1, 0, 0.2, 9, 0)
    for label in labels:
        (wide, _) = draw(Plot("title", "caption", [Intervals({"x": [estimate]}, x_label=label)]))
        texts = [text.text for text in ET.fromstring(wide).iter("{http://www.w3.org/2000/svg}text")]
        assert ("a\ufffd\ufffd\ufffdb" if label.startswith("a") else label) in texts
