"""Compiling a refine loop under external feedback."""

import math

import dspy
import numpy as np
import pytest
from models_of_text import Letters, refine_loop

from evalbias.evaluation.judged import Asking, Judged
from evalbias.optimizers.refine import ExternalFeedbackRefine, quality_rule
from evalbias.programs.feedback import Feedback, required_field
from evalbias.programs.loops import Improvement
from evalbias.values import to_json


def items(n, start=0):
    return [dspy.Example(id=f"i{k}", source=f"s{k}", letter="a") for k in range(start, start + n)]


OWN = ("ab", "aabb", "aabbcc", "aabbccdd")  # quality 1, 2, 2, 2: longer and longer, no better
EXTERNAL = ("ab", "aab", "aaab", "aaaab")  # quality 1, 2, 3, 4


def compiler(feedback=None, **options):
    settings = {"n_resamples": 50, "select": False, **options}
    return ExternalFeedbackRefine(feedback or Letters(), **settings)


def test_the_loop_stops_where_its_quality_does_and_learns_what_was_accepted():
    student = refine_loop(*OWN * 2, *EXTERNAL * 2, "aaab", "aaaabb", "a", "b")
    compiled = compiler(k=1).compile(student, trainset=items(2))
    report = compiled.report
    own = report.own
    assert own.quality == (1, 2, 2, 2)
    assert report.external.quality == (1, 2, 3, 4)
    assert report.shown.quality == (3, 4, 4, 4)
    assert report.iterations == compiled.max_iterations == 1
    assert student.max_iterations == 3
    # own: 2, 4, 6, 8 against 1, 2, 2, 2
    assert [s["bias"].value for s in own.rounds] == pytest.approx([1, 2, 4, 6])
    assert [s["bias"].value for s in report.external.rounds] == pytest.approx([0] * 4)
    assert (own.tokens, own.calls) == ((10, 20, 30, 40), (1, 2, 3, 4))
    assert (report.items, report.calls, report.comparison) == (2, 20, {})
    assert (report.cost.calls, report.chosen) == (20, "1 refinement, 1 demonstration")
    assert report.demonstrations == ("i0",)
    (demo,) = compiled.generate.predict.demos
    assert (demo.source, demo.output) == ("s0", "aaaab")
    (step,) = compiled.refine.predict.demos
    assert (step.draft, step.feedback, step.output) == ("aaab", "3 of them", "aaaab")
    assert student.generate.predict.demos == []


def test_demonstrations_that_do_not_help_are_left_out():
    student = refine_loop(*OWN * 2, *EXTERNAL * 2, "b", "bb", "bbb", "bbbb")
    compiled = compiler(k=1).compile(student, trainset=items(2))
    assert compiled.report.shown.quality == (0, 0, 0, 0)
    assert compiled.report.demonstrations == ()
    assert compiled.generate.predict.demos == []
    assert compiled.max_iterations == 1


def test_validation_is_on_other_items_and_tested():
    texts = [*OWN * 6, *EXTERNAL * 6, *("aaaa", "aaaab", "b", "b") * 5]
    student = refine_loop(*texts, *OWN * 6, *["aaaa"] * 6)
    compiled = compiler(n_resamples=200, k=1).compile(student, trainset=items(6), valset=items(6, start=6))
    found = compiled.report.comparison["self"]
    quality, bias = found["quality"], found["bias"]
    assert (quality.before.value, quality.after.value) == (2, 4)
    assert found.cost == {"tokens": (40, 10), "calls": (4, 1)}  # with demonstrations no loop is needed
    assert (bias.before.value, bias.after.value) == (6, 0)  # 8 against 2, then 4 against 4
    assert quality.p_value < 0.1
    assert quality.difference.n == 6
    assert compiled.report.cost.calls == compiled.report.calls + 6 * 4 + 6
    assert compiled.report.failed == {}


def test_a_budget_a_log_and_a_saved_program(tmp_path):
    first = refine_loop(*(*OWN, *EXTERNAL) * 2, "aaaa", "aaaab", "b", "b")
    made = compiler(budget=20, log_dir=tmp_path / "log")
    compiled = made.compile(first, trainset=items(5))
    assert (compiled.report.items, compiled.report.calls) == (2, 20)  # 8 an item, and 4 for what is shown
    assert len(first.generate.predict.lm.asked) == 20
    again = refine_loop("never asked")
    assert repr(made.compile(again, trainset=items(5)).report) == repr(compiled.report)  # NaN is not equal to itself
    assert again.generate.predict.lm.asked == []
    other = refine_loop("a", iterations=5)
    with pytest.raises(ValueError, match="holds a run with other settings"):
        made.compile(other, trainset=items(5))
    compiled.set_lm(None)
    compiled.save(str(tmp_path / "program.json"))
    other.load(str(tmp_path / "program.json"))
    assert other.max_iterations == compiled.max_iterations == 0
    assert other.generate.predict.demos[0]["output"] == "aaaab"


