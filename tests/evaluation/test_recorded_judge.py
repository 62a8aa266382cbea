"""Judges that are recorded with the items, or are somebody's function: their answers by position, and what is known."""

import re

import dspy
import numpy as np
import pytest
from dspy.utils import DummyLM

from evalbias import Criterion, PointwiseJudge, audit, function_scores, judge_metric, recorded_scores, recorded_verdicts
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS


def pair(**fields):
    return dspy.Example(**{"source": "s", "outputs": ["long text", "short"], **fields})


def test_scores_are_read_with_what_is_known_about_the_items():
    items = [
        dspy.Example(
            id="a", source="s", output="four", mine="4", score=5, system="x", input_id="d", ratings={"quality": [5, 4]}
        ),
        dspy.Example(id="b", source="t", output="three", mine=None, score=None, system="y", input_id="d"),
    ]
    judged = recorded_scores(items, "mine", scale=(1, 5))
    np.testing.assert_array_equal(judged.answers, [4, np.nan])
    assert (judged.ids, judged.inputs, list(judged.writers)) == (("a", "b"), ("d", "d"), ["x", "y"])
    assert (judged.criterion, judged.scale, judged.pairwise) == ("quality", (1, 5), False)
    np.testing.assert_array_equal(judged.covariate(LENGTHS), [4, 5])
    np.testing.assert_array_equal(judged.covariate(HUMAN_SCORES), [5, np.nan])
    np.testing.assert_array_equal(judged.covariate(RATINGS), [[5, 4], [np.nan, np.nan]])
    assert LIKELIHOODS not in judged.covariates


@pytest.mark.parametrize(("code", "choice"), [("A", 0), ("b", 1), ("1", 1), (0, 0), ("tie", -1), (None, np.nan)])
def test_people_s_choice_may_stand_in_the_field_preference_in_any_code(code, choice):
    judged = recorded_verdicts([pair(winner=0, preference=code), pair(winner=0, preference="B")], "winner")
    np.testing.assert_array_equal(judged.covariate(BETTER), [choice, 1])
    both = recorded_verdicts([pair(winner=0, preference=code, better=1)], "winner")
    assert both.covariate(BETTER).tolist() == [1]


def test_a_preference_that_is_no_code_is_refused_with_its_item():
    with pytest.raises(ValueError, match="The label 'preference' of the item '1' is 'gpt-5': give 0 or 'A'"):
        recorded_verdicts([pair(winner=0, preference=1), pair(winner=0, preference="gpt-5")], "winner")


def test_the_judges_own_answers_are_not_taken_for_peoples():
    pairs = [pair(preference="A", swapped="B"), pair(preference="B", swapped="A")]
    assert BETTER not in recorded_verdicts(pairs, "preference", swapped="swapped").covariates
    assert BETTER not in recorded_verdicts(pairs, "preference", better="people").covariates
    assert BETTER not in recorded_verdicts(pairs, "swapped", better="people").covariates


def test_one_field_for_both_orders_is_a_slip_and_no_fair_judge():
    pairs = [dspy.Example(outputs=["a", "b"], winner=k % 2) for k in range(4)]
    with pytest.raises(ValueError, match="The field 'winner' is named for both orders"):
        recorded_verdicts(pairs, "winner", swapped="winner")


@pytest.mark.parametrize(("winner", "swapped"), [("better", None), ("winner", "better")])
def test_one_field_for_judge_and_people_is_a_slip_and_no_agreement(winner, swapped):
    pairs = [dspy.Example(outputs=["a", "b"], winner=k % 2, better=k % 2) for k in range(4)]
    with pytest.raises(
        ValueError, match=r"'better' is named for the judge's choices and for people's .* judge_choice=better in"
    ):
        recorded_verdicts(pairs, winner, swapped=swapped)
    with pytest.raises(ValueError, match="'better' is named for the judge's choices and for people's"):
        audit(pairs, winner_field=winner, swapped_field=swapped)


