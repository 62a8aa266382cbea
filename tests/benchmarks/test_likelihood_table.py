"""Table 1 of a finished run: signs of significance, published figures, and the means by kind of criterion."""

import math

import pytest

from benchmarks.likelihood_table import TABLE, Finished, intrinsic, number, report, rows
from evalbias.evaluation import BIASES, Change, Comparison, Estimate
from evalbias.measures import Interval
from evalbias.values import to_json

NAN = math.nan


def change(name, before, after, p):
    sides = [Estimate(name, name, value, NAN, NAN, 4, 0, null=0.0) for value in (before, after)]
    return Change(*sides, Interval(after - before, p_value=p, n=4, units=4), p)


def comparison(before, after, p):
    numbers = {"bias_score": (before, after, p), "performance": (0.5, 0.25, NAN)}
    changes = {name: change(name, *values) for name, values in numbers.items()}
    return Comparison(BIASES["likelihood"], "fluency", changes, {})


@pytest.fixture
def run():
    settings = {
        "lm": {"model": "local/x@1"},
        **{"k": 8, "seed": 0, "resamples": 100, "data_sha256": "abc", "train": 10, "test": 4},
    }
    result = {
        "likelihood": {"grammar": comparison(0.4, 0.1, 0.04), "fluency": comparison(0.2, -0.1, 0.055)},
        "reports": {"fluency": {"demonstration_words": [40, 60], "mean_words": 21.2}},
    }
    return Finished("tmu-gfm", settings, to_json(result))


def test_rows_have_signs_of_significance_and_published_figures(run):
    grammar, fluency = rows(run)
    assert grammar[:5] == ["grammar", ".40 -> .10*", ".50 -> .25", "0.0400 / nan", "4"]
    assert grammar[5:] == [".46 -> .37† / .48 -> .54", ".24 -> .24 / .45 -> .46"]
    assert fluency[1] == ".20 -> -.10†"
    run.result["likelihood"]["fluency"]["changes"]["bias_score"]["itemwise_test"]["p_value"] = 1e-5
    assert rows(run)[1][3] == "<.0001 / nan"


def test_intrinsic_criteria_are_averaged_separately(run):
    assert intrinsic(run) == [["intrinsic", "grammar, fluency", ".30", ".00"]]
    for name, sides in {"relevance": (0.9, 0.8), "data_coverage": (NAN, 0.6), "correctness": (0.1, 0.1)}.items():
        run.result["likelihood"][name] = to_json(comparison(*sides, 0.5))  # the last is of neither kind
    assert intrinsic(run)[1] == ["not intrinsic", "relevance, data_coverage", ".90 (1 undefined)", ".70"]


def test_every_published_criterion_is_one_of_ours():
    from evalbias.programs.criterion import PRESETS

    for name, criteria in TABLE.items():
        assert {*criteria} == {c.name for c in PRESETS[name]} | {"total"}


def test_numbers_and_report(run, snapshot):
    assert [number(x) for x in (0.5, -0.05, 1.0, None)] == [".50", "-.05", "1.00", "undefined"]
    assert report({"sum": run, "mean": run}) == snapshot
