"""Recompute the published self-bias figures from the recorded runs."""

import numpy as np
import pytest

from evalbias.data import DataError
from evalbias.data.loops import recorded_loop
from evalbias.evaluation import compare, measure_rounds
from evalbias.measures import (
    distance_skewness,
    measure_self_bias,
    mqm_score,
    parse_mqm,
    self_bias,
)


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "self_bias_recorded"


@pytest.fixture(scope="module")
def gpt(folder):
    return recorded_loop(folder / "mt/gpt-3.5-turbo__yor-en.jsonl")


def test_the_human_evaluation_to_every_published_digit(gpt):
    own, human = gpt.scores("self_score"), gpt.scores("human_score")
    for number, bias, skewness in ((0, 19.6, 0.803), (10, 21.9, 0.885)):
        measured = measure_self_bias(own[number], human[number])
        assert (measured.n, measured.undefined) == (50, 50)
        assert round(measured.bias, 1) == bias
        assert round(measured.skewness, 3) == skewness


def test_bias_grows_over_the_iterations_of_every_recorded_loop(folder):
    rises = {}
    for file in sorted((folder / "mt").iterdir()):
        loops = recorded_loop(file)
        rounds = measure_rounds(loops.scores("self_score"), loops.scores("bleurt_mapped"), n_resamples=50, seed=0)
        assert len(rounds) == len(loops.numbers)
        for bias, skewness in ((measurement["bias"], measurement["skewness"]) for measurement in rounds):
            assert bias.low <= bias.value <= bias.high
            assert 0 <= skewness.low <= skewness.value <= skewness.high + 0.05
        rises[file.name] = rounds[-1]["bias"].value - rounds[0]["bias"].value
    assert len(rises) == 16
    assert all(rise > 0 for rise in rises.values()), rises


def test_the_rise_is_significant_for_gpt(gpt):
    own, expected = gpt.scores("self_score"), gpt.scores("bleurt_mapped")
    rounds, difference = measure_rounds(own, expected, n_resamples=50, seed=0), own - expected
    change = compare(rounds[0], rounds[-1], n_resamples=2_000, n_intervals=50, seed=0)
    bias, skewness = change["bias"].difference, change["skewness"].difference
    assert bias.value == pytest.approx(self_bias(difference[-1], 0 * difference[-1]) - difference[0].mean())
    assert bias.p_value < 0.01
    assert skewness.value == pytest.approx(distance_skewness(difference[-1]) - distance_skewness(difference[0]))
    assert skewness.p_value < 0.05


def test_best_of_k_as_published(folder):
    loops = recorded_loop(folder / "best_of_k/deepseek_moe__yor-en.jsonl", by="k")
    expected = loops.scores("bleurt_mapped")
    published = {1: (14.8, 0.735), 4: (16.1, 0.795), 8: (16.7, 0.8), 16: (18.0, 0.83), 32: (18.5, 0.84)}
    assert loops.numbers == tuple(published)
    for row, (k, (bias, skewness)) in enumerate(published.items()):
        field = "self_score_crit10" if k == 1 else "self_score"  # the weight of the published run with k = 1
        own = loops.scores(field)[row]
        assert round(self_bias(own, expected[row]), 1) == bias
        # printed as .735 and .795, then rounded to .005 or .01
        assert distance_skewness(own - expected[row]) == pytest.approx(skewness, abs=0.005)


@pytest.mark.slow
def test_parsing_rarely_differs_from_counting_substrings(folder):
    differs = undefined = total = 0
    for file in sorted((folder / "mt").iterdir()):
        loops = recorded_loop(file)
        for record in (r for in_round in loops.records.values() for r in in_round.values()):
            total += 1
            score = mqm_score(parse_mqm(record["feedback_text"]))
            undefined += np.isnan(score)
            differs += not np.isnan(score) and score != record["self_score"]
    assert total == 12100
    assert differs <= 25  # quoted words such as 'major events', negations, and several spans in one line
    assert undefined < 0.05 * total  # the published code scores all of these as perfect


def test_invalid_recordings_are_refused(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"iteration": 0, "i": 1}\n{"iteration": 0, "i": 1}\n')
    with pytest.raises(DataError, match=r"x.jsonl:2: a second line for item 1 in iteration 0"):
        recorded_loop(file)
    file.write_text('{"i": 1}\n')
    with pytest.raises(DataError, match="'iteration' is missing"):
        recorded_loop(file)
    file.write_text("")
    with pytest.raises(DataError, match="no records"):
        recorded_loop(file)