@pytest.mark.parametrize(
    ("mine", "score", "named"),
    [(1e-300, 1, "The judge's scores 'mine'"), (1, 1e-300, "People's scores on 'quality'")],
)
def test_numbers_too_small_for_the_measures_are_named_as_such(mine, score, named):
    items = [dspy.Example(mine=mine * k, score=score * k) for k in (1, 2, 3)]
    with pytest.raises(ValueError, match=rf"{named} are at most 3e-300 in size, .*: multiply them"):
        recorded_scores(items, "mine")


def test_single_ratings_too_small_for_the_measures_are_named_as_such():
    items = [dspy.Example(mine=k, ratings=[k * 1e-12, k * 2e-12]) for k in (1, 2, 3)]
    with pytest.raises(ValueError, match="People's ratings on 'quality' are at most 6e-12 in size"):
        recorded_scores(items, "mine")


def test_a_small_number_among_others_counts():
    judged = recorded_scores([dspy.Example(mine=m, score=0) for m in (1e-300, 0.9, None)], "mine")
    assert judged.answers.tolist()[:2] == [1e-300, 0.9]


def test_bare_columns_of_numbers_are_enough():
    judged = recorded_scores([dspy.Example(mine=1), dspy.Example(mine=2)], "mine")
    assert judged.answers.tolist() == [1, 2]
    assert not judged.covariates
    assert not judged.writers
    assert len(set(judged.inputs)) == 2


def test_a_value_that_is_no_score_names_its_item():
    items = [dspy.Example(id="a", mine=1), dspy.Example(id="b", mine="good")]
    with pytest.raises(ValueError, match="'mine' of the item 'b' is 'good': give a number"):
        recorded_scores(items, "mine")
    with pytest.raises(ValueError, match=r"No item has a field 'mien'; the fields are id, mine. Did you mean 'mine'\?"):
        recorded_scores(items, "mien")
    with pytest.raises(ValueError, match="There are no items"):
        recorded_scores([], "mine")


def test_verdicts_become_answers_by_position():
    pairs = [
        pair(winner=0, winner_swapped=0, better=0),  # the first output, wherever it stands
        pair(winner=0, winner_swapped=1, better=1),  # the first position
        pair(winner="1", winner_swapped=None, better=None),
    ]
    judged = recorded_verdicts(pairs, "winner", swapped="winner_swapped")
    nan = [np.nan, np.nan]
    np.testing.assert_array_equal(judged.answers, [[[1, 0], [0, 1]], [[1, 0], [1, 0]], [[0, 1], nan]])
    np.testing.assert_array_equal(judged.covariate(BETTER), [0, 1, np.nan])
    np.testing.assert_array_equal(judged.covariate(LENGTHS), [[9, 5]] * 3)
    np.testing.assert_array_equal(judged.win_shares, [1, 0.5, np.nan])
    assert judged.pairwise
    assert not judged.ties


def test_a_tie_is_a_third_class():
    pairs = [pair(w=-1, s="tie", better="tie"), pair(w=1, s=1)]
    judged = recorded_verdicts(pairs, "w", swapped="s")
    np.testing.assert_array_equal(judged.answers, [[[0, 0, 1], [0, 0, 1]], [[0, 1, 0], [1, 0, 0]]])
    assert judged.ties
    assert BETTER not in judged.covariates
    np.testing.assert_array_equal(recorded_verdicts(pairs, "w").answers, [[[0, 0, 1]], [[0, 1, 0]]])


def test_a_choice_of_no_output_names_its_pair():
    with pytest.raises(ValueError, match="'w' of the item '1' is 2: give 0 or 'A' for the first output, 1 or 'B'"):
        recorded_verdicts([pair(w=0), pair(w=2)], "w")
    with pytest.raises(ValueError, match="'better' of the item '0' is 'C'"):
        recorded_verdicts([pair(w=0, better="C")], "w")
    with pytest.raises(ValueError, match="'0' does not have two candidates"):
        recorded_verdicts([dspy.Example(outputs=["one"], w=0)], "w")


def test_a_function_that_scores():
    items = [dspy.Example(id=name, output=name, score=1) for name in ("a", "bb", "ccc")]

    def judge(example):
        if example.output == "bb":
            raise RuntimeError("no answer")
        return len(example.output)

    judged = function_scores(items, judge, num_threads=2)
    np.testing.assert_array_equal(judged.answers, [1, np.nan, 3])
    assert judged.reasons == {"bb": "RuntimeError: no answer"}
    assert judged.judgments == 3


