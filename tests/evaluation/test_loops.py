"""Loops over many items: run and resumed, their self-bias round by round, other qualities, style, and two models."""

import math
from dataclasses import replace
from unittest import mock

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.evaluation import LoopScores, Paraphrased, compare_loops, measure_rounds, measure_style
from evalbias.evaluation.loops import CachedScorer, conclude_quality, conclude_self, run_loops, summarize_loop
from evalbias.programs.feedback import Feedback
from evalbias.programs.loops import Improvement, SelfRefine
from evalbias.programs.tasks import check_items, translation
from evalbias.programs.writing import PlainPredict
from evalbias.report.tables import self_bias_table
from evalbias.runs import Journal

NAN = math.nan
OWN, EXPECTED = [[4, 3, 5], [5, 4, 5]], [[3, 3, 3], [3, NAN, 4]]


class By:  # feedback that scores an output by a formula
    def __init__(self, name, score, high=10.0):
        self.name, self.score, self.low, self.high = name, score, 0.0, high

    def __call__(self, example, output):
        return Feedback(self.score(output), "said", status="")


def number(output):
    if "boom" in output:
        raise RuntimeError("the scorer is down")
    return float(output.split()[-1]) if output[-1].isdigit() else NAN


NUMBER, ALWAYS = By("number", number), By("always five", lambda _: 5.0)
HALF = By("half of it", lambda output: number(output) / 2)
LENGTH = By("length", lambda output: float(min(20, len(output))), high=20.0)  # a model's own opinion
VOWELS = By("vowels", lambda output: 2.0 * sum(map(output.count, "aeiou")) if output != "?" else NAN, high=20.0)


def items(n):
    return [dspy.Example(id=f"x{k}", source=f"s{k}").with_inputs("source") for k in range(n)]


def program(*texts, iterations=2):
    write, refine = PlainPredict("source -> output"), PlainPredict("source, draft, feedback -> output")
    loop = SelfRefine(write, NUMBER, refine, max_iterations=iterations)
    lm = Scripted(*texts)
    loop.set_lm(lm)
    return loop, lm


def test_arrays_carry_the_accepted_output_on():
    loop, _ = program("a 3", "b 5", "c 4", "d 2", "e 1", "f 6")
    run = run_loops(loop, items(2))
    assert run.own().tolist() == [[3, 2], [5, 2], [5, 6]]
    assert run.quality(items(2), HALF).tolist() == [[1.5, 1], [2.5, 1], [2.5, 3]]
    assert run.tokens().tolist() == [10, 20, 30]
    assert run.iterations == 2
    assert run.calls().tolist() == [1, 2, 3]
    assert (run.failed, run.feedback, run.low, run.high) == ({}, "number", 0, 10)


def test_an_item_that_breaks_is_reported_and_the_rest_goes_on(tmp_path):
    loop, _ = program("a 3", "b 4", "c 5", "boom", "d 2", "e 3", "f 4")
    run = run_loops(loop, items(3), log_dir=tmp_path)
    assert run.failed == {"x1": "RuntimeError: the scorer is down"}
    assert np.isnan(run.own()[:, 1]).all()
    assert run.own()[-1, [0, 2]].tolist() == [5, 4]
    records = Journal(tmp_path / "steps.jsonl").read("id", "item")
    assert [(record["id"], len(record["item"])) for record in records] == [("x0", 64), ("x2", 64)]
    again, lm = program("g 7", "h 8", "i 9")
    later = run_loops(again, items(3), log_dir=tmp_path)
    assert len(lm.asked) == 3  # only the broken item
    assert later.own()[-1].tolist() == [5, 9, 4]


