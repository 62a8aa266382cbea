"""A pairwise judge where DSPy wants a metric."""

import math

import dspy
import pytest
from fakes import Comparer, pair

from evalbias import data
from evalbias.programs import Criterion, PairwiseJudge, preference_accuracy, preference_metric

C = Criterion("quality", "is it good?")


def test_the_probability_of_beating_the_reference(lms):
    program = PairwiseJudge(C, debias="permutation")
    program.predict.lm = lms["llama"]
    metric = preference_metric(program, output="answer", reference="gold")
    example = dspy.Example(source="a source", gold="one text").with_inputs("source")
    won = metric(example, dspy.Prediction(answer="another text"))
    lost = metric(dspy.Example(source="a source", gold="another text"), dspy.Prediction(answer="one text"))
    assert won + lost == pytest.approx(1, abs=1e-5)
    assert metric(example, dspy.Prediction(answer="one text")) == 0.5
    with pytest.raises(ValueError, match="name the field with output="):
        metric(example, dspy.Prediction(text="x"))
    assert metric(example, dspy.Prediction(answer=None)) == 0
    evaluate = dspy.Evaluate(devset=[example] * 3, metric=metric, display_progress=False)
    assert evaluate(lambda source: dspy.Prediction(answer="another text")).score == pytest.approx(100 * won, abs=0.01)


def test_accuracy_of_a_pairwise_judge():
    pairs = [pair(1, 2).copy(preference="B"), pair(3, 2).copy(preference="B"), pair(2, 2.0001).copy(preference="B")]
    predictions = PairwiseJudge(C).batch(pairs, lm=Comparer())
    assert [preference_accuracy(e, p) for e, p in zip(pairs, predictions, strict=True)] == [1, 0, 1]
    tie = PairwiseJudge(C, ties=True).batch(pairs[:1], lm=Comparer(tie=9.0))[0]
    assert preference_accuracy(pairs[0], tie) == 0.5
    mute = PairwiseJudge(C).batch(pairs[:1], lm=Comparer(mass=1e-9))[0]
    assert preference_accuracy(pairs[0], mute) == 0
    assert math.isnan(preference_accuracy(pairs[0], mute, undefined=math.nan))
    assert preference_accuracy(pairs[0], dspy.Prediction(preference="B")) == 1


def test_pairs_are_labeled_by_people():
    items = [
        dspy.Example(id=str(k), source="s", output=f"o{k}", scores={"quality": score})
        for k, score in enumerate([1, 2, 2, math.nan])
    ]
    labeled = data.pairs(items, criterion="quality", seed=0)
    assert {(*p.ids, p.preference) for p in labeled} == {
        ("0", "1", "B"),
        ("1", "0", "A"),
        ("0", "2", "B"),
        ("2", "0", "A"),
    }
    assert len(data.pairs(items, seed=0)) == 12
