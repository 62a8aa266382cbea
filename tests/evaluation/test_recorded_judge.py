"""Judges that are recorded with the items, or are somebody's function: their answers by position, and what is known."""

import dspy
import numpy as np
import pytest

from evalbias import function_scores, recorded_scores, recorded_verdicts
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


def test_a_judge_that_never_answers_is_an_error():
    with pytest.raises(ValueError, match="answered no item: on the item '0' it raised KeyError"):
        function_scores([dspy.Example(output="a")], lambda e: e["missing"])
    with pytest.raises(ValueError, match="on the item '0' it raised ValueError: the judge returned 'good'"):
        function_scores([dspy.Example(output="a")], lambda e: "good")
    with pytest.raises(ValueError, match="it returned None every time"):
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