def test_a_missing_reference_is_reported_by_its_item_and_the_rest_goes_on():
    class Wanting(Letters):
        def __call__(self, example, output):
            required_field("letters", example, "letter")
            return super().__call__(example, output)

    three = [*items(2), dspy.Example(id="bare", source="s")]
    student = refine_loop(*OWN * 3, *EXTERNAL * 2, "ab")
    report = compiler(Wanting(), k=0).compile(student, trainset=three).report
    assert "'bare' has no 'letter'" in report.external.failed["bare"]
    assert "has no 'letter'" in report.own.failed["bare"]
    assert report.own.quality == (1, 2, 2, 2)


class Hard(Letters):  # says nothing of an output without a letter to count
    name = "hard"

    def __call__(self, example, output):
        return super().__call__(example, output) if "?" not in output else Feedback(math.nan, "", status="unreadable")


def test_what_leaves_outputs_undefined_is_not_chosen_for_its_mean():
    # without refinement half of the outputs are undefined and the other half good; the refinement mends the first half
    student = refine_loop("??", "aaa", "aaaaa", "aaaaa", *("a", "a") * 2, iterations=1)
    compiled = compiler(Hard(), k=0).compile(student, trainset=items(2))
    own = compiled.report.own
    assert own.quality == (5, 4)
    assert compiled.max_iterations == 1
    # shown good examples, the generator leaves the hard item undefined: the demonstrations are left out
    texts = [*("a", "a") * 3, *("a", "aa") * 3, *("aaaa", "??", "??", "??")]
    student = refine_loop(*texts, iterations=1)
    report = compiler(Hard(), k=1).compile(student, trainset=items(3)).report
    assert report.shown.quality[0] == 4
    assert report.demonstrations == ()


def test_a_margin_of_the_students_is_none_of_the_external_feedbacks():
    student = refine_loop(*OWN, *EXTERNAL)
    student.accept = Improvement(2.0)
    report = compiler(k=0).compile(student, trainset=items(1)).report
    assert report.external.quality == (1, 2, 3, 4)


def test_bad_input():
    with pytest.raises(ValueError, match="No item came through the loop"):
        compiler().compile(refine_loop(RuntimeError("down")), trainset=items(2))
    with pytest.raises(TypeError, match=r"lm='small' is a text whose provider DSPy does not know"):
        compiler().compile(refine_loop(*OWN), trainset=items(2), lm="small")
    for wrong in ({"k": -1}, {"budget": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            compiler(**wrong)
    twins = [dspy.Example(id=f"t{k}", source="s", letter="a") for k in range(2)]
    with pytest.raises(ValueError, match="1 inputs are in trainset and valset, the first 't1'"):
        compiler().compile(refine_loop(*OWN), trainset=twins[:1], valset=twins[1:])


def refined(quality, calls):
    answers = np.array(quality, dtype=float)
    return Judged(tuple(map(str, range(len(answers)))), "quality", answers, asked=Asking(judgments=calls))


def test_the_quality_of_loops_is_tested_by_swaps_and_adjusted_for_all_of_them():
    rule, given = quality_rule(n_resamples=4_000, seed=0), refined([3.0] * 4, 24)
    higher, lower = refined([4.0] * 4, 24), refined([2.0] * 4, 24)
    one_of_all = 1 / 2**4  # swaps of 4 equal differences
    assert rule.p_values([higher], given) == pytest.approx([one_of_all], abs=0.008)
    assert rule.p_values([lower], given) == pytest.approx([1 - one_of_all], abs=0.008)
    assert rule.p_values([given], given) == [0.5]
    assert rule.p_values([higher, higher], given) == pytest.approx([2 * one_of_all] * 2, abs=0.016)  # Holm
    assert np.isnan(rule.p_values([refined([np.nan] * 4, 24)], given)).all()
    half = refined([np.nan, 2.0, 5.0], 7)
    assert rule.costs(half) == (-3.5, 7.0)
    assert [one.unanswered for one in (half, refined([1.0] * 3, 9))] == [1, 0]
    assert rule.estimates(half)["quality"].value == 3.5


@pytest.mark.parametrize(
    ("refined", "better"), [("bbbbbb", True), pytest.param("aaaabb", False, marks=pytest.mark.slow)]
)
def test_a_loop_is_taken_only_if_its_quality_is_better_on_other_items(refined, better, tmp_path):
    n = 16
    own = ("aa", refined) * (n // 2)  # the refinement is longer, and worse in one case
    external = ("aa", "aaa") * (n // 2)
    held = ("aa", refined) * (n // 2), (("aa",) if better else ("aa", refined)) * (n // 2)
    student = refine_loop(*own, *external, *held[0], *held[1], iterations=1)
    optimizer = ExternalFeedbackRefine(Letters(), k=0, n_resamples=500, log_dir=tmp_path)
    compiled = optimizer.compile(student, trainset=items(n))
    report = compiled.report
    assert [t.chosen for t in report.candidates] == [not better, better]
    assert compiled.max_iterations == report.iterations == (0 if better else 1)
    assert report.candidates[0].cost.calls == 16
    # p of 8 equal differences: 2 of 2^8 swaps are as extreme, one-sided 1 of 256
    expected = 1 / 256 if better else 0.5
    assert report.candidates[1].p_value == pytest.approx(expected, abs=0.005)
    assert {file.name for file in tmp_path.glob("held-back-*")} == {"held-back-1", "held-back-2"}
    again = optimizer.compile(refine_loop("never asked", iterations=1), trainset=items(n))
    assert to_json(again.report) == to_json(report)
