"""Bias needs own and expected scores on one scale: a metric is mapped onto MQM, or Bias is undefined."""

import math

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.evaluation import Paraphrased, measure_style
from evalbias.measures import QuantileMap
from evalbias.optimizers.external_refine import ExternalFeedbackRefine
from evalbias.programs.feedback import MappedFeedback, MQMFeedback, ReferenceFeedback, ScorerFeedback
from evalbias.programs.feedback.source import expected_scores
from evalbias.programs.tasks import translation

TO_MQM = QuantileMap.fit([0, 50, 100], [-25, -20, 0])


def test_a_metric_is_mapped_onto_mqm():
    mapped = MappedFeedback(ReferenceFeedback("chrf"), TO_MQM)
    example = {"reference": "a dog runs"}
    assert (mapped(example, "a dog runs").score, mapped.low, mapped.high) == (0, -25, 0)
    assert mapped(example, "a dog runs").text == "similarity to a reference: 100 of 100"
    assert -25 <= mapped(example, "no").score <= -20
    assert mapped.name == "sacrebleu chrf mapped onto MQM"
    nothing = MappedFeedback(ScorerFeedback("m", lambda s, o, r: math.nan, low=0, high=100), TO_MQM)
    assert math.isnan(nothing({"source": "x", "reference": "y"}, "z").score)
    with pytest.raises(ValueError, match=r"scores from 0 to 100, outside the MQM scores from -25 to 0"):
        MappedFeedback(ReferenceFeedback("chrf"), QuantileMap.fit([-25, 0], [0, 100]))


def test_scores_on_different_scales_are_not_subtracted():
    own, chrf = MQMFeedback(), ReferenceFeedback("chrf")
    assert np.isnan(expected_scores([50.0], chrf, own)).all()
    assert expected_scores([-20.0], MappedFeedback(chrf, TO_MQM), own).tolist() == [-20]
    assert translation(to_mqm=TO_MQM).external.low == -25
    assert translation(metric=ReferenceFeedback("bleu")).external.name == "sacrebleu bleu"


@pytest.mark.parametrize("to_mqm", [None, TO_MQM])
def test_an_unbiased_judge_of_translations_is_not_called_biased(to_mqm):
    """Its own scores are the human scores; chrF of 50 stands for -20, where a linear map would say -12.5."""
    items = [dspy.Example(id=str(n), source="s", reference="abcd", output="x") for n in range(4)]
    task = translation(to_mqm=to_mqm)
    metric = ScorerFeedback("half", lambda s, o, r: 50.0, low=0, high=100)
    quality = metric if to_mqm is None else MappedFeedback(metric, to_mqm)
    errors = "\n".join(["'a' is a major accuracy error"] * 4)  # -20
    lm = Scripted(*([errors, "x y", errors] * 4))
    report = measure_style(Paraphrased(task.loop.feedback), items, quality, lm=lm)
    for side in (report.before, report.after):
        if to_mqm is None:
            assert math.isnan(side["bias"].value)
            assert (side["bias"].n, side["bias"].undefined) == (0, 4)
        else:
            assert (side["bias"].value, side["expected"].value) == (0, -20)


def test_a_stop_by_the_bias_needs_one_scale():
    task = translation()
    items = [dspy.Example(id="1", source="s", reference="r", target_language="en")]
    optimizer = ExternalFeedbackRefine(task.external, until="quality or bias")
    with pytest.raises(ValueError, match="'own MQM' and 'sacrebleu chrf' score on different ranges: map the quality"):
        optimizer.compile(task.loop, trainset=items, lm=Scripted("x"))
