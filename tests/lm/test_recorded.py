import dspy
import pytest
from models_of_text import Scripted

from evalbias import Criterion, PointwiseJudge
from evalbias.lm.saved import RecordedLM, record

C = Criterion("quality", "is it good?")


def test_a_recording_replays_judgments_and_texts(lms, tmp_path):
    file = tmp_path / "answers.jsonl"
    lm = record(lms["llama"], file)
    judge = PointwiseJudge(C)
    with dspy.context(lm=lm):
        judged = judge(source="the cat", output="sat")
        texts = lm("the cat", max_tokens=4)
    replay = RecordedLM(file)
    with dspy.context(lm=replay):
        again = judge(source="the cat", output="sat")
        assert replay("the cat", max_tokens=4) == texts
        assert (again.score, again.coverage) == (judged.score, judged.coverage)
        with pytest.raises(dspy.utils.exceptions.LMError, match="has no answer to the prompt that ends with"):
            judge(source="the cat", output="mat")
    batch = judge.batch([dspy.Example(source="the cat", output="sat")], lm=replay)
    assert batch[0].score == judged.score


def test_a_broken_recording(tmp_path):
    with pytest.raises(FileNotFoundError, match="make a recording"):
        RecordedLM(tmp_path / "none")
    (tmp_path / "r").write_text("{}\n")
    with pytest.raises(ValueError, match="r:1 is not a recorded answer"):
        RecordedLM(tmp_path / "r")


def test_different_answers_are_replayed_in_their_order(tmp_path):
    file = tmp_path / "answers.jsonl"
    lm = record(Scripted("one", "two"), file)
    assert [lm("the cat") for _ in range(2)] == [["one"], ["two"]]
    same = record(Scripted("three"), file)
    assert [same("the dog") for _ in range(2)] == [["three"], ["three"]]
    replay = RecordedLM(file)
    assert [replay("the cat") for _ in range(2)] == [["one"], ["two"]]
    assert [replay("the dog") for _ in range(3)] == [["three"]] * 3
    with pytest.raises(dspy.utils.exceptions.LMError, match="has no answer to call 3 of the prompt"):
        replay("the cat")
    program = dspy.Predict("source -> output")
    program.lm = RecordedLM(file)
    assert program.deepcopy().lm("the cat") == ["one"]
