"""Judges that are recorded with the items, or are somebody's function: their answers by position, and what is known."""

import dspy
import numpy as np
import pytest
from dspy.utils import DummyLM
from refusals import refusals

from evalbias import Criterion, PointwiseJudge, audit, judge_metric, recorded_scores, recorded_verdicts
from evalbias.evaluation import BIASES, compare_judges, function_scores, measure
from evalbias.evaluation.judged import BETTER, HUMAN_SCORES, LENGTHS, LIKELIHOODS, RATINGS

ONE = [dspy.Example(source="ab", output="cde")]


def pair(**fields):
    return dspy.Example(**{"source": "s", "outputs": ["long text", "short"], **fields})


def test_scores_are_read_with_what_is_known_about_the_items():
    rated = dspy.Example(id="a", source="s", output="four", mine="4", score=5, ratings={"quality": [5, 4]})
    bare = dspy.Example(id="b", source="t", output="three", mine=None, score=None)
    items = [one.copy(system=system, input_id="d") for one, system in ((rated, "x"), (bare, "y"))]
    judged = recorded_scores(items, "mine", scale=(1, 5))
    np.testing.assert_array_equal(judged.answers, [4, np.nan])
    assert (judged.ids, judged.inputs, list(judged.writers)) == (("a", "b"), ("d", "d"), ["x", "y"])
    assert (judged.criterion, judged.scale, judged.pairwise) == ("quality", (1, 5), False)
    np.testing.assert_array_equal(judged.covariate(LENGTHS), [4, 5])
    np.testing.assert_array_equal(judged.covariate(HUMAN_SCORES), [5, np.nan])
    np.testing.assert_array_equal(judged.covariate(RATINGS), [[5, 4], [np.nan, np.nan]])
    assert LIKELIHOODS not in judged.covariates
    bare = recorded_scores([dspy.Example(mine=m) for m in (1e-300, 0.9, 2)], "mine")  # columns of numbers are enough
    assert (bare.answers.tolist(), dict(bare.covariates), bare.writers) == ([1e-300, 0.9, 2], {}, ())
    assert len(set(bare.inputs)) == 3


TEXTS = ["カ\u3099", "ガ", "👨\u200d👩\u200d👧", "e\u0301 cafe", "東京👍🏽"]
"""Texts of 1, 1, 5, 6 and 4 characters, and of 1, 1, 1, 6 and 3 graphemes."""


def test_lengths_are_counted_in_characters_or_graphemes_and_say_which():
    items = [dspy.Example(source="s", output=text, mine=k, score=k % 3) for k, text in enumerate(TEXTS)]
    judged = recorded_scores(items, "mine")
    assert judged.counted_in("characters") is judged
    counted = judged.counted_in("graphemes")
    np.testing.assert_array_equal(judged.covariate(LENGTHS), [1, 1, 5, 6, 4])
    np.testing.assert_array_equal(counted.covariate(LENGTHS), [1, 1, 1, 6, 3])
    assert (judged.provenance["length"], counted.provenance["length"]) == ("characters", "graphemes")
    assert measure(BIASES["verbosity"], judged, seed=0)["length_effect"].label == "effect of length"
    assert measure(BIASES["verbosity"], counted, seed=0)["length_effect"].label == "effect of length (graphemes)"
    with pytest.raises(ValueError, match="with different units of length: use the same"):
        compare_judges(*(measure(BIASES["verbosity"], one, seed=0) for one in (judged, counted)), seed=0)
    verdicts = recorded_verdicts([dspy.Example(outputs=TEXTS[2:4], winner=0)], "winner").counted_in("graphemes")
    np.testing.assert_array_equal(verdicts.covariate(LENGTHS), [[1, 6]])
    (longer,) = measure(BIASES["verbosity"], verdicts, seed=0).estimates.values()
    assert (longer.label, longer.words) == ("longer (graphemes)", "How often the longer output wins (graphemes)")
    audited = audit(items, scores_field="mine", length="graphemes", reliability=0.5)
    assert audited.provenance["length"] == "graphemes"
    np.testing.assert_array_equal(audited.judged.covariate(LENGTHS), counted.covariate(LENGTHS))
    unseen = recorded_scores([dspy.Example(mine=k, length=length) for k, length in enumerate(("7", None, 3))], "mine")
    np.testing.assert_array_equal(unseen.counted_in("graphemes").covariate(LENGTHS), [7, np.nan, 3])
    with pytest.raises(ValueError, match="'length' of the item '1' is -2"):
        recorded_scores([dspy.Example(mine=1, length=5), dspy.Example(mine=2, length=-2)], "mine")


