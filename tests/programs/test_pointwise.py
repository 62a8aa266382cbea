import math

import dspy
import numpy as np
import pytest

from evalbias.lm.types import ChoiceLogprobs
from evalbias.programs import Criterion, PointwiseJudge, label_of, labeled

C = Criterion("quality", "is it good?")


def item(quality, rarity, **more):
    return dspy.Example(source="s", output=f"q={quality} z={rarity}", **more).with_inputs("source", "output")


def row_of(shares, **options):
    with np.errstate(divide="ignore"):
        return PointwiseJudge(C)._row(ChoiceLogprobs(C.labels, np.log([shares]), **options))


def test_the_expected_score_is_equation_7_worked_by_hand():
    row = row_of([0.1, 0.0, 0.2, 0.0, 0.1])
    # (1 * .1 + 3 * .2 + 5 * .1) / .4 = 1.2 / .4
    assert row["score"] == pytest.approx(3.0)
    assert row["coverage"] == pytest.approx(0.4)
    assert row["distribution"] == pytest.approx({"1": 0.25, "2": 0, "3": 0.5, "4": 0, "5": 0.25})
    assert row["mode"] == 3
    undefined = row_of([0.0] * 5)
    assert np.isnan([undefined["score"], undefined["mode"]]).all()
    assert undefined["coverage"] == 0
    renormalized = row_of([0.2] * 5, renormalized=True)
    assert renormalized["score"] == pytest.approx(3.0)
    assert math.isnan(renormalized["coverage"])


def test_demonstrations_show_the_nearest_label_and_need_a_score():
    judge = PointwiseJudge(C)
    judge.predict.demos = [item(2, 0, score=3.75, extra="kept out of the prompt")]
    roles = [(m["role"], m["content"]) for m in judge.messages(item(1, 0))[1:]]
    assert roles[:2] == [("user", "Source: s\nOutput: q=2 z=0\nQuality:"), ("assistant", "4")]
    judge.predict.demos = [item(2, 0, scores={"quality": 3.2})]
    with pytest.raises(ValueError, match="has no score: label the training set"):
        judge.messages(item(1, 0))


def test_labeled_makes_a_training_set_for_any_dspy_optimizer():
    (example,) = labeled([item(1, 0, scores={"quality": 70.0})], C, bins=(15, 40, 65, 90))
    assert example.score == 4.0
    assert label_of(example.score, C) == "4"
    assert set(example.inputs().keys()) == {"source", "output"}
    with pytest.raises(ValueError, match=r"has no score on 'quality', only on \['wit'\]"):
        labeled([item(1, 0, scores={"wit": 1})], C)
