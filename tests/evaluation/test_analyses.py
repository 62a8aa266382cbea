"""Ready-made questions: aspects besides quality, style, several loops."""

import math

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.evaluation import Paraphrased, measure_aspects, measure_style, summarize_loop
from evalbias.evaluation.loops import Loop, LoopRun, run_loops
from evalbias.programs.feedback import Feedback
from evalbias.programs.refine_step import Step


class Length:
    """A model's own opinion: the longer, the better."""

    name, low, high = "length", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), "")


class Vowels:
    name, low, high = "vowels", 0.0, 10.0

    def __call__(self, example, output):
        return Feedback(float(sum(output.count(v) for v in "aeiou")) if output != "?" else math.nan, "")


def items(*outputs):
    return [dspy.Example(id=f"i{k}", output=text) for k, text in enumerate(outputs)]


def test_a_paraphrase_in_its_own_style_is_favored(tmp_path):
    lm = Scripted("a e xxxxxxxx", "o xxxxxxxxxxx", "i i xxxxxxxxx")
    found = measure_style(
        Paraphrased(Length()), items("aexx", "oixx", "iexx"), Vowels(), lm=lm, log_dir=tmp_path, n_resamples=200
    )
    assert found.before.found.bias == pytest.approx(0.0)  # 4 of 20 against 2 of 10
    assert found.own[1].tolist() == pytest.approx([12 / 20, 13 / 20, 13 / 20])
    assert found.worth[1].tolist() == pytest.approx([0.2, 0.1, 0.2])
    assert found.after.found.bias == pytest.approx(np.mean(found.own[1] - found.worth[1]))
    assert found.bias.statistic_a > found.bias.statistic_b
    assert "Text: aexx\nParaphrase:" in lm.asked[0]
    again = Scripted("never")
    repeated = measure_style(
        Paraphrased(Length()), items("aexx", "oixx", "iexx"), Vowels(), lm=again, log_dir=tmp_path, n_resamples=200
    )
    assert again.asked == []
    assert repeated.bias == found.bias


def test_items_that_fail_are_reported():
    found = measure_style(
        Paraphrased(Length()),
        [*items("aexx", "oixx"), dspy.Example(id="bare")],
        Vowels(),
        lm=Scripted("aaaa"),
        n_resamples=20,
    )
    assert "KeyError" in found.failed["bare"]
    assert found.after.found.n == 2
    with pytest.raises(ValueError, match="No item came through"):
        measure_style(Paraphrased(Length()), [dspy.Example(id="bare")], Vowels(), lm=Scripted("a"))


def test_aspects_round_by_round():
    def steps(*texts):
        return tuple(Step(k, text, 0.0, "", True, "", 1, 1) for k, text in enumerate(texts))

    loops = (Loop("i0", steps("a", "aa")), Loop("i1", steps("a", "aaa")), Loop("i2", steps("?", "a")))
    (aspect,) = measure_aspects(LoopRun(loops, "own", 0, 1), items("", "", ""), [Vowels()], n_resamples=100)
    assert aspect.means == (1, 2)
    assert aspect.undefined == 1
    assert (aspect.test.statistic_a, aspect.test.statistic_b, aspect.test.n) == (2.5, 1, 2)
    assert aspect.intervals[1].low <= 2 <= aspect.intervals[1].high


def test_a_loop_in_one_line():
    own, expected = [[1, 2, 3], [4, 5, 9]], [[1, 2, 3], [1, 2, 3]]
    found = summarize_loop("m", own, expected, numbers=[0, 10], n_resamples=100, seed=0)
    assert [(r.number, r.found.bias) for r in found.rounds] == [(0, 0), (10, 4)]
    assert (found.bias.statistic_a, found.bias.statistic_b) == (4, 0)


def test_any_module_that_tells_its_steps_is_a_loop():
    run = run_loops(Paraphrased(Length()), items("ab"), lm=Scripted("abcd"))
    assert [s.output for s in run.loops[0].steps] == ["ab", "abcd"]
    assert (run.feedback, run.low, run.high) == ("length", 0, 20)
