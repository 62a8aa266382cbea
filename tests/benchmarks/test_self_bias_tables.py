"""The self-bias benchmark: figures of the recorded loops, and loops of the embedded model."""

import re

import pytest

from benchmarks.self_bias import synthetic
from benchmarks.self_bias.__main__ import synthetic as synthetic_section
from benchmarks.self_bias.recorded import recorded, unreadable_answers


@pytest.mark.slow
def test_the_recordings_have_the_published_figures(data_dir):
    text = recorded(data_dir / "self_bias_recorded", n_resamples=20)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    human = [row for row in rows if row[0] == "gpt-3.5-turbo" and len(row) == 5]
    assert [row[2] for row in human] == ["19.60 / 0.803", "21.86 / 0.885"]
    best = {row[0]: row[1:3] for row in rows if row[0] in ("1", "4", "8", "16", "32")}
    for ours, published in best.values():
        bias, skewness = (float(x) for x in ours.split(" / "))
        assert (bias, skewness) == pytest.approx(tuple(map(float, published.split(" / "))), abs=0.055)
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
