"""The cue at the end of a prompt."""

import dspy
import pytest

import evalbias
from evalbias import Criterion, PointwiseJudge
from evalbias.measures.corrections import ScoreCorrection


def test_without_its_cue_a_prompt_ends_with_the_texts(tmp_path):
    judge = PointwiseJudge(
        Criterion("quality", "is it good?"), correction=ScoreCorrection({}, reading=((1, 1), (5, 4)))
    )
    judge.predict.demos = [dspy.Example(source="about the red fox", output="q=1 z=0", score=1)]
    item = dspy.Example(source="about a fox\n", output="q=2 z=0\n")
    with_cue = [message["content"] for message in judge.messages(item)]
    judge.cue = False
    without = [message["content"] for message in judge.messages(item)]
    assert with_cue == [without[0], f"{without[1]}\nQuality:", without[2], f"{without[3]}\nQuality:"]
    assert without[3] == "Source: about a fox\n\nOutput: q=2 z=0\n"
    assert judge.correction is None  # it was learned under the other prompt
    judge.save(tmp_path / "judge.json")
    assert not evalbias.load(tmp_path / "judge.json").cue
    judge.reasoning = True
    question = judge.question(item)
    assert question.prompt[-1]["content"].startswith(f"{without[3]}\n")
    judge.cue = True
    assert judge.question(item).prompt[-1] == question.prompt[-1]  # the cue moves behind the reasons
    assert judge.question(item).conclusion == f"{question.conclusion}\nQuality:"
    with pytest.raises(TypeError, match="cue"):
        judge.cue = "no"
