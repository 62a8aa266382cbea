import math
import warnings

import dspy
import numpy as np
import pytest
from fakes import Comparer, Fake, pair

from evalbias.lm.types import ChoiceLogprobs
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.programs.pairwise import OnePlace

C = Criterion("quality", "is it good?")
NATURAL = Criterion("自然さ", "日本語として自然か？")


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_one_order_by_hand():
    (prediction,) = PairwiseJudge(C).batch([pair(1, 2)], lm=Comparer(lean=0.5))
    p = sigmoid(1 - 2 + 0.5)
    assert prediction.preference == 1
    assert prediction.probability == pytest.approx(p)
    assert prediction.probabilities == pytest.approx([p, 1 - p])
    assert prediction.win_share == prediction.probability
    assert prediction.gap == pytest.approx(1 - 2 * p)
    assert (prediction.consistent, prediction.tie) == (None, 0.0)
    assert prediction.coverage == pytest.approx(0.8)


def test_both_orders_are_averaged_by_candidate():
    lean = 1.5
    (prediction,) = PairwiseJudge(C, debias="permutation").batch([pair(1, 2)], lm=Comparer(lean=lean))
    forward, swapped = sigmoid(-1 + lean), 1 - sigmoid(1 + lean)  # of the first candidate
    assert prediction.probability == pytest.approx((forward + swapped) / 2)
    assert prediction.preference == 1
    assert prediction.consistent is False
    assert prediction.positions[1] == pytest.approx([1 - swapped, swapped])
    (clear,) = PairwiseJudge(C, debias="permutation").batch([pair(1, 4)], lm=Comparer(lean=lean))
    assert clear.consistent is True


def test_calibration_removes_the_position_bias():
    judge = PairwiseJudge(C, calibration="batch")
    pairs = [pair(1, 2), pair(2, 1), pair(3, 1), pair(1, 3)] * 3  # the true odds balance
    predictions = judge.batch(pairs, lm=Comparer(lean=2.0))
    assert [p.probability for p in predictions] == pytest.approx([sigmoid(d) for d in (-1, 1, 2, -2)] * 3)


def test_pride_is_fitted_without_labels_and_takes_one_prompt_a_pair():
    fresh = [pair(1, 2), pair(3, 1), pair(2, 4)]
    known = [pair(1, 2), pair(3, 1), pair(2, 2.5), pair(1, 4), pair(5, 2)] * 2
    raw = PairwiseJudge(C).batch(fresh, lm=Comparer(lean=3.0))
    assert [p.preference for p in raw] == [0, 0, 0]
    judge, lm = PairwiseJudge(C, calibration="pride"), Comparer(lean=3.0)
    assert judge.calibrate(known, lm=lm) == len(lm.prompts) == 20
    fair = judge.batch(fresh, lm=lm)
    assert len(lm.prompts) == 23
    assert [p.preference for p in fair] == [1, 0, 1]
    assert [p.probability for p in fair] == pytest.approx([sigmoid(d) for d in (-1, 2, -2)])
    for name, value in (("calibration", "batch"), ("language", "ja")):  # another kind, and other prompts
        changed = judge.deepcopy()
        assert changed.corrections != {}
        setattr(changed, name, value)
        assert changed.corrections == {}


def test_a_calibration_is_fitted_to_a_batch_that_has_every_order():
    examples = [pair(1, 2), pair(3, 1), pair(2, 2.5), pair(1, 4), pair(5, 2)] * 2
    judge = PairwiseJudge(C, calibration="pride", debias="permutation")
    fair = judge.batch(examples, lm=Comparer(lean=3.0))
    assert [p.preference for p in fair] == [1, 0, 1, 1, 0] * 2
    assert all(p.consistent for p in fair)
    judge.debias = None
    with pytest.raises(ValueError, match=r"pride' is not fitted, which takes every order"):
        judge.batch(examples, lm=Comparer(lean=3.0))


def test_pride_takes_ties_and_many_candidates():
    judge, lm = PairwiseJudge(C, ties=True, calibration="pride"), Comparer(lean=2.0, tie=0.5)
    assert judge.calibrate([pair(1, 2, 3), pair(0, 2)], lm=lm) == 3 + 2
    assert judge.corrections[2].offsets == pytest.approx((1, -1, 0))
    assert judge.corrections[3].offsets == pytest.approx((4 / 3, -2 / 3, -2 / 3, 0))
    (found,) = judge.batch([pair(1, 2, 4)], lm=lm)
    assert found.probabilities[1] / found.probabilities[0] == pytest.approx(math.e)


