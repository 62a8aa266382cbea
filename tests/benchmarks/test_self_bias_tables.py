"""The self-bias benchmark: figures of the recorded loops, and loops of the embedded model."""

import math
import re
from types import SimpleNamespace

import dspy
import pytest

from benchmarks import commongen
from benchmarks import self_bias as synthetic
from benchmarks.self_bias import first_to_last, recorded, unreadable_answers
from benchmarks.self_bias import synthetic as synthetic_section
from tests.models_of_text import Seeded


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


def test_an_undefined_number_of_a_loop_is_called_so():
    rounds = [{"skewness": SimpleNamespace(value=value)} for value in (math.nan, 0.25, 0.5)]
    assert first_to_last(SimpleNamespace(rounds=rounds), "skewness") == "undefined -> 0.50"


def content_writer(request):
    """Cover one concept more of those that the feedback misses, and believe that nothing is missing."""
    last = request.messages[-1].text
    if last.endswith("Missing:"):
        return "none"
    draft = re.search(r"Draft: (.*)", last)
    missing = re.search(r"Feedback: missing: (\w+)", last)
    return f"{draft[1]} {missing[1]}" if missing else "cat"


def test_a_model_that_believes_itself_gains_by_the_true_list_of_missing_concepts_alone():
    concepts = ["cat", "dog", "snow", "wall", "tool"]
    items = [dspy.Example(id=str(n), concepts=concepts[: 4 + (n == 0)]) for n in range(6)]
    made = commongen.arms(Seeded(content_writer), items, refinements=2, max_tokens=20, seed=0, threads=2, out=None)
    own, greedy, external = (arm.row(0) for arm in made)
    assert [made[0].name, greedy[0]] == ["own", "own, greedy"]
    assert own[1:] == greedy[1:]  # this model answers alike at any temperature
    assert own[1:6] == ["1.00 -> 1.00 (0, 0)", "0.00 -> 0.00", "1.00 -> 1.00", "1.00 -> 1.00", "0.24 -> 0.24"]
    assert external[1:6] == ["1.00 -> 1.00 (0, 0)", "0.00 -> 0.00", "1.00 -> 1.00", "1.00 -> 1.00", "0.24 -> 0.72"]
    assert external[6].startswith("The loop improves its outputs by +0.48 points of share of the concepts")
    assert [len(arm.run.loops[0].steps) for arm in made] == [1, 1, 3]  # a loop that believes all covered stops
