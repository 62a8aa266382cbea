"""The metric that compares a judge with people's scores refuses what people did not say."""

import math

import dspy
import pytest

from evalbias import labeled, score_closeness
from evalbias.programs import Criterion

C = Criterion("quality", "is it good?")
BAD = {
    "The human score of the item '7' on 'quality' is undefined: leave the item out": [
        {"score": math.nan},
        {"score": None},
        {"scores": {"quality": None}},
    ],
    "The human score of the item '7' on 'quality' is 80, outside the scale from 1 to 5": [
        {"score": 80},
        {"scores": {"quality": 80}},
    ],
    "The item '7' has no score on 'quality'": [{}, {"scores": {"wit": 3}}],
    "The score of the item '7' on 'quality' is 'good': give a number": [{"score": "good"}],
}


def value(**fields):
    return score_closeness(C)(dspy.Example(id="7", **fields), dspy.Prediction(score=3.0))


@pytest.mark.parametrize(("message", "fields"), [(message, one) for message, rows in BAD.items() for one in rows])
def test_a_score_that_people_did_not_give_is_an_error(message, fields):
    with pytest.raises(ValueError, match=message):
        value(**fields)


def test_scores_by_criterion_count_and_a_label_comes_before_them():
    assert value(score=4) == value(scores={"quality": 4, "wit": 1}) == 0.75
    (example,) = labeled(
        [dspy.Example(id="7", source="s", output="o", scores={"quality": 80})], C, bins=[20, 40, 60, 90]
    )
    assert score_closeness(C)(example, dspy.Prediction(score=3.0)) == 0.75  # the label is 4
