"""Labels of pairs mean the same in every code, for metrics, demonstrations and data."""

import dspy
import pytest

from evalbias import data, preference_accuracy
from evalbias.programs import Criterion, PairwiseJudge
from evalbias.programs.items import preference_label

C = Criterion("quality", "is it good?")
CODES = {
    "A": ("A", "a", 0, "0", 0.0, " a "),
    "B": ("B", "b", 1, "1", 1.0),
    "Tie": ("Tie", "tie", "TIE", -1, "-1"),
    None: (None, "", float("nan")),
}


def pair(**label):
    return dspy.Example(id="7", source="s", candidates=["x", "y"], **label).with_inputs("source", "candidates")


@pytest.mark.parametrize(("answer", "code"), [(answer, code) for answer, codes in CODES.items() for code in codes])
def test_every_code_is_read(answer, code):
    assert preference_label(pair(preference=code)) == answer
    assert preference_label(pair(better=code)) == answer
    assert preference_label(pair(preference=None, better=code)) == answer


def test_more_candidates_have_more_codes():
    three = dspy.Example(id="7", source="s", outputs=["x", "y", "z"])
    assert [preference_label(three.copy(preference=code)) for code in ("C", "c", 2)] == ["C"] * 3


@pytest.mark.parametrize("code", ["first", 2, "C", True, ["A"]])
def test_a_label_that_is_no_choice_is_an_error(code):
    message = r"'preference' of the item '7' is .*: give 0 or 'A' for the first output, 1 or 'B' for the second, 'tie'"
    with pytest.raises(ValueError, match=message):
        preference_label(pair(preference=code))
    with pytest.raises(ValueError, match=message):
        preference_accuracy(pair(preference=code), dspy.Prediction(preference=0, gap=0.3))
    judge = PairwiseJudge(C)
    judge.predict.demos = [pair(preference=code)]
    with pytest.raises(ValueError, match=message):
        judge.messages(pair())


@pytest.mark.parametrize("code", CODES["A"])
def test_a_judge_that_agrees_is_right_in_every_code(code):
    def values(example):
        answers = [dspy.Prediction(preference=one, gap=0.3) for one in (0, "A", 1, "B", None)]
        return [preference_accuracy(example, answer) for answer in answers]

    assert values(pair(preference=code)) == [1, 1, 0, 0, 0.5]
    assert values(dspy.Example(preference=code)) == [1, 1, 0, 0, 0.5]


def test_only_a_judge_without_a_preference_agrees_with_a_tie():
    tied, answers = pair(preference="tie"), (0, 1, None, "Tie")
    values = [preference_accuracy(tied, dspy.Prediction(preference=answer, gap=0.3)) for answer in answers]
    assert values == [0, 0, 1, 1]


def test_the_accuracy_needs_a_label():
    with pytest.raises(ValueError, match=r"The item .\{'id': None\}. has no label"):
        preference_accuracy(dspy.Example(id=None), dspy.Prediction(preference=0, gap=0.3))
    with pytest.raises(ValueError, match="The item '7' has no label: give preference='A' or 0 for the first candidate"):
        preference_accuracy(pair(), dspy.Prediction(preference=0, gap=0.3))


@pytest.mark.parametrize("answer", ["A", "B", "Tie"])
def test_a_demonstration_shows_the_judges_answer_in_every_code(answer):
    judge = PairwiseJudge(C, ties=True)
    for code in CODES[answer]:
        judge.predict.demos = [pair(preference=code)]
        assert [m["content"] for m in judge.messages(pair()) if m["role"] == "assistant"] == [answer]


def test_the_texts_of_a_demonstration_may_be_named_outputs():
    judges = [PairwiseJudge(C), PairwiseJudge(C)]
    judges[0].predict.demos = [pair(preference=1)]
    judges[1].predict.demos = [dspy.Example(source="s", outputs=["x", "y"], better=1)]
    assert judges[0].messages(pair()) == judges[1].messages(pair())
    judges[1].predict.demos = [dspy.Example(source="s", output="x", preference="A")]
    with pytest.raises(ValueError, match="The demonstration 's' has no candidates: give pairs"):
        judges[1].messages(pair())


def test_a_demonstration_without_an_answer_of_the_judge_is_an_error():
    judge = PairwiseJudge(C)
    judge.predict.demos = [pair(preference=-1)]
    with pytest.raises(ValueError, match="The demonstration '7' is labeled 'Tie', but the judge answers A, B"):
        judge.messages(pair())
    judge.predict.demos = [pair(preference=None)]
    with pytest.raises(ValueError, match="The demonstration '7' has no label, but the judge answers A, B"):
        judge.messages(pair())


@pytest.mark.parametrize(("codes", "swapped"), [(("A", 0), ("B", 1)), ((1, "B"), ("A", 0)), (("tie", -1), ("tie", -1))])
def test_the_other_order_of_a_pair_has_the_other_label(codes, swapped):
    given = pair(preference=codes[0], better=codes[1])
    both = {p.id: p for p in data.pairs([given], ordered=True, seed=0)}
    assert (both["7 swapped"].preference, both["7 swapped"].better) == swapped
    if codes[0] != "tie":
        assert len(data.pairs([given], ordered=True, criterion="quality", seed=0)) == 2
