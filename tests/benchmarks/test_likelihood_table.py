"""Table 1 of a finished run: signs of significance, published figures, and the means by kind of criterion."""

import math
import re
from types import SimpleNamespace

import pytest

from benchmarks import self_bias as synthetic
from benchmarks.likelihood_table import TABLE, Finished, intrinsic, number, report, rows
from benchmarks.self_bias import first_to_last, recorded, unreadable_answers
from benchmarks.self_bias import synthetic as synthetic_section
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
    settings = {"k": 8, "seed": 0, "resamples": 100, "data_sha256": "abc", "train": 10, "test": 4}
    settings |= {"lm": {"model": "local/x@1"}}
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


def test_intrinsic_criteria_are_averaged_separately_and_published_ones_are_ours(run):
    assert intrinsic(run) == [["intrinsic", "grammar, fluency", ".30", ".00"]]
    for name, sides in {"relevance": (0.9, 0.8), "data_coverage": (NAN, 0.6), "correctness": (0.1, 0.1)}.items():
        run.result["likelihood"][name] = to_json(comparison(*sides, 0.5))  # the last is of neither kind
    assert intrinsic(run)[1] == ["not intrinsic", "relevance, data_coverage", ".90 (1 undefined)", ".70"]
    from evalbias.programs.criterion import PRESETS

    for name, criteria in TABLE.items():
        assert {*criteria} == {c.name for c in PRESETS[name]} | {"total"}


def test_numbers_and_report(run, snapshot):
    assert [number(x) for x in (0.5, -0.05, 1.0, None)] == [".50", "-.05", "1.00", "undefined"]
    assert report({"sum": run, "mean": run}) == snapshot
    rounds = [{"skewness": SimpleNamespace(value=value)} for value in (math.nan, 0.25, 0.5)]
    assert first_to_last(SimpleNamespace(rounds=rounds), "skewness") == "undefined -> 0.50"


@pytest.mark.slow
def test_the_recordings_have_the_published_figures(data_dir):
    text = recorded(data_dir / "self_bias_recorded", n_resamples=20)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    human = [row for row in rows if row[0] == "gpt-3.5-turbo" and len(row) == 5]
    assert [row[2] for row in human] == ["19.60 / 0.803", "21.86 / 0.885"]
    pairs = [row for row in rows if len(row) == 8 and row[1].endswith("-en")]
    assert len(pairs) == 16
    for row in pairs:
        first, last = (float(x) for x in re.findall(r"-?\d+\.\d+", row[3]))
        assert first < last  # the bias rises in every recorded loop
    assert {row[2] for row in pairs} == {"5", "10"}
    commongen = [row for row in rows if len(row) == 11 and row[1] in ("0", "10")]
    assert [row[3] for row in commongen] == ["0.02 (0.02)", "0.20 (0.20)"]  # with the published figures
    assert [row[6].split(" / ")[0] for row in commongen] == ["0.01", "0.51"]
    assert [row[2] for row in commongen] == ["0.03 (0)", "0.73 (3)"]
    assert [row[5].split(" / ")[0] for row in commongen] == ["0.01", "0.53"]  # without the 3 unreadable answers


def test_most_answers_on_missing_concepts_are_read(data_dir):
    unread = unreadable_answers(data_dir / "self_bias_recorded")
    assert len(unread) == 5  # of 1,100: lists with a comment, and prompts written again


@pytest.mark.slow
def test_the_loops_of_the_embedded_model_run(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic, "ITEMS", 4)
    monkeypatch.setattr(synthetic, "REFINEMENTS", 2)
    monkeypatch.setattr(synthetic, "RATED", 24)
    text = synthetic_section(0, tmp_path, 4)
    assert "| true quality |" in text
    assert "On 2 other items" in text
    assert (tmp_path / "judged.png").exists()
    assert (tmp_path / "sides.png").exists()
