"""Judges as metrics of DSPy's evaluation and of GEPA."""

import math

import dspy
import pytest
from models_of_text import Scripted

from evalbias import judge_metric, preference_metric
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge
from evalbias.programs.plain_text import PlainPredict

C = Criterion("quality", "is it good?")
ITEM = dspy.Example(id="7", source="s", reference="gold").with_inputs("source")


class Told(PointwiseJudge):
    """Gives the score that its output names."""

    def forward(self, source, output):
        score = math.nan if output == "?" else float(output)
        shares = {label: float(label == "4") for label in C.labels}
        return dspy.Prediction(score=score, mode=score if score != score else 4.0, distribution=shares)


class Compared(PairwiseJudge):
    def forward(self, source, candidates):
        return dspy.Prediction(win_share=float(candidates[0]), consistent=False)


def test_one_undefined_judgment_is_counted_and_does_not_make_an_evaluation_undefined(caplog):
    outputs = iter(["5", "?", "3"])
    metric = judge_metric(Told(C))
    evaluate = dspy.Evaluate(devset=[ITEM] * 3, metric=metric, num_threads=1)
    assert evaluate(lambda source: dspy.Prediction(output=next(outputs))).score == 50  # (1 + 0 + .5) / 3
    assert metric.undefined_items == ["7"]
    assert "item '7' is undefined and counts as 0 (1 so far)" in caplog.text
    assert math.isnan(judge_metric(Told(C), undefined=math.nan)(ITEM, dspy.Prediction(output="?")))
    assert preference_metric(Compared(C), undefined=0.25)(ITEM, dspy.Prediction(output="nan")) == 0.25


def test_feedback_says_which_way_the_judge_leaned():
    told = judge_metric(Told(C), threshold=0.9)(ITEM, dspy.Prediction(output="3.5"), [], "predict", [])
    assert told.score == 0.625
    assert told.feedback == (
        "The judge scored the output 3.50 on quality, from 1 (worst) to 5 (best). Its most probable score is 4 "
        "(probability 1.00), and it leans lower. The question was: is it good?"
    )
    compared = preference_metric(Compared(C))(ITEM, dspy.Prediction(output=".25"), [], "predict", [])
    assert compared.score == 0.25
    assert compared.feedback == (
        "The judge prefers the reference on quality: the output wins with probability 0.25. The preference changes "
        "with the order of the two. The question was: is it good?"
    )


@pytest.mark.parametrize("metric", [judge_metric(Told(C)), preference_metric(Compared(C))])
def test_gepa_reflects_on_the_feedback(metric):
    program = PlainPredict("source -> output")
    program.set_lm(Scripted("0.5"))
    reflection = Scripted("```\nWrite better.\n```")
    optimizer = dspy.GEPA(metric=metric, max_metric_calls=12, reflection_lm=reflection, num_threads=1)
    optimizer.compile(program, trainset=[ITEM] * 3, valset=[ITEM] * 3)
    assert "The question was: is it good?" in reflection.asked[0]