@pytest.mark.parametrize(("code", "choice"), [("A", 0), ("b", 1), ("1", 1), (0, 0), ("tie", -1), (None, np.nan)])
def test_people_s_choice_may_stand_in_the_field_preference_in_any_code(code, choice):
    judged = recorded_verdicts([pair(winner=0, preference=code), pair(winner=0, preference="B")], "winner")
    np.testing.assert_array_equal(judged.covariate(BETTER), [choice, 1])
    both = recorded_verdicts([pair(winner=0, preference=code, better=1)], "winner")
    assert both.covariate(BETTER).tolist() == [1]
    rows = [{"source": "s", "outputs": ["x", "y"], "winner": 0, "better": one} for one in (code, "B")]
    read = audit(rows, winner_field="winner")  # the same where a file or rows are read: people's tie is a label
    np.testing.assert_array_equal(read.judged.covariate(BETTER), [choice, 1])


def test_the_judges_own_answers_are_not_taken_for_peoples():
    pairs = [pair(preference="A", swapped="B"), pair(preference="B", swapped="A")]
    assert BETTER not in recorded_verdicts(pairs, "preference", swapped="swapped").covariates
    assert BETTER not in recorded_verdicts(pairs, "swapped", swapped="preference").covariates


@pytest.mark.parametrize(("winner", "swapped", "slip"), [
    ("better", None, "'better'"), ("winner", "better", "'better'"), ("winner", "winner", "'winner' .* both orders")
])  # fmt: skip
def test_one_field_for_two_is_a_slip_and_neither_agreement_nor_fairness(winner, swapped, slip):
    pairs = [dspy.Example(outputs=["a", "b"], winner=k % 2, better=k % 2) for k in range(4)]
    with pytest.raises(ValueError, match=slip):
        recorded_verdicts(pairs, winner, swapped=swapped)
    with pytest.raises(ValueError, match=slip):
        audit(pairs, winner_field=winner, swapped_field=swapped)


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


def test_a_function_that_scores():
    items = [dspy.Example(id=name, output=name, score=1) for name in ("a", "bb", "ccc")]

    def judge(example):
        if example.output == "bb":
            raise RuntimeError("no answer")
        return len(example.output)

    judged = function_scores(items, judge, num_threads=2)
    np.testing.assert_array_equal(judged.answers, [1, np.nan, 3])
    assert judged.asked.reasons == {"bb": "RuntimeError: no answer"}
    assert judged.asked.judgments == 3


def test_a_function_that_compares_is_asked_in_both_orders():
    shown = []

    def longer_or_first(example):
        shown.append(tuple(example.candidates))
        a, b = map(len, example.candidates)
        return int(b > a + 1)

    judged = function_scores([pair(), pair(outputs=["same", "size"])], longer_or_first)
    assert shown == [("long text", "short"), ("same", "size"), ("short", "long text"), ("size", "same")]
    np.testing.assert_array_equal(judged.answers, [[[1, 0], [0, 1]], [[1, 0], [1, 0]]])
    assert judged.asked.judgments == 4


class Rules(dspy.Module):
    def forward(self, source, output):
        return dspy.Prediction(score=len(source) + len(output))


class OfPairs(dspy.Module):
    def forward(self, question, a, b):
        return dspy.Prediction(winner="A")


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


@pytest.mark.parametrize("judge", [dspy.Predict(QA), dspy.ChainOfThought(QA), Asks()])
def test_a_module_with_other_inputs_is_refused_before_it_is_called(judge):
    lm = DummyLM([{"reasoning": "r", "score": "3"}] * 2)
    with dspy.context(lm=lm):
        with pytest.raises(ValueError, match=r"lambda item: judge\(question=item\.source, answer=item\.output\)"):
            function_scores(ONE, judge)
        assert not lm.history
        wrapped = function_scores(ONE, lambda item: judge(question=item.source, answer=item.output))
    assert wrapped.answers.tolist() == [3]
    assert "ab" in lm.history[0]["messages"][-1]["content"]


TAKERS = [(OutputOnly(), 3), (AsksAnything(), 4), (dspy.Predict("source, output -> score: float"), 4)]
# a DSPy metric is given the output as a prediction
TAKERS += [(lambda example, pred, trace=None: len(example.source) + len(pred.output), 5)]
TAKERS += [(lambda gold, prediction: len(prediction.output), 3), (lambda item, factor=2: factor, 2)]


@pytest.mark.parametrize(("judge", "score"), TAKERS)
def test_a_module_or_function_is_passed_what_it_takes(judge, score):
    with dspy.context(lm=DummyLM([{"score": "4"}])):
        assert function_scores(ONE, judge).answers.tolist() == [score]


def test_an_item_that_lacks_what_a_module_takes_is_named():
    judged = function_scores([ONE[0].copy(score=9, other=1), dspy.Example(id="bare", output="c")], Rules())
    assert judged.answers.tolist()[0] == 5
    assert "'source'" in judged.asked.reasons["bare"]