def test_a_stopped_run_goes_on(tmp_path):
    stop = mock.Mock(side_effect=[None, KeyboardInterrupt])
    texts = [f"t {k}" for k in range(1, 10)]
    whole, _ = program(*texts)
    expected = run_loops(whole, items(3))
    first, lm = program(*texts)
    with pytest.raises(KeyboardInterrupt):
        run_loops(first, items(3), log_dir=tmp_path, progress=stop)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"id": "x2", "torn')
    rest, lm = program(*texts[6:])
    found = run_loops(rest, items(3), log_dir=tmp_path)
    assert len(lm.asked) <= 3
    assert found == expected


def test_a_log_is_of_one_loop_and_keeps_undefined_scores(tmp_path):
    loop, _ = program("a", "b 4", "c 5")
    first, again = (run_loops(loop, items(1), log_dir=tmp_path) for _ in range(2))
    assert np.isnan([first.own()[0, 0], again.own()[0, 0]]).all()
    assert "NaN" not in (tmp_path / "steps.jsonl").read_text()
    for settings in ({"max_iterations": 3}, {"max_iterations": 2, "accept": Improvement(1.0)}):
        vars(loop).update(settings)
        with pytest.raises(ValueError, match="holds a run with other settings"):
            run_loops(loop, items(1), log_dir=tmp_path)


class Always(Improvement):
    def __call__(self, before, after):
        return True


class Counting(By):
    asked = 0

    def __call__(self, example, output):
        self.asked += 1
        return super().__call__(example, output)


def test_every_output_is_scored_once_and_errors_are_reported(tmp_path):
    loop, _ = program("a 3", "b 5", "c 4", "d 2", "boom 1", "f 1", iterations=2)
    loop.feedback, loop.accept = ALWAYS, Always()
    run = run_loops(loop, items(2))
    source = Counting(HALF.name, HALF.score)
    scorer = CachedScorer(source, tmp_path / "log/quality.jsonl")
    found = run.quality(items(2), scorer)
    assert found[:, 0].tolist() == [1.5, 2.5, 2]
    assert np.isnan(found[1, 1])
    assert found[[0, 2], 1].tolist() == [1, 0.5]
    assert scorer.failed == {"x1": "RuntimeError: the scorer is down"}
    assert source.asked == 6
    source = Counting(HALF.name, HALF.score)
    again = CachedScorer(source, tmp_path / "log/quality.jsonl")
    assert np.array_equal(run.quality(items(2), again), found, equal_nan=True)
    assert source.asked == 1  # only what had failed
    other = CachedScorer(ALWAYS, tmp_path / "log/quality.jsonl")
    assert run.quality(items(2), other)[0].tolist() == [5, 5]  # another source's scores are not taken for its own


def test_another_item_of_the_same_id_is_run(tmp_path):
    loop, _ = program("a 3", "b 4", "c 5")
    run_loops(loop, items(1), log_dir=tmp_path)
    other = items(1)[0].copy(source="something else")
    again, lm = program("d 6", "e 7", "f 8")
    assert run_loops(again, [other], log_dir=tmp_path).own()[:, 0].tolist() == [6, 7, 8]
    assert len(lm.asked) == 3


def test_bad_items():
    loop, _ = program("a 1")
    for wrong, match in (([dspy.Example(source="s"), *items(1)], "Item 0 has no id"), (items(1) * 2, "'x0'")):
        with pytest.raises(ValueError, match=match):
            run_loops(loop, wrong)
    with pytest.raises(ValueError, match="'x0' has no 'target_language'"):
        check_items(translation(), items(1))


def texts(*outputs):
    return [dspy.Example(id=f"i{k}", output=text) for k, text in enumerate(outputs)]


