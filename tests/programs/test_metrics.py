"""Judges as metrics of DSPy's evaluation and of GEPA."""

import math

import dspy
import pytest
from models_of_text import Scripted

from evalbias import judge_metric, judge_reward, preference_metric
from evalbias.programs import Criterion, PairwiseJudge, PointwiseJudge, preference_accuracy, score_closeness
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


class Writes(dspy.Module):
    """Writes prepared outputs in turn."""

    def __init__(self, *outputs):
        super().__init__()
        self.predict = PlainPredict("source -> output")
        self.set_lm(Scripted(*outputs))

    def forward(self, source):
        return self.predict(source=source)


def test_an_output_that_the_judge_cannot_score_gets_the_reward_named(caplog):
    reward = judge_reward(Told(C))
    assert [reward({"source": "s"}, dspy.Prediction(output=text)) for text in ("?", "3", "?")] == [0, 0.5, 0]
    assert reward.undefined_items == ["0", "1"]
    assert "item '1' is undefined and counts as 0 (2 so far)" in caplog.text
    assert judge_reward(Told(C), undefined=0.25)({"source": "s"}, dspy.Prediction(output="?")) == 0.25
    best = dspy.BestOfN(module=Writes("?", "2", "4", "?"), N=4, reward_fn=reward, threshold=1.0)
    assert best(source="s").output == "4"
    silent = dspy.BestOfN(module=Writes("?"), N=2, reward_fn=judge_reward(Told(C)), threshold=1.0)
    assert silent(source="s").output == "?"


PAIR = dspy.Example(id="7", source="s", candidates=["a", "b"], preference="B").with_inputs("source", "candidates")
RATED = dspy.Example(id="7", source="s", output="x", score=4).with_inputs("source", "output")


def test_labels_give_feedback_to_gepa(caplog):
    def told(metric, example, **answer):
        given = metric(example, dspy.Prediction(**answer), [], "predict", [])
        assert metric(example, dspy.Prediction(**answer)) == given.score
        return given.score, given.feedback

    assert told(preference_accuracy, PAIR, preference=1, gap=2.0) == (1, "The judge prefers B; people prefer B.")
    assert told(preference_accuracy, PAIR, preference="A", gap=2.0) == (0, "The judge prefers A; people prefer B.")
    assert told(preference_accuracy, PAIR, preference=None, gap=0.0) == (
        0.5,
        "The judge has no preference; people prefer B.",
    )
    undefined = told(preference_accuracy, PAIR, preference=None, gap=math.nan)
    assert undefined == (0, "The judge's comparison is undefined; people prefer B.")
    assert "item '7' is undefined and counts as 0" in caplog.text
    closeness = score_closeness(C)
    at = "The judge scored {} on quality where people scored 4: {}."
    assert told(closeness, RATED, score=2.5) == (0.625, at.format("2.50", "1.50 too low"))
    assert told(closeness, RATED, score=5.0) == (0.75, at.format("5.00", "1.00 too high"))
    assert told(closeness, RATED, score=4.0) == (1, at.format("4.00", "as people did"))
    assert told(closeness, RATED, score=math.nan) == (0, "The judge gave no score on quality; people gave 4.")
    assert closeness.undefined_items == ["7", "7"]
    assert math.isnan(score_closeness(C, undefined=math.nan)(RATED, dspy.Prediction(score=math.nan)))


@pytest.mark.parametrize(
    ("kind", "example", "metric"), [(PairwiseJudge, PAIR, preference_accuracy), (PointwiseJudge, RATED, None)]
)
def test_gepa_compiles_a_judge_from_labels(lms, kind, example, metric):
    judge = kind(C)
    judge.predict.lm = lms["llama"]
    reflection = Scripted("```\nWhich has more quality?\n```")
    optimizer = dspy.GEPA(
        metric=metric or score_closeness(C), max_metric_calls=8, reflection_lm=reflection, num_threads=1
    )
    optimizer.compile(judge, trainset=[example] * 3, valset=[example] * 2)
    assert "people" in reflection.asked[0]
