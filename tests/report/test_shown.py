"""Tables and the scatter, as a user sees them."""

import math

import numpy as np
import pytest
from commands import printed
from fakes import FormulaLM, items
from matplotlib import image

from evalbias.evaluation.likelihood import compare_likelihood_bias, measure_likelihood_bias
from evalbias.measures import ConfidenceInterval, LikelihoodBias
from evalbias.programs import Criterion, PointwiseJudge
from evalbias.report.scatter import likelihood_scatter
from evalbias.report.tables import comparison_table, coverage_note, mark, measurement_table

C = Criterion("quality", "is it good?")


@pytest.fixture(scope="module")
def measured():
    examples = items(80, 3)
    return [measure_likelihood_bias(PointwiseJudge(C), examples, lm=FormulaLM(bias=b)) for b in (1.0, 0.1)]


def test_a_measurement_says_what_is_undefined():
    interval = ConfidenceInterval(-0.1, 0.2, 0.05, 100, 0)
    text = printed(measurement_table({"wit": LikelihoodBias(math.nan, 0.5, 7, 3)}, {"wit": interval}))
    row = next(line for line in text.splitlines() if "wit" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["wit", "undefined", "-0.10 to +0.20", "+0.50", "7", "3"]


def test_a_comparison_carries_the_papers_signs(measured):
    found = compare_likelihood_bias(*measured, n_resamples=999)
    row = next(line for line in printed(comparison_table(found)).splitlines() if "quality" in line)
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    c = found["quality"]
    assert cells[1] == f"{c.before.bias_score:+.2f} -> {c.after.bias_score:+.2f}*"
    assert cells[2:4] == [f"{c.bias_test.p_value:.5f}", f"{c.before.performance:+.2f} -> {c.after.performance:+.2f}*"]
    assert cells[5:] == ["80", "0"]
    assert [mark(p) for p in (0.049, 0.05, 0.059, 0.06, math.nan)] == ["*", "†", "†", "", ""]


def test_a_judge_that_hardly_answers_is_warned_of():
    note = coverage_note({"wit": [0.004, 0.006, math.nan], "style": [0.9, 0.95]})
    assert note.startswith("median coverage of the labels: wit 0.005, style 0.93.")
    assert "Scores on wit mean little" in note
    assert "mean little" not in coverage_note({"style": [0.9]})
    assert coverage_note({"wit": [math.nan]}) == ""


def test_the_scatter_shows_before_beside_after(measured, tmp_path):
    shown = {}
    for name, after in (("one", None), ("two", measured[1]), ("same", measured[0])):
        likelihood_scatter(measured[0], after, "quality", tmp_path / f"{name}.png")
        shown[name] = image.imread(tmp_path / f"{name}.png")[:, :, :3]
    assert shown["two"].shape[1] == 2 * shown["one"].shape[1]
    assert not np.array_equal(shown["two"], shown["same"])
    blue = shown["two"][:, :, 2] > shown["two"][:, :, 0] + 0.2
    half = blue.shape[1] // 2
    assert min(blue[:, :half].sum(), blue[:, half:].sum()) > 500