def test_a_paraphrase_in_its_own_style_is_favored(tmp_path):
    lm = Scripted("a e xxxxxxxx", "o xxxxxxxxxxx", "i i xxxxxxxxx")
    written = texts("aexx", "oixx", "iexx")

    def measured(lm):
        run = run_loops(Paraphrased(LENGTH), written, lm=lm, log_dir=tmp_path)
        return measure_style(run, written, CachedScorer(VOWELS), n_resamples=200)

    report = measured(lm)
    assert report.before["bias"].value == pytest.approx(0.0)  # 4 letters against 2 vowels of 2 points
    own, expected = (report.after.columns[name] for name in ("scores", "expected"))
    assert own.tolist() == [12, 13, 13]
    assert expected.tolist() == [4, 2, 4]
    assert report.after["bias"].value == pytest.approx(np.mean(own - expected))
    assert report.change["bias"].difference.value > 0
    assert "Text: aexx\nParaphrase:" in lm.asked[0]
    again = Scripted("never")
    repeated = measured(again)
    assert again.asked == []
    assert repr(repeated.change["bias"]) == repr(report.change["bias"])  # its ends are NaN: three items are too few


def test_items_that_fail_are_reported():
    given = [*texts("aexx", "oixx"), dspy.Example(id="bare")]
    run = run_loops(Paraphrased(LENGTH), given, lm=Scripted("aaaa"))
    report = measure_style(run.checked(), given, CachedScorer(VOWELS), n_resamples=20)
    assert "KeyError" in report.failed["bare"]
    assert (report.after["bias"].n, report.after["bias"].undefined) == (2, 1)
    with pytest.raises(ValueError, match="No item came through"):
        run_loops(Paraphrased(LENGTH), [dspy.Example(id="bare")], lm=Scripted("a")).checked()


def scores(name, items, own, expected, numbers=(0,)):
    return LoopScores(name, numbers, tuple(items), np.array(own, dtype=float), np.array(expected, dtype=float))


def test_pairs_are_of_the_items_that_both_have_and_define():
    first = scores("a", "pqrs", [[5, 4, 3, 2]], [[1, 1, 1, NAN]])  # differences 4, 3, 2, undefined
    second = scores("b", "srqx", [[9, 7, 9, 0]], [[1, 1, 3, 0]])  # differences 8, 6, 6, 0
    (pair,) = compare_loops([first, second], n_resamples=10, seed=0)
    bias = pair.comparison["bias"]
    assert (pair.first, pair.second, pair.items, bias.after.n) == ("a", "b", 3, 2)  # q and r; s is undefined in a
    assert (bias.before.value, bias.after.value, bias.difference.value) == (2.5, 6, 3.5)
    assert bias.after.undefined == 1


def test_every_two_loops_are_compared_in_the_last_round_of_both_and_others_left_out():
    first = scores("a", "pq", [[0, 0], [1, 1], [2, 2]], np.zeros((3, 2)), (0, 5, 10))
    second = scores("b", "pq", [[3, 3], [7, 7]], np.zeros((2, 2)), (0, 5))
    (pair,) = compare_loops([first, second], n_resamples=10, seed=0)
    change = pair.comparison["bias"]
    assert (pair.number, change.before.value, change.after.value) == (5, 1, 7)
    names = [scores(name, "pq", [[1, 2]], [[0, 0]]) for name in "abc"]
    pairs = compare_loops([*names, scores("d", "xy", [[1, 2]], [[0, 0]])], n_resamples=10, seed=0)
    assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert compare_loops([names[0], scores("d", "pq", [[1, 2]], [[0, 0]], (4,))], n_resamples=10, seed=0) == []
    assert compare_loops(names[:1], n_resamples=10, seed=0) == []


def values(measurement):
    return {name: one.value for name, one in measurement.estimates.items()}


