"""Loops over many items: arrays, failures, and going on after a kill."""

import itertools
import json
import math

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.data.refinements import load_refinements
from evalbias.measures import self_bias
from evalbias.programs.feedback import ExactConcepts, Feedback
from evalbias.programs.loops import loop_bias, run_loops
from evalbias.programs.plain import Plain
from evalbias.programs.refine import SelfRefine
from evalbias.programs.tasks import check_items, constrained_generation, mathematics, translation


class Number:
    name, low, high = "number", 0.0, 10.0

    def __call__(self, example, output):
        if "boom" in output:
            raise RuntimeError("the scorer is down")
        return Feedback(float(output.split()[-1]) if output[-1].isdigit() else math.nan, "said", status="")


class Half(Number):
    name = "half of it"

    def __call__(self, example, output):
        return Feedback(super().__call__(example, output).score / 2, "")


def items(n):
    return [dspy.Example(id=f"x{k}", source=f"s{k}").with_inputs("source") for k in range(n)]


def program(*texts, iterations=2):
    loop = SelfRefine(
        Plain("source -> output"), Number(), Plain("source, draft, feedback -> output"), max_iterations=iterations
    )
    lm = Scripted(*texts)
    loop.set_lm(lm)
    return loop, lm


def test_arrays_carry_the_accepted_output_on():
    loop, _ = program("a 3", "b 5", "c 4", "d 2", "e 1", "f 6")
    run = run_loops(loop, items(2))
    assert run.own().tolist() == [[3, 2], [5, 2], [5, 6]]
    assert run.worth(items(2), Half()).tolist() == [[1.5, 1], [2.5, 1], [2.5, 3]]
    assert run.tokens().tolist() == [10, 20, 30]
    assert run.iterations == 2
    steps = loop_bias(run, run.worth(items(2), Half()), n_resamples=20, seed=0)
    assert [s.found.bias for s in steps] == [1.25, 1.75, 2.75]
    assert run.failed == {}


def test_an_item_that_breaks_is_reported_and_the_rest_goes_on(tmp_path):
    loop, _ = program("a 3", "b 4", "c 5", "boom", "d 2", "e 3", "f 4")
    run = run_loops(loop, items(3), log_dir=tmp_path)
    assert run.failed == {"x1": "RuntimeError: the scorer is down"}
    assert np.isnan(run.own()[:, 1]).all()
    assert run.own()[-1, [0, 2]].tolist() == [5, 4]
    assert [json.loads(x)["id"] for x in (tmp_path / "steps.jsonl").read_text().splitlines()] == ["x0", "x2"]
    again, lm = program("g 7", "h 8", "i 9")
    later = run_loops(again, items(3), log_dir=tmp_path)
    assert len(lm.asked) == 3  # only the broken item
    assert later.own()[-1].tolist() == [5, 9, 4]


def test_a_stopped_run_goes_on(tmp_path):
    class Stop(BaseException):
        pass

    seen = []

    def stop(_):
        seen.append(1)
        if len(seen) == 2:
            raise Stop

    texts = [f"t {k}" for k in range(1, 10)]
    whole, _ = program(*texts)
    expected = run_loops(whole, items(3))
    first, lm = program(*texts)
    with pytest.raises(Stop):
        run_loops(first, items(3), log_dir=tmp_path, progress=stop)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"id": "x2", "torn')
    rest, lm = program(*texts[6:])
    found = run_loops(rest, items(3), log_dir=tmp_path)
    assert len(lm.asked) <= 3
    assert found == expected


def test_undefined_scores_survive_the_log(tmp_path):
    loop, _ = program("a", "b", "c", iterations=1)
    first = run_loops(loop, items(1), log_dir=tmp_path)
    again = run_loops(loop, items(1), log_dir=tmp_path)
    assert math.isnan(first.own()[0, 0])
    assert math.isnan(again.own()[0, 0])
    assert "NaN" not in (tmp_path / "steps.jsonl").read_text()


def test_bad_items():
    loop, _ = program("a 1")
    with pytest.raises(ValueError, match="id of its own"):
        run_loops(loop, [dspy.Example(source="s"), dspy.Example(id=1, source="t")])
    with pytest.raises(ValueError, match="id of its own"):
        run_loops(loop, items(1) * 2)
    with pytest.raises(ValueError, match="'x0' has no 'target_language': the task translation needs it"):
        check_items(translation(), items(1))


def _said(row):
    return row["output"], row["feedback_text"]


@pytest.mark.parametrize(
    ("file", "unreadable"), [("gpt-3.5-turbo__yor-en.jsonl", 2), ("deepseek_moe__yor-en.jsonl.gz", 1)]
)
def test_the_recorded_translations_go_through_the_real_program(data_dir, file, unreadable):
    """The recording's texts answer the program's own prompts: what it accepts is what was recorded."""
    found = load_refinements(data_dir / "self_bias_recorded/mt" / file)
    last, differ = max(found.numbers), 0
    for item in found.ids:
        rows = [found.records[k][item] for k in found.numbers]
        recorded = [_said(after) != _said(before) for before, after in itertools.pairwise(rows)]
        texts = [text for row in rows for text in _said(row)]
        loop = translation(max_iterations=last).loop
        loop.perfect = None
        loop.set_lm(Scripted(*[t or " " for t in texts]))
        steps = loop(source=rows[0]["source"], target_language="English").steps
        assert steps[0].output == rows[0]["output"].strip()
        differ += [step.accepted for step in steps[1:]] != recorded
    # feedback that names no severity, or breaks off in its first quotation: counting substrings called that perfect
    assert differ == unreadable


def test_the_recorded_concepts_by_themselves_and_by_their_letters(data_dir):
    found = load_refinements(data_dir / "self_bias_recorded/commongen/gpt-3.5-turbo.jsonl.gz")
    exact = ExactConcepts()
    own, truth = [], []
    for number in found.numbers:
        records = found.records[number].values()
        truth.append(np.mean([exact(r, r["output"]).score for r in records]))
        told = [r.get("self_all_covered") for r in records]
        own.append(np.mean([t for t in told if t is not None] or [math.nan]))
    assert len(own) == 11
    assert own[-1] > truth[-1]  # it believes to have covered what it did not
    assert self_bias(own, truth) > 0


def test_mathematics_asks_every_path():
    task = mathematics(max_iterations=1, paths=3)
    lm = Scripted(r"\boxed{5}", r"\boxed{4}", r"\boxed{4}", r"\boxed{6}", r"so \boxed{4}", *[r"\boxed{4}"] * 3)
    task.loop.set_lm(lm)
    found = task.loop(source="2+2", answer="4")
    assert (found.score, found.stopped) == (1, "iterations")
    assert "most paths end in \\boxed{4}" in lm.asked[4]
    assert task.external({"answer": "4"}, found.output).score == 1
    assert not any("answer" in prompt.lower().split("\n")[0] for prompt in lm.asked)


def test_concepts_are_asked_for_again():
    task = constrained_generation(max_iterations=2)
    lm = Scripted("A dog.", "run", "A dog runs.", "none")
    task.loop.set_lm(lm)
    found = task.loop(concepts=["dog", "run"])
    assert (found.output, found.score, found.stopped) == ("A dog runs.", 1, "perfect")
    assert "Concepts: dog, run\nDraft: A dog.\nFeedback: missing: run" in lm.asked[2]
