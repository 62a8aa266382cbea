"""Loops over many items: arrays, failures, and going on after a kill."""

import json
import math

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.data.loops import recorded_loop
from evalbias.evaluation.loops import CachedScorer, run_loops
from evalbias.measures import self_bias
from evalbias.programs.concepts import ExactConcepts
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import Improvement, SelfRefine
from evalbias.programs.tasks import check_items, constrained_generation, mathematics_refiner, translation
from evalbias.programs.writing import PlainPredict
from evalbias.runs import Journal


class Number:
    name, low, high = "number", 0.0, 10.0

    def __call__(self, example, output):
        if "boom" in output:
            raise RuntimeError("the scorer is down")
        return Feedback(float(output.split()[-1]) if output[-1].isdigit() else math.nan, "said", status="")


class Always(Number):
    name = "always five"

    def __call__(self, example, output):
        return Feedback(5.0, "")


class Half(Number):
    name = "half of it"

    def __call__(self, example, output):
        return Feedback(super().__call__(example, output).score / 2, "")


def items(n):
    return [dspy.Example(id=f"x{k}", source=f"s{k}").with_inputs("source") for k in range(n)]


def program(*texts, iterations=2):
    loop = SelfRefine(
        PlainPredict("source -> output"),
        Number(),
        PlainPredict("source, draft, feedback -> output"),
        max_iterations=iterations,
    )
    lm = Scripted(*texts)
    loop.set_lm(lm)
    return loop, lm


def test_arrays_carry_the_accepted_output_on():
    loop, _ = program("a 3", "b 5", "c 4", "d 2", "e 1", "f 6")
    run = run_loops(loop, items(2))
    assert run.own().tolist() == [[3, 2], [5, 2], [5, 6]]
    assert run.quality(items(2), Half()).tolist() == [[1.5, 1], [2.5, 1], [2.5, 3]]
    assert run.tokens().tolist() == [10, 20, 30]
    assert run.iterations == 2
    assert run.calls().tolist() == [1, 2, 3]
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


def test_a_log_is_of_one_loop(tmp_path):
    loop, _ = program("a 3", "b 4", "c 5")
    run_loops(loop, items(1), log_dir=tmp_path)
    loop.max_iterations = 3
    with pytest.raises(ValueError, match="holds a run with other settings"):
        run_loops(loop, items(1), log_dir=tmp_path)
    loop.max_iterations, loop.accept = 2, Improvement(1.0)
    with pytest.raises(ValueError, match="holds a run with other settings"):
        run_loops(loop, items(1), log_dir=tmp_path)


def test_a_folder_with_files_of_ones_own_is_no_log(tmp_path):
    (tmp_path / "steps.jsonl").write_text('{"my": "precious line"}')
    loop, _ = program("a 3", "b 4", "c 5")
    with pytest.raises(ValueError, match=r"holds files of no run, such as steps\.jsonl: choose a new folder"):
        run_loops(loop, items(1), log_dir=tmp_path)
    assert (tmp_path / "steps.jsonl").read_text() == '{"my": "precious line"}'


def test_every_output_is_scored_once_and_errors_are_reported(tmp_path):
    class Counting(Half):
        asked = 0

        def __call__(self, example, output):
            self.asked += 1
            return super().__call__(example, output)

    loop, _ = program("a 3", "b 5", "c 4", "d 2", "boom 1", "f 1", iterations=2)
    loop.accept = lambda before, after: True
    loop.feedback = Always()
    run = run_loops(loop, items(2))
    source = Counting()
    scorer = CachedScorer(source, tmp_path / "log/quality.jsonl")
    found = run.quality(items(2), scorer)
    assert found[:, 0].tolist() == [1.5, 2.5, 2]
    assert np.isnan(found[1, 1])
    assert found[[0, 2], 1].tolist() == [1, 0.5]
    assert scorer.failed == {"x1": "RuntimeError: the scorer is down"}
    assert source.asked == 6
    source = Counting()
    again = CachedScorer(source, tmp_path / "log/quality.jsonl")
    assert np.array_equal(run.quality(items(2), again), found, equal_nan=True)
    assert source.asked == 1  # only what had failed
    other = CachedScorer(Always(), tmp_path / "log/quality.jsonl")
    assert run.quality(items(2), other)[0].tolist() == [5, 5]  # another source's scores are not taken for its own


def test_another_item_of_the_same_id_is_run(tmp_path):
    loop, lm = program("a 3", "b 4", "c 5", "d 6", "e 7", "f 8")
    run_loops(loop, items(1), log_dir=tmp_path)
    (other,) = items(1)
    other.source = "something else"
    again, lm = program("d 6", "e 7", "f 8")
    assert run_loops(again, [other], log_dir=tmp_path).own()[:, 0].tolist() == [6, 7, 8]
    assert len(lm.asked) == 3


def test_bad_items():
    loop, _ = program("a 1")
    with pytest.raises(
        ValueError, match="Item 0 has no id: give each item its own, because a stopped run is resumed by id"
    ):
        run_loops(loop, [dspy.Example(source="s"), dspy.Example(id=1, source="t")])
    with pytest.raises(ValueError, match="Two items have the id 'x0': give each item its own"):
        run_loops(loop, items(1) * 2)
    with pytest.raises(ValueError, match="'x0' has no 'target_language': the task translation needs it"):
        check_items(translation(), items(1))


def test_the_recorded_concepts_by_themselves_and_by_their_letters(data_dir):
    found = recorded_loop(data_dir / "self_bias_recorded/commongen/gpt-3.5-turbo.jsonl.gz")
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


def test_a_mathematics_refiner_is_told_the_vote():
    task = mathematics_refiner(max_iterations=1, paths=3)
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


def test_items_have_64_digits_and_logs_with_16_go_on(tmp_path):
    first, lm = program("a 3", "b 4", "c 5")
    run = run_loops(first, items(1), log_dir=tmp_path)
    quality = run.quality(items(1), CachedScorer(Half(), tmp_path / "quality.jsonl"))
    for name, required in (("steps.jsonl", "steps"), ("quality.jsonl", "score")):
        records = Journal(tmp_path / name).read("item", required)
        assert {len(record["item"]) for record in records} == {64}
        (tmp_path / name).unlink()
        for record in records:
            Journal(tmp_path / name).append([{**record, "item": record["item"][:16]}])
    again, lm = program("d 6", "e 7", "f 8")
    found = run_loops(again, items(2), log_dir=tmp_path)
    assert found.loops[0] == run.loops[0]
    assert len(lm.asked) == 3  # only the new item
    scorer = CachedScorer(Half(), tmp_path / "quality.jsonl")
    scorer.source = Always()
    assert np.array_equal(run.quality(items(1), scorer), quality)  # nothing is scored again
    assert len(Journal(tmp_path / "steps.jsonl").read("item")) == 2
