"""Ready-made questions: aspects besides quality, style, several loops."""

import math

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.evaluation import Paraphrased, measure_aspects, measure_style, summarize_loop
from evalbias.evaluation.loops import Loop, LoopRun, run_loops
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import Step


class Length:
    """A model's own opinion: the longer, the better."""

    name, low, high = "length", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(float(min(20, len(output))), "")


class Vowels:
    """A metric on the same scale: two points for every vowel."""

    name, low, high = "vowels", 0.0, 20.0

    def __call__(self, example, output):
        return Feedback(2.0 * sum(output.count(v) for v in "aeiou") if output != "?" else math.nan, "")


def items(*outputs):
    return [dspy.Example(id=f"i{k}", output=text) for k, text in enumerate(outputs)]


def test_a_paraphrase_in_its_own_style_is_favored(tmp_path):
    lm = Scripted("a e xxxxxxxx", "o xxxxxxxxxxx", "i i xxxxxxxxx")
    report = measure_style(
        Paraphrased(Length()), items("aexx", "oixx", "iexx"), Vowels(), lm=lm, log_dir=tmp_path, n_resamples=200
    )
    assert report.before["bias"].value == pytest.approx(0.0)  # 4 letters against 2 vowels of 2 points
    own, expected = (report.after.columns[name] for name in ("scores", "expected"))
    assert own.tolist() == [12, 13, 13]
    assert expected.tolist() == [4, 2, 4]
    assert report.after["bias"].value == pytest.approx(np.mean(own - expected))
    assert report.change["bias"].difference.value > 0
    assert "Text: aexx\nParaphrase:" in lm.asked[0]
    again = Scripted("never")
    repeated = measure_style(
        Paraphrased(Length()), items("aexx", "oixx", "iexx"), Vowels(), lm=again, log_dir=tmp_path, n_resamples=200
    )
    assert again.asked == []
    assert repr(repeated.change["bias"]) == repr(report.change["bias"])  # its ends are NaN: three items are too few


def test_items_that_fail_are_reported():
    report = measure_style(
        Paraphrased(Length()),
        [*items("aexx", "oixx"), dspy.Example(id="bare")],
        Vowels(),
        lm=Scripted("aaaa"),
        n_resamples=20,
    )
    assert "KeyError" in report.failed["bare"]
    assert (report.after["bias"].n, report.after["bias"].undefined) == (2, 1)
    with pytest.raises(ValueError, match="No item came through"):
        measure_style(Paraphrased(Length()), [dspy.Example(id="bare")], Vowels(), lm=Scripted("a"))


def test_aspects_round_by_round():
    def steps(*texts):
        return tuple(Step(k, text, 0.0, "", True, "", 1, 1) for k, text in enumerate(texts))

    loops = (Loop("i0", steps("a", "aa")), Loop("i1", steps("a", "aaa")), Loop("i2", steps("?", "a")))
    (aspect,) = measure_aspects(LoopRun(loops, "own", 0, 1), items("", "", ""), [Vowels()], n_resamples=100)
    assert [measurement["score"].value for measurement in aspect.rounds] == [2, 4]
    change = aspect.change["score"]
    assert (change.after.value, change.before.value, change.difference.n, change.difference.undefined) == (5, 2, 2, 1)
    assert math.isnan(aspect.rounds[1]["score"].low)  # three items are too few for an interval


def test_a_loop_in_one_line():
    own, expected = [[1, 2, 3], [4, 5, 9]], [[1, 2, 3], [1, 2, 3]]
    loop = summarize_loop("m", own, expected, numbers=[0, 10], n_resamples=100, seed=0)
    assert loop.numbers == (0, 10)
    assert [measurement["bias"].value for measurement in loop.rounds] == [0, 4]
    assert (loop.change["bias"].after.value, loop.change["bias"].before.value) == (4, 0)


def test_any_module_that_tells_its_steps_is_a_loop():
    run = run_loops(Paraphrased(Length()), items("ab"), lm=Scripted("abcd"))
    assert [s.output for s in run.loops[0].steps] == ["ab", "abcd"]
    assert (run.feedback, run.low, run.high) == ("length", 0, 20)