def test_a_pairwise_judge_of_ours_may_be_wrapped():
    prefers = {"long text": (1, 0.2), "short": (0, 0.2), "a": (None, 0.0), "b": (None, np.nan)}

    def wrapped(item):
        preference, gap = prefers[item.candidates[0]]
        return dspy.Prediction(preference=preference, gap=gap)

    judged = function_scores([pair(), pair(outputs=["a", "b"])], wrapped)
    np.testing.assert_array_equal(judged.answers, [[[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [np.nan] * 3]])


def metric(example, pred, trace=None):
    return len(example.source) + len(pred.output)


def of_gepa(gold, pred, trace, pred_name, pred_trace):
    return 0


def test_what_a_metric_of_ours_leaves_undefined_is_no_score():
    class Told(PointwiseJudge):
        def forward(self, source, output):
            score = float("nan") if output == "?" else float(output)
            return dspy.Prediction(score=score, mode=score, distribution={output: 1.0})

    metric = judge_metric(Told(Criterion("quality", "is it good?")))
    judged = function_scores([dspy.Example(source="s", output=text) for text in ("5", "?", "3")], metric)
    np.testing.assert_array_equal(judged.answers, [1, np.nan, 0.5])
    assert (metric.undefined, metric.undefined_items) == (0, [])


def test_a_recorded_score_outside_the_stated_scale_is_refused_and_a_functions_is_undefined():
    short_and_long = [dspy.Example(output="ab"), dspy.Example(output="abcdefg")]
    judged = function_scores(short_and_long, lambda e: len(e.output), scale=(1, 5))
    assert judged.answers == pytest.approx([2.0, np.nan], nan_ok=True)
    (reason,) = judged.asked.reasons.values()
    assert "is 7, outside the scale from 1 to 5" in reason
    scored = [dspy.Example(id="a", mine=5.0), dspy.Example(id="b", mine=5.0000001), dspy.Example(id="c", mine=7)]
    assert recorded_scores(scored[:2], "mine", scale=(1, 5)).answers[1] == pytest.approx(5)  # rounding
    with pytest.raises(ValueError, match="'c' is 7, outside the scale from 1 to 5"):
        recorded_scores(scored, "mine", scale=(1, 5))


def counted(**fields):
    """Three items whose numbers are one, two and three times those given."""
    return [{name: (np.array(value) * k).tolist() for name, value in fields.items()} for k in (1, 2, 3)]


GOOD, TRUE = [{"id": "a", "mine": 1}, {"id": "b", "mine": "good"}], "the judge returned True: return 1 for true and 0"
WRAP = ".* cannot be called with one item: wrap it in a function"


test_what_cannot_be_read_or_asked = refusals(
    lambda read, items, how: read([dspy.Example(one) for one in items], how),
    (recorded_scores, GOOD, "mine", "'mine' of the item 'b' is 'good'"),
    (recorded_scores, GOOD, "mien", "'mien'.* Did you mean 'mine'"),
    (recorded_scores, [], "mine", "There are no items"),
    (recorded_scores, counted(mine=1e-300, score=1), "mine", "The judge's scores 'mine' are at most 3e-300 in"),
    (recorded_scores, counted(mine=1, score=1e-300), "mine", "People's scores on 'quality' are at most 3e-300 in"),
    (recorded_scores, counted(mine=1, ratings=[1e-12] * 2), "mine", "People's ratings on 'quality' are at most 3e"),
    (recorded_verdicts, [pair(w=0), pair(w=2)], "w", "'w' of the item '1' is 2: give 0 or 'A' for the first"),
    (recorded_verdicts, [pair(w=0, better="C")], "w", "'better' of the item '0' is 'C'"),
    (recorded_verdicts, [pair(w=0, preference="gpt-5")], "w", "The label 'preference' of the item '0' is 'gpt-5'"),
    (recorded_verdicts, [{"outputs": ["one"], "w": 0}], "w", "'0' does not have two candidates"),
    (function_scores, ONE, lambda e: e["missing"], "answered no item: on the item '0' it raised KeyError"),
    (function_scores, ONE, lambda e: "good", "on the item '0' it raised ValueError: the judge returned 'good'"),
    (function_scores, ONE, lambda e: 1e308, r"the judge returned 1e\+308: return a number of at most 1e\+30, or"),
    (function_scores, ONE, lambda e: True, TRUE),
    (function_scores, ONE, lambda e: dspy.Prediction(score=True), TRUE),
    (function_scores, ONE, lambda e: None, "it returned None or NaN every time"),
    (function_scores, ONE, lambda e: dspy.Prediction(rating=3), "'rating', of which 'score' is read"),
    (function_scores, [pair()], lambda e: dspy.Prediction(best=0), "'best', of which 'winner' or 'preference' is"),
    (function_scores, ONE, lambda source, output: 1, rf"\(source, output\){WRAP}"),
    (function_scores, ONE, of_gepa, rf"of_gepa\(gold, pred, trace{WRAP}"),
    (function_scores, [pair()], metric, r"`lambda item: judge\(item\.source, item\.candidates\)`"),
    (function_scores, ONE, dspy.Predict("source -> score: float"), "takes 'source', but an audit passes 'source'"),
    (function_scores, [pair()], dspy.Predict("source, output -> winner"), "'output', but an audit .* 'candidates'"),
    (function_scores, ONE, Rules, r"The judge Rules is a class: pass an instance, such as Rules\(\)"),
    (function_scores, [pair()], OfPairs(), r"first=item\.candidates\[0\], second=item\.candidates\[1\]\)"),
)
