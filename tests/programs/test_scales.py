"""Bias needs own and expected scores on one scale: a metric is mapped onto MQM, or Bias is undefined."""

import math
from dataclasses import replace

import dspy
import numpy as np
import pytest
from models_of_text import Scripted

from evalbias.evaluation import Paraphrased, measure_style
from evalbias.measures import QuantileMap
from evalbias.optimizers.refine import ExternalFeedbackRefine
from evalbias.programs.feedback import MappedFeedback, MQMFeedback, ReferenceFeedback, ScorerFeedback, expected_scores
from evalbias.programs.tasks import translation

TO_MQM = QuantileMap.fit([0, 50, 100], [-25, -20, 0], metric="chrf")


def test_a_metric_is_mapped_onto_mqm():
    mapped = MappedFeedback(ReferenceFeedback("chrf"), TO_MQM)
    example = {"reference": "a dog runs"}
    assert (mapped(example, "a dog runs").score, mapped.low, mapped.high) == (0, -25, 0)
    assert mapped(example, "a dog runs").text == "similarity to a reference: 100 of 100"
    assert -25 <= mapped(example, "no").score <= -20
    assert mapped.name == "chrf mapped onto MQM"
    nothing = MappedFeedback(ScorerFeedback("chrf", lambda s, o, r: math.nan, low=0, high=100), TO_MQM)
    assert math.isnan(nothing({"source": "x", "reference": "y"}, "z").score)
    with pytest.raises(ValueError, match=r"scores from 0 to 100, outside the MQM scores from -25 to 0"):
        MappedFeedback(ReferenceFeedback("chrf"), QuantileMap.fit([0, 25], [0, 100], metric="chrf"))


def test_a_map_is_used_with_its_own_metric_only():
    with pytest.raises(ValueError, match="fitted to scores of 'chrf', but these are scores of 'bleu': fit a map to"):
        MappedFeedback(ReferenceFeedback("bleu"), TO_MQM)
    with pytest.raises(ValueError, match="fitted to scores of 'chrf', but these are scores of 'bleu'"):
        translation(metric=ReferenceFeedback("bleu"), to_mqm=TO_MQM)
    fractions = ScorerFeedback("chrf", lambda s, o, r: 0.5, low=0, high=1)
    with pytest.raises(ValueError, match="fitted to scores from 0 to 100, and 'chrf' gives 0 to 1: fit it to scores"):
        MappedFeedback(fractions, TO_MQM)
    with pytest.raises(ValueError, match="fitted to scores from 0 to 1, and 'chrf' gives 0 to 100"):
        MappedFeedback(ReferenceFeedback("chrf"), QuantileMap.fit([0, 0.5, 1], [-25, -20, 0], metric="chrf"))
    unclipped = QuantileMap.fit([-0.02, 0.5, 1.03], [-25, -20, 0], metric="chrf")
    assert MappedFeedback(fractions, unclipped)({"source": "a", "reference": "ab"}, "b").score == -20
    same = QuantileMap.fit([0, 50, 100], [-25, -20, 0], metric="CHRF")
    mapped = MappedFeedback(ReferenceFeedback("chrf"), same)
    assert mapped({"reference": "ab"}, "ab").score == 0
    other = MappedFeedback(ScorerFeedback("x", lambda s, o, r: 0.5, low=0, high=100), replace(same, metric="x"))
    assert other.map_id != mapped.map_id  # scores under another map are not mixed
    assert ReferenceFeedback("bleu").signature.startswith("sacrebleu bleu|nrefs:1|case:mixed|eff:yes|tok:13a")


def test_scores_on_different_scales_are_not_subtracted():
    own, chrf = MQMFeedback(), ReferenceFeedback("chrf")
    assert np.isnan(expected_scores([50.0], chrf, own)).all()
    assert expected_scores([-20.0], MappedFeedback(chrf, TO_MQM), own).tolist() == [-20]
    assert translation(to_mqm=TO_MQM).external.low == -25
    assert translation(metric=ReferenceFeedback("bleu")).external.name == "bleu"


@pytest.mark.parametrize("to_mqm", [None, TO_MQM])
def test_an_unbiased_judge_of_translations_is_not_called_biased(to_mqm):
    """Its own scores are the human scores; chrF of 50 stands for -20, where a linear map would say -12.5."""
    items = [dspy.Example(id=str(n), source="s", reference="abcd", output="x") for n in range(4)]
    task = translation(to_mqm=to_mqm)
    metric = ScorerFeedback("chrf", lambda s, o, r: 50.0, low=0, high=100)
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
    optimizer = ExternalFeedbackRefine(task.external, until="quality or bias", select=False)
    with pytest.raises(ValueError, match="'own MQM' and 'chrf' score on different ranges: map the quality"):
        optimizer.compile(task.loop, trainset=items, lm=Scripted("x"))
