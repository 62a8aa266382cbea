"""Compiling a refine loop under external feedback."""

import dspy
import pytest
from models_of_text import Scripted

from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.feedback import Feedback
from evalbias.programs.plain import Plain
from evalbias.programs.refine import SelfRefine


class Flattering:
    """Thinks that what is longer is better: the loop's own feedback."""

    name, low, high = "length", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), f"length {len(output)}")


class Letters:
    """Counts the letter that the item wants."""

    name, low, high = "letters", 0.0, 10.0

    def __call__(self, example, output):
        return Feedback(float(min(10, output.count(example["letter"]))), f"{output.count(example['letter'])} of them")


def items(n, start=0):
    return [dspy.Example(id=f"i{k}", source=f"s{k}", letter="a") for k in range(start, start + n)]


def loop(*texts, iterations=3):
    program = SelfRefine(
        Plain("source -> output"), Flattering(), Plain("source, draft, feedback -> output"), max_iterations=iterations
    )
    program.set_lm(Scripted(*texts))
    return program


OWN = ("ab", "aabb", "aabbcc", "aabbccdd")  # worth 1, 2, 2, 2: longer and longer, no better
EXTERNAL = ("ab", "aab", "aaab", "aaaab")  # worth 1, 2, 3, 4


def test_the_loop_stops_where_its_worth_does_and_learns_what_was_accepted():
    student = loop(*OWN * 2, *EXTERNAL * 2)
    compiled = ExternalFeedbackRefine(Letters(), k=1, n_resamples=50).compile(student, trainset=items(2))
    report = compiled.report
    assert report.own.worth == (1, 2, 2, 2)
    assert report.external.worth == (1, 2, 3, 4)
    assert report.iterations == compiled.max_iterations == 1
    assert student.max_iterations == 3
    # own: 2, 4, 6, 8 of 20 against 1, 2, 2, 2 of 10
    assert [s.found.bias for s in report.own.bias] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert [s.found.bias for s in report.external.bias] == pytest.approx([0] * 4)
    assert report.own.tokens == (10, 20, 30, 40)
    assert report.demonstrations == ("i0",)
    (demo,) = compiled.generate.predict.demos
    assert (demo.source, demo.output) == ("s0", "aaaab")
    (step,) = compiled.refine.predict.demos
    assert (step.draft, step.feedback, step.output) == ("aaab", "3 of them", "aaaab")
    assert student.generate.predict.demos == []


def test_validation_is_on_other_items_and_tested():
    texts = [*OWN * 6, *EXTERNAL * 6]
    student = loop(*texts, *OWN * 6, *("aaaa", "aaaab") * 6)
    compiled = ExternalFeedbackRefine(Letters(), n_resamples=200).compile(
        student, trainset=items(6), valset=items(6, start=6)
    )
    report = compiled.report
    assert (report.before, report.after) == (2, 4)
    assert report.test.p_value < 0.1
    assert report.test.n == 6


def test_a_loop_that_never_improves_is_compiled_to_none():
    compiled = ExternalFeedbackRefine(Letters(), n_resamples=20).compile(
        loop(*("aaaa", "a", "a", "a") * 4), trainset=items(2)
    )
    assert compiled.max_iterations == 0
    assert compiled.report.demonstrations == ()
    assert compiled.generate.predict.demos == []


def test_a_budget_a_log_and_a_saved_program(tmp_path):
    first = loop(*OWN, *EXTERNAL)
    made = ExternalFeedbackRefine(Letters(), budget=1, n_resamples=20, log_dir=tmp_path / "log")
    compiled = made.compile(first, trainset=items(5))
    assert len(compiled.report.own.bias) == 4
    asked = len(first.generate.predict.lm.asked)
    again = made.compile(loop("never asked"), trainset=items(5))
    assert repr(again.report) == repr(compiled.report)  # NaN is not equal to itself
    assert asked == 8
    compiled.set_lm(None)
    compiled.save(str(tmp_path / "program.json"))
    other = loop("a")
    other.load(str(tmp_path / "program.json"))
    assert other.generate.predict.demos[0]["output"] == "aaaab"


def test_bad_input():
    made = ExternalFeedbackRefine(Letters())
    with pytest.raises(ValueError, match="0 training items"):
        made.compile(loop("a"), trainset=[])
    with pytest.raises(ValueError, match="1 of them in the valset"):
        made.compile(loop("a"), trainset=items(2), valset=items(1))
    with pytest.raises(ValueError, match="No item came through the loop"):
        made.compile(loop(RuntimeError("down")), trainset=items(2))
    with pytest.raises(ValueError, match="k=-1"):
        ExternalFeedbackRefine(Letters(), k=-1)