def test_a_function_that_compares_is_asked_in_both_orders():
    shown = []

    def longer_or_first(example):
        shown.append(tuple(example.candidates))
        a, b = map(len, example.candidates)
        return int(b > a + 1)

    judged = function_scores([pair(), pair(outputs=["same", "size"])], longer_or_first)
    assert shown == [("long text", "short"), ("same", "size"), ("short", "long text"), ("size", "same")]
    np.testing.assert_array_equal(judged.answers, [[[1, 0], [0, 1]], [[1, 0], [1, 0]]])
    assert judged.judgments == 4


class Rules(dspy.Module):
    def forward(self, source, output):
        return dspy.Prediction(score=len(source) + len(output))


def test_a_dspy_module_is_called_with_the_fields_of_an_item():
    judged = function_scores([dspy.Example(source="ab", output="c", score=9, other=1)], Rules())
    assert judged.answers.tolist() == [3]


class QA(dspy.Signature):
    """Rate the answer."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    score: float = dspy.OutputField()


class Asks(dspy.Module):
    def __init__(self):
        super().__init__()
        self.rate = dspy.Predict(QA)

    def forward(self, question, answer, context=""):
        return self.rate(question=question, answer=answer)


class AsksAnything(Asks):
    def forward(self, **inputs):
        return super().forward(question=inputs["source"], answer=inputs["output"])


class OutputOnly(dspy.Module):
    def forward(self, output):
        return len(output)


ONE = [dspy.Example(source="ab", output="cde")]


@pytest.mark.parametrize("judge", [dspy.Predict(QA), dspy.ChainOfThought(QA), Asks()])
def test_a_module_with_other_inputs_is_refused_before_it_is_called(judge):
    lm = DummyLM([{"reasoning": "r", "score": "3"}] * 2)
    wanted = (
        r"takes 'question' and 'answer', but an audit passes 'source' and 'output': wrap it in a function, such as "
        r"`lambda item: judge\(question=item\.source, answer=item\.output\)`"
    )
    with dspy.context(lm=lm):
        with pytest.raises(ValueError, match=wanted):
            function_scores(ONE, judge)
        assert not lm.history
        wrapped = function_scores(ONE, lambda item: judge(question=item.source, answer=item.output))
    assert wrapped.answers.tolist() == [3]
    assert "ab" in lm.history[0]["messages"][-1]["content"]


def test_a_module_is_passed_what_it_takes():
    assert function_scores(ONE, OutputOnly()).answers.tolist() == [3]
    with dspy.context(lm=DummyLM([{"score": "4"}] * 2)):
        assert function_scores(ONE, AsksAnything()).answers.tolist() == [4]
        assert function_scores(ONE, dspy.Predict("source, output -> score: float")).answers.tolist() == [4]
    with pytest.raises(ValueError, match="takes 'source', but an audit passes 'source' and 'output'"):
        function_scores(ONE, dspy.Predict("source -> score: float"))
    with pytest.raises(ValueError, match="takes 'output', but an audit passes 'source' and 'candidates'"):
        function_scores([pair()], dspy.Predict("source, output -> winner: int"))
    with pytest.raises(ValueError, match=r"The judge Rules is a class: pass an instance, such as Rules\(\)"):
        function_scores(ONE, Rules)
    judged = function_scores([*ONE, dspy.Example(id="bare", output="c")], Rules())
    assert judged.reasons == {"bare": "ValueError: the item has no 'source', which the judge needs"}


def test_the_fields_of_a_prediction_that_are_read_are_named():
    with pytest.raises(ValueError, match="returned a prediction with 'rating', of which 'score' is read"):
        function_scores(ONE, lambda item: dspy.Prediction(rating=3))
    with pytest.raises(ValueError, match="prediction with 'best', of which 'winner' or 'preference' is read"):
        function_scores([pair()], lambda item: dspy.Prediction(best=0))


def test_a_module_with_other_fields_for_pairs_is_told_how_to_wrap_it():
    class Own(dspy.Module):
        def forward(self, question, a, b):
            return dspy.Prediction(winner="A")

    told = "judge(question=item.source, first=item.candidates[0], second=item.candidates[1])"
    with pytest.raises(ValueError, match=re.escape(told)):
        function_scores([pair()], Own())


def test_a_pairwise_judge_of_ours_may_be_wrapped():
    prefers = {"long text": (1, 0.2), "short": (0, 0.2), "a": (None, 0.0), "b": (None, np.nan)}

    def wrapped(item):
        preference, gap = prefers[item.candidates[0]]
        return dspy.Prediction(preference=preference, gap=gap)

    judged = function_scores([pair(), pair(outputs=["a", "b"])], wrapped)
    np.testing.assert_array_equal(judged.answers, [[[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [np.nan] * 3]])


def test_a_dspy_metric_is_given_the_output_as_a_prediction():
    def metric(example, pred, trace=None):
        return len(example.source) + len(pred.output)

    def of_gepa(gold, pred, trace, pred_name, pred_trace):
        return 0

    assert function_scores(ONE, metric).answers.tolist() == [5]
    assert function_scores(ONE, lambda gold, prediction: len(prediction.output)).answers.tolist() == [3]
    assert function_scores(ONE, lambda item, factor=2: factor).answers.tolist() == [2]
    for judge, told in ((lambda source, output: 1, r"\(source, output\)"), (of_gepa, r"of_gepa\(gold, pred, trace")):
        with pytest.raises(ValueError, match=told + ".* cannot be called with one item: wrap it in a function"):
            function_scores(ONE, judge)
    with pytest.raises(ValueError, match=r"`lambda item: judge\(item\.source, item\.candidates\)`"):
        function_scores([pair()], metric)


def test_what_a_metric_of_ours_leaves_undefined_is_no_score():
    class Told(PointwiseJudge):
        def forward(self, source, output):
            score = float("nan") if output == "?" else float(output)
            return dspy.Prediction(score=score, mode=score, distribution={})

    metric = judge_metric(Told(Criterion("quality", "is it good?")))
    judged = function_scores([dspy.Example(source="s", output=text) for text in ("5", "?", "3")], metric)
    np.testing.assert_array_equal(judged.answers, [1, np.nan, 0.5])
    assert (metric.undefined, metric.undefined_items) == (0, [])


def test_a_judge_that_never_answers_is_an_error():
    with pytest.raises(ValueError, match="answered no item: on the item '0' it raised KeyError"):
        function_scores([dspy.Example(output="a")], lambda e: e["missing"])
    with pytest.raises(ValueError, match="on the item '0' it raised ValueError: the judge returned 'good'"):
        function_scores([dspy.Example(output="a")], lambda e: "good")
    with pytest.raises(ValueError, match=r"the judge returned 1e\+308: return a number of at most 1e\+30, or"):
        function_scores([dspy.Example(output="a")], lambda e: 1e308)
    for verdict in (True, dspy.Prediction(score=True)):
        with pytest.raises(ValueError, match="the judge returned True: return 1 for true and 0 for false"):
            function_scores([dspy.Example(output="a")], lambda e, verdict=verdict: verdict)
    with pytest.raises(ValueError, match="it returned None or NaN every time"):
        function_scores([dspy.Example(output="a")], lambda e: None)


def test_a_score_outside_the_stated_scale_is_refused():
    scored = [dspy.Example(id="a", mine=5.0), dspy.Example(id="b", mine=5.0000001), dspy.Example(id="c", mine=7)]
    assert recorded_scores(scored[:2], "mine", scale=(1, 5)).answers[1] == pytest.approx(5)  # rounding
    with pytest.raises(ValueError, match=r"'mine' of the item 'c' is 7, outside the scale from 1 to 5: correct it"):
        recorded_scores(scored, "mine", scale=(1, 5))


def test_a_functions_score_outside_the_scale_is_undefined_and_counted():
    judged = function_scores(
        [dspy.Example(output="ab"), dspy.Example(output="abcdefg")], lambda e: len(e.output), scale=(1, 5)
    )
    assert judged.answers == pytest.approx([2.0, np.nan], nan_ok=True)
    assert list(judged.reasons.values()) == ["ValueError: the judge returned 7, outside the scale from 1 to 5"]