def test_each_round_by_hand():
    quality = [[50, 60, 70], [55, 65, NAN]]
    first, second = measure_rounds(OWN, EXPECTED, quality=quality, ids="abc", n_resamples=20, seed=0)
    # differences 1, 0, 2: the distances of all ordered pairs sum up to 8, the sizes of their sums to 18
    assert values(first) == pytest.approx({"bias": 1, "skewness": 1 - 8 / 18, "own": 4, "expected": 3, "quality": 60})
    # differences 2 and 1, own scores of the same two items: 2 and 12; all items with a quality count in it
    of_two = {"bias": 1.5, "skewness": 1 - 2 / 12, "own": 5, "expected": 3.5, "quality": 60}
    assert values(second) == pytest.approx(of_two)
    assert [(one["own"].n, one["own"].undefined) for one in (first, second)] == [(3, 0), (2, 1)]
    assert first.ids == second.ids == ("a", "b", "c")
    assert [e.text() for e in first.estimates.values()] == ["+1.00", "0.56", "+4.00", "+3.00", "+60.00"]
    assert [e.null for e in first.estimates.values()] == [0, 0, None, None, None]
    loop = summarize_loop("m", OWN, EXPECTED, numbers=[0, 10], n_resamples=20, seed=0)
    assert (loop.numbers, [one.ids for one in loop.rounds]) == ((0, 10), [("0", "1", "2")] * 2)
    assert (loop.change["bias"].before.value, loop.change["bias"].after.value) == (1.5, 1.5)  # of the items of both
    for own, expected in (([1, 2], [1, 2]), (np.ones((2, 3)), np.ones((3, 3)))):
        with pytest.raises(ValueError, match=r"The scores have the shapes .*: give \(rounds, items\) each time"):
            measure_rounds(own, expected, seed=0)
    assert conclude_quality([[1.0, 2.0]], "chrF", seed=0) == ""  # nothing follows from a loop of one step


def test_a_round_that_nothing_reached_does_not_end_a_loop():
    """The loop was cut: round 10 holds no score, so round 5, which is 6.53 too high, is the last."""
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(3, 20))
    own = expected + np.array([0.0, 6.53, NAN])[:, None] + 0.1 * rng.normal(size=(3, 20))
    found = summarize_loop("m", own, expected, numbers=(0, 5, 10), n_resamples=200, seed=0)
    assert found.change["bias"].after.value == pytest.approx(6.53, abs=0.1)
    assert "overrates its own outputs at iteration 5 by +6." in conclude_self(found, rounds="iteration")
    assert self_bias_table(found, rounds="iteration").caption.startswith("5, the last with scores, against first")


def test_rounds_are_measured_over_the_inputs_that_items_share():
    """Four outputs of each of 20 inputs, which share .6 of the variance: over items, 71 of 100 intervals held 0."""
    inputs, covered = [f"{k // 4}" for k in range(80)], 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own = np.sqrt(0.6) * rng.normal(size=20).repeat(4) + np.sqrt(0.4) * rng.normal(size=(1, 80))
        (found,) = measure_rounds(own, np.zeros((1, 80)), inputs=inputs, n_resamples=100, seed=seed)
        covered += found["bias"].low <= 0 <= found["bias"].high
    assert covered >= 90
    loops = [replace(scores(name, inputs, own, np.zeros((1, 80))), items=range(80), inputs=inputs) for name in "ab"]
    (pair,) = compare_loops(loops, n_resamples=10, seed=0)
    assert (pair.comparison["bias"].difference.units, found["bias"].units) == (20, 20)


def test_a_change_is_told_from_the_first_scores_of_the_items_that_are_left():
    """The 20 items that the model overrates by 2 points stop at once, and the 20 others are as they were."""
    rng = np.random.default_rng(0)
    own, expected = 0.1 * rng.normal(size=(2, 40)) + np.repeat([2.0, 0.0], 20), np.zeros((2, 40))
    own[1, :20] = NAN
    found = summarize_loop("m", own, expected, n_resamples=200, seed=0)
    assert found.rounds[0]["bias"].value == pytest.approx(1.0, abs=0.1)
    first = found.change["bias"].before
    assert (first.n, first.value) == (20, pytest.approx(0.0, abs=0.1))
    told = f"no significant change from {first.text()} at 0, in the 20 items with scores in both."
    assert told in conclude_self(found, rounds="iteration")