def test_what_cannot_be_calibrated_is_refused_with_the_reason():
    refusals = [(name, Comparer(mass=1e-9), "None of 1 comparisons has a defined") for name in ("pride", "batch")]
    refusals += [(None, Comparer(), "calibration=None is not fitted")]
    for calibration, lm, match in refusals:
        judge = PairwiseJudge(C, calibration=calibration)
        with pytest.raises(ValueError, match=match):
            judge.calibrate([pair(1, 2)], lm=lm)
        assert judge.corrections == {}


def test_a_batch_that_cannot_be_calibrated_asks_nothing():
    lm = Comparer(lean=2.0)
    for calibration, n, match in (("batch", 9, "over 9 comparisons would remove"), ("pride", 20, "takes every order")):
        with pytest.raises(ValueError, match=match):
            PairwiseJudge(C, calibration=calibration).batch([pair(1, 2)] * n, lm=lm)
    assert lm.prompts == []


def test_a_fitted_calibration_serves_other_items_and_a_call_without_one_asks_nothing():
    judge, lm = PairwiseJudge(C, calibration="batch"), Comparer(lean=2.0)
    judge.calibrate([pair(1, 2), pair(2, 1)], lm=lm)
    (prediction,) = judge.batch([pair(1, 3)], lm=lm)
    assert prediction.probability == pytest.approx(sigmoid(-2))
    lm.prompts.clear()
    with dspy.context(lm=lm), pytest.raises(ValueError, match="on examples of 3 candidates"):
        judge(source="s", candidates=["a", "b", "c"])
    assert lm.prompts == []


def test_listwise_choice_and_ties():
    judge = PairwiseJudge(C, ties=True, debias="permutation")
    lm = Comparer(tie=3.0)
    predictions = judge.batch([pair(1, 3, 2), pair(1, 2)], lm=lm)
    shares = np.exp([1, 3, 2, 3.0])
    assert [*predictions[0].probabilities, predictions[0].tie] == pytest.approx(list(shares / shares.sum()))
    assert predictions[0].preference is None  # the tie is as likely as the best
    assert len(predictions[0].positions) == 3
    assert predictions[1].preference is None
    assert predictions[1].tie > 0.5
    shared = [p.probability + p.tie / len(p.probabilities) for p in predictions]
    assert [p.win_share for p in predictions] == pytest.approx(shared)
    assert {len(p[-1]["content"].splitlines()) for p in lm.prompts} == {7, 8}
    assert lm.prompts[-1][-1]["content"].splitlines()[-2] == "Answer with A, B or Tie."


@pytest.mark.parametrize("debias", [None, "permutation"])
def test_low_coverage_is_undefined(debias):
    judge = PairwiseJudge(C, debias=debias, min_coverage=0.1)
    (prediction,) = judge.batch([pair(1, 2)], lm=Comparer(mass=0.05))
    assert (prediction.preference, prediction.consistent) == (None, None)
    assert math.isnan(prediction.probability)
    assert math.isnan(prediction.gap)
    assert prediction.coverage == pytest.approx(0.05)


class Undecided(Fake):  # answers most often with the last choice
    def choice_logprobs(self, prompts, choices):
        return ChoiceLogprobs(tuple(choices), np.log([[0.2] * (len(choices) - 1) + [0.5]] * len(prompts)))


@pytest.mark.parametrize(("language", "tie"), [("en", "Tie"), ("ja", "引き分け")])
def test_a_tie_is_the_same_answer_in_every_language(language, tie):
    """What a trace holds is read as data, whatever the judge's language."""
    judge, lm = PairwiseJudge(NATURAL, language=language, ties=True), Undecided()
    item = dspy.Example(source="s", candidates=["x", "y"])
    (row,) = judge._ask([(item, item)], lm)
    assert (row["preference"], lm.questions[0].choices) == ("Tie", ("A", "B", tie))
    judge.predict.demos = [item.copy(preference=row["preference"])]
    assert judge.messages(item)[1]["content"] == tie


LEANING = [(9, 20, {}, "A"), (-9, 20, {}, "B"), (9, 19, {}, None), (0, 20, {}, None)]  # 19 are too few
LEANING += [(9, 20, {"debias": "permutation"}, None), (9, 20, {"calibration": "batch"}, None)]


@pytest.mark.parametrize(("lean", "pairs", "options", "place"), LEANING)
def test_a_judge_that_chooses_one_place_is_warned_of(lean, pairs, options, place):
    items = [pair(number, 19.5 - number) for number in range(pairs)]  # the better one stands first in half of them
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PairwiseJudge(C, **options).batch(items, lm=Comparer(lean=3 * lean))
    told = [str(warning.message) for warning in caught if warning.category is OnePlace]
    assert [message.split(" in nine")[0][-1] for message in told] == ([] if place is None else [place])
